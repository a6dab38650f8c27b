//! Embeddings of queries, and the model that creates them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::texts;
use crate::llm::{Embedder, Patience};
use crate::store::vectors::{self, TextHash};

/// The number of cached query embeddings, and their lifetime: a turn and its tools search for the same text again.
const QUESTIONS: usize = 32;
const KEPT: Duration = Duration::from_secs(600);

/// A cache of the embeddings of recent queries.
#[derive(Default)]
pub struct QueryEmbeddings {
    asked: Mutex<VecDeque<CachedQuery>>,
    indexed: Notify,
}

/// An embedding model in use.
pub struct InstalledEmbedder {
    pub(super) embedder: Embedder,
    /// All stored embeddings are by this model, and its baselines are known.
    pub(super) is_ready: AtomicBool,
}

impl InstalledEmbedder {
    pub(in crate::memory) fn new(embedder: Embedder) -> Self {
        Self { embedder, is_ready: AtomicBool::new(false) }
    }
}

struct CachedQuery {
    /// The model of the embedding: after a reload, two are in use until the last turn with the old one ends.
    by: Weak<InstalledEmbedder>,
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
        let text = texts::cut(text.trim(), texts::LONGEST);
        if text.is_empty() {
            return None;
        }
        let hash = vectors::hash(text);
        if let Some(vector) = self.recent(installed, &hash) {
            return Some(vector);
        }
        let within = Patience::Within(timeout);
        match installed.embedder.embed(&[text], within).await {
            Ok(vectors) => {
                let vector: Arc<[f32]> = vectors.into_iter().next()?.into();
                self.keep(installed, hash, vector.clone());
                Some(vector)
            }
            Err(error) => {
                tracing::debug!(code = error.code(), %error, "no vector of a question; it is looked for by its words");
                None
            }
        }
    }

    /// Notifies the indexer of embeddings that new messages are in the word index.
    pub fn notify_indexed(&self) {
        self.indexed.notify_one();
    }

    /// Waits for [`Self::notify_indexed`].
    pub(super) async fn indexed(&self) {
        self.indexed.notified().await;
    }

    fn recent(&self, by: &Arc<InstalledEmbedder>, hash: &TextHash) -> Option<Arc<[f32]>> {
        let mut asked = self.asked();
        asked.retain(|asked| asked.at.elapsed() < KEPT);
        let is_same = |asked: &&CachedQuery| asked.hash == *hash && asked.by.as_ptr() == Arc::as_ptr(by);
        asked.iter().find(is_same).map(|asked| asked.vector.clone())
    }

    fn keep(&self, by: &Arc<InstalledEmbedder>, hash: TextHash, vector: Arc<[f32]>) {
        let mut asked = self.asked();
        if asked.len() == QUESTIONS {
            asked.pop_front();
        }
        asked.push_back(CachedQuery { by: Arc::downgrade(by), hash, vector, at: Instant::now() });
    }

    fn asked(&self) -> MutexGuard<'_, VecDeque<CachedQuery>> {
        // A poisoned lock still guards a complete list: no change panics halfway.
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
