//! The embedding model, and the embeddings of recent queries.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;

use super::texts;
use crate::llm::{Embedder, EmbeddingDeadline};
use crate::store::vectors::{self, TextHash};

/// The maximum number of cached query embeddings, and their lifetime: a turn and its tools search for the same text
/// several times.
const MAX_CACHED: u64 = 32;
const LIFETIME: Duration = Duration::from_secs(600);

/// An embedding model in use.
pub struct InstalledEmbedder {
    pub(super) embedder: Embedder,
    /// True if all stored embeddings are by this model, and its baselines are known.
    pub(super) is_ready: AtomicBool,
    queries: Cache<TextHash, Arc<[f32]>>,
}

impl InstalledEmbedder {
    pub(in crate::memory) fn new(embedder: Embedder) -> Self {
        let queries = Cache::builder().max_capacity(MAX_CACHED).time_to_live(LIFETIME);
        let queries = queries.eviction_policy(EvictionPolicy::lru()).build();
        Self { embedder, is_ready: AtomicBool::new(false), queries }
    }

    /// Returns the embedding of a query, of length 1; `None` if the model is not ready, or does not answer in time.
    pub(in crate::memory) async fn embed_query(&self, text: &str, timeout: Duration) -> Option<Arc<[f32]>> {
        if !self.is_ready.load(Ordering::Acquire) {
            return None;
        }
        let text = texts::first_chars(text.trim(), texts::MAX_CHARS);
        if text.is_empty() {
            return None;
        }
        let hash = vectors::hash(text);
        if let Some(vector) = self.queries.get(&hash) {
            return Some(vector);
        }
        match self.embedder.embed(&[text], EmbeddingDeadline::Within(timeout)).await {
            Ok(vectors) => {
                let vector: Arc<[f32]> = vectors.into_iter().next()?.into();
                self.queries.insert(hash, vector.clone());
                Some(vector)
            }
            Err(error) => {
                tracing::debug!(code = error.code(), %error, "a query has no embedding and is searched by its words alone");
                None
            }
        }
    }
}
