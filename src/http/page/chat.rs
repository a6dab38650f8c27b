//! The chats of the page.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, patch, post};
use axum::{Json, Router};
use daoyou_channels::cli::{NameDirectory, TerminalConversation};
use daoyou_channels::text::Language;
use daoyou_channels::{AcceptExtras, Acceptance, Attachment, HttpError, InboundMessage, Inbox, Refusal, SessionKey};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::channel::PAGE_CHANNEL;
use super::files::{MessageUploads, uploads_of};
use crate::http::access::Principal;
use crate::http::api::UniqueJson;
use crate::http::api::response::run_detached;
use crate::http::error::{FOREIGN_CHAT, out_of_scope};
use crate::http::state::{AppState, SharedState};
use crate::phrases::Phrases;
use crate::query::sessions::{self, is_chat_key, is_known, page_chat_of_session};
use crate::store::{Connection, Durability, StoreError, checkpoints, inbox, messages};

/// The longest message, in bytes: the default limit of a webhook.
const MAX_MESSAGE: usize = 2_000_000;
/// The longest title, in characters.
const MAX_TITLE: usize = 120;
/// The maximum number of files of a message.
const MAX_FILES: usize = 20;

pub fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/api/me", get(me))
        .route("/api/chat", post(chat))
        .route(
            "/api/commands",
            get(async |State(state): SharedState| Json(commands(Phrases::of(language(&state)).help))),
        )
        .route("/api/sessions/{key}", patch(rename))
        .route("/api/sessions/{key}/stop", post(stop))
}

async fn me(State(state): SharedState, principal: Principal) -> Json<Value> {
    let locale = match language(&state) {
        Language::En => "en",
        Language::Zh => "zh",
    };
    Json(json!({
        "name": principal.name(),
        "scope": principal.scope.as_str(),
        "version": env!("CARGO_PKG_VERSION"),
        "locale": locale,
    }))
}

fn language(state: &AppState) -> Language {
    state.jobs.get().context.language
}

