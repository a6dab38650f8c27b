//! A memory, and what is to become one.

use serde_json::Value;

use super::Owner;
use crate::store::memories::MemoryRow;

/// What a memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemoryKind {
    /// One sentence.
    Fact,
    /// A key and its value.
    Preference,
    /// A problem and what solved it.
    Case,
    /// What was asked for with tools, and how it ended.
    Task,
    /// What an epoch of a session came to.
    Summary,
}

impl MemoryKind {
    pub const ALL: [Self; 5] = [Self::Fact, Self::Preference, Self::Case, Self::Task, Self::Summary];

    /// The store's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fact => "fact",
            Self::Preference => "preference",
            Self::Case => "case",
            Self::Task => "task",
            Self::Summary => "summary",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// How something came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryOrigin {
    /// By the `remember` tool, in a turn of its owner.
    Told,
    /// By consolidation.
    Noticed,
    /// Written into MEMORY.md.
    ByHand,
    /// By `daoyou memory add`.
    Command,
    Imported,
}

impl MemoryOrigin {
    pub const ALL: [Self; 5] = [Self::Told, Self::Noticed, Self::ByHand, Self::Command, Self::Imported];

    /// The store's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Told => "told",
            Self::Noticed => "noticed",
            Self::ByHand => "by_hand",
            Self::Command => "command",
            Self::Imported => "imported",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|origin| origin.as_str() == word)
    }
}

/// The message that something is known from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemorySource {
    pub session: String,
    /// Unknown as long as the turn has not ended.
    pub seq: Option<i64>,
    pub turn: Option<String>,
}

/// A memory.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryEntry {
    pub id: i64,
    pub owner: Owner,
    pub kind: MemoryKind,
    /// A preference's key, a case's title, a summary's session; else empty.
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
    /// What is known instead.
    pub replaced_by: Option<i64>,
}

/// Returns a memory as one text: a preference behind its key, a case below its title.
pub(super) fn entry_text(kind: Option<MemoryKind>, name: &str, text: &str) -> String {
    match kind {
        Some(MemoryKind::Preference) => format!("{name}: {text}"),
        Some(MemoryKind::Case) => format!("{name}\n{text}"),
        Some(MemoryKind::Fact | MemoryKind::Task | MemoryKind::Summary) | None => text.to_owned(),
    }
}

/// What is to be remembered.
#[derive(Clone, Debug, PartialEq)]
pub struct NewMemoryEntry {
    pub owner: Owner,
    pub kind: MemoryKind,
    pub name: String,
    pub text: String,
    pub detail: Value,
    pub origin: MemoryOrigin,
    pub source: Option<MemorySource>,
    /// 0 to 1.
    pub confidence: f64,
}

impl MemoryEntry {
    /// Reads a row; `None` when it holds what no row of ours can.
    pub fn from_row(row: MemoryRow) -> Option<Self> {
        let (seq, turn) = (row.seq, row.turn);
        Some(Self {
            id: row.id,
            owner: Owner::from_stored(&row.owner),
            kind: MemoryKind::parse(&row.kind)?,
            name: row.name,
            text: row.text,
            detail: serde_json::from_str(&row.detail).ok()?,
            origin: MemoryOrigin::parse(&row.origin)?,
            source: row.session.map(|session| MemorySource { session, seq, turn }),
            confidence: row.confidence,
            created_at: row.created_at,
            used_at: row.used_at,
            uses: row.uses,
            replaced_by: row.replaced_by,
        })
    }
}
