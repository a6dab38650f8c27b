//! What the commands ask about the gateway itself.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;

use daoyou_channels::HttpError;

use super::api::Answer;
use super::health;
use super::routes::Hub;
use crate::control::{Ask, Question};

type Shared = State<Arc<Hub>>;

#[derive(Deserialize)]
struct Asked {
    /// A provider's name, or `*` for all.
    ask: Option<String>,
}

/// The routes.
pub fn routes(hub: Arc<Hub>) -> Router {
    Router::new()
        .route("/api/status", get(status))
        .route("/api/channels", get(async |hub: Shared| answer(&hub, Question::Channels).await))
        .route(
            "/api/channels/{name}/test",
            get(async |hub: Shared, Path(name)| answer(&hub, Question::TestChannel(name)).await),
        )
        .route("/api/models", get(models))
        .route("/api/tools", get(async |hub: Shared| answer(&hub, Question::Tools).await))
        .route("/api/checks", get(async |hub: Shared| answer(&hub, Question::Checks).await))
        .with_state(hub)
}

async fn answer(hub: &Hub, question: Question) -> Answer {
    hub.inspect.answer(question).await.map(Json).map_err(HttpError::from)
}

async fn models(hub: Shared, Query(asked): Query<Asked>) -> Answer {
    let ask = match asked.ask {
        None => Ask::Nobody,
        Some(all) if all == "*" => Ask::Everybody,
        Some(name) => Ask::Only(name),
    };
    answer(&hub, Question::Models(ask)).await
}

async fn status(hub: Shared) -> Answer {
    let Json(mut status) = answer(&hub, Question::Status).await?;
    let (ready, parts) = health::readiness(&hub);
    status["ready"] = json!(ready);
    status["parts"] = parts;
    Ok(Json(status))
}
