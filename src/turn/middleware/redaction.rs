//! Removes configured secrets from the model's input and output, and from replies.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::Value;

use super::chain::{Middleware, ModelCall, ModelRequest, TurnRun};
use crate::chat::ChatMessage;
use crate::guard::KnownSecrets;
use crate::llm::{ChatResponse, Delta, DeltaSink};
use crate::text::visible::change_texts;
use crate::turn::error::TurnError;
use crate::turn::turn_loop::{TurnRunOutcome, TurnScope};

pub struct RedactionMiddleware(pub KnownSecrets);

impl RedactionMiddleware {
    /// Returns whether `text` had a secret.
    fn redact(&self, at: &TurnScope<'_>, what: &str, text: &mut String) -> bool {
        let found = self.0.redact(text);
        if found {
            tracing::warn!(turn = %at.turn, session = %at.session, "a secret of the configuration was removed from {what}");
        }
        found
    }

    /// Returns `arguments` with its texts redacted, still JSON, or `None` if it has no secret.
    fn redacted_arguments(&self, at: &TurnScope<'_>, arguments: &str) -> Option<String> {
        const WHAT: &str = "the arguments of a call";
        // In JSON, a secret may be escaped.
        if !self.0.may_occur_in(arguments) && !arguments.contains('\\') {
            return None;
        }
        let Ok(mut parsed) = serde_json::from_str::<Value>(arguments) else {
            let mut text = arguments.to_owned();
            return self.redact(at, WHAT, &mut text).then_some(text);
        };
        let mut found = false;
        change_texts(&mut parsed, &mut |text| found |= self.redact(at, WHAT, text));
        found.then(|| parsed.to_string())
    }
}

#[async_trait]
impl Middleware<TurnRun> for RedactionMiddleware {
    /// The journal and the session store the text that this returns.
    async fn before(&self, at: &TurnScope<'_>, mut text: String) -> Result<String, TurnError> {
        self.redact(at, "a message", &mut text);
        Ok(text)
    }

    async fn after(&self, at: &TurnScope<'_>, mut end: TurnRunOutcome) -> Result<TurnRunOutcome, TurnError> {
        if let TurnRunOutcome::Answered(reply) = &mut end {
            self.redact(at, "a reply", reply);
        }
        Ok(end)
    }

    async fn on_error(&self, at: &TurnScope<'_>, error: TurnError) -> TurnError {
        error.map_texts(|words| _ = self.redact(at, "the words of an error", words))
    }
}

#[async_trait]
impl Middleware<ModelCall> for RedactionMiddleware {
    async fn before(&self, at: &TurnScope<'_>, mut request: ModelRequest) -> Result<ModelRequest, TurnError> {
        for message in &mut request.chat.messages {
            // The history shares its messages, so a message is copied only if it has to change: one with a secret of another place than
            // those that are redacted when they arrive, such as one from before the secret was configured.
            let (ChatMessage::User { content, .. }
            | ChatMessage::Assistant { content, .. }
            | ChatMessage::Tool { content, .. }) = &**message;
            let arguments: Vec<Option<String>> =
                message.tool_calls().iter().map(|call| self.redacted_arguments(at, &call.arguments)).collect();
            if !self.0.may_occur_in(content) && arguments.iter().all(Option::is_none) {
                continue;
            }
            match Arc::make_mut(message) {
                ChatMessage::User { content, .. } => self.redact(at, "a message", content),
                ChatMessage::Tool { content, .. } => self.redact(at, "a tool's result", content),
                ChatMessage::Assistant { content, tool_calls, .. } => {
                    for (call, redacted) in tool_calls.iter_mut().zip(arguments) {
                        if let Some(redacted) = redacted {
                            call.arguments = redacted;
                        }
                    }
                    self.redact(at, "an answer", content)
                }
            };
        }
        Ok(request)
    }

