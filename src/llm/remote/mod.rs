//! Model services that are reached over the network, whatever their protocol.

mod adapt;
mod address;
mod attempt_error;
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
pub use client::{ClientProfile, HttpClients, client_builder, install_crypto, is_loopback, secret_headers};
#[cfg(any(test, fuzzing))]
pub(super) use dialect::AnswerBody;
pub use dialect::{Assemble, Dialect, read_capped, serialize_body};
pub use embed::{EmbeddingBatch, EmbeddingDeadline};
pub use learned::LearnedByModel;
pub use names::{ToolNames, is_json_object, numbered_name, unique_call_id};
pub use provider::{ProviderProbe, RemoteProvider};
pub use serialized_tools::{SerializedTools, ToolSerializer};
