//! Orchestrators: native tool calls, ReAct as text, or one plain question. Each is a
//! [`Provider`](crate::llm::Provider) in front of the model's own, so that the turn is the same for all.

mod plain;
mod react;
mod selection;
mod text_form;

pub use selection::{ModelChains, Orchestrator};
