//! Where a turn's calls meet the middleware.

use async_trait::async_trait;

use super::around::{Handler, ModelCall, ModelRequest, ToolRun};
use super::striking::Striking;
use crate::agent::asking::estimate_usage;
use crate::agent::budget::Budget;
use crate::agent::error::TurnError;
use crate::agent::turn::Turn;
use crate::chat::{ToolCall, Usage};
use crate::llm::{ChatRequest, ChatResponse, Delta, DeltaSink, FallbackChain};
use crate::tools::{Executor, ToolContext, ToolOutcome, ToolResult};

impl Turn<'_> {
    /// One model call with everything around it. What it used is known, or estimated; a response that was given before
    /// used nothing.
    pub(in crate::agent) async fn call_model(
        &self,
        chat: ChatRequest,
        sink: &dyn DeltaSink,
    ) -> Result<ChatResponse, TurnError> {
        let striking = self.middleware.secrets().map(|secrets| Striking::new(sink, secrets));
        let shown = striking.as_ref().map_or(sink, |striking| striking as &dyn DeltaSink);
        let request = ModelRequest { provider: self.model.current().provider.name().to_owned(), chat };
        let mut asked = Asked { models: self.model, sink: shown, budget: self.budget };
        let response = self.middleware.model.run(&self.around, request, &mut asked).await;
        if let Some(striking) = &striking {
            striking.finish();
        }
        if let Ok(response) = &response
            && response.cached
        {
            show(response, sink);
        }
        response
    }

    /// One tool call with everything around it: exactly one result, whoever refuses it.
    pub(in crate::agent) async fn call_tool(&self, call: &ToolCall, context: &ToolContext) -> ToolOutcome {
        let mut handler = Called { tools: self.tools, context };
        match self.middleware.tool.run(&self.around, call.clone(), &mut handler).await {
            Ok(outcome) => outcome,
            Err(error) => {
                let ToolContext { turn, session, .. } = context;
                tracing::warn!(%turn, %session, tool = call.name, %error, "a tool call was refused");
                ToolResult::failed(error.words(self.phrases)).into()
            }
        }
    }
}

struct Asked<'a> {
    models: &'a FallbackChain,
    sink: &'a dyn DeltaSink,
    budget: &'a Budget,
}

#[async_trait]
impl Handler<ModelCall> for Asked<'_> {
    async fn handle(&mut self, mut request: ModelRequest) -> Result<ChatResponse, TurnError> {
        let mut response = self.models.chat(&mut request.chat, self.sink).await?;
        if response.usage == Usage::default() {
            response.usage = estimate_usage(&request.chat, &response);
        } else {
            self.budget.learn(&self.models.current().to_string(), &request.chat, response.usage);
        }
        Ok(response)
    }
}

struct Called<'a> {
    tools: &'a Executor,
    context: &'a ToolContext,
}

#[async_trait]
impl Handler<ToolRun> for Called<'_> {
    async fn handle(&mut self, call: ToolCall) -> Result<ToolOutcome, TurnError> {
        Ok(self.tools.run(&call, self.context).await)
    }
}

/// Shows a response that did not stream, as one that did.
fn show(response: &ChatResponse, sink: &dyn DeltaSink) {
    if !response.text.is_empty() {
        sink.delta(Delta::Text(&response.text));
    }
    for call in &response.tool_calls {
        sink.delta(Delta::ToolCall { id: &call.id, name: &call.name });
    }
}
