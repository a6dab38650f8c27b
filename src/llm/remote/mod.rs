//! Model services that are reached over the network, whatever their protocol.

mod adapt;
mod address;
mod attempt_error;
mod body;
mod client;
mod dialect;
mod embed;
#[cfg(test)]
pub(super) mod fake_service;
mod image_support;
mod learned;
mod names;
mod provider;
mod serialized_tools;

pub(super) use address::base;
pub(crate) use address::display_address;
pub(super) use attempt_error::{AttemptError, shorten};
#[cfg(any(test, fuzzing))]
pub(super) use body::AnswerBody;
pub use body::read_capped;
pub use client::{ClientProfile, HttpClients, install_crypto, is_loopback};
pub use dialect::{Assemble, Dialect};
pub use embed::{EmbeddingBatch, EmbeddingDeadline};
pub use learned::LearnedByModel;
pub use names::{ToolNames, is_json_object, unique_call_id};
pub use provider::{ProviderProbe, RemoteProvider};
pub use serialized_tools::{SerializedTools, ToolSerializer};
