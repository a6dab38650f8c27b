//! Jobs and the clock. The whole process runs at another time, by libfaketime.

use std::time::Duration;

use serde_json::json;

use crate::support::clock::{faketime, follow_clock_file, set_clock, start_at_time};
use crate::support::{Gateway, Hook, Model, Setup, Sink, until};

async fn runs(gateway: &Gateway, job: &str) -> Vec<String> {
    let runs = gateway.json(&["cron", "history", job]).await;
    let due =
        |run: &serde_json::Value| format!("{} {}", run["due"].as_str().unwrap(), run["outcome"].as_str().unwrap());
    let mut runs: Vec<_> = runs.as_array().unwrap().iter().map(due).collect();
    runs.sort();
    runs
}

/// A job at 02:30 in New York runs right after the gap on the day without a 02:30, and at 02:30 the next day. A job at
/// 01:30 runs once on the day with two of them. Setting the clock back repeats nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_daily_job_runs_once_a_day_across_clock_changes() {
    let Some(library) = faketime() else { return };
    let model = Model::start().await;
    let sink = Sink::signed().await;
    let mut gateway = Gateway::new(Setup::new().model(&model).hook(Hook::bearer("in").callback(&sink)));
    start_at_time(&mut gateway, &library, "2026-03-07 12:00:00");
    let to = ["--tz", "America/New_York", "--channel", "webhook:in", "--chat", "c", "--misfire", "skip"];
    let add = |expr: &'static str| [&["cron", "add", "--prompt", "good morning", "--cron", expr], &to[..]].concat();
    let spring = gateway.json(&add("30 2 * * *")).await["id"].as_str().unwrap().to_owned();
    let autumn = gateway.json(&add("30 1 1 11 *")).await["id"].as_str().unwrap().to_owned();

    // 02:00 EST is 03:00 EDT.
    let mut expected = Vec::new();
    for (start, due) in
        [("2026-03-08 06:59:50", "2026-03-08T07:00:00Z"), ("2026-03-09 06:29:50", "2026-03-09T06:30:00Z")]
    {
        start_at_time(&mut gateway, &library, start);
        gateway.up().await;
        expected.push(format!("{due} ok"));
        until(due, async || (runs(&gateway, &spring).await == expected).then_some(())).await;
        gateway.stop().await;
    }

    // 01:30 EDT, and an hour later 01:30 EST.
    start_at_time(&mut gateway, &library, "2026-11-01 05:29:50");
    gateway.up().await;
    let autumn_run = ["2026-11-01T05:30:00Z ok"];
    until("the first 01:30", async || (runs(&gateway, &autumn).await == autumn_run).then_some(())).await;
    gateway.stop().await;
    start_at_time(&mut gateway, &library, "2026-11-01 06:31:00");
    gateway.up().await;
    assert_eq!(gateway.ask("in", "x", "hello").await, "echo: hello");
    assert_eq!(runs(&gateway, &autumn).await, autumn_run, "the second 01:30 is none");
    gateway.stop().await;

    // One hour back: the slot recurs but is already claimed.
    start_at_time(&mut gateway, &library, "2026-11-01 05:29:58");
    gateway.up().await;
    let next = async || {
        let listed = gateway.json(&["cron", "list"]).await;
        let job = listed.as_array()?.iter().find(|job| job["id"] == json!(autumn))?.clone();
        job["next"].as_str().map(str::to_owned)
    };
    until("the slot to pass", async || next().await.filter(|next| next.starts_with("2027-11-01"))).await;
    assert_eq!(runs(&gateway, &autumn).await, autumn_run, "a slot that is taken is not taken again");
}

/// The clock is set while the gateway runs, by an hour and by a year, forward and back. Each slot runs once even if it
/// recurs, missed runs are made up for once, and later jobs follow the new clock.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_continue_when_the_clock_is_set() {
    const HOUR: i64 = 3_600;
    const YEAR: i64 = 365 * 24 * HOUR;
    let Some(library) = faketime() else { return };
    let folder = tempfile::tempdir().unwrap();
    let clock = folder.path().join("clock");
    set_clock(&clock, 0);
    let model = Model::start().await;
    let sink = Sink::signed().await;
    let mut gateway = Gateway::new(Setup::new().model(&model).hook(Hook::bearer("in").callback(&sink)));
    follow_clock_file(&mut gateway, &library, &clock);
    gateway.up().await;
    let add = async |when: [&str; 2], what: &str| {
        let to = ["--tz", "UTC", "--channel", "webhook:in", "--chat", "c"];
        let job = gateway.json(&[&["cron", "add", "--message", what][..], &when, &to].concat()).await;
        job["id"].as_str().unwrap().to_owned()
    };
    let in_half_an_hour = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC) + Duration::from_secs(1_800);
    let daily = add(["--cron", &in_half_an_hour.strftime("%M %H * * *").to_string()], "daily").await;
    add(["--at", "in 40m"], "once").await;
    // The job reads the clock every second. Its runs prove that the others had the opportunity to run.
    let ticking = add(["--every", "1s"], "tick").await;
    let ticks = async || runs(&gateway, &ticking).await.len();
    let two_ticks = async || {
        let before = ticks().await;
        until("two ticks", async || (ticks().await >= before + 2).then_some(())).await;
    };
    let counts =
        || ["daily", "once"].map(|what| sink.posts().iter().filter(|post| post.data("content") == what).count());
    for (ahead, expected) in [(0, [0, 0]), (HOUR, [1, 1]), (0, [1, 1]), (YEAR, [2, 1]), (0, [2, 1]), (-YEAR, [2, 1])] {
        set_clock(&clock, ahead);
        two_ticks().await;
        until(&format!("{expected:?}, the clock {ahead} s ahead"), async || (counts() == expected).then_some(())).await;
        two_ticks().await;
        assert_eq!(counts(), expected, "the clock {ahead} s ahead: {:?}", runs(&gateway, &daily).await);
        let now = jiff::Timestamp::now().as_second() + ahead;
        let listed = gateway.json(&["cron", "list"]).await;
        let job = listed.as_array().unwrap().iter().find(|job| job["id"] == json!(daily)).unwrap();
        let next: jiff::civil::DateTime = job["next"].as_str().unwrap().parse().unwrap();
        let next = next.to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp();
        assert!((0..=24 * HOUR).contains(&(next.as_second() - now)), "the clock {ahead} s ahead: next {next}");
        assert_eq!(gateway.ask("in", "x", "hello").await, "echo: hello");
    }
}
