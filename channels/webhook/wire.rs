//! The JSON bodies of webhooks: the native request, the responses, and the callback; and the rules for the names in them.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::services::MessageDraft;
use crate::clean::is_display_control;
use crate::http_error::HttpError;
use crate::inbox::{MessageState, Reply};
use crate::message::{Attachment, ErrorInfo, OutboundMessage, SessionKey};
use crate::trust::Author;

/// The metadata key with the id that the sender assigned to a message.
pub const EXTERNAL_ID: &str = "external_id";

/// Parses a native body and checks its names. Ignores unknown fields; the error for wrong fields is a 422.
///
/// # Errors
/// 422 if the body is not an object, `content` is missing, empty or not a string, or a name is invalid.
pub fn parse_native(body: &Value) -> Result<MessageDraft, HttpError> {
    let Value::Object(fields) = body else {
        return Err(HttpError::unprocessable("the body is not a JSON object"));
    };
    let content = match fields.get("content") {
        Some(Value::String(text)) if !text.trim().is_empty() => text.clone(),
        Some(Value::String(_)) => return Err(HttpError::unprocessable("\"content\" is empty")),
        Some(_) => return Err(HttpError::unprocessable("\"content\" is not a string")),
        None => return Err(HttpError::unprocessable("\"content\" is missing")),
    };
    Ok(MessageDraft {
        content: Some(content),
        chat_id: name(fields, "chat_id")?,
        sender: name(fields, "sender")?,
        id: name(fields, "id")?,
        session: name(fields, "session")?,
        author: Author::Holder,
    })
}

/// Reads a name field. `null` counts as absent, and a whole number becomes its digits.
fn name(fields: &Map<String, Value>, key: &str) -> Result<Option<String>, HttpError> {
    let text = match fields.get(key) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) if !number.is_f64() => number.to_string(),
        Some(_) => return Err(HttpError::unprocessable(format!("\"{key}\" is not a string"))),
    };
    check_name(&format!("\"{key}\""), &text)?;
    Ok(Some(text))
}

/// A response about a message: `{"id","session","status"?,"reply"?,"error"?,"question"?,"reason"?,"follow_ups"?}`. A 202 and the
/// state of a message have a status; a 200 with the reply has none.
#[derive(Serialize)]
pub struct MessageBody<'a> {
    pub id: Uuid,
    pub session: &'a SessionKey,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'a ErrorInfo>,
    /// The question to the sender, if the turn waits for its answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<&'a str>,
    /// Why the message waits, if it waits for a model service or for an approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
    /// What the agent said later of sub-agents and background processes of the message's turn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub follow_ups: Vec<Self>,
}

impl<'a> MessageBody<'a> {
    /// Creates a body with only the id and the session.
    pub fn new(id: Uuid, session: &'a SessionKey) -> Self {
        Self {
            id,
            session,
            status: None,
            reply: None,
            error: None,
            question: None,
            reason: None,
            follow_ups: Vec::new(),
        }
    }

    /// Returns the body with the content of `reply`, and with its error if the turn failed.
    #[must_use]
    pub fn with_reply(self, reply: &'a Reply) -> Self {
        Self { reply: Some(&reply.content), error: reply.error.as_ref(), ..self }
    }
}

impl<'a> From<&'a MessageState> for MessageBody<'a> {
    fn from(state: &'a MessageState) -> Self {
        let body = Self::new(state.id, &state.session);
        let body = match &state.reply {
            Some(reply) => body.with_reply(reply),
            None => body,
        };
        let (status, question) = (Some(state.status_for_sender().as_str()), state.question.as_deref());
        Self { status, question, reason: state.notice.as_deref(), ..body }
    }
}

/// The body of a callback.
#[derive(Serialize)]
pub struct CallbackBody<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    timestamp: Timestamp,
    data: CallbackData<'a>,
}

