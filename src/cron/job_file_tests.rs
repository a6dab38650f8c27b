//! Tests of `cron.json`: the import of each row, and the import of an export.

use daoyou_channels::SessionKey;
use daoyou_channels::settings::HumanDuration;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::job_file::{export, import};
use super::testing::on_store;
use super::{
    DeliveryMode, DeliveryTarget, JobBody, JobContext, JobMaker, JobOrigin, JobScope, JobTask, MisfirePolicy, NewJob,
    Schedule, add, find, list, set_enabled,
};
use crate::store::jobs;

fn job_context() -> JobContext {
    super::testing::job_context(100, &["cli", "email"])
}

fn now() -> Timestamp {
    Timestamp::from_millisecond(Timestamp::now().as_millisecond()).unwrap()
}

/// A file of another assistant: each row, and the result of its import.
#[tokio::test]
async fn importing_accepts_or_refuses_each_row_by_itself() {
    let future = now().as_millisecond() + 86_400_000;
    let row = |id: &str, schedule: Value, payload: Value| {
        json!({
            "id": id, "name": id, "enabled": true, "schedule": schedule, "payload": payload,
            "state": {"nextRunAtMs": future, "lastRunAtMs": 5, "lastStatus": "ok"}, "createdAtMs": 1, "updatedAtMs": 2,
            "deleteAfterRun": false,
        })
    };
    let turn = json!({"kind": "agent_turn", "message": "news?", "deliver": true, "channel": "cli", "to": "direct"});
    let quiet = json!({"kind": "agent_turn", "message": "news?", "deliver": false});
    let event = json!({"kind": "system_event", "message": "tea", "deliver": false, "channel": "email", "to": "a@b"});
    let every = json!({"kind": "every", "everyMs": 3_600_000});
    let cases = [
        (row("every001", every.clone(), turn.clone()), ""),
        (row("at000001", json!({"kind": "at", "atMs": future}), event), ""),
        (row("cron0001", json!({"kind": "cron", "expr": "0 9 * * *", "tz": "Europe/Berlin"}), quiet), ""),
        (row("past0001", json!({"kind": "at", "atMs": 1_000}), turn.clone()), "is past"),
        (
            row("tzone001", json!({"kind": "cron", "expr": "0 9 * * *", "tz": "Mars"}), turn.clone()),
            "not a known time zone",
        ),
        (row("every001", every.clone(), turn.clone()), "two jobs with this id"),
        (row("no space", every.clone(), turn.clone()), "id: "),
        (
            row("kind0001", json!({"kind": "yearly"}), turn.clone()),
            "schedule.kind: \"yearly\" is not allowed; allowed is one of `at`",
        ),
        (row("bare0001", every.clone(), json!({"kind": "agent_turn"})), "payload.message is missing"),
        (
            row("gone0001", every.clone(), json!({"kind": "agent_turn", "message": "x", "channel": "pigeon"})),
            "there are cli, email",
        ),
        (
            row("minus001", json!({"kind": "every", "everyMs": -5}), turn.clone()),
            "schedule.everyMs: -5 is not allowed; allowed are 1000 (1 second) to 3155760000000 (100 years)",
        ),
        (
            row("half0001", json!({"kind": "every", "everyMs": 1.5}), turn.clone()),
            "schedule.everyMs: 1.5 is not allowed; allowed is a whole number of milliseconds",
        ),
        (row("none0002", json!({"kind": "every"}), turn.clone()), "schedule.everyMs is missing"),
        (row("expr0001", json!({"kind": "cron", "expr": "0 25 * * *"}), turn.clone()), "schedule.expr: "),
        (
            json!({"id": "bool0001", "enabled": "yes", "schedule": every, "payload": turn}),
            "enabled: \"yes\" is not allowed; allowed are true and false",
        ),
        (json!("no job"), "the job: it is a single value"),
        (json!({"id": "none0001"}), "schedule: it is missing"),
    ];
    let (rows, expected): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    let text = json!({"version": 1, "jobs": rows}).to_string();
    let (first, second, jobs) = on_store(move |connection| {
        let first = import(connection, &text, &job_context(), now()).unwrap();
        let second = import(connection, &text, &job_context(), now()).unwrap();
        let jobs: Vec<_> = list(connection, &JobScope::All).unwrap().into_iter().map(Result::unwrap).collect();
        (first, second, jobs)
    })
    .await;
    for (at, expected) in expected.iter().enumerate() {
        let refused = first.refused.iter().find(|row| row.row == at + 1).map_or("", |row| &row.reason);
        assert!(refused.is_empty() == expected.is_empty() && refused.contains(expected), "{at}: {refused:?}");
    }
    let ids: Vec<_> = first.imported.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids, ["every001", "at000001", "cron0001"]);
    assert_eq!(second.unchanged.len(), 3, "the same again is not an error: {second:?}");
    let job = |id: &str| jobs.iter().find(|job| job.row.id == id).unwrap();
    let next = job("every001").row.next_at.unwrap();
    assert!((future - next) % 3_600_000 == 0 && next <= future, "it goes on in its phase: {next}, {future}");
    assert_eq!(job("at000001").body.task, JobTask::Message("tea".to_owned()));
    assert_eq!(job("cron0001").body.deliver, DeliveryMode::WhenAsked);
    assert!(first.imported[2].note.is_some_and(|note| note.contains("NO_REPLY")));
}

