//! Parses cron expressions. This is own code, since croner's errors name neither the field nor the remedy, and croner accepts
//! empty values such as `1,,2`.

use std::str::FromStr;

use super::cron_pattern::{CronPattern, MonthDaySet, WeekdaySet};
use super::error::ScheduleError;

/// The longest expression, in bytes.
const MAX_LENGTH: usize = 200;

const NICKNAMES: &[(&str, &str)] = &[
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// One of the six fields.
struct CronField {
    name: &'static str,
    min: u32,
    max: u32,
    /// The names of the values from `min` on.
    names: &'static [&'static str],
}

const SECOND: CronField = CronField { name: "second", min: 0, max: 59, names: &[] };
const MINUTE: CronField = CronField { name: "minute", min: 0, max: 59, names: &[] };
const HOUR: CronField = CronField { name: "hour", min: 0, max: 23, names: &[] };
const DAY: CronField = CronField { name: "day-of-month", min: 1, max: 31, names: &[] };
const MONTH: CronField = CronField {
    name: "month",
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
/// 7 is Sunday as well.
const WEEKDAY: CronField =
    CronField { name: "day-of-week", min: 0, max: 7, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

impl FromStr for CronPattern {
    type Err = ScheduleError;

    fn from_str(expr: &str) -> Result<Self, ScheduleError> {
        if expr.len() > MAX_LENGTH {
            return Err(ScheduleError(format!("the cron expression is longer than {MAX_LENGTH} bytes")));
        }
        let lower = expr.trim().to_lowercase();
        let wrong = |why: String| ScheduleError(format!("the cron expression {expr:?} is wrong: {why}"));
        let lower = match NICKNAMES.iter().find(|(nickname, _)| *nickname == lower) {
            Some((_, fields)) => *fields,
            None if lower.starts_with('@') => return Err(wrong(unknown_nickname())),
            None => &lower,
        };
        if lower.starts_with("cron_tz=") || lower.starts_with("tz=") {
            return Err(wrong(
                "the time zone is not part of it; give the zone as tz (on the command line --tz)".to_owned(),
            ));
        }
        let fields: Vec<&str> = lower.split_whitespace().collect();
        let [second, minute, hour, day, month, weekday] = match *fields.as_slice() {
            [minute, hour, day, month, weekday] => ["0", minute, hour, day, month, weekday],
            [second, minute, hour, day, month, weekday] => [second, minute, hour, day, month, weekday],
            ref other => return Err(wrong(count_of_fields(other.len()))),
        };
        let starred = |field: &str| field.starts_with(['*', '?']);
        let read = || -> Result<Self, String> {
            Ok(Self {
                seconds: SECOND.read(second)?,
                minutes: MINUTE.read(minute)?,
                hours: HOUR.read(hour)?,
                days: read_days(day)?,
                months: MONTH.read(month)?,
                weekdays: read_weekdays(weekday)?,
                both_days: starred(day) || starred(weekday),
                follows_clock: [second, minute, hour].into_iter().any(starred),
            })
        };
        read().map_err(wrong)
    }
}

fn unknown_nickname() -> String {
    let known: Vec<_> = NICKNAMES.iter().map(|(nickname, _)| *nickname).collect();
    format!("of the words with @ there are {}", known.join(", "))
}

fn count_of_fields(count: usize) -> String {
    format!(
        "it has {count} fields; there are 5 (minute hour day-of-month month day-of-week) or 6 (with the second first), or a \
         word such as @daily"
    )
}

fn read_days(text: &str) -> Result<MonthDaySet, String> {
    let mut days = MonthDaySet::default();
    for part in text.split(',') {
        match part {
            "?" => days.set |= DAY.part(text, "*")?,
            "l" => days.last = true,
            "lw" | "wl" => days.last_working = true,
            part => match part.strip_suffix('w') {
                Some(day) => days.nearest |= 1 << DAY.value(text, day)?,
                None => days.set |= DAY.part(text, part)?,
            },
        }
    }
    Ok(days)
}

fn read_weekdays(text: &str) -> Result<WeekdaySet, String> {
    let mut weekdays = WeekdaySet::default();
    // Sunday is 0 and 7.
    let fold = |set: u64| (set | set >> 7) & 0x7f;
    for part in text.split(',') {
        if part == "?" {
            weekdays.set |= fold(WEEKDAY.part(text, "*")?);
        } else if part == "l" {
            return Err(WEEKDAY.wrong(text, "L stands behind a day here: 5L is the last Friday of the month"));
        } else if let Some((day, nth)) = part.split_once('#') {
            let nth = nth.parse::<usize>().ok().filter(|nth| (1..=5).contains(nth));
            let nth = nth.ok_or_else(|| WEEKDAY.wrong(text, "behind # stands which one of the month, 1 to 5"))?;
            weekdays.nth[nth - 1] |= fold(1 << WEEKDAY.value(text, day)?);
        } else if let Some(day) = part.strip_suffix('l') {
            weekdays.last |= fold(1 << WEEKDAY.value(text, day)?);
        } else {
            weekdays.set |= fold(WEEKDAY.part(text, part)?);
        }
    }
    Ok(weekdays)
}

impl CronField {
    fn read(&self, text: &str) -> Result<u64, String> {
        text.split(',').try_fold(0, |set, part| Ok(set | self.part(text, part)?))
    }

    /// `*`, `5`, `mon-fri`, `*/15`, `10-40/5`, `10/5`.
    fn part(&self, text: &str, part: &str) -> Result<u64, String> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(self.step(text, step)?)),
            None => (part, None),
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (self.min, self.max),
            Some((first, last)) => (self.value(text, first)?, self.end(text, last)?),
            None => {
                let value = self.value(text, range)?;
                (value, if step.is_some() { self.max } else { value })
            }
        };
        if first > last {
            return Err(self.wrong(text, &format!("{range} runs backwards; write it as two ranges")));
        }
        // A star in the day-of-week field means each day once.
        let last = if range == "*" && self.name == WEEKDAY.name { 6 } else { last };
        let step = usize::try_from(step.unwrap_or(1)).unwrap_or(usize::MAX);
        Ok((first..=last).step_by(step).fold(0, |set, value| set | 1 << value))
    }

    /// Reads the end of a range, in which Sunday follows Saturday.
    fn end(&self, text: &str, word: &str) -> Result<u32, String> {
        match self.value(text, word)? {
            0 if self.name == WEEKDAY.name && word != "0" => Ok(7),
            value => Ok(value),
        }
    }

    fn value(&self, text: &str, word: &str) -> Result<u32, String> {
        if let Some(place) = self.names.iter().position(|name| *name == word) {
            return Ok(self.min + u32::try_from(place).unwrap_or(0));
        }
        let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        let value = if digits { word.parse().ok() } else { None };
        value.filter(|value| (self.min..=self.max).contains(value)).ok_or_else(|| {
            let or_name = match self.names {
                [] => String::new(),
                [first, .., last] => format!(" or {} to {}", first.to_uppercase(), last.to_uppercase()),
                [only] => format!(" or {}", only.to_uppercase()),
            };
            let what = if word.is_empty() { "a value is missing".to_owned() } else { format!("{word:?} is none") };
            self.wrong(text, &format!("{what} of {} to {}{or_name}", self.min, self.max))
        })
    }

    fn step(&self, text: &str, word: &str) -> Result<u32, String> {
        let step = word.parse::<u32>().ok().filter(|step| (1..=self.max).contains(step));
        step.ok_or_else(|| {
            let why = format!(
                "a step goes from 1 to {}, and begins anew with each field; for a longer interval use `every` in place of cron",
                self.max
            );
            self.wrong(text, &why)
        })
    }

    fn wrong(&self, text: &str, why: &str) -> String {
        format!("in its {} field {text:?}, {why}", self.name)
    }
}
