//! `/api`: what the commands and the page use. The mode of the control socket's file protects it there, the token on TCP.

mod jobs;
mod memory;
mod response;
mod store;
mod terminal;

use std::sync::Arc;

use axum::extract::{Path, Query};
use axum::routing::get;
use axum::{Json, Router};
use daoyou_channels::HttpError;
use serde::Deserialize;
use serde_json::json;

use self::response::ApiResult;
use super::health;
use super::state::{AppState, SharedState};
use crate::query::{GatewayQuery, ProbeScope};

/// All routes of the API.
pub fn routes(state: Arc<AppState>) -> Router {
    store::routes()
        .merge(jobs::routes())
        .merge(memory::routes())
        .merge(gateway_routes())
        .merge(terminal::routes())
        .with_state(state)
}

/// `/api/status` and the other queries about the gateway itself.
fn gateway_routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/api/status", get(status))
        .route("/api/channels", get(async |state: SharedState| answer(&state, GatewayQuery::Channels).await))
        .route(
            "/api/channels/{name}/test",
            get(async |state: SharedState, Path(name)| answer(&state, GatewayQuery::TestChannel(name)).await),
        )
        .route("/api/models", get(models))
        .route("/api/tools", get(async |state: SharedState| answer(&state, GatewayQuery::Tools).await))
        .route("/api/checks", get(async |state: SharedState| answer(&state, GatewayQuery::Checks).await))
}

async fn answer(state: &AppState, query: GatewayQuery) -> ApiResult {
    state.inspector.answer(query).await.map(Json).map_err(HttpError::from)
}

#[derive(Deserialize)]
struct ModelsParams {
    /// The provider to probe, or `*` for all.
    ask: Option<String>,
}

async fn models(state: SharedState, Query(params): Query<ModelsParams>) -> ApiResult {
    let scope = match params.ask {
        None => ProbeScope::None,
        Some(all) if all == "*" => ProbeScope::All,
        Some(name) => ProbeScope::One(name),
    };
    answer(&state, GatewayQuery::Models(scope)).await
}

async fn status(state: SharedState) -> ApiResult {
    let Json(mut status) = answer(&state, GatewayQuery::Status).await?;
    let (ready, parts) = health::readiness(&state);
    status["ready"] = json!(ready);
    status["parts"] = parts;
    Ok(Json(status))
}
