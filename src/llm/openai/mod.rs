//! OpenAI's chat completions, and what others made of them.

mod assemble;
mod dialect;
#[cfg(test)]
mod testing;
mod wire;

pub use dialect::OpenaiDialect;
#[cfg(test)]
pub use testing::sent;
