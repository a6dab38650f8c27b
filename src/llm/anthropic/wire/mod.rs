//! The wire format of messages (Anthropic's API reference, "Messages" and "Streaming Messages", version 2023-06-01).

mod answer;
mod conversation;
mod limits;
mod request;
#[cfg(test)]
mod rules;

pub(super) use answer::{CacheWrites, Count, WireBlock, WireDelta, WireEvent, is_ping, is_unknown};
pub(super) use limits::LEAST_THINKING;
pub(super) use request::{AnthropicRequest, RequestOptions, definitions};
