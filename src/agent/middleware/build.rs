//! The middleware of the configuration, by name and in its order.

use std::sync::Arc;

use jiff::tz::TimeZone;

use super::around::{ModelCall, ToolRun, TurnRun};
use super::budget::Budget;
use super::cache::{Caches, ResponseCache, ToolCache};
use super::chain::Chain;
use super::config::MiddlewareName;
use super::logging::Logging;
use super::rate_limit::RateLimit;
use super::redaction::Redaction;
use super::timing::Timing;
use super::windows::Windows;
use crate::agent::AgentConfig;
use crate::guard::Secrets;
use crate::metrics::Metrics;
use crate::store::Store;
use crate::tools::Executor;

/// What stands around turns, model calls and tool calls.
#[derive(Default)]
pub struct Middleware {
    pub turn: Chain<TurnRun>,
    pub model: Chain<ModelCall>,
    pub tool: Chain<ToolRun>,
    /// What an answer must not show while it arrives.
    secrets: Option<Secrets>,
    kept: Kept,
}

/// What a reload goes on with: calls that were made and responses that were given stay known.
#[derive(Clone)]
pub struct Kept {
    windows: Arc<Windows>,
    caches: Arc<Caches>,
}

/// What middleware is made of.
pub struct Parts<'a> {
    pub config: &'a AgentConfig,
    pub store: Store,
    pub tools: Arc<Executor>,
    pub timezone: TimeZone,
    pub metrics: Arc<Metrics>,
    /// All that the configuration knows.
    pub secrets: Secrets,
    pub kept: Kept,
}

impl Default for Kept {
    fn default() -> Self {
        Self { windows: Arc::default(), caches: Arc::new(Caches::new(1)) }
    }
}

impl Middleware {
    /// Each of `agent.middleware`, the first one outermost.
    pub fn build(parts: &Parts<'_>) -> Self {
        let caches =
            Some(&parts.kept.caches).filter(|caches| caches.capacity() == parts.config.cache.capacity).cloned();
        let caches = caches.unwrap_or_else(|| Arc::new(Caches::new(parts.config.cache.capacity)));
        let kept = Kept { windows: parts.kept.windows.clone(), caches };
        let mut built = Self { kept, ..Self::default() };
        for name in &parts.config.middleware {
            built.add(*name, parts);
        }
        built
    }

    /// For the next one, after a reload.
    pub fn kept(&self) -> Kept {
        self.kept.clone()
    }

    pub(super) fn secrets(&self) -> Option<&Secrets> {
        self.secrets.as_ref()
    }

    fn add(&mut self, name: MiddlewareName, parts: &Parts<'_>) {
        let config = parts.config;
        match name {
            MiddlewareName::Logging => {
                self.turn.push(Arc::new(Logging));
                self.model.push(Arc::new(Logging));
                self.tool.push(Arc::new(Logging));
            }
            MiddlewareName::Timing => self.model.push(Arc::new(Timing)),
            MiddlewareName::Redaction if parts.secrets.is_empty() => {}
            MiddlewareName::Redaction => {
                let redaction = Arc::new(Redaction(parts.secrets.clone()));
                self.turn.push(redaction.clone());
                self.model.push(redaction.clone());
                self.tool.push(redaction);
                self.secrets = Some(parts.secrets.clone());
            }
            MiddlewareName::Budget => {
                let budget = Budget::new(config.budget.clone(), parts.store.clone(), parts.timezone.clone());
                self.model.push(Arc::new(budget));
            }
            MiddlewareName::RateLimit => {
                let windows = self.kept.windows.clone();
                self.model.push(Arc::new(RateLimit { config: config.rate_limit.clone(), windows }));
            }
            MiddlewareName::Cache => {
                let (caches, metrics) = (self.kept.caches.clone(), parts.metrics.clone());
                if config.cache.responses {
                    let (caches, metrics) = (caches.clone(), metrics.clone());
                    self.model.push(Arc::new(ResponseCache { caches, config: config.cache.clone(), metrics }));
                }
                self.tool.push(Arc::new(ToolCache { caches, tools: parts.tools.clone(), metrics }));
            }
        }
    }
}
