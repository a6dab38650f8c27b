//! The tools that read the web.

mod config;
mod fetch;
mod page;
mod search;
mod services;

pub use config::WebConfig;
pub use fetch::WebFetch;
pub use search::WebSearch;
