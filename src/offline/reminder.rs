//! Reads reminders, and creates the arguments of the tool `cron` for them.

use daoyou_channels::settings::HumanDuration;
use jiff::civil::DateTime;
use jiff::tz::{self, TimeZone};
use serde_json::{Map, Value, json};

use super::context::MessageTime;
use super::reply;
use crate::text::time_expression::{self as time, DueTime, TimeExpression, TimeFault, TimeParseError};
use crate::text::{Language, truncate};

/// The longest time in words, in bytes.
const MAX_TIME: usize = 150;
/// The longest name by which a reminder is found, in characters; the name is the beginning of the note.
const MAX_NAME: usize = 30;
/// Words at the beginning of an English text that lead to a note.
const LEADS: &[&str] = &["to ", "that ", "about ", "of "];
/// Words at the beginning of an English text that name a time, even one that is not understood.
const TIME_LEADS: &[&str] = &[
    "after ", "at ", "before ", "by ", "every ", "in ", "last ", "later", "next ", "on ", "once ", "sometime", "soon",
    "this ", "until ", "when ", "yesterday",
];
/// Words at the beginning of a Chinese text that name a vague time.
const VAGUE_TIMES: &[&str] =
    &["昨天", "稍后", "待会", "一会", "等会", "等下", "晚点", "晚一点", "晚些", "改天", "回头"];
/// Words after a time in English that continue it, or say that it is not a time of a reminder.
const CONTINUATIONS: &[&str] = &["not", "week", "is", "are", "was", "were"];
/// The ends of a note before a time that belong to it: "the meeting is at 3pm" is not a reminder at 3pm of "the meeting
/// is".
const COPULAS: &[&str] = &[" is", " are", " was", " were", "是"];
/// Words after a time in English that name its zone.
const ZONES: &[&str] = &[
    "aedt", "aest", "akst", "bst", "cdt", "cest", "cet", "cst", "edt", "eest", "eet", "est", "gmt", "hkt", "hst",
    "ist", "jst", "kst", "mdt", "msk", "mst", "nzst", "pdt", "pst", "sgt", "utc", "wet",
];
/// The maximum number of words of a place before the word "time".
const MAX_PLACE: usize = 3;

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
        let leads = if language == Language::En { TIME_LEADS } else { VAGUE_TIMES };
        let is_time = prefix(text, leads).is_some();
        let text = strip_lead(text, language);
        match time::explain_partial_time(text, language) {
            Some(misread) => Self::Unclear(misread),
            None if is_time => {
                let rest = truncate(text, MAX_TIME);
                Self::Unclear(TimeParseError { understood: String::new(), rest, fault: None })
            }
            None => Self::NoTime { note: clean(text) },
        }
    }

    /// Reads "WHEN, remind me NOTE"; `None` if the words before are not a time.
    pub fn read_time_first(when: &str, note: &str, language: Language) -> Option<Self> {
        let (when, note) = (when.trim(), note.trim());
        // The 时 of 每小时 belongs to the time.
        let cut = when.strip_suffix("的时候").or(when.strip_suffix('时')).unwrap_or(when);
        let found = time::parse(when).or_else(|_| time::parse(cut));
        let is_marked = prefix(note, LEADS).is_some();
        let has_time = (!is_marked && time::starts_with_time(note, language)) || has_other_time(note, language);
        match found {
            _ if has_time && time::starts_with_time(when, language) => {
                Some(Self::read(&format!("{when} {note}"), language))
            }
            Ok(when) => Some(Self::At { when, note: clean(strip_lead(note, language)) }),
            Err(_) => time::explain_partial_time(when, language).map(Self::Unclear),
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
        let zone = || now.filter(|now| now.has_zone()).map(|now| ("tz", now.zone.clone()));
        let times = match when.due(now.map(|now| now.at)) {
            Some(DueTime::At(at)) if now.is_some_and(|now| at <= now.at) => return Err(reply::past_time(language)),
            Some(DueTime::At(at)) => vec![("at", stamp(at))],
            // A wait stays relative, since the time of the message is known only to the minute.
            Some(DueTime::In(seconds)) => vec![("at", format!("in {}", HumanDuration::from_secs(seconds)))],
            Some(DueTime::Every { seconds, first }) => {
                let every = ("every", HumanDuration::from_secs(seconds).to_string());
                // The time by the clock: an offset would fix the end of a gap as the time of all days, if the clock skips the first.
                let first = first.map(|first| ("at", first.to_string()));
                let zone = first.is_some().then(zone).flatten();
                zone.into_iter().chain(first).chain([every]).collect()
            }
            Some(DueTime::Cron(expression)) => zone().into_iter().chain([("cron_expr", expression)]).collect(),
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
        // Without a name, the job is named after the note, with a number if the name is taken.
        let what = [("action", "add"), ("kind", "message"), ("message", &message)];
        let what = what.into_iter().map(|(key, value)| (key, value.to_owned()));
        Ok(what.chain(times).map(|(key, value)| (key.to_owned(), json!(value))).collect::<Map<_, _>>().into())
    }
}

/// Returns the name of the job that holds a reminder with this note.
pub(super) fn name(note: &str) -> String {
    note.chars().take(MAX_NAME).collect::<String>().trim().to_owned()
}

/// Returns true if a note names a time of another task or, in Chinese, a second time at its end: 喝水三次.
fn has_other_time(note: &str, language: Language) -> bool {
    time::has_second_time(note, language, 0) || (language == Language::Zh && time::ends_with_time(note, language))
}

/// Splits a text into a time and a note. The time is the longest one at the beginning, or one at the end. A rest that continues
/// the time, or leads up to it, is not a note.
fn time_and_note(text: &str, language: Language) -> Option<(TimeExpression, &str)> {
    let leading = |note_of: &dyn Fn(&str) -> Option<usize>| {
        let is_whole = |end: &usize| *end <= MAX_TIME && !splits_date(&text[..*end], &text[*end..], language);
        let ends = time::time_ends(text, language).into_iter().filter(is_whole);
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
            Language::En => prefix(rest, &[" to ", ", to "])
                .or_else(|| prefix(rest, &[","]).filter(|lead| !continues_time(&rest[*lead..])))?,
            // 明天9点的会议 and 明天是周末 are not a time with a note.
            Language::Zh if rest.starts_with(['的', '是']) => return None,
            Language::Zh => prefix(rest, &["，", ",", "去", "要"]).unwrap_or(0),
        };
        let note = rest[lead..].trim();
        (!time::starts_with_time(note, language) && !has_other_time(note, language)).then_some(lead)
    };
    let is_unread = |rest: &str| language == Language::En && continues_time(rest);
    let bare = |rest: &str| {
        let note = rest.trim();
        let is_note = rest.starts_with(' ')
            && !is_unread(rest)
            && !time::starts_with_time(note, language)
            && !has_other_time(note, language);
        is_note.then_some(0)
    };
    leading(&marked_note)
        .or_else(|| leading(&joined))
        .or_else(|| trailing_time(text, language))
        .or_else(|| leading(&bare))
}

