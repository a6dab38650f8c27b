//! OpenAI's chat completions, and what others made of them.

mod assemble;
mod dialect;
mod manners;
mod wire;

pub use dialect::OpenaiDialect;
pub use manners::{Echo, LimitField, ReasoningField};
