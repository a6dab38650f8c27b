//! Property tests of all schedules, and a comparison with croner in zones without clock changes.

use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::Schedule;
use super::cron_pattern::CronPattern;

const ZONES: &[&str] = &[
    "UTC", "America/New_York", "America/Santiago", "Europe/Berlin", "Europe/London", "Australia/Lord_Howe",
    "Asia/Kathmandu", "Africa/Casablanca", "Pacific/Apia",
];

fn field(min: u32, max: u32) -> BoxedStrategy<String> {
    prop_oneof![
        4 => Just("*".to_owned()),
        4 => (min..=max).prop_map(|value| value.to_string()),
        2 => (min..=max, min..=max).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        1 => (min..=max, min..=max).prop_map(|(a, b)| format!("{a},{b}")),
        1 => (2..=max / 2).prop_map(|step| format!("*/{step}")),
        1 => (min..=max, min..=max, 1..=max / 2).prop_map(|(a, b, n)| format!("{}-{}/{n}", a.min(b), a.max(b))),
    ]
    .boxed()
}

fn days() -> BoxedStrategy<String> {
    let special = prop_oneof![Just("L".to_owned()), Just("LW".to_owned()), (1..=31).prop_map(|day| format!("{day}W"))];
    prop_oneof![6 => field(1, 31), 1 => special].boxed()
}

fn weekdays() -> BoxedStrategy<String> {
    let special = prop_oneof![
        (0..=7, 1..=5).prop_map(|(day, nth)| format!("{day}#{nth}")),
        (0..=6).prop_map(|day| format!("{day}L"))
    ];
    prop_oneof![6 => field(0, 6), 1 => special].boxed()
}

fn expression() -> BoxedStrategy<String> {
    let seconds = prop_oneof![6 => Just(String::new()), 1 => field(0, 59).prop_map(|field| field + " ")];
    (seconds, field(0, 59), field(0, 23), days(), field(1, 12), weekdays())
        .prop_map(|(s, m, h, day, month, weekday)| format!("{s}{m} {h} {day} {month} {weekday}"))
        .boxed()
}

/// Times from 2000 to 2100, which include the skipped day of Apia and many clock changes.
fn instant() -> impl Strategy<Value = Timestamp> {
    (946_684_800_000_i64..4_102_444_800_000).prop_map(|at| Timestamp::from_millisecond(at).unwrap())
}

/// Returns true if the clock was put forward just before `at`.
fn follows_gap(at: Timestamp, zone: &TimeZone) -> bool {
    let before = at.checked_sub(SignedDuration::from_secs(1)).unwrap();
    zone.to_offset(before) < zone.to_offset(at)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn slots_ascend_and_match_the_clock(expr in expression(), tz in 0..ZONES.len(), after in instant()) {
        let Ok(schedule) = Schedule::cron(&expr, ZONES[tz]) else { return Ok(()) };
        let (zone, pattern): (_, CronPattern) = (TimeZone::get(ZONES[tz]).unwrap(), expr.parse().unwrap());
        let slots = schedule.upcoming(after, 12);
        prop_assert_eq!(slots.len(), 12, "none runs out");
        let mut last = after;
        for slot in slots {
            prop_assert!(slot > last);
            let clock = slot.to_zoned(zone.clone()).datetime();
            let is_shown = pattern.count(clock, clock.checked_add(SignedDuration::from_secs(1)).unwrap()) == 1;
            prop_assert!(is_shown || !pattern.follows_clock && follows_gap(slot, &zone), "{slot}");
            // The next slot is the same for every moment between two slots.
            let between = last + last.duration_until(slot) / 2;
            if between < slot {
                prop_assert_eq!(schedule.next_after(between), Some(slot));
            }
            last = slot;
        }
        let all = schedule.slots(after, last, 5);
        prop_assert_eq!(all.count, 12);
        prop_assert_eq!(all.newest, schedule.upcoming(after, 12)[7..].to_vec());
    }

    #[test]
    fn croner_agrees_where_no_clock_changes(expr in expression(), after in instant()) {
        let Ok(schedule) = Schedule::cron(&expr, "UTC") else { return Ok(()) };
        let fields: Vec<&str> = expr.split(' ').collect();
        let (day, weekday) = (fields[fields.len() - 3], fields[fields.len() - 1]);
        // croner recognises only a bare star.
        let both = day.starts_with('*') || weekday.starts_with('*');
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).dom_and_dow(both).build();
        let theirs = parser.parse(&expr).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let from = after.to_zoned(TimeZone::UTC);
        let theirs: Vec<_> = theirs.iter_after(from).take(6).map(|slot| slot.timestamp()).collect();
        let theirs: Vec<_> = theirs.iter().map(|at| Timestamp::from_second(at.as_second()).unwrap()).collect();
        prop_assert_eq!(schedule.upcoming(after, 6), theirs, "{}", expr);
    }
}
