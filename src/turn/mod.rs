//! The turn: a loop over a model, tools and a journal, and the parts that the loop uses.
//!
//! `turn_loop` is the loop, a function of its inputs behind the traits `Model`, `Tools` and `Journal`; `middleware` goes around
//! model and tools; `context` composes the model's input; `progress` is the state that is read from the journal.

pub mod context;
pub mod error;
pub mod event_emitter;
pub mod flight_recorder;
pub mod middleware;
pub mod orchestrators;
pub mod progress;
pub mod token_budget;
pub mod turn_loop;

mod tool_calls;

#[cfg(test)]
mod conversation_tests;
