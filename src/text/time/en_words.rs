//! The words of English times.

use jiff::civil::Weekday;

use super::part::{AFTERNOON, EVENING, MORNING, NIGHT};
use super::token::{MOST, Tok, Token};
use super::when::{DAY, HOUR, MINUTE, WEEK};

const fn unit(seconds: u64, plural: bool) -> Tok {
    Tok::Unit { seconds, plural }
}

const fn one(day: Weekday) -> Tok {
    Tok::Weekday { day, plural: false }
}

const fn each(day: Weekday) -> Tok {
    Tok::Weekday { day, plural: true }
}

/// What is written in several ways, and what it means.
const WORDS: &[(&[&str], Tok)] = &[
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
    (&["jan", "january"], Tok::Month(1)),
    (&["feb", "february"], Tok::Month(2)),
    (&["mar", "march"], Tok::Month(3)),
    (&["apr", "april"], Tok::Month(4)),
    (&["may"], Tok::Month(5)),
    (&["jun", "june"], Tok::Month(6)),
    (&["jul", "july"], Tok::Month(7)),
    (&["aug", "august"], Tok::Month(8)),
    (&["sep", "sept", "september"], Tok::Month(9)),
    (&["oct", "october"], Tok::Month(10)),
    (&["nov", "november"], Tok::Month(11)),
    (&["dec", "december"], Tok::Month(12)),
    (&["morning"], Tok::Part(MORNING)),
    (&["afternoon"], Tok::Part(AFTERNOON)),
    (&["evening"], Tok::Part(EVENING)),
    (&["night"], Tok::Part(NIGHT)),
    (&["today"], Tok::Day(0, None)),
    (&["tonight"], Tok::Day(0, Some(NIGHT))),
    (&["tomorrow"], Tok::Day(1, None)),
    (&["a", "an"], Tok::Word("a")),
    (&["am", "a.m", "a.m."], Tok::Word("am")),
    (&["pm", "p.m", "p.m."], Tok::Word("pm")),
    (&["st", "nd", "rd", "th"], Tok::Word("th")),
    (&["every", "each"], Tok::Word("every")),
    (&["to", "until", "till", "through"], Tok::Word("to")),
    (&["except", "excluding", "before", "around"], Tok::Word("except")),
    (&["starting", "beginning"], Tok::Word("starting")),
    (&["once", "twice", "thrice"], Tok::Word("twice")),
    (&["about", "approximately", "roughly"], Tok::Word("about")),
    (&["month", "months"], Tok::Word("month")),
    (&["year", "years"], Tok::Word("year")),
    (&["yearly", "annually"], Tok::Word("yearly")),
    (&["noon", "midday"], Tok::Word("noon")),
    (&["o'clock", "oclock"], Tok::Word("o'clock")),
    (&["quarter", "quarters"], Tok::Word("quarter")),
    (&["work", "working"], Tok::Word("working")),
    (&["weekday", "workday"], Tok::Word("weekday")),
    (&["weekdays", "workdays"], Tok::Word("weekdays")),
];

/// Words that stand for themselves.
const PLAIN: &[&str] = &[
    "after", "and", "at", "between", "by", "daily", "fifth", "first", "for", "fourth", "from", "half", "hourly", "in",
    "last", "midnight", "monthly", "next", "now", "of", "on", "or", "other", "past", "second", "the", "third", "this",
    "weekend", "weekends", "weekly",
];

const NUMBERS: &[(&str, u64)] = &[
    ("one", 1),
    ("two", 2),
    ("three", 3),
    ("four", 4),
    ("five", 5),
    ("six", 6),
    ("seven", 7),
    ("eight", 8),
    ("nine", 9),
    ("ten", 10),
    ("eleven", 11),
    ("twelve", 12),
    ("thirteen", 13),
    ("fourteen", 14),
    ("fifteen", 15),
    ("sixteen", 16),
    ("seventeen", 17),
    ("eighteen", 18),
    ("nineteen", 19),
    ("twenty", 20),
    ("thirty", 30),
    ("forty", 40),
    ("fifty", 50),
    ("sixty", 60),
    ("ninety", 90),
];

