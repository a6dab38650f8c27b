//! `POST /v1/chat/completions`, `POST /v1/responses` and `GET /v1/models`.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
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
use crate::client::{ClientSender, single_header};
use crate::event::EventSource;
use crate::http_error::{HttpError, limit_body};
use crate::inbox::{AcceptExtras, Acceptance, Inbox, Refusal};
use crate::json::parse_body;
use crate::message::{Attachment, InboundMessage, SessionKey, Trust, TurnSettings, new_id};

/// The largest request body, in bytes. Bodies contain files.
pub const BODY_LIMIT: usize = 50_000_000;
const STORE_RETRY: Duration = Duration::from_secs(5);

/// The header with the session's name, in requests and responses.
static SESSION: HeaderName = HeaderName::from_static("x-session-id");

pub(super) struct ApiState {
    gateway: Arc<dyn ApiGateway>,
    files: Arc<AttachmentFolder>,
    inbox: Arc<dyn Inbox>,
    events: Arc<dyn EventSource>,
    shutdown: CancellationToken,
}

/// Returns the routes. The access check in front of them identifies the sender of each request.
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
        .route("/v1/chat/completions", limit_body(post(complete), BODY_LIMIT))
        .route("/v1/responses", limit_body(post(respond), BODY_LIMIT))
        .with_state(Arc::new(state))
}

fn model_entry(name: &str) -> Value {
    json!({ "id": name, "object": "model", "created": 0, "owned_by": "daoyou" })
}

async fn models(State(state): State<Arc<ApiState>>, Extension(sender): Extension<ClientSender>) -> Json<Value> {
    let entries: Vec<Value> = state.models(&sender).iter().map(|name| model_entry(name)).collect();
    Json(json!({ "object": "list", "data": entries }))
}

async fn model(
    State(state): State<Arc<ApiState>>,
    Extension(sender): Extension<ClientSender>,
    Path(name): Path<String>,
) -> Result<Json<Value>, HttpError> {
    state.settings(&sender, &name)?;
    Ok(Json(model_entry(&name)))
}

async fn complete(
    State(state): State<Arc<ApiState>>,
    Extension(sender): Extension<ClientSender>,
    headers: HeaderMap,
    body: String,
) -> Result<Response, ApiFailure> {
    let request = ApiRequest::parse_chat(&parse_body(&body)?)?;
    let wants_usage = request.wants_usage;
    let accepted = state.accept(&sender, request, &headers, &body).await?;
    let (id, model) = (accepted.id, accepted.model.clone());
    accepted.respond(ChatCompletion { id, model, created: Timestamp::now(), wants_usage }).await
}

async fn respond(
    State(state): State<Arc<ApiState>>,
    Extension(sender): Extension<ClientSender>,
    headers: HeaderMap,
    body: String,
) -> Result<Response, ApiFailure> {
    let request = ApiRequest::parse_response(&parse_body(&body)?)?;
    let previous = request.previous;
    let accepted = state.accept(&sender, request, &headers, &body).await?;
    let format = ModelResponse::new(accepted.id, accepted.model.clone(), previous);
    accepted.respond(format).await
}

/// A request whose message is on disk.
struct AcceptedRequest {
    /// The id of the message.
    id: Uuid,
    /// The model that the client asked for, or else the default model.
    model: String,
    /// The name of the session, as the client knows it.
    session_name: String,
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
        // A header value cannot hold a name beyond ASCII; its client knows the name anyway.
        if let Ok(name) = HeaderValue::from_str(&self.session_name) {
            response.headers_mut().insert(SESSION.clone(), name);
        }
        Ok(response)
    }
}

impl ApiState {
    /// Returns the models that a client may choose. A confined client gets only the default.
    fn models(&self, sender: &ClientSender) -> Vec<String> {
        let mut models = self.gateway.models();
        if sender.is_confined {
            models.truncate(1);
        }
        models
    }

