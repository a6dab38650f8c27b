//! Describes simple recurrence rules (RFC 5545, section 3.3.10) in words.

use super::ical::parse_date_or_time;

/// Describes a rule in words, or quotes the rule if it is not simple.
pub fn describe_recurrence(rule: &str) -> String {
    describe_simple(rule).unwrap_or_else(|| format!("by the rule {rule}"))
}

fn describe_simple(rule: &str) -> Option<String> {
    let mut unit = "";
    let mut interval = 1_u32;
    let mut on = String::new();
    let mut end = String::new();
    for part in rule.split(';').filter(|part| !part.trim().is_empty()) {
        let (name, value) = part.trim().split_once('=')?;
        match name.to_ascii_uppercase().as_str() {
            "FREQ" => unit = frequency(value)?,
            "INTERVAL" => interval = value.parse().ok()?,
            "COUNT" => end = format!(", {} times", value.parse::<u32>().ok()?),
            "UNTIL" => end = format!(", until {}", parse_date_or_time(value)?.0),
            "BYDAY" => on = format!(" on {}", list_items(value.split(','), day)?),
            "BYMONTHDAY" => {
                on = format!(
                    " on day {}",
                    list_items(value.split(','), |day| Some(day.parse::<i32>().ok()?.to_string()))?
                );
            }
            // The first day of the week matters only to few rules and does not help a reader.
            "WKST" => {}
            _ => return None,
        }
    }
    if unit.is_empty() {
        return None;
    }
    let every = if interval == 1 { format!("every {unit}") } else { format!("every {interval} {unit}s") };
    Some(every + &on + &end)
}

fn frequency(word: &str) -> Option<&'static str> {
    match word.to_ascii_uppercase().as_str() {
        "DAILY" => Some("day"),
        "WEEKLY" => Some("week"),
        "MONTHLY" => Some("month"),
        "YEARLY" => Some("year"),
        _ => None,
    }
}

/// Describes `MO`, `1MO` or `-1FR`.
fn day(word: &str) -> Option<String> {
    const DAYS: [(&str, &str); 7] = [
        ("MO", "Monday"),
        ("TU", "Tuesday"),
        ("WE", "Wednesday"),
        ("TH", "Thursday"),
        ("FR", "Friday"),
        ("SA", "Saturday"),
        ("SU", "Sunday"),
    ];
    let word = word.trim().to_ascii_uppercase();
    let (name, number) = DAYS.iter().find_map(|(short, name)| Some((name, word.strip_suffix(short)?)))?;
    let ordinal = match number.trim_start_matches('+') {
        "" => return Some((*name).to_owned()),
        "1" => "first",
        "2" => "second",
        "3" => "third",
        "4" => "fourth",
        "5" => "fifth",
        "-1" => "last",
        _ => return None,
    };
    Some(format!("the {ordinal} {name}"))
}

/// Lists items as `a, b and c`.
fn list_items<'a>(items: impl Iterator<Item = &'a str>, describe: impl Fn(&str) -> Option<String>) -> Option<String> {
    let items: Vec<String> = items.take(40).map(describe).collect::<Option<_>>()?;
    match items.split_last()? {
        (last, []) => Some(last.clone()),
        (last, others) => Some(format!("{} and {last}", others.join(", "))),
    }
}