/// The words of the text, the first of them.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next().filter(|_| tokens.len() < MOST) {
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
        let tok = meaning(&text[start..end], first);
        match tokens.last_mut() {
            // "2x" is no number.
            Some(last) if last.end == start && tok == Tok::Unknown && is_of_word(first) => {
                (last.tok, last.end) = (Tok::Unknown, end);
            }
            _ => tokens.push(Token { tok, start, end }),
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

/// The length of "a.m." with its dots.
fn half_of_day(text: &str) -> Option<usize> {
    let is_half = |length: usize| {
        let head = text.get(..length).unwrap_or_default().to_ascii_lowercase();
        ["a.m", "p.m", "a.m.", "p.m."].contains(&head.as_str())
    };
    let length = [4, 3].into_iter().find(|length| is_half(*length))?;
    let follows = text[length..].chars().next();
    (!follows.is_some_and(char::is_alphanumeric)).then_some(length)
}

fn meaning(word: &str, first: char) -> Tok {
    if first.is_ascii_digit() {
        return word.parse().map_or(Tok::Unknown, |value| Tok::Number { value, digits: word.len() });
    }
    if !is_of_word(first) {
        return Tok::Mark(if matches!(first, '–' | '—') { '-' } else { first });
    }
    let word = word.to_lowercase().replace('’', "'");
    if let Some((_, tok)) = WORDS.iter().find(|(written, _)| written.contains(&word.as_str())) {
        return *tok;
    }
    if let Some((_, value)) = NUMBERS.iter().find(|(written, _)| *written == word) {
        return Tok::Number { value: *value, digits: 0 };
    }
    PLAIN.iter().find(|plain| **plain == word).map_or(Tok::Unknown, |plain| Tok::Word(plain))
}

/// "twenty five" and "twenty-five" as one number.
fn compounds(tokens: Vec<Token>) -> Vec<Token> {
    let spelled = |tok: Tok, least: u64, most: u64| match tok {
        Tok::Number { value, digits: 0 } => Some(value).filter(|value| (least..=most).contains(value)),
        _ => None,
    };
    let mut joined: Vec<Token> = Vec::new();
    for token in tokens {
        let small = spelled(token.tok, 1, 9);
        let is_hyphenated = matches!(joined.last(), Some(last) if last.tok == Tok::Mark('-'));
        let tens_at = joined.len().checked_sub(if is_hyphenated { 2 } else { 1 });
        let tens = tens_at.and_then(|at| spelled(joined[at].tok, 20, 90).map(|tens| (at, tens)));
        match (small, tens) {
            (Some(small), Some((at, tens))) if tens.is_multiple_of(10) => {
                joined.truncate(at + 1);
                joined[at].tok = Tok::Number { value: tens + small, digits: 0 };
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
    fn words_and_numbers() {
        let found = |text: &str| tokens(text).into_iter().map(|token| token.tok).collect::<Vec<_>>();
        let number = |value, digits| Tok::Number { value, digits };
        assert_eq!(found("twenty-five twenty five 25"), [number(25, 0), number(25, 0), number(25, 2)]);
        assert_eq!(
            found("9 a.m., 1h30m"),
            [
                number(9, 1),
                Tok::Word("am"),
                Tok::Mark(','),
                number(1, 1),
                unit(HOUR, false),
                number(30, 2),
                unit(MINUTE, false)
            ]
        );
        assert_eq!(found("2x Monday's"), [Tok::Unknown, Tok::Unknown]);
        assert_eq!(tokens(&"a ".repeat(1_000)).len(), MOST);
        assert_eq!(tokens("at 99999999999999999999")[1], Token { tok: Tok::Unknown, start: 3, end: 23 });
    }
}
