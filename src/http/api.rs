//! `/api`: what the commands use. Served on the control socket, whose file mode is its guard, and
//! on TCP behind the token.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query as Params, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use daoyou_channels::trust::{Author, Standing, trust_of};
use daoyou_channels::{Alongside, HttpError, InboundMessage, Inbox, MessageState, MessageStatus, SessionKey};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::extract::UniqueJson;
use super::routes::Hub;
use super::views::{self, Changed, Then};
use super::{attach, cron, directory, fault, inspect, memory, points};
use crate::control::{Change, Outcome, Query};
use crate::store::points::{of_turn, settle, turn_of};
use crate::store::{Commit, StoreError, messages};

/// The longest that one request waits for a message to end; callers ask again.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// The routes.
pub fn routes(hub: Arc<Hub>) -> Router {
    Router::new()
        .route("/api/messages", post(accept))
        .route("/api/messages/{id}", get(message))
        .route("/api/sessions", get(async |hub: Shared| look(&hub, Query::Sessions).await))
        .route(
            "/api/sessions/{key}",
            get(async |hub: Shared, Path(key)| look(&hub, Query::Session(key)).await)
                .delete(async |hub: Shared, Path(key)| change(&hub, Change::ClearSession(key)).await),
        )
        .route(
            "/api/sessions/{key}/transcript",
            get(async |hub: Shared, Path(key)| look(&hub, Query::Transcript(key)).await),
        )
        .route("/api/turns", get(turns))
        .route("/api/turns/{id}", get(async |hub: Shared, Path(id)| look(&hub, Query::Turn(id)).await))
        .route("/api/turns/{id}/restore", post(restore))
        .route("/api/turns/{id}/fork", post(fork))
        .route("/api/queue", get(async |hub: Shared| look(&hub, Query::Queue).await))
        .route(
            "/api/queue/{id}",
            get(async |hub: Shared, Path(id)| look(&hub, Query::QueueEntry(id)).await)
                .delete(async |hub: Shared, Path(id)| change(&hub, Change::Drop(id)).await),
        )
        .route("/api/queue/{id}/retry", post(async |hub: Shared, Path(id)| change(&hub, Change::Retry(id)).await))
        .route("/api/queue/retry", post(retry_all))
        .route("/api/losses/acknowledge", post(async |hub: Shared| change(&hub, Change::Acknowledge).await))
        .route("/api/attach", get(attach::attach))
        .route("/api/terminal", get(directory::terminal))
        .with_state(hub.clone())
        .merge(cron::routes(hub.clone()))
        .merge(memory::routes(hub.clone()))
        .merge(inspect::routes(hub))
}

type Shared = State<Arc<Hub>>;

fn none(what: &str) -> HttpError {
    HttpError::not_found(format!("there is no {what}"))
}

/// What a route of the API answers.
pub type Answer = Result<Json<Value>, HttpError>;

async fn look(hub: &Hub, query: Query) -> Answer {
    let what = query.what();
    let found = hub.bus.store().read(move |connection| settle(views::look(connection, &query))).await??;
    found.map(Json).ok_or_else(|| none(&what))
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
    let made =
        hub.bus.store().write(Commit::Synced, move |connection| settle(views::change(connection, &change))).await??;
    let Changed { answer, then } = made.ok_or_else(|| none(&what))?;
    follow(hub, then);
    Ok(Json(answer))
}

fn follow(hub: &Hub, then: Then) {
    match then {
        Then::Nothing => {}
        Then::Deliver { channel } => hub.bus.outbound_written(&channel, 1),
        Then::Hasten { channel } => hub.bus.outbound_hastened(&channel),
        Then::Run { session, messages } => hub.bus.inbound_revived(SessionKey::from(session), messages),
        Then::Forget { channel } => hub.bus.outbound_ended(&channel),
        Then::AskAgain => hub.bus.ask_services_again(),
        Then::All(all) => all.into_iter().for_each(|then| follow(hub, then)),
    }
}

