//! What stands around the turn, each model call and each tool call: named, in the order of `agent.middleware`.
//!
//! `around` says what one may do, `chain` in which order and what an error means; `build` knows them by name.

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
mod timing;

mod sites;
mod spending;
mod striking;
mod windows;

pub use around::{Context, Handler, ModelCall, ModelRequest, TurnRequest, TurnRun};
pub use build::{Kept, Middleware, Parts};
pub use config::{BudgetConfig, CacheConfig, MiddlewareName, RateLimitConfig};
