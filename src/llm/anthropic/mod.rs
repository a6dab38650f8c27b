//! Anthropic's Messages API and compatible services.

mod assemble;
mod dialect;
mod parameters;
mod wire;

pub use dialect::AnthropicDialect;
