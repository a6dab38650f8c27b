//! `agent.cache`: repeats model responses and tool results for a while.

use std::sync::Arc;

use async_trait::async_trait;

use super::around::{Middleware, ModelCall, ModelRequest, NextLayer, ToolRun};
use super::config::CacheConfig;
use crate::cache::{CacheLookup, Cacheability, ResultCache};
use crate::chat::{ToolCall, Usage};
use crate::llm::{ChatResponse, request_key};
use crate::metrics::Metrics;
use crate::tools::{CacheableCall, ToolExecutor, ToolOutcome};
use crate::turn::context::user_message::without_time;
use crate::turn::error::TurnError;
use crate::turn::scope::TurnScope;

/// The largest response or result that is cached, in bytes.
const LARGEST: usize = 256 * 1024;

/// The caches; a reload keeps them unless their capacity changes.
pub struct Caches {
    capacity: u32,
    responses: ResultCache<ChatResponse>,
    tools: ResultCache<ToolOutcome>,
}

impl Caches {
    pub fn new(capacity: u32) -> Self {
        let entries = u64::from(capacity);
        Self { capacity, responses: ResultCache::new(entries), tools: ResultCache::new(entries) }
    }

    pub fn capacity(&self) -> u32 {
        self.capacity
    }
}

/// Caches model responses, if configured.
pub struct ResponseCache {
    pub caches: Arc<Caches>,
    pub config: CacheConfig,
    pub metrics: Arc<Metrics>,
}

#[async_trait]
impl Middleware<ModelCall> for ResponseCache {
    fn name(&self) -> &'static str {
        "cache"
    }

    async fn run(
        &self,
        _: &TurnScope<'_>,
        request: ModelRequest,
        inner: &mut NextLayer<'_, ModelCall>,
    ) -> Result<ChatResponse, TurnError> {
        let fits = self.config.any_temperature || request.chat.temperature == Some(0.0);
        let key = if fits { request_key(&request.provider, &request.chat, without_time) } else { None };
        let Some(key) = key else { return inner.run(request).await };
        let again = request.clone();
        let make = async {
            let response = inner.run(request).await?;
            let keep = if response.text.len() <= LARGEST { Cacheability::Store } else { Cacheability::Skip };
            Ok((response, keep))
        };
        let counts = &self.metrics.caches.responses;
        match self.caches.responses.get_or(key, self.config.ttl.0, counts, make).await {
            CacheLookup::Cached(response) => {
                Ok(ChatResponse { usage: Usage::default(), latency_ms: 0, cached: true, ..response })
            }
            CacheLookup::Computed(response) => Ok(response),
            CacheLookup::Failed(error) => Err(error),
            CacheLookup::Uncached => inner.run(again).await,
        }
    }
}

/// Caches the results of tools that declare themselves cacheable.
pub struct ToolCache {
    pub caches: Arc<Caches>,
    pub tools: Arc<ToolExecutor>,
    pub metrics: Arc<Metrics>,
}