    fn settings(&self, sender: &ClientSender, model: &str) -> Result<TurnSettings, HttpError> {
        let settings = self.gateway.settings(model);
        if sender.is_confined && settings.as_ref().ok() != Some(&TurnSettings::default()) {
            let known = self.models(sender).join(", ");
            let message = format!("the token of {} may not choose a model or an agent: it has {known}", sender.id);
            return Err(HttpError::new(StatusCode::FORBIDDEN, "scope", message));
        }
        settings.map_err(|why| {
            let known = self.gateway.models().join(", ");
            let message = format!("{why} Models here: {known}, and any PROVIDER/MODEL of a configured provider.");
            HttpError::new(StatusCode::NOT_FOUND, "model_not_found", message)
        })
    }

    /// Returns the chat that a request names: in its header, in its body, or through an earlier response.
    async fn named_chat(
        &self,
        sender: &ClientSender,
        headers: &HeaderMap,
        request: &ApiRequest,
    ) -> Result<Option<String>, HttpError> {
        let prefix = chat_prefix(sender);
        if let Some(value) = single_header(headers, SESSION.as_str()).map_err(HttpError::bad_request)? {
            let text = std::str::from_utf8(value.as_bytes())
                .map_err(|_| HttpError::bad_request("X-Session-Id is not text in UTF-8"))?;
            return Ok(Some(prefix + &session_name("X-Session-Id", text)?));
        }
        let Some(previous) = request.previous else { return Ok(request.session.as_ref().map(|name| prefix + name)) };
        let previous = previous.to_string();
        let known = self.inbox.state(NAME, &previous).await?.map(|known| chat_of(&known.session));
        let known = known.filter(|chat| chat.starts_with(&prefix));
        known.ok_or_else(|| unknown_response(&previous)).map(Some)
    }

    /// Accepts the message of a request, or finds the message that the request repeats.
    async fn accept(
        &self,
        sender: &ClientSender,
        request: ApiRequest,
        headers: &HeaderMap,
        body: &str,
    ) -> Result<AcceptedRequest, HttpError> {
        let settings = self.settings(sender, &request.model)?;
        let named = self.named_chat(sender, headers, &request).await?;
        let prefix = chat_prefix(sender);
        let scope = named.as_deref().unwrap_or(&prefix);
        let identity = RequestIdentity::of(&*self.inbox, headers, scope, body).await?;
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
        let (id, session, is_known) = match known {
            Some(known) => (known.id, known.session, true),
            None => {
                let mut message = self.message(sender, request, settings, named).await?;
                message.external_id.clone_from(&identity.external_id);
                let extras = AcceptExtras { notes: identity.notes(), ..AcceptExtras::default() };
                let is_owner = message.trust == Trust::Owner && !sender.is_confined;
                let refused = if is_owner { HttpError::for_owner } else { HttpError::from };
                match self.inbox.accept(message, extras).await.map_err(refused)? {
                    Acceptance::Accepted { id, session } => (id, session, false),
                    // A request at the same time was first.
                    Acceptance::Duplicate { id, session, .. } => (id, session, true),
                }
            }
        };
        if is_known {
            identity.check_body(&*self.inbox).await?;
        }
        let chat_id = chat_of(&session);
        let session_name = chat_id.strip_prefix(&prefix).unwrap_or(&chat_id).to_owned();
        let turn = FollowedTurn::new(FollowedTurnSetup {
            id,
            chat_id,
            wants_reasoning,
            is_known,
            events,
            inbox: self.inbox.clone(),
            gateway: self.gateway.clone(),
            shutdown: self.shutdown.clone(),
        });
        let repeats = RepeatGuard { inbox: self.inbox.clone(), note: identity.note };
        Ok(AcceptedRequest { id, model, session_name, stream, turn, repeats })
    }

