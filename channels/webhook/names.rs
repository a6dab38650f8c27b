//! Names in a webhook's settings and requests.

use crate::http_error::HttpError;
use crate::message::SessionKey;

/// The longest `id`, `chat_id`, `sender` and `session`, in characters.
pub const MAX_NAME_CHARS: usize = 256;

/// Returns the configuration path of the key `key` of the webhook `name`.
pub fn key_path(name: &str, key: &str) -> String {
    format!("channels.webhook.{name}.{key}")
}

/// Returns true if `name` is a valid name for a webhook. The name is part of URLs.
pub fn is_path_word(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    (1..=64).contains(&name.len()) && name.bytes().all(plain) && name.bytes().any(|b| b != b'.')
}

/// Checks that `text` is a valid name of a chat, a sender, a session or a message. `what` names the field in the error.
pub fn check_name(what: &str, text: &str) -> Result<(), HttpError> {
    if text.trim().is_empty() {
        return Err(HttpError::unprocessable(format!("{what} is empty")));
    }
    if text.chars().count() > MAX_NAME_CHARS {
        return Err(HttpError::unprocessable(format!("{what} is longer than {MAX_NAME_CHARS} characters")));
    }
    if text.contains(char::is_control) {
        return Err(HttpError::unprocessable(format!("{what} holds control characters")));
    }
    Ok(())
}

/// Returns the session for a plain name or a whole session key.
pub fn fixed_session(channel: &str, key: &str) -> Result<SessionKey, HttpError> {
    check_name("the session", key)?;
    match key.split_once(':') {
        None => Ok(format!("{channel}:{key}").into()),
        Some((channel, rest)) if !channel.trim().is_empty() && !rest.trim().is_empty() => Ok(key.into()),
        Some(_) => Err(HttpError::unprocessable(format!("{key:?} is no key of a session"))),
    }
}
