//! Recognizes a repeated request, so that a retry does not become a second message.
//!
//! A client can mark a retry with `Idempotency-Key`. OpenAI's own clients do not send that header: after a timeout or a
//! lost connection they repeat the request and count the attempts in another header. For these clients, a note maps the
//! body to its message until the request is answered. After that, an equal request is a new message.

use std::sync::Arc;

use axum::http::HeaderMap;
use serde_json::Value;

use super::gateway::{BODY_NOTE, NAME, REQUEST_NOTE};
use crate::client::single_header;
use crate::http_error::HttpError;
use crate::inbox::{AcceptExtras, Inbox, Note};
use crate::message::new_id;
use crate::text::sha256_hex;

/// The header in which OpenAI's clients count attempts, from 0.
const RETRY_COUNT: &str = "x-stainless-retry-count";
/// The longest `Idempotency-Key`, in bytes.
const MAX_KEY: usize = 255;

/// The identity of a request: what a repetition of it has in common with it.
#[derive(Debug, Default)]
pub(super) struct RequestIdentity {
    /// The sender's id of the message; `None` if every request is new.
    pub external_id: Option<String>,
    pub note: Option<Note>,
    /// The hash of the body that came with an `Idempotency-Key`.
    body_note: Option<Note>,
}

impl RequestIdentity {
    /// Determines the identity of a request in a session from its headers and body.
    ///
    /// # Errors
    /// A header is malformed, or the store cannot be read.
    pub async fn of(inbox: &dyn Inbox, headers: &HeaderMap, session: &str, body: &str) -> Result<Self, HttpError> {
        let key = single_header(headers, "idempotency-key").map_err(HttpError::bad_request)?;
        if let Some(key) = key {
            let key = key.to_str().ok().map(str::trim).filter(|key| !key.is_empty() && key.len() <= MAX_KEY);
            let wrong = || HttpError::bad_request(format!("Idempotency-Key has to be a text of 1 to {MAX_KEY} bytes"));
            return Ok(Self::of_key(key.ok_or_else(wrong)?, session, body));
        }
        let Some(count) = headers.get(RETRY_COUNT) else { return Ok(Self::default()) };
        let key = sha256_hex(&[session.as_bytes(), &[0], body.as_bytes()]);
        let first = if count.as_bytes() == b"0" { None } else { inbox.note(NAME, REQUEST_NOTE, &key).await? };
        let first = first.map(|note| note.value).filter(|id| !id.is_empty());
        let value = first.unwrap_or_else(|| new_id().to_string());
        let note = Note { channel: NAME.to_owned(), kind: REQUEST_NOTE, key, value: value.clone() };
        Ok(Self { external_id: Some(value), note: Some(note), body_note: None })
    }

    /// Returns the identity of a request with an `Idempotency-Key`. A key counts within one session only.
    fn of_key(key: &str, session: &str, body: &str) -> Self {
        let mut asked: Value = serde_json::from_str(body).unwrap_or_default();
        if let Some(asked) = asked.as_object_mut() {
            // The format of the answer does not belong to the request's content.
            asked.retain(|field, _| !matches!(field.as_str(), "stream" | "stream_options"));
        }
        let id = format!("key-{}", sha256_hex(&[session.as_bytes(), &[0], key.as_bytes(), &[0]]));
        let body = sha256_hex(&[asked.to_string().as_bytes(), &[0]]);
        let body_note = Note { channel: NAME.to_owned(), kind: BODY_NOTE, key: id.clone(), value: body };
        Self { external_id: Some(id), note: None, body_note: Some(body_note) }
    }

    /// Checks that a request with the key of a known message has the body of that message. The first request's note is in
    /// the store as soon as its message is known; a message of an old store may have none.
    ///
    /// # Errors
    /// 422 if the body is another one, or the store cannot be read.
    pub async fn check_body(&self, inbox: &dyn Inbox) -> Result<(), HttpError> {
        let Some(own) = &self.body_note else { return Ok(()) };
        let first = inbox.note(&own.channel, own.kind, &own.key).await?;
        if first.is_some_and(|first| first.value != own.value) {
            let message = "this Idempotency-Key came with another body before; a new request needs a new key";
            return Err(HttpError::unprocessable(message));
        }
        Ok(())
    }

    /// Returns the notes to store with the message.
    pub fn notes(&self) -> Vec<Note> {
        self.note.iter().chain(&self.body_note).cloned().collect()
    }
}

/// Stops recognizing a request as a repetition once it is answered.
pub(super) struct RepeatGuard {
    pub inbox: Arc<dyn Inbox>,
    pub note: Option<Note>,
}

impl RepeatGuard {
    /// Records that the request is answered.
    pub async fn answered(self) {
        let Some(note) = self.note else { return };
        let extras = AcceptExtras { notes: vec![Note { value: String::new(), ..note }], ..AcceptExtras::default() };
        if let Err(error) = self.inbox.skip(extras, "the request was answered").await {
            // The worst case: a new, equal request whose first attempt is lost counts as a repetition of this one.
            tracing::warn!(%error, "the end of a request could not be noted");
        }
    }
}
