//! Language models: one trait, each service behind it.

mod chat;
mod config;
mod error;
mod models;
mod offline;
mod openai;
mod prices;
mod provider;
mod remote;
mod services;

pub use chat::{ChatMessage, ChatRequest, ChatResponse, Reasoning, ToolCall, ToolSpec, Usage};
pub use config::{ProviderConfig, ProviderKind};
pub use error::{LlmError, LlmErrorKind};
pub use models::{ModelChoice, ModelError, Models, OFFLINE, ProviderFault};
pub use offline::OfflineProvider;
pub use prices::{Cost, Price, costs_in_words};
pub use provider::{Delta, DeltaSink, NoDeltas, Provider};
pub use remote::{EventTooLong, HttpClients, Probe, RemoteProvider, SseReader, install_crypto};
pub use services::{SERVICES, Service};