/// Returns the slash commands of a help text, whose lines are "- `/NAME ARGUMENTS` - HELP", with one or more commands.
fn commands(help: &str) -> Value {
    let mut commands = Vec::new();
    for line in help.lines().filter_map(|line| line.strip_prefix("- ")) {
        let Some((usages, help)) = line.split_once("` - ") else { continue };
        for usage in usages.split('`').filter(|part| part.starts_with('/')) {
            let name = usage.split_whitespace().next().unwrap_or(usage);
            commands.push(json!({ "name": name, "usage": usage, "help": help }));
        }
    }
    Value::Array(commands)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatBody {
    /// The session, of the page or of another channel; absent for a new chat.
    session: Option<String>,
    #[serde(default)]
    content: String,
    /// The ids of uploaded files, and of files of earlier messages.
    #[serde(default)]
    files: Vec<String>,
    agent: Option<String>,
    model: Option<String>,
    /// An id that the client chooses, so that a message which is sent again counts once.
    id: Option<Uuid>,
    /// The last turn of the session, which this message asks again: the session first goes back to the end of the turn before.
    replaces: Option<Uuid>,
}

async fn chat(
    State(state): SharedState,
    principal: Principal,
    UniqueJson(body): UniqueJson<ChatBody>,
) -> Result<(StatusCode, Json<Value>), HttpError> {
    let text = body.content.trim();
    if text.is_empty() && body.files.is_empty() {
        return Err(HttpError::unprocessable("content is empty, and there are no files"));
    }
    if text.len() > MAX_MESSAGE {
        let message = format!("content has {} bytes, at most {MAX_MESSAGE} are allowed", text.len());
        return Err(HttpError::unprocessable(message));
    }
    if body.files.len() > MAX_FILES {
        return Err(HttpError::unprocessable(format!("files: at most {MAX_FILES} are allowed")));
    }
    if principal.is_confined() && (body.agent.is_some() || body.model.is_some()) {
        // A route may give its sender an agent with limits, and the owner pays for the model.
        return Err(out_of_scope("agent, model: a token with the scope chat has those of its chats"));
    }
    if principal.is_confined() && body.replaces.is_some() {
        return Err(out_of_scope("replaces: a token with the scope chat cannot take its chats back"));
    }
    let mut message = message_of(&principal, body.session.as_deref(), text)?;
    // The same id from different clients means different messages.
    message.external_id = body.id.map(|id| format!("{}:{id}", principal.chat_prefix()));
    message.settings.agent =
        body.agent.as_deref().map(|name| state.jobs.get().context.agent(name.trim())).transpose()?;
    if let Some(model) = body.model.as_deref().map(str::trim).filter(|model| !model.is_empty()) {
        let wanted = TerminalConversation { model: Some(model.to_owned()), ..TerminalConversation::of(None) };
        let model = state.directory.model(&wanted).await;
        let model = model.map_err(|reason| HttpError::unprocessable(format!("model: {reason}")))?;
        message.settings.requested_model = Some(model);
    }
    let uploads = uploads_of(&state, &principal, &body.files).await?;
    message.attachments.clone_from(&uploads.attachments);
    let back = match command_back(&state, &message, body.replaces).await {
        Ok(command) => command,
        Err(error) => {
            uploads.release(state.bus.store()).await;
            return Err(error);
        }
    };
    // Both messages or none, even if the client disconnects.
    let accepted = run_detached(accept(state, message, back, (body, uploads))).await?;
    let (session, status) = match &accepted {
        Acceptance::Accepted { session, .. } => (session, "accepted"),
        Acceptance::Duplicate { session, .. } => (session, "duplicate"),
    };
    Ok((StatusCode::ACCEPTED, Json(json!({ "id": accepted.id(), "session": session, "status": status }))))
}

/// Accepts a message, and before it the command that takes its session back.
async fn accept(
    state: Arc<AppState>,
    message: InboundMessage,
    back: Option<String>,
    (body, uploads): (ChatBody, MessageUploads),
) -> Result<Acceptance, HttpError> {
    let files = message.attachments.clone();
    let mut command = None;
    let accepted = async {
        if let Some(back) = back {
            let mut back =
                InboundMessage { attachments: Vec::new(), external_id: None, content: back, ..message.clone() };
            back.reply.is_picked_up = true;
            command = Some(state.inbox.accept(back, AcceptExtras::default()).await?.id());
        }
        state.inbox.accept(message, AcceptExtras::default()).await
    };
    match accepted.await {
        Ok(accepted) => {
            // The message that is known already has its own files.
            if let Acceptance::Duplicate { id, .. } = accepted {
                uploads.release(state.bus.store()).await;
                check_repeat(&state, id, &body, &files).await?;
            }
            Ok(accepted)
        }
        Err(refusal) => {
            if let Some(command) = command
                && let Err(error) = state.bus.cancel_message(command).await
            {
                tracing::warn!(%error, "a session may go back although its new message was refused");
            }
            // After an error of the store, the message may have been written.
            if !matches!(refusal, Refusal::Store { .. }) {
                uploads.release(state.bus.store()).await;
            }
            Err(refusal.into())
        }
    }
}

/// Returns the command that takes the session of a message back to the end of the turn before `replaced`; none if no turn is
/// replaced, the message was accepted before, or the turn is not in the history, as after some failures.
///
/// # Errors
/// 404 if the turn is not of this session; 409 if it is not the last one or has not ended, or the turn before cannot be restored.
async fn command_back(
    state: &AppState,
    message: &InboundMessage,
    replaced: Option<Uuid>,
) -> Result<Option<String>, HttpError> {
    let Some(replaced) = replaced else { return Ok(None) };
    let (session, id) = (message.session_key().to_string(), message.external_id.clone());
    let find = move |connection: &Connection| {
        if let Some(id) = id
            && inbox::find_external(connection, PAGE_CHANNEL, &id)?.is_some()
        {
            return Ok(Ok(None));
        }
        checkpoints::separate_store_errors(sessions::turn_before(connection, &session, replaced))
    };
    Ok(match state.bus.store().read(find).await?? {
        None => None,
        Some(Some(turn)) => Some(format!("/restore {turn}")),
        Some(None) => Some("/new".to_owned()),
    })
}

/// Checks that a message whose id is known is a repetition: it has the text and the files of the first one. The session may be another
/// one: the page may not know yet which session took a message that began a new chat.
///
/// # Errors
/// 422 if it is another message, or the store cannot be read.
async fn check_repeat(state: &AppState, first: Uuid, body: &ChatBody, files: &[Attachment]) -> Result<(), HttpError> {
    let first = state.bus.store().read(move |connection| inbox::find(connection, first)).await?;
    let Some(first) = first else { return Ok(()) };
    let first_files: Vec<Attachment> = serde_json::from_str(&first.attachments).map_err(StoreError::from)?;
    if first.content == body.content.trim() && first_files == files {
        return Ok(());
    }
    Err(HttpError::unprocessable("this id came with another message before; a new message needs a new id"))
}

/// Returns a client's message to a session, or to a new chat.
fn message_of(principal: &Principal, session: Option<&str>, text: &str) -> Result<InboundMessage, HttpError> {
    let session = match session {
        Some(session) => session.to_owned(),
        // The last bytes of an id are random.
        None => {
            let chat = &daoyou_channels::new_id().simple().to_string()[16..];
            format!("{PAGE_CHANNEL}:{}{chat}", principal.chat_prefix())
        }
    };
    if !is_chat_key(&session) || !SessionKey::is_valid_choice(&session) {
        let rule = SessionKey::RULE;
        let message = format!("session: {PAGE_CHANNEL}:NAME, or the key of a session; {rule}");
        return Err(HttpError::unprocessable(message));
    }
    if !principal.may_use(&session) {
        return Err(out_of_scope(FOREIGN_CHAT));
    }
    let (sender, trust) = principal.sender();
    let mut message = InboundMessage::text(PAGE_CHANNEL, page_chat_of_session(&session), &sender, trust, text);
    message.session = Some(SessionKey::from(session));
    Ok(message)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TitleBody {
    title: String,
}

/// Sets the title of a session, or removes it.
async fn rename(
    State(state): SharedState,
    Path(key): Path<String>,
    UniqueJson(TitleBody { title }): UniqueJson<TitleBody>,
) -> Result<Json<Value>, HttpError> {
    let title = title.trim().to_owned();
    if title.chars().count() > MAX_TITLE || title.chars().any(char::is_control) {
        return Err(HttpError::unprocessable(format!("title: one line of at most {MAX_TITLE} characters")));
    }
    let title = (!title.is_empty()).then_some(title);
    let (session, new) = (key.clone(), title.clone());
    let set = move |connection: &Connection| messages::set_title(connection, &session, new.as_deref());
    if !state.bus.store().write(Durability::Synced, set).await? {
        return Err(HttpError::not_found(format!("there is no session {key}")));
    }
    state.page.changed(&["sessions"], Some(&key));
    Ok(Json(json!({ "session": key, "title": title })))
}

/// Stops the turn of a session, as `/stop` does. Stopping must not create a session.
async fn stop(
    State(state): SharedState,
    principal: Principal,
    Path(key): Path<String>,
) -> Result<(StatusCode, Json<Value>), HttpError> {
    let mut message = message_of(&principal, Some(&key), "/stop")?;
    let session = key.clone();
    if !state.bus.store().read(move |connection| is_known(connection, &session)).await? {
        return Err(HttpError::not_found(format!("there is no session {key}")));
    }
    // The page does not show the reply.
    message.reply.is_picked_up = true;
    let id = state.inbox.accept(message, AcceptExtras::default()).await?.id();
    Ok((StatusCode::ACCEPTED, Json(json!({ "id": id, "session": key }))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::access::ClientCredential;
    use crate::query::access::TokenScope;
    use crate::query::sessions::session_of_page_chat;

    #[test]
    fn every_command_of_the_help_is_listed() {
        for language in [Language::En, Language::Zh] {
            let help = Phrases::of(language).help;
            let listed = commands(help);
            let names: Vec<_> = listed.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
            assert_eq!(names.len(), help.matches("`/").count(), "{names:?}");
            assert!(names.contains(&"/deny") && names.contains(&"/mcp"), "{names:?}");
        }
        let listed = commands(Phrases::of(Language::En).help);
        assert_eq!(
            listed[2],
            json!({"name": "/approve", "usage": "/approve ID [session]", "help": "answer what waits for your approval"})
        );
    }

    #[test]
    fn sessions_have_a_chat_and_tokens_their_own() {
        for (session, chat) in
            [("page:a1", "a1"), ("page:bob.a1", "bob.a1"), ("cli:direct", "cli:direct"), ("page:cli:x", "page:cli:x")]
        {
            assert_eq!(page_chat_of_session(session), chat, "{session}");
            assert_eq!(session_of_page_chat(chat), session, "{chat}");
        }
        let bob = Principal {
            token: Some("bob".to_owned()),
            scope: TokenScope::Chat,
            credential: ClientCredential::ControlSocket,
        };
        let new = message_of(&bob, None, "hi").unwrap();
        assert!(bob.may_use(new.session_key().as_str()), "{}", new.session_key());
        assert_eq!(new.sender, "token:bob");
        for (session, status) in [
            ("page:bob.1", 0),
            ("page:ann.1", 403),
            ("cli:direct", 403),
            ("page:", 422),
            ("direct", 422),
            ("page:bob.a\nb", 422),
            (&format!("page:bob.{}", "x".repeat(1_200)), 422),
        ] {
            let found = message_of(&bob, Some(session), "hi").map_or_else(|error| error.status.as_u16(), |_| 0);
            assert_eq!(found, status, "{session:?}");
        }
        assert_eq!(message_of(&Principal::owner(), Some("cli:direct"), "hi").unwrap().chat_id, "cli:direct");
    }
}
