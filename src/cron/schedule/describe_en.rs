//! Schedules in English.

use jiff::Zoned;

use super::outline::{DaysOutline, IntervalUnit, MonthDaysOutline, TimesOutline, WeekdaysOutline, clock, word_at};
use super::zone::zone_name;
use crate::text::time_expression::ranges;

const UNITS: [&str; 5] = ["day", "hour", "minute", "second", "millisecond"];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
];
const NTH: [&str; 5] = ["first", "second", "third", "fourth", "fifth"];

pub(super) fn once(at: &Zoned) -> String {
    let time = if at.second() == 0 { at.strftime("%H:%M") } else { at.strftime("%H:%M:%S") };
    format!("once, on {} at {time} ({})", at.strftime("%a %Y-%m-%d"), zone_name(at.time_zone()))
}

pub(super) fn every(parts: &[(u128, usize)]) -> String {
    match parts {
        [(1, place)] => format!("every {}", UNITS[*place]),
        parts => {
            let words = parts.iter().map(|(count, place)| plural(*count, UNITS[*place]));
            format!("every {}", words.collect::<Vec<_>>().join(" "))
        }
    }
}

pub(super) fn cron(times: &TimesOutline, days: &DaysOutline) -> String {
    let (on, in_months) = (on_days(days), in_months(days));
    match times {
        TimesOutline::At(times) => {
            let times: Vec<_> = times.iter().map(|(h, m, s)| clock(*h, *m, *s)).collect();
            let on = on.unwrap_or_else(|| "every day".to_owned());
            format!("{on}{in_months} at {}", list(&times))
        }
        times => {
            let on = on.map(|on| format!(" {on}")).unwrap_or_default();
            format!("{}{on}{in_months}", often(times))
        }
    }
}

fn often(times: &TimesOutline) -> String {
    match times {
        TimesOutline::At(_) => String::new(),
        TimesOutline::Every { count, unit, hours } => {
            let unit = match unit {
                IntervalUnit::Second => "second",
                IntervalUnit::Minute => "minute",
                IntervalUnit::Hour => "hour",
            };
            format!("every {}{}", counted(*count, unit), hours.map(|(a, b)| period(a, b, 59)).unwrap_or_default())
        }
        TimesOutline::Hourly { every, minutes, hours } => {
            let every = format!("every {}", counted(*every, "hour"));
            let last = minutes.last().copied().unwrap_or(0);
            let hours = hours.map(|(a, b)| period(a, b, last)).unwrap_or_default();
            match minutes.as_slice() {
                [0] => format!("{every}{hours}"),
                minutes => format!("{every} at {}{hours}", numbers("minute", minutes)),
            }
        }
        TimesOutline::Listed { seconds, minutes, hours } => {
            let seconds = match seconds.as_deref() {
                Some([0]) => None,
                Some(seconds) => Some(format!("at {}", numbers("second", seconds))),
                None => Some("every second".to_owned()),
            };
            let minutes = match minutes {
                Some(minutes) => format!("at {}", numbers("minute", minutes)),
                None => "every minute".to_owned(),
            };
            let hours = hours.as_ref().map(|hours| format!("of {}", numbers("hour", hours)));
            let words: Vec<_> = seconds.into_iter().chain([minutes]).chain(hours).collect();
            words.join(" ")
        }
    }
}

fn period(first: u32, last: u32, minute: u32) -> String {
    format!(" from {} to {}", clock(first, 0, 0), clock(last, minute, 0))
}

fn on_days(outline: &DaysOutline) -> Option<String> {
    match (&outline.days, &outline.weekdays) {
        (None, None) => None,
        (Some(days), None) => Some(format!("on {}{}", month_days(days), of_the_month(outline))),
        (None, Some(weekdays)) => Some(format!("on {}", week_days(weekdays))),
        (Some(days), Some(weekdays)) => {
            let (days, month, weekdays) = (month_days(days), of_the_month(outline), week_days(weekdays));
            Some(if outline.both {
                format!("on those of {days}{month} that are {weekdays}")
            } else {
                format!("on {days}{month} and on {weekdays}")
            })
        }
    }
}

fn of_the_month(outline: &DaysOutline) -> &'static str {
    if outline.months.is_empty() { " of the month" } else { "" }
}

fn month_days(outline: &MonthDaysOutline) -> String {
    let mut words = Vec::new();
    if !outline.days.is_empty() {
        words.push(numbers("day", &outline.days));
    }
    words.extend(outline.nearest.iter().map(|day| format!("the working day nearest to day {day}")));
    if outline.last_working {
        words.push("the last working day".to_owned());
    }
    if outline.last {
        words.push("the last day".to_owned());
    }
    list(&words)
}

fn week_days(outline: &WeekdaysOutline) -> String {
    match outline {
        WeekdaysOutline::MondayToFriday => "weekdays".to_owned(),
        WeekdaysOutline::Weekend => "weekends".to_owned(),
        WeekdaysOutline::Listed { days, nth, last } => {
            let mut words: Vec<_> = days.iter().map(|day| format!("{}s", weekday(*day))).collect();
            words.extend(nth.iter().map(|(n, day)| format!("the {} {} of the month", nth_word(*n), weekday(*day))));
            words.extend(last.iter().map(|day| format!("the last {} of the month", weekday(*day))));
            list(&words)
        }
    }
}

fn in_months(outline: &DaysOutline) -> String {
    if outline.months.is_empty() {
        return String::new();
    }
    let name = |month: u32| word_at(&MONTHS, month.wrapping_sub(1)).to_owned();
    format!(" in {}", list(&ranges(&outline.months, name, " to ")))
}

fn weekday(day: u32) -> &'static str {
    word_at(&WEEKDAYS, day)
}

fn nth_word(n: u32) -> &'static str {
    word_at(&NTH, n.wrapping_sub(1))
}

/// `minute 5`, `minutes 5, 10 to 20 and 40`.
fn numbers(what: &str, values: &[u32]) -> String {
    let plural = if values.len() == 1 { "" } else { "s" };
    format!("{what}{plural} {}", list(&ranges(values, |value| value.to_string(), " to ")))
}

/// `hour`, `2 hours`.
fn counted(count: u32, unit: &str) -> String {
    if count == 1 { unit.to_owned() } else { format!("{count} {unit}s") }
}

fn plural(count: u128, unit: &str) -> String {
    if count == 1 { format!("1 {unit}") } else { format!("{count} {unit}s") }
}

fn list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}
