//! The secrets of the configuration do not leave: not to a model in what tools found, not to anybody in a reply.

use async_trait::async_trait;

use super::around::{Around, Context, ModelCall, ModelRequest, Passed, ToolRun, TurnRun};
use crate::agent::conversing::TurnEnd;
use crate::agent::error::TurnError;
use crate::chat::ChatMessage;
use crate::guard::Secrets;
use crate::llm::ChatResponse;
use crate::tools::{Effect, ToolOutcome};

pub struct Redaction(pub Secrets);

const NAME: &str = "redaction";

impl Redaction {
    fn strike(&self, at: &Context<'_>, what: &str, text: &mut String) {
        if self.0.strike(text) {
            tracing::warn!(turn = %at.turn, session = %at.session, "a secret of the configuration was struck out of {what}");
        }
    }
}

#[async_trait]
impl Around<TurnRun> for Redaction {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn after(&self, at: &Context<'_>, mut end: TurnEnd) -> Result<TurnEnd, TurnError> {
        if let TurnEnd::Answered(answer) = &mut end {
            self.strike(at, "a reply", &mut answer.reply);
        }
        Ok(end)
    }

    async fn on_error(&self, at: &Context<'_>, error: TurnError) -> TurnError {
        error.map_words(|words| self.strike(at, "the words of an error", words))
    }
}

#[async_trait]
impl Around<ModelCall> for Redaction {
    fn name(&self) -> &'static str {
        NAME
    }

    /// What tools found before the secret was known stands in the history.
    async fn before(&self, at: &Context<'_>, mut request: ModelRequest) -> Result<Passed<ModelCall>, TurnError> {
        for message in &mut request.chat.messages {
            if let ChatMessage::Tool { content, .. } = message {
                self.strike(at, "a tool's result", content);
            }
        }
        Ok(Passed::On(request))
    }

    /// Whatever the model was told by others; the journal and the session keep what is said here.
    async fn after(&self, at: &Context<'_>, mut response: ChatResponse) -> Result<ChatResponse, TurnError> {
        self.strike(at, "an answer", &mut response.text);
        Ok(response)
    }
}

#[async_trait]
impl Around<ToolRun> for Redaction {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn after(&self, at: &Context<'_>, mut outcome: ToolOutcome) -> Result<ToolOutcome, TurnError> {
        self.strike(at, "a tool's result", &mut outcome.result.content);
        if let Some(error) = &mut outcome.result.error {
            self.strike(at, "a tool's error", error);
        }
        for effect in &mut outcome.effects {
            let Effect::Message { content, subject, .. } = effect else { continue };
            self.strike(at, "a message", content);
            if let Some(subject) = subject {
                self.strike(at, "a subject", subject);
            }
        }
        Ok(outcome)
    }
}
