//! The embedded default: a rule-based responder in English and Chinese that lets a fresh machine run the whole gateway
//! without any account. It goes through the same loop, tools and journal as a model.

mod arithmetic;
mod context;
mod memory;
mod outcome;
mod pattern;
mod phrases;
mod plan;
mod reminder;
mod respond;
mod rules;
mod slots;
mod understand;

pub use respond::{Answer, respond};
