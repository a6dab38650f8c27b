//! What a text becomes before it is kept, and when two texts say the same.

use super::{Kind, NewEntry};

/// The longest texts, in characters.
const FACT_CHARS: usize = 1_000;
const BLOCK_CHARS: usize = 4_000;
const SUMMARY_CHARS: usize = 20_000;
/// The longest key of a preference or title of a case, in characters.
const NAME_CHARS: usize = 120;

/// Why something cannot be remembered; the words are for a model and for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
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

/// `new` as it is kept: a fact on one line, no control characters, a key in lower case.
///
/// # Errors
/// It is empty, or too long, or lacks its name.
pub fn fit(new: &NewEntry) -> Result<NewEntry, Unfit> {
    let cleaned = cleaned(new);
    let limit = limit(new.kind);
    let found = cleaned.text.chars().count();
    if found > limit {
        return Err(Unfit::TooLong { found, limit });
    }
    let what = if new.kind == Kind::Preference { "key" } else { "title" };
    let found = cleaned.name.chars().count();
    if matches!(new.kind, Kind::Preference | Kind::Case) && found > NAME_CHARS {
        return Err(Unfit::LongName { what, found, limit: NAME_CHARS });
    }
    whole(cleaned, what)
}

/// As [`fit`], for what nobody can be asked to shorten: it is cut.
///
/// # Errors
/// It is empty, or lacks its name.
pub fn cut_to_fit(new: &NewEntry) -> Result<NewEntry, Unfit> {
    let mut cleaned = cleaned(new);
    cleaned.text = shortened(&cleaned.text, limit(new.kind));
    if matches!(new.kind, Kind::Preference | Kind::Case) {
        cleaned.name = shortened(&cleaned.name, NAME_CHARS);
    }
    whole(cleaned, if new.kind == Kind::Preference { "key" } else { "title" })
}

fn whole(entry: NewEntry, what: &'static str) -> Result<NewEntry, Unfit> {
    if normal(&entry.text).is_empty() {
        return Err(Unfit::Empty);
    }
    let needs_name = matches!(entry.kind, Kind::Preference | Kind::Case | Kind::Summary);
    if needs_name && entry.name.is_empty() {
        return Err(Unfit::NoName(what));
    }
    Ok(entry)
}

fn cleaned(new: &NewEntry) -> NewEntry {
    let text = match new.kind {
        Kind::Fact | Kind::Preference | Kind::Task => one_line(&new.text),
        Kind::Case | Kind::Summary => block(&new.text),
    };
    let name = match new.kind {
        Kind::Fact | Kind::Task => String::new(),
        Kind::Preference => one_line(&new.name).to_lowercase(),
        Kind::Case => one_line(&new.name),
        Kind::Summary => new.name.clone(),
    };
    NewEntry { text, name, confidence: new.confidence.clamp(0.0, 1.0), ..new.clone() }
}

fn limit(kind: Kind) -> usize {
    match kind {
        Kind::Fact | Kind::Preference | Kind::Task => FACT_CHARS,
        Kind::Case => BLOCK_CHARS,
        Kind::Summary => SUMMARY_CHARS,
    }
}

/// On one line, without control characters and what is not seen.
pub fn one_line(text: &str) -> String {
    let seen: String = text.chars().map(|c| if c.is_whitespace() || c.is_control() { ' ' } else { c }).collect();
    seen.split_whitespace().map(|word| word.replace(is_invisible, "")).collect::<Vec<_>>().join(" ")
}

/// Line by line, without control characters and empty lines in a row.
fn block(text: &str) -> String {
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

/// Marks that change how a text looks and not what it says: of direction, byte order, zero width. The joiner stays, which
/// emoji are made with.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The head of a text, at most `limit` characters long.
pub fn shortened(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some(_) => {
            let end = text.char_indices().nth(limit.saturating_sub(1)).map_or(text.len(), |(at, _)| at);
            format!("{}…", text[..end].trim_end())
        }
        None => text.to_owned(),
    }
}

