//! The outline of a schedule, from which the description in each language is made.

use daoyou_channels::settings::HumanDuration;

use super::cron_pattern::{ALL_WEEKDAYS, CronPattern, values};

/// The maximum number of times of a day that are listed one by one.
const LISTED: usize = 4;

const EACH_HOUR: u64 = 0xff_ffff;
const EACH_SIXTIETH: u64 = 0x0fff_ffff_ffff_ffff;
const MONDAY_TO_FRIDAY: u64 = 0b011_1110;
const WEEKEND: u64 = 0b100_0001;
const EACH_MONTH: u64 = 0x1ffe;

/// The outline of the times of a day.
#[derive(Debug)]
pub(super) enum TimesOutline {
    /// Hours, minutes, seconds.
    At(Vec<(u32, u32, u32)>),
    /// Every `count` units, from the beginning of the next larger unit, in these hours.
    Every { count: u32, unit: IntervalUnit, hours: Option<(u32, u32)> },
    /// Each hour, or every few hours, at these minutes.
    Hourly { every: u32, minutes: Vec<u32>, hours: Option<(u32, u32)> },
    /// These seconds of these minutes of these hours; `None` for each one.
    Listed { seconds: Option<Vec<u32>>, minutes: Option<Vec<u32>>, hours: Option<Vec<u32>> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IntervalUnit {
    Second,
    Minute,
    Hour,
}

/// The outline of the days.
#[derive(Debug)]
pub(super) struct DaysOutline {
    /// The months; empty for all months.
    pub months: Vec<u32>,
    pub days: Option<MonthDaysOutline>,
    pub weekdays: Option<WeekdaysOutline>,
    /// A day must match both fields, not only one of them.
    pub both: bool,
}

#[derive(Debug)]
pub(super) struct MonthDaysOutline {
    pub days: Vec<u32>,
    pub nearest: Vec<u32>,
    pub last: bool,
    pub last_working: bool,
}

#[derive(Debug)]
pub(super) enum WeekdaysOutline {
    MondayToFriday,
    Weekend,
    Listed {
        days: Vec<u32>,
        /// The number within the month, 1 to 5, and the day of the week.
        nth: Vec<(u32, u32)>,
        last: Vec<u32>,
    },
}

/// Splits a span into days, hours, minutes, seconds and milliseconds: each with its number and the index of its unit, without
/// zeros.
pub(super) fn parts(span: HumanDuration) -> Vec<(u128, usize)> {
    let mut rest = span.0.as_millis();
    let mut parts = Vec::new();
    for (place, millis) in [86_400_000, 3_600_000, 60_000, 1_000, 1].into_iter().enumerate() {
        if rest >= millis {
            parts.push((rest / millis, place));
            rest %= millis;
        }
    }
    parts
}

pub(super) fn times(pattern: &CronPattern) -> TimesOutline {
    let (seconds, minutes, hours) = (values(pattern.seconds), values(pattern.minutes), values(pattern.hours));
    if seconds.len() == 1 && minutes.len() * hours.len() <= LISTED {
        let at = |h: &u32| minutes.iter().map(|m| (*h, *m, seconds[0])).collect::<Vec<_>>();
        return TimesOutline::At(hours.iter().flat_map(at).collect());
    }
    let even = (pattern.seconds == 1, even_step(&minutes, 60), even_step(&hours, 24));
    let period = match (pattern.hours == EACH_HOUR, contiguous(&hours)) {
        (true, _) => Some(None),
        (false, Some(period)) => Some(Some(period)),
        (false, None) => None,
    };
    match (even, period) {
        ((_, Some(1), _), Some(hours)) if seconds.len() > 1 && even_step(&seconds, 60).is_some() => {
            TimesOutline::Every { count: even_step(&seconds, 60).unwrap_or(1), unit: IntervalUnit::Second, hours }
        }
        ((true, Some(count), _), Some(hours)) if minutes.len() > 1 => {
            TimesOutline::Every { count, unit: IntervalUnit::Minute, hours }
        }
        ((true, ..), Some(hours)) if minutes.len() <= LISTED => TimesOutline::Hourly { every: 1, minutes, hours },
        ((true, _, Some(every)), None) if minutes == [0] => {
            TimesOutline::Every { count: every, unit: IntervalUnit::Hour, hours: None }
        }
        ((true, _, Some(every)), None) if minutes.len() <= LISTED => {
            TimesOutline::Hourly { every, minutes, hours: None }
        }
        _ => TimesOutline::Listed {
            seconds: (pattern.seconds != EACH_SIXTIETH).then_some(seconds),
            minutes: (pattern.minutes != EACH_SIXTIETH).then_some(minutes),
            hours: (pattern.hours != EACH_HOUR).then_some(hours),
        },
    }
}

/// Returns the step if the values go from 0 in equal steps up to the end of the range.
fn even_step(values: &[u32], of: u32) -> Option<u32> {
    let count = u32::try_from(values.len()).ok().filter(|count| *count > 0 && of.is_multiple_of(*count))?;
    let step = of / count;
    values.iter().zip((0..of).step_by(usize::try_from(step).ok()?)).all(|(a, b)| *a == b).then_some(step)
}

fn contiguous(values: &[u32]) -> Option<(u32, u32)> {
    let (first, last) = (*values.first()?, *values.last()?);
    (usize::try_from(last - first).ok()? + 1 == values.len()).then_some((first, last))
}

pub(super) fn days(pattern: &CronPattern) -> DaysOutline {
    let days = &pattern.days;
    let month_days = MonthDaysOutline {
        days: values(days.set),
        nearest: values(days.nearest),
        last: days.last,
        last_working: days.last_working,
    };
    let weekdays = match &pattern.weekdays {
        weekdays if weekdays.set == MONDAY_TO_FRIDAY && weekdays.is_plain() => WeekdaysOutline::MondayToFriday,
        weekdays if weekdays.set == WEEKEND && weekdays.is_plain() => WeekdaysOutline::Weekend,
        weekdays => WeekdaysOutline::Listed {
            days: monday_first(weekdays.set),
            nth: (1..)
                .zip(weekdays.nth)
                .flat_map(|(n, set)| values(set).into_iter().map(move |day| (n, day)))
                .collect(),
            last: monday_first(weekdays.last),
        },
    };
    let (all_days, all_weekdays) = (days.is_all(), pattern.weekdays.set == ALL_WEEKDAYS);
    // If one matching field is enough and one field matches every day, the other field has no effect.
    let free = !pattern.both_days && (all_days || all_weekdays);
    DaysOutline {
        months: if pattern.months == EACH_MONTH { Vec::new() } else { values(pattern.months) },
        days: (!all_days && !free).then_some(month_days),
        weekdays: (!all_weekdays && !free).then_some(weekdays),
        both: pattern.both_days,
    }
}

fn monday_first(set: u64) -> Vec<u32> {
    let mut days = values(set);
    days.sort_by_key(|day| (day + 6) % 7);
    days
}

/// Returns the word at a position.
pub(super) fn word_at(words: &[&'static str], at: u32) -> &'static str {
    usize::try_from(at).ok().and_then(|at| words.get(at)).copied().unwrap_or("?")
}

/// `09:00`, with the second unless it is 0.
pub(super) fn clock(h: u32, m: u32, s: u32) -> String {
    if s == 0 { format!("{h:02}:{m:02}") } else { format!("{h:02}:{m:02}:{s:02}") }
}
