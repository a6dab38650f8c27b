//! The failure of one attempt, and the meaning of a service's refusal.

use std::time::Duration;

use daoyou_channels::client;
use jiff::Timestamp;
use reqwest::Url;
use reqwest::header::HeaderMap;
use serde_json::Value;

use super::address::display_address;
use crate::guard::redact;
use crate::llm::{FailureScope, LlmError, LlmErrorKind};
use crate::text::{one_line, truncate};

/// The maximum number of characters of a service's own text that an error repeats.
const WORDS_LIMIT: usize = 500;

/// One failed attempt; with the provider's name it becomes an [`LlmError`].
#[derive(Clone, Debug, PartialEq)]
pub(in crate::llm) struct AttemptError {
    pub kind: LlmErrorKind,
    pub message: String,
    /// The same as [`LlmError::public`].
    pub public: Option<String>,
    pub retry_after: Option<Duration>,
    pub blame: FailureScope,
    /// The same as [`LlmError::for_owner`].
    pub for_owner: String,
    /// The service may answer at another address.
    pub is_unknown_address: bool,
}

impl AttemptError {
    pub(in crate::llm) fn new(kind: LlmErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            public: None,
            retry_after: None,
            blame: FailureScope::Request,
            for_owner: String::new(),
            is_unknown_address: false,
        }
    }

    /// Creates the error of a service that cannot be reached at all.
    pub(in crate::llm) fn outage(kind: LlmErrorKind, message: impl Into<String>) -> Self {
        Self { blame: FailureScope::Service, ..Self::new(kind, message) }
    }

    /// Creates the error of an answer that cannot be used.
    pub(in crate::llm) fn unusable(message: impl Into<String>) -> Self {
        Self::new(LlmErrorKind::Parse, message)
    }

    /// Creates the error of an answer with more than `limit` bytes.
    pub(in crate::llm) fn too_long(limit: usize) -> Self {
        Self::unusable(format!("the answer is longer than {limit} bytes"))
    }

    /// Creates the error of a piece of an answer that is not JSON of the expected form.
    pub(in crate::llm) fn unreadable(error: &serde_json::Error, piece: &str) -> Self {
        Self::unusable(format!("unreadable answer ({error}): {}", shorten(piece))).publicly("unreadable answer")
    }

    /// Sets the text that API callers get in place of the message.
    pub(in crate::llm) fn publicly(self, words: impl Into<String>) -> Self {
        Self { public: Some(words.into()), ..self }
    }

    /// Sets the asked address, for the owner, unless it is known already.
    pub(in crate::llm) fn asked(mut self, url: &Url) -> Self {
        if self.for_owner.is_empty() {
            self.for_owner = format!("asked {}", display_address(url));
        }
        self
    }

    /// Appends `words` to the message and to the text for API callers.
    pub(in crate::llm) fn append(&mut self, words: &str) {
        self.message += words;
        if let Some(public) = &mut self.public {
            *public += words;
        }
    }

    /// Creates the error of an answer whose status is not a success.
    pub(in crate::llm) fn from_status(status: u16, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Self {
        let reported = ErrorBody::read(body);
        let words = if reported.words.is_empty() { String::new() } else { format!(": {}", reported.words) };
        let mut message = format!("HTTP {status}{words}");
        if (300..400).contains(&status) {
            let to = headers.get("location").and_then(|value| value.to_str().ok()).unwrap_or("another place");
            message = format!("HTTP {status}: moved to {}; base_url must name that place", shorten(to));
        }
        let kind = reported.kind(status);
        let meaning = match kind {
            LlmErrorKind::Auth => ": the API key is refused",
            LlmErrorKind::Quota => ": the account has no credit left",
            LlmErrorKind::RateLimit => ": too many requests",
            LlmErrorKind::ContextTooLong => ": the conversation is too long",
            _ if status == 404 => ": the service knows no such model or address",
            _ => "",
        };
        let fault = Self::new(kind, message).publicly(format!("HTTP {status}{meaning}"));
        Self { retry_after: retry_after(headers, now), blame: reported.blame(status, kind), ..fault }
    }

    /// Creates the error of an error object inside an answer that began well.
    pub(in crate::llm) fn from_object(error: &Value) -> Self {
        let reported = ErrorBody::of(error);
        let status = reported.code.parse().ok().filter(|status| (400..600).contains(status)).unwrap_or(500);
        let words = if reported.words.is_empty() { "no reason given".to_owned() } else { reported.words.clone() };
        // An error inside an answer concerns only this request, whatever its status.
        Self::new(reported.kind(status), format!("the service broke off: {words}")).publicly("the service broke off")
    }

    /// Converts the failure to an [`LlmError`], and removes `secrets` from its text: the service may have repeated a key.
    pub(in crate::llm) fn into_error<'a>(self, provider: &str, secrets: impl Iterator<Item = &'a str>) -> LlmError {
        let message = redact(&self.message, secrets);
        let Self { kind, public, retry_after, blame, for_owner, .. } = self;
        LlmError { public, retry_after, blame, for_owner, ..LlmError::new(kind, provider, message) }
    }
}

