//! Embeddings of memories and messages, which the model of `memory.embeddings` creates in the background. Through them
//! searches find texts that say the same in other words.

mod indexer;
mod nearest;
mod query;
mod texts;

pub use crate::store::vectors::remove;
pub use indexer::EmbeddingIndexer;
pub(super) use nearest::clearly_similar;
pub use nearest::nearest;
pub(super) use query::InstalledEmbedder;

#[cfg(test)]
#[expect(clippy::allow_attributes, reason = "the stories use all of it")]
#[allow(dead_code, reason = "a tool box of the stories")]
#[path = "../../../tests/support/embeddings.rs"]
pub(in crate::memory) mod stub;
#[cfg(test)]
mod tests;
