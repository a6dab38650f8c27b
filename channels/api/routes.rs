//! `POST /v1/chat/completions`, `POST /v1/responses` and `GET /v1/models`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::answer::{AnswerFormat, answer_stream, answer_whole};
use super::completion::ChatCompletion;
use super::content::session_name;
use super::error::ApiFailure;
use super::followed_turn::{FollowedTurn, FollowedTurnSetup};
use super::gateway::{ApiGateway, NAME};
use super::repeats::{RepeatGuard, RequestIdentity};
use super::request::{ApiRequest, unknown_response};
use super::responses::ModelResponse;
use crate::attachment_folder::{AttachmentFolder, IncomingFile};
use crate::channel::ChannelContext;
use crate::event::EventSource;
use crate::http_error::HttpError;
use crate::ids::new_id;
use crate::inbox::{AcceptExtras, Acceptance, Inbox, Refusal};
use crate::json as strict_json;
use crate::message::{Attachment, InboundMessage, SessionKey, TurnSettings};
use crate::trust::{Author, SenderListing, trust_of};

/// The largest body, in bytes: files are in it.
pub const BODY_LIMIT: usize = 50_000_000;
const STORE_RETRY: Duration = Duration::from_secs(5);

/// The header of the session's name, in requests and responses.
static SESSION: HeaderName = HeaderName::from_static("x-session-id");

pub(super) struct ApiState {
    gateway: Arc<dyn ApiGateway>,
    files: Arc<AttachmentFolder>,
    inbox: Arc<dyn Inbox>,
    events: Arc<dyn EventSource>,
    shutdown: CancellationToken,
}

/// The routes, which need the gateway's token.
pub(super) fn routes(gateway: &Arc<dyn ApiGateway>, files: &Arc<AttachmentFolder>, context: &ChannelContext) -> Router {
    let state = ApiState {
        gateway: gateway.clone(),
        files: files.clone(),
        inbox: context.inbox.clone(),
        events: context.events.clone(),
        shutdown: context.shutdown.clone(),
    };
    Router::new()
        .route("/v1/models", get(models))
        .route("/v1/models/{*name}", get(model))
        .route("/v1/chat/completions", post(complete).layer(DefaultBodyLimit::max(BODY_LIMIT)))
        .route("/v1/responses", post(respond).layer(DefaultBodyLimit::max(BODY_LIMIT)))
        .with_state(Arc::new(state))
}

fn model_entry(name: &str) -> Value {
    json!({ "id": name, "object": "model", "created": 0, "owned_by": "daoyou" })
}

async fn models(State(state): State<Arc<ApiState>>) -> Json<Value> {
    let entries: Vec<Value> = state.gateway.models().iter().map(|name| model_entry(name)).collect();
    Json(json!({ "object": "list", "data": entries }))
}

async fn model(State(state): State<Arc<ApiState>>, Path(name): Path<String>) -> Result<Json<Value>, HttpError> {
    state.settings(&name)?;
    Ok(Json(model_entry(&name)))
}

async fn complete(
    State(state): State<Arc<ApiState>>,
    headers: HeaderMap,
    body: String,
) -> Result<Response, ApiFailure> {
    let request = ApiRequest::parse_chat(&json_of(&body)?)?;
    let wants_usage = request.wants_usage;
    let accepted = state.accept(request, &headers, &body).await?;
    let (id, model) = (accepted.id, accepted.model.clone());
    accepted.respond(ChatCompletion { id, model, created: Timestamp::now(), wants_usage }).await
}

async fn respond(State(state): State<Arc<ApiState>>, headers: HeaderMap, body: String) -> Result<Response, ApiFailure> {
    let request = ApiRequest::parse_response(&json_of(&body)?)?;
    let previous = request.previous;
    let accepted = state.accept(request, &headers, &body).await?;
    let format = ModelResponse::new(accepted.id, accepted.model.clone(), previous);
    accepted.respond(format).await
}

fn json_of(body: &str) -> Result<Value, HttpError> {
    strict_json::from_str(body).map_err(|error| HttpError::bad_request(format!("the body is not valid JSON: {error}")))
}

/// A request whose message is on disk.
struct AcceptedRequest {
    /// The message.
    id: Uuid,
    /// The name that the client asked for, or that of the default model.
    model: String,
    chat_id: String,
    stream: bool,
    turn: FollowedTurn,
    repeats: RepeatGuard,
}

impl AcceptedRequest {
    async fn respond(self, format: impl AnswerFormat) -> Result<Response, ApiFailure> {
        let mut response = match self.stream {
            true => answer_stream(self.turn, format, self.repeats),
            false => answer_whole(self.turn, &format, self.repeats).await?,
        };
        // A name beyond ASCII cannot be a header's value, and its client knows it.
        if let Ok(chat) = HeaderValue::from_str(&self.chat_id) {
            response.headers_mut().insert(SESSION.clone(), chat);
        }
        Ok(response)
    }
}