/// Which outcomes to try again.
#[derive(Deserialize)]
struct RetryAll {
    outcomes: String,
}

async fn retry_all(hub: Shared, Params(RetryAll { outcomes }): Params<RetryAll>) -> Answer {
    let known = Outcome::ALL.map(Outcome::as_str).join(", ");
    let outcomes = Outcome::parse_list(&outcomes)
        .ok_or_else(|| HttpError::bad_request(format!("outcomes: {outcomes:?} is not known; allowed: {known}")))?;
    change(&hub, Change::RetryAll(outcomes)).await
}

/// Only its lane writes a session, so the order goes through the lane, as `/new` does.
async fn clear(hub: &Hub, key: &str) -> Answer {
    // A session that does not exist is not made by clearing it.
    let session = key.to_owned();
    let session = hub.bus.store().read(move |connection| messages::session(connection, &session)).await?;
    if session.next_seq == 0 {
        return Ok(Json(views::cleared(key, false)));
    }
    let state = order(hub, key, "/new").await?;
    if state.is_none_or(|state| state.status != MessageStatus::Done) {
        let busy = format!("session {key} is busy and was not cleared within {WAIT_LIMIT:?}");
        return Err(HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "busy", busy));
    }
    Ok(Json(views::cleared(key, true)))
}

/// Lets the session's lane carry out a slash command, and waits for it.
async fn order(hub: &Hub, session: &str, command: &str) -> Result<Option<MessageState>, HttpError> {
    let mut order = InboundMessage::text("cli", "direct", "owner", trust_of(Author::Owner, Standing::Owner), command);
    order.session = Some(SessionKey::from(session));
    order.metadata.insert("pickup".to_owned(), json!(true));
    let id = hub.inbox.accept(order, Alongside::default()).await?.id();
    Ok(hub.inbox.wait(id, WAIT_LIMIT).await?)
}

#[derive(Deserialize)]
struct Listed {
    session: Option<String>,
    limit: Option<u32>,
}

async fn turns(hub: Shared, asked: axum::extract::Query<Listed>) -> Answer {
    let Listed { session, limit } = asked.0;
    look(&hub, Query::Turns { session, limit: limit.map(|limit| limit.min(views::LIST_LIMIT)) }).await
}

/// Only its lane writes a session: what runs there ends first.
async fn restore(hub: Shared, Path(id): Path<String>) -> Answer {
    let find = move |connection: &_| settle(turn_of(connection, &id).and_then(|turn| of_turn(connection, turn)));
    let point = hub.bus.store().read(find).await??;
    let state = order(&hub, &point.session, &format!("/restore {}", point.turn)).await?;
    let Some(state) = state.filter(|state| state.status == MessageStatus::Done) else {
        let waits = "the order is kept: it is carried out when the turns before it in this session have ended";
        return Ok(Json(json!({ "turn": point.turn, "session": point.session, "restored": false, "waits": waits })));
    };
    // What was found above is not there any more.
    if let Some(reply) = state.reply.filter(|reply| reply.error.is_some()) {
        return Err(fault::no_point("not_restored", reply.content));
    }
    let answer = move |connection: &_| points::restored(connection, point.turn, &point.session);
    Ok(Json(hub.bus.store().read(answer).await?))
}

#[derive(Deserialize)]
struct Named {
    session: Option<String>,
}

async fn fork(hub: Shared, Path(turn): Path<String>, named: axum::extract::Query<Named>) -> Answer {
    change(&hub, Change::Fork { turn, session: named.0.session }).await
}

async fn accept(
    State(hub): State<Arc<Hub>>,
    UniqueJson(message): UniqueJson<InboundMessage>,
) -> Result<Response, HttpError> {
    let acceptance = hub.inbox.accept(message, Alongside::default()).await?;
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
) -> Result<Response, HttpError> {
    let limit = Duration::from_secs(query.wait).min(WAIT_LIMIT);
    let state = hub.inbox.wait(id, limit).await?.ok_or_else(|| none("such message"))?;
    Ok(Json(state).into_response())
}
