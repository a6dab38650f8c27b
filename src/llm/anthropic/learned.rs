//! What models refuse, learned from their refusals: which parameter a model takes changes with each generation, and no
//! table knows those to come, nor the models of other vendors.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::llm::LlmErrorKind;
use crate::llm::remote::Fault;

/// The most models that something is remembered of.
const MODELS_LIMIT: usize = 256;

/// How a model is asked to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thinking {
    /// With a number of tokens.
    Budget,
    /// As much as it finds right.
    Adaptive,
    /// Not at all.
    Refused,
}

/// What is known of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Learned {
    pub thinking: Thinking,
    pub takes_temperature: bool,
}

impl Default for Learned {
    fn default() -> Self {
        Self { thinking: Thinking::Budget, takes_temperature: true }
    }
}

impl Learned {
    /// What a refusal teaches; `None`: nothing new.
    fn after(self, fault: &Fault, thinks: bool) -> Option<Self> {
        if fault.kind != LlmErrorKind::BadRequest {
            return None;
        }
        let words = fault.message.to_lowercase();
        let is_unsupported = ["support", "deprecated", "not permitted", "not allowed", "unknown", "expected tags"]
            .iter()
            .any(|phrase| words.contains(phrase));
        let mut learned = self;
        if !is_unsupported {
            return None;
        }
        if thinks && words.contains("thinking") {
            learned.thinking = match self.thinking {
                Thinking::Budget if words.contains("adaptive") => Thinking::Adaptive,
                _ => Thinking::Refused,
            };
        } else if words.contains("temperature") {
            learned.takes_temperature = false;
        }
        (learned != self).then_some(learned)
    }
}

/// What is known of each model of a provider, as long as the process lives.
#[derive(Debug, Default)]
pub(super) struct Lessons {
    by_model: Mutex<BTreeMap<String, Learned>>,
}

impl Lessons {
    pub(super) fn of(&self, model: &str) -> Learned {
        self.by_model.lock().unwrap_or_else(PoisonError::into_inner).get(model).copied().unwrap_or_default()
    }

    /// Whether a refusal teaches how to ask `model` otherwise. `thinks`: it was asked to think.
    pub(super) fn learn(&self, model: &str, fault: &Fault, thinks: bool) -> bool {
        let Some(learned) = self.of(model).after(fault, thinks) else { return false };
        let mut by_model = self.by_model.lock().unwrap_or_else(PoisonError::into_inner);
        if by_model.len() >= MODELS_LIMIT && !by_model.contains_key(model) {
            by_model.pop_first();
        }
        by_model.insert(model.to_owned(), learned);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_teach_once() {
        use Thinking::*;
        let enabled = "HTTP 400: \"thinking.type.enabled\" is not supported for this model. Use \
                       \"thinking.type.adaptive\" and \"output_config.effort\" to control thinking behavior.";
        let none = "HTTP 400: this model does not support thinking";
        let temperature = "HTTP 400: `temperature` is deprecated for this model.";
        let other =
            "HTTP 400: messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`.";
        let say = |words: &str| Fault::new(LlmErrorKind::BadRequest, words);
        let lessons = Lessons::default();
        for (words, thinks, learns, thinking, takes_temperature) in [
            (other, true, false, Budget, true),
            (enabled, false, false, Budget, true),
            (temperature, true, true, Budget, false),
            (temperature, true, false, Budget, false),
            (enabled, true, true, Adaptive, false),
            (none, true, true, Refused, false),
            (none, true, false, Refused, false),
        ] {
            assert_eq!(lessons.learn("m", &say(words), thinks), learns, "{words}");
            assert_eq!(lessons.of("m"), Learned { thinking, takes_temperature }, "{words}");
        }
        assert!(!lessons.learn("n", &Fault::new(LlmErrorKind::Auth, none), true));
        assert_eq!(lessons.of("n"), Learned::default());
        for n in 0..MODELS_LIMIT + 10 {
            lessons.learn(&n.to_string(), &say(none), true);
        }
        assert_eq!(lessons.by_model.lock().unwrap().len(), MODELS_LIMIT);
    }
}
