//! `/api/status` and the other queries about the gateway itself.

use std::sync::Arc;

use axum::extract::{Path, Query};
use axum::routing::get;
use axum::{Json, Router};
use daoyou_channels::HttpError;
use serde::Deserialize;
use serde_json::json;

use super::response::ApiResult;
use crate::http::health;
use crate::http::state::{AppState, SharedState};
use crate::query::{GatewayQuery, ProbeScope};

pub(super) fn routes() -> Router<Arc<AppState>> {
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
