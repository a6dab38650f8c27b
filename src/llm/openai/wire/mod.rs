//! Chat completions as they go over the wire (OpenAI's API reference, "Create chat completion", and what others made of
//! it).

mod answer;
mod request;
mod sent;

pub(super) use answer::{OpenaiWireMessage, WireAnswer, WireCall, WireFunction};
pub(super) use request::{OpenaiRequest, definitions};
pub(super) use sent::call_block;
