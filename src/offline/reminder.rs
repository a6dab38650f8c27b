//! Reads reminders, and creates the arguments of the tool `cron` for them.

use daoyou_channels::settings::Span;
use jiff::civil::DateTime;
use serde_json::{Map, Value, json};

use super::context::MessageTime;
use super::reply;
use crate::text::Language;
use crate::text::time_expression::{self as time, DueTime, TimeExpression, TimeFault, TimeParseError};

/// The longest time in words, in bytes.
const MAX_TIME: usize = 150;
/// The longest name of a job, in characters; the name is the beginning of the note.
const MAX_NAME: usize = 30;

/// A reminder as the user asks for it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reminder {
    At {
        when: TimeExpression,
        note: String,
    },
    /// A reminder without a time.
    NoTime {
        note: String,
    },
    /// A reminder with a time that is not completely understood.
    Unclear(TimeParseError),
}

impl Reminder {
    /// Reads the text after "remind me": a time and a note, in either order.
    pub fn read(text: &str, language: Language) -> Self {
        let text = text.trim().trim_start_matches(['，', ',', '：', ':', ' ']);
        let at = |(when, note): (TimeExpression, &str)| Self::At { when, note: clean(note) };
        if let Some(found) = time_and_note(text, language) {
            return at(found);
        }
        let text = strip_lead(text, language);
        match time::explain_partial_time(text, language) {
            Some(misread) => Self::Unclear(misread),
            None => Self::NoTime { note: clean(text) },
        }
    }

    /// Reads "WHEN, remind me NOTE"; `None` if the words before are no time.
    pub fn read_time_first(when: &str, note: &str, language: Language) -> Option<Self> {
        match time::parse(when.trim()) {
            Ok(when) => Some(Self::At { when, note: clean(strip_lead(note.trim(), language)) }),
            Err(_) => time::explain_partial_time(when.trim(), language).map(Self::Unclear),
        }
    }

    /// Returns the arguments of the tool `cron`. The job sends the message unchanged, so it needs no model at its time.
    ///
    /// # Errors
    /// There is no such time; the text is for the user.
    pub fn to_arguments(&self, language: Language, now: Option<&MessageTime>) -> Result<Value, String> {
        let (when, note) = match self {
            Self::At { when, note } => (when, note),
            Self::NoTime { note } => return Err(reply::ask_when(language, note)),
            Self::Unclear(misread) => {
                let wrong = match language {
                    Language::En => misread.to_string(),
                    Language::Zh => misread.chinese(),
                };
                return Err(reply::unclear_time(language, &wrong));
            }
        };
        let stamp = |at: DateTime| now.map_or_else(|| at.to_string(), |now| now.stamp(at));
        let times = match when.due(now.map(|now| now.at)) {
            Some(DueTime::At(at)) if now.is_some_and(|now| at <= now.at) => return Err(reply::past_time(language)),
            Some(DueTime::At(at)) => vec![("at", stamp(at))],
            // A wait stays relative, since the time of the message is known only to the minute.
            Some(DueTime::In(seconds)) => vec![("at", format!("in {}", Span::from_secs(seconds)))],
            Some(DueTime::Every { seconds, first }) => {
                let every = ("every", Span::from_secs(seconds).to_string());
                first.map(|first| ("at", stamp(first))).into_iter().chain([every]).collect()
            }
            Some(DueTime::Cron(expression)) => {
                let zone = now.filter(|now| now.has_zone()).map(|now| ("tz", now.zone.clone()));
                zone.into_iter().chain([("cron_expr", expression)]).collect()
            }
            None if now.is_none() => return Err(reply::no_clock(language)),
            None => {
                let wrong = match language {
                    Language::En => TimeFault::NoSuchDate.to_string(),
                    Language::Zh => TimeFault::NoSuchDate.chinese().to_owned(),
                };
                return Err(reply::unclear_time(language, &wrong));
            }
        };
        let note = if note.is_empty() { reply::time_has_come(language) } else { note };
        let message = reply::reminder(language, note);
        let what = [("action", "add"), ("kind", "message"), ("message", &message), ("name", &name(note))];
        let what = what.into_iter().map(|(key, value)| (key, value.to_owned()));
        Ok(what.chain(times).map(|(key, value)| (key.to_owned(), json!(value))).collect::<Map<_, _>>().into())
    }
}

