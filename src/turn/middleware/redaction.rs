//! Removes configured secrets from the model's input and output, and from replies. The executor already removes them from tool
//! results, except from a history that is older than the secret's configuration.

use async_trait::async_trait;

use super::chain::{Middleware, ModelCall, ModelRequest, TurnRun};
use crate::chat::ChatMessage;
use crate::guard::KnownSecrets;
use crate::llm::ChatResponse;
use crate::turn::error::TurnError;
use crate::turn::traits::TurnScope;
use crate::turn::turn_loop::ConversationOutcome;

pub struct RedactionMiddleware(pub KnownSecrets);

const NAME: &str = "redaction";

impl RedactionMiddleware {
    fn redact(&self, at: &TurnScope<'_>, what: &str, text: &mut String) {
        if self.0.redact(text) {
            tracing::warn!(turn = %at.turn, session = %at.session, "a secret of the configuration was removed from {what}");
        }
    }
}

#[async_trait]
impl Middleware<TurnRun> for RedactionMiddleware {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn after(&self, at: &TurnScope<'_>, mut end: ConversationOutcome) -> Result<ConversationOutcome, TurnError> {
        if let ConversationOutcome::Answered(reply) = &mut end {
            self.redact(at, "a reply", reply);
        }
        Ok(end)
    }

    async fn on_error(&self, at: &TurnScope<'_>, error: TurnError) -> TurnError {
        error.map_texts(|words| self.redact(at, "the words of an error", words))
    }
}

#[async_trait]
impl Middleware<ModelCall> for RedactionMiddleware {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn before(&self, at: &TurnScope<'_>, mut request: ModelRequest) -> Result<ModelRequest, TurnError> {
        for message in &mut request.chat.messages {
            if let ChatMessage::Tool { content, .. } = message {
                self.redact(at, "a tool's result", content);
            }
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
}
