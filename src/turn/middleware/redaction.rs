//! Removes the secrets of the configuration from tool results for the model, and from replies.

use async_trait::async_trait;

use super::around::{LayerDecision, Middleware, ModelCall, ModelRequest, ToolRun, TurnRun};
use crate::chat::ChatMessage;
use crate::guard::KnownSecrets;
use crate::llm::ChatResponse;
use crate::tools::{ToolEffect, ToolOutcome};
use crate::turn::error::TurnError;
use crate::turn::scope::TurnScope;
use crate::turn::turn_loop::ConversationOutcome;

pub struct RedactionMiddleware(pub KnownSecrets);

const NAME: &str = "redaction";

impl RedactionMiddleware {
    fn strike(&self, at: &TurnScope<'_>, what: &str, text: &mut String) {
        if self.0.redact(text) {
            tracing::warn!(turn = %at.turn, session = %at.session, "a secret of the configuration was struck out of {what}");
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
            self.strike(at, "a reply", reply);
        }
        Ok(end)
    }

    async fn on_error(&self, at: &TurnScope<'_>, error: TurnError) -> TurnError {
        error.map_texts(|words| self.strike(at, "the words of an error", words))
    }
}

#[async_trait]
impl Middleware<ModelCall> for RedactionMiddleware {
    fn name(&self) -> &'static str {
        NAME
    }

    /// The history may hold tool results from before the secret was configured.
    async fn before(
        &self,
        at: &TurnScope<'_>,
        mut request: ModelRequest,
    ) -> Result<LayerDecision<ModelCall>, TurnError> {
        for message in &mut request.chat.messages {
            if let ChatMessage::Tool { content, .. } = message {
                self.strike(at, "a tool's result", content);
            }
        }
        Ok(LayerDecision::Continue(request))
    }

    /// The journal and the session keep this response, whatever the model learned elsewhere.
    async fn after(&self, at: &TurnScope<'_>, mut response: ChatResponse) -> Result<ChatResponse, TurnError> {
        self.strike(at, "an answer", &mut response.text);
        Ok(response)
    }
}

#[async_trait]
impl Middleware<ToolRun> for RedactionMiddleware {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn after(&self, at: &TurnScope<'_>, mut outcome: ToolOutcome) -> Result<ToolOutcome, TurnError> {
        self.strike(at, "a tool's result", &mut outcome.result.content);
        if let Some(error) = &mut outcome.result.error {
            self.strike(at, "a tool's error", error);
        }
        for effect in &mut outcome.effects {
            let ToolEffect::Message { content, subject, .. } = effect else { continue };
            self.strike(at, "a message", content);
            if let Some(subject) = subject {
                self.strike(at, "a subject", subject);
            }
        }
        Ok(outcome)
    }
}