    /// The journal and the session store this response, so it must contain no secret that the model learned elsewhere.
    async fn after(&self, at: &TurnScope<'_>, mut response: ChatResponse) -> Result<ChatResponse, TurnError> {
        self.redact(at, "an answer", &mut response.text);
        if let Some(reasoning) = &mut response.reasoning {
            self.redact(at, "the reasoning before an answer", &mut reasoning.text);
            // The service verifies its blocks, so a block with a secret is removed as a whole.
            reasoning.blocks.retain(|block| !self.0.redact(&mut block.to_string()));
        }
        Ok(response)
    }
}

/// A sink that holds back text which may be the beginning of a secret.
pub struct SecretFilter<'a> {
    sink: &'a dyn DeltaSink,
    secrets: &'a KnownSecrets,
    held: Mutex<HeldText>,
}

#[derive(Default)]
struct HeldText {
    text: String,
    reasoning: String,
}

impl<'a> SecretFilter<'a> {
    pub fn new(sink: &'a dyn DeltaSink, secrets: &'a KnownSecrets) -> Self {
        Self { sink, secrets, held: Mutex::default() }
    }

    /// Ends the answer: emits the held-back text.
    pub fn finish(&self) {
        let HeldText { mut text, mut reasoning } = std::mem::take(&mut *self.held.lock());
        self.secrets.redact(&mut reasoning);
        self.secrets.redact(&mut text);
        self.show(Delta::Reasoning, &reasoning);
        self.show(Delta::Text, &text);
    }

    /// Appends `more` to `held` and returns the text that can be shown.
    fn push(&self, held: &mut String, more: &str) -> String {
        held.push_str(more);
        let rest = held.split_off(self.secrets.settled_len(held));
        let mut ready = std::mem::replace(held, rest);
        self.secrets.redact(&mut ready);
        ready
    }

    fn show<'t>(&self, kind: impl FnOnce(&'t str) -> Delta<'t>, text: &'t str) {
        if !text.is_empty() {
            self.sink.delta(kind(text));
        }
    }
}

