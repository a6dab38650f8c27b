//! `/api/cron`.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Path, Query};
use axum::routing::{get, post};
use axum::{Json, Router};
use daoyou_channels::{HttpError, json};
use serde::Deserialize;
use serde_json::Value;

use super::response::{ApiResult, run_detached};
use crate::cron::{JobError, JobService};
use crate::http::limits::IMPORT_BODY_LIMIT;
use crate::http::state::{AppState, SharedState};
use crate::query::jobs::{self, AppliedJobChange, HISTORY_LIMIT};
use crate::query::{JobChange, JobQuery};

pub(super) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/api/cron", get(async |state: SharedState| read(&state, JobQuery::List).await).post(add))
        .route("/api/cron/export", get(async |state: SharedState| read(&state, JobQuery::Export).await))
        .route(
            "/api/cron/import",
            post(async |state: SharedState, text: String| apply(&state, JobChange::Import(text)).await)
                .layer(DefaultBodyLimit::max(IMPORT_BODY_LIMIT)),
        )
        .route(
            "/api/cron/{job}",
            get(async |state: SharedState, Path(job)| read(&state, JobQuery::Show(job)).await)
                .delete(async |state: SharedState, Path(job)| apply(&state, JobChange::Remove(job)).await),
        )
        .route(
            "/api/cron/{job}/enable",
            post(async |state: SharedState, Path(job)| apply(&state, JobChange::Enable(job)).await),
        )
        .route(
            "/api/cron/{job}/disable",
            post(async |state: SharedState, Path(job)| apply(&state, JobChange::Disable(job)).await),
        )
        .route(
            "/api/cron/{job}/run",
            post(async |state: SharedState, Path(job)| apply(&state, JobChange::Run(job)).await),
        )
        .route("/api/cron/{job}/history", get(history))
}

#[derive(Deserialize)]
struct HistoryParams {
    limit: Option<u32>,
}

async fn history(state: SharedState, Path(job): Path<String>, Query(params): Query<HistoryParams>) -> ApiResult {
    read(&state, JobQuery::History { job, limit: params.limit.unwrap_or(HISTORY_LIMIT) }).await
}

async fn add(state: SharedState, text: String) -> ApiResult {
    match json::from_str(&text) {
        Ok(job) => apply(&state, JobChange::Add(job)).await,
        Err(error) => Err(HttpError::bad_request(format!("the body is not JSON: {error}"))),
    }
}

async fn read(state: &AppState, query: JobQuery) -> ApiResult {
    let service = state.jobs.get();
    Ok(Json(jobs::read(&service.store, query, service.context.clone()).await?))
}

async fn apply(state: &AppState, change: JobChange) -> ApiResult {
    let service = state.jobs.get();
    run_detached(async move { Ok(Json(change_jobs(&service, change).await?)) }).await
}

/// Makes a change, and wakes what it concerns.
///
/// # Errors
/// As [`jobs::apply`].
pub async fn change_jobs(service: &JobService, change: JobChange) -> Result<Value, JobError> {
    let AppliedJobChange { answer, fired } = jobs::apply(&service.store, change, service.context.clone()).await?;
    if let Some(fired) = fired {
        service.wake_started(fired);
    }
    service.wake();
    Ok(answer)
}
