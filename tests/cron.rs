//! Scheduled prompts: each run happens exactly once, its output goes to its target, and its result is reported truthfully.

use std::path::Path;

use rusqlite::params;
use serde_json::{Value, json};

use crate::support::gateway::Message;
use crate::support::invariants::{Journal, Witness, check, open, open_to_change, wait_settled};
use crate::support::model::last_text;
use crate::support::{Answer, Gate, Gateway, Hook, Model, Reply, Setup, Sink, until};

/// Creates a stopped gateway whose jobs send their output to `sink`.
fn stopped_gateway(model: &Model, sink: &Sink) -> Gateway {
    Gateway::new(Setup::new().model(model).hook(Hook::bearer("in").callback(sink)).set("cron.min_interval", "1s"))
}

async fn model_and_sink() -> (Model, Sink) {
    (Model::start().await, Sink::signed().await)
}

/// Adds a job that sends its output to chat `c` of the hook; returns its id.
async fn add(gateway: &Gateway, name: &str, args: &[&str]) -> String {
    let usual = ["cron", "add", "--name", name, "--channel", "webhook:in", "--chat", "c"];
    let added = gateway.json(&[&usual, args].concat()).await;
    added["id"].as_str().expect("the id of a job").to_owned()
}

/// Returns outcome and delivery of each run in `daoyou cron history`, oldest first.
async fn history(gateway: &Gateway, job: &str) -> Vec<(String, String)> {
    let runs = gateway.json(&["cron", "history", job]).await;
    let text = |run: &Value, key: &str| run[key].as_str().unwrap_or_default().to_owned();
    let runs = runs.as_array().expect("an array of runs").iter();
    let mut runs: Vec<_> = runs.map(|run| (text(run, "due"), text(run, "outcome"), text(run, "delivery"))).collect();
    runs.sort();
    runs.into_iter().map(|(_, outcome, delivery)| (outcome, delivery)).collect()
}

fn run(outcome: &str, delivery: &str) -> (String, String) {
    (outcome.to_owned(), delivery.to_owned())
}

fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// Counts the runs in this state.
fn count(database: &Path, outcome: &str) -> i64 {
    let sql = "SELECT count(*) FROM job_runs WHERE outcome = ?";
    open(database).unwrap().query_row(sql, [outcome], |row| row.get(0)).expect("the runs can be counted")
}

async fn wait_runs(gateway: &Gateway, outcome: &str, at_least: i64) {
    let what = format!("{at_least} runs that are {outcome}");
    until(&what, async || (count(&gateway.database(), outcome) >= at_least).then_some(())).await;
}

/// After kills around the commit that claims a run, and while its turn runs, the job fires once and is answered once.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_run_fires_once_at_every_crash_point() {
    for point in ["cron_before_commit", "cron_committed", "turn_started", "end_committed", "sending_committed"] {
        let (model, sink) = model_and_sink().await;
        let mut gateway = stopped_gateway(&model, &sink);
        let job = add(&gateway, "once", &["--at", "in 2s", "--prompt", "now at {{ time }}", "--keep"]).await;
        // The run may come due before the gateway is ready.
        gateway.crash_at(point).spawn();
        gateway.wait_crash().await;
        gateway.recover().await;
        sink.wait_posts(1).await;
        wait_settled(&gateway.database()).await;
        assert_eq!(history(&gateway, &job).await, [run("ok", "sent")], "{point}");
        assert_eq!((model.requests_about("now at 20").len(), model.refused()), (1, Vec::new()), "{point}");
        let ids: std::collections::BTreeSet<_> = sink.posts().iter().map(|post| post.id().to_owned()).collect();
        assert_eq!(ids.len(), 1, "{point}");
        check(&gateway.database(), &Witness { sink: Some(&sink), ..Witness::default() });
    }
}

