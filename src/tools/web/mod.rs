//! The tools that read the web.

mod body_text;
mod config;
mod fetch;
mod known_address;
mod search;
mod services;

use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};

use crate::tools::ToolResult;

pub use config::WebConfig;
pub use fetch::WebFetch;
pub use known_address::is_known_address;
pub use search::WebSearch;

/// Returns the failure for a response without success. A temporary failure (RFC 9110, section 15.6; RFC 6585, section 4) is
/// retried after the number of seconds that the server names.
fn failed_answer(status: StatusCode, headers: &HeaderMap, error: String) -> ToolResult {
    if !matches!(status.as_u16(), 429 | 500 | 502..=504) {
        return ToolResult::failed(error);
    }
    let seconds =
        headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()).and_then(|text| text.trim().parse().ok());
    match seconds {
        Some(seconds) => ToolResult {
            retry_after: Some(Duration::from_secs(seconds)),
            ..ToolResult::failed_for_now(format!("{error}; it asks to wait {seconds} s"))
        },
        None => ToolResult::failed_for_now(error),
    }
}
