//! The little language of the rules: literal words in any case, `[a|b|]` for choices, `{slot}` for arguments, `*` for a
//! few words that do not matter.

use super::slots::{Slot, Slots};
use crate::text::Language;

/// The longest text that a slot with something after it may hold, in bytes; at the end of a pattern it may be longer.
const MAX_INNER: usize = 16_384;

/// A pattern, read.
#[derive(Clone, Debug)]
pub(super) struct Pattern(Vec<Piece>);

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    /// One of these words; the first that lets the rest fit is taken.
    Words(Vec<String>),
    Slot(Slot),
}

impl Pattern {
    /// Reads a pattern; what is no choice and no slot is a word.
    pub fn compile(written: &str) -> Self {
        let mut pieces = Vec::new();
        let mut rest = written;
        while !rest.is_empty() {
            let (piece, length) = special(rest).unwrap_or_else(|| {
                let next = rest.char_indices().skip(1).find(|(_, c)| matches!(c, '*' | '{' | '['));
                let end = next.map_or(rest.len(), |(at, _)| at);
                (Piece::Words(vec![rest[..end].to_owned()]), end)
            });
            pieces.push(piece);
            rest = &rest[length..];
        }
        Self(pieces)
    }

    /// The arguments, if the pattern fits the whole text.
    pub fn fit(&self, text: &str, language: Language) -> Option<Slots> {
        let mut slots = Slots::default();
        fit(&self.0, text, language, &mut slots).then_some(slots)
    }
}

/// The slot or choice that the text begins with, and its length.
fn special(text: &str) -> Option<(Piece, usize)> {
    if text.starts_with('*') {
        return Some((Piece::Slot(Slot::Any), 1));
    }
    if let Some(inner) = text.strip_prefix('[') {
        let (choices, _) = inner.split_once(']')?;
        return Some((Piece::Words(choices.split('|').map(str::to_owned).collect()), choices.len() + 2));
    }
    let (name, _) = text.strip_prefix('{')?.split_once('}')?;
    Some((Piece::Slot(Slot::named(name)?), name.len() + 2))
}

fn fit(pieces: &[Piece], text: &str, language: Language, slots: &mut Slots) -> bool {
    match pieces {
        [] => text.trim_matches([' ', '\t', '\n', '?', '？', '!', '！', '.', '。', '~', '～', ',', '，']).is_empty(),
        [Piece::Words(words), rest @ ..] => {
            words.iter().filter_map(|word| strip_word(text, word)).any(|text| fit(rest, text, language, slots))
        }
        [Piece::Slot(slot), rest @ ..] => {
            // The rest first: it is the one that mostly fails, and without copying anything.
            let mut holds =
                |end: usize| fit(rest, &text[end..], language, slots) && slot.accept(&text[..end], language, slots);
            if rest.is_empty() {
                return text.len() <= slot.limit() && holds(text.len());
            }
            let limit = slot.limit().min(MAX_INNER);
            let last = Some(text.len()).filter(|end| *end <= limit);
            let reach = text.char_indices().map(|(at, _)| at).find(|at| *at > limit).unwrap_or(text.len());
            let mut ends = text[..reach].char_indices().map(|(at, _)| at).chain(last);
            if slot.is_greedy() { ends.rev().any(holds) } else { ends.any(&mut holds) }
        }
    }
}

/// The text after the word. Case does not matter, and a space may be any white space.
fn strip_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let head = text.get(..word.len())?;
    let same = |(a, b): (u8, u8)| a.eq_ignore_ascii_case(&b) || (b == b' ' && a.is_ascii_whitespace());
    head.bytes().zip(word.bytes()).all(same).then(|| &text[word.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_found_between_words() {
        let cases = [
            ("write {text} to {path}", "WRITE to be or to be to a.txt", Some(("a.txt", "to be or to be"))),
            ("write {text} to {path}", "write a letter to Mom", None),
            ("把{text}写到{path}里", "把 你好 写到 笔记.md 里", Some(("笔记.md", "你好"))),
            ("[in|at|] {path}[ now|]", "at a.txt now", Some(("a.txt", ""))),
            ("no [end", "no [end", Some(("", ""))),
            ("read {path}", "read", None),
            ("read {path}", "readme.md", None),
            ("read {path}", "read \"my notes\"", Some(("my notes", ""))),
            ("read {path}", "read ..", Some(("..", ""))),
            ("read {path}", "read a.txt.", Some(("a.txt", ""))),
        ];
        for (pattern, text, expected) in cases {
            let slots = Pattern::compile(pattern).fit(text, Language::En);
            let found = slots.map(|slots| (slots.path.unwrap_or_default(), slots.text.unwrap_or_default()));
            let expected = expected.map(|(path, text)| (path.to_owned(), text.to_owned()));
            assert_eq!(found, expected, "{pattern} / {text}");
        }
    }
}
