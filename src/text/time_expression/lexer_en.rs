//! The English lexer.

use jiff::civil::Weekday;

use super::clock::{AFTERNOON, EVENING, MORNING, NIGHT};
use super::expression::{DAY, HOUR, MINUTE, WEEK};
use super::token::{MAX_TOKENS, TimeToken, TokenKind};

const fn unit(seconds: u64, plural: bool) -> TokenKind {
    TokenKind::Unit { seconds, plural }
}

const fn one(day: Weekday) -> TokenKind {
    TokenKind::Weekday { day, plural: false }
}

const fn each(day: Weekday) -> TokenKind {
    TokenKind::Weekday { day, plural: true }
}

/// Tokens with several spellings.
const WORDS: &[(&[&str], TokenKind)] = &[
    (&["s", "sec"], unit(1, false)),
    (&["secs", "seconds"], unit(1, true)),
    (&["m", "min", "minute"], unit(MINUTE, false)),
    (&["mins", "minutes"], unit(MINUTE, true)),
    (&["h", "hr", "hour"], unit(HOUR, false)),
    (&["hrs", "hours"], unit(HOUR, true)),
    (&["d", "day"], unit(DAY, false)),
    (&["days"], unit(DAY, true)),
    (&["w", "week"], unit(WEEK, false)),
    (&["weeks"], unit(WEEK, true)),
    (&["mon", "monday"], one(Weekday::Monday)),
    (&["tue", "tues", "tuesday"], one(Weekday::Tuesday)),
    (&["wed", "weds", "wednesday"], one(Weekday::Wednesday)),
    (&["thu", "thur", "thurs", "thursday"], one(Weekday::Thursday)),
    (&["fri", "friday"], one(Weekday::Friday)),
    (&["sat", "saturday"], one(Weekday::Saturday)),
    (&["sun", "sunday"], one(Weekday::Sunday)),
    (&["mondays"], each(Weekday::Monday)),
    (&["tuesdays"], each(Weekday::Tuesday)),
    (&["wednesdays"], each(Weekday::Wednesday)),
    (&["thursdays"], each(Weekday::Thursday)),
    (&["fridays"], each(Weekday::Friday)),
    (&["saturdays"], each(Weekday::Saturday)),
    (&["sundays"], each(Weekday::Sunday)),
    (&["jan", "january"], TokenKind::Month(1)),
    (&["feb", "february"], TokenKind::Month(2)),
    (&["mar", "march"], TokenKind::Month(3)),
    (&["apr", "april"], TokenKind::Month(4)),
    (&["may"], TokenKind::Month(5)),
    (&["jun", "june"], TokenKind::Month(6)),
    (&["jul", "july"], TokenKind::Month(7)),
    (&["aug", "august"], TokenKind::Month(8)),
    (&["sep", "sept", "september"], TokenKind::Month(9)),
    (&["oct", "october"], TokenKind::Month(10)),
    (&["nov", "november"], TokenKind::Month(11)),
    (&["dec", "december"], TokenKind::Month(12)),
    (&["morning"], TokenKind::Part(MORNING)),
    (&["afternoon"], TokenKind::Part(AFTERNOON)),
    (&["evening"], TokenKind::Part(EVENING)),
    (&["night"], TokenKind::Part(NIGHT)),
    (&["today"], TokenKind::Day(0, None)),
    (&["tonight"], TokenKind::Day(0, Some(NIGHT))),
    (&["tomorrow"], TokenKind::Day(1, None)),
    (&["a", "an"], TokenKind::Word("a")),
    (&["am", "a.m", "a.m."], TokenKind::Word("am")),
    (&["pm", "p.m", "p.m."], TokenKind::Word("pm")),
    (&["st", "nd", "rd", "th"], TokenKind::Word("th")),
    (&["every", "each"], TokenKind::Word("every")),
    (&["to", "until", "till", "through"], TokenKind::Word("to")),
    (&["except", "excluding", "before", "around"], TokenKind::Word("except")),
    (&["starting", "beginning"], TokenKind::Word("starting")),
    (&["once", "twice", "thrice"], TokenKind::Word("twice")),
    (&["about", "approximately", "roughly"], TokenKind::Word("about")),
    (&["month", "months"], TokenKind::Word("month")),
    (&["year", "years"], TokenKind::Word("year")),
    (&["yearly", "annually"], TokenKind::Word("yearly")),
    (&["noon", "midday"], TokenKind::Word("noon")),
    (&["o'clock", "oclock"], TokenKind::Word("o'clock")),
    (&["quarter", "quarters"], TokenKind::Word("quarter")),
    (&["work", "working"], TokenKind::Word("working")),
    (&["weekday", "workday"], TokenKind::Word("weekday")),
    (&["weekdays", "workdays"], TokenKind::Word("weekdays")),
];

/// Keywords with one spelling.
const PLAIN: &[&str] = &[
    "after", "and", "at", "between", "by", "daily", "fifth", "first", "for", "fourth", "from", "half", "hourly", "in",
    "last", "midnight", "monthly", "next", "now", "of", "on", "or", "other", "past", "second", "the", "third", "this",
    "weekend", "weekends", "weekly",
];

