//! `/mcp`: daoyou as an MCP server, and the access of that server to the gateway.

use std::sync::Arc;
use std::time::Duration;

use async_channel::Receiver;
use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use daoyou_channels::{
    AcceptExtras, EventSource, HttpError, InboundMessage, Inbox, MessageState, SessionEvent, SessionKey,
};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::api;
use super::state::AppState;
use crate::bus::{OutboundBody, OutboundDraft, OutboxSlot};
use crate::mcp::{AgentAccess, MCP_CHANNEL, McpEndpoint};
use crate::query::{self, JobChange, MemoryChange, MemoryQuery, MemorySelection, StoreQuery, memories};

/// The protocol of the upgraded connection on the control socket.
const STREAM_PROTOCOL: &str = "mcp-lines";
/// The longest name of a connection, in bytes.
const MAX_CONNECTION: usize = 64;

/// Returns the route `/mcp` for HTTP clients.
pub fn routes(state: &Arc<AppState>) -> Router {
    Router::new()
        .route("/mcp", any(async |State(server): State<Arc<McpEndpoint>>, request| server.answer(request).await))
        .with_state(endpoint(state))
}

/// Returns the route `/mcp/stream`, the raw connection of `daoyou mcp serve`.
pub fn stream_routes(state: &Arc<AppState>) -> Router {
    Router::new().route("/mcp/stream", get(stream)).with_state(endpoint(state))
}

fn endpoint(state: &Arc<AppState>) -> Arc<McpEndpoint> {
    Arc::new(McpEndpoint::new(state.clone(), state.shutdown.clone()))
}

#[derive(Deserialize)]
struct StreamParams {
    /// The name of the client's session.
    connection: String,
}

/// Upgrades the connection to a stream of MCP messages, one per line.
async fn stream(
    State(server): State<Arc<McpEndpoint>>,
    Query(StreamParams { connection }): Query<StreamParams>,
    mut request: Request<Body>,
) -> Result<Response, HttpError> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if connection.is_empty() || connection.len() > MAX_CONNECTION || !connection.chars().all(is_name) {
        return Err(HttpError::bad_request(format!("connection: 1 to {MAX_CONNECTION} letters, digits and -")));
    }
    if request.headers().get(header::UPGRADE).is_none_or(|value| value != STREAM_PROTOCOL) {
        let message = format!("this is for Upgrade: {STREAM_PROTOCOL}");
        return Err(HttpError::new(StatusCode::UPGRADE_REQUIRED, "upgrade", message));
    }
    let reserved = server.reserve_stream()?;
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => server.serve_stream(TokioIo::new(upgraded), connection, reserved).await,
            Err(error) => tracing::debug!(%error, "a connection could not become an MCP stream"),
        }
    });
    let headers = [
        (header::CONNECTION, HeaderValue::from_static("upgrade")),
        (header::UPGRADE, HeaderValue::from_static(STREAM_PROTOCOL)),
    ];
    Ok((StatusCode::SWITCHING_PROTOCOLS, headers).into_response())
}

/// Returns the text of an error for an MCP client.
fn text(error: impl Into<HttpError>) -> String {
    error.into().message.into_owned()
}

#[async_trait]
impl AgentAccess for AppState {
    async fn accept(&self, message: InboundMessage) -> Result<Uuid, String> {
        let accepted = self.inbox.accept(message, AcceptExtras::default()).await;
        accepted.map(|acceptance| acceptance.id()).map_err(text)
    }

    async fn wait(&self, id: Uuid, limit: Duration) -> Result<Option<MessageState>, String> {
        self.inbox.wait(id, limit).await.map_err(text)
    }

    fn events(&self) -> Receiver<SessionEvent> {
        self.bus.events().subscribe(MCP_CHANNEL)
    }

    async fn stop(&self, id: Uuid) -> Result<(), String> {
        self.bus.cancel_message(id).await.map(drop).map_err(text)
    }

    async fn messages_of_turn(&self, id: Uuid, chat_id: &str) -> Result<Vec<String>, String> {
        let report = self.inbox.report(id, MCP_CHANNEL, chat_id).await;
        report.map(|report| report.messages).map_err(text)
    }

    fn agent(&self, name: &str) -> Result<String, String> {
        self.jobs.get().context.agent(name).map_err(text)
    }

    async fn remember(&self, content: &str) -> Result<Value, String> {
        let change = MemoryChange::Add(json!({ "text": content }));
        memories::apply(&self.memory.get(), change).await.map_err(text)
    }

    async fn recall(&self, query: &str, limit: Option<u32>) -> Result<Value, String> {
        let selection = MemorySelection::default();
        let search = MemoryQuery::Search { text: query.to_owned(), selection, since: None, limit };
        memories::read(&self.memory.get(), search).await.map_err(text)
    }

    async fn schedule(&self, job: Value) -> Result<Value, String> {
        api::change_jobs(&self.jobs.get(), JobChange::Add(job)).await.map_err(text)
    }

    async fn send(&self, channel: &str, chat_id: &str, content: String) -> Result<Uuid, String> {
        self.jobs.get().context.check_chat(channel, chat_id).map_err(text)?;
        let body = OutboundBody::new(content, SessionKey::of_chat(channel, chat_id));
        let draft = OutboundDraft {
            turn: daoyou_channels::new_id(),
            slot: OutboxSlot::Tool { step: 0, number: 0 },
            channel: channel.to_owned(),
            chat_id: chat_id.to_owned(),
            body,
        };
        self.inbox.send_for_owner(draft).await.map_err(text)
    }

    async fn sessions(&self) -> Result<Vec<Value>, String> {
        match query::read(self.bus.store(), StoreQuery::Sessions).await.map_err(text)? {
            Some(Value::Array(sessions)) => Ok(sessions),
            _ => Ok(Vec::new()),
        }
    }
}