    /// Builds the message of a request. Without a session name, the session is new and gets the history that the client sends.
    async fn message(
        &self,
        sender: &ClientSender,
        mut request: ApiRequest,
        mut settings: TurnSettings,
        named: Option<String>,
    ) -> Result<InboundMessage, HttpError> {
        // Only an unconfined client speaks for the owner, so only its prompt counts as the owner's instructions.
        let prompt = if sender.is_confined { &mut settings.sender_prompt } else { &mut settings.prompt };
        *prompt = request.prompt();
        settings.history = if named.is_none() { request.history_text() } else { None };
        let files = request.take_files(named.is_none());
        if sender.is_confined && !files.is_empty() {
            let message = format!("the token of {} sends no files here; the page takes them", sender.id);
            return Err(HttpError::new(StatusCode::FORBIDDEN, "scope", message));
        }
        let chat = named.unwrap_or_else(|| chat_prefix(sender) + &new_id().to_string());
        let mut message = InboundMessage::text(NAME, &chat, &sender.id, sender.trust, request.content);
        message.settings = settings;
        // A name given by a client always means one conversation, whatever the session settings say.
        message.session = Some(SessionKey::of_chat(NAME, &chat));
        message.reply.is_picked_up = true;
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
            tracing::error!(%error, "the files of a message could not be saved");
            let reason = format!("the files could not be saved: {error}");
            match error.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem => {
                    HttpError::from(Refusal::Store { reason, retry_after: STORE_RETRY })
                }
                // To try again does not help.
                _ => HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, "file", reason),
            }
        })?;
        Ok(saved.attachments)
    }
}

/// Returns the prefix of a client's chats. The owner's chats may have any name.
fn chat_prefix(sender: &ClientSender) -> String {
    if sender.is_confined { format!("{}:", sender.id) } else { String::new() }
}

/// Returns the chat of a session of this channel.
fn chat_of(session: &SessionKey) -> String {
    let key = session.as_str();
    key.split_once(':').map_or(key, |(_, chat)| chat).to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::gateway::{BODY_NOTE, ScriptedGateway};
    use super::*;
    use crate::conformance::{ScriptedAnswer, ScriptedInbox};

    /// Accepts a request with the text `content` in the session `work`.
    async fn accept(inbox: &Arc<ScriptedInbox>, content: &str, headers: &[(&str, &str)]) -> Result<Uuid, HttpError> {
        let folder = tempfile::tempdir().unwrap();
        let state = ApiState {
            gateway: Arc::new(ScriptedGateway(Vec::new())),
            files: Arc::new(AttachmentFolder::open(folder.path(), "uploads").unwrap()),
            inbox: inbox.clone(),
            events: inbox.clone(),
            shutdown: CancellationToken::new(),
        };
        let sender = ClientSender { id: "owner".to_owned(), trust: Trust::Owner, is_confined: false };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        let body = json!({ "user": "work", "messages": [{ "role": "user", "content": content }] });
        let request = ApiRequest::parse_chat(&body)?;
        Ok(state.accept(&sender, request, &map, &body.to_string()).await?.id)
    }

    #[tokio::test]
    async fn a_key_belongs_to_the_body_that_came_with_it_first() {
        let inbox = ScriptedInbox::new(|_| ScriptedAnswer::Hold);
        let key = [("idempotency-key", "k")];
        let first = accept(&inbox, "one", &key).await;
        for _ in 0..2 {
            let error = accept(&inbox, "two", &key).await.unwrap_err();
            assert!(error.status == 422 && error.message.contains("needs a new key"), "{error:?}");
            assert_eq!(accept(&inbox, "one", &key).await, first, "the owner of the key may repeat the request");
        }
        assert_ne!(accept(&inbox, "two", &[("idempotency-key", "other")]).await, first);
        // The message of an old store may have no hash.
        inbox.forget_notes(&[BODY_NOTE]);
        assert_eq!(accept(&inbox, "two", &key).await, first);
        assert_eq!(inbox.accepted().len(), 2);
    }

    #[tokio::test]
    async fn a_header_that_stands_twice_is_refused() {
        let inbox = ScriptedInbox::new(|_| ScriptedAnswer::Hold);
        for name in ["idempotency-key", "x-session-id"] {
            for other in ["a", "b"] {
                let error = accept(&inbox, "hi", &[(name, "a"), (name, other)]).await.unwrap_err();
                assert!(error.status == 400 && error.message.contains(name), "{error:?}");
            }
        }
        assert!(inbox.accepted().is_empty());
    }
}