/// Returns true if a time ends with a day of a month and the rest begins with a month: `on the 5th, March`, 5日3月. The day before the
/// month was read alone then.
fn splits_date(when: &str, rest: &str, language: Language) -> bool {
    match language {
        Language::En => {
            let when = when.trim_end().to_ascii_lowercase();
            let number = ["st", "nd", "rd", "th"].iter().find_map(|end| when.strip_suffix(end));
            let is_day = number.is_some_and(|number| number.ends_with(|c: char| c.is_ascii_digit()));
            is_day && time::starts_with_period(rest.trim_start_matches([' ', ',']))
        }
        Language::Zh => {
            let month = rest
                .trim_start()
                .trim_start_matches(|c: char| c.is_ascii_digit() || "一二三四五六七八九十".contains(c));
            when.trim_end().ends_with(['日', '号']) && month.len() < rest.trim_start().len() && month.starts_with('月')
        }
    }
}

/// Returns true if an English text after a time begins with words that continue the time: its zone or place, or a span of days.
fn continues_time(rest: &str) -> bool {
    let words: Vec<&str> = rest.split([' ', ',']).filter(|word| !word.is_empty()).take(MAX_PLACE + 2).collect();
    let Some((first, others)) = words.split_first() else { return false };
    let lower = first.to_ascii_lowercase();
    let after_first = rest.trim_start_matches([' ', ',']).get(first.len()..).unwrap_or_default().trim_start();
    let span = after_first.strip_prefix("a ").or(after_first.strip_prefix("an ")).unwrap_or(after_first);
    let leads_to_note = |next: Option<&&str>| next.is_none_or(|next| next.eq_ignore_ascii_case("to"));
    let abbreviation = lower.split(['+', '-', ':']).next().unwrap_or_default();
    // Without capitals, "wet" and "est" may be words of a note.
    let is_zone = ZONES.contains(&abbreviation)
        && (first.starts_with(|c: char| c.is_ascii_uppercase()) || leads_to_note(others.first()));
    let at_time = words.iter().position(|word| word.eq_ignore_ascii_case("time"));
    let is_place_time = at_time.filter(|at| *at > 0).is_some_and(|at| {
        let is_name = words[..at].iter().all(|word| word.starts_with(char::is_uppercase));
        is_place(&words[..at]) || (is_name && words[at] == "time" && leads_to_note(words.get(at + 1)))
    });
    CONTINUATIONS.contains(&lower.as_str())
        || is_zone
        || is_place_time
        || (first.contains('/') && TimeZone::get(first).is_ok())
        || (matches!(lower.as_str(), "of" | "for") && time::starts_with_period(span))
        || (lower == "in" && (1..=others.len().min(MAX_PLACE)).any(|length| is_place(&others[..length])))
}

