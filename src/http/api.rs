//! `/api`: what the commands use. Served on the control socket, whose file mode is its guard.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use daoyou_channels::settings::Span;
use daoyou_channels::{InboundMessage, Inbox, Refusal, SessionKey};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::server::Hub;
use super::views::{self, Revived};
use super::{attach, health};
use crate::store::{Commit, Connection, StoreError, messages, outbox, usage};

/// The longest that one request waits for a message to end; callers ask again.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// The routes.
pub fn routes(hub: Arc<Hub>) -> Router {
    Router::new()
        .route("/api/status", get(status))
        .route("/api/messages", post(accept))
        .route("/api/messages/{id}", get(message))
        .route("/api/sessions", get(async |State(hub): State<Arc<Hub>>| read(&hub, views::sessions).await))
        .route("/api/sessions/{key}", get(session).delete(clear_session))
        .route("/api/turns", get(async |State(hub): State<Arc<Hub>>| read(&hub, views::turns).await))
        .route("/api/turns/{id}", get(turn))
        .route("/api/queue", get(async |State(hub): State<Arc<Hub>>| read(&hub, views::queue).await))
        .route("/api/queue/{id}", get(queue_entry).delete(drop_entry))
        .route("/api/queue/{id}/retry", post(retry_entry))
        .route("/api/attach", get(attach::attach))
        .with_state(hub)
}

/// An error as the API answers it.
pub struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    retry_after: Option<Duration>,
}

impl ApiError {
    fn not_found(what: &str) -> Self {
        let message = format!("there is no {what}");
        Self { status: StatusCode::NOT_FOUND, code: "not_found", message, retry_after: None }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "an API request failed");
        let message = error.to_string();
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, code: "store", message, retry_after: None }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let (status, code, retry_after) = match &refusal {
            Refusal::SessionFull { retry_after, .. } => {
                (StatusCode::TOO_MANY_REQUESTS, "session_full", Some(*retry_after))
            }
            Refusal::InboxFull { retry_after, .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "inbox_full", Some(*retry_after))
            }
            Refusal::OutboxFull { retry_after, .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "outbox_full", Some(*retry_after))
            }
            Refusal::Draining { retry_after } => (StatusCode::SERVICE_UNAVAILABLE, "draining", Some(*retry_after)),
            Refusal::Store { retry_after, .. } => (StatusCode::SERVICE_UNAVAILABLE, "store", Some(*retry_after)),
            Refusal::Invalid(_) => (StatusCode::UNPROCESSABLE_ENTITY, "invalid", None),
        };
        Self { status, code, message: refusal.to_string(), retry_after }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = Json(json!({ "error": { "code": self.code, "message": self.message } }));
        match self.retry_after {
            Some(wait) => (self.status, [("retry-after", wait.as_secs().max(1).to_string())], body).into_response(),
            None => (self.status, body).into_response(),
        }
    }
}

type Answer = Result<Json<Value>, ApiError>;

async fn read<F>(hub: &Hub, view: F) -> Answer
where
    F: FnOnce(&Connection) -> Result<Value, StoreError> + Send + 'static,
{
    Ok(Json(hub.bus.store().read(view).await?))
}

async fn find<F>(hub: &Hub, what: String, view: F) -> Answer
where
    F: FnOnce(&Connection) -> Result<Option<Value>, StoreError> + Send + 'static,
{
    hub.bus.store().read(view).await?.map(Json).ok_or_else(|| ApiError::not_found(&what))
}

async fn status(State(hub): State<Arc<Hub>>) -> Answer {
    let (ready, parts) = health::readiness(&hub);
    let day_ago = crate::store::now_ms() - 86_400_000;
    let (stuck, used) = hub
        .bus
        .store()
        .read(move |connection| Ok((outbox::stuck(connection)?, usage::since(connection, day_ago)?)))
        .await?;
    let model = match hub.models.resolve(&hub.model).await {
        Ok(choice) => choice.to_string(),
        Err(error) => format!("none: {error}"),
    };
    Ok(Json(json!({
        "gateway": "up",
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "uptime": Span::from_secs(hub.started.elapsed().as_secs()).to_string(),
        "ready": ready,
        "parts": parts,
        "channels": hub.channels.all(),
        "dead_letters": stuck,
        "model": model,
        "last_24h": used,
    })))
}

async fn accept(State(hub): State<Arc<Hub>>, Json(message): Json<InboundMessage>) -> Result<Response, ApiError> {
    let acceptance = hub.bus.accept(message, None).await?;
    Ok((StatusCode::ACCEPTED, Json(acceptance)).into_response())
}

#[derive(Deserialize)]
struct Wait {
    /// Seconds.
    #[serde(default)]
    wait: u64,
}

async fn message(
    State(hub): State<Arc<Hub>>,
    Path(id): Path<Uuid>,
    Query(query): Query<Wait>,
) -> Result<Response, ApiError> {
    let limit = Duration::from_secs(query.wait).min(WAIT_LIMIT);
    let state = hub.bus.wait(id, limit).await?.ok_or_else(|| ApiError::not_found("such message"))?;
    Ok(Json(state).into_response())
}

async fn session(State(hub): State<Arc<Hub>>, Path(key): Path<String>) -> Answer {
    find(&hub, format!("session {key}"), move |connection| views::session(connection, &key)).await
}

async fn clear_session(State(hub): State<Arc<Hub>>, Path(key): Path<String>) -> Answer {
    let cleared = json!({ "session": key, "cleared": true });
    hub.bus.store().write(Commit::Synced, move |connection| messages::new_epoch(connection, &key)).await?;
    Ok(Json(cleared))
}

async fn turn(State(hub): State<Arc<Hub>>, Path(id): Path<Uuid>) -> Answer {
    find(&hub, format!("turn {id}"), move |connection| views::turn(connection, id)).await
}

async fn queue_entry(State(hub): State<Arc<Hub>>, Path(id): Path<Uuid>) -> Answer {
    find(&hub, format!("{id} in the queue"), move |connection| views::queue_entry(connection, id)).await
}

async fn retry_entry(State(hub): State<Arc<Hub>>, Path(id): Path<Uuid>) -> Answer {
    let revived = hub.bus.store().write(Commit::Synced, move |connection| views::revive(connection, id)).await?;
    match revived {
        Some(Revived::Outbound { id, channel }) => {
            hub.bus.outbound_written(&channel, 1);
            Ok(Json(json!({ "id": id, "state": "pending" })))
        }
        Some(Revived::Inbound { session }) => {
            hub.bus.inbound_revived(SessionKey::from(session));
            Ok(Json(json!({ "id": id, "state": "queued" })))
        }
        None => Err(ApiError::not_found(&format!("dead letter {id}"))),
    }
}

async fn drop_entry(State(hub): State<Arc<Hub>>, Path(id): Path<Uuid>) -> Answer {
    let dropped = hub.bus.store().write(Commit::Synced, move |connection| views::drop_entry(connection, id)).await?;
    match dropped {
        Some(dropped) => {
            if let Some(channel) = dropped.was_pending_on {
                hub.bus.outbound_ended(&channel);
            }
            Ok(Json(json!({ "id": id, "dropped": true })))
        }
        None => Err(ApiError::not_found(&format!("undelivered message {id}"))),
    }
}
