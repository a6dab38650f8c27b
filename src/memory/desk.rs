//! Where things are remembered and recalled while a gateway runs.

use std::path::PathBuf;

use daoyou_channels::cli::Language;
use jiff::tz::TimeZone;
use tokio::sync::watch;

use super::vectors::Vectors;
use super::{Identities, MemoryConfig};
use crate::live::Live;
use crate::store::Store;

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
    pub(super) vectors: Vectors,
    changed: watch::Sender<()>,
}

impl Desk {
    pub fn new(store: Store, terms: Terms) -> Self {
        Self { store, terms: Live::new(terms), vectors: Vectors::default(), changed: watch::Sender::default() }
    }

    /// Something was said, remembered or forgotten, and is committed: who keeps the files, the index and the vectors looks
    /// for it.
    pub fn changed(&self) {
        self.changed.send_replace(());
    }

    /// Sees each [`Self::changed`] from now on; several that come together are one.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}
