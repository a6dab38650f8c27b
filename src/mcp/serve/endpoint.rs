//! The transports of daoyou's MCP server: streamable HTTP, and lines on a stream.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use daoyou_channels::HttpError;
use http_body_util::{BodyExt, LengthLimitError};
use rmcp::ServiceExt;
use rmcp::model::{ErrorCode, RequestId};
use rmcp::transport::streamable_http_server::session::local::SessionConfig;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::AgentAccess;
use super::envelope::{MAX_MESSAGE, MessageEnvelope, NO_MESSAGE, id_in_use, read_envelope, refusal};
use super::handler::{McpHandler, ServedTransport};
use super::sessions::NumberedSessions;
use super::stream::StreamTransport;

/// The maximum number of sessions of HTTP clients, and of streams.
const MAX_SESSIONS: usize = 1_000;
/// The first version of the protocol that has no sessions.
const WITHOUT_SESSIONS: &str = "2026-07-28";
const MAX_STREAMS: usize = 100;
/// A session without any message for this long ends. The limit is long because a turn that waits for the owner may be silent.
const SESSION_IDLE: Duration = Duration::from_secs(2 * 60 * 60);
/// The header with the id of a session.
const SESSION_HEADER: &str = "mcp-session-id";
/// The media type of messages.
const JSON: &[u8] = b"application/json";
/// How long clients of a full server should wait.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// daoyou as an MCP server, for any number of clients.
pub struct McpEndpoint {
    agent: Arc<dyn AgentAccess>,
    stopping: CancellationToken,
    sessions: Arc<NumberedSessions>,
    http: StreamableHttpService<McpHandler, NumberedSessions>,
    streams: Arc<Semaphore>,
}

impl McpEndpoint {
    /// Creates the server. `stopping` ends all connections.
    pub fn new(agent: Arc<dyn AgentAccess>, stopping: CancellationToken) -> Self {
        let mut session = SessionConfig::default();
        session.keep_alive = Some(SESSION_IDLE);
        let sessions = Arc::new(NumberedSessions::new(session));
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
        Self { agent, stopping, sessions, http, streams: Arc::new(Semaphore::new(MAX_STREAMS)) }
    }

    /// Answers a request of streamable HTTP.
    pub async fn answer(&self, request: Request<Body>) -> Response {
        // A request without a session may start one. The protocol since 2026-07-28 has none.
        let version = request.headers().get("mcp-protocol-version").and_then(|version| version.to_str().ok());
        let begins = request.method() == Method::POST
            && !request.headers().contains_key(SESSION_HEADER)
            && version.is_none_or(|version| version < WITHOUT_SESSIONS);
        if begins && self.sessions.local.sessions.read().await.len() >= MAX_SESSIONS {
            return full(&format!("{MAX_SESSIONS} MCP sessions are open; end one, or try again later"));
        }
        if request.method() == Method::DELETE {
            return self.end_session(request).await;
        }
        let is_json = request.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(JSON));
        if request.method() != Method::POST || !is_json {
            return self.http.handle(request).await.map(Body::new);
        }
        let (parts, body) = request.into_parts();
        let body = match to_bytes(body, MAX_MESSAGE).await {
            Ok(body) => body,
            Err(error) => return unreadable(&error),
        };
        let active = match read_envelope(&body).and_then(|message| self.activate(&parts.headers, message)) {
            Ok(active) => active,
            Err(refusal) => return refused(&refusal),
        };
        let response = self.http.handle(Request::from_parts(parts, Body::from(body))).await;
        // rmcp reports a wrong media type for a body that it cannot parse.
        if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            return refused(NO_MESSAGE);
        }
        // The closure keeps the request active as long as the body.
        response.map(|body| Body::new(body.inspect_err(move |_| _ = &active)))
    }

    /// Ends a session. rmcp answers 202 for known and unknown sessions alike, which clients report as a failure.
    async fn end_session(&self, request: Request<Body>) -> Response {
        let session = request.headers().get(SESSION_HEADER).and_then(|session| session.to_str().ok());
        let is_known = match session {
            Some(session) => self.sessions.local.sessions.read().await.contains_key(session),
            None => false,
        };
        let response = self.http.handle(request).await.map(Body::new);
        match (response.status(), is_known) {
            (StatusCode::ACCEPTED, true) => StatusCode::NO_CONTENT.into_response(),
            (StatusCode::ACCEPTED, false) => HttpError::not_found("there is no such session").into_response(),
            _ => response,
        }
    }

    /// Makes a request of a session active, until the returned guard is dropped; `None` for other messages.
    ///
    /// # Errors
    /// The session has an active request with this id.
    fn activate(&self, headers: &HeaderMap, message: MessageEnvelope) -> Result<Option<Arc<()>>, String> {
        let MessageEnvelope { id: Some(id), method: Some(_) } = message else { return Ok(None) };
        let session = headers.get(SESSION_HEADER).and_then(|session| session.to_str().ok());
        let (Some(session), Ok(request)) = (session, RequestId::deserialize(&id)) else { return Ok(None) };
        self.sessions.activate(session, &request).map(Some).ok_or_else(|| id_in_use(&id))
    }

    /// Reserves one of the streams.
    ///
    /// # Errors
    /// All of them are in use.
    pub fn reserve_stream(&self) -> Result<OwnedSemaphorePermit, HttpError> {
        self.streams.clone().try_acquire_owned().map_err(|_| {
            let message = format!("{MAX_STREAMS} runs of `daoyou mcp serve` are open; end one, or try again later");
            HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "mcp_streams", message)
        })
    }

    /// Serves a client on a reserved stream, one message per line, until either side ends it. `connection` names its session.
    pub async fn serve_stream(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + 'static,
        connection: String,
        _reserved: OwnedSemaphorePermit,
    ) {
        let handler =
            McpHandler::new(self.agent.clone(), ServedTransport::Stream, connection, self.stopping.child_token());
        let transport = StreamTransport::new(stream);
        match handler.serve_with_ct(transport, self.stopping.child_token()).await {
            Ok(running) => match running.waiting().await {
                Ok(reason) => tracing::debug!(?reason, "an MCP stream ended"),
                Err(error) => tracing::error!(%error, "an MCP stream broke off"),
            },
            Err(error) => tracing::debug!(%error, "an MCP client did not begin as the protocol asks"),
        }
    }
}

/// Returns the response to a body that did not arrive or is too large.
fn unreadable(error: &axum::Error) -> Response {
    if error.source().is_some_and(<dyn Error>::is::<LengthLimitError>) {
        let message = format!("the body has more than {MAX_MESSAGE} bytes");
        return HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message).into_response();
    }
    HttpError::bad_request(format!("the body could not be read: {error}")).into_response()
}

/// Returns 400 for a body that is not a request which can be answered. Its id is null, so that no answer to another
/// request with the same id is meant.
fn refused(message: &str) -> Response {
    (StatusCode::BAD_REQUEST, Json(refusal(ErrorCode::INVALID_REQUEST, None, message))).into_response()
}

/// Returns 503 for a client that exceeds the maximum number.
fn full(message: &str) -> Response {
    let error = HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "mcp_sessions", message.to_owned());
    let mut response = error.into_response();
    response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER.as_secs().into());
    response
}
