//! How a model is led to an answer: by its own tool calls, by ReAct in text, or by one plain question. Each is a
//! [`Provider`](crate::llm::Provider) in front of the model's own, so that a turn is the same for all of them.

mod auto;
mod choice;
mod plain;
mod react;
mod told;

pub use choice::Orchestrators;
