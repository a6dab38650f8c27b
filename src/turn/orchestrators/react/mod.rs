//! ReAct: tools as text, for a model without native tool calls.

mod call;
mod format;
mod input;
mod marker;
mod model;
mod reader;

pub use model::ReactModel;
