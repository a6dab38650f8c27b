//! Access to language models: one trait, which each model service implements.

mod anthropic;
mod breaker;
mod cache;
mod catalog;
mod chain;
mod circuit;
mod config;
mod embedder;
mod entry;
mod error;
mod history_repair;
mod images;
mod local_server;
mod measured;
mod model_names;
mod models;
mod offline;
mod openai;
mod prices;
mod provider;
mod remote;
mod retry;
mod serialized_text;
mod services;
mod tokens;

#[cfg(any(test, fuzzing))]
pub mod fuzz;

pub use breaker::CircuitState;
pub use cache::request_key;
pub use catalog::{ModelFacts, ModelFeatures};
pub use chain::FallbackChain;
pub use config::{ProviderConfig, ProviderKind, ReasoningMode, ToolMode};
pub use embedder::{Embedder, OnTokens};
pub use entry::{KeySource, is_chat_model};
pub use error::{FailureScope, LlmError, LlmErrorKind};
pub use history_repair::{MessageFlaw, check as check_messages, repair as repair_messages};
pub use images::{Image, Images};
pub use local_server::installed_models;
pub use measured::MeasuredDialect;
pub use model_names::{ModelError, is_same_model, nearest};
pub use models::{ModelChoice, Models};
pub use offline::OFFLINE;
#[cfg(test)]
pub(crate) use openai::sent as openai_request;
pub use prices::{Cost, Price, costs_in_words};
pub use provider::{ChatRequest, ChatResponse, Delta, DeltaSink, NoDeltas, Provider};
pub(crate) use remote::display_address;
pub use remote::{EmbeddingDeadline, HttpClients, ProviderProbe, RemoteProvider};
pub use remote::{client_builder, install_crypto, is_loopback, numbered_name, read_capped, secret_headers};
pub use retry::{backoff, random_fraction};
pub use serialized_text::SerializedText;
pub use services::{KnownService, OLLAMA, SERVICES};
pub use tokens::{TokenFactor, estimate_tokens};