/// Shortens a text to one line of at most [`WORDS_LIMIT`] characters.
pub(in crate::llm) fn shorten(words: &str) -> String {
    truncate(&one_line(words), WORDS_LIMIT)
}

/// The error that a service reported, in any of the usual forms.
struct ErrorBody {
    words: String,
    /// True if the body is an HTML page, which comes from something in front of the service.
    is_page: bool,
    /// `code` and `type` of the error, as text; empty if missing.
    code: String,
    type_: String,
}

impl ErrorBody {
    fn read(body: &[u8]) -> Self {
        match serde_json::from_slice::<Value>(body) {
            Ok(value) => {
                // Gemini wraps its error in a list.
                let value = value.get(0).unwrap_or(&value);
                Self::of(value.get("error").filter(|error| !error.is_null()).unwrap_or(value))
            }
            // The page of a proxy contains no useful text.
            Err(_) if body.trim_ascii_start().starts_with(b"<") => Self { is_page: true, ..Self::of_message("") },
            Err(_) => Self::of_message(&String::from_utf8_lossy(body)),
        }
    }

    fn of(error: &Value) -> Self {
        let field = |name: &str| match error.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(value @ (Value::Number(_) | Value::Object(_) | Value::Array(_))) => value.to_string(),
            _ => String::new(),
        };
        let words = match error {
            Value::String(text) => text.clone(),
            _ => ["message", "detail", "msg", "error"]
                .into_iter()
                .map(field)
                .find(|text| !text.is_empty())
                .unwrap_or_default(),
        };
        // The name of the refused parameter is more helpful than "invalid request".
        let param = field("param");
        let message = if param.is_empty() || words.contains(&param) { words } else { format!("{words} ({param})") };
        Self { code: field("code"), type_: field("type"), ..Self::of_message(&message) }
    }

    fn of_message(words: &str) -> Self {
        Self { words: shorten(words), is_page: false, code: String::new(), type_: String::new() }
    }

    fn kind(&self, status: u16) -> LlmErrorKind {
        if self.is_context_too_long(status) {
            return LlmErrorKind::ContextTooLong;
        }
        match status {
            402 => LlmErrorKind::Quota,
            // A key may be valid but not permit this model (OpenAI), or a model may not accept this message (OpenRouter).
            403 if self.is_unknown_model() => LlmErrorKind::BadRequest,
            403 if self.words.to_lowercase().contains("flagged") => LlmErrorKind::Refused,
            // The page of a firewall does not mean that the service refused the key.
            403 if self.is_page => LlmErrorKind::Server,
            401 | 403 => LlmErrorKind::Auth,
            408 => LlmErrorKind::Timeout,
            // This is not a rate limit: waiting does not restore the credit.
            429 if [&self.code, &self.type_].iter().any(|word| word.contains("insufficient_quota")) => {
                LlmErrorKind::Quota
            }
            429 => LlmErrorKind::RateLimit,
            400 if self.words.to_lowercase().contains("credit balance is too low") => LlmErrorKind::Quota,
            // The request is too large, and a shorter conversation makes it smaller.
            413 => LlmErrorKind::ContextTooLong,
            500.. => LlmErrorKind::Server,
            _ => LlmErrorKind::BadRequest,
        }
    }

    fn blame(&self, status: u16, kind: LlmErrorKind) -> FailureScope {
        match kind {
            // 520 to 527 are Cloudflare's codes for a service that it cannot reach, 529 is Anthropic's for overload.
            LlmErrorKind::Server if matches!(status, 502..=504 | 520..=529) => FailureScope::Service,
            LlmErrorKind::BadRequest if status == 404 || self.is_unknown_model() => FailureScope::Model,
            _ => FailureScope::Request,
        }
    }

    /// Returns true if the error is about an unknown model; not every service answers 404 for that.
    fn is_unknown_model(&self) -> bool {
        let words = self.words.to_lowercase();
        self.code == "model_not_found" || words.contains("model not exist") || words.contains("model not found")
    }

    /// Returns true if the conversation is too long. Services share no error code for that, so this compares their phrases.
    fn is_context_too_long(&self, status: u16) -> bool {
        const PHRASES: [&str; 11] = [
            "context length", "context window", "context size", "maximum context", "context_length",
            "prompt is too long", "input is too long", "too many tokens", "range of input length", "input token count",
            "exceed context limit",
        ];
        if [&self.code, &self.type_].iter().any(|word| word.contains("context_length") || word.contains("context_size"))
        {
            return true;
        }
        let words = self.words.to_lowercase();
        matches!(status, 400 | 413 | 422 | 500) && PHRASES.iter().any(|phrase| words.contains(phrase))
    }
}