#[derive(Serialize)]
struct CallbackData<'a> {
    id: Uuid,
    /// The answered message. For a question or a notice of a turn, the message that started the turn. Null if the turn answers no
    /// message of the receiver.
    in_reply_to: Option<Uuid>,
    /// The message whose turn started the sub-agent or the background process that this message is about: the one that the reply of
    /// that turn names.
    #[serde(skip_serializing_if = "Option::is_none")]
    follows: Option<Uuid>,
    /// The turn waits for the answer to this message.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    question: bool,
    /// What the turn waits for: `waiting` (a model service) or `approval`. The reply is still to come.
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<&'a str>,
    /// The id that the sender assigned to the answered message.
    #[serde(skip_serializing_if = "Option::is_none")]
    external_id: Option<&'a str>,
    session: &'a SessionKey,
    chat_id: &'a str,
    content: &'a str,
    /// The names of the attached files. Their bytes stay in the workspace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attachments: Vec<NamedFile<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a ErrorInfo>,
}

#[derive(Serialize)]
struct NamedFile<'a> {
    name: &'a str,
    media_type: &'a str,
    size: u64,
}

impl<'a> From<&'a Attachment> for NamedFile<'a> {
    fn from(file: &'a Attachment) -> Self {
        Self { name: &file.name, media_type: &file.media_type, size: file.size }
    }
}

impl<'a> From<&'a OutboundMessage> for CallbackBody<'a> {
    fn from(message: &'a OutboundMessage) -> Self {
        let context = &message.context;
        // A turn has the id of the message that started it. A job, a heartbeat, a report or the end of a process starts turns without a
        // message of the receiver.
        let is_of_chat = context.job.is_none() && context.subject.is_none();
        let is_asked = is_of_chat && context.follows.is_none();
        let asked = (is_asked && (context.is_question || context.notice.is_some())).then_some(message.turn);
        Self {
            kind: "message.reply",
            timestamp: message.created_at,
            data: CallbackData {
                id: message.id,
                in_reply_to: message.in_reply_to.filter(|_| is_asked).or(asked),
                follows: context.follows.filter(|_| is_of_chat),
                question: context.is_question,
                notice: context.notice.as_deref(),
                external_id: message.metadata.get(EXTERNAL_ID).and_then(Value::as_str).filter(|_| is_asked),
                session: &message.session,
                chat_id: &message.chat_id,
                content: &message.content,
                attachments: message.attachments.iter().map(NamedFile::from).collect(),
                error: message.error.as_ref(),
            },
        }
    }
}

/// The longest `id`, `chat_id`, `sender` and `session`, in characters.
const MAX_NAME_CHARS: usize = 256;

/// Returns the configuration path of the key `key` of the webhook `name`.
pub fn key_path(name: &str, key: &str) -> String {
    format!("channels.webhook.{name}.{key}")
}

/// Returns true if `name` is a valid name for a webhook. The name is part of URLs.
pub fn is_path_word(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    (1..=64).contains(&name.len()) && name.bytes().all(plain) && name.bytes().any(|b| b != b'.')
}

/// Checks that `text` is a valid name of a chat or a session: that [`check_name`] accepts it and it has no invisible
/// characters, since such names are parts of keys that people read and write. `what` names the field in the error.
///
/// # Errors
/// 422 with the reason.
pub fn check_key(what: &str, text: &str) -> Result<(), HttpError> {
    check_name(what, text)?;
    if text.contains(is_display_control) {
        let reason = "holds characters that cannot be seen, such as marks of the writing direction";
        return Err(HttpError::unprocessable(format!("{what} {reason}")));
    }
    Ok(())
}

/// Checks that `text` is a valid name of a sender or a message. `what` names the field in the error.
///
/// # Errors
/// 422 if the name is empty, too long, has control characters, or begins or ends with a space.
pub fn check_name(what: &str, text: &str) -> Result<(), HttpError> {
    if text.trim().is_empty() {
        return Err(HttpError::unprocessable(format!("{what} is empty")));
    }
    if text.chars().count() > MAX_NAME_CHARS {
        return Err(HttpError::unprocessable(format!("{what} is longer than {MAX_NAME_CHARS} characters")));
    }
    if text.contains(char::is_control) {
        return Err(HttpError::unprocessable(format!("{what} holds control characters, such as line breaks")));
    }
    if text.trim() != text {
        return Err(HttpError::unprocessable(format!("{what} begins or ends with a space")));
    }
    Ok(())
}

