//! Language models: one trait, each service behind it.

mod assemble;
mod body;
mod chat;
mod client;
mod config;
mod error;
#[cfg(test)]
mod fake_service;
mod fault;
mod openai;
mod provider;
mod sse;
mod wire;

pub use chat::{ChatMessage, ChatRequest, ChatResponse, Reasoning, ToolCall, ToolSpec, Usage};
pub use client::{HttpClients, install_crypto};
pub use config::{ProviderConfig, ProviderKind};
pub use error::{LlmError, LlmErrorKind};
pub use openai::OpenaiProvider;
pub use provider::{Delta, DeltaSink, NoDeltas, Provider};
