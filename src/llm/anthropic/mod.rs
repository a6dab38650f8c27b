//! Anthropic's Messages, and the services that speak the same.

mod assemble;
mod dialect;
mod learned;
mod wire;

pub use dialect::AnthropicDialect;
