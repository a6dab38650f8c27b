//! Routes for messages, sessions, turns and the queue.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use daoyou_channels::trust::{Author, SenderListing, trust_of};
use daoyou_channels::{
    AcceptExtras, Acceptance, HttpError, InboundMessage, Inbox, MessageState, MessageStatus, SessionKey,
    json as strict_json,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::response::{ApiResult, check_object, run_detached};
use crate::bus::InboundSignal;
use crate::http::access::Principal;
use crate::http::error;
use crate::http::page::PAGE_CHANNEL;
use crate::http::state::{AppState, SharedState};
use crate::query::{
    self, AfterCommit, AppliedChange, ApprovalAnswer, RetryClass, StoreChange, StoreQuery, sessions, turns,
};
use crate::store::checkpoints::{find_turn, of_turn, separate_store_errors};
use crate::store::inbox;

/// The longest wait of one request for the end of a message; the caller then asks again.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

pub(super) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/api/messages", post(accept))
        .route("/api/messages/{id}", get(message))
        .route("/api/sessions", get(list_sessions))
        .route(
            "/api/sessions/{key}",
            get(async |state: SharedState, Path(key)| read(&state, StoreQuery::Session(key)).await)
                .delete(async |state: SharedState, Path(key)| apply(&state, StoreChange::ClearSession(key)).await),
        )
        .route(
            "/api/sessions/{key}/transcript",
            get(async |state: SharedState, Path(key)| read(&state, StoreQuery::Transcript(key)).await),
        )
        .route("/api/turns", get(list_turns))
        .route("/api/turns/{id}", get(async |state: SharedState, Path(id)| read(&state, StoreQuery::Turn(id)).await))
        .route(
            "/api/turns/{id}/restore",
            post(async |state: SharedState, Path(id)| apply(&state, StoreChange::Restore(id)).await),
        )
        .route("/api/turns/{id}/fork", post(fork))
        .route("/api/queue", get(async |state: SharedState| read(&state, StoreQuery::Queue).await))
        .route(
            "/api/queue/{id}",
            get(async |state: SharedState, Id(id)| read(&state, StoreQuery::QueueEntry(id)).await)
                .delete(async |state: SharedState, Id(id)| apply(&state, StoreChange::Drop(id)).await),
        )
        .route(
            "/api/queue/{id}/retry",
            post(async |state: SharedState, Id(id)| apply(&state, StoreChange::Retry(id)).await),
        )
        .route("/api/queue/retry", post(retry_all))
        .route("/api/approvals", get(async |state: SharedState| read(&state, StoreQuery::Approvals).await))
        .route("/api/approvals/{id}/approve", post(approve))
        .route("/api/approvals/{id}/deny", post(deny))
        .route(
            "/api/losses/acknowledge",
            post(async |state: SharedState| apply(&state, StoreChange::Acknowledge).await),
        )
}

/// The parameter of a path that is the id of a message or a delivery.
struct Id(Uuid);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let Path(id) = Path::<String>::from_request_parts(parts, state).await.map_err(IntoResponse::into_response)?;
        id.parse().map(Self).map_err(|_| {
            let wrong = format!("{id:?} is not an id; ids look like 019a2b3c-4d5e-7f60-8a9b-0c1d2e3f4a5b");
            HttpError::bad_request(wrong).into_response()
        })
    }
}

fn not_found(subject: &str) -> HttpError {
    HttpError::not_found(format!("there is no {subject}"))
}

pub(super) async fn read(state: &AppState, query: StoreQuery) -> ApiResult {
    let subject = query.subject();
    query::read(state.bus.store(), query).await?.map(Json).ok_or_else(|| not_found(&subject))
}

pub(super) async fn apply(state: &Arc<AppState>, change: StoreChange) -> ApiResult {
    match change {
        StoreChange::ClearSession(key) => clear(state, &key).await,
        StoreChange::Restore(turn) => restore(state, turn).await,
        change => commit(state, change).await,
    }
}

async fn commit(state: &Arc<AppState>, change: StoreChange) -> ApiResult {
    let state = state.clone();
    run_detached(async move {
        let subject = change.subject();
        let applied = query::apply(state.bus.store(), change).await?;
        let AppliedChange { answer, after } = applied.ok_or_else(|| not_found(&subject))?;
        after_commit(&state, after);
        Ok(Json(answer))
    })
    .await
}

