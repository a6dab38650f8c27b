//! The parameters that models accept, learned from refusals: parameters change with each generation of models, and no table
//! knows future models or those of other vendors.

use serde_json::Value;

/// The form in which a request asks for reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThinkingForm {
    /// With a budget of tokens.
    Budget,
    /// The model decides how much it reasons.
    Adaptive,
    /// The model refuses requests for reasoning.
    Refused,
}

/// The known parameters of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ModelParameters {
    pub thinking: ThinkingForm,
    pub takes_temperature: bool,
}

impl Default for ModelParameters {
    fn default() -> Self {
        Self { thinking: ThinkingForm::Budget, takes_temperature: true }
    }
}

impl ModelParameters {
    /// Learns from the refusal of the body `sent`; returns a description if something new was learned.
    pub(super) fn learn(&mut self, sent: &Value, refusal: &str) -> Option<&'static str> {
        const UNSUPPORTED: [&str; 5] = ["support", "deprecated", "not permitted", "not allowed", "expected tags"];
        let words = refusal.to_lowercase();
        let is_refused = |field: &str| sent.get(field).is_some() && words.contains(field);
        if !UNSUPPORTED.iter().any(|phrase| words.contains(phrase)) {
            return None;
        }
        if is_refused("thinking") {
            // The refusals of models that take no budget name the form that they accept.
            let adapts = self.thinking == ThinkingForm::Budget && words.contains("adaptive");
            self.thinking = if adapts { ThinkingForm::Adaptive } else { ThinkingForm::Refused };
            return Some(if adapts { "as much thinking as it finds right" } else { "no thinking" });
        }
        (is_refused("temperature") && std::mem::replace(&mut self.takes_temperature, false)).then_some("no temperature")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn refusals_teach_once() {
        use ThinkingForm::*;
        let enabled = "HTTP 400: \"thinking.type.enabled\" is not supported for this model. Use \
                       \"thinking.type.adaptive\" and \"output_config.effort\" to control thinking behavior.";
        let none = "HTTP 400: this model does not support thinking";
        let temperature = "HTTP 400: `temperature` is deprecated for this model.";
        let other =
            "HTTP 400: messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`.";
        let (cold, warm, thoughtful) =
            (json!({}), json!({"temperature": 0.5}), json!({"thinking": {"type": "enabled"}}));
        let mut known = ModelParameters::default();
        for (sent, words, change, thinking, takes_temperature) in [
            (&thoughtful, other, None, Budget, true),
            (&cold, enabled, None, Budget, true),
            (&warm, temperature, Some("no temperature"), Budget, false),
            (&warm, temperature, None, Budget, false),
            (&thoughtful, enabled, Some("as much thinking as it finds right"), Adaptive, false),
            (&thoughtful, none, Some("no thinking"), Refused, false),
            (&cold, none, None, Refused, false),
        ] {
            assert_eq!(known.learn(sent, words), change, "{words}");
            assert_eq!(known, ModelParameters { thinking, takes_temperature }, "{words}");
        }
    }
}
