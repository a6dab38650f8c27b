//! Removes secrets from an answer while it arrives.

use parking_lot::{Mutex, MutexGuard};

use crate::guard::KnownSecrets;
use crate::llm::{Delta, DeltaSink};

/// A sink that holds back what may be the beginning of a secret.
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

    /// Ends the answer: emits what was held back.
    pub fn finish(&self) {
        let HeldText { text, reasoning } = std::mem::take(&mut *self.lock());
        self.show(Delta::Reasoning, &reasoning);
        self.show(Delta::Text, &text);
    }

    /// Appends `more` to `held` and returns what can be shown.
    fn push(&self, held: &mut String, more: &str) -> String {
        held.push_str(more);
        self.secrets.redact(held);
        let open = self.secrets.partial_match_len(held);
        let rest = held.split_off(held.len() - open);
        std::mem::replace(held, rest)
    }

    fn show<'t>(&self, kind: impl FnOnce(&'t str) -> Delta<'t>, text: &'t str) {
        if !text.is_empty() {
            self.sink.delta(kind(text));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HeldText> {
        self.held.lock()
    }
}

impl DeltaSink for SecretFilter<'_> {
    fn delta(&self, delta: Delta<'_>) {
        match delta {
            Delta::Text(more) => {
                let ready = self.push(&mut self.lock().text, more);
                self.show(Delta::Text, &ready);
            }
            Delta::Reasoning(more) => {
                let ready = self.push(&mut self.lock().reasoning, more);
                self.show(Delta::Reasoning, &ready);
            }
            Delta::Restart => {
                *self.lock() = HeldText::default();
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
    use daoyou_channels::settings::Secret;

    use super::*;

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
}