/// The number words, from one on.
const NUMBERS: &str = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen \
    seventeen eighteen nineteen";
const TENS: [(&str, u64); 6] =
    [("twenty", 20), ("thirty", 30), ("forty", 40), ("fifty", 50), ("sixty", 60), ("ninety", 90)];

/// Returns the tokens at the beginning of the text.
pub(super) fn tokens(text: &str) -> Vec<TimeToken> {
    let mut tokens: Vec<TimeToken> = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next().filter(|_| tokens.len() < MAX_TOKENS) {
        let length = if first.is_ascii_digit() {
            length_of(&text[at..], |c| c.is_ascii_digit())
        } else if is_of_word(first) {
            half_of_day(&text[at..]).unwrap_or_else(|| length_of(&text[at..], is_of_word))
        } else {
            first.len_utf8()
        };
        let (start, end) = (at, at + length);
        at = end;
        if first.is_whitespace() {
            continue;
        }
        let kind = meaning(&text[start..end], first);
        match tokens.last_mut() {
            // A number followed by letters, such as "2x", is not a number.
            Some(last) if last.end == start && kind == TokenKind::Unknown && is_of_word(first) => {
                (last.kind, last.end) = (TokenKind::Unknown, end);
            }
            _ => tokens.push(TimeToken { kind, start, end }),
        }
    }
    compounds(tokens)
}

fn is_of_word(c: char) -> bool {
    c.is_alphabetic() || matches!(c, '\'' | '’' | '_')
}

fn length_of(text: &str, is_in: impl Fn(char) -> bool) -> usize {
    text.find(|c: char| !is_in(c)).unwrap_or(text.len())
}

/// Returns the length of "a.m." with its dots.
fn half_of_day(text: &str) -> Option<usize> {
    let is_half = |length: usize| {
        let head = text.get(..length).unwrap_or_default().to_ascii_lowercase();
        ["a.m", "p.m", "a.m.", "p.m."].contains(&head.as_str())
    };
    let length = [4, 3].into_iter().find(|length| is_half(*length))?;
    let follows = text[length..].chars().next();
    (!follows.is_some_and(char::is_alphanumeric)).then_some(length)
}

fn meaning(word: &str, first: char) -> TokenKind {
    if first.is_ascii_digit() {
        return word.parse().map_or(TokenKind::Unknown, |value| TokenKind::Number { value, digits: word.len() });
    }
    if !is_of_word(first) {
        return TokenKind::Mark(if matches!(first, '–' | '—') { '-' } else { first });
    }
    let word = word.to_lowercase().replace('’', "'");
    if let Some((_, kind)) = WORDS.iter().find(|(written, _)| written.contains(&word.as_str())) {
        return *kind;
    }
    if let Some((_, value)) = NUMBERS.split(' ').zip(1..).chain(TENS).find(|(written, _)| *written == word) {
        return TokenKind::Number { value, digits: 0 };
    }
    PLAIN.iter().find(|plain| **plain == word).map_or(TokenKind::Unknown, |plain| TokenKind::Word(plain))
}

/// Joins compounds such as "twenty five" and "twenty-five" to one number.
fn compounds(tokens: Vec<TimeToken>) -> Vec<TimeToken> {
    let spelled = |kind: TokenKind, least: u64, most: u64| match kind {
        TokenKind::Number { value, digits: 0 } => Some(value).filter(|value| (least..=most).contains(value)),
        _ => None,
    };
    let mut joined: Vec<TimeToken> = Vec::new();
    for token in tokens {
        let small = spelled(token.kind, 1, 9);
        let is_hyphenated = matches!(joined.last(), Some(last) if last.kind == TokenKind::Mark('-'));
        let tens_at = joined.len().checked_sub(if is_hyphenated { 2 } else { 1 });
        let tens = tens_at.and_then(|at| spelled(joined[at].kind, 20, 90).map(|tens| (at, tens)));
        match (small, tens) {
            (Some(small), Some((at, tens))) if tens.is_multiple_of(10) => {
                joined.truncate(at + 1);
                joined[at].kind = TokenKind::Number { value: tens + small, digits: 0 };
                joined[at].end = token.end;
            }
            _ => joined.push(token),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers_become_tokens() {
        let found = |text: &str| tokens(text).into_iter().map(|token| token.kind).collect::<Vec<_>>();
        let number = |value, digits| TokenKind::Number { value, digits };
        assert_eq!(found("twenty-five twenty five 25"), [number(25, 0), number(25, 0), number(25, 2)]);
        assert_eq!(
            found("9 a.m., 1h30m"),
            [
                number(9, 1),
                TokenKind::Word("am"),
                TokenKind::Mark(','),
                number(1, 1),
                unit(HOUR, false),
                number(30, 2),
                unit(MINUTE, false)
            ]
        );
        assert_eq!(found("2x Monday's"), [TokenKind::Unknown, TokenKind::Unknown]);
        assert_eq!(tokens(&"a ".repeat(1_000)).len(), MAX_TOKENS);
        assert_eq!(tokens("at 99999999999999999999")[1], TimeToken { kind: TokenKind::Unknown, start: 3, end: 23 });
    }
}