/// Returns the name of the job that holds a reminder.
pub(super) fn name(note: &str) -> String {
    note.chars().take(MAX_NAME).collect::<String>().trim().to_owned()
}

/// Splits a text into a time and a note. The time is the longest one at the beginning, or one at the end. A rest that continues
/// the time, or leads up to it, is no note.
fn time_and_note(text: &str, language: Language) -> Option<(TimeExpression, &str)> {
    let leading = |note_of: &dyn Fn(&str) -> Option<usize>| {
        let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]).filter(|at| (1..=MAX_TIME).contains(at));
        ends.rev().find_map(|end| {
            let note = &text[end + note_of(&text[end..])?..];
            Some((time::parse(text[..end].trim()).ok()?, note))
        })
    };
    // The text after "that", "about" or a colon is a note, even if it begins with a time.
    let marked_note = |rest: &str| {
        let words: &[&str] = if language == Language::En { &[" that ", " about ", ":"] } else { &[] };
        let is_clock = rest.strip_prefix(':').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        match rest {
            "" => Some(0),
            _ if is_clock => None,
            _ => prefix(rest, words),
        }
    };
    let joined = |rest: &str| {
        let lead = match language {
            Language::En => prefix(rest, &[" to ", ","])?,
            Language::Zh => prefix(rest, &["，", ",", "去", "要"]).unwrap_or(0),
        };
        (!time::starts_with_time(rest[lead..].trim(), language)).then_some(lead)
    };
    let bare = |rest: &str| (rest.starts_with(' ') && !time::starts_with_time(rest.trim(), language)).then_some(0);
    leading(&marked_note)
        .or_else(|| leading(&joined))
        .or_else(|| trailing_time(strip_lead(text, language), language))
        .or_else(|| leading(&bare))
}

/// Splits a text into a note and the longest time at its end.
fn trailing_time(text: &str, language: Language) -> Option<(TimeExpression, &str)> {
    text.char_indices().skip(1).find_map(|(at, c)| {
        let (note, when) = text.split_at(at);
        if when.len() > MAX_TIME || (language == Language::En && c != ' ') {
            return None;
        }
        let when = time::parse(when.trim()).ok()?;
        let note =
            if language == Language::Zh { note.trim_end_matches('在').trim_end_matches(['，', ',']) } else { note };
        (!note.trim().is_empty() && !time::ends_with_time(note.trim(), language)).then_some((when, note))
    })
}

/// Returns the length of the first of `words` with which `text` begins.
fn prefix(text: &str, words: &[&str]) -> Option<usize> {
    let begins = |word: &&&str| text.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word));
    words.iter().find(begins).map(|word| word.len())
}

fn strip_lead(text: &str, language: Language) -> &str {
    let words: &[&str] = match language {
        Language::En => &["to ", "that ", "about ", "of "],
        Language::Zh => &["在"],
    };
    &text[prefix(text, words).unwrap_or(0)..]
}

/// Returns a note without the punctuation before it and the quotes around it.
fn clean(note: &str) -> String {
    let note = note.trim().trim_start_matches([':', '：', ',', '，', ' ']);
    unquoted(note).unwrap_or(note).to_owned()
}

/// Returns the text between quotes that enclose all of `text`.
pub(super) fn unquoted(text: &str) -> Option<&str> {
    const PAIRS: [(char, char); 6] = [('"', '"'), ('\'', '\''), ('`', '`'), ('“', '”'), ('‘', '’'), ('「', '」')];
    PAIRS.iter().find_map(|(open, close)| {
        let inner = text.strip_prefix(*open)?.strip_suffix(*close)?;
        (!inner.contains(*open) && !inner.contains(*close)).then_some(inner)
    })
}