/// Returns the wait of OpenAI's `retry-after-ms`, or else of `Retry-After`.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let millis = headers.get("retry-after-ms").and_then(|value| value.to_str().ok()?.trim().parse::<f64>().ok());
    match millis {
        Some(millis) => Duration::try_from_secs_f64(millis / 1_000.0).ok(),
        None => client::retry_after(headers, now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use LlmErrorKind::*;

    /// Each row: the status, the body, the kind of the error, and its text.
    const REFUSALS: &[(u16, &str, LlmErrorKind, &str)] = &[
        (400, r#"{"error":{"message":"Unknown parameter","code":null}}"#, BadRequest, "HTTP 400: Unknown parameter"),
        (
            400,
            r#"{"error":{"message":"This model's maximum context length is 8192 tokens."}}"#,
            ContextTooLong,
            "HTTP 400: This model's maximum context length is 8192 tokens.",
        ),
        (
            400,
            r#"{"error":{"message":"Invalid request.","param":"temperature"}}"#,
            BadRequest,
            "HTTP 400: Invalid request. (temperature)",
        ),
        (400, r#"{"error":{"message":"No","code":"context_length_exceeded"}}"#, ContextTooLong, "HTTP 400: No"),
        (401, r#"{"error":"bad key"}"#, Auth, "HTTP 401: bad key"),
        (402, r#"{"error":{"message":"Insufficient Balance"}}"#, Quota, "HTTP 402: Insufficient Balance"),
        (403, r#"[{"error":{"message":"No access","code":403}}]"#, Auth, "HTTP 403: No access"),
        (403, r#"{"error":{"message":"No such","code":"model_not_found"}}"#, BadRequest, "HTTP 403: No such"),
        (403, r#"{"error":{"message":"your input was flagged"}}"#, Refused, "HTTP 403: your input was flagged"),
        (403, r#"{"error":{"message":"Input was FLAGGED"}}"#, Refused, "HTTP 403: Input was FLAGGED"),
        (403, "<html>Blocked</html>", Server, "HTTP 403"),
        (404, r#"{"detail":"Not Found"}"#, BadRequest, "HTTP 404: Not Found"),
        (408, "", Timeout, "HTTP 408"),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low."}}"#,
            Quota,
            "HTTP 400: Your credit balance is too low.",
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"}}"#,
            ContextTooLong,
            "HTTP 400: prompt is too long: 9 > 8",
        ),
        (413, r#"{"error":{"type":"request_too_large","message":"Too large"}}"#, ContextTooLong, "HTTP 413: Too large"),
        (422, r#"{"detail":[{"loc":["body"]}]}"#, BadRequest, r#"HTTP 422: [{"loc":["body"]}]"#),
        (429, r#"{"message":"slow  down\n please"}"#, RateLimit, "HTTP 429: slow down please"),
        (429, r#"{"error":{"message":"No credit","type":"insufficient_quota"}}"#, Quota, "HTTP 429: No credit"),
        (500, "plain words", Server, "HTTP 500: plain words"),
        (502, "<html>Bad gateway</html>", Server, "HTTP 502"),
        (529, "{}", Server, "HTTP 529"),
    ];

    #[test]
    fn refusals_and_their_meaning() {
        for (status, body, kind, message) in REFUSALS.iter().copied() {
            let fault = AttemptError::from_status(status, &HeaderMap::new(), body.as_bytes(), Timestamp::UNIX_EPOCH);
            assert_eq!((fault.kind, fault.message.as_str()), (kind, message), "{status} {body}");
            let public = fault.public.unwrap();
            assert!(public.starts_with(&format!("HTTP {status}")) && !public.contains("No"), "{public}");
        }
        for (status, body, blame) in [
            (400, r#"{"error":{"message":"Unknown parameter"}}"#, FailureScope::Request),
            (400, r#"{"error":{"message":"Model Not Exist"}}"#, FailureScope::Model),
            (400, r#"{"error":{"message":"no","code":"model_not_found"}}"#, FailureScope::Model),
            (404, "", FailureScope::Model),
            (429, "", FailureScope::Request),
            (500, "", FailureScope::Request),
            (501, "", FailureScope::Request),
            (502, "", FailureScope::Service),
            (503, "", FailureScope::Service),
            (504, "", FailureScope::Service),
            (505, "", FailureScope::Request),
            (522, "", FailureScope::Service),
            (529, "", FailureScope::Service),
            (503, r#"{"error":{"code":"context_length_exceeded"}}"#, FailureScope::Request),
        ] {
            let fault = AttemptError::from_status(status, &HeaderMap::new(), body.as_bytes(), Timestamp::UNIX_EPOCH);
            assert_eq!(fault.blame, blame, "{status} {body}");
        }
        for (error, kind) in [
            (r#"{"message":"The server had an error","type":"server_error"}"#, Server),
            (r#"{"message":"Rate limit","code":429}"#, RateLimit),
            (r#"{"message":"too long","code":"context_length_exceeded"}"#, ContextTooLong),
            (r#""words""#, Server),
        ] {
            assert_eq!(AttemptError::from_object(&serde_json::from_str(error).unwrap()).kind, kind, "{error}");
        }
    }

    #[test]
    fn long_messages_are_cut_and_keys_removed() {
        let fault =
            AttemptError::from_status(401, &HeaderMap::new(), "界".repeat(2_000).as_bytes(), Timestamp::UNIX_EPOCH);
        assert_eq!(fault.message.chars().count(), "HTTP 401: ".len() + WORDS_LIMIT);
        let error = AttemptError::new(LlmErrorKind::Auth, "wrong key: sk-canary-1")
            .into_error("acme", ["sk-canary-1", ""].into_iter());
        assert_eq!(error.to_string(), "acme: wrong key: (hidden)");
    }

    #[test]
    fn retry_after_is_read_in_each_form() {
        let now: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
        for (name, value, millis) in [
            ("retry-after", "7", Some(7_000)),
            ("retry-after", "0.5", Some(500)),
            ("retry-after-ms", "250", Some(250)),
            ("retry-after", "Sat, 21 Nov 2026 10:00:30 GMT", Some(30_000)),
            ("retry-after", "Sat, 21 Nov 2026 09:00:00 GMT", Some(0)),
            ("retry-after", "soon", None),
            ("retry-after", "-1", None),
            ("retry-after", "inf", None),
        ] {
            let headers = HeaderMap::from_iter([(
                reqwest::header::HeaderName::from_static(name),
                reqwest::header::HeaderValue::from_static(value),
            )]);
            assert_eq!(retry_after(&headers, now), millis.map(Duration::from_millis), "{name}: {value}");
        }
    }
}