fn after_commit(state: &AppState, after: AfterCommit) {
    match after {
        AfterCommit::Nothing => {}
        AfterCommit::Deliver { channel } => state.bus.outbound_written(&channel, 1),
        AfterCommit::MakeDue { channel } => state.bus.outbound_made_due(&channel),
        AfterCommit::Run { session, messages } => state.bus.inbound_written(SessionKey::from(session), messages),
        AfterCommit::Forget { channel } => state.bus.outbound_ended(&channel),
        AfterCommit::Resume { turn, session } => state.bus.signal(InboundSignal::Resume(turn, session.into())),
        AfterCommit::Stop(turns) => state.bus.stop_turns(turns),
        AfterCommit::RetryServices => state.bus.signal(InboundSignal::RetryServices),
        AfterCommit::All(all) => all.into_iter().for_each(|one| after_commit(state, one)),
    }
}

#[derive(Deserialize)]
struct ApproveParams {
    /// Approves the tool for the rest of the conversation as well.
    #[serde(default)]
    session: bool,
}

async fn approve(state: SharedState, Path(id): Path<String>, Query(params): Query<ApproveParams>) -> ApiResult {
    let answer = ApprovalAnswer::Approve { for_session: params.session };
    apply(&state, StoreChange::AnswerApproval { id, answer }).await
}

#[derive(Deserialize)]
struct DenyParams {
    #[serde(default)]
    reason: String,
}

async fn deny(state: SharedState, Path(id): Path<String>, Query(params): Query<DenyParams>) -> ApiResult {
    let answer = ApprovalAnswer::Deny { reason: params.reason };
    apply(&state, StoreChange::AnswerApproval { id, answer }).await
}

#[derive(Deserialize)]
struct RetryParams {
    outcomes: String,
}

async fn retry_all(state: SharedState, Query(RetryParams { outcomes }): Query<RetryParams>) -> ApiResult {
    let known = RetryClass::ALL.map(RetryClass::as_str).join(", ");
    let classes = RetryClass::parse_list(&outcomes)
        .ok_or_else(|| HttpError::bad_request(format!("outcomes: {outcomes:?} is not known; allowed: {known}")))?;
    apply(&state, StoreChange::RetryAll(classes)).await
}

/// Clears a session through its lane, as `/new` does: only the lane may write to a session. A turn that waits, perhaps for a person
/// who never answers, is stopped first.
async fn clear(state: &AppState, key: &str) -> ApiResult {
    // Clearing must not create a session.
    let session = key.to_owned();
    if !state.bus.store().read(move |connection| sessions::is_known(connection, &session)).await? {
        return Err(not_found(&format!("session {key}")));
    }
    let (id, done) = run_command(state, key, "/new").await?;
    // What is refused here must not happen later.
    let is_error = |done: &MessageState| done.reply.as_ref().is_some_and(|reply| reply.error.is_some());
    if done.is_none_or(|done| done.status != MessageStatus::Done || is_error(&done)) {
        state.bus.cancel_message(id).await?;
        let busy = match state.bus.intake_fault() {
            Some(reason) => format!("session {key} was not cleared: {reason}"),
            None => format!("session {key} is busy and was not cleared within {WAIT_LIMIT:?}"),
        };
        return Err(HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "busy", busy));
    }
    Ok(Json(sessions::cleared(key)))
}

/// Sends a slash command to a session's lane, stops the turn of the session if it waits, and waits for the command's end. Returns the
/// id of the command, and its state.
async fn run_command(
    state: &AppState,
    session: &str,
    command: &str,
) -> Result<(Uuid, Option<MessageState>), HttpError> {
    let trust = trust_of(Author::Owner, SenderListing::Owner);
    let mut message = InboundMessage::text("cli", "direct", "owner", trust, command);
    message.session = Some(SessionKey::from(session));
    message.reply.is_picked_up = true;
    let id = state.inbox.accept(message, AcceptExtras::default()).await.map_err(HttpError::for_owner)?.id();
    // A command that is refused stops nothing.
    let key = session.to_owned();
    let first = state.bus.store().read(move |connection| inbox::open_of_session(connection, &key, 1)).await?.pop();
    if let Some(waiting) = first.filter(|row| row.state == MessageStatus::Waiting) {
        state.bus.cancel_message(waiting.id).await?;
    }
    Ok((id, state.inbox.wait(id, WAIT_LIMIT).await?))
}

#[derive(Deserialize)]
struct TurnsParams {
    session: Option<String>,
    limit: Option<u32>,
}

