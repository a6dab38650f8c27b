//! Times in words, in English and Chinese: "tomorrow at 9", "every Monday and Thursday", “每月1号早上8点”. What is not
//! understood whole is refused, with what was understood of it.
//!
//! A text is cut into words that have a meaning (`en_words`, `zh_words`); a grammar for each language (`en`, `zh`) takes
//! pieces off them: a wait, a day, clock times, how often. `said` puts the pieces together: each may be said once, in any
//! order, and what they make together has to be one time, or one schedule.

mod common;
mod edges;
mod en;
mod en_words;
mod grid;
mod misread;
mod part;
mod said;
mod token;
mod when;
mod zh;
mod zh_words;

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod tables_tests;

pub use edges::{begins, ends, unclear};
pub use misread::{Misread, Why};
pub use when::{Due, LONGEST, Moment, When};

use super::is_han;
use said::All;
use token::{Cursor, Token};

/// The longest text that is read, in bytes.
const MAX_LENGTH: usize = 200;
/// The most of a text that an error repeats, in characters.
const SHOWN: usize = 100;

/// In which words a time is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    En,
    Zh,
}

impl Language {
    /// That of a text: Chinese where there is a character of it.
    pub fn of(text: &str) -> Self {
        if text.contains(is_han) { Self::Zh } else { Self::En }
    }

    fn tokens(self, text: &str) -> Vec<Token> {
        match self {
            Self::En => en_words::tokens(text),
            Self::Zh => zh_words::tokens(text),
        }
    }

    fn piece(self, c: &mut Cursor<'_>, all: &All) -> Option<Vec<said::Piece>> {
        match self {
            Self::En => en::piece(c, all.has_day()),
            Self::Zh => zh::piece(c),
        }
    }
}

/// Reads a text that is a time and nothing else.
///
/// # Errors
/// It is not: what of it was understood, what was not, and why.
pub fn read(text: &str) -> Result<When, Misread> {
    read_in(text, Language::of(text))
}

/// Reads a text that is a time in that language and nothing else.
///
/// # Errors
/// It is not: what of it was understood, what was not, and why.
pub fn read_in(text: &str, language: Language) -> Result<When, Misread> {
    if text.len() > MAX_LENGTH {
        return Err(misread("", text, None));
    }
    let tokens = language.tokens(text);
    let found = pieces(text, &tokens, language)?;
    let (understood, rest) = text.split_at(found.end);
    if !found.is_any || !rest.trim_end_matches(is_stop).is_empty() {
        return Err(misread(understood, rest, found.why));
    }
    found.all.when().map_err(|why| misread(text, "", Some(why)))
}

/// Reads how long something takes, in seconds: `10 minutes`, `1h30m`, `一个半小时`.
pub fn length(text: &str) -> Option<u64> {
    let language = Language::of(text);
    let tokens = language.tokens(text.get(..MAX_LENGTH.min(text.len()))?);
    let mut c = Cursor::new(&tokens);
    let seconds = match language {
        Language::En => en::length(&mut c, false),
        Language::Zh => zh::length(&mut c, false),
    };
    seconds.filter(|_| c.end() == text.trim_end().len())
}

/// The pieces that a text begins with.
struct Found {
    all: All,
    is_any: bool,
    /// Where they end in the text.
    end: usize,
    /// What is wrong with what follows.
    why: Option<Why>,
}

/// Takes as many pieces as there are.
fn pieces(text: &str, tokens: &[Token], language: Language) -> Result<Found, Misread> {
    let mut found = Found { all: All::default(), is_any: false, end: 0, why: None };
    let mut c = Cursor::new(tokens);
    while !c.is_at_end() {
        if found.is_any {
            c.mark(&[',']);
            c.word("的");
        }
        let is_more = found.is_any && is_joint(&mut c);
        c.why = None;
        let Some(pieces) = language.piece(&mut c, &found.all) else { break };
        let put = pieces.into_iter().try_for_each(|piece| found.all.put(piece));
        if let Err(why) = if is_more { Err(Why::TwoTimes) } else { put } {
            let (understood, rest) = text.split_at(c.end());
            return Err(misread(understood, rest, Some(why)));
        }
        (found.is_any, found.end) = (true, c.end());
    }
    found.why = c.why;
    Ok(found)
}

/// Takes what would join a second time to the first.
fn is_joint(c: &mut Cursor<'_>) -> bool {
    c.any(&["and", "or", "和", "或"]) || c.mark(&['&', '、', ';'])
}

fn is_stop(c: char) -> bool {
    c.is_whitespace() || matches!(c, '.' | '。' | '!' | '！' | '?' | '？')
}

fn misread(understood: &str, rest: &str, why: Option<Why>) -> Misread {
    let shown = |text: &str| {
        let text: String = text.trim().trim_start_matches([',', '，']).trim().chars().take(SHOWN).collect();
        text
    };
    Misread { understood: shown(understood), rest: shown(rest), why }
}
