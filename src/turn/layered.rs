//! The model and the tools of a turn, with the middleware around each call.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;

use async_trait::async_trait;

use super::error::TurnError;
use super::middleware::{MiddlewareStack, ModelRequest, SecretFilter};
use super::spending;
use super::token_budget::{TokenBudget, estimate_usage};
use super::traits::{Model, Tools, TurnScope};
use crate::chat::{ToolCall, ToolSpec, Usage};
use crate::llm::{ChatRequest, ChatResponse, Delta, DeltaSink, FallbackChain, Models};
use crate::skills::SkillCatalog;
use crate::tools::{ReplayPolicy, Restriction, ToolAccess, ToolContext, ToolExecutor, ToolOutcome, ToolResult};

/// The model of a turn: a chain of models within the middleware.
pub struct LayeredModel<'a> {
    pub chain: &'a FallbackChain,
    pub middleware: &'a MiddlewareStack,
    /// Learns the token ratios from the counts that the services report.
    pub tokens: &'a TokenBudget,
    /// Provides the prices.
    pub models: &'a Models,
    pub scope: TurnScope<'a>,
}

#[async_trait]
impl Model for LayeredModel<'_> {
    fn name(&self) -> String {
        self.chain.current().model
    }

    async fn takes_images(&self) -> bool {
        self.chain.sees().await
    }

    /// A response from the cache has no usage.
    async fn chat(&self, chat: ChatRequest, sink: &dyn DeltaSink) -> Result<ChatResponse, TurnError> {
        let filter = self.middleware.secrets.as_ref().map(|secrets| SecretFilter::new(sink, secrets));
        let shown = filter.as_ref().map_or(sink, |filter| filter as &dyn DeltaSink);
        let request = ModelRequest { provider: self.chain.current().provider.name().to_owned(), chat };
        let ask = |mut request: ModelRequest| async move {
            let mut response = self.chain.chat(&mut request.chat, shown).await?;
            if response.usage == Usage::default() {
                response.usage = estimate_usage(&request.chat, &response);
            } else {
                self.tokens.learn(&self.chain.current().to_string(), &request.chat, response.usage);
            }
            Ok(response)
        };
        let response = self.middleware.call_model(&self.scope, request, ask).await;
        if let Some(filter) = &filter {
            filter.finish();
        }
        let mut response = response?;
        if response.cached {
            show(&response, sink);
        }
        let answered = self.chain.current();
        spending::price_and_count(&mut response, &answered, self.models, self.scope.meter);
        Ok(response)
    }
}

/// The tools of a turn: an executor within the middleware.
pub struct LayeredTools<'a> {
    pub executor: &'a ToolExecutor,
    pub middleware: &'a MiddlewareStack,
    /// The skills, whose recent scan expires after a call that may have changed files.
    pub skills: &'a SkillCatalog,
    pub scope: TurnScope<'a>,
}

#[async_trait]
impl Tools for LayeredTools<'_> {
    fn specs(&self, found: &BTreeSet<String>) -> Arc<[ToolSpec]> {
        self.executor.specs(found)
    }

    fn canonical_name(&self, name: &str) -> Option<String> {
        self.executor.registry().get(name).map(|tool| tool.spec().name.clone())
    }

    fn use_own_name(&self, call: &mut ToolCall) {
        self.executor.registry().use_own_name(call);
    }

    fn access_of(&self, name: &str) -> Option<ToolAccess> {
        self.executor.access_of(name)
    }

    fn replay_of(&self, call: &ToolCall) -> Option<ReplayPolicy> {
        self.executor.replay_of(call)
    }

    fn refusal(&self, call: &ToolCall, context: &ToolContext) -> Option<String> {
        self.executor.refusal(call, context)
    }

    fn restriction(&self, call: &ToolCall, context: &ToolContext) -> Option<Restriction> {
        self.executor.restriction(call, context)
    }

    fn parallelism(&self) -> NonZeroUsize {
        self.executor.limits().at_once
    }

    async fn run(&self, call: &ToolCall, context: &ToolContext) -> ToolOutcome {
        let run = |call: ToolCall| async move { Ok(self.executor.run(&call, context).await) };
        let outcome = self.middleware.tool.run(&self.scope, call.clone(), run).await;
        if self.access_of(&call.name) != Some(ToolAccess::Reads) {
            self.skills.expire();
        }
        match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                let TurnScope { turn, session, .. } = self.scope;
                tracing::warn!(%turn, %session, tool = call.name, %error, "a tool call was refused");
                ToolResult::failed(error.user_text(self.scope.phrases)).into()
            }
        }
    }
}

/// Emits a response that did not stream as deltas.
fn show(response: &ChatResponse, sink: &dyn DeltaSink) {
    if !response.text.is_empty() {
        sink.delta(Delta::Text(&response.text));
    }
    for call in &response.tool_calls {
        sink.delta(Delta::ToolCall { id: &call.id, name: &call.name });
    }
}
