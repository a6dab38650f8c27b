//! Builds the configured middleware, by name and in order, and puts it around the model and the tools of a turn. Also prices the
//! answers of a model ([`price_and_count`]).

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::tz::TimeZone;

use super::budget::BudgetMiddleware;
use super::cache::{CachedResponses, ResponseCache};
use super::chain::{MiddlewareChain, ModelCall, ModelRequest, ToolRun, TurnRun};
use super::config::{BudgetConfig, CacheConfig, MiddlewareName, RateLimitConfig};
use super::logging::LoggingMiddleware;
use super::rate_limit::{CallLimiter, RateLimitMiddleware};
use super::redaction::{RedactionMiddleware, SecretFilter};
use crate::chat::{ToolCall, ToolSpec, Usage};
use crate::guard::KnownSecrets;
use crate::llm::{ChatRequest, ChatResponse, Delta, DeltaSink, FallbackChain, ModelChoice, Models};
use crate::metrics::{Metrics, TurnMeter};
use crate::skills::SkillCatalog;
use crate::store::Store;
use crate::tools::{ReplayPolicy, Restriction, ToolAccess, ToolContext, ToolExecutor, ToolOutcome, ToolResult};
use crate::turn::error::TurnError;
use crate::turn::token_budget::{TokenBudget, estimate_usage};
use crate::turn::turn_loop::{Model, Tools, TurnScope};

/// The middleware around turns, model calls and tool calls.
#[derive(Default)]
pub struct MiddlewareStack {
    pub turn: MiddlewareChain<TurnRun>,
    pub tool: MiddlewareChain<ToolRun>,
    model: MiddlewareChain<ModelCall>,
    /// True if the durations of model calls are measured, for `/metrics`.
    is_timed: bool,
    responses: Option<ResponseCache>,
    /// The secrets that a streamed answer must not contain.
    pub secrets: Option<KnownSecrets>,
    state: MiddlewareState,
}

/// State that survives a reload: recent calls and cached responses.
#[derive(Clone)]
pub struct MiddlewareState {
    limiter: Arc<CallLimiter>,
    cached: Arc<CachedResponses>,
}

/// The inputs from which the middleware is built.
pub struct MiddlewareParts {
    /// `agent.middleware`.
    pub middleware: Vec<MiddlewareName>,
    pub budget: BudgetConfig,
    pub rate_limit: RateLimitConfig,
    pub cache: CacheConfig,
    pub store: Store,
    pub timezone: TimeZone,
    pub metrics: Arc<Metrics>,
    /// All secrets of the configuration.
    pub secrets: KnownSecrets,
    pub state: MiddlewareState,
}

impl Default for MiddlewareState {
    fn default() -> Self {
        Self { limiter: Arc::default(), cached: Arc::new(CachedResponses::new(1)) }
    }
}

impl MiddlewareStack {
    /// Builds the middleware of `agent.middleware`. The first one is outermost; but `timing` and `cache` lie inside all others,
    /// whatever the order of the names.
    pub fn build(parts: &MiddlewareParts) -> Self {
        let mut state = parts.state.clone();
        if state.cached.capacity != parts.cache.capacity {
            state.cached = Arc::new(CachedResponses::new(parts.cache.capacity));
        }
        let mut built = Self { state, ..Self::default() };
        for name in &parts.middleware {
            built.add(*name, parts);
        }
        built
    }

    /// Returns the state for the stack of the next reload.
    pub fn state(&self) -> MiddlewareState {
        self.state.clone()
    }

    /// Runs one model call within its middleware. Neither the wait of a rate limit nor a response from the cache counts as time of
    /// the model.
    ///
    /// # Errors
    /// The error of `call`, or of a middleware.
    pub async fn call_model<F>(
        &self,
        scope: &TurnScope<'_>,
        request: ModelRequest,
        call: impl Fn(ModelRequest) -> F,
    ) -> Result<ChatResponse, TurnError>
    where
        F: Future<Output = Result<ChatResponse, TurnError>>,
    {
        let measured = |request: ModelRequest| async move {
            let timer = self.is_timed.then(|| scope.meter.ask_model(&request.provider));
            let response = match &self.responses {
                Some(cache) => cache.get_or(request, call).await,
                None => call(request).await,
            };
            match (timer, &response) {
                (None, _) => {}
                (Some(timer), Ok(response)) if response.cached => timer.forget(),
                (Some(timer), response) => timer.ended(response.is_ok()),
            }
            response
        };
        self.model.run(scope, request, measured).await
    }

    fn add(&mut self, name: MiddlewareName, parts: &MiddlewareParts) {
        match name {
            MiddlewareName::Logging => {
                self.turn.push(name, Arc::new(LoggingMiddleware));
                self.model.push(name, Arc::new(LoggingMiddleware));
                self.tool.push(name, Arc::new(LoggingMiddleware));
            }
            MiddlewareName::Timing => self.is_timed = true,
            MiddlewareName::Redaction if parts.secrets.is_empty() => {}
            MiddlewareName::Redaction => {
                let redaction = Arc::new(RedactionMiddleware(parts.secrets.clone()));
                self.turn.push(name, redaction.clone());
                self.model.push(name, redaction);
                self.secrets = Some(parts.secrets.clone());
            }
            MiddlewareName::Budget => {
                let budget = BudgetMiddleware::new(parts.budget.clone(), parts.store.clone(), parts.timezone.clone());
                self.model.push(name, Arc::new(budget));
            }
            MiddlewareName::RateLimit => {
                let limiter = self.state.limiter.clone();
                self.model.push(name, Arc::new(RateLimitMiddleware { config: parts.rate_limit.clone(), limiter }));
            }
            // The tool executor caches tool results itself.
            MiddlewareName::Cache if parts.cache.responses => {
                let (cached, metrics) = (self.state.cached.clone(), parts.metrics.clone());
                self.responses = Some(ResponseCache { cached, config: parts.cache.clone(), metrics });
            }
            MiddlewareName::Cache => {}
        }
    }
}

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
        self.chain.takes_images().await
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
        price_and_count(&mut response, &answered, self.models, self.scope.meter);
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

    fn canonicalize(&self, call: &mut ToolCall) {
        self.executor.registry().canonicalize(call);
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

/// Sets the model that answered and the cost at current prices in a response, and counts both in the metrics.
fn price_and_count(response: &mut ChatResponse, answered: &ModelChoice, models: &Models, meter: &TurnMeter<'_>) {
    let (provider, model) = (answered.provider.name(), answered.model.as_str());
    response.answered_by = format!("{provider}/{model}");
    response.cost = models.price(provider, model).map(|price| price.cost(response.usage));
    if let Some(cost) = &response.cost {
        meter.model_cost(provider, model, &cost.currency, cost.micros);
    }
    let Usage { input_tokens, output_tokens, cached_tokens, .. } = response.usage;
    meter.model_used(provider, model, input_tokens, output_tokens, cached_tokens);
}
