//! A debug line for each call: sizes and ids, never contents.

use async_trait::async_trait;

use super::around::{Around, Context, ModelCall, ModelRequest, Operation, Passed, ToolRun, TurnRequest, TurnRun};
use crate::agent::conversing::TurnEnd;
use crate::agent::error::TurnError;
use crate::chat::ToolCall;
use crate::llm::ChatResponse;
use crate::tools::ToolOutcome;

pub struct Logging;

const NAME: &str = "logging";

#[async_trait]
impl Around<TurnRun> for Logging {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn before(&self, at: &Context<'_>, request: TurnRequest) -> Result<Passed<TurnRun>, TurnError> {
        tracing::debug!(turn = %at.turn, session = %at.session, bytes = request.text.len(), "turn begins");
        Ok(Passed::On(request))
    }

    async fn after(&self, at: &Context<'_>, end: TurnEnd) -> Result<TurnEnd, TurnError> {
        match &end {
            TurnEnd::Answered(answer) => {
                tracing::debug!(turn = %at.turn, session = %at.session, bytes = answer.reply.len(), "turn has its answer");
            }
            TurnEnd::AtRest { .. } => tracing::debug!(turn = %at.turn, session = %at.session, "turn is at rest"),
        }
        Ok(end)
    }

    async fn on_error(&self, at: &Context<'_>, error: TurnError) -> TurnError {
        told(at, TurnRun::NAME, &error);
        error
    }
}

#[async_trait]
impl Around<ModelCall> for Logging {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn before(&self, at: &Context<'_>, request: ModelRequest) -> Result<Passed<ModelCall>, TurnError> {
        let ModelRequest { provider, chat } = &request;
        let (messages, tools) = (chat.messages.len(), chat.tools.len());
        tracing::debug!(turn = %at.turn, session = %at.session, provider, model = chat.model, messages, tools, "model call");
        Ok(Passed::On(request))
    }

    async fn after(&self, at: &Context<'_>, response: ChatResponse) -> Result<ChatResponse, TurnError> {
        tracing::debug!(
            turn = %at.turn, session = %at.session, bytes = response.text.len(), calls = response.tool_calls.len(),
            input = response.usage.input_tokens, output = response.usage.output_tokens, cached = response.cached,
            ms = response.latency_ms, "model answered"
        );
        Ok(response)
    }

    async fn on_error(&self, at: &Context<'_>, error: TurnError) -> TurnError {
        told(at, ModelCall::NAME, &error);
        error
    }
}

#[async_trait]
impl Around<ToolRun> for Logging {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn before(&self, at: &Context<'_>, call: ToolCall) -> Result<Passed<ToolRun>, TurnError> {
        let (tool, id, bytes) = (&call.name, &call.id, call.arguments.len());
        tracing::debug!(turn = %at.turn, session = %at.session, tool, id, bytes, "tool call");
        Ok(Passed::On(call))
    }

    async fn after(&self, at: &Context<'_>, outcome: ToolOutcome) -> Result<ToolOutcome, TurnError> {
        let (success, bytes, ms) = (outcome.result.success, outcome.result.content.len(), outcome.result.duration_ms);
        tracing::debug!(turn = %at.turn, session = %at.session, success, bytes, ms, "tool answered");
        Ok(outcome)
    }

    async fn on_error(&self, at: &Context<'_>, error: TurnError) -> TurnError {
        told(at, ToolRun::NAME, &error);
        error
    }
}

fn told(at: &Context<'_>, around: &str, error: &TurnError) {
    tracing::debug!(turn = %at.turn, session = %at.session, code = error.code.word(), around, "failed");
}
