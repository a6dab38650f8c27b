//! Embeddings of queries, and the model that creates them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::texts;
use crate::llm::{Embedder, EmbeddingDeadline};
use crate::store::vectors::{self, TextHash};

/// The most cached query embeddings, and their lifetime: a turn and its tools search for the same text several times.
const MAX_CACHED: usize = 32;
const LIFETIME: Duration = Duration::from_secs(600);

/// A cache of the embeddings of recent queries.
#[derive(Default)]
pub struct QueryEmbeddings {
    cached: Mutex<VecDeque<CachedQuery>>,
    indexed: Notify,
}

/// An embedding model in use.
pub struct InstalledEmbedder {
    pub(super) embedder: Embedder,
    /// True if all stored embeddings are by this model, and its baselines are known.
    pub(super) is_ready: AtomicBool,
}

impl InstalledEmbedder {
    pub(in crate::memory) fn new(embedder: Embedder) -> Self {
        Self { embedder, is_ready: AtomicBool::new(false) }
    }
}

struct CachedQuery {
    /// The model of the embedding: after a reload, two are in use until the last turn with the old one ends.
    embedder: Weak<InstalledEmbedder>,
    hash: TextHash,
    vector: Arc<[f32]>,
    at: Instant,
}

impl QueryEmbeddings {
    /// Returns the embedding of a text, of length 1; `None` if the model is not ready, or does not answer in time.
    pub(in crate::memory) async fn embed(
        &self,
        installed: &Arc<InstalledEmbedder>,
        text: &str,
        timeout: Duration,
    ) -> Option<Arc<[f32]>> {
        if !installed.is_ready.load(Ordering::Acquire) {
            return None;
        }
        let text = texts::first_chars(text.trim(), texts::MAX_CHARS);
        if text.is_empty() {
            return None;
        }
        let hash = vectors::hash(text);
        if let Some(vector) = self.find(installed, &hash) {
            return Some(vector);
        }
        let within = EmbeddingDeadline::Within(timeout);
        match installed.embedder.embed(&[text], within).await {
            Ok(vectors) => {
                let vector: Arc<[f32]> = vectors.into_iter().next()?.into();
                self.cache(installed, hash, vector.clone());
                Some(vector)
            }
            Err(error) => {
                tracing::debug!(code = error.code(), %error, "a query has no embedding and is searched by its words alone");
                None
            }
        }
    }

    /// Notifies the embedding indexer that new messages are in the word index.
    pub fn notify_indexed(&self) {
        self.indexed.notify_one();
    }

    /// Waits for [`Self::notify_indexed`].
    pub(super) async fn indexed(&self) {
        self.indexed.notified().await;
    }

    fn find(&self, embedder: &Arc<InstalledEmbedder>, hash: &TextHash) -> Option<Arc<[f32]>> {
        let mut cached = self.cached.lock();
        cached.retain(|cached| cached.at.elapsed() < LIFETIME);
        let is_same = |cached: &&CachedQuery| cached.hash == *hash && cached.embedder.as_ptr() == Arc::as_ptr(embedder);
        cached.iter().find(is_same).map(|cached| cached.vector.clone())
    }

    fn cache(&self, embedder: &Arc<InstalledEmbedder>, hash: TextHash, vector: Arc<[f32]>) {
        let mut cached = self.cached.lock();
        if cached.len() == MAX_CACHED {
            cached.pop_front();
        }
        cached.push_back(CachedQuery { embedder: Arc::downgrade(embedder), hash, vector, at: Instant::now() });
    }
}
