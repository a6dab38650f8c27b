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
mod models;
mod offline;
mod openai;
mod prices;
mod provider;
mod services;
mod sse;
mod wire;

pub use chat::{ChatMessage, ChatRequest, ChatResponse, Reasoning, ToolCall, ToolSpec, Usage};
pub use client::{HttpClients, install_crypto};
pub use config::{ProviderConfig, ProviderKind};
pub use error::{LlmError, LlmErrorKind};
pub use models::{ModelChoice, ModelError, Models, OFFLINE, ProviderFault};
pub use offline::OfflineProvider;
pub use openai::{OpenaiProvider, Probe};
pub use prices::Price;
pub use provider::{Delta, DeltaSink, NoDeltas, Provider};
pub use services::{SERVICES, Service};
pub use sse::{EventTooLong, SseReader};
