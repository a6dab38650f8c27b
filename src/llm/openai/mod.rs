//! OpenAI's chat completions, and what others made of them.

mod assemble;
mod dialect;
mod manners;
#[cfg(test)]
mod testing;
mod wire;

pub use dialect::OpenaiDialect;
pub use manners::{Echo, LimitField, ReasoningField};
#[cfg(test)]
pub use testing::sent;
