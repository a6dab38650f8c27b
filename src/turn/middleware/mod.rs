//! The middleware around the turn, each model call and each tool call, in the order of `agent.middleware`.
//!
//! `chain` defines what a middleware may do, the order, and the meaning of an error; `build` knows all middleware by name.

mod chain;
mod config;

mod build;

mod budget;
mod cache;
mod logging;
mod rate_limit;
mod redaction;

mod secret_filter;

pub use build::{MiddlewareParts, MiddlewareSettings, MiddlewareStack, MiddlewareState};
pub use chain::ModelRequest;
pub use config::{BudgetConfig, CacheConfig, MiddlewareName, RateLimitConfig};
pub use secret_filter::SecretFilter;
