//! Responses of models and results of tools that are given again for a while.

use std::sync::Arc;

use async_trait::async_trait;

use super::around::{Around, Context, Inner, ModelCall, ModelRequest, ToolRun};
use super::config::CacheConfig;
use crate::agent::context::without_time;
use crate::agent::error::TurnError;
use crate::cache::{Cache, Found, Keep};
use crate::llm::{ChatResponse, ToolCall, Usage, request_key};
use crate::metrics::Metrics;
use crate::tools::{Cacheable, Executor, ToolOutcome};

/// A larger response or result is not kept, in bytes.
const LARGEST: usize = 256 * 1024;

/// What is kept; a reload that does not change how much goes on with it.
pub struct Caches {
    capacity: u32,
    responses: Cache<ChatResponse>,
    tools: Cache<ToolOutcome>,
}

impl Caches {
    pub fn new(capacity: u32) -> Self {
        let entries = u64::from(capacity);
        Self { capacity, responses: Cache::new(entries), tools: Cache::new(entries) }
    }

    pub fn capacity(&self) -> u32 {
        self.capacity
    }
}

/// Model responses, where the configuration wants it.
pub struct ResponseCache {
    pub caches: Arc<Caches>,
    pub config: CacheConfig,
    pub metrics: Arc<Metrics>,
}

#[async_trait]
impl Around<ModelCall> for ResponseCache {
    fn name(&self) -> &'static str {
        "cache"
    }

    async fn run(
        &self,
        _: &Context<'_>,
        request: ModelRequest,
        inner: &mut Inner<'_, ModelCall>,
    ) -> Result<ChatResponse, TurnError> {
        let fits = self.config.any_temperature || request.chat.temperature == Some(0.0);
        let key = if fits { request_key(&request.provider, &request.chat, without_time) } else { None };
        let Some(key) = key else { return inner.run(request).await };
        let again = request.clone();
        let make = async {
            let response = inner.run(request).await?;
            let keep = if response.text.len() <= LARGEST { Keep::Yes } else { Keep::No };
            Ok((response, keep))
        };
        let counts = &self.metrics.caches.responses;
        match self.caches.responses.get_or(key, self.config.ttl.0, counts, make).await {
            Found::Kept(response) => Ok(ChatResponse { usage: Usage::default(), latency_ms: 0, cached: true, ..response }),
            Found::Made(response) => Ok(response),
            Found::Failed(error) => Err(error),
            Found::Nothing => inner.run(again).await,
        }
    }
}

/// Results of the tools that declare themselves cacheable.
pub struct ToolCache {
    pub caches: Arc<Caches>,
    pub tools: Arc<Executor>,
    pub metrics: Arc<Metrics>,
}

#[async_trait]
impl Around<ToolRun> for ToolCache {
    fn name(&self) -> &'static str {
        "cache"
    }

    async fn run(
        &self,
        _: &Context<'_>,
        call: ToolCall,
        inner: &mut Inner<'_, ToolRun>,
    ) -> Result<ToolOutcome, TurnError> {
        let Some(Cacheable { key, ttl }) = self.tools.cacheable(&call) else { return inner.run(call).await };
        let again = call.clone();
        let make = async {
            let outcome = inner.run(call).await?;
            let small = outcome.result.content.len() <= LARGEST;
            let keep = if small { Cacheable::keep(&outcome) } else { Keep::No };
            Ok((outcome, keep))
        };
        match self.caches.tools.get_or(key, ttl, &self.metrics.caches.tools, make).await {
            Found::Kept(mut outcome) => {
                outcome.result.duration_ms = 0;
                outcome.result.metadata.insert("cached".to_owned(), true.into());
                Ok(outcome)
            }
            Found::Made(outcome) => Ok(outcome),
            Found::Failed(error) => Err(error),
            Found::Nothing => inner.run(again).await,
        }
    }
}