#[tokio::test]
async fn a_long_invalid_id_is_shown_in_part() {
    let schedule = json!({"kind": "every", "everyMs": 3_600_000});
    let payload = json!({"kind": "agent_turn", "message": "news?"});
    let row = json!({"id": "i".repeat(5_000), "schedule": schedule, "payload": payload});
    let text = json!({"version": 1, "jobs": [row]}).to_string();
    let refused = on_store(move |connection| import(connection, &text, &job_context(), now()).unwrap().refused).await;
    let reason = &refused[0].reason;
    assert!(reason.starts_with("id: \"iii") && reason.len() < 200, "{reason}");
}

/// A job with all its fields set.
fn body(schedule: Schedule, task: JobTask) -> JobBody {
    JobBody {
        schedule,
        task,
        target: DeliveryTarget {
            metadata: Map::from_iter([("thread".to_owned(), json!("t"))]),
            ..JobOrigin::terminal().target
        },
        maker: JobMaker {
            trust: daoyou_channels::Trust::Known,
            channel: "email".to_owned(),
            chat_id: "a@b".to_owned(),
            identity: crate::origin::OwnerIdentity::of("email", "a@b"),
        },
        session: Some(SessionKey::from("cli:work")),
        model: Some("a/b".to_owned()),
        agent: Some("coder".to_owned()),
        deliver: DeliveryMode::OnChange,
        misfire: MisfirePolicy::All,
        stale_after: Some(HumanDuration::from_secs(60)),
        jitter: Some(HumanDuration::from_secs(5)),
        delete_after_run: false,
    }
}

#[tokio::test]
async fn importing_an_export_restores_the_jobs() {
    let every = Schedule::every(HumanDuration::from_millis(90_500), now()).unwrap();
    let bodies = [
        body(
            Schedule::Cron { expr: "0 9 * * *".to_owned(), tz: "Europe/Berlin".to_owned() },
            JobTask::Prompt("a".to_owned()),
        ),
        body(Schedule::At { at: Timestamp::from_second(4_000_000_000).unwrap() }, JobTask::Message("b".to_owned())),
        JobBody {
            deliver: DeliveryMode::WhenAsked,
            session: None,
            stale_after: None,
            ..body(every, JobTask::Prompt("c".to_owned()))
        },
        body(
            Schedule::Days { days: 2, anchor: now(), tz: "Europe/Berlin".to_owned() },
            JobTask::Prompt("d".to_owned()),
        ),
    ];
    let made = bodies.clone();
    let file = on_store(move |connection| {
        for (at, body) in made.into_iter().enumerate() {
            let new = NewJob { id: Some(format!("job{at}")), name: format!("name {at}"), body };
            add(connection, &new, job_context().settings.config.max_jobs, now()).unwrap();
        }
        set_enabled(connection, "job1", false, now()).unwrap();
        jobs::insert(connection, "broken", "broken", "{", true, None).unwrap();
        export(connection).unwrap()
    })
    .await;
    assert_eq!((file["jobs"].as_array().unwrap().len(), &file["unreadable"][0]["id"]), (4, &json!("broken")));
    let text = file.to_string();
    let (found, jobs) = on_store(move |connection| {
        let found = import(connection, &text, &job_context(), now()).unwrap();
        (found, [0, 1, 2, 3].map(|at| find(connection, &format!("job{at}")).unwrap()))
    })
    .await;
    assert!(found.refused.is_empty() && found.imported.len() == 4, "{found:?}");
    for (at, job) in jobs.into_iter().enumerate() {
        assert_eq!((job.row.name, job.row.enabled, job.body), (format!("name {at}"), at != 1, bodies[at].clone()));
    }
}

