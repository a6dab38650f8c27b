//! The vectors of questions, and the model that makes them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::texts;
use crate::llm::{Embedder, EmbeddingDeadline};
use crate::store::vectors::{self, TextHash};

/// Questions whose vectors are kept at hand, and for how long: a turn and its tools ask the same again.
const QUESTIONS: usize = 32;
const KEPT: Duration = Duration::from_secs(600);

/// The vectors of recent questions.
#[derive(Default)]
pub struct QueryEmbeddings {
    asked: Mutex<VecDeque<CachedQuery>>,
    indexed: Notify,
}

/// The model that makes vectors.
pub struct InstalledEmbedder {
    pub(super) embedder: Embedder,
    /// What is kept was made by it, and not by one before it, and how near it finds what is not is known.
    pub(super) is_ready: AtomicBool,
}

impl InstalledEmbedder {
    pub(in crate::memory) fn new(embedder: Embedder) -> Self {
        Self { embedder, is_ready: AtomicBool::new(false) }
    }
}

struct CachedQuery {
    /// Who made the vector: after a reload two embedders are in use until the last turn with the old one ends.
    by: Weak<InstalledEmbedder>,
    hash: TextHash,
    vector: Arc<[f32]>,
    at: Instant,
}

impl QueryEmbeddings {
    /// Returns the vector of a text, of length 1; `None` if the model is not ready, or does not answer in time.
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
        let within = EmbeddingDeadline::Within(timeout);
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

    /// What was said can be found now, and may be made vectors of.
    pub fn notify_indexed(&self) {
        self.indexed.notify_one();
    }

    /// Returns when [`Self::notify_indexed`] was called.
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
        // Nothing panics while it holds the lock halfway through a change.
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
