//! Reads a text as a time expression.

use super::clauses::{Clause, Clauses};
use super::error::{TimeFault, TimeParseError};
use super::expression::TimeExpression;
use super::token::{TimeToken, TokenCursor};
use super::{grammar_en, grammar_zh, lexer_en, lexer_zh};
use crate::text::{Language, language_of};

/// The longest text that is read, in bytes.
pub const MAX_LENGTH: usize = 200;
/// The longest part of a text that an error repeats, in characters.
const MAX_SHOWN: usize = 100;

/// Cuts a text into tokens.
pub(super) fn tokens(text: &str, language: Language) -> Vec<TimeToken> {
    match language {
        Language::En => lexer_en::tokens(text),
        Language::Zh => lexer_zh::tokens(text),
    }
}

/// Reads one clause, or several that belong together; `before` holds the clauses before it.
pub(super) fn clause(c: &mut TokenCursor<'_>, language: Language, before: &Clauses) -> Option<Vec<Clause>> {
    match language {
        Language::En => grammar_en::clause(c, before.has_day()),
        Language::Zh => grammar_zh::clause(c),
    }
}

/// Reads a text that is a time expression and nothing else.
///
/// # Errors
/// The text is something else, or longer than [`MAX_LENGTH`]; the error says which part was understood.
pub fn parse(text: &str) -> Result<TimeExpression, TimeParseError> {
    if text.len() > MAX_LENGTH {
        return Err(parse_error("", text, None));
    }
    let language = language_of(text);
    let prefix = parse_prefix(text, &tokens(text, language), language)?;
    let (understood, rest) = text.split_at(prefix.end);
    if !prefix.is_any || !rest.trim_end_matches(is_final).is_empty() {
        return Err(parse_error(understood, rest, prefix.fault));
    }
    prefix.clauses.combine().map_err(|fault| parse_error(text, "", Some(fault)))
}

/// Reads a duration, in seconds: `10 minutes`, `1h30m`, `一个半小时`.
pub fn parse_duration(text: &str) -> Option<u64> {
    let language = language_of(text);
    let tokens = tokens(text.get(..MAX_LENGTH.min(text.len()))?, language);
    let mut c = TokenCursor::new(&tokens);
    let seconds = match language {
        Language::En => grammar_en::length(&mut c, false),
        Language::Zh => grammar_zh::length(&mut c, false),
    };
    seconds.filter(|_| c.end() == text.trim_end().len())
}

/// The clauses at the beginning of a text.
pub(super) struct ParsedPrefix {
    pub clauses: Clauses,
    pub is_any: bool,
    /// The end of the clauses in the text, in bytes.
    pub end: usize,
    /// The fault of the text that follows.
    pub fault: Option<TimeFault>,
}

/// Reads as many clauses as possible from the beginning of the text.
pub(super) fn parse_prefix(
    text: &str,
    tokens: &[TimeToken],
    language: Language,
) -> Result<ParsedPrefix, TimeParseError> {
    let mut prefix = ParsedPrefix { clauses: Clauses::default(), is_any: false, end: 0, fault: None };
    let mut c = TokenCursor::new(tokens);
    while !c.is_at_end() {
        if prefix.is_any {
            c.take_mark(&[',']);
            c.take_word("的");
        }
        let is_joined = prefix.is_any && take_conjunction(&mut c);
        c.fault = None;
        let Some(clauses) = clause(&mut c, language, &prefix.clauses) else { break };
        let added = clauses.into_iter().try_for_each(|clause| prefix.clauses.add(clause));
        if let Err(fault) = if is_joined { Err(TimeFault::TwoTimes) } else { added } {
            // The text that follows the clash is not examined.
            let (understood, _) = text.split_at(c.end());
            return Err(parse_error(understood, "", Some(fault)));
        }
        (prefix.is_any, prefix.end) = (true, c.end());
    }
    prefix.fault = c.fault;
    Ok(prefix)
}

/// Takes a conjunction that would join a second time to the first.
fn take_conjunction(c: &mut TokenCursor<'_>) -> bool {
    c.take_any(&["and", "or", "和", "或"]) || c.take_mark(&['&', '、', ';'])
}

fn is_final(c: char) -> bool {
    c.is_whitespace() || matches!(c, '.' | '。' | '!' | '！' | '?' | '？')
}

pub(super) fn parse_error(understood: &str, rest: &str, fault: Option<TimeFault>) -> TimeParseError {
    let shown = |text: &str| {
        let text: String = text.trim().trim_start_matches([',', '，']).trim().chars().take(MAX_SHOWN).collect();
        text
    };
    TimeParseError { understood: shown(understood), rest: shown(rest), fault }
}
