//! The languages that the program reads and writes.

use super::script::is_han;

/// English or Chinese.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    En,
    Zh,
}

impl Language {
    /// Returns Chinese for a text with at least one Chinese character, and English for any other.
    pub fn of(text: &str) -> Self {
        if text.contains(is_han) { Self::Zh } else { Self::En }
    }
}
