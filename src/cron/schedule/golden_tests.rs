//! The golden table of schedules, row by row, and the days of clock changes.

use daoyou_channels::settings::HumanDuration;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::Schedule;
use crate::text::Language;

fn stamp(text: &str) -> Timestamp {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn shown(at: Timestamp, tz: &str) -> String {
    at.to_zoned(TimeZone::get(tz).unwrap()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

/// Completes `06T09:00+08:00` after `2026-03-08T…`: omitted parts are those of the time before, omitted seconds are 0.
fn full(short: &str, before: &str) -> String {
    let (clock, offset) = short.split_at(short.rfind(['+', '-']).unwrap());
    let time = clock.rsplit('T').next().unwrap();
    let seconds = if time.matches(':').count() == 1 { ":00" } else { "" };
    let begin = 19 - clock.len() - seconds.len();
    format!("{}{clock}{seconds}{offset}", &before[..begin])
}

fn check(expr: &str, tz: &str, after: &str, expected: &[&str]) {
    let schedule = Schedule::cron(expr, tz).unwrap_or_else(|error| panic!("{expr}: {error}"));
    let after = full(after, "");
    let upcoming = schedule.upcoming(stamp(&after), expected.len());
    let upcoming: Vec<_> = upcoming.into_iter().map(|at| shown(at, tz)).collect();
    let mut before = after;
    let expected: Vec<_> = expected
        .iter()
        .map(|short| {
            before = full(short, &before);
            before.clone()
        })
        .collect();
    assert_eq!(upcoming, expected, "{expr} in {tz}");
}

#[test]
fn schedules_when_the_clock_goes_forward() {
    let rows: &[(&str, &str, &str, &[&str])] = &[
        // A fixed time that the clock skips is due right after the gap; any other fixed time is due once.
        ("30 2 * * *", "America/New_York", "2026-03-07T12:00-05:00", &["08T03:00-04:00", "09T02:30-04:00"]),
        ("30 1 * * *", "America/New_York", "2026-03-07T12:00-05:00", &["08T01:30-05:00", "09T01:30-04:00"]),
        ("0 3 * * *", "America/New_York", "2026-03-07T12:00-05:00", &["08T03:00-04:00", "09T03:00-04:00"]),
        ("0 2 * * *", "America/New_York", "2026-03-08T03:00-04:00", &["09T02:00-04:00"]),
        ("15 30 2 * * *", "America/New_York", "2026-03-07T12:00-05:00", &["08T03:00-04:00", "09T02:30:15-04:00"]),
        (
            "0,30 2 * * *",
            "America/New_York",
            "2026-03-07T12:00-05:00",
            &["08T03:00-04:00", "09T02:00-04:00", "02:30-04:00"],
        ),
        (
            "0 2,14 * * *",
            "America/New_York",
            "2026-03-07T15:00-05:00",
            &["08T03:00-04:00", "14:00-04:00", "09T02:00-04:00"],
        ),
        (
            "0 2,3 * * *",
            "America/New_York",
            "2026-03-07T12:00-05:00",
            &["08T03:00-04:00", "09T02:00-04:00", "03:00-04:00"],
        ),
        ("30 2 8 3 *", "America/New_York", "2026-03-07T12:00-05:00", &["08T03:00-04:00", "2027-03-08T02:30-05:00"]),
        ("30 2 9 3 *", "America/New_York", "2026-03-07T12:00-05:00", &["09T02:30-04:00"]),
        // An expression that follows the clock is due when the clock shows its time.
        ("0 * * * *", "America/New_York", "2026-03-08T00:30-05:00", &["01:00-05:00", "03:00-04:00", "04:00-04:00"]),
        ("0 */2 * * *", "America/New_York", "2026-03-08T00:30-05:00", &["04:00-04:00", "06:00-04:00"]),
        ("*/30 2 * * *", "America/New_York", "2026-03-08T00:30-05:00", &["09T02:00-04:00", "02:30-04:00"]),
        ("*/15 * * * *", "America/New_York", "2026-03-08T01:40-05:00", &["01:45-05:00", "03:00-04:00", "03:15-04:00"]),
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00+01:00", &["29T03:00+02:00", "30T02:30+02:00"]),
        ("30 1 * * *", "Europe/London", "2026-03-28T12:00+00:00", &["29T02:00+01:00", "30T01:30+01:00"]),
        ("30 2 * * *", "Australia/Sydney", "2026-10-03T12:00+10:00", &["04T03:00+11:00", "05T02:30+11:00"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00+10:30", &["04T02:30+11:00", "05T02:15+11:00"]),
        ("45 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00+10:30", &["04T02:45+11:00", "05T02:45+11:00"]),
        ("30 2 * * *", "Africa/Casablanca", "2026-03-21T12:00+00:00", &["22T03:00+01:00", "23T02:30+01:00"]),
        ("0 0 * * *", "America/Santiago", "2026-09-05T12:00-04:00", &["06T01:00-03:00", "07T00:00-03:00"]),
        // A whole day was skipped.
        ("0 9 * * *", "Pacific/Apia", "2011-12-28T12:00-10:00", &["29T09:00-10:00", "31T00:00+14:00", "09:00+14:00"]),
        ("0 0 30 * *", "Pacific/Apia", "2011-12-01T12:00-10:00", &["31T00:00+14:00", "2012-01-30T00:00+14:00"]),
        ("0 * * * *", "Pacific/Apia", "2011-12-29T22:30-10:00", &["23:00-10:00", "31T00:00+14:00", "01:00+14:00"]),
    ];
    for (expr, tz, after, expected) in rows {
        check(expr, tz, after, expected);
    }
}

#[test]
fn schedules_when_the_clock_goes_back() {
    let rows: &[(&str, &str, &str, &[&str])] = &[
        // A fixed time that the clock shows twice is due the first time.
        ("30 1 * * *", "America/New_York", "2026-10-31T12:00-04:00", &["2026-11-01T01:30-04:00", "02T01:30-05:00"]),
        ("30 1 * * *", "America/New_York", "2026-11-01T01:10-05:00", &["02T01:30-05:00"]),
        ("30 1 * * *", "America/New_York", "2026-11-01T01:00-05:00", &["02T01:30-05:00"]),
        (
            "0 1,2 * * *",
            "America/New_York",
            "2026-11-01T00:00-04:00",
            &["01:00-04:00", "02:00-05:00", "02T01:00-05:00"],
        ),
        (
            "5,10 1 * * *",
            "America/New_York",
            "2026-11-01T00:00-04:00",
            &["01:05-04:00", "01:10-04:00", "02T01:05-05:00"],
        ),
        // An expression that follows the clock is due both times.
        ("0 * * * *", "America/New_York", "2026-11-01T00:30-04:00", &["01:00-04:00", "01:00-05:00", "02:00-05:00"]),
        (
            "*/30 1 * * *",
            "America/New_York",
            "2026-11-01T00:30-04:00",
            &["01:00-04:00", "01:30-04:00", "01:00-05:00", "01:30-05:00", "02T01:00-05:00"],
        ),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00+02:00", &["25T02:30+02:00", "26T02:30+01:00"]),
        ("0 2 * * *", "Europe/Berlin", "2026-10-24T12:00+02:00", &["25T02:00+02:00", "26T02:00+01:00"]),
        ("0 3 * * *", "Europe/Berlin", "2026-10-24T12:00+02:00", &["25T03:00+01:00", "26T03:00+01:00"]),
        ("15 1 * * *", "Europe/London", "2026-10-24T12:00+01:00", &["25T01:15+01:00", "26T01:15+00:00"]),
        ("30 2 * * *", "Australia/Sydney", "2026-04-04T12:00+11:00", &["05T02:30+11:00", "06T02:30+10:00"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00+11:00", &["05T01:45+11:00", "06T01:45+10:30"]),
        (
            "*/15 * * * *",
            "Australia/Lord_Howe",
            "2026-04-05T01:20+11:00",
            &["01:30+11:00", "01:45+11:00", "01:30+10:30", "01:45+10:30", "02:00+10:30"],
        ),
        ("30 2 * * *", "Africa/Casablanca", "2026-02-14T12:00+01:00", &["15T02:30+01:00", "16T02:30+00:00"]),
        ("30 23 * * *", "America/Santiago", "2026-04-04T12:00-03:00", &["23:30-03:00", "05T23:30-04:00"]),
        ("0 0 * * *", "America/Santiago", "2026-04-04T12:00-03:00", &["05T00:00-04:00", "06T00:00-04:00"]),
    ];
    for (expr, tz, after, expected) in rows {
        check(expr, tz, after, expected);
    }
}

#[test]
fn expressions_match_days_and_fields() {
    let rows: &[(&str, &str, &str, &[&str])] = &[
        ("0 9 * * *", "Asia/Kathmandu", "2026-01-01T08:59+05:45", &["09:00+05:45", "02T09:00+05:45"]),
        ("30 5 * * *", "Asia/Kolkata", "2026-01-01T05:30+05:30", &["02T05:30+05:30"]),
        ("0 9 * * *", "Asia/Shanghai", "2026-12-31T09:00+08:00", &["2027-01-01T09:00+08:00"]),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00+00:00", &["2028-02-29T00:00+00:00", "2032-02-29T00:00+00:00"]),
        ("0 0 29 2 *", "UTC", "2096-03-01T00:00+00:00", &["2104-02-29T00:00+00:00"]),
        ("0 0 L * *", "UTC", "2027-01-31T12:00+00:00", &["2027-02-28T00:00+00:00", "2027-03-31T00:00+00:00"]),
        ("0 0 L 2 *", "UTC", "2027-03-01T00:00+00:00", &["2028-02-29T00:00+00:00"]),
        ("0 0 31 * *", "UTC", "2026-01-31T00:00+00:00", &["2026-03-31T00:00+00:00", "2026-05-31T00:00+00:00"]),
        (
            "0 0 * * 5#5",
            "UTC",
            "2026-01-01T00:00+00:00",
            &["30T00:00+00:00", "2026-05-29T00:00+00:00", "2026-07-31T00:00+00:00"],
        ),
        ("0 0 * * FRI#5", "UTC", "2026-01-01T00:00+00:00", &["30T00:00+00:00", "2026-05-29T00:00+00:00"]),
        ("0 9 * * 5L", "UTC", "2026-01-01T00:00+00:00", &["30T09:00+00:00", "2026-02-27T09:00+00:00"]),
        ("0 0 LW * *", "UTC", "2026-01-01T00:00+00:00", &["30T00:00+00:00", "2026-02-27T00:00+00:00"]),
        ("0 0 15W * *", "UTC", "2026-02-01T00:00+00:00", &["16T00:00+00:00", "2026-03-16T00:00+00:00"]),
        ("0 0 15W 8 *", "UTC", "2026-02-01T00:00+00:00", &["2026-08-14T00:00+00:00"]),
        ("0 0 1W 8 *", "UTC", "2026-02-01T00:00+00:00", &["2026-08-03T00:00+00:00"]),
        ("0 0 31W 5 *", "UTC", "2026-02-01T00:00+00:00", &["2026-05-29T00:00+00:00"]),
        // Either of two day fields is enough, unless one begins with a star.
        ("0 0 13 * 5", "UTC", "2026-02-01T00:00+00:00", &["06T00:00+00:00", "13T00:00+00:00", "20T00:00+00:00"]),
        (
            "0 0 1 * MON",
            "UTC",
            "2026-11-20T00:00+00:00",
            &["23T00:00+00:00", "30T00:00+00:00", "2026-12-01T00:00+00:00"],
        ),
        ("0 0 */2 * 1", "UTC", "2026-11-01T00:00+00:00", &["09T00:00+00:00", "23T00:00+00:00"]),
        ("0 0 1-7 * */7", "UTC", "2026-11-20T00:00+00:00", &["2026-12-06T00:00+00:00"]),
        ("0 0 ? * 1", "UTC", "2026-11-01T00:00+00:00", &["02T00:00+00:00"]),
        (
            "59 59 23 31 12 *",
            "UTC",
            "2026-06-01T00:00+00:00",
            &["2026-12-31T23:59:59+00:00", "2027-12-31T23:59:59+00:00"],
        ),
        ("*/20 59 23 * * *", "UTC", "2026-12-31T23:59:20+00:00", &["23:59:40+00:00", "2027-01-01T23:59+00:00"]),
        ("30 8 * jan,JUL sat-sun", "UTC", "2026-02-01T00:00+00:00", &["2026-07-04T08:30+00:00", "05T08:30+00:00"]),
        ("0 0 * * 7", "UTC", "2026-11-21T00:00+00:00", &["22T00:00+00:00", "29T00:00+00:00"]),
        ("0 8-18/5 * * *", "UTC", "2026-01-01T00:00+00:00", &["08:00+00:00", "13:00+00:00", "18:00+00:00"]),
        (
            "10/20 0 * * *",
            "UTC",
            "2026-01-01T00:00+00:00",
            &["00:10+00:00", "00:30+00:00", "00:50+00:00", "02T00:10+00:00"],
        ),
        ("@hourly", "UTC", "2026-01-01T23:30+00:00", &["02T00:00+00:00", "01:00+00:00"]),
        ("@weekly", "UTC", "2026-11-21T00:00+00:00", &["22T00:00+00:00"]),
        ("@yearly", "UTC", "2026-11-21T00:00+00:00", &["2027-01-01T00:00+00:00"]),
        ("0 0 1 1 *", "Europe/Berlin", "2999-06-01T00:00+02:00", &["3000-01-01T00:00+01:00"]),
    ];
    for (expr, tz, after, expected) in rows {
        check(expr, tz, after, expected);
    }
    let late = Schedule::cron("0 0 1 1 *", "UTC").unwrap();
    assert_eq!(late.next_after(Timestamp::MAX), None);
    assert_eq!(late.next_after(stamp("2026-06-01T00:00:00.5Z")), Some(stamp("2027-01-01T00:00:00Z")));
    assert_eq!(late.next_after(stamp("2026-12-31T23:59:59.5Z")), Some(stamp("2027-01-01T00:00:00Z")));
}

#[test]
fn invalid_expressions_and_zones_fail_with_a_reason() {
    for (expr, tz, expected) in [
        ("0 25 * * *", "UTC", r#"in its hour field "25", "25" is none of 0 to 23"#),
        ("60 * * * *", "UTC", "minute field"),
        ("0 9 * * MOO", "UTC", "of 0 to 7 or SUN to SAT"),
        ("0 9 * * *  * *", "UTC", "it has 7 fields"),
        ("0 9 * *", "UTC", "it has 4 fields; there are 5"),
        ("", "UTC", "it has 0 fields"),
        ("*/90 * * * *", "UTC", "use `every`"),
        ("*/0 * * * *", "UTC", "a step goes from 1"),
        ("0 22-2 * * *", "UTC", "runs backwards"),
        ("0 9 1,,2 * *", "UTC", "a value is missing"),
        ("0 9 * * L", "UTC", "5L is the last Friday"),
        ("0 9 * * 1#6", "UTC", "1 to 5"),
        ("0 9 32W * *", "UTC", "day-of-month"),
        ("+5 9 * * *", "UTC", "minute"),
        ("@reboot", "UTC", "of the words with @"),
        ("0 0 30 2 *", "UTC", "never comes true"),
        ("0 0 31 4,6,9,11 *", "UTC", "never comes true"),
        ("0 9 * * *", "", "the time zone is empty"),
        ("0 9 * * *", "Asia/Shangai", r#"did you mean "Asia/Shanghai"?"#),
        ("0 9 * * *", "Beijing", r#"did you mean "Asia/Shanghai"?"#),
        ("0 9 * * *", "new york", r#"did you mean "America/New_York"?"#),
        ("0 9 * * *", "Asia/Bejing", r#"did you mean "Asia/Shanghai"?"#),
        ("0 9 * * *", "Europe/Berln", r#"did you mean "Europe/Berlin"?"#),
        ("0 9 * * *", "Europe/Parris", r#"did you mean "Europe/Paris"?"#),
        ("0 9 * * *", "Europe/London1", r#"did you mean "Europe/London"?"#),
        ("0 9 * * *", "America/Toront", r#"did you mean "America/Toronto"?"#),
        ("0 9 * * *", "America/Nework", r#"did you mean "America/New_York"?"#),
        ("0 9 * * *", "America/Berlin", r#"did you mean "Europe/Berlin"?"#),
        ("0 9 * * *", "Australia/Sidney", r#"did you mean "Australia/Sydney"?"#),
        ("0 9 * * *", "Africa/Nairob", r#"did you mean "Africa/Nairobi"?"#),
        ("0 9 * * *", "Pacific/Aukland", r#"did you mean "Pacific/Auckland"?"#),
        ("0 9 * * *", "Tokio", r#"did you mean "Asia/Tokyo"?"#),
        ("0 9 * * *", "UTC+15", "offsets go from -14:00 to +14:00"),
        ("0 9 * * *", "UTC+8h", "is not a known time zone"),
        ("0 9 * * *", "中国", "is not a known time zone"),
    ] {
        let error = Schedule::cron(expr, tz).expect_err(expr).to_string();
        assert!(error.contains(expected), "{expr:?} {tz:?}: {error}");
    }
    assert!(Schedule::cron(&"1,".repeat(2_000), "UTC").is_err());
    let spelled = Schedule::cron(" 0  9 * * * ", "asia/shanghai").unwrap();
    assert_eq!(spelled, Schedule::Cron { expr: "0 9 * * *".to_owned(), tz: "Asia/Shanghai".to_owned() });
    // An offset is a valid zone, and stays an offset in the store.
    let fixed = Schedule::cron("0 9 * * *", "GMT+8").unwrap();
    assert_eq!(fixed, Schedule::Cron { expr: "0 9 * * *".to_owned(), tz: "+08:00".to_owned() });
    assert_eq!(fixed.next_after(stamp("2026-01-01T00:00:00Z")), Some(stamp("2026-01-01T01:00:00Z")));
    assert_eq!(fixed.slots(stamp("2026-01-01T00:00:00Z"), stamp("2026-01-03T00:00:00Z"), 9).count, 2);
    assert_eq!(fixed.describe(Language::En, &TimeZone::UTC), "every day at 09:00 (+08:00)");
    // An invalid row, changed by hand.
    let broken = Schedule::Cron { expr: "no".to_owned(), tz: "Nowhere".to_owned() };
    assert_eq!((broken.next_after(Timestamp::UNIX_EPOCH), broken.upcoming(Timestamp::UNIX_EPOCH, 3).len()), (None, 0));
}

#[test]
fn intervals_do_not_drift() {
    let anchor = stamp("2026-01-01T00:00:00.25Z");
    let every = Schedule::every("90m".parse().unwrap(), anchor).unwrap();
    for (after, expected) in [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.25Z"),
        ("2026-01-01T00:00:00.25Z", "2026-01-01T01:30:00.25Z"),
        ("2025-12-31T22:00:00Z", "2025-12-31T22:30:00.25Z"),
        ("2036-01-01T00:00:00Z", "2036-01-01T00:00:00.25Z"),
    ] {
        assert_eq!(every.next_after(stamp(after)), Some(stamp(expected)), "{after}");
    }
    // More than the 24.8 days that fit into 32 bits of milliseconds.
    let long = Schedule::every("60d".parse().unwrap(), anchor).unwrap();
    assert_eq!(long.next_after(anchor), Some(stamp("2026-03-02T00:00:00.25Z")));
    assert!(
        Schedule::every(HumanDuration::from_millis(999), anchor).unwrap_err().to_string().contains("shortest is 1s")
    );
    assert!(Schedule::every("36526d".parse().unwrap(), anchor).unwrap_err().to_string().contains("100 years"));
}

#[test]
fn missed_slots_are_counted_and_the_newest_shown_at_once() {
    let (after, until) = (stamp("2026-01-01T00:00:00Z"), stamp("2027-01-01T00:00:00Z"));
    let slots = |schedule: Schedule, after, until| {
        let slots = schedule.slots(after, until, 3);
        let newest: Vec<_> = slots.newest.iter().map(ToString::to_string).collect();
        (slots.count, newest.join(" "))
    };
    let cron = |expr, tz| Schedule::cron(expr, tz).unwrap();
    let last = |texts: &str| texts.to_owned();
    let seconds = last("2026-12-31T23:59:58Z 2026-12-31T23:59:59Z 2027-01-01T00:00:00Z");
    let every = Schedule::every(HumanDuration::from_secs(1), after).unwrap();
    assert_eq!(slots(every.clone(), after, until), (31_536_000, seconds.clone()));
    assert_eq!(slots(cron("* * * * * *", "UTC"), after, until), (31_536_000, seconds.clone()));
    assert_eq!(slots(cron("* * * * * *", "Europe/Berlin"), after, until), (31_536_000, seconds));
    // 2026 has a day of 23 hours and one of 25; a fixed time is due on each of its days.
    let daily = last("2026-12-29T01:30:00Z 2026-12-30T01:30:00Z 2026-12-31T01:30:00Z");
    assert_eq!(slots(cron("30 2 * * *", "Europe/Berlin"), after, until), (365, daily));
    let gap = (stamp("2026-03-28T23:00:00Z"), stamp("2026-03-29T23:00:00Z"));
    assert_eq!(slots(cron("0,30 2 * * *", "Europe/Berlin"), gap.0, gap.1), (1, last("2026-03-29T01:00:00Z")));
    assert_eq!(slots(cron("0 3 * * *", "Europe/Berlin"), gap.0, gap.1), (1, last("2026-03-29T01:00:00Z")));
    assert_eq!(slots(cron("0 2,3 * * *", "Europe/Berlin"), gap.0, gap.1), (1, last("2026-03-29T01:00:00Z")));
    let once = Schedule::At { at: until };
    assert_eq!(slots(once.clone(), after, until), (1, last("2027-01-01T00:00:00Z")));
    assert_eq!(slots(once, until, Timestamp::MAX), (0, String::new()));
    assert_eq!(slots(every, until, after).0, 0);
    assert_eq!(slots(cron("0 0 * * *", "UTC"), until, after).0, 0);
    let ages = slots(cron("* * * * * *", "America/New_York"), Timestamp::UNIX_EPOCH, stamp("2999-01-01T00:00:00Z"));
    // The runner ends a test that visits each slot (`slow-timeout` in .config/nextest.toml).
    assert!(ages.0 > 30_000_000_000);
}

#[test]
fn schedules_are_described_in_both_languages() {
    for (expr, en, zh) in [
        ("0 9 * * *", "every day at 09:00", "每天 09:00"),
        ("30 18 * * 1-5", "on weekdays at 18:30", "周一至周五 18:30"),
        ("0 10 * * 0,6", "on weekends at 10:00", "周末 10:00"),
        ("0 9,18 * * *", "every day at 09:00 and 18:00", "每天 09:00、18:00"),
        ("0 9 * * MON,WED", "on Mondays and Wednesdays at 09:00", "每周一、周三 09:00"),
        ("30 0 9 * * 1", "on Mondays at 09:00:30", "每周一 09:00:30"),
        ("*/15 * * * *", "every 15 minutes", "每15分钟"),
        ("* * * * *", "every minute", "每分钟"),
        ("* * * * * *", "every second", "每秒"),
        ("*/10 * * * * *", "every 10 seconds", "每10秒"),
        ("0 * * * *", "every hour", "每小时"),
        ("5 * * * *", "every hour at minute 5", "每小时的第5分"),
        ("0 */2 * * *", "every 2 hours", "每2小时"),
        ("10 */2 * * *", "every 2 hours at minute 10", "每2小时的第10分"),
        ("0 0 */2 * * 1-5", "every 2 hours on weekdays", "周一至周五 每2小时"),
        ("0 9-17 * * 1-5", "every hour from 09:00 to 17:00 on weekdays", "周一至周五 09:00 至 17:00 每小时"),
        ("*/30 9-17 * * *", "every 30 minutes from 09:00 to 17:59", "09:00 至 17:59 每30分钟"),
        ("0 0 1 * *", "on day 1 of the month at 00:00", "每月1日 00:00"),
        ("0 0 1,15 * *", "on days 1 and 15 of the month at 00:00", "每月1日、15日 00:00"),
        ("0 0 L * *", "on the last day of the month at 00:00", "每月最后一天 00:00"),
        ("0 0 LW * *", "on the last working day of the month at 00:00", "每月最后一个工作日 00:00"),
        ("0 0 15W * *", "on the working day nearest to day 15 of the month at 00:00", "每月离15日最近的工作日 00:00"),
        ("0 9 * * 2#2", "on the second Tuesday of the month at 09:00", "每月第二个周二 09:00"),
        ("0 9 * * 5L", "on the last Friday of the month at 09:00", "每月最后一个周五 09:00"),
        ("0 0 29 2 *", "on day 29 in February at 00:00", "每年2月29日 00:00"),
        ("0 0 * 1,7 *", "every day in January and July at 00:00", "1月、7月的每天 00:00"),
        ("0 0 13 * 5", "on day 13 of the month and on Fridays at 00:00", "每月13日以及每周五 00:00"),
        (
            "0 0 */10 * 1",
            "on those of days 1, 11, 21 and 31 of the month that are Mondays at 00:00",
            "每月1日、11日、21日、31日中的每周一 00:00",
        ),
        ("0 0 1-31 * 5", "every day at 00:00", "每天 00:00"),
        ("0-10,20 3 * * *", "at minutes 0 to 10 and 20 of hour 3", "3点的第0至10、20分"),
        (
            "1,2,40 5,7 * 2-4 *",
            "at minutes 1, 2 and 40 of hours 5 and 7 in February to April",
            "2月至4月的每天 5、7点的第1、2、40分",
        ),
    ] {
        let zone = TimeZone::UTC;
        let schedule = Schedule::cron(expr, "Asia/Shanghai").unwrap();
        assert_eq!(schedule.describe(Language::En, &zone), format!("{en} (Asia/Shanghai)"), "{expr}");
        assert_eq!(schedule.describe(Language::Zh, &zone), format!("{zh}（Asia/Shanghai）"), "{expr}");
    }
    let zone = TimeZone::get("Asia/Shanghai").unwrap();
    let at = Schedule::At { at: stamp("2026-11-23T01:00:00Z") };
    assert_eq!(at.describe(Language::En, &zone), "once, on Mon 2026-11-23 at 09:00 (Asia/Shanghai)");
    assert_eq!(at.describe(Language::Zh, &zone), "一次，2026-11-23 周一 09:00（Asia/Shanghai）");
    for (every, en, zh) in [
        ("15m", "every 15 minutes", "每15分钟"),
        ("90m", "every 1 hour 30 minutes", "每1小时30分钟"),
        ("1h", "every hour", "每小时"),
        ("2d", "every 2 days", "每2天"),
    ] {
        let schedule = Schedule::every(every.parse().unwrap(), Timestamp::UNIX_EPOCH).unwrap();
        let words = (schedule.describe(Language::En, &zone), schedule.describe(Language::Zh, &zone));
        assert_eq!(words, (en.to_owned(), zh.to_owned()));
    }
}

#[test]
fn ambiguous_and_skipped_times_are_resolved() {
    let zone = TimeZone::get("America/New_York").unwrap();
    let now = stamp("2026-01-01T00:00:00Z");
    for (words, expected) in
        [("2026-03-08 02:30", "2026-03-08T03:00:00-04:00"), ("2026-11-01 01:30", "2026-11-01T01:30:00-04:00")]
    {
        let Ok(Schedule::At { at }) = Schedule::at(words, now, &zone) else { panic!("{words}") };
        assert_eq!(shown(at, "America/New_York"), expected);
    }
}

/// 9:00 every other day stays 9:00 when the clock changes, in both directions, and a skipped time is due right after the gap.
#[test]
fn an_interval_of_days_keeps_its_clock_time() {
    let berlin = TimeZone::get("Europe/Berlin").unwrap();
    let every = |span: &str, anchor: &str| Schedule::every_from(span.parse().unwrap(), stamp(anchor), &berlin).unwrap();
    for (anchor, after, expected) in [
        (
            "2026-03-26T08:00:00Z",
            "2026-03-26T08:00:00Z",
            ["2026-03-28T09:00:00+01:00", "2026-03-30T09:00:00+02:00", "2026-04-01T09:00:00+02:00"],
        ),
        (
            "2026-10-23T07:00:00Z",
            "2026-10-22T00:00:00Z",
            ["2026-10-23T09:00:00+02:00", "2026-10-25T09:00:00+01:00", "2026-10-27T09:00:00+01:00"],
        ),
        // The anchor may be later than the first slots.
        (
            "2026-12-01T08:00:00Z",
            "2026-10-22T00:00:00Z",
            ["2026-10-22T09:00:00+02:00", "2026-10-24T09:00:00+02:00", "2026-10-26T09:00:00+01:00"],
        ),
        (
            "2026-03-27T01:30:00Z",
            "2026-03-27T01:30:00Z",
            ["2026-03-29T03:00:00+02:00", "2026-03-31T02:30:00+02:00", "2026-04-02T02:30:00+02:00"],
        ),
    ] {
        let schedule = every("2d", anchor);
        let slots: Vec<_> =
            schedule.upcoming(stamp(after), 3).into_iter().map(|at| shown(at, "Europe/Berlin")).collect();
        assert_eq!(slots, expected, "{anchor}");
        let passed = schedule.slots(stamp(after), stamp(expected[2]), 2);
        assert_eq!((passed.count, passed.newest), (3, vec![stamp(expected[1]), stamp(expected[2])]), "{anchor}");
    }
    let days = every("2d", "2026-03-26T08:00:00Z");
    assert_eq!(days.describe(Language::En, &TimeZone::UTC), "every 2 days at 09:00 (Europe/Berlin)");
    assert_eq!(days.describe(Language::Zh, &TimeZone::UTC), "每2天 09:00（Europe/Berlin）");
    assert!(matches!(every("36h", "2026-03-26T08:00:00Z"), Schedule::Every { .. }));
}
