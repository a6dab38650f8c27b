//! Observes calls without changing them: a debug line for each call, with sizes and ids but without contents.

use async_trait::async_trait;

use super::chain::{Middleware, ModelCall, ModelRequest, Operation, ToolRun, TurnRun};
use crate::chat::ToolCall;
use crate::llm::ChatResponse;
use crate::tools::ToolOutcome;
use crate::turn::error::TurnError;
use crate::turn::traits::TurnScope;
use crate::turn::turn_loop::ConversationOutcome;

pub struct LoggingMiddleware;

const NAME: &str = "logging";

#[async_trait]
impl Middleware<TurnRun> for LoggingMiddleware {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn before(&self, at: &TurnScope<'_>, request: String) -> Result<String, TurnError> {
        tracing::debug!(turn = %at.turn, session = %at.session, bytes = request.len(), "turn begins");
        Ok(request)
    }

    async fn after(&self, at: &TurnScope<'_>, end: ConversationOutcome) -> Result<ConversationOutcome, TurnError> {
        match &end {
            ConversationOutcome::Answered(reply) => {
                tracing::debug!(turn = %at.turn, session = %at.session, bytes = reply.len(), "turn has its answer");
            }
            ConversationOutcome::Parked { .. } => {
                tracing::debug!(turn = %at.turn, session = %at.session, "turn is parked");
            }
        }
        Ok(end)
    }

    async fn on_error(&self, at: &TurnScope<'_>, error: TurnError) -> TurnError {
        log_error(at, TurnRun::NAME, &error);
        error
    }
}

#[async_trait]
impl Middleware<ModelCall> for LoggingMiddleware {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn before(&self, at: &TurnScope<'_>, request: ModelRequest) -> Result<ModelRequest, TurnError> {
        let ModelRequest { provider, chat } = &request;
        let (messages, tools) = (chat.messages.len(), chat.tools.len());
        tracing::debug!(turn = %at.turn, session = %at.session, provider, model = chat.model, messages, tools, "model call");
        Ok(request)
    }

    async fn after(&self, at: &TurnScope<'_>, response: ChatResponse) -> Result<ChatResponse, TurnError> {
        tracing::debug!(
            turn = %at.turn, session = %at.session, bytes = response.text.len(), calls = response.tool_calls.len(),
            input = response.usage.input_tokens, output = response.usage.output_tokens, cached = response.cached,
            ms = response.latency_ms, "model answered"
        );
        Ok(response)
    }

    async fn on_error(&self, at: &TurnScope<'_>, error: TurnError) -> TurnError {
        log_error(at, ModelCall::NAME, &error);
        error
    }
}

#[async_trait]
impl Middleware<ToolRun> for LoggingMiddleware {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn before(&self, at: &TurnScope<'_>, call: ToolCall) -> Result<ToolCall, TurnError> {
        let (tool, id, bytes) = (&call.name, &call.id, call.arguments.len());
        tracing::debug!(turn = %at.turn, session = %at.session, tool, id, bytes, "tool call");
        Ok(call)
    }

    async fn after(&self, at: &TurnScope<'_>, outcome: ToolOutcome) -> Result<ToolOutcome, TurnError> {
        let (success, bytes, ms) = (outcome.result.success, outcome.result.content.len(), outcome.result.duration_ms);
        tracing::debug!(turn = %at.turn, session = %at.session, success, bytes, ms, "tool answered");
        Ok(outcome)
    }

    async fn on_error(&self, at: &TurnScope<'_>, error: TurnError) -> TurnError {
        log_error(at, ToolRun::NAME, &error);
        error
    }
}

fn log_error(at: &TurnScope<'_>, around: &str, error: &TurnError) {
    tracing::debug!(turn = %at.turn, session = %at.session, code = error.code.as_str(), around, "failed");
}
