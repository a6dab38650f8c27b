//! Schedules in Chinese.

use jiff::Zoned;

use super::outline::{DaysOutline, IntervalUnit, MonthDaysOutline, TimesOutline, WeekdaysOutline, clock, word_at};
use super::zone::zone_name;
use crate::text::time_expression::ranges;

const UNITS: [&str; 5] = ["天", "小时", "分钟", "秒", "毫秒"];
const WEEKDAYS: [&str; 7] = ["周日", "周一", "周二", "周三", "周四", "周五", "周六"];
const NTH: [&str; 5] = ["第一个", "第二个", "第三个", "第四个", "第五个"];

pub(super) fn once(at: &Zoned) -> String {
    let time = if at.second() == 0 { at.strftime("%H:%M") } else { at.strftime("%H:%M:%S") };
    let weekday = weekday(u32::try_from(at.weekday().to_sunday_zero_offset()).unwrap_or(7));
    format!("一次，{} {weekday} {time}（{}）", at.strftime("%Y-%m-%d"), zone_name(at.time_zone()))
}

pub(super) fn every(parts: &[(u128, usize)]) -> String {
    match parts {
        [(1, place)] => format!("每{}", UNITS[*place]),
        parts => {
            let words: String = parts.iter().map(|(count, place)| format!("{count}{}", UNITS[*place])).collect();
            format!("每{words}")
        }
    }
}

pub(super) fn cron(times: &TimesOutline, outline: &DaysOutline) -> String {
    let days = days(outline);
    match times {
        TimesOutline::At(times) => {
            let times: Vec<_> = times.iter().map(|(h, m, s)| clock(*h, *m, *s)).collect();
            format!("{} {}", days.unwrap_or_else(|| "每天".to_owned()), times.join("、"))
        }
        times => {
            let days = days.map(|days| format!("{days} ")).unwrap_or_default();
            format!("{days}{}", often(times))
        }
    }
}

fn often(times: &TimesOutline) -> String {
    match times {
        TimesOutline::At(_) => String::new(),
        TimesOutline::Every { count, unit, hours } => {
            let unit = match unit {
                IntervalUnit::Second => "秒",
                IntervalUnit::Minute => "分钟",
                IntervalUnit::Hour => "小时",
            };
            format!("{}每{}", hours.map(|(a, b)| period(a, b, 59)).unwrap_or_default(), counted(*count, unit))
        }
        TimesOutline::Hourly { every, minutes, hours } => {
            let last = minutes.last().copied().unwrap_or(0);
            let hours = hours.map(|(a, b)| period(a, b, last)).unwrap_or_default();
            let every = format!("{hours}每{}", counted(*every, "小时"));
            match minutes.as_slice() {
                [0] => every,
                minutes => format!("{every}的第{}分", numbers(minutes)),
            }
        }
        TimesOutline::Listed { seconds, minutes, hours } => {
            let hours = hours.as_ref().map_or(String::new(), |hours| format!("{}点", numbers(hours)));
            let minutes =
                minutes.as_ref().map_or("每分钟".to_owned(), |minutes| format!("第{}分", numbers(minutes)));
            let seconds = match seconds.as_deref() {
                Some([0]) => String::new(),
                Some(seconds) => format!("第{}秒", numbers(seconds)),
                None => "每秒".to_owned(),
            };
            let words: Vec<_> = [hours, minutes, seconds].into_iter().filter(|word| !word.is_empty()).collect();
            words.join("的")
        }
    }
}

fn period(first: u32, last: u32, minute: u32) -> String {
    format!("{} 至 {} ", clock(first, 0, 0), clock(last, minute, 0))
}

fn days(outline: &DaysOutline) -> Option<String> {
    let months = if outline.months.is_empty() { None } else { Some(months(&outline.months)) };
    let month = months.clone().unwrap_or_else(|| "每月".to_owned());
    match (&outline.days, &outline.weekdays) {
        (None, None) => months.map(|months| format!("{months}的每天")),
        (Some(days), None) if outline.months.len() == 1 => Some(format!("每年{month}{}", month_days(days))),
        (Some(days), None) => Some(format!("{month}{}", month_days(days))),
        (None, Some(weekdays)) => {
            let is_of_month =
                matches!(weekdays, WeekdaysOutline::Listed { nth, last, .. } if !nth.is_empty() || !last.is_empty());
            let prefix = match months {
                Some(months) => format!("{months}的"),
                None if is_of_month => "每月".to_owned(),
                None => String::new(),
            };
            Some(format!("{prefix}{}", week_days(weekdays)))
        }
        (Some(days), Some(weekdays)) => {
            let join = if outline.both { "中的" } else { "以及" };
            Some(format!("{month}{}{join}{}", month_days(days), week_days(weekdays)))
        }
    }
}

fn month_days(outline: &MonthDaysOutline) -> String {
    let mut words = ranges(&outline.days, |day| format!("{day}日"), "至");
    words.extend(outline.nearest.iter().map(|day| format!("离{day}日最近的工作日")));
    if outline.last_working {
        words.push("最后一个工作日".to_owned());
    }
    if outline.last {
        words.push("最后一天".to_owned());
    }
    words.join("、")
}

fn week_days(outline: &WeekdaysOutline) -> String {
    match outline {
        WeekdaysOutline::MondayToFriday => "周一至周五".to_owned(),
        WeekdaysOutline::Weekend => "周末".to_owned(),
        WeekdaysOutline::Listed { days, nth, last } => {
            let mut words: Vec<_> = days.iter().map(|day| weekday(*day).to_owned()).collect();
            if let Some(first) = words.first_mut() {
                *first = format!("每{first}");
            }
            words.extend(nth.iter().map(|(n, day)| format!("{}{}", nth_word(*n), weekday(*day))));
            words.extend(last.iter().map(|day| format!("最后一个{}", weekday(*day))));
            words.join("、")
        }
    }
}

fn months(values: &[u32]) -> String {
    ranges(values, |month| format!("{month}月"), "至").join("、")
}

fn weekday(day: u32) -> &'static str {
    word_at(&WEEKDAYS, day)
}

fn nth_word(n: u32) -> &'static str {
    word_at(&NTH, n.wrapping_sub(1))
}

fn numbers(values: &[u32]) -> String {
    ranges(values, |value| value.to_string(), "至").join("、")
}

fn counted(count: u32, unit: &str) -> String {
    if count == 1 { unit.to_owned() } else { format!("{count}{unit}") }
}
