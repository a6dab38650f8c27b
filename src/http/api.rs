//! `/api`: what the commands use. Served on the control socket, whose file mode is its guard, and
//! on TCP behind the token.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use daoyou_channels::settings::Span;
use daoyou_channels::{InboundMessage, Inbox, MessageStatus, Refusal, SessionKey, Trust};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::routes::Hub;
use super::views::{self, Changed, Then};
use super::{attach, health};
use crate::control::{Change, Query};
use crate::store::{Commit, StoreError, losses, outbox, usage};

/// The longest that one request waits for a message to end; callers ask again.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// The routes.
pub fn routes(hub: Arc<Hub>) -> Router {
    Router::new()
        .route("/api/status", get(status))
        .route("/api/messages", post(accept))
        .route("/api/messages/{id}", get(message))
        .route("/api/sessions", get(async |hub: Shared| look(&hub, Query::Sessions).await))
        .route(
            "/api/sessions/{key}",
            get(async |hub: Shared, Path(key)| look(&hub, Query::Session(key)).await)
                .delete(async |hub: Shared, Path(key)| change(&hub, Change::ClearSession(key)).await),
        )
        .route("/api/turns", get(async |hub: Shared| look(&hub, Query::Turns).await))
        .route("/api/turns/{id}", get(async |hub: Shared, Path(id)| look(&hub, Query::Turn(id)).await))
        .route("/api/queue", get(async |hub: Shared| look(&hub, Query::Queue).await))
        .route(
            "/api/queue/{id}",
            get(async |hub: Shared, Path(id)| look(&hub, Query::QueueEntry(id)).await)
                .delete(async |hub: Shared, Path(id)| change(&hub, Change::Drop(id)).await),
        )
        .route("/api/queue/{id}/retry", post(async |hub: Shared, Path(id)| change(&hub, Change::Retry(id)).await))
        .route("/api/losses/acknowledge", post(async |hub: Shared| change(&hub, Change::Acknowledge).await))
        .route("/api/attach", get(attach::attach))
        .with_state(hub)
}

type Shared = State<Arc<Hub>>;

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

async fn look(hub: &Hub, query: Query) -> Answer {
    let what = query.what();
    let found = hub.bus.store().read(move |connection| views::look(connection, &query)).await?;
    found.map(Json).ok_or_else(|| ApiError::not_found(&what))
}

async fn change(hub: &Arc<Hub>, change: Change) -> Answer {
    if let Change::ClearSession(key) = &change {
        return clear(hub, key).await;
    }
    // A task of its own: a caller who hangs up must not keep what follows from the commit from happening.
    let hub = hub.clone();
    let made = tokio::spawn(async move { make(&hub, change).await });
    made.await.unwrap_or_else(|error| Err(StoreError::Row(error.to_string()).into()))
}

async fn make(hub: &Hub, change: Change) -> Answer {
    let what = change.what();
    let made = hub.bus.store().write(Commit::Synced, move |connection| views::change(connection, &change)).await?;
    let Changed { answer, then } = made.ok_or_else(|| ApiError::not_found(&what))?;
    match then {
        Then::Nothing => {}
        Then::Deliver { channel } => hub.bus.outbound_written(&channel, 1),
        Then::Run { session, messages } => hub.bus.inbound_revived(SessionKey::from(session), messages),
        Then::Forget { channel } => hub.bus.outbound_ended(&channel),
    }
    Ok(Json(answer))
}

/// Only its lane writes a session, so the order goes through the lane, as `/new` does.
async fn clear(hub: &Hub, key: &str) -> Answer {
    // A session that does not exist is not made by clearing it.
    drop(look(hub, Query::Session(key.to_owned())).await?);
    let mut order = InboundMessage::text("cli", "direct", "owner", Trust::Owner, "/new");
    order.session = Some(SessionKey::from(key));
    order.metadata.insert("pickup".to_owned(), json!(true));
    let id = hub.inbox.accept(order, None).await?.id();
    let state = hub.inbox.wait(id, WAIT_LIMIT).await?;
    let cleared = state.is_some_and(|state| state.status == MessageStatus::Done);
    Ok(Json(json!({ "session": key, "cleared": cleared })))
}

async fn status(State(hub): State<Arc<Hub>>) -> Answer {
    let (ready, parts) = health::readiness(&hub);
    let day_ago = crate::store::now_ms() - 86_400_000;
    let store = hub.bus.store();
    let look = move |connection: &_| {
        Ok((outbox::stuck(connection)?, usage::since(connection, day_ago)?, losses::open(connection)?))
    };
    let (stuck, used, losses) = store.read(look).await?;
    let model = match hub.models.get().resolve(&hub.model.get()).await {
        Ok(choice) => choice.to_string(),
        Err(error) => format!("none: {error}"),
    };
    Ok(Json(json!({
        "gateway": "up",
        "home": hub.bus.store().path().parent(),
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "uptime": Span::from_secs(hub.started.elapsed().as_secs()).to_string(),
        "ready": ready,
        "parts": parts,
        "channels": hub.channels.all(),
        "dead_letters": stuck,
        "model": model,
        "last_24h": used,
        "database": store.space().await?,
        "losses": views::losses(&losses),
    })))
}

async fn accept(State(hub): State<Arc<Hub>>, Json(message): Json<InboundMessage>) -> Result<Response, ApiError> {
    let acceptance = hub.inbox.accept(message, None).await?;
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
    axum::extract::Query(query): axum::extract::Query<Wait>,
) -> Result<Response, ApiError> {
    let limit = Duration::from_secs(query.wait).min(WAIT_LIMIT);
    let state = hub.inbox.wait(id, limit).await?.ok_or_else(|| ApiError::not_found("such message"))?;
    Ok(Json(state).into_response())
}
