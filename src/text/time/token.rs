//! The words of a time, each as what it means, and the place that a reader has come to in them.

use jiff::civil::Weekday;

use super::misread::Why;
use super::part::Part;

/// The most words that are looked at.
pub(super) const MOST: usize = 64;

/// What one word means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tok {
    /// A whole number, and how many digits it has; none where it is spelled.
    Number {
        value: u64,
        digits: usize,
    },
    /// In seconds; plural as `hours` is.
    Unit {
        seconds: u64,
        plural: bool,
    },
    /// Plural as `mondays` is.
    Weekday {
        day: Weekday,
        plural: bool,
    },
    Month(i8),
    Part(Part),
    /// So many days ahead, perhaps with a part of the day: `tonight`.
    Day(i32, Option<Part>),
    /// A word of the grammar.
    Word(&'static str),
    Mark(char),
    Unknown,
}

/// A word and where it stands in the text, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub tok: Tok,
    pub start: usize,
    pub end: usize,
}

/// The place that a reader has come to.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'t> {
    pub tokens: &'t [Token],
    pub at: usize,
    /// What is wrong with the words that no reader could take.
    pub why: Option<Why>,
}

impl<'t> Cursor<'t> {
    pub fn new(tokens: &'t [Token]) -> Self {
        Self { tokens, at: 0, why: None }
    }

    pub fn is_at_end(&self) -> bool {
        self.at >= self.tokens.len()
    }

    pub fn peek(&self) -> Option<Tok> {
        self.ahead(0)
    }

    pub fn ahead(&self, count: usize) -> Option<Tok> {
        self.tokens.get(self.at + count).map(|token| token.tok)
    }

    pub fn step(&mut self) {
        self.at += 1;
    }

    /// Where the last word that was taken ends in the text.
    pub fn end(&self) -> usize {
        self.at.checked_sub(1).and_then(|last| self.tokens.get(last)).map_or(0, |token| token.end)
    }

    /// Whether nothing stands between the last word and the next.
    pub fn is_glued(&self) -> bool {
        self.tokens.get(self.at).is_some_and(|next| next.start == self.end())
    }

    pub fn word(&mut self, word: &str) -> bool {
        self.any(&[word])
    }

    /// Takes the next word if it is one of these.
    pub fn any(&mut self, words: &[&str]) -> bool {
        let found = matches!(self.peek(), Some(Tok::Word(next)) if words.contains(&next));
        if found {
            self.step();
        }
        found
    }

    /// Takes these words, one after the other, or none of them.
    pub fn words(&mut self, words: &[&str]) -> bool {
        self.attempt(|c| words.iter().all(|word| c.word(word)).then_some(())).is_some()
    }

    pub fn mark(&mut self, marks: &[char]) -> bool {
        let found = matches!(self.peek(), Some(Tok::Mark(next)) if marks.contains(&next));
        if found {
            self.step();
        }
        found
    }

    /// A mark with nothing around it.
    pub fn inner_mark(&mut self, marks: &[char]) -> Option<()> {
        (self.is_glued() && self.mark(marks) && self.is_glued()).then_some(())
    }

    /// Its value and how many digits it has.
    pub fn number(&mut self) -> Option<(u64, usize)> {
        let Some(Tok::Number { value, digits }) = self.peek() else { return None };
        self.step();
        Some((value, digits))
    }

    /// A number of these.
    pub fn number_in(&mut self, values: std::ops::RangeInclusive<u64>) -> Option<i8> {
        let (value, _) = self.number()?;
        if values.contains(&value) { i8::try_from(value).ok() } else { None }
    }

    /// Runs `read`, and takes nothing when it finds nothing.
    pub fn attempt<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let before = self.at;
        let found = read(self);
        if found.is_none() {
            self.at = before;
        }
        found
    }

    /// Finds nothing, and says why; what was said before counts more.
    pub fn blame<T>(&mut self, why: Why) -> Option<T> {
        self.why = self.why.or(Some(why));
        None
    }

    /// One and more, with what `between` takes between each and the next.
    pub fn list<T>(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Option<T>,
        between: impl Fn(&mut Self) -> bool,
    ) -> Option<Vec<T>> {
        let mut all = vec![one(self)?];
        while let Some(next) = self.attempt(|c| if between(c) { one(c) } else { None }) {
            all.push(next);
        }
        Some(all)
    }
}
