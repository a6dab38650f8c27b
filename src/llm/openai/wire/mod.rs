//! Chat completions as they go over the wire (OpenAI's API reference, "Create chat completion", and what others made of
//! it).

mod answer;
mod request;

pub(super) use answer::{WireAnswer, WireCall, WireMessage};
pub(super) use request::{LimitField, WireRequest};
