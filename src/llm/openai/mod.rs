//! OpenAI's chat completions and compatible services.

mod assemble;
mod dialect;
mod quirks;
mod wire;

pub use dialect::OpenaiDialect;
#[cfg(test)]
pub use dialect::sent;
pub use quirks::{LimitField, ReasoningEcho, ReasoningField};
