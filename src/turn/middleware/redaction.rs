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
        Ok(response)
    }
}
