//! `/api`: the routes that the commands and the page use. On the control socket, the socket file's mode protects them; on TCP, the
//! token does.

mod jobs;
mod memory;
mod openapi;
pub(in crate::http) mod response;
mod store;
mod terminal;

pub use self::jobs::change_jobs;
pub use self::store::UniqueJson;

use std::sync::Arc;

use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::middleware::from_fn;
use axum::routing::{MethodRouter, delete, get, post};
use axum::{Json, Router};
use daoyou_channels::{HttpError, limit_body};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::Level;

use self::response::{ApiResult, parse_body, run_detached};
use super::access::Principal;
use super::error::out_of_scope;
use super::limits::IMPORT_BODY_LIMIT;
use super::state::{AppState, SharedState};
use super::{health, page};
use crate::logging::RecentLog;
use crate::query::{
    ControlRequest, GatewayQuery, JobChange, JobQuery, ManualToolRun, MemoryChange, MemoryQuery, OTHER_VERSION,
    ProbeScope, StoreChange, StoreQuery, TokenChange, TokenScope, access,
};

/// The largest arguments of a tool, in bytes.
const ARGUMENTS_LIMIT: usize = 16 * 1024 * 1024;
/// The largest request of a command, in bytes: the largest file that a command imports, whose line breaks and quotes JSON escapes.
const COMMAND_BODY_LIMIT: usize = 4 * IMPORT_BODY_LIMIT;

/// The default number of log lines to return.
const DEFAULT_LINES: usize = 200;

/// All routes of the API.
pub fn routes(state: Arc<AppState>) -> Router {
    store::routes()
        .merge(jobs::routes())
        .merge(memory::routes())
        .merge(gateway_routes())
        .merge(terminal::routes())
        .merge(token_routes())
        .merge(page::api_routes())
        .route_layer(from_fn(openapi::check_query))
        .with_state(state)
}

/// `/api/status` and the other queries about the gateway itself.
fn gateway_routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/api/openapi.json", get(openapi::openapi))
        .route("/api/status", get(status))
        .route("/api/channels", get(async |state: SharedState| answer(&state, GatewayQuery::Channels).await))
        .route("/api/channels/{name}/test", get_named(GatewayQuery::TestChannel))
        .route("/api/models", get(models))
        .route("/api/tools", get(async |state: SharedState| answer(&state, GatewayQuery::Tools).await))
        .route("/api/skills", get(async |state: SharedState| answer(&state, GatewayQuery::Skills).await))
        .route("/api/skills/{name}", get_named(GatewayQuery::Skill))
        .route("/api/agents", get(async |state: SharedState| answer(&state, GatewayQuery::Agents).await))
        .route("/api/agents/{name}", get_named(GatewayQuery::Agent))
        .route("/api/mcp", get(async |state: SharedState| answer(&state, GatewayQuery::McpServers).await))
        .route("/api/mcp/{name}/tools", get_named(GatewayQuery::McpTools))
        .route("/api/mcp/{name}/test", get_named(GatewayQuery::TestMcp))
        .route("/api/tools/{name}/run", limit_body(post(post_tool_run), ARGUMENTS_LIMIT))
        .route("/api/prompt", get(prompt))
        .route("/api/cost", get(cost))
        .route("/api/config", get(async |state: SharedState| answer(&state, GatewayQuery::Config).await))
        .route("/api/logs", get(logs))
        .route("/api/checks", get(async |state: SharedState| answer(&state, GatewayQuery::Checks).await))
}

/// Answers a query about the item that the path names.
fn get_named(query: fn(String) -> GatewayQuery) -> MethodRouter<Arc<AppState>> {
    get(async move |state: SharedState, Path(name)| answer(&state, query(name)).await)
}

async fn answer(state: &AppState, query: GatewayQuery) -> ApiResult {
    state.inspector.answer(query).await.map(Json).map_err(HttpError::from)
}

/// Returns the route of the requests that commands send, for the control socket alone.
pub fn command_routes(state: Arc<AppState>) -> Router {
    Router::new()
        .route("/control/{name}", limit_body(post(answer_control_request), COMMAND_BODY_LIMIT))
        .with_state(state)
}

async fn answer_control_request(state: SharedState, Path(name): Path<String>, body: String) -> ApiResult {
    match name.as_str() {
        StoreQuery::NAME => store::read(&state, parse_command(&body)?).await,
        StoreChange::NAME => store::apply(&state, parse_command(&body)?).await,
        TokenChange::NAME => change_tokens(&state, parse_command(&body)?).await.map(Json),
        JobQuery::NAME => jobs::read(&state, parse_command(&body)?).await,
        JobChange::NAME => jobs::apply(&state, parse_command(&body)?).await,
        MemoryQuery::NAME => memory::read(&state, parse_command(&body)?).await,
        MemoryChange::NAME => memory::apply(&state, parse_command(&body)?).await,
        GatewayQuery::NAME => answer(&state, parse_command(&body)?).await,
        ManualToolRun::NAME => run_tool(&state, parse_command(&body)?).await,
        _ => Err(HttpError::not_found(OTHER_VERSION)),
    }
}

