//! Builds the configured middleware, by name and in order.

use std::sync::Arc;

use jiff::tz::TimeZone;

use super::budget::BudgetMiddleware;
use super::cache::{CachedResponses, ResponseCache};
use super::chain::{MiddlewareChain, ModelCall, ModelRequest, ToolRun, TurnRun};
use super::config::{BudgetConfig, CacheConfig, MiddlewareName, RateLimitConfig};
use super::logging::LoggingMiddleware;
use super::rate_limit::{CallLimiter, RateLimitMiddleware};
use super::redaction::RedactionMiddleware;
use crate::guard::KnownSecrets;
use crate::llm::ChatResponse;
use crate::metrics::Metrics;
use crate::store::Store;
use crate::turn::error::TurnError;
use crate::turn::traits::TurnScope;

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

/// The settings of the middleware.
#[derive(Clone, Debug)]
pub struct MiddlewareSettings {
    /// `agent.middleware`.
    pub middleware: Vec<MiddlewareName>,
    pub budget: BudgetConfig,
    pub rate_limit: RateLimitConfig,
    pub cache: CacheConfig,
}

/// The inputs from which the middleware is built.
pub struct MiddlewareParts {
    pub settings: MiddlewareSettings,
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
        if state.cached.capacity != parts.settings.cache.capacity {
            state.cached = Arc::new(CachedResponses::new(parts.settings.cache.capacity));
        }
        let mut built = Self { state, ..Self::default() };
        for name in &parts.settings.middleware {
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
        let config = &parts.settings;
        match name {
            MiddlewareName::Logging => {
                self.turn.push(Arc::new(LoggingMiddleware));
                self.model.push(Arc::new(LoggingMiddleware));
                self.tool.push(Arc::new(LoggingMiddleware));
            }
            MiddlewareName::Timing => self.is_timed = true,
            MiddlewareName::Redaction if parts.secrets.is_empty() => {}
            MiddlewareName::Redaction => {
                let redaction = Arc::new(RedactionMiddleware(parts.secrets.clone()));
                self.turn.push(redaction.clone());
                self.model.push(redaction);
                self.secrets = Some(parts.secrets.clone());
            }
            MiddlewareName::Budget => {
                let budget = BudgetMiddleware::new(config.budget.clone(), parts.store.clone(), parts.timezone.clone());
                self.model.push(Arc::new(budget));
            }
            MiddlewareName::RateLimit => {
                let limiter = self.state.limiter.clone();
                self.model.push(Arc::new(RateLimitMiddleware { config: config.rate_limit.clone(), limiter }));
            }
            // The tool executor caches tool results itself.
            MiddlewareName::Cache if config.cache.responses => {
                let (cached, metrics) = (self.state.cached.clone(), parts.metrics.clone());
                self.responses = Some(ResponseCache { cached, config: config.cache.clone(), metrics });
            }
            MiddlewareName::Cache => {}
        }
    }
}
