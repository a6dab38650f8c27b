//! Queries to memory, and their hits.

use super::{MemoryKind, MemoryOwner};

/// A search in memories and messages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecallQuery {
    pub text: String,
    /// The owners whose memories and conversations are searched.
    pub owners: Vec<MemoryOwner>,
    /// The kinds of memories to search; empty for no memories.
    pub kinds: Vec<MemoryKind>,
    /// Whether messages are searched too.
    pub messages: bool,
    /// Restricts the search to this session.
    pub session: Option<String>,
    /// The earliest time and the end of the period, UTC milliseconds.
    pub since: Option<i64>,
    pub until: Option<i64>,
    /// The minimum similarity of a hit, 0 to 1.
    pub least: f64,
    pub limit: usize,
}

/// The location of a hit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HitLocation {
    Memory(i64),
    Message { session: String, seq: i64 },
}

/// A memory or message that a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct RecallHit {
    pub found: HitLocation,
    /// The kind of a memory; `None` for a message.
    pub kind: Option<MemoryKind>,
    /// The text of the memory or message, without the text that the gateway added.
    pub text: String,
    /// UTC milliseconds.
    pub at: i64,
    /// The share of the query that the hit holds, 0 to 1.
    pub similarity: f64,
    /// The score; comparable within one answer only.
    pub score: f64,
}

/// A search for memories to attach to a message.
#[derive(Clone, Debug)]
pub struct RelevanceQuery {
    /// The message, as it was written.
    pub text: String,
    /// The owners whose memories are searched.
    pub owners: Vec<MemoryOwner>,
    /// The maximum number of hits.
    pub limit: usize,
}
