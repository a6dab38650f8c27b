//! English times: "in 10 minutes", "tomorrow at 9", "every monday at 8:30".

use jiff::civil::{Date, Time, Weekday};

use super::when::{DAY, Day, HOUR, MINUTE, WEEK, When, morning, seconds};

const UNITS: &[(&[&str], u64)] = &[
    (&["s", "sec", "secs", "second", "seconds"], 1),
    (&["m", "min", "mins", "minute", "minutes"], MINUTE),
    (&["h", "hr", "hrs", "hour", "hours"], HOUR),
    (&["d", "day", "days"], DAY),
    (&["w", "week", "weeks"], WEEK),
];

const NUMBERS: &[(&str, u64)] = &[
    ("a", 1),
    ("an", 1),
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
    ("twelve", 12),
    ("fifteen", 15),
    ("twenty", 20),
    ("thirty", 30),
    ("forty", 40),
    ("sixty", 60),
    ("ninety", 90),
];

const WEEKDAYS: [(&str, &str, Weekday); 7] = [
    ("monday", "mon", Weekday::Monday),
    ("tuesday", "tue", Weekday::Tuesday),
    ("wednesday", "wed", Weekday::Wednesday),
    ("thursday", "thu", Weekday::Thursday),
    ("friday", "fri", Weekday::Friday),
    ("saturday", "sat", Weekday::Saturday),
    ("sunday", "sun", Weekday::Sunday),
];

/// Reads a text that is a time and nothing else.
pub(super) fn read(text: &str) -> Option<When> {
    let lower = text.to_ascii_lowercase();
    let words: Vec<&str> = lower.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    match words.as_slice() {
        ["in" | "after", span @ ..] => Some(When::In(length(span)?)),
        [span @ .., "from", "now"] => Some(When::In(length(span)?)),
        ["every" | "each", rest @ ..] => every(rest),
        ["daily", rest @ ..] => daily(None, rest),
        words => moment(words),
    }
}

/// "10 minutes", "an hour and 5 minutes", "half an hour", "1h30m", in seconds.
fn length(words: &[&str]) -> Option<u64> {
    if let ["half", "an", "hour"] = words {
        return Some(HOUR / 2);
    }
    let mut total: u64 = 0;
    let mut rest = words;
    while let [first, tail @ ..] = rest {
        let (part, after) = match (number(first), tail) {
            (Some(count), [word, after @ ..]) => (seconds(count, unit(word)?)?, after),
            _ if *first == "and" && total > 0 => (0, tail),
            _ => (compact(first)?, tail),
        };
        total = total.checked_add(part)?;
        rest = after;
    }
    seconds(total, 1)
}

/// "10m", "1h30m".
fn compact(word: &str) -> Option<u64> {
    let mut rest = word;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (count, tail) = rest.split_at(digits);
        let end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        total = total.checked_add(seconds(count.parse().ok()?, unit(&tail[..end])?)?)?;
        rest = &tail[end..];
    }
    Some(total)
}

fn number(word: &str) -> Option<u64> {
    let spelled = NUMBERS.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    spelled.or_else(|| word.parse().ok())
}

fn unit(word: &str) -> Option<u64> {
    UNITS.iter().find(|(names, _)| names.contains(&word)).map(|(_, seconds)| *seconds)
}

fn weekday(word: &str) -> Option<Weekday> {
    WEEKDAYS.iter().find(|(long, short, _)| word == *long || word == *short).map(|(_, _, day)| *day)
}

/// What follows "every".
fn every(words: &[&str]) -> Option<When> {
    match words {
        ["day", rest @ ..] => daily(None, rest),
        ["morning", rest @ ..] => daily(None, rest),
        ["weekday" | "workday", rest @ ..] | ["working" | "work" | "week", "day", rest @ ..] => {
            match daily(None, rest)? {
                When::Weekly { clock, .. } => Some(When::Working { clock }),
                _ => None,
            }
        }
        ["evening" | "night"] => Some(When::Weekly { weekday: None, clock: Time::constant(20, 0, 0, 0) }),
        [day, rest @ ..] if weekday(day).is_some() => daily(weekday(day), rest),
        [word] if unit(word).is_some() => Some(When::Every(unit(word)?)),
        span => Some(When::Every(length(span)?)),
    }
}

fn daily(weekday: Option<Weekday>, words: &[&str]) -> Option<When> {
    match words {
        [] => Some(When::Weekly { weekday, clock: morning() }),
        words => match moment(words)? {
            When::At { day: Day::Next, clock } => Some(When::Weekly { weekday, clock }),
            _ => None,
        },
    }
}

