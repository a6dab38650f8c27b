//! What of a memory is made a vector of.

use crate::memory::Kind;
use crate::store::vectors::Unembedded;

/// Characters of a text that are told a model of vectors: as much as the smaller ones take in English.
pub(super) const LONGEST: usize = 2_000;

/// Of a text that a model does not take.
pub(super) const SHORTER: usize = 400;

/// The sentence that stands for a memory.
pub(super) fn of_memory(row: &Unembedded) -> String {
    let text = match Kind::parse(&row.kind) {
        Some(Kind::Preference) => format!("{}: {}", row.name, row.text),
        Some(Kind::Case) => format!("{}\n{}", row.name, row.text),
        Some(Kind::Fact | Kind::Task | Kind::Summary) | None => row.text.clone(),
    };
    cut(text.trim(), LONGEST).to_owned()
}

/// The first characters of a text.
pub(super) fn cut(text: &str, most: usize) -> &str {
    text.char_indices().nth(most).map_or(text, |(at, _)| &text[..at])
}