/// What two texts have in common that say the same: case, width, spaces and punctuation do not count.
pub fn normal(text: &str) -> String {
    let chars: Vec<char> = text.chars().map(narrow).flat_map(char::to_lowercase).collect();
    let mut normal = String::with_capacity(text.len());
    let mut is_gap = false;
    for (at, c) in chars.iter().copied().enumerate() {
        let before = at.checked_sub(1).and_then(|at| chars.get(at)).copied();
        let after = chars.get(at + 1).copied();
        if c.is_whitespace() || is_invisible(c) || is_punctuation(c, before, after) {
            is_gap = true;
            continue;
        }
        let last = normal.chars().next_back();
        if is_gap && last.is_some_and(|last| !is_ideograph(last)) && !is_ideograph(c) {
            normal.push(' ');
        }
        is_gap = false;
        normal.push(c);
    }
    normal
}

/// A text in usual width.
pub fn narrow_text(text: impl Iterator<Item = char>) -> String {
    text.map(narrow).collect()
}

/// Full-width forms (U+FF01 to U+FF5E) in their usual width.
fn narrow(c: char) -> char {
    match c {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c),
        '\u{3000}' => ' ',
        '’' | '‘' => '\'',
        c => c,
    }
}

/// Whether a character ends or quotes; between letters and digits it is part of a word: 3.5, well-known, user's.
fn is_punctuation(c: char, before: Option<char>, after: Option<char>) -> bool {
    let both = |is_part: fn(char) -> bool| before.is_some_and(is_part) && after.is_some_and(is_part);
    match c {
        ',' | ':' => !both(|c| c.is_ascii_digit()),
        '.' | '\'' | '/' | '@' | '_' => !both(char::is_alphanumeric),
        ';' | '!' | '?' | '"' | '“' | '”' | '(' | ')' | '[' | ']' | '`' | '*' => true,
        '。' | '、' | '《' | '》' | '「' | '」' | '『' | '』' | '【' | '】' | '…' | '·' => true,
        _ => false,
    }
}

/// Characters that are written without spaces between words.
pub fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{2e80}'..='\u{2fdf}' | '\u{3005}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Origin, Owner};

    #[test]
    fn what_says_the_same() {
        for (one, other, same) in [
            ("I like tea.", "  i LIKE  tea", true),
            ("我喜欢 茶。", "我喜欢茶", true),
            ("ＡＢＣ，１２", "abc, 12", true),
            ("The user’s cat", "the user's cat", true),
            ("Version 3.5", "version 35", false),
            ("C++ is fine", "C is fine", false),
            ("It is -5 degrees", "It is 5 degrees", false),
            ("may be", "maybe", false),
            ("“Momo”!", "momo", true),
            ("", "...", true),
        ] {
            assert_eq!(normal(one) == normal(other), same, "{one:?} {other:?}: {:?} {:?}", normal(one), normal(other));
        }
    }

    #[test]
    fn what_is_kept_of_a_text() {
        let new = |kind, name: &str, text: &str| NewEntry {
            owner: Owner::gateway(),
            kind,
            name: name.to_owned(),
            text: text.to_owned(),
            detail: serde_json::json!({}),
            origin: Origin::Told,
            source: None,
            confidence: 2.0,
        };
        let kept = |kind, name, text| fit(&new(kind, name, text)).map(|entry| (entry.name, entry.text));
        let pair = |name: &str, text: &str| Ok((name.to_owned(), text.to_owned()));
        assert_eq!(kept(Kind::Fact, "x", " a\n\u{0}b\u{202e}c \t d "), pair("", "a bc d"));
        assert_eq!(kept(Kind::Preference, " Editor ", "vim\n"), pair("editor", "vim"));
        assert_eq!(kept(Kind::Case, "Slow", "why\r\n\r\n\n\u{7}how "), pair("Slow", "why\n\nhow"));
        assert_eq!(kept(Kind::Fact, "", " … "), Err(Unfit::Empty));
        assert_eq!(kept(Kind::Preference, "", "vim"), Err(Unfit::NoName("key")));
        let long = "字".repeat(1_001);
        assert_eq!(kept(Kind::Fact, "", &long), Err(Unfit::TooLong { found: 1_001, limit: 1_000 }));
        assert_eq!(kept(Kind::Case, &long, "x"), Err(Unfit::LongName { what: "title", found: 1_001, limit: 120 }));
        let cut = cut_to_fit(&new(Kind::Fact, "", &long)).unwrap();
        assert_eq!((cut.text.chars().count(), cut.confidence), (1_000, 1.0));
    }
}