/// A day, a clock time, or both in either order.
fn moment(words: &[&str]) -> Option<When> {
    let (mut day, mut clock): (Option<Day>, Option<Time>) = (None, None);
    let mut evening = false;
    let mut rest = words;
    while !rest.is_empty() {
        rest = match rest {
            ["the", "day", "after", "tomorrow", tail @ ..] | ["day", "after", "tomorrow", tail @ ..]
                if day.is_none() =>
            {
                day = Some(Day::Ahead(2));
                tail
            }
            ["in", "the", "morning", tail @ ..] | ["morning", tail @ ..] if day.is_some() || clock.is_some() => tail,
            ["in", "the", "afternoon" | "evening", tail @ ..] if clock.is_some() => {
                evening = true;
                tail
            }
            ["at", "noon", tail @ ..] | ["noon", tail @ ..] if clock.is_none() => {
                clock = Some(Time::constant(12, 0, 0, 0));
                tail
            }
            ["at", "midnight", tail @ ..] | ["midnight", tail @ ..] if clock.is_none() => {
                clock = Some(Time::midnight());
                tail
            }
            ["at" | "by", time, half @ ("am" | "pm" | "a.m." | "p.m."), tail @ ..] if clock.is_none() => {
                clock = Some(read_clock(&format!("{time}{half}"), Said::Alone)?);
                tail
            }
            ["at" | "by", time, tail @ ..] if clock.is_none() => {
                clock = Some(read_clock(time, Said::AfterAt)?);
                tail.strip_prefix(&["o'clock"]).unwrap_or(tail)
            }
            [time, half @ ("am" | "pm"), tail @ ..] if clock.is_none() => {
                clock = Some(read_clock(&format!("{time}{half}"), Said::Alone)?);
                tail
            }
            ["tonight", tail @ ..] if day.is_none() => {
                (day, evening) = (Some(Day::Ahead(0)), true);
                tail
            }
            ["next", name, tail @ ..] if day.is_none() => {
                day = Some(Day::NextWeekday(weekday(name)?));
                tail
            }
            ["on", name, tail @ ..] if day.is_none() => {
                day = Some(read_day(name)?);
                tail
            }
            [word, tail @ ..] => {
                match read_clock(word, Said::Alone) {
                    Some(time) if clock.is_none() => clock = Some(time),
                    None if day.is_none() => day = Some(read_day(word)?),
                    _ => return None,
                }
                tail
            }
            [] => rest,
        };
    }
    let clock = match clock {
        Some(clock) if evening && (1..12).contains(&clock.hour()) => {
            clock.with().hour(clock.hour() + 12).build().ok()?
        }
        Some(clock) => clock,
        None if evening => Time::constant(20, 0, 0, 0),
        None if day.is_some() => morning(),
        None => return None,
    };
    Some(When::At { day: day.unwrap_or(Day::Next), clock })
}

fn read_day(word: &str) -> Option<Day> {
    match word {
        "today" => Some(Day::Ahead(0)),
        "tomorrow" => Some(Day::Ahead(1)),
        name => weekday(name).map(Day::Weekday).or_else(|| name.parse::<Date>().ok().map(Day::On)),
    }
}

/// How a clock time was said: a bare `3` is one only after "at".
#[derive(Clone, Copy, PartialEq, Eq)]
enum Said {
    AfterAt,
    Alone,
}

/// "15:00", "3pm", "3:30pm", "9".
fn read_clock(word: &str, said: Said) -> Option<Time> {
    let word = word.replace('.', "");
    let (digits, half) = match (word.strip_suffix("am"), word.strip_suffix("pm")) {
        (Some(digits), _) => (digits, Some(0)),
        (_, Some(digits)) => (digits, Some(12)),
        _ => (word.as_str(), None),
    };
    if said == Said::Alone && half.is_none() && !digits.contains(':') {
        return None;
    }
    let (hour, minute) = digits.split_once(':').unwrap_or((digits, "0"));
    let hour: i8 = hour.parse().ok()?;
    let hour = match half {
        Some(_) if !(1..=12).contains(&hour) => return None,
        Some(half) => hour % 12 + half,
        None => hour,
    };
    Time::new(hour, minute.parse().ok()?, 0, 0).ok()
}

#[cfg(test)]
mod tests {
    use jiff::civil::{date, time};

    use super::*;

    #[test]
    fn english_times() {
        let at = |day, hour, minute| Some(When::At { day, clock: time(hour, minute, 0, 0) });
        let weekly = |weekday, hour, minute| Some(When::Weekly { weekday, clock: time(hour, minute, 0, 0) });
        let cases = [
            ("in 10 minutes", Some(When::In(600))),
            ("in an hour and 5 minutes", Some(When::In(3_900))),
            ("in half an hour", Some(When::In(1_800))),
            ("in 1h30m", Some(When::In(5_400))),
            ("two days from now", Some(When::In(172_800))),
            ("at 15:00", at(Day::Next, 15, 0)),
            ("at 3 pm", at(Day::Next, 15, 0)),
            ("At 12am", at(Day::Next, 0, 0)),
            ("at 9 o'clock", at(Day::Next, 9, 0)),
            ("tomorrow at 9", at(Day::Ahead(1), 9, 0)),
            ("at 9:15 tomorrow", at(Day::Ahead(1), 9, 15)),
            ("the day after tomorrow", at(Day::Ahead(2), 9, 0)),
            ("tonight at 8", at(Day::Ahead(0), 20, 0)),
            ("on friday at noon", at(Day::Weekday(Weekday::Friday), 12, 0)),
            ("next friday at noon", at(Day::NextWeekday(Weekday::Friday), 12, 0)),
            ("on 2026-12-24 at 18:00", at(Day::On(date(2026, 12, 24)), 18, 0)),
            ("every 2 hours", Some(When::Every(7_200))),
            ("every minute", Some(When::Every(60))),
            ("every day at 9:30", weekly(None, 9, 30)),
            ("every monday at 8", weekly(Some(Weekday::Monday), 8, 0)),
            ("every weekday at 8:15", Some(When::Working { clock: time(8, 15, 0, 0) })),
            ("every working day", Some(When::Working { clock: time(9, 0, 0, 0) })),
            ("daily", weekly(None, 9, 0)),
            ("3", None),
            ("at 25:00", None),
            ("in 0 minutes", None),
            ("in 99999999999999999999 minutes", None),
            ("in 9999999999999999999 weeks", None),
            ("every", None),
            ("in", None),
            ("at", None),
            ("soon", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text), expected, "{text}");
        }
    }
}
