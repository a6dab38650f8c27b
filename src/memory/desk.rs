//! Where things are remembered and recalled while a gateway runs.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use daoyou_channels::cli::Language;
use jiff::tz::TimeZone;
use tokio::sync::watch;

use super::passages::Passages;
use super::vectors::Vectors;
use super::{Ask, Files, Hit, Identities, MemoryConfig, NewEntry, recall};
use crate::guard::Secrets;
use crate::live::Live;
use crate::store::{Store, StoreError};

/// What holds for everybody who remembers or recalls; a reload replaces it.
#[derive(Clone, Debug)]
pub struct Terms {
    pub config: MemoryConfig,
    pub identities: Identities,
    pub language: Language,
    pub zone: TimeZone,
    /// Where `memory/MEMORY.md` lies.
    pub workspace: PathBuf,
}

/// What tools, slash commands, the API and the agent share.
pub struct Desk {
    pub store: Store,
    pub terms: Live<Terms>,
    /// What is struck out of whatever is remembered.
    pub secrets: Live<Secrets>,
    pub(super) vectors: Vectors,
    pub(super) passages: Arc<Passages>,
    pub(super) files: Files,
    said: watch::Sender<()>,
    changed: watch::Sender<()>,
}

impl Desk {
    pub fn new(store: Store, terms: Terms) -> Self {
        Self {
            store,
            terms: Live::new(terms),
            secrets: Live::default(),
            vectors: Vectors::default(),
            passages: Arc::default(),
            files: Files::default(),
            said: watch::Sender::default(),
            changed: watch::Sender::default(),
        }
    }

    /// The best hits, the best first.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn find(&self, ask: Ask) -> Result<Vec<Hit>, StoreError> {
        let vector = self.vector_of(&ask.text).await;
        self.store.read(move |connection| recall(connection, &ask, vector.as_deref())).await
    }

    /// Strikes the secrets of the configuration out of what is to be remembered.
    pub fn strike(&self, new: &mut NewEntry) {
        let secrets = self.secrets.get();
        let found = [&mut new.name, &mut new.text].map(|text| secrets.strike(text)).contains(&true);
        let mut detail = new.detail.to_string();
        let in_detail = secrets.strike(&mut detail);
        if in_detail {
            new.detail = serde_json::from_str(&detail).unwrap_or_default();
        }
        if found || in_detail {
            tracing::warn!(owner = %new.owner, "a secret of the configuration was struck out of what is remembered");
        }
    }

    /// Something was said, and is committed: who indexes and who consolidates look for it. It happens with every turn, so they
    /// let some of it gather first.
    pub fn said(&self) {
        self.said.send_replace(());
    }

    /// Something was remembered or forgotten, or is to be looked for anew, and is committed: who keeps the files and the vectors
    /// looks for it, too.
    pub fn changed(&self) {
        self.passages.changed();
        self.changed.send_replace(());
        self.said();
    }

    /// Sees each [`Self::said`] and [`Self::changed`] from now on; several that come together are one.
    pub fn sayings(&self) -> watch::Receiver<()> {
        self.said.subscribe()
    }

    /// Sees each [`Self::changed`] from now on; several that come together are one.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}
