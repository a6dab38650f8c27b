//! `agent.cache`: reuses model responses for a while. The tool executor caches tool results.

use std::sync::Arc;

use super::chain::ModelRequest;
use super::config::CacheConfig;
use crate::cache::{CacheLookup, Cacheability, ResultCache};
use crate::chat::Usage;
use crate::llm::{ChatResponse, request_key};
use crate::metrics::Metrics;
use crate::turn::context::user_message::without_time;
use crate::turn::error::TurnError;

/// The largest response that is cached, in bytes.
const LARGEST: usize = 256 * 1024;

/// The cached responses. They survive a reload unless their capacity changes.
pub struct CachedResponses {
    pub capacity: u32,
    responses: ResultCache<ChatResponse>,
}

impl CachedResponses {
    pub fn new(capacity: u32) -> Self {
        Self { capacity, responses: ResultCache::new(capacity.into()) }
    }
}

/// Caches model responses if the configuration enables it.
pub struct ResponseCache {
    pub cached: Arc<CachedResponses>,
    pub config: CacheConfig,
    pub metrics: Arc<Metrics>,
}

impl ResponseCache {
    /// Returns the cached response to the request, or makes the call.
    pub async fn get_or<F>(
        &self,
        request: ModelRequest,
        call: impl Fn(ModelRequest) -> F,
    ) -> Result<ChatResponse, TurnError>
    where
        F: Future<Output = Result<ChatResponse, TurnError>>,
    {
        let fits = self.config.any_temperature || request.chat.temperature == Some(0.0);
        let key = if fits { request_key(&request.provider, &request.chat, without_time) } else { None };
        let Some(key) = key else { return call(request).await };
        let again = request.clone();
        let make = async {
            let response = call(request).await?;
            let keep = if response.text.len() <= LARGEST { Cacheability::Store } else { Cacheability::Skip };
            Ok((response, keep))
        };
        let counts = &self.metrics.caches.responses;
        match self.cached.responses.get_or(key, self.config.ttl.0, counts, make).await {
            CacheLookup::Cached(response) => {
                Ok(ChatResponse { usage: Usage::default(), latency_ms: 0, cached: true, ..response })
            }
            CacheLookup::Computed(response) => Ok(response),
            CacheLookup::Failed(error) => Err(error),
            CacheLookup::Uncached => call(again).await,
        }
    }
}
