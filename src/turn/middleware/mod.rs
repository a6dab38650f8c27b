//! What runs around the turn, each model call and each tool call: named, in the order of `agent.middleware`.
//!
//! `around` defines what a middleware may do, `chain` the order and what an error means; `build` knows all by name.

mod around;
mod chain;
#[cfg(test)]
mod chain_tests;
mod config;

mod build;

mod budget;
mod cache;
mod logging;
mod rate_limit;
mod redaction;

mod secret_filter;

pub use around::{ModelCall, ModelRequest, OperationHandler, ToolRun, TurnRequest, TurnRun};
pub use build::{MiddlewareParts, MiddlewareSettings, MiddlewareStack, MiddlewareState};
pub use config::{BudgetConfig, CacheConfig, MiddlewareName, RateLimitConfig};
pub use secret_filter::SecretFilter;
