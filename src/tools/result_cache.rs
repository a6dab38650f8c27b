//! The cached results of tools that declare themselves cacheable, before they are shortened for the model.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::tool::{Tool, ToolContext, ToolOutcome};
use crate::cache::{CacheKey, CacheLookup, Cacheability, ResultCache};
use crate::metrics::Metrics;

/// The maximum size of a cached result, in bytes.
const LARGEST: usize = 256 << 10;
/// The size of one cache slot, in bytes. A larger result occupies several slots.
const PLACE_BYTES: usize = 16 << 10;

/// The cached results of one executor. A reload starts with an empty cache, since other settings may lead to other results.
pub struct ToolResultCache {
    results: ResultCache<(ToolOutcome, Instant)>,
    metrics: Arc<Metrics>,
}

/// A call whose result may be cached.
pub(super) struct CacheableCall {
    key: CacheKey,
    ttl: Duration,
}

impl CacheableCall {
    /// Returns the call if `tool` declares it cacheable. A cached result is reused only for the same conversation and sender.
    pub(super) async fn of(tool: &dyn Tool, arguments: &Value, context: &ToolContext) -> Option<Self> {
        let ttl = tool.definition().cache_ttl.filter(|ttl| !ttl.is_zero())?;
        let stamp = tool.cache_stamp(arguments, context).await?;
        let ToolContext { session, channel, sender, trust, agent, .. } = context;
        let within = agent.within.join(" ");
        let scope = [session.as_str(), channel, sender, trust.as_str(), &agent.name, &within];
        Some(Self { key: CacheKey::of("tool", &json!([tool.spec().name, arguments, scope, stamp])), ttl })
    }
}

/// Returns true for a success that is not too large and has no effects inside daoyou.
fn may_repeat(ToolOutcome { result, effects }: &ToolOutcome) -> bool {
    result.success && !result.is_partial && effects.is_empty() && result.content.len() <= LARGEST
}

impl ToolResultCache {
    /// Creates a cache with `capacity` slots. A large result occupies several.
    pub fn new(capacity: u32, metrics: Arc<Metrics>) -> Self {
        let places = |(outcome, _): &(ToolOutcome, Instant)| {
            u32::try_from(outcome.result.content.len() / PLACE_BYTES + 1).unwrap_or(u32::MAX)
        };
        Self { results: ResultCache::weighed(capacity.into(), places), metrics }
    }

