//! Observes calls without changing them: a debug line for each call, with sizes and ids but without contents.

use async_trait::async_trait;

use super::chain::{Middleware, ModelCall, ModelRequest, Operation, ToolRun, TurnRun};
use crate::chat::ToolCall;
use crate::llm::ChatResponse;
use crate::tools::ToolOutcome;
use crate::turn::error::TurnError;
use crate::turn::turn_loop::{TurnRunOutcome, TurnScope};

pub struct LoggingMiddleware;

/// The lines of one kind of operation.
trait LoggedOperation: Operation {
    fn log_request(at: &TurnScope<'_>, request: &Self::Request);
    fn log_response(at: &TurnScope<'_>, response: &Self::Response);
}

#[async_trait]
impl<O: LoggedOperation> Middleware<O> for LoggingMiddleware {
    async fn before(&self, at: &TurnScope<'_>, request: O::Request) -> Result<O::Request, TurnError> {
        O::log_request(at, &request);
        Ok(request)
    }

    async fn after(&self, at: &TurnScope<'_>, response: O::Response) -> Result<O::Response, TurnError> {
        O::log_response(at, &response);
        Ok(response)
    }

    async fn on_error(&self, at: &TurnScope<'_>, error: TurnError) -> TurnError {
        let (code, around) = (error.code.as_str(), O::NAME);
        tracing::debug!(turn = %at.turn, session = %at.session, code, around, "failed");
        error
    }
}

impl LoggedOperation for TurnRun {
    fn log_request(at: &TurnScope<'_>, request: &String) {
        tracing::debug!(turn = %at.turn, session = %at.session, bytes = request.len(), "turn begins");
    }

    fn log_response(at: &TurnScope<'_>, end: &TurnRunOutcome) {
        match end {
            TurnRunOutcome::Answered(reply) => {
                tracing::debug!(turn = %at.turn, session = %at.session, bytes = reply.len(), "turn has its answer");
            }
            TurnRunOutcome::Parked { .. } => {
                tracing::debug!(turn = %at.turn, session = %at.session, "turn is parked");
            }
        }
    }
}

impl LoggedOperation for ModelCall {
    fn log_request(at: &TurnScope<'_>, ModelRequest { provider, chat }: &ModelRequest) {
        let (messages, tools) = (chat.messages.len(), chat.tools.len());
        tracing::debug!(turn = %at.turn, session = %at.session, provider, model = chat.model, messages, tools, "model call");
    }

    fn log_response(at: &TurnScope<'_>, response: &ChatResponse) {
        tracing::debug!(
            turn = %at.turn, session = %at.session, bytes = response.text.len(), calls = response.tool_calls.len(),
            input = response.usage.input_tokens, output = response.usage.output_tokens, cached = response.cached,
            ms = response.latency_ms, "model answered"
        );
    }
}

impl LoggedOperation for ToolRun {
    fn log_request(at: &TurnScope<'_>, call: &ToolCall) {
        let (tool, id, bytes) = (&call.name, &call.id, call.arguments.len());
        tracing::debug!(turn = %at.turn, session = %at.session, tool, id, bytes, "tool call");
    }

    fn log_response(at: &TurnScope<'_>, outcome: &ToolOutcome) {
        let (success, bytes, ms) = (outcome.result.success, outcome.result.content.len(), outcome.result.duration_ms);
        tracing::debug!(turn = %at.turn, session = %at.session, success, bytes, ms, "tool answered");
    }
}
