//! Names in paths.

use axum::extract::FromRequestParts;
use axum::extract::rejection::PathRejection;
use axum::http::request::Parts;

use crate::query::name_of_path;

/// The parameter of a path that names an object.
pub(super) struct Name(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = PathRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, PathRejection> {
        let axum::extract::Path(name) = axum::extract::Path::<String>::from_request_parts(parts, state).await?;
        Ok(Self(name_of_path(&name).to_owned()))
    }
}
