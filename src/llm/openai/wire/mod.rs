//! The wire format of chat completions (OpenAI's API reference, "Create chat completion", and the variants of other services).

mod answer;
mod request;

pub(super) use answer::{OpenaiWireMessage, WireAnswer, WireCall, WireFunction};
pub(super) use request::{OpenaiRequest, call_block, definitions};