/// Repeated kills during its model call do not claim the run again.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_run_resumes_after_repeated_kills() {
    let (model, sink) = model_and_sink().await;
    let gate = Gate::new();
    model.on("think", [Reply::text("thought").held_by(&gate)]);
    let mut gateway = stopped_gateway(&model, &sink);
    let job = add(&gateway, "think", &["--at", "in 1s", "--prompt", "think", "--keep"]).await;
    gateway.up().await;
    for round in 1..=3 {
        gate.wait_arrived(round).await;
        gateway.restart().await;
    }
    gate.open();
    assert_eq!(sink.wait_posts(1).await[0].data("content"), "thought");
    wait_settled(&gateway.database()).await;
    assert_eq!(history(&gateway, &job).await, [run("ok", "sent")]);
    check(&gateway.database(), &Witness { sink: Some(&sink), ..Witness::default() });
}

/// Two thousand jobs are due in the same second. All runs are claimed at once, and no more turns run than permitted.
#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_jobs_of_one_second_all_run() {
    const JOBS: usize = 2_000;
    let (model, sink) = model_and_sink().await;
    let gate = Gate::new();
    model.on("many", [Reply::text("done").held_by(&gate)]);
    let mut gateway = stopped_gateway(&model, &sink);
    *gateway.setup() = gateway.setup().clone().set("agent.max_concurrent_turns", 8).set("log.level", "warn");
    let first = add(&gateway, "many", &["--at", "in 1h", "--prompt", "many", "--keep"]).await;
    let copy = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n + 1 < ?2)
        INSERT INTO jobs SELECT id || n, name || n, body, enabled, next_at, failures, pause_reason, result,
            created_at, updated_at, result_taint
        FROM jobs, n WHERE id = ?1";
    {
        let store = open_to_change(&gateway.database());
        store.execute(copy, params![first, JOBS]).unwrap();
        // The body contains the slot too.
        let due = jiff::Timestamp::now() + std::time::Duration::from_secs(2);
        let sql = "UPDATE jobs SET next_at = ?1, body = json_set(body, '$.schedule.at', ?2)";
        store.execute(sql, params![due.as_millisecond(), due.to_string()]).unwrap();
    }
    gateway.up().await;
    wait_runs(&gateway, "started", i64::try_from(JOBS).unwrap()).await;
    gate.wait_arrived(8).await;
    assert_eq!(model.count(), 8, "no more turns at once than may");
    gate.open();
    for part in 1..=8 {
        wait_runs(&gateway, "ok", i64::try_from(JOBS * part / 8).unwrap()).await;
    }
    assert_eq!((model.count(), model.refused()), (JOBS, Vec::new()));
}

/// After three missed runs, each policy does what it promises, and no future run fires early.
#[tokio::test(flavor = "multi_thread")]
async fn missed_runs_follow_the_misfire_policy() {
    let (model, sink) = model_and_sink().await;
    let mut gateway = stopped_gateway(&model, &sink);
    let anchor = jiff::Timestamp::now() - std::time::Duration::from_secs(1_800);
    let (mut jobs, anchor_text) = (Vec::new(), anchor.to_string());
    for policy in ["once", "all", "skip"] {
        let schedule = ["--every", "1h", "--anchor", &anchor_text, "--misfire", policy];
        jobs.push(add(&gateway, policy, &[&schedule[..], &["--prompt", policy]].concat()).await);
    }
    let first_missed = anchor.as_millisecond() - 2 * 3_600_000;
    open_to_change(&gateway.database()).execute("UPDATE jobs SET next_at = ?", [first_missed]).unwrap();
    gateway.up().await;
    sink.wait_posts(4).await;
    wait_settled(&gateway.database()).await;
    let (ok, missed) = (run("ok", "sent"), run("missed", "none"));
    assert_eq!(history(&gateway, &jobs[0]).await, std::slice::from_ref(&ok));
    assert_eq!(history(&gateway, &jobs[1]).await, vec![ok; 3]);
    assert_eq!(history(&gateway, &jobs[2]).await, vec![missed; 3]);
    let asked = model.requests_about("once");
    let result = last_text(&asked[0]).to_owned();
    assert!(result.contains("late by 30m") && result.contains("due 2 times before"), "{result}");
    let next: i64 = open(&gateway.database())
        .unwrap()
        .query_row("SELECT min(next_at) - ? FROM jobs", [anchor.as_millisecond()], |row| row.get(0))
        .unwrap();
    assert_eq!(next, 3_600_000, "they go on with the next slot");
    check(&gateway.database(), &Witness { sink: Some(&sink), ..Witness::default() });
}

