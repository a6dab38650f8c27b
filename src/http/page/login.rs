//! Logins of the page.

use std::sync::Arc;

use axum::extract::{Extension, Query, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use daoyou_channels::{ClientAddr, HttpError};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::access::{Authenticator, LoginCode, NewLogin, Principal};
use crate::http::api::UniqueJson;
use crate::http::service::RequestScheme;
use crate::http::state::{AppState, SharedState};

/// Returns the route of the login itself.
pub fn open_routes(auth: Arc<Authenticator>) -> Router {
    Router::new().route("/api/login", post(log_in)).route("/login", get(redeem)).with_state(auth)
}

/// Returns the route behind the access check that only clients on TCP have.
pub fn login_routes(auth: Arc<Authenticator>) -> Router {
    Router::new().route("/api/logout", post(log_out)).with_state(auth)
}

/// Returns the route `/api/page/code`, which only clients of the control socket have. It returns a code that logs in once.
pub fn code_routes(state: Arc<AppState>) -> Router {
    Router::new().route("/api/page/code", post(new_code)).with_state(state)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoginBody {
    token: String,
}

async fn log_in(
    State(auth): State<Arc<Authenticator>>,
    Extension(client): Extension<ClientAddr>,
    Extension(scheme): Extension<RequestScheme>,
    UniqueJson(LoginBody { token }): UniqueJson<LoginBody>,
) -> Result<Response, HttpError> {
    let login = auth.log_in(client, &token).await?;
    Ok((StatusCode::NO_CONTENT, cookie(&auth, Some(&login), scheme)).into_response())
}

#[derive(Deserialize)]
struct CodeParams {
    #[serde(default)]
    code: String,
}

async fn redeem(
    State(auth): State<Arc<Authenticator>>,
    Extension(client): Extension<ClientAddr>,
    Extension(scheme): Extension<RequestScheme>,
    method: Method,
    Query(CodeParams { code }): Query<CodeParams>,
) -> Result<Response, HttpError> {
    if method == Method::HEAD {
        // A preview of a link does not use up its code.
        return Ok(Redirect::to("/").into_response());
    }
    Ok(match auth.redeem(client, &code).await? {
        Some(login) => (cookie(&auth, Some(&login), scheme), Redirect::to("/")).into_response(),
        None => Redirect::to("/?login=expired").into_response(),
    })
}

async fn log_out(
    State(auth): State<Arc<Authenticator>>,
    Extension(scheme): Extension<RequestScheme>,
    principal: Principal,
) -> Result<Response, HttpError> {
    auth.log_out(&principal).await?;
    Ok((StatusCode::NO_CONTENT, cookie(&auth, None, scheme)).into_response())
}

#[derive(Deserialize)]
struct NewCodeParams {
    /// Return the code of the previous such request again while it is unused and valid for a while.
    #[serde(default)]
    again: bool,
}

async fn new_code(
    State(state): SharedState,
    Query(NewCodeParams { again }): Query<NewCodeParams>,
) -> Result<Json<Value>, HttpError> {
    let Some(address) = &state.address else { return Err(HttpError::not_found("this gateway serves no page")) };
    let LoginCode { code, expires_in } = if again { state.auth.shown_code() } else { state.auth.new_code() }?;
    Ok(Json(json!({
        "url": format!("{address}/login?code={code}"),
        "code": code,
        "expires_in": expires_in.as_secs(),
    })))
}

fn cookie(
    auth: &Authenticator,
    login: Option<&NewLogin>,
    scheme: RequestScheme,
) -> [(header::HeaderName, HeaderValue); 2] {
    let cookie = auth.set_cookie(login, scheme.is_https);
    [(header::SET_COOKIE, cookie), (header::CACHE_CONTROL, HeaderValue::from_static("no-store"))]
}
