//! The entry of the fuzz target `cron_words`.

use std::time::Duration;

use daoyou_channels::settings::HumanDuration;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::Schedule;
use crate::text::time_expression::{self, DueTime};
use crate::text::{Language, language_of};

const ZONES: [&str; 5] = ["UTC", "Asia/Shanghai", "America/New_York", "Europe/Lisbon", "Australia/Lord_Howe"];
/// The longest time that a schedule reaches ahead: 100 years.
const FURTHEST: Duration = Duration::from_secs(time_expression::MAX_SECONDS);

/// Takes a byte for zone and hour, and any text as a time, an interval and a cron expression. Asserts that an accepted text has
/// a slot after now, is the same when it is read back from its stored form, and can be described.
pub fn words(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let name = ZONES[usize::from(*first) % ZONES.len()];
    let zone = TimeZone::get(name).expect("a zone of the list");
    // A time around a clock change in Lisbon; the first byte selects the hour.
    let now = Timestamp::from_second(1_774_656_000 + i64::from(*first) * 3_600).expect("a time in 2026");
    let text = String::from_utf8_lossy(rest);
    words_of_time(&text, now, &zone);
    let schedules = [
        Schedule::at(&text, now, &zone).ok(),
        Schedule::cron(&text, name).ok(),
        text.parse::<HumanDuration>().ok().and_then(|every| Schedule::every(every, now).ok()),
    ];
    for schedule in schedules.into_iter().flatten() {
        check(&schedule, now, &zone);
    }
}

/// Checks that a parsed time occurs, is parsed completely, and is detected next to another time.
fn words_of_time(text: &str, now: Timestamp, zone: &TimeZone) {
    let language = language_of(text);
    if let Some(wrong) = time_expression::explain_partial_time(text, language) {
        assert!(!wrong.to_string().is_empty() && !wrong.chinese().is_empty());
    }
    match time_expression::parse(text) {
        Err(wrong) => assert!(!wrong.to_string().is_empty() && !wrong.chinese().is_empty()),
        Ok(when) => {
            assert!(time_expression::parse(&format!("{text} banana")).is_err());
            let now = now.to_zoned(zone.clone()).datetime();
            match when.due(Some(now)) {
                Some(DueTime::Cron(expression)) => assert!(Schedule::cron(&expression, "UTC").is_ok(), "{expression}"),
                Some(DueTime::Every { first, .. }) => assert!(first.is_none_or(|first| first > now)),
                Some(DueTime::In(_) | DueTime::At(_)) | None => {}
            }
        }
    }
}

fn check(schedule: &Schedule, now: Timestamp, zone: &TimeZone) {
    let next = schedule.next_after(now).expect("an accepted schedule comes true");
    assert!(next > now);
    if let Schedule::At { at } = schedule {
        let wait = Duration::try_from(at.duration_since(now)).expect("it is after now");
        assert!(*at == next && wait <= FURTHEST);
    }
    let before = Timestamp::from_nanosecond(next.as_nanosecond() - 1).expect("a time right before another");
    assert_eq!(schedule.next_after(before), Some(next));
    let upcoming = schedule.upcoming(now, 3);
    assert!(upcoming.first() == Some(&next) && upcoming.is_sorted_by(|one, other| one < other));
    let last = upcoming[upcoming.len() - 1];
    let slots = schedule.slots(now, last, 3);
    assert!(slots.newest == upcoming && usize::try_from(slots.count) == Ok(upcoming.len()), "{slots:?}");
    for language in [Language::En, Language::Zh] {
        assert!(!schedule.describe(language, zone).is_empty());
    }
    let stored = serde_json::to_string(schedule).expect("a schedule is JSON");
    assert_eq!(serde_json::from_str::<Schedule>(&stored).expect("what was stored is read"), *schedule);
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_seeds_of_cron_words_pass() {
        crate::seeds::run("cron_words", super::words);
    }
}