impl DeltaSink for SecretFilter<'_> {
    fn delta(&self, delta: Delta<'_>) {
        match delta {
            Delta::Text(more) => {
                let ready = self.push(&mut self.held.lock().text, more);
                self.show(Delta::Text, &ready);
            }
            Delta::Reasoning(more) => {
                let ready = self.push(&mut self.held.lock().reasoning, more);
                self.show(Delta::Reasoning, &ready);
            }
            Delta::Restart => {
                *self.held.lock() = HeldText::default();
                self.sink.delta(delta);
            }
            other => {
                self.finish();
                self.sink.delta(other);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use daoyou_channels::SessionKey;
    use daoyou_channels::settings::Secret;
    use serde_json::json;
    use tokio::time::Instant;
    use uuid::Uuid;

    use super::*;
    use crate::chat::Reasoning;
    use crate::metrics::TurnMetrics;
    use crate::phrases::Phrases;
    use crate::text::Language;

    #[tokio::test]
    async fn secrets_are_removed_from_an_answer_and_its_reasoning() {
        let redaction = RedactionMiddleware(KnownSecrets::new([Secret::new("sk-canary-1")]));
        let (metrics, session) = (TurnMetrics::default(), SessionKey::from("s"));
        let (meter, deadline, phrases) = (metrics.meter(), Instant::now(), Phrases::of(Language::En));
        let at = TurnScope { session: &session, turn: Uuid::nil(), deadline, meter: &meter, phrases };
        let blocks = ["the key is sk-canary-1", "nothing"].map(|text| json!({"type": "thinking", "thinking": text}));
        let text = "the key is sk-canary-1".to_owned();
        let reasoning = Reasoning { text, blocks: blocks.to_vec(), ..Reasoning::default() };
        let text = "It is sk-canary-1.".to_owned();
        let response = ChatResponse { text, reasoning: Some(reasoning), ..ChatResponse::default() };
        let response = Middleware::<ModelCall>::after(&redaction, &at, response).await.unwrap();
        let reasoning = response.reasoning.unwrap();
        assert_eq!((response.text.as_str(), reasoning.text.as_str()), ("It is (hidden).", "the key is (hidden)"));
        assert_eq!(reasoning.blocks, blocks[1..]);
    }

    #[test]
    fn the_arguments_of_a_call_stay_json_without_their_secrets() {
        let redaction = RedactionMiddleware(KnownSecrets::new(["sk-\"canary\"-1", "1234567890"].map(Secret::new)));
        let (metrics, session) = (TurnMetrics::default(), SessionKey::from("s"));
        let (meter, deadline, phrases) = (metrics.meter(), Instant::now(), Phrases::of(Language::En));
        let at = TurnScope { session: &session, turn: Uuid::nil(), deadline, meter: &meter, phrases };
        for (arguments, expected) in [
            (r#"{"a":["key sk-\"canary\"-1"],"n":1234567890}"#, Some(r#"{"a":["key (hidden)"],"n":1234567890}"#)),
            (r#"{ "a": "\n" }"#, None),
            ("no JSON 1234567890", Some("no JSON (hidden)")),
        ] {
            assert_eq!(redaction.redacted_arguments(&at, arguments).as_deref(), expected);
        }
    }

    #[derive(Default)]
    struct Shown(Mutex<String>);

    impl DeltaSink for Shown {
        fn delta(&self, delta: Delta<'_>) {
            let word = match delta {
                Delta::Text(text) => text.to_owned(),
                Delta::Reasoning(text) => format!("<{text}>"),
                Delta::ToolCall { name, .. } => format!("[{name}]"),
                Delta::Restart => "!".to_owned(),
            };
            self.0.lock().push_str(&word);
        }
    }

    #[test]
    fn a_secret_split_over_deltas_is_not_shown() {
        let secrets = KnownSecrets::new([Secret::new("sk-canary-1")]);
        let table: [(&[Delta<'_>], &str); 6] = [
            (&[Delta::Text("the key is sk-canary-1.")], "the key is (hidden)."),
            (&[Delta::Text("it is sk-"), Delta::Text("can"), Delta::Text("ary-1 now")], "it is (hidden) now"),
            (&[Delta::Text("risk-"), Delta::Text("free sk-c")], "risk-free sk-c"),
            (&[Delta::Text("a s"), Delta::ToolCall { id: "1", name: "exec" }], "a s[exec]"),
            (&[Delta::Reasoning("sk-canary"), Delta::Text("hi"), Delta::Reasoning("-1")], "hi<(hidden)>"),
            (&[Delta::Text("sk-can"), Delta::Restart, Delta::Text("ary-1")], "!ary-1"),
        ];
        for (deltas, expected) in table {
            let shown = Shown::default();
            let striking = SecretFilter::new(&shown, &secrets);
            for delta in deltas {
                striking.delta(*delta);
            }
            striking.finish();
            assert_eq!(*shown.0.lock(), expected, "{deltas:?}");
        }
    }

    #[test]
    fn no_split_of_a_long_secret_shows_a_part_of_it() {
        let key = "sk-ant-api03-0123456789-abcdefghij-0123456789";
        let other = "0123456789-xyz";
        let secrets = KnownSecrets::new([key, other].map(Secret::new));
        let text = format!("the key is {key} ok {other}");
        for size in 1..text.len() {
            let shown = Shown::default();
            let filter = SecretFilter::new(&shown, &secrets);
            text.as_bytes().chunks(size).for_each(|part| filter.delta(Delta::Text(std::str::from_utf8(part).unwrap())));
            filter.finish();
            assert_eq!(*shown.0.lock(), "the key is (hidden) ok (hidden)", "{size}");
        }
        // The end of one secret is the start of another.
        let shown = Shown::default();
        let filter = SecretFilter::new(&shown, &secrets);
        [format!("a {key}").as_str(), " b"].iter().for_each(|part| filter.delta(Delta::Text(part)));
        assert_eq!(*shown.0.lock(), "a (hidden) b");
    }
}