/// A run takes longer than its interval. The runs due in that time are skipped and counted, and other jobs are not delayed.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_never_overlaps_itself() {
    let (model, sink) = model_and_sink().await;
    let gate = Gate::new();
    model.on("long", [Reply::text("at last").held_by(&gate)]);
    let mut gateway = stopped_gateway(&model, &sink);
    let long = add(&gateway, "long", &["--every", "1s", "--prompt", "long"]).await;
    gateway.up().await;
    gate.wait_arrived(1).await;
    let quick = add(&gateway, "quick", &["--at", "in 1s", "--prompt", "/stop", "--keep"]).await;
    until("the quick job", async || (history(&gateway, &quick).await == [run("ok", "sent")]).then_some(())).await;
    wait_runs(&gateway, "skipped", 2).await;
    assert_eq!(model.requests_about("long").len(), 1);
    gate.open();
    wait_runs(&gateway, "ok", 3).await;
    let runs = history(&gateway, &long).await;
    assert_eq!((&runs[0].0[..], &runs[1].0[..], &runs[2].0[..]), ("ok", "skipped", "skipped"), "{runs:?}");
    let quick: Vec<_> = sink.posts().into_iter().filter(|post| post.data("content").starts_with("echo")).collect();
    assert_eq!(quick[0].data("content"), "echo: /stop", "a prompt is not a command");
}

/// The output of a job becomes part of the chat's session. A job with a fixed message calls no model.
#[tokio::test(flavor = "multi_thread")]
async fn job_output_is_added_to_the_session_of_its_chat() {
    let (model, sink) = model_and_sink().await;
    model.on("news", [Reply::tool("message", &json!({"content": "one moment"})), Reply::text("it rains")]);
    let mut gateway = stopped_gateway(&model, &sink);
    add(&gateway, "weather", &["--at", "in 1s", "--prompt", "news"]).await;
    add(&gateway, "tea", &["--at", "in 1s", "--message", "The tea is ready. {{ it }} stands as it is."]).await;
    gateway.up().await;
    sink.wait_posts(3).await;
    wait_settled(&gateway.database()).await;
    assert_eq!(model.requests_about("tea").len(), 0);
    assert_eq!(gateway.ask("in", "c", "what did you say?").await, "echo: what did you say?");
    let asked = model.requests_about("what did you say?");
    let messages = asked[0]["messages"].as_array().unwrap();
    let message_has = |role: &str, part: &str| {
        messages.iter().any(|message| {
            message["role"] == role && message["content"].as_str().is_some_and(|message_has| message_has.contains(part))
        })
    };
    assert!(
        message_has("user", "The scheduled job \"weather\"") && message_has("assistant", "one moment\n\nit rains"),
        "{messages:?}"
    );
    assert!(message_has("assistant", "The tea is ready. {{ it }}"), "{messages:?}");
    let journal = check(&gateway.database(), &Witness { sink: Some(&sink), ..Witness::default() });
    assert!(journal.inbox.iter().any(|row| row.session.starts_with("cron:") && row.chat_id == "c"));
    // A one-shot job is removed after its run; its runs stay listed.
    assert_eq!(gateway.json(&["cron", "list"]).await, json!([]));
    assert_eq!(history(&gateway, "tea").await, [run("ok", "sent")]);
}

