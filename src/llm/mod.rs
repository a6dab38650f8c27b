//! Language models: one trait, each service behind it.

mod breaker;
mod chain;
mod chat;
mod circuit;
mod config;
mod error;
mod models;
mod offline;
mod openai;
mod prices;
mod provider;
mod remote;
mod retry;
mod services;

pub use breaker::CircuitState;
pub use chain::Chain;
pub use chat::{ChatMessage, ChatRequest, ChatResponse, Reasoning, ToolCall, ToolSpec, Usage};
pub use config::{ProviderConfig, ProviderKind};
pub use error::{Blame, LlmError, LlmErrorKind};
pub use models::{ModelChoice, ModelError, Models, OFFLINE, ProviderFault};
pub use offline::OfflineProvider;
pub use prices::Price;
pub use provider::{Delta, DeltaSink, NoDeltas, Provider};
pub use remote::{EventTooLong, HttpClients, Probe, RemoteProvider, SseReader, install_crypto};
pub use retry::{chance, growing};
pub use services::{SERVICES, Service};
