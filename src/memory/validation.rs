//! Cleans and validates memories before they are stored.

use super::{MemoryKind, NewMemoryEntry};
use crate::text::{comparison_key, is_invisible, one_line, truncate};

/// The longest texts, in characters.
const FACT_CHARS: usize = 1_000;
const BLOCK_CHARS: usize = 4_000;
const SUMMARY_CHARS: usize = 20_000;
/// The longest key of a preference or title of a case, in characters.
const NAME_CHARS: usize = 120;

/// The reason why a memory is not stored, as text for a model and for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEntry {
    #[error("there is nothing to remember: the text is empty; write it as one plain sentence")]
    Empty,
    #[error(
        "the text has {found} characters, more than the {limit} that one memory may have; shorten it, or split it into several"
    )]
    TooLong { found: usize, limit: usize },
    #[error("the {0} is missing: give a short one, such as \"editor\"")]
    NoName(&'static str),
    #[error("the {what} has {found} characters, more than the {limit} that it may have; shorten it")]
    LongName { what: &'static str, found: usize, limit: usize },
}

/// Returns `new` as it is stored: facts on one line, keys in lower case, no control characters.
///
/// # Errors
/// The text is empty, the text or the name is too long, or the name is missing.
pub fn validate_entry(new: &NewMemoryEntry) -> Result<NewMemoryEntry, InvalidEntry> {
    validate_cleaned(clean(new))
}

/// Returns `new` as it is stored, as [`validate_entry`] does, but truncates a long text that nobody can shorten.
///
/// # Errors
/// The text is empty, or the name is missing.
pub fn validate_truncated(new: &NewMemoryEntry) -> Result<NewMemoryEntry, InvalidEntry> {
    let mut cleaned = clean(new);
    cleaned.text = truncate(&cleaned.text, max_chars(new.kind));
    if matches!(new.kind, MemoryKind::Preference | MemoryKind::Case) {
        cleaned.name = truncate(&cleaned.name, NAME_CHARS);
    }
    validate_cleaned(cleaned)
}

fn validate_cleaned(entry: NewMemoryEntry) -> Result<NewMemoryEntry, InvalidEntry> {
    let (found, limit) = (entry.text.chars().count(), max_chars(entry.kind));
    if found > limit {
        return Err(InvalidEntry::TooLong { found, limit });
    }
    let what = if entry.kind == MemoryKind::Preference { "key" } else { "title" };
    let found = entry.name.chars().count();
    if matches!(entry.kind, MemoryKind::Preference | MemoryKind::Case) && found > NAME_CHARS {
        return Err(InvalidEntry::LongName { what, found, limit: NAME_CHARS });
    }
    if comparison_key(&entry.text).is_empty() {
        return Err(InvalidEntry::Empty);
    }
    let needs_name = matches!(entry.kind, MemoryKind::Preference | MemoryKind::Case | MemoryKind::Summary);
    if needs_name && entry.name.is_empty() {
        return Err(InvalidEntry::NoName(what));
    }
    Ok(entry)
}

fn clean(new: &NewMemoryEntry) -> NewMemoryEntry {
    let text = match new.kind {
        MemoryKind::Fact | MemoryKind::Preference | MemoryKind::Task => one_line(&new.text),
        MemoryKind::Case | MemoryKind::Summary => clean_block(&new.text),
    };
    let name = match new.kind {
        MemoryKind::Fact | MemoryKind::Task => String::new(),
        MemoryKind::Preference => one_line(&new.name).to_lowercase(),
        MemoryKind::Case => one_line(&new.name),
        MemoryKind::Summary => new.name.clone(),
    };
    NewMemoryEntry { text, name, confidence: new.confidence.clamp(0.0, 1.0), ..new.clone() }
}

fn max_chars(kind: MemoryKind) -> usize {
    match kind {
        MemoryKind::Fact | MemoryKind::Preference | MemoryKind::Task => FACT_CHARS,
        MemoryKind::Case => BLOCK_CHARS,
        MemoryKind::Summary => SUMMARY_CHARS,
    }
}

/// Cleans a text of several lines: removes control characters and repeated empty lines.
fn clean_block(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let line: String = line.chars().filter(|c| (!c.is_control() || *c == '\t') && !is_invisible(*c)).collect();
        let line = line.trim_end();
        if !line.is_empty() || lines.last().is_some_and(|last| !last.is_empty()) {
            lines.push(line.to_owned());
        }
    }
    lines.join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MemoryOrigin, MemoryOwner};

    #[test]
    fn texts_are_cleaned_and_limited() {
        let new = |kind, name: &str, text: &str| NewMemoryEntry {
            name: name.to_owned(),
            confidence: 2.0,
            ..NewMemoryEntry::new(MemoryOwner::gateway(), kind, text, MemoryOrigin::Stated)
        };
        let validated = |kind, name, text| validate_entry(&new(kind, name, text)).map(|entry| (entry.name, entry.text));
        let pair = |name: &str, text: &str| Ok((name.to_owned(), text.to_owned()));
        assert_eq!(validated(MemoryKind::Fact, "x", " a\n\u{0}b\u{202e}c \t d "), pair("", "a bc d"));
        assert_eq!(validated(MemoryKind::Preference, " Editor ", "vim\n"), pair("editor", "vim"));
        assert_eq!(validated(MemoryKind::Case, "Slow", "why\r\n\r\n\n\u{7}how "), pair("Slow", "why\n\nhow"));
        assert_eq!(validated(MemoryKind::Fact, "", " … "), Err(InvalidEntry::Empty));
        assert_eq!(validated(MemoryKind::Preference, "", "vim"), Err(InvalidEntry::NoName("key")));
        let long = "字".repeat(1_001);
        assert_eq!(validated(MemoryKind::Fact, "", &long), Err(InvalidEntry::TooLong { found: 1_001, limit: 1_000 }));
        assert_eq!(
            validated(MemoryKind::Case, &long, "x"),
            Err(InvalidEntry::LongName { what: "title", found: 1_001, limit: 120 })
        );
        let cut = validate_truncated(&new(MemoryKind::Fact, "", &long)).unwrap();
        assert_eq!((cut.text.chars().count(), cut.confidence), (1_000, 1.0));
    }
}
