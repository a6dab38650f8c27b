//! Jobs of one time, in a store of their own.

use std::collections::BTreeSet;

use daoyou_channels::SessionKey;
use jiff::Timestamp;
use uuid::Uuid;

use super::firing::{commit, plan};
use super::run_end::{JobRunEnd, record_end};
use super::testing::{job_context, on_store};
use super::{CronSettings, Job, JobBody, JobOrigin, JobRequest, MisfirePolicy, Schedule, add, find, run_now};
use crate::origin::JobTurn;
use crate::store::usage::{self, TokenCounts};
use crate::store::{Connection, StoreError, job_runs, jobs};

/// Returns the stored state of a job that is due at second 100.
fn job(connection: &Connection, name: &str) -> Job {
    let (now, job_context) = (Timestamp::from_second(10).unwrap(), job_context(10, &["cli"]));
    let at = Some("1970-01-01T00:01:40Z".to_owned());
    let asked = JobRequest { name: Some(name.to_owned()), prompt: Some("x".to_owned()), at, ..JobRequest::default() };
    let new = asked.into_new_job(&JobOrigin::terminal(), &job_context, now).unwrap();
    add(connection, &new, job_context.settings.config.max_jobs, now).unwrap()
}

#[tokio::test]
async fn the_only_slot_of_a_job_waits_for_a_run_by_hand() {
    on_store(|connection| {
        let (settings, now) = (job_context(10, &["cli"]).settings, Timestamp::from_second(100).unwrap());
        let job = job(connection, "once");
        run_now(connection, &job, &settings, Timestamp::from_second(50).unwrap()).unwrap();
        let due = plan(connection, &settings, None, now, 10)?;
        let fired = commit(connection, &settings, &due, now)?;
        let runs = job_runs::of_job(connection, &job.row.id, 10)?;
        let outcomes: Vec<_> = runs.iter().map(|run| (run.due, run.outcome.as_str())).collect();
        assert_eq!((fired.started, fired.skipped, outcomes), (1, 0, vec![(100_000, "started"), (50_000, "started")]));
        Ok::<_, StoreError>(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_one_time_prompt_waits_for_the_tokens_of_the_next_day() {
    on_store(|connection| {
        let mut settings = CronSettings::clone(&job_context(10, &["cli"]).settings);
        let now = Timestamp::from_second(100).unwrap();
        let spent = job(connection, "spent");
        run_now(connection, &spent, &settings, Timestamp::from_second(50).unwrap()).unwrap();
        let turn: String = connection.query_row("SELECT turn FROM inbox", [], |row| row.get(0))?;
        let used = TokenCounts { turns: 1, input: 1, output: 1, cached: 0 };
        usage::add(connection, turn.parse().unwrap(), "s", "a/b", used, None)?;
        jobs::remove(connection, &spent.row.id)?;
        let midnight: Timestamp = "1970-01-02T00:00:00+08:00".parse().unwrap();
        for (name, misfire, next) in
            [("late", MisfirePolicy::Once, Some(midnight.as_millisecond())), ("skipped", MisfirePolicy::Skip, None)]
        {
            let Job { row, body } = job(connection, name);
            let body = serde_json::to_string(&JobBody { misfire, ..body })?;
            jobs::update(connection, &row.id, name, &body, row.next_at)?;
            settings.config.tokens_per_day = 1;
            let fired = commit(connection, &settings, &plan(connection, &settings, None, now, 10)?, now)?;
            let job = find(connection, &row.id).unwrap();
            assert_eq!((fired.started, fired.skipped, job.row.enabled), (0, 1, next.is_some()), "{name}");
            assert_eq!(job.row.next_at, next, "{name}");
            if next.is_some() {
                assert_eq!(job.body.schedule, Schedule::At { at: midnight });
            }
            // On the next day there are tokens again.
            settings.config.tokens_per_day = 0;
            let fired = commit(connection, &settings, &plan(connection, &settings, None, midnight, 10)?, midnight)?;
            assert_eq!(fired.started, u64::from(next.is_some()), "{name}");
        }
        Ok::<_, StoreError>(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn stopping_the_run_of_a_one_time_job_removes_the_job() {
    on_store(|connection| {
        let settings = job_context(10, &["cli"]).settings;
        for (name, by_hand, error, expected) in
            [("a", false, "stopped", false), ("b", true, "stopped", true), ("c", false, "llm_timeout", true)]
        {
            let job = job(connection, name);
            jobs::set_enabled(connection, &job.row.id, false, None, None)?;
            let (id, session) = (job.row.id.clone(), SessionKey::from("cron:x"));
            let errand = JobTurn { job: id.clone(), due: 100_000, chat: "cli:direct".into(), by_hand };
            let (turn, channel, chat_id, taint) = (Uuid::now_v7(), "cli", "direct", &BTreeSet::new());
            let end = JobRunEnd { turn, channel, chat_id, session: &session, reply: "x", error: Some(error), taint };
            record_end(connection, &settings, &errand, &end)?;
            assert_eq!(find(connection, &id).is_ok(), expected, "{name}");
        }
        Ok::<_, StoreError>(())
    })
    .await
    .unwrap();
}
