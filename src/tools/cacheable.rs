//! Calls whose result may be given again.

use std::time::Duration;

use serde_json::json;

use super::{Executor, Replay, ToolOutcome, parse_arguments};
use crate::cache::{CacheKey, Cacheability};
use crate::chat::ToolCall;

/// A call of a tool that declares itself cacheable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cacheable {
    /// The tool and the normal form of its arguments.
    pub key: CacheKey,
    pub ttl: Duration,
}

impl Cacheable {
    /// Whether an outcome of this call may be given again: a failure never, nor what does something inside daoyou.
    pub fn keep(outcome: &ToolOutcome) -> Cacheability {
        if outcome.result.success && outcome.effects.is_empty() { Cacheability::Store } else { Cacheability::Skip }
    }
}

impl Executor {
    /// How `call` is known again, if its tool's results may be kept. A tool that must not run twice is not asked.
    pub fn cacheable(&self, call: &ToolCall) -> Option<Cacheable> {
        let tool = self.registry().get(&call.name).filter(|tool| tool.replay() == Replay::Idempotent)?;
        let ttl = tool.cache_ttl().filter(|ttl| !ttl.is_zero())?;
        let arguments = parse_arguments(tool.spec(), &call.arguments).ok()?;
        Some(Cacheable { key: CacheKey::of("tool", &json!([tool.spec().name, arguments])), ttl })
    }
}