fn parse_command<T: ControlRequest>(body: &str) -> Result<T, HttpError> {
    serde_json::from_str(body).map_err(|error| HttpError::unprocessable(format!("{OTHER_VERSION}: {error}")))
}

#[derive(Deserialize)]
struct ModelsParams {
    /// The provider to probe, or `*` for all.
    ask: Option<String>,
}

async fn models(state: SharedState, principal: Principal, Query(params): Query<ModelsParams>) -> ApiResult {
    if params.ask.is_some() && principal.scope != TokenScope::Admin {
        return Err(out_of_scope("a token with the scope read lists the models, and asks none"));
    }
    let scope = match params.ask {
        None => ProbeScope::None,
        Some(all) if all == "*" => ProbeScope::All,
        Some(name) => ProbeScope::One(name),
    };
    answer(&state, GatewayQuery::Models(scope)).await
}

#[derive(Deserialize)]
struct CostParams {
    from: Option<String>,
    to: Option<String>,
}

async fn cost(state: SharedState, Query(CostParams { from, to }): Query<CostParams>) -> ApiResult {
    answer(&state, GatewayQuery::Cost { from, to }).await
}

#[derive(Deserialize)]
struct LogsParams {
    /// `error`, `warn`, `info`, `debug` or `trace`: shows this level and the more severe ones.
    level: Option<String>,
    /// The number of the last line that the client has.
    #[serde(default)]
    after: u64,
    lines: Option<usize>,
}

/// Returns the last lines of the log.
async fn logs(state: SharedState, Query(LogsParams { level, after, lines }): Query<LogsParams>) -> ApiResult {
    let level = level.as_deref().unwrap_or("trace").parse::<Level>();
    let level = level.map_err(|_| HttpError::bad_request("level: error, warn, info, debug or trace"))?;
    let lines = RecentLog::of_process().lines(level, after, lines.unwrap_or(DEFAULT_LINES));
    Ok(Json(json!({ "started": state.started, "lines": lines })))
}

#[derive(Deserialize)]
struct PromptParams {
    session: Option<String>,
    message: Option<String>,
}

async fn prompt(state: SharedState, Query(PromptParams { session, message }): Query<PromptParams>) -> ApiResult {
    answer(&state, GatewayQuery::Prompt { session, message }).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolCallBody {
    /// A JSON object as text, as a model writes it.
    arguments: String,
    #[serde(default)]
    raw: bool,
    #[serde(default)]
    query: String,
}

async fn post_tool_run(state: SharedState, Path(name): Path<String>, text: String) -> ApiResult {
    let ToolCallBody { arguments, raw, query } = parse_body(&text)?;
    run_tool(&state, ManualToolRun { name, arguments, is_whole: raw, question: query }).await
}

/// Runs a tool. A client that disconnects cancels the call; effects of the call are committed nevertheless.
async fn run_tool(state: &AppState, run: ManualToolRun) -> ApiResult {
    let (inspector, cancel) = (state.inspector.clone(), CancellationToken::new());
    let _guard = cancel.clone().drop_guard();
    run_detached(async move { inspector.run_tool(run, cancel).await.map(Json).map_err(HttpError::from) }).await
}

async fn status(state: SharedState) -> ApiResult {
    let Json(mut status) = answer(&state, GatewayQuery::Status).await?;
    let (ready, parts) = health::readiness(&state);
    status["ready"] = json!(ready);
    status["parts"] = parts;
    Ok(Json(status))
}

/// `/api/tokens`.
fn token_routes() -> Router<Arc<AppState>> {
    let revoke =
        async |state: SharedState, Path(name)| change_tokens(&state, TokenChange::Revoke(name)).await.map(Json);
    Router::new().route("/api/tokens", get(list_tokens).post(add_token)).route("/api/tokens/{name}", delete(revoke))
}

async fn list_tokens(state: SharedState) -> ApiResult {
    Ok(Json(access::list(state.bus.store()).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenBody {
    name: String,
    scope: String,
    #[serde(default)]
    reuse: bool,
}

async fn add_token(state: SharedState, text: String) -> Result<(StatusCode, Json<Value>), HttpError> {
    let TokenBody { name, scope, reuse } = parse_body(&text)?;
    Ok((StatusCode::CREATED, Json(change_tokens(&state, TokenChange::Add { name, scope, reuse }).await?)))
}

async fn change_tokens(state: &AppState, change: TokenChange) -> Result<Value, HttpError> {
    let (store, auth) = (state.bus.store().clone(), state.auth.clone());
    run_detached(async move {
        let answer = access::apply(&store, change).await?;
        auth.recheck_streams();
        Ok(answer)
    })
    .await
}
