//! The transports of daoyou's MCP server: streamable HTTP, and lines on a stream.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use daoyou_channels::HttpError;
use rmcp::ServiceExt;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::AgentAccess;
use super::handler::{McpHandler, ServedTransport};

/// The maximum number of sessions of HTTP clients, and of streams.
const MAX_SESSIONS: usize = 1_000;
/// The first version of the protocol that has no sessions.
const WITHOUT_SESSIONS: &str = "2026-07-28";
const MAX_STREAMS: usize = 100;
/// A session without any message for this long ends. The limit is long because a turn that waits for the owner may be silent.
const SESSION_IDLE: Duration = Duration::from_secs(2 * 60 * 60);
/// The maximum size of a client's message, in bytes. It must hold the longest text of `ask`, in which JSON may escape bytes.
const MAX_MESSAGE: usize = 4 * 1024 * 1024;
/// The media type of messages.
const JSON: &[u8] = b"application/json";
/// The JSON-RPC error code for an invalid request.
const INVALID_REQUEST: i32 = -32_600;
/// How long clients of a full server should wait.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// daoyou as an MCP server, for any number of clients.
pub struct McpEndpoint {
    agent: Arc<dyn AgentAccess>,
    stopping: CancellationToken,
    sessions: Arc<LocalSessionManager>,
    http: StreamableHttpService<McpHandler, LocalSessionManager>,
    streams: Semaphore,
}

impl McpEndpoint {
    /// Creates the server. `stopping` ends all connections.
    pub fn new(agent: Arc<dyn AgentAccess>, stopping: CancellationToken) -> Self {
        let mut session = SessionConfig::default();
        session.keep_alive = Some(SESSION_IDLE);
        let mut sessions = LocalSessionManager::default();
        sessions.session_config = session;
        let sessions = Arc::new(sessions);
        // The check is off here, since the gateway's own HTTP server checks Host and Origin of each request against the
        // configured names.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_max_request_body_bytes(MAX_MESSAGE)
            .with_cancellation_token(stopping.clone());
        let handler = {
            let (agent, stopping) = (agent.clone(), stopping.clone());
            move || {
                let connection = Uuid::new_v4().simple().to_string()[..12].to_owned();
                Ok(McpHandler::new(agent.clone(), ServedTransport::Http, connection, stopping.clone()))
            }
        };
        let http = StreamableHttpService::new(handler, sessions.clone(), config);
        Self { agent, stopping, sessions, http, streams: Semaphore::new(MAX_STREAMS) }
    }

    /// Answers a request of streamable HTTP.
    pub async fn answer(&self, request: Request<Body>) -> Response {
        // A request without a session may start one. The protocol since 2026-07-28 has none.
        let version = request.headers().get("mcp-protocol-version").and_then(|version| version.to_str().ok());
        let begins = request.method() == Method::POST
            && !request.headers().contains_key("mcp-session-id")
            && version.is_none_or(|version| version < WITHOUT_SESSIONS);
        if begins && self.sessions.sessions.read().await.len() >= MAX_SESSIONS {
            return full(&format!("{MAX_SESSIONS} MCP sessions are open; end one, or try again later"));
        }
        let is_json = request.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(JSON));
        let response = self.http.handle(request).await;
        // rmcp reports a wrong media type for a body that it cannot parse.
        if is_json && response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            return no_message();
        }
        response.map(Body::new)
    }

    /// Serves a client on a stream, one message per line, until either side ends it. `connection` names its session.
    pub async fn serve_stream(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, connection: String) {
        let Ok(_permit) = self.streams.try_acquire() else {
            tracing::warn!("{MAX_STREAMS} MCP streams are open; another one is closed");
            return;
        };
        let handler =
            McpHandler::new(self.agent.clone(), ServedTransport::Stream, connection, self.stopping.child_token());
        let (read, write) = tokio::io::split(stream);
        let transport = AsyncRwTransport::new_server(read, write).with_max_line_length(MAX_MESSAGE);
        match handler.serve_with_ct(transport, self.stopping.child_token()).await {
            Ok(running) => match running.waiting().await {
                Ok(reason) => tracing::debug!(?reason, "an MCP stream ended"),
                Err(error) => tracing::error!(%error, "an MCP stream broke off"),
            },
            Err(error) => tracing::debug!(%error, "an MCP client did not begin as the protocol asks"),
        }
    }
}

/// Returns 400 for a body that is not a message of the protocol.
fn no_message() -> Response {
    let message = "the body is no JSON-RPC message: one JSON object with jsonrpc, method, and id for a request";
    let error = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": INVALID_REQUEST, "message": message } });
    (StatusCode::BAD_REQUEST, Json(error)).into_response()
}

/// Returns 503 for a client that exceeds the maximum number.
fn full(message: &str) -> Response {
    let error = HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "mcp_sessions", message.to_owned());
    let mut response = error.into_response();
    response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER.as_secs().into());
    response
}
