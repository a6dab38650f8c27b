//! The middleware around the turn, each model call and each tool call, in the order of `agent.middleware`.
//!
//! `chain` defines what a middleware may do, the order, and the meaning of an error; `stack` knows all middleware by name.

mod chain;
mod config;
mod stack;

mod budget;
mod cache;
mod logging;
mod rate_limit;
mod redaction;

pub use chain::ModelRequest;
pub use config::{BudgetConfig, CacheConfig, MiddlewareName, RateLimitConfig};
pub use stack::{LayeredModel, LayeredTools, MiddlewareParts, MiddlewareStack, MiddlewareState};