/// Empty output and output without news is kept but not sent.
#[tokio::test(flavor = "multi_thread")]
async fn output_without_news_is_not_sent() {
    let (model, sink) = model_and_sink().await;
    model.script(|asked| {
        let answers = ["same", "same", "other", "other"];
        let text = *answers.get(asked.n - 1).unwrap_or(&"other");
        asked.user.contains("watch").then(|| Reply::text(text))
    });
    let mut gateway = stopped_gateway(&model, &sink);
    let watch = ["--every", "1s", "--prompt", "watch {{ last_result }}", "--deliver", "on_change"];
    let job = add(&gateway, "watch", &watch).await;
    gateway.up().await;
    wait_runs(&gateway, "ok", 4).await;
    gateway.run(&["cron", "disable", &job]).await;
    wait_settled(&gateway.database()).await;
    let texts: Vec<_> = sink.posts().iter().map(|post| post.data("content").to_owned()).collect();
    assert_eq!(texts, ["same", "other"]);
    let runs = history(&gateway, &job).await;
    assert_eq!(&runs[..4], [run("ok", "sent"), run("ok", "none"), run("ok", "sent"), run("ok", "none")]);
    assert_eq!(model.requests_about("watch same").len(), 2, "it is given what it answered last");

    model.on("quiet", [Reply::text("`NO_REPLY`")]);
    let quiet =
        add(&gateway, "quiet", &["--at", "in 1s", "--prompt", "quiet", "--deliver", "when_asked", "--keep"]).await;
    until("the quiet job", async || (history(&gateway, &quiet).await == [run("ok", "none")]).then_some(())).await;
    let about = model.requests_about("quiet")[0].to_string();
    assert!(about.contains("answer NO_REPLY"), "{about}");
    assert_eq!(sink.posts().len(), 2);
}

/// A job that fails repeatedly pauses. The chat and the owner are each notified once.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_fails_repeatedly_pauses() {
    let (model, sink) = model_and_sink().await;
    model.on("broken", [Reply::status(400)]);
    let mut gateway = stopped_gateway(&model, &sink);
    let setup = gateway.setup().clone().set("cron.pause_after", 2).set("owner.notify", "webhook:in:owner");
    *gateway.setup() = setup;
    let job = add(&gateway, "broken", &["--every", "1s", "--prompt", "broken", "--deliver", "on_change"]).await;
    gateway.up().await;
    let posts = sink.wait_posts(2).await;
    wait_settled(&gateway.database()).await;
    for chat in ["c", "owner"] {
        let notices: Vec<_> = posts.iter().filter(|post| post.data("chat_id") == chat).collect();
        assert_eq!(notices.len(), 1, "{chat}: {posts:?}");
        assert!(notices[0].data("content").contains("is paused: 2 runs in a row failed"), "{chat}: {notices:?}");
    }
    assert_eq!(history(&gateway, &job).await, [run("error", "none"), run("error", "sent")]);
    let listed = gateway.json(&["cron", "list"]).await;
    assert_eq!(listed[0]["enabled"], false, "{listed}");
}

/// If the callback refuses, the run counts as successful and its delivery as failed.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_delivery_is_shown_as_failed() {
    let (model, sink) = model_and_sink().await;
    sink.always(Some(Answer::Status(500, None)));
    let hook = Hook::bearer("in").callback(&sink).set("retry", vec!["1s", "1h"]);
    let mut gateway = Gateway::new(Setup::new().model(&model).hook(hook));
    let job = add(&gateway, "lost", &["--at", "in 1s", "--prompt", "hello", "--keep"]).await;
    gateway.up().await;
    sink.wait_posts(2).await;
    until("the failure to be told", async || (history(&gateway, &job).await == [run("ok", "failed")]).then_some(()))
        .await;
    let retry: String = open(&gateway.database())
        .unwrap()
        .query_row("SELECT id FROM outbox WHERE slot = 'reply'", [], |row| row.get(0))
        .unwrap();
    open_to_change(&gateway.database()).execute("UPDATE outbox SET state = 'dead' WHERE id = ?", [&retry]).unwrap();
    assert_eq!(history(&gateway, &job).await, [run("ok", "dead")]);
    sink.always(None);
    let retried = gateway.run(&["queue", "retry", &retry]).await;
    assert_eq!(retried.code, Some(0), "{retried:?}");
    until("the delivery", async || (history(&gateway, &job).await == [run("ok", "sent")]).then_some(())).await;
}

