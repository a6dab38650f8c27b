//! OpenAI's chat completions, and what others made of them.

mod assemble;
mod dialect;
mod wire;

pub use dialect::OpenaiDialect;
