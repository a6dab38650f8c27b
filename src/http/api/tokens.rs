//! `/api/tokens`.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{delete, get};
use axum::{Json, Router};
use daoyou_channels::{HttpError, json};
use serde::Deserialize;
use serde_json::Value;

use super::response::{ApiResult, run_detached};
use crate::http::state::{AppState, SharedState};
use crate::query::TokenChange;
use crate::query::access;

pub(super) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/api/tokens", get(list).post(add)).route(
        "/api/tokens/{name}",
        delete(async |state: SharedState, Path(name)| apply(&state, TokenChange::Revoke(name)).await.map(Json)),
    )
}

async fn list(State(state): SharedState) -> ApiResult {
    Ok(Json(access::list(state.bus.store()).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenBody {
    name: String,
    scope: String,
}

async fn add(state: SharedState, text: String) -> Result<(StatusCode, Json<Value>), HttpError> {
    let TokenBody { name, scope } =
        json::from_str(&text).map_err(|error| HttpError::bad_request(format!("the body is not valid: {error}")))?;
    Ok((StatusCode::CREATED, Json(apply(&state, TokenChange::Add { name, scope }).await?)))
}

async fn apply(state: &AppState, change: TokenChange) -> Result<Value, HttpError> {
    let store = state.bus.store().clone();
    run_detached(async move { Ok(access::apply(&store, change).await?) }).await
}