/// A malformed row stays and delays no other job. With cron disabled, nothing fires.
#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_row_affects_no_other_job() {
    let (model, sink) = model_and_sink().await;
    let mut gateway = stopped_gateway(&model, &sink);
    let good = add(&gateway, "good", &["--at", "in 1s", "--prompt", "good", "--keep"]).await;
    let sql = "INSERT INTO jobs (id, name, body, next_at, created_at, updated_at) VALUES (?1, 'bad', ?2, ?3, 0, 0)";
    for (id, body) in [("bad1", "{"), ("bad2", "{}"), ("bad3", r#"{"schedule":{"kind":"moon"}}"#)] {
        open_to_change(&gateway.database()).execute(sql, params![id, body, now_ms() - 1_000]).unwrap();
    }
    *gateway.setup() = gateway.setup().clone().set("cron.enabled", false);
    gateway.up().await;
    assert_eq!(gateway.ask("in", "other", "hello").await, "echo: hello");
    assert_eq!(history(&gateway, &good).await, []);
    *gateway.setup() = gateway.setup().clone().set("cron.enabled", true);
    gateway.write_config();
    gateway.sighup();
    until("the good job", async || (history(&gateway, &good).await == [run("ok", "sent")]).then_some(())).await;
    let sql = "SELECT count(*) FROM jobs WHERE name = 'bad' AND next_at IS NULL AND pause_reason IS NOT NULL";
    let aside: i64 = open(&gateway.database()).unwrap().query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(aside, 3, "they are set aside");
    assert_eq!(gateway.logs().matches("is set aside").count(), 3, "each is said once");
}

/// Runs that came due during an orderly stop happen at the next start, whatever the misfire policy.
#[tokio::test(flavor = "multi_thread")]
async fn runs_due_during_shutdown_are_deferred() {
    let (model, sink) = model_and_sink().await;
    let gate = Gate::new();
    model.on("busy", [Reply::text("done").held_by(&gate)]);
    let mut gateway = stopped_gateway(&model, &sink);
    *gateway.setup() = gateway.setup().clone().set("gateway.drain_timeout", "20s");
    gateway.up().await;
    let id = gateway.accept("in", &Message::new("busy").chat("b")).await;
    gate.wait_arrived(1).await;
    let job = add(&gateway, "put off", &["--every", "1h", "--prompt", "put off", "--misfire", "skip"]).await;
    gateway.sigterm();
    let began = "SELECT value FROM meta WHERE key = 'stop_began_at'";
    let began: i64 = until("the stop to be noted", async || {
        let began: Result<String, _> = open(&gateway.database()).unwrap().query_row(began, [], |row| row.get(0));
        began.ok()?.parse().ok()
    })
    .await;
    gate.open();
    assert_eq!(gateway.wait_exit().await.code(), Some(0));
    {
        // Simulates a stop half an hour ago, with a run that came due while turns still ran.
        let store = open_to_change(&gateway.database());
        let (ago, slot) = (1_800_000, jiff::Timestamp::from_millisecond(began - 1_800_000 + 1).unwrap());
        store.execute("UPDATE meta SET value = value - ? WHERE key LIKE 'stop_%_at'", [ago]).unwrap();
        let sql = "UPDATE jobs SET next_at = ?1, body = json_set(body, '$.schedule.anchor', ?2)";
        store.execute(sql, params![slot.as_millisecond(), slot.to_string()]).unwrap();
    }
    gateway.up().await;
    sink.wait_reply(&id).await;
    until("the job", async || (history(&gateway, &job).await == [run("ok", "sent")]).then_some(())).await;
    let journal = Journal::read(&gateway.database()).unwrap();
    assert_eq!(journal.inbox.iter().filter(|row| row.content == "put off").count(), 1);
}
