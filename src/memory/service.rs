//! The service through which tools, slash commands, the API and the agent use memory.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use daoyou_channels::cli::Language;
use jiff::tz::TimeZone;
use tokio::sync::{Notify, watch};

use super::files::MemoryFileState;
use super::passage_index::{ATTACHED_KINDS, PassageIndexes, similar_by_vector};
use super::query::{HitLocation, RecallHit, RecallQuery, RelevanceQuery};
use super::recall::recall;
use super::vectors::InstalledEmbedder;
use super::{Identities, MemoryConfig, MemoryKind, MemoryOwner, NewMemoryEntry};
use crate::guard::KnownSecrets;
use crate::llm::Embedder;
use crate::store::{Connection, Store, StoreError};
use crate::text::without_fillers;

/// The settings of memory.
#[derive(Clone, Debug)]
pub struct MemorySettings {
    pub config: MemoryConfig,
    pub identities: Identities,
    pub language: Language,
    pub zone: TimeZone,
    /// The folder that holds `memory/MEMORY.md`.
    pub workspace: PathBuf,
}

/// The memory, as the rest of the gateway uses it. The settings of a service never change: a reload creates another service
/// over the same memory, and a turn keeps the service with which it began.
#[derive(Clone)]
pub struct MemoryService {
    pub store: Store,
    pub settings: Arc<MemorySettings>,
    /// Secrets that are removed from new memories.
    pub secrets: Arc<KnownSecrets>,
    pub(super) embedder: Option<Arc<InstalledEmbedder>>,
    /// Notified when new messages are in the word index; the embedding indexer waits for it.
    pub(super) indexed: Arc<Notify>,
    pub(super) passages: Arc<PassageIndexes>,
    pub(super) files: Arc<MemoryFileState>,
    messages: watch::Sender<()>,
    changed: watch::Sender<()>,
}

impl MemoryService {
    pub fn new(store: Store, settings: MemorySettings) -> Self {
        Self {
            store,
            settings: Arc::new(settings),
            secrets: Arc::default(),
            embedder: None,
            indexed: Arc::default(),
            passages: Arc::default(),
            files: Arc::default(),
            messages: watch::Sender::default(),
            changed: watch::Sender::default(),
        }
    }

    /// Returns a service over the same memory with other settings.
    #[must_use]
    pub fn with_settings(&self, settings: MemorySettings) -> Self {
        Self { settings: Arc::new(settings), ..self.clone() }
    }

    /// Removes `secrets` from new memories.
    #[must_use]
    pub fn with_secrets(self, secrets: KnownSecrets) -> Self {
        Self { secrets: Arc::new(secrets), ..self }
    }

    /// Creates embeddings with `embedder`, or none.
    #[must_use]
    pub fn with_embedder(self, embedder: Option<Embedder>) -> Self {
        Self { embedder: embedder.map(|embedder| Arc::new(InstalledEmbedder::new(embedder))), ..self }
    }

    /// Returns the hits of a query, the best first.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn find(&self, query: RecallQuery) -> Result<Vec<RecallHit>, StoreError> {
        let vector = self.vector_of(&query.text).await;
        self.store.read(move |connection| recall(connection, &query, vector.as_deref())).await
    }

    /// Returns the memories that fit a message well enough to be attached to it, the best first. Of a summary, only the
    /// passage that fits is returned. A greeting has no hits and gets no embedding.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn relevant(&self, mut query: RelevanceQuery) -> Result<Vec<RecallHit>, StoreError> {
        self.make_passages_ready(&query.owners).await?;
        if self.passages.are_empty(&query.owners) {
            return Ok(Vec::new());
        }
        let Some(text) = without_fillers(&query.text) else { return Ok(Vec::new()) };
        let written = std::mem::replace(&mut query.text, text);
        let mut found = Vec::new();
        if let Some(vector) = self.vector_of(&written).await {
            let of_reader = query.clone();
            found = self
                .store
                .read(move |connection| similar_by_vector(connection, &of_reader, (&vector, &written)))
                .await?;
        }
        self.store.read_here(|connection| self.passages.search(connection, &query, &ATTACHED_KINDS, found))
    }

    /// Returns the facts of an owner that share words with any of `texts`, at most `each` for each text.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn facts_near(
        &self,
        owner: MemoryOwner,
        texts: Vec<String>,
        each: usize,
    ) -> Result<Vec<i64>, StoreError> {
        let owners = vec![owner];
        self.make_passages_ready(&owners).await?;
        let passages = Arc::clone(&self.passages);
        let search = move |connection: &Connection| {
            let mut near = Vec::new();
            for text in texts.iter().filter_map(|text| without_fillers(text)) {
                let query = RelevanceQuery { text, owners: owners.clone(), limit: each };
                for hit in passages.search(connection, &query, &[MemoryKind::Fact], Vec::new())? {
                    match hit.found {
                        HitLocation::Memory(id) if !near.contains(&id) => near.push(id),
                        _ => {}
                    }
                }
            }
            Ok(near)
        };
        self.store.read(search).await
    }

    /// Brings the passage indexes of these owners up to date. Long work runs on a blocking thread, one caller at a time.
    async fn make_passages_ready(&self, owners: &[MemoryOwner]) -> Result<(), StoreError> {
        let passages = &self.passages;
        if self.store.read_here(|connection| passages.are_ready(connection, owners))? {
            return Ok(());
        }
        let _building = passages.building.lock().await;
        let (passages, owners) = (Arc::clone(passages), owners.to_vec());
        self.store.read(move |connection| passages.make_ready(connection, &owners)).await
    }

    /// Returns the embedding of a query, of length 1. `None` if there is no model, the stored embeddings are not ready, or
    /// the model does not answer within `memory.embeddings.timeout`: then the query is searched by its words alone.
    pub async fn vector_of(&self, text: &str) -> Option<Arc<[f32]>> {
        self.embedder.as_ref()?.embed_query(text, self.settings.config.embeddings.timeout.0).await
    }

    /// Removes the secrets of the configuration from a new entry.
    pub fn redact_secrets(&self, new: &mut NewMemoryEntry) {
        let found = [&mut new.name, &mut new.text].map(|text| self.secrets.redact(text)).contains(&true);
        let mut detail = new.detail.to_string();
        let in_detail = self.secrets.redact(&mut detail);
        if in_detail {
            new.detail = serde_json::from_str(&detail).unwrap_or_default();
        }
        if found || in_detail {
            tracing::warn!(owner = %new.owner, "a secret of the configuration was removed from a new memory");
        }
    }

    /// Notifies the indexer and the consolidation that messages were committed. Both wait a moment for further messages, since
    /// every turn calls this.
    pub fn notify_messages(&self) {
        self.messages.send_replace(());
    }

    /// Notifies the writer of the files and the indexers that memories were committed: remembered, forgotten or moved.
    pub fn notify_changes(&self) {
        self.passages.note_changes();
        self.changed.send_replace(());
        self.notify_messages();
    }

    /// Returns a receiver of each later [`Self::notify_messages`] and [`Self::notify_changes`]. Calls in quick succession merge.
    pub fn subscribe_to_messages(&self) -> watch::Receiver<()> {
        self.messages.subscribe()
    }

    /// Returns a receiver of each later [`Self::notify_changes`]. Calls in quick succession merge.
    pub fn subscribe_to_changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

impl fmt::Debug for MemoryService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryService").finish_non_exhaustive()
    }
}
