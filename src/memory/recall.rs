//! Finds what was remembered and said.

use super::{Kind, Owner};
use crate::store::{Connection, StoreError};

/// What is looked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    pub text: String,
    /// Whose memories, and whose conversations.
    pub owners: Vec<Owner>,
    /// Memories of these kinds; none: no memories.
    pub kinds: Vec<Kind>,
    /// Look through what was said, too.
    pub messages: bool,
    /// Only of this session.
    pub session: Option<String>,
    /// UTC milliseconds, from and before.
    pub since: Option<i64>,
    pub until: Option<i64>,
    /// Only what is at least so similar, 0 to 1.
    pub least: f64,
    pub limit: usize,
}

/// Where something was found.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Found {
    Memory(i64),
    Message { session: String, seq: i64 },
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    pub found: Found,
    /// A memory's kind; what was said has none.
    pub kind: Option<Kind>,
    /// The sentence, or what was said, without what the gateway added to it.
    pub text: String,
    /// UTC milliseconds.
    pub at: i64,
    /// How much of what was asked for is in it, 0 to 1.
    pub similarity: f64,
    /// By what hits are ordered; comparable within one answer only.
    pub score: f64,
}

/// The best hits, the best first. `vector` is that of the text, where there is one.
///
/// # Errors
/// The store cannot be read.
pub fn recall(_connection: &Connection, _ask: &Ask, _vector: Option<&[f32]>) -> Result<Vec<Hit>, StoreError> {
    Ok(Vec::new())
}
