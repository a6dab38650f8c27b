//! `/api/memory`, `/api/search`, and the import of sessions.

use std::sync::Arc;

use axum::extract::{Path, Query};
use axum::routing::{get, post};
use axum::{Json, Router};
use daoyou_channels::{HttpError, limit_body};
use serde::Deserialize;

use super::response::{ApiResult, parse_body, run_detached};
use crate::http::limits::IMPORT_BODY_LIMIT;
use crate::http::state::{AppState, SharedState};
use crate::memory::MemorySelection;
use crate::query::{MemoryChange, MemoryQuery, memories};

pub(super) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/api/memory", get(list).post(add))
        .route("/api/memory/search", get(search))
        .route("/api/memory/stats", get(async |state: SharedState| read(&state, MemoryQuery::Stats).await))
        .route("/api/memory/export", get(export))
        .route("/api/memory/forget", post(forget))
        .route(
            "/api/memory/import",
            limit_body(
                post(async |state: SharedState, text: String| apply(&state, MemoryChange::Import(text)).await),
                IMPORT_BODY_LIMIT,
            ),
        )
        .route("/api/search", get(search_messages))
        .route("/api/sessions", limit_body(post(import_session), IMPORT_BODY_LIMIT))
        .route(
            "/api/memory/{id}",
            get(async |state: SharedState, Path(id): Path<String>| {
                read(&state, MemoryQuery::Show(parse_id(&id)?)).await
            })
            .patch(edit)
            .delete(async |state: SharedState, Path(id): Path<String>| {
                apply(&state, MemoryChange::Forget(vec![parse_id(&id)?])).await
            }),
        )
}

/// The parameters of all queries.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Params {
    q: Option<String>,
    owner: Option<String>,
    kind: Option<String>,
    session: Option<String>,
    since: Option<String>,
    limit: Option<u32>,
}

impl Params {
    fn selection(&self) -> MemorySelection {
        MemorySelection { owner: self.owner.clone(), kind: self.kind.clone() }
    }

    fn text(&self) -> Result<String, HttpError> {
        self.q.clone().ok_or_else(|| HttpError::bad_request("\"q\" is missing: what to look for"))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ids {
    ids: Vec<i64>,
}

async fn list(state: SharedState, Query(params): Query<Params>) -> ApiResult {
    read(&state, MemoryQuery::List { selection: params.selection(), limit: params.limit }).await
}

async fn search(state: SharedState, Query(params): Query<Params>) -> ApiResult {
    let (text, selection) = (params.text()?, params.selection());
    read(&state, MemoryQuery::Search { text, selection, since: params.since, limit: params.limit }).await
}

async fn search_messages(state: SharedState, Query(params): Query<Params>) -> ApiResult {
    let text = params.text()?;
    let Params { session, since, limit, .. } = params;
    read(&state, MemoryQuery::SearchMessages { text, session, since, limit }).await
}

async fn import_session(state: SharedState, Query(params): Query<Params>, text: String) -> ApiResult {
    apply(&state, MemoryChange::ImportSession { text, session: params.session, owner: params.owner }).await
}

async fn export(state: SharedState, Query(params): Query<Params>) -> ApiResult {
    read(&state, MemoryQuery::Export(params.selection())).await
}

async fn add(state: SharedState, text: String) -> ApiResult {
    apply(&state, MemoryChange::Add(parse_body(&text)?)).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EditBody {
    content: String,
}

async fn edit(state: SharedState, Path(id): Path<String>, text: String) -> ApiResult {
    let EditBody { content } = parse_body(&text)?;
    apply(&state, MemoryChange::Edit { id: parse_id(&id)?, text: content }).await
}

async fn forget(state: SharedState, text: String) -> ApiResult {
    let Ids { ids } = parse_body(&text)?;
    apply(&state, MemoryChange::Forget(ids)).await
}

fn parse_id(id: &str) -> Result<i64, HttpError> {
    let wrong = || format!("{id:?} is not a memory's id; ids are whole numbers such as 17");
    id.parse().map_err(|_| HttpError::not_found(wrong()))
}

pub(super) async fn read(state: &AppState, query: MemoryQuery) -> ApiResult {
    Ok(Json(memories::read(&state.memory.get(), query).await?))
}

pub(super) async fn apply(state: &AppState, change: MemoryChange) -> ApiResult {
    let service = state.memory.get();
    run_detached(async move { Ok(Json(memories::apply(&service, change).await?)) }).await
}