/// Returns true if words name a place that has a time zone, such as "New York".
fn is_place(words: &[&str]) -> bool {
    let name = words.join("_");
    let is_city = |zone: &str| zone.rsplit('/').next().is_some_and(|city| city.eq_ignore_ascii_case(&name));
    name.eq_ignore_ascii_case("local") || tz::db().available().any(|zone| is_city(zone.as_str()))
}

/// Splits a text into a note and the longest time at its end.
fn trailing_time(text: &str, language: Language) -> Option<(TimeExpression, &str)> {
    // A note after one of these words may begin with a time.
    let from = usize::from(language == Language::En && prefix(text, &["that ", "about ", "of "]).is_some());
    let text = strip_lead(text, language);
    let (note, when) = text.char_indices().skip(1).find_map(|(at, c)| {
        let (note, when) = text.split_at(at);
        if when.len() > MAX_TIME || (language == Language::En && c != ' ') {
            return None;
        }
        Some((note, time::parse(when.trim()).ok()?))
    })?;
    let note =
        if language == Language::Zh { note.trim_end_matches('在').trim_end_matches(['，', ',']) } else { note };
    let plain = note.trim();
    let is_note = !plain.is_empty()
        && !COPULAS.iter().any(|copula| plain.ends_with(copula))
        && !time::ends_with_time(plain, language)
        && !time::has_second_time(plain, language, from)
        && !time::has_time_before_joint(plain, language);
    is_note.then_some((when, note))
}

/// Returns the length of the first of `words` with which `text` begins.
fn prefix(text: &str, words: &[&str]) -> Option<usize> {
    let begins = |word: &&&str| text.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word));
    words.iter().find(begins).map(|word| word.len())
}

fn strip_lead(text: &str, language: Language) -> &str {
    let words: &[&str] = match language {
        Language::En => LEADS,
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

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    #[test]
    fn an_interval_of_days_keeps_a_time_that_the_clock_skips_on_the_first_day() {
        let reminder = Reminder::read("every other day at 2:30 to water", Language::En);
        let now = |zone: &str| MessageTime { at: date(2027, 3, 27).at(20, 0, 0, 0), zone: zone.to_owned() };
        for (now, at, tz) in [
            (now("Europe/Berlin"), "2027-03-28T02:30:00", json!("Europe/Berlin")),
            (now("+08:00"), "2027-03-28T02:30:00", json!("+08:00")),
            (now("CST"), "2027-03-28T02:30:00", Value::Null),
        ] {
            let arguments = reminder.to_arguments(Language::En, Some(&now)).unwrap();
            assert_eq!((&arguments["at"], &arguments["every"], &arguments["tz"]), (&json!(at), &json!("2d"), &tz));
        }
        let once = Reminder::read("tomorrow at 2:30 to water", Language::En);
        let arguments = once.to_arguments(Language::En, Some(&now("Europe/Berlin"))).unwrap();
        assert_eq!(arguments["at"], "2027-03-28T03:00:00+02:00", "the end of the gap");
    }
}
