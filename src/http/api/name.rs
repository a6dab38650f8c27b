//! Names in paths.

use axum::extract::FromRequestParts;
use axum::extract::rejection::PathRejection;
use axum::http::request::Parts;

use crate::query::NAME_END;

/// The parameter of a path that names an object. A client appends [`NAME_END`] to a name that would not be a segment of a path.
pub(super) struct Name(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = PathRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, PathRejection> {
        let axum::extract::Path(name) = axum::extract::Path::<String>::from_request_parts(parts, state).await?;
        Ok(Self(name.strip_suffix(NAME_END).map_or_else(|| name.clone(), str::to_owned)))
    }
}