/// A completed job of one time that was kept is unchanged by its own export; in another home, its time is past.
#[tokio::test]
async fn importing_a_completed_job_changes_nothing() {
    let (here, elsewhere) = on_store(|connection| {
        let at = Timestamp::from_second(200).unwrap();
        let body = JobBody { jitter: None, ..body(Schedule::At { at }, JobTask::Prompt("a".to_owned())) };
        let new = NewJob { id: Some("once0001".to_owned()), name: "once".to_owned(), body };
        add(connection, &new, job_context().settings.config.max_jobs, Timestamp::from_second(100).unwrap()).unwrap();
        jobs::set_enabled(connection, "once0001", false, None, None).unwrap();
        let text = export(connection).unwrap().to_string();
        let here = import(connection, &text, &job_context(), now()).unwrap();
        jobs::remove(connection, "once0001").unwrap();
        (here, import(connection, &text, &job_context(), now()).unwrap())
    })
    .await;
    assert_eq!((here.unchanged.len(), here.refused.len()), (1, 0), "{here:?}");
    assert!(elsewhere.refused[0].reason.contains("is past"), "{elsewhere:?}");
}

/// The file has whole milliseconds, the clock and jobs of earlier versions do not.
#[tokio::test]
async fn importing_an_export_of_a_more_precise_anchor_changes_nothing() {
    let precise = Timestamp::new(1_800_000_000, 123_456_789).unwrap();
    let payload = json!({"kind": "agent_turn", "message": "news?"});
    let of = |id: &str, schedule: Value| json!({"id": id, "name": id, "schedule": schedule, "payload": payload});
    let hours = of("hours001", json!({"kind": "every", "everyMs": 3_600_000}));
    let days = of("days0001", json!({"kind": "every", "everyMs": 86_400_000, "tz": "Europe/Berlin"}));
    let text = json!({"version": 1, "jobs": [hours, days]}).to_string();
    let (first, again, exported) = on_store(move |connection| {
        let first = import(connection, &text, &job_context(), precise).unwrap();
        let again = import(connection, &text, &job_context(), now()).unwrap();
        let old =
            body(Schedule::every(HumanDuration::from_secs(3_600), precise).unwrap(), JobTask::Prompt("old".to_owned()));
        let new = NewJob { id: Some("old00001".to_owned()), name: "old".to_owned(), body: old };
        add(connection, &new, job_context().settings.config.max_jobs, now()).unwrap();
        let text = export(connection).unwrap().to_string();
        (first, again, import(connection, &text, &job_context(), now()).unwrap())
    })
    .await;
    assert_eq!((first.imported.len(), again.unchanged.len()), (2, 2), "{first:?} {again:?}");
    assert_eq!((exported.unchanged.len(), exported.refused.len()), (3, 0), "{exported:?}");
}

#[tokio::test]
async fn importing_another_file_fails_with_one_clear_error() {
    for (text, expected) in [
        ("", "no job is imported: EOF while parsing a value at line 1 column 0"),
        (
            "{\"jobs\": [\n{},\n{\"createdAtMs\": 1e999}]}",
            "no job is imported: number out of range at line 3 column 21",
        ),
        ("{\n  \"jobs\": [,]\n}", "at line 2 column 12"),
        ("7", "holds no jobs"),
        ("{\"version\": 1}", "no list \"jobs\""),
        ("{\"version\": 2, \"jobs\": []}", "version 2; version 1 can be read"),
    ] {
        let error =
            on_store(move |connection| import(connection, text, &job_context(), now()).unwrap_err().to_string()).await;
        assert!(error.contains(expected), "{text:?}: {error}");
    }
}