    /// Returns the result of `call`, from the cache or from `run`. A cached result states that it is cached, and its age.
    pub(super) async fn get_or<F>(&self, call: CacheableCall, run: impl Fn() -> F) -> ToolOutcome
    where
        F: Future<Output = ToolOutcome>,
    {
        let make = async {
            let outcome = run().await;
            let keep = if may_repeat(&outcome) { Cacheability::Store } else { Cacheability::Skip };
            Ok::<_, ToolOutcome>(((outcome, Instant::now()), keep))
        };
        match self.results.get_or(call.key, call.ttl, &self.metrics.caches.tools, make).await {
            CacheLookup::Cached((mut outcome, at)) => {
                outcome.result.duration_ms = 0;
                let facts = [("cached", json!(true)), ("age_seconds", json!(at.elapsed().as_secs()))];
                outcome.result.metadata.extend(facts.map(|(key, value)| (key.to_owned(), value)));
                outcome
            }
            CacheLookup::Computed((outcome, _)) | CacheLookup::Failed(outcome) => outcome,
            CacheLookup::Uncached => run().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use async_trait::async_trait;
    use daoyou_channels::{SessionKey, Trust};
    use serde_json::{Value, json};

    use super::*;
    use crate::chat::{ToolCall, ToolSpec};
    use crate::tools::testing::{ToolFixture, context};
    use crate::tools::{ReplayPolicy, ToolDefinition, ToolEffect, ToolResult, ToolsConfig, plain_schema};

    /// A tool whose result is the number of the run. Its argument `a` is the stamp, or a word that requests another kind of
    /// result.
    struct CountingTool {
        definition: ToolDefinition,
        runs: AtomicU32,
    }

    #[async_trait]
    impl Tool for CountingTool {
        fn definition(&self) -> &ToolDefinition {
            &self.definition
        }

        async fn cache_stamp(&self, arguments: &Value, context: &ToolContext) -> Option<String> {
            (arguments["a"] != "unstamped").then(|| context.metadata.to_string())
        }

        fn validate(&self, arguments: &Value, _: &ToolContext) -> Result<(), String> {
            if arguments["a"] == "wrong" { Err("wrong".to_owned()) } else { Ok(()) }
        }

        async fn call(&self, arguments: Value, _: &ToolContext) -> ToolOutcome {
            let mut result =
                ToolResult::ok(format!("run {} {}", self.runs.fetch_add(1, Ordering::SeqCst) + 1, "x".repeat(9_000)));
            result.add_sources(["web:a".to_owned()].into());
            let (channel, chat_id, content) = Default::default();
            let effect = ToolEffect::Message { channel, chat_id, content, attachments: Vec::new(), subject: None };
            result.success = arguments["a"] != "fails";
            result.is_partial = arguments["a"] == "partial";
            result.content.push_str(&"y".repeat(if arguments["a"] == "large" { LARGEST } else { 0 }));
            ToolOutcome { result, effects: if arguments["a"] == "sends" { vec![effect] } else { Vec::new() } }
        }
    }

    fn fixture(metrics: &Arc<Metrics>) -> ToolFixture {
        let mut fixture = ToolFixture::new(&ToolsConfig::default());
        fixture.executor.cache = Some(Arc::new(ToolResultCache::new(20, metrics.clone())));
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}});
        for (name, replay) in [("counts", ReplayPolicy::Idempotent), ("does", ReplayPolicy::Once)] {
            let spec =
                ToolSpec { name: name.to_owned(), description: String::new(), parameters: plain_schema(&schema) };
            let cache_ttl = Some(Duration::from_secs(60));
            let definition = ToolDefinition { cache_ttl, ..ToolDefinition::of_spec(spec, replay) };
            fixture.executor.register(Arc::new(CountingTool { definition, runs: AtomicU32::new(0) })).unwrap();
        }
        fixture
    }

    fn call(name: &str, arguments: &str) -> ToolCall {
        ToolCall { id: "call-1".to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
    }

    #[tokio::test]
    async fn a_result_is_given_again_only_for_the_same_call() {
        let metrics = Arc::new(Metrics::default());
        let fixture = fixture(&metrics);
        for (name, arguments, expected, is_cached) in [
            ("counts", r#"{"a":"x","n":1}"#, "run 1", false),
            ("counts", r#"{ "n": 1, "a": "x" }"#, "run 1", true),
            ("counts", r#"{"a":"x","n":2}"#, "run 2", false),
            ("counts", r#"{"a":"fails"}"#, "run 3", false),
            ("counts", r#"{"a":"fails"}"#, "run 4", false),
            ("counts", r#"{"a":"sends"}"#, "run 5", false),
            ("counts", r#"{"a":"sends"}"#, "run 6", false),
            ("counts", r#"{"a":"partial"}"#, "run 7", false),
            ("counts", r#"{"a":"partial"}"#, "run 8", false),
            ("counts", r#"{"a":"large"}"#, "run 9", false),
            ("counts", r#"{"a":"large"}"#, "run 10", false),
            ("counts", r#"{"a":"unstamped"}"#, "run 11", false),
            ("counts", r#"{"a":"unstamped"}"#, "run 12", false),
            ("counts", r#"{"a":"wrong"}"#, "Error: wrong", false),
            ("does", r#"{"a":"x"}"#, "run 1", false),
            ("does", r#"{"a":"x"}"#, "run 2", false),
        ] {
            let result = fixture.executor.run(&call(name, arguments), &context()).await.result;
            let text = result.render();
            assert!(text.starts_with(expected), "{name} {arguments}: {}", &text[..20]);
            assert_eq!(result.metadata.get("cached").is_some(), is_cached, "{name} {arguments}");
            assert_eq!(result.metadata.get("age_seconds").is_some(), is_cached, "{name} {arguments}");
        }
        let counts = &metrics.caches.tools;
        assert_eq!((counts.hits.get(), counts.misses.get(), counts.entries.get()), (1, 10, 2));
    }

    /// The cache holds the whole result. Each call shortens the result, and has its own spill file.
    #[tokio::test]
    async fn a_cached_result_stays_in_its_conversation_and_keeps_its_taint() {
        let fixture = fixture(&Arc::default());
        let other = |change: fn(&mut ToolContext)| {
            let mut context = ToolContext { call_id: "call-2".to_owned(), ..context() };
            change(&mut context);
            context
        };
        let first = fixture.executor.run(&call("counts", "{}"), &context()).await.result;
        let again = fixture.executor.run(&call("counts", "{}"), &other(|_| {})).await.result;
        assert_eq!((&again.taint, again.taint.is_empty()), (&first.taint, false));
        assert!(again.metadata["cached"] == true && again.content.starts_with("run 1 x"), "{}", again.content);
        assert!(again.content.len() <= 8_000 && again.spill.is_some() && again.spill != first.spill, "{again:?}");
        let plan = json!({"calls": [{"tool": "counts"}, {"tool": "counts"}]}).to_string();
        let planned = fixture.executor.run(&call("parallel", &plan), &context()).await.result;
        assert_eq!(planned.content.matches("run 1 x").count(), 2, "{}", planned.content);
        for (run, change) in [
            (2, (|context| context.session = SessionKey::of_chat("cli", "other")) as fn(&mut ToolContext)),
            (3, |context| context.sender = "ann".to_owned()),
            (4, |context| context.trust = Trust::Known),
            (5, |context| context.metadata = "another stamp".into()),
        ] {
            let result = fixture.executor.run(&call("counts", "{}"), &other(change)).await.result;
            assert!(result.content.starts_with(&format!("run {run} x")), "{run}: {}", result.content);
        }
        // A turn that may not make the call must not get the cached result of another turn.
        let filtered = fixture.executor.filtered(|name| name != "counts");
        let refused = filtered.run(&call("counts", "{}"), &context()).await.result;
        assert!(!refused.success && !refused.render().contains("run 1"), "{}", refused.render());
    }
}
