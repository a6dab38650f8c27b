//! ReAct: tools for a model that has none, in text.

mod call;
mod format;
mod input;
mod marker;
mod model;
mod reader;

pub use model::ReactModel;
