//! The vector of what somebody asks, and who makes vectors now.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::texts;
use crate::live::Live;
use crate::llm::{Embedder, Patience};
use crate::store::vectors::{self, Hash};

/// Questions whose vectors are kept at hand, and for how long: a turn and its tools ask the same again.
const QUESTIONS: usize = 32;
const KEPT: Duration = Duration::from_secs(600);

/// Who makes vectors now, if anybody, and what was asked lately.
#[derive(Default)]
pub struct QueryEmbeddings {
    installed: Live<Option<Arc<InstalledEmbedder>>>,
    asked: Mutex<VecDeque<CachedQuery>>,
    indexed: Notify,
}

/// The model that makes vectors.
pub(super) struct InstalledEmbedder {
    pub embedder: Embedder,
    /// What is kept was made by it, and not by one before it, and how near it finds what is not is known.
    pub is_ready: AtomicBool,
}

struct CachedQuery {
    hash: Hash,
    vector: Arc<[f32]>,
    at: Instant,
}

impl QueryEmbeddings {
    /// Makes vectors with `embedder` from now on, or none.
    pub(in crate::memory) fn install(&self, embedder: Option<Embedder>) {
        let installed =
            embedder.map(|embedder| Arc::new(InstalledEmbedder { embedder, is_ready: AtomicBool::new(false) }));
        self.installed.set(installed);
        self.asked().clear();
    }

    /// Returns the vector of a text, of length 1; `None` if there is no model, or it does not answer in time.
    pub(in crate::memory) async fn embed(&self, text: &str, timeout: Duration) -> Option<Arc<[f32]>> {
        let installed = self.installed().filter(|installed| installed.is_ready.load(Ordering::Acquire))?;
        let text = texts::cut(text.trim(), texts::LONGEST);
        if text.is_empty() {
            return None;
        }
        let hash = vectors::hash(text);
        if let Some(vector) = self.recent(&hash) {
            return Some(vector);
        }
        let within = Patience::Within(timeout);
        match installed.embedder.embed(&[text], within).await {
            Ok(vectors) => {
                let vector: Arc<[f32]> = vectors.into_iter().next()?.into();
                self.keep(&installed, hash, vector.clone());
                Some(vector)
            }
            Err(error) => {
                tracing::debug!(code = error.code(), %error, "no vector of a question; it is looked for by its words");
                None
            }
        }
    }

    pub(super) fn installed(&self) -> Option<Arc<InstalledEmbedder>> {
        Option::clone(&self.installed.get())
    }

    /// What was said can be found now, and may be made vectors of.
    pub fn notify_indexed(&self) {
        self.indexed.notify_one();
    }

    /// Returns when [`Self::notify_indexed`] was called.
    pub(super) async fn indexed(&self) {
        self.indexed.notified().await;
    }

    fn recent(&self, hash: &Hash) -> Option<Arc<[f32]>> {
        let mut asked = self.asked();
        asked.retain(|asked| asked.at.elapsed() < KEPT);
        asked.iter().find(|asked| asked.hash == *hash).map(|asked| asked.vector.clone())
    }

    fn keep(&self, by: &Arc<InstalledEmbedder>, hash: Hash, vector: Arc<[f32]>) {
        let mut asked = self.asked();
        // Another model was set meanwhile: this vector is none of its.
        if !self.installed().is_some_and(|now| Arc::ptr_eq(&now, by)) {
            return;
        }
        if asked.len() == QUESTIONS {
            asked.pop_front();
        }
        asked.push_back(CachedQuery { hash, vector, at: Instant::now() });
    }

    fn asked(&self) -> MutexGuard<'_, VecDeque<CachedQuery>> {
        // Nothing panics while it holds the lock halfway through a change.
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
