//! Language models: one trait, each service behind it.

mod chat;
mod config;
mod error;
mod offline;
mod provider;

pub use chat::{ChatMessage, ChatRequest, ChatResponse, Reasoning, ToolCall, ToolSpec, Usage};
pub use config::{ProviderConfig, ProviderKind};
pub use error::{LlmError, LlmErrorKind};
pub use offline::OfflineProvider;
pub use provider::{Delta, DeltaSink, NoDeltas, Provider};