#[async_trait]
impl Middleware<ToolRun> for ToolCache {
    fn name(&self) -> &'static str {
        "cache"
    }

    async fn run(
        &self,
        _: &TurnScope<'_>,
        call: ToolCall,
        inner: &mut NextLayer<'_, ToolRun>,
    ) -> Result<ToolOutcome, TurnError> {
        let Some(CacheableCall { key, ttl }) = self.tools.cacheable(&call) else { return inner.run(call).await };
        let again = call.clone();
        let make = async {
            let outcome = inner.run(call).await?;
            let small = outcome.result.content.len() <= LARGEST;
            let keep = if small { CacheableCall::cacheability(&outcome) } else { Cacheability::Skip };
            Ok((outcome, keep))
        };
        match self.caches.tools.get_or(key, ttl, &self.metrics.caches.tools, make).await {
            CacheLookup::Cached(mut outcome) => {
                // A secret may have been configured since.
                self.tools.redact(&mut outcome);
                outcome.result.duration_ms = 0;
                outcome.result.metadata.insert("cached".to_owned(), true.into());
                Ok(outcome)
            }
            CacheLookup::Computed(outcome) => Ok(outcome),
            CacheLookup::Failed(error) => Err(error),
            CacheLookup::Uncached => inner.run(again).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use daoyou_channels::settings::Secret;
    use daoyou_channels::{SessionKey, Trust};
    use serde_json::{Value, json};
    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;
    use uuid::Uuid;

    use super::*;
    use crate::chat::ToolSpec;
    use crate::guard::KnownSecrets;
    use crate::phrases::{Locale, Phrases};
    use crate::tools::{
        ExecutorLimits, ReplayPolicy, SpillStore, Tool, ToolContext, ToolEffect, ToolRegistry, ToolResult, plain_schema,
    };
    use crate::turn::middleware::around::OperationHandler;
    use crate::turn::middleware::chain::MiddlewareChain;

    /// Says which run this is; fails, or does something, where the arguments want it.
    struct Looks {
        spec: ToolSpec,
        replay: ReplayPolicy,
        runs: AtomicU32,
    }

    #[async_trait]
    impl Tool for Looks {
        fn spec(&self) -> &ToolSpec {
            &self.spec
        }

        fn replay(&self) -> ReplayPolicy {
            self.replay
        }

        fn cache_ttl(&self) -> Option<Duration> {
            Some(Duration::from_secs(60))
        }

        async fn call(&self, arguments: Value, _: &ToolContext) -> ToolOutcome {
            let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
            if arguments["a"] == "fail" {
                return ToolResult::failed(format!("run {run}")).into();
            }
            let (channel, chat_id, content) = Default::default();
            let effect = ToolEffect::Message { channel, chat_id, content, attachments: Vec::new(), subject: None };
            let effects = if arguments["a"] == "say" { vec![effect] } else { Vec::new() };
            ToolOutcome { result: ToolResult::ok(format!("run {run} sk-canary-1")), effects }
        }
    }

    struct Runs(Arc<ToolExecutor>, ToolContext);

    #[async_trait]
    impl OperationHandler<ToolRun> for Runs {
        async fn handle(&mut self, call: ToolCall) -> Result<ToolOutcome, TurnError> {
            Ok(self.0.run(&call, &self.1).await)
        }
    }

    #[tokio::test]
    async fn a_cached_result_is_used_only_for_the_same_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}});
        let mut registry = ToolRegistry::new(&[]);
        for (name, replay) in [("looks", ReplayPolicy::Idempotent), ("does", ReplayPolicy::Once)] {
            let spec =
                ToolSpec { name: name.to_owned(), description: String::new(), parameters: plain_schema(&schema) };
            registry.register(Arc::new(Looks { spec, replay, runs: AtomicU32::new(0) })).unwrap();
        }
        let spill = Arc::new(SpillStore::open(folder.path(), 1_000).unwrap());
        let limits = ExecutorLimits { timeout: Duration::from_secs(60), at_once: NonZeroUsize::MIN };
        let tools = Arc::new(ToolExecutor::new(registry, spill, limits));
        let metrics = Arc::new(Metrics::default());
        let mut chain = MiddlewareChain::default();
        let caches = Arc::new(Caches::new(10));
        chain.push(Arc::new(ToolCache { caches: caches.clone(), tools: tools.clone(), metrics: metrics.clone() }));

        let session = SessionKey::from("cli:direct");
        let (meter, phrases) = (metrics.turns.meter(), Phrases::of(Locale::En));
        let at = TurnScope { session: &session, turn: Uuid::nil(), deadline: Instant::now(), meter: &meter, phrases };
        let context = ToolContext {
            session: session.clone(),
            turn: Uuid::nil(),
            call_id: "1".to_owned(),
            channel: String::new(),
            chat_id: String::new(),
            sender: String::new(),
            files: Arc::default(),
            trust: Trust::Owner,
            metadata: "{}".into(),
            origin: Arc::default(),
            taint: Arc::default(),
            is_approved: false,
            question: Arc::default(),
            cancel: CancellationToken::new(),
        };
        let mut handler = Runs(tools, context);
        for (name, arguments, expected, again) in [
            ("looks", r#"{"a":"x","n":1}"#, "run 1", false),
            ("looks", r#"{ "n": 1, "a": "x" }"#, "run 1", true),
            ("looks", r#"{"a":"x","n":2}"#, "run 2", false),
            ("looks", r#"{"a":"fail"}"#, "Error: run 3", false),
            ("looks", r#"{"a":"fail"}"#, "Error: run 4", false),
            ("looks", r#"{"a":"say"}"#, "run 5", false),
            ("looks", r#"{"a":"say"}"#, "run 6", false),
            ("does", r#"{"a":"x"}"#, "run 1", false),
            ("does", r#"{"a":"x"}"#, "run 2", false),
        ] {
            let call = ToolCall { id: "1".to_owned(), name: name.to_owned(), arguments: arguments.to_owned() };
            let result = chain.run(&at, call, &mut handler).await.unwrap().result;
            let told = result.render();
            assert!(told.starts_with(expected), "{name} {arguments}: {told}");
            assert_eq!(result.metadata.get("cached").is_some(), again, "{name} {arguments}");
        }
        let counts = &metrics.caches.tools;
        assert_eq!((counts.hits.get(), counts.misses.get(), counts.entries.get()), (1, 6, 2));

        let secrets = KnownSecrets::new([Secret::new("sk-canary-1")]);
        let tools = Arc::new(handler.0.filtered(|_| true).with_secrets(secrets));
        let mut chain = MiddlewareChain::default();
        chain.push(Arc::new(ToolCache { caches, tools, metrics: metrics.clone() }));
        let (name, arguments) = ("looks".to_owned(), r#"{"a":"x","n":1}"#.to_owned());
        let call = ToolCall { id: "1".to_owned(), name, arguments };
        let result = chain.run(&at, call, &mut handler).await.unwrap().result;
        assert_eq!((result.render().as_str(), result.metadata.get("cached")), ("run 1 (hidden)", Some(&json!(true))));
    }
}