/// Lists the sessions that the client may use.
async fn list_sessions(State(state): SharedState, principal: Principal) -> ApiResult {
    let prefix =
        if principal.is_confined() { format!("{PAGE_CHANNEL}:{}", principal.chat_prefix()) } else { String::new() };
    Ok(Json(state.bus.store().read(move |connection| sessions::list(connection, &prefix)).await?))
}

async fn list_turns(
    state: SharedState,
    principal: Principal,
    Query(TurnsParams { session, limit }): Query<TurnsParams>,
) -> ApiResult {
    if principal.is_confined() && !session.as_deref().is_some_and(|session| principal.may_use(session)) {
        return Err(error::out_of_scope("this token may list the turns of a chat that it began: ?session=KEY"));
    }
    read(&state, StoreQuery::Turns { session, limit }).await
}

/// Restores a session through its lane, so that running turns end first.
async fn restore(state: &AppState, id: String) -> ApiResult {
    let find = move |connection: &_| {
        separate_store_errors(find_turn(connection, &id).and_then(|turn| of_turn(connection, turn)))
    };
    let point = state.bus.store().read(find).await??;
    let (_, done) = run_command(state, &point.session, &format!("/restore {}", point.turn)).await?;
    let Some(done) = done.filter(|done| done.status == MessageStatus::Done) else {
        let waits = "the order is kept: it is carried out when the turns before it in this session have ended";
        return Ok(Json(json!({ "turn": point.turn, "session": point.session, "restored": false, "waits": waits })));
    };
    // The checkpoint was found above but no longer exists.
    if let Some(reply) = done.reply.filter(|reply| reply.error.is_some()) {
        return Err(error::no_point("not_restored", reply.content));
    }
    let answer = move |connection: &_| turns::restored(connection, point.turn, &point.session);
    Ok(Json(state.bus.store().read(answer).await?))
}

#[derive(Deserialize)]
struct ForkParams {
    session: Option<String>,
}

async fn fork(state: SharedState, Path(turn): Path<String>, Query(params): Query<ForkParams>) -> ApiResult {
    apply(&state, StoreChange::Fork { turn, session: params.session }).await
}

/// A JSON body: an object without duplicate keys. Two programs could read an object with duplicate keys differently.
pub struct UniqueJson<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for UniqueJson<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let Json(text) =
            Json::<Box<RawValue>>::from_request(request, state).await.map_err(IntoResponse::into_response)?;
        parse(text.get()).map(Self).map_err(IntoResponse::into_response)
    }
}

/// Parses a body.
///
/// # Errors
/// 400 if the text is not a JSON object or an object has a duplicate key, 422 if it does not match `T`.
fn parse<T: DeserializeOwned>(text: &str) -> Result<T, HttpError> {
    strict_json::check_keys(text).map_err(|error| HttpError::bad_request(format!("the body is not JSON: {error}")))?;
    check_object(text)?;
    serde_json::from_str(text).map_err(|error| HttpError::unprocessable(format!("the body does not fit: {error}")))
}

async fn accept(
    State(state): SharedState,
    UniqueJson(message): UniqueJson<InboundMessage>,
) -> Result<(StatusCode, Json<Acceptance>), HttpError> {
    let accepted = state.inbox.accept(message, AcceptExtras::default()).await.map_err(HttpError::for_owner)?;
    Ok((StatusCode::ACCEPTED, Json(accepted)))
}

#[derive(Deserialize)]
struct WaitParams {
    /// Seconds.
    #[serde(default)]
    wait: u64,
}

async fn message(
    State(state): SharedState,
    Id(id): Id,
    Query(params): Query<WaitParams>,
) -> Result<Json<MessageState>, HttpError> {
    let limit = Duration::from_secs(params.wait).min(WAIT_LIMIT);
    state.inbox.wait(id, limit).await?.map(Json).ok_or_else(|| not_found("such message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_not_read_as_the_fields_of_a_body() {
        #[derive(Deserialize)]
        struct Body {
            token: String,
        }
        let outcome = |text: &str| match parse::<Body>(text) {
            Ok(body) => (200, body.token),
            Err(error) => (error.status.as_u16(), String::new()),
        };
        for (text, expected) in
            [(r#"{"token":"a"}"#, 200), (r#"["a"]"#, 400), ("[]", 400), ("1", 400), (r#"{"token":1}"#, 422)]
        {
            let token = if expected == 200 { "a" } else { "" };
            assert_eq!(outcome(text), (expected, token.to_owned()), "{text}");
        }
    }
}