/// Returns the session for a plain name or a whole session key.
///
/// # Errors
/// 422 if the name or the key is invalid.
pub fn fixed_session(channel: &str, key: &str) -> Result<SessionKey, HttpError> {
    check_key("the session", key)?;
    match key.split_once(':') {
        None => Ok(format!("{channel}:{key}").into()),
        Some((channel, rest)) if !channel.trim().is_empty() && !rest.trim().is_empty() => Ok(key.into()),
        Some(_) => Err(HttpError::unprocessable(format!("{key:?} is not a key of a session"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_callback_tells_questions_and_notices_from_replies() {
        let message = OutboundMessage::text("webhook:in", "c", "hi");
        let reply = OutboundMessage { in_reply_to: Some(Uuid::from_u128(1)), ..message.clone() };
        let mut question = message.clone();
        question.context.is_question = true;
        let mut notice = message.clone();
        notice.context.notice = Some("approval".to_owned());
        let mut of_job = question.clone();
        of_job.context.job = Some("news".to_owned());
        let mut report = reply.clone();
        (report.context.follows, report.metadata) =
            (Some(Uuid::from_u128(2)), [(EXTERNAL_ID.to_owned(), json!("order-1"))].into_iter().collect());
        let mut of_jobs_process = report.clone();
        of_jobs_process.context.job = Some("news".to_owned());
        let turn = json!(message.turn);
        for (message, expected) in [
            (&message, json!([null, null, null, null])),
            (&reply, json!([Uuid::from_u128(1), null, null, null])),
            (&question, json!([turn, null, true, null])),
            (&of_job, json!([null, null, true, null])),
            (&report, json!([null, Uuid::from_u128(2), null, null])),
            (&of_jobs_process, json!([null, null, null, null])),
            (&notice, json!([turn, null, null, "approval"])),
        ] {
            let data = serde_json::to_value(CallbackBody::from(message)).unwrap()["data"].take();
            let found = json!([data["in_reply_to"], data["follows"], data["question"], data["notice"]]);
            assert_eq!((found, data.get("external_id")), (expected, None));
        }
    }

    #[test]
    fn bodies_are_read_or_refused_with_a_reason() {
        let long = format!(r#"{{"content":"x","chat_id":"{}"}}"#, "c".repeat(257));
        let table = [
            ("[]", "not a JSON object"),
            ("{}", "\"content\" is missing"),
            (r#"{"content":7}"#, "\"content\" is not a string"),
            (r#"{"content":"  "}"#, "\"content\" is empty"),
            (r#"{"content":"x","chat_id":["a"]}"#, "\"chat_id\" is not a string"),
            (r#"{"content":"x","sender":""}"#, "\"sender\" is empty"),
            (r#"{"content":"x","id":"a\nb"}"#, "control characters"),
            (r#"{"content":"x","chat_id":"a "}"#, "\"chat_id\" begins or ends with a space"),
            (long.as_str(), "longer than 256"),
        ];
        for (body, words) in table {
            let error = parse_native(&serde_json::from_str(body).unwrap()).unwrap_err();
            assert_eq!(error.status.as_u16(), 422, "{error:?}");
            assert!(error.message.contains(words), "{error:?} {words}");
        }
        let body = parse_native(&json!({"content": "hi", "chat_id": 42, "sender": null, "more": {}})).unwrap();
        let (content, chat_id) = (Some("hi".into()), Some("42".into()));
        let expected = MessageDraft { content, chat_id, author: Author::Holder, ..MessageDraft::default() };
        assert_eq!(body, expected);
    }
}
