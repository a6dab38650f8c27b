//! Tokens of time expressions, and the cursor with which a grammar reads them.

use jiff::civil::Weekday;

use super::clock::DayPart;
use super::error::TimeFault;

/// The maximum number of tokens that are read of a text.
pub(super) const MAX_TOKENS: usize = 64;

/// The meaning of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A whole number with its number of digits, which is 0 for a number in words.
    Number {
        value: u64,
        digits: usize,
    },
    /// A unit of time in seconds; plural for a word such as `hours`.
    Unit {
        seconds: u64,
        plural: bool,
    },
    /// A day of the week; plural for a word such as `mondays`.
    Weekday {
        day: Weekday,
        plural: bool,
    },
    Month(i8),
    Part(DayPart),
    /// A number of days after today, with an optional part of the day: `tonight`.
    Day(i32, Option<DayPart>),
    /// A keyword of the grammar.
    Word(&'static str),
    Mark(char),
    Unknown,
}

/// A token and its position in the text, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeToken {
    pub kind: TokenKind,
    pub start: usize,
    pub end: usize,
}

/// The position at which a grammar reads the tokens.
#[derive(Clone, Copy)]
pub(super) struct TokenCursor<'t> {
    pub tokens: &'t [TimeToken],
    pub at: usize,
    /// The fault of tokens that no rule accepts.
    pub fault: Option<TimeFault>,
}

impl<'t> TokenCursor<'t> {
    pub fn new(tokens: &'t [TimeToken]) -> Self {
        Self { tokens, at: 0, fault: None }
    }

    pub fn is_at_end(&self) -> bool {
        self.at >= self.tokens.len()
    }

    pub fn peek(&self) -> Option<TokenKind> {
        self.ahead(0)
    }

    pub fn ahead(&self, count: usize) -> Option<TokenKind> {
        self.tokens.get(self.at + count).map(|token| token.kind)
    }

    /// Returns the end of the last taken token in the text.
    pub fn end(&self) -> usize {
        self.at.checked_sub(1).and_then(|last| self.tokens.get(last)).map_or(0, |token| token.end)
    }

    /// Returns true if nothing separates the last taken token from the next.
    pub fn is_glued(&self) -> bool {
        self.tokens.get(self.at).is_some_and(|next| next.start == self.end())
    }

    pub fn take_word(&mut self, word: &str) -> bool {
        self.take_any(&[word])
    }

    /// Takes the next token if `is_wanted`; returns whether it did.
    pub fn take_if(&mut self, is_wanted: impl FnOnce(TokenKind) -> bool) -> bool {
        self.take_as(|kind| is_wanted(kind).then_some(())).is_some()
    }

    /// Takes the next token if `read` returns something.
    pub fn take_as<T>(&mut self, read: impl FnOnce(TokenKind) -> Option<T>) -> Option<T> {
        let found = read(self.peek()?)?;
        self.at += 1;
        Some(found)
    }

    /// Takes the next token if it is one of these keywords.
    pub fn take_any(&mut self, words: &[&str]) -> bool {
        self.take_if(|kind| matches!(kind, TokenKind::Word(next) if words.contains(&next)))
    }

    /// Takes the next token if it is one of these keywords, and returns its meaning.
    pub fn take_meaning<T: Copy>(&mut self, meanings: &[(&str, T)]) -> Option<T> {
        meanings.iter().find_map(|(word, meaning)| self.take_word(word).then_some(*meaning))
    }

    pub fn take_part(&mut self) -> Option<DayPart> {
        self.take_as(|kind| if let TokenKind::Part(part) = kind { Some(part) } else { None })
    }

    /// Takes a day of the week; a plural only if `may_be_plural`.
    pub fn take_weekday(&mut self, may_be_plural: bool) -> Option<Weekday> {
        self.take_as(|kind| match kind {
            TokenKind::Weekday { day, plural } if may_be_plural || !plural => Some(day),
            _ => None,
        })
    }

    /// Takes these keywords in order, or none of them.
    pub fn take_words(&mut self, words: &[&str]) -> bool {
        self.attempt(|c| words.iter().all(|word| c.take_word(word)).then_some(())).is_some()
    }

    pub fn take_mark(&mut self, marks: &[char]) -> bool {
        self.take_if(|kind| matches!(kind, TokenKind::Mark(next) if marks.contains(&next)))
    }

    /// Takes a mark with no space around it.
    pub fn take_inner_mark(&mut self, marks: &[char]) -> Option<()> {
        (self.is_glued() && self.take_mark(marks) && self.is_glued()).then_some(())
    }

    /// Takes a number; returns its value and its number of digits.
    pub fn take_number(&mut self) -> Option<(u64, usize)> {
        self.take_as(|kind| if let TokenKind::Number { value, digits } = kind { Some((value, digits)) } else { None })
    }

    /// Takes a number within `values`.
    pub fn take_number_in(&mut self, values: std::ops::RangeInclusive<u64>) -> Option<i8> {
        let (value, _) = self.take_number()?;
        if values.contains(&value) { i8::try_from(value).ok() } else { None }
    }

    /// Runs `read`, and restores the position if it returns nothing.
    pub fn attempt<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let before = self.at;
        let found = read(self);
        if found.is_none() {
            self.at = before;
        }
        found
    }

    /// Returns nothing and records the fault, unless one is recorded already.
    pub fn fail<T>(&mut self, fault: TimeFault) -> Option<T> {
        self.fault = self.fault.or(Some(fault));
        None
    }

    /// Reads one or more items, with a separator that `between` takes.
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