impl ApiState {
    fn settings(&self, model: &str) -> Result<TurnSettings, HttpError> {
        let unknown = |why: String| {
            let known = self.gateway.models().join(", ");
            let message = format!("{why} Models here: {known}, and any PROVIDER/MODEL of a configured provider.");
            HttpError::new(StatusCode::NOT_FOUND, "model_not_found", message)
        };
        self.gateway.settings(model).map_err(unknown)
    }

    /// Returns the session that a request names: in its header, in its body, or as that of an earlier response.
    async fn named_session(&self, headers: &HeaderMap, request: &ApiRequest) -> Result<Option<String>, HttpError> {
        if let Some(value) = headers.get(&SESSION) {
            let text = std::str::from_utf8(value.as_bytes())
                .map_err(|_| HttpError::bad_request("X-Session-Id is not text in UTF-8"))?;
            return session_name("X-Session-Id", text).map(Some);
        }
        let Some(previous) = request.previous else { return Ok(request.session.clone()) };
        let previous = previous.to_string();
        let known = self.inbox.state(NAME, &previous).await?.ok_or_else(|| unknown_response(&previous))?;
        Ok(Some(chat_of(&known.session)))
    }

    /// Accepts the message of a request, or finds the one that it repeats.
    async fn accept(&self, request: ApiRequest, headers: &HeaderMap, body: &str) -> Result<AcceptedRequest, HttpError> {
        let settings = self.settings(&request.model)?;
        let named = self.named_session(headers, &request).await?;
        let identity = RequestIdentity::of(&*self.inbox, headers, named.as_deref().unwrap_or_default(), body).await?;
        let model = match request.model.as_str() {
            "" => self.gateway.models().into_iter().next().unwrap_or_default(),
            model => model.to_owned(),
        };
        let (stream, wants_reasoning) = (request.stream, request.wants_reasoning);
        let events = self.events.subscribe(NAME);
        let known = match &identity.external_id {
            Some(id) => self.inbox.state(NAME, id).await?,
            None => None,
        };
        let (id, session) = match known {
            Some(known) => (known.id, known.session),
            None => {
                let message = self.message(request, settings, named, identity.external_id.clone()).await?;
                let extras = AcceptExtras { notes: identity.notes(), ..AcceptExtras::default() };
                let (Acceptance::Accepted { id, session } | Acceptance::Duplicate { id, session, .. }) =
                    self.inbox.accept(message, extras).await?;
                (id, session)
            }
        };
        let chat_id = chat_of(&session);
        let turn = FollowedTurn::new(FollowedTurnSetup {
            id,
            chat_id: chat_id.clone(),
            wants_reasoning,
            events,
            inbox: self.inbox.clone(),
            gateway: self.gateway.clone(),
            shutdown: self.shutdown.clone(),
        });
        let repeats = RepeatGuard { inbox: self.inbox.clone(), note: identity.note };
        Ok(AcceptedRequest { id, model, chat_id, stream, turn, repeats })
    }

    /// Builds the message of a request. Without a name, its session is new and is given what the client says was said before.
    async fn message(
        &self,
        mut request: ApiRequest,
        mut settings: TurnSettings,
        named: Option<String>,
        external_id: Option<String>,
    ) -> Result<InboundMessage, HttpError> {
        settings.prompt = request.prompt();
        settings.history = if named.is_none() { request.history_text() } else { None };
        let files = request.take_files(named.is_none());
        let chat = named.unwrap_or_else(|| new_id().to_string());
        let trust = trust_of(Author::Owner, SenderListing::Owner);
        let mut message = InboundMessage::text(NAME, &chat, "owner", trust, request.content);
        message.settings = settings;
        // Whatever the settings of sessions are: a name of a client means one conversation.
        message.session = Some(SessionKey::of_chat(NAME, &chat));
        message.reply.is_picked_up = true;
        message.external_id = external_id;
        message.attachments = self.save(files, message.session_key()).await?;
        Ok(message)
    }

    async fn save(&self, files: Vec<IncomingFile>, session: SessionKey) -> Result<Vec<Attachment>, HttpError> {
        if files.is_empty() {
            return Ok(Vec::new());
        }
        let folder = self.files.clone();
        let saving = tokio::task::spawn_blocking(move || folder.save(&session, &new_id().to_string(), &files, ""));
        let saved = saving.await.map_err(std::io::Error::other).flatten().map_err(|error| {
            let reason = format!("its files could not be saved: {error}");
            HttpError::refused(&Refusal::Store { reason, retry_after: STORE_RETRY })
        })?;
        Ok(saved.attachments)
    }
}

/// Returns the chat of a session of this channel.
fn chat_of(session: &SessionKey) -> String {
    let key = session.as_str();
    key.split_once(':').map_or(key, |(_, chat)| chat).to_owned()
}
