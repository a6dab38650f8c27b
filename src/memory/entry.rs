//! Memories, their kinds and their origins.

use serde_json::{Value, json};

use super::MemoryOwner;
use crate::guard::Taint;
use crate::store::memories::{self, MemoryRow};
use crate::store::{Connection, StoreError, approvals};

/// The kind of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum MemoryKind {
    /// One sentence.
    Fact,
    /// A key and its value.
    Preference,
    /// A problem and its solution.
    Case,
    /// A request that was handled with tools, and its outcome.
    Task,
    /// The summary of an epoch of a session.
    Summary,
}

impl MemoryKind {
    pub const ALL: [Self; 5] = [Self::Fact, Self::Preference, Self::Case, Self::Task, Self::Summary];

    /// Returns the stored name.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The way in which a memory was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum MemoryOrigin {
    /// Stated in a turn of its owner, and recorded by the `remember` tool.
    #[strum(serialize = "told")]
    Stated,
    /// Extracted by rules or by consolidation.
    Noticed,
    /// Written into MEMORY.md by hand.
    ByHand,
    /// Added by `daoyou memory add`.
    Command,
    Imported,
}

impl MemoryOrigin {
    /// Returns the stored name.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The message that a memory comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemorySource {
    pub session: String,
    /// `None` until the turn has ended.
    pub seq: Option<i64>,
    pub turn: Option<String>,
}

/// A memory.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryEntry {
    pub id: i64,
    pub owner: MemoryOwner,
    pub kind: MemoryKind,
    /// The key of a preference, the title of a case or the session of a summary; empty for other kinds.
    pub name: String,
    pub text: String,
    pub detail: Value,
    pub origin: MemoryOrigin,
    pub source: Option<MemorySource>,
    /// 0 to 1.
    pub confidence: f64,
    /// UTC milliseconds.
    pub created_at: i64,
    pub used_at: Option<i64>,
    pub uses: i64,
    /// The memory that replaced this one.
    pub replaced_by: Option<i64>,
}

/// Formats a memory as one text, which begins with the key of a preference or the title of a case.
pub(super) fn entry_text(kind: Option<MemoryKind>, name: &str, text: &str) -> String {
    match kind {
        Some(MemoryKind::Preference) => format!("{name}: {text}"),
        Some(MemoryKind::Case) => format!("{name}\n{text}"),
        Some(MemoryKind::Fact | MemoryKind::Task | MemoryKind::Summary) | None => text.to_owned(),
    }
}

/// A memory to store.
#[derive(Clone, Debug, PartialEq)]
pub struct NewMemoryEntry {
    pub owner: MemoryOwner,
    pub kind: MemoryKind,
    pub name: String,
    pub text: String,
    pub detail: Value,
    pub origin: MemoryOrigin,
    pub source: Option<MemorySource>,
    /// 0 to 1.
    pub confidence: f64,
}

impl NewMemoryEntry {
    /// Creates an entry of full confidence, without a name, detail and source.
    pub fn new(owner: MemoryOwner, kind: MemoryKind, text: impl Into<String>, origin: MemoryOrigin) -> Self {
        let (name, text) = (String::new(), text.into());
        Self { owner, kind, name, text, detail: json!({}), origin, source: None, confidence: 1.0 }
    }
}

impl MemoryEntry {
    /// Returns the memory with this id, current or replaced.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn find(connection: &Connection, id: i64) -> Result<Option<Self>, StoreError> {
        Ok(memories::find(connection, id)?.and_then(Self::from_row))
    }

    /// Returns the sources of the entry that are not the owner's. A summary, a case or a task may repeat what its conversation had
    /// read of others.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn taint(&self, connection: &Connection) -> Result<Taint, StoreError> {
        let may_repeat = matches!(self.kind, MemoryKind::Summary | MemoryKind::Case | MemoryKind::Task);
        match self.source.as_ref().filter(|_| may_repeat) {
            Some(source) => approvals::taint_of_message(connection, &source.session, source.seq),
            None => Ok(Taint::new()),
        }
    }

    /// Converts a row; `None` if its kind or origin is unknown, or its detail is not JSON.
    pub fn from_row(row: MemoryRow) -> Option<Self> {
        let (seq, turn) = (row.seq, row.turn);
        Some(Self {
            id: row.id,
            owner: MemoryOwner::from_stored(&row.owner),
            kind: row.kind.parse().ok()?,
            name: row.name,
            text: row.text,
            detail: serde_json::from_str(&row.detail).ok()?,
            origin: row.origin.parse().ok()?,
            source: row.session.map(|session| MemorySource { session, seq, turn }),
            confidence: row.confidence,
            created_at: row.created_at,
            used_at: row.used_at,
            uses: row.uses,
            replaced_by: row.replaced_by,
        })
    }
}
