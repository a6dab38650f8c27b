//! Jobs that would reach nobody, run too often or spend too much are refused, paused or skipped, and always reported.

use serde_json::{Value, json};

use crate::support::gateway::Message;
use crate::support::invariants::open;
use crate::support::model::last_text;
use crate::support::{Gateway, Hook, Model, Reply, Setup, Sink, until};

/// Returns the owner's hooks: one without a callback, and one with a callback.
fn hooks(sink: &Sink) -> Setup {
    let setup = Setup::new().hook(Hook::bearer("in")).set("owner.identities", vec!["webhook:in:me"]);
    setup.hook(Hook::bearer("heard").callback(sink)).set("owner.notify", "webhook:heard:owner")
}

/// Waits until `expected` holds for the job of this name, and returns the job.
async fn wait_job(gateway: &Gateway, name: &str, expected: impl Fn(&Value) -> bool) -> Value {
    until(name, async || {
        let jobs = gateway.json(&["cron", "list"]).await;
        jobs.as_array().unwrap().iter().find(|job| job["name"] == name && expected(job)).cloned()
    })
    .await
}

/// The present configuration decides how far a job is trusted, not that of the day it was made.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_loses_the_owners_trust_with_the_identity_of_its_maker() {
    let (model, sink) = (Model::start().await, Sink::signed().await);
    let add = json!({"action": "add", "message": "read the plan", "every": "1d", "name": "plan"});
    model.on("make it", [Reply::tool("cron", &add), Reply::text("made")]);
    model.on("read the plan", [Reply::text("first"), Reply::text("second")]);
    let setup = Setup::new().hook(Hook::bearer("heard").callback(&sink)).model(&model);
    let mut gateway = Gateway::start(setup.clone().set("owner.identities", vec!["webhook:heard:me"])).await;
    let id = gateway.accept("heard", &Message::new("make it").sender("me").chat("c")).await;
    assert_eq!(gateway.wait_done("heard", &id).await.text("reply"), "made");
    let run = async |gateway: &Gateway, count: usize| {
        let ran = gateway.run(&["cron", "run", "plan"]).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        until("the end of the run", async || {
            let runs = gateway.json(&["cron", "history", "plan"]).await;
            let ended = runs.as_array().unwrap().iter().filter(|run| run["outcome"] == "ok").count();
            (ended == count).then_some(())
        })
        .await;
        let database = open(&gateway.database()).unwrap();
        let last = "SELECT trust FROM inbox WHERE sender = 'cron' ORDER BY seq DESC LIMIT 1";
        database.query_row(last, [], |row| row.get::<_, String>(0)).unwrap()
    };
    assert_eq!(run(&gateway, 1).await, "owner");
    let before = gateway.logs().len();
    *gateway.setup() = setup;
    gateway.write_config();
    gateway.sighup();
    until("the reload", async || gateway.logs()[before..].contains("configuration reloaded").then_some(())).await;
    assert_eq!(run(&gateway, 2).await, "known", "the hook trusts everybody who has its secret");
}

/// The owner learns which jobs may have lost rights.
#[tokio::test(flavor = "multi_thread")]
async fn the_list_names_jobs_whose_maker_an_earlier_version_did_not_record() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    let maker = json!({"trust": "owner", "channel": "webhook:in", "chat_id": "c"});
    let mut recorded = maker.clone();
    recorded["identity"] = json!({"channel": "webhook:in", "sender": "me"});
    let jobs = [("old", maker), ("new", recorded)].map(|(id, maker)| {
        let target = json!({"kind": "agent_turn", "message": "x", "channel": "cli", "to": "direct"});
        json!({"id": id, "name": id, "schedule": {"kind": "every", "everyMs": 3_600_000}, "payload": target, "maker": maker})
    });
    let file = json!({"version": 1, "jobs": jobs}).to_string();
    let imported = gateway.run_with_input(&["cron", "import", "-"], &file).await;
    assert_eq!(imported.code, Some(0), "{imported:?}");
    let listed = gateway.json(&["cron", "list"]).await;
    let marked = |name: &str| {
        let job = listed.as_array().unwrap().iter().find(|job| job["name"] == name);
        job.unwrap()["maker_unrecorded"] == true
    };
    assert_eq!([marked("old"), marked("new")], [true, false], "{listed}");
    let shown = gateway.run(&["cron", "list"]).await.stdout;
    let words = "an earlier version made this job";
    assert!(shown.contains(&format!("old: {words}")) && !shown.contains(&format!("new: {words}")), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reminder_without_a_reader_is_refused() {
    let (model, sink) = (Model::start().await, Sink::signed().await);
    let add = json!({"action": "add", "kind": "message", "message": "tea", "at": "in 1s"});
    let elsewhere = json!({"action": "add", "kind": "message", "message": "tea", "at": "in 1s",
        "channel": "webhook:heard", "chat_id": "me"});
    model.on("remind me", [Reply::tool("cron", &add), Reply::tool("cron", &elsewhere), Reply::text("I will tell you")]);
    let gateway = Gateway::start(hooks(&sink).model(&model)).await;
    let id = gateway.accept("in", &Message::new("remind me of the tea").sender("me").chat("c")).await;
    assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "I will tell you");
    let asked = model.requests_about("remind me");
    let result = last_text(&asked[1]).to_owned();
    for words in ["webhook:in has no callback_url", "set channels.webhook.in.callback_url", "cli, page, webhook:heard"]
    {
        assert!(result.contains(words), "{result}");
    }
    let posts = sink.wait_posts(1).await;
    assert_eq!((posts[0].data("content"), posts[0].data("chat_id")), ("tea", "me"));
    let line = ["cron", "add", "--every", "1h", "--message", "x", "--channel", "webhook:in", "--chat", "c"];
    let refused = gateway.run(&line).await;
    assert!(refused.code == Some(1) && refused.stderr.contains("has no callback_url"), "{refused:?}");
}

/// For a disabled channel, and for a channel that lost its callback, the model is not called, and the owner is notified once.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_for_a_removed_channel_pause() {
    let (model, sink) = (Model::start().await, Sink::signed().await);
    let both = |callback: bool, is_on: bool| {
        let two = if callback { Hook::bearer("two").callback(&sink) } else { Hook::bearer("two") };
        hooks(&sink).hook(Hook::bearer("one").callback(&sink).set("enabled", is_on)).hook(two).model(&model)
    };
    let mut gateway = Gateway::new(both(true, true));
    for (name, channel) in [("first", "webhook:one"), ("second", "webhook:two")] {
        let line =
            ["cron", "add", "--name", name, "--at", "in 2s", "--prompt", "news", "--channel", channel, "--chat", "c"];
        gateway.json(&line).await;
    }
    *gateway.setup() = both(false, false);
    gateway.up().await;
    for (name, reason) in
        [("first", "no channel \"webhook:one\" that is switched on"), ("second", "has no callback_url")]
    {
        let job = wait_job(&gateway, name, |job| job["enabled"] == false).await;
        assert!(job.to_string().contains(&reason.replace('"', "\\\"")), "{job}");
        let by_hand = gateway.run(&["cron", "run", name]).await;
        assert!(by_hand.code == Some(1) && by_hand.stderr.contains(reason), "{by_hand:?}");
    }
    let posts = sink.wait_posts(2).await;
    assert!(posts.iter().all(|post| post.data("chat_id") == "owner" && post.data("content").contains("is paused")));
    assert_eq!(model.count(), 0);
}

/// When the daily tokens are used up, prompts are skipped, one-time prompts are postponed, fixed messages are sent, and the
/// owner is notified once.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_stop_at_the_daily_token_limit() {
    let (model, sink) = (Model::start().await, Sink::signed().await);
    let setup = hooks(&sink).model(&model).set("cron.min_interval", "1s").set("cron.tokens_per_day", 1);
    let gateway = Gateway::start(setup).await;
    let here = ["--channel", "webhook:heard", "--chat", "c"];
    let line = ["cron", "add", "--name", "often", "--every", "1s", "--prompt", "news"];
    gateway.json(&[line.as_slice(), &here].concat()).await;
    until("the first run's answer", async || (model.count() == 1 && !sink.posts().is_empty()).then_some(())).await;
    let skipped = |runs: &Value| runs.as_array().unwrap().iter().filter(|run| run["outcome"] == "skipped").count();
    until("runs that are skipped", async || {
        (skipped(&gateway.json(&["cron", "history", "often"]).await) >= 2).then_some(())
    })
    .await;
    for (name, kind) in [("once", "--prompt"), ("plain", "--message")] {
        let line = ["cron", "add", "--name", name, "--at", "in 1s", kind, "tea time"];
        gateway.json(&[line.as_slice(), &here].concat()).await;
    }
    until("the prompt that is postponed", async || {
        let runs = gateway.json(&["cron", "history", "once"]).await.to_string();
        runs.contains("cron.tokens_per_day were used up; it is postponed to midnight").then_some(())
    })
    .await;
    wait_job(&gateway, "once", |job| job["enabled"] == true).await;
    until("the message", async || sink.posts().iter().any(|post| post.data("content") == "tea time").then_some(()))
        .await;
    assert_eq!(model.count(), 1);
    let notices = until("the notice to the owner", async || {
        let posts = sink.posts().into_iter().filter(|post| post.data("chat_id") == "owner").collect::<Vec<_>>();
        (!posts.is_empty()).then_some(posts)
    })
    .await;
    assert!(
        notices.len() == 1 && notices[0].data("content").contains("the 1 tokens of cron.tokens_per_day"),
        "{notices:?}"
    );
    assert_eq!(gateway.run(&["cron", "run", "often"]).await.code, Some(0), "by hand it runs all the same");
    until("the run by hand", async || (model.count() == 2).then_some(())).await;
    // The model cannot evade the limit by running the next job in a job's turn.
    let run = json!({"action": "run", "job_id": "often"});
    model.on("run it", [Reply::tool("cron", &run), Reply::text("it does not run")]);
    let id = gateway.accept("in", &Message::new("run it").sender("me").chat("c")).await;
    assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "it does not run");
    let asked = model.requests_about("run it").pop().unwrap().to_string();
    assert!(asked.contains("have used the tokens of this day (cron.tokens_per_day = 1)"), "{asked}");
    assert_eq!(model.count(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_respect_the_minimum_interval() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    for (schedule, interval) in [(["--every", "59s"], "59s"), (["--cron", "*/20 * * * * *"], "20s")] {
        let line = [["cron", "add"].as_slice(), &schedule, &["--prompt", "x"]].concat();
        let refused = gateway.run(&line).await;
        let words =
            format!("a prompt every {interval} asks the model more often than cron.min_interval = \"1m\" allows");
        assert!(refused.code == Some(1) && refused.stderr.contains(&words), "{refused:?}");
        let line = [["cron", "add"].as_slice(), &schedule, &["--message", "x"]].concat();
        assert_eq!(gateway.run(&line).await.code, Some(0));
    }
    for (schedule, words) in [(["--every", "-5m"], "\"-5m\" is not a duration"), (["--cron", "-1 * * * *"], "-1")] {
        let refused = gateway.run(&[["cron", "add"].as_slice(), &schedule, &["--message", "x"]].concat()).await;
        let is_read = refused.stderr.contains(words) && !refused.stderr.contains("unexpected argument");
        assert!(refused.code == Some(1) && is_read, "{refused:?}");
    }
    let target = json!({"kind": "agent_turn", "message": "x", "channel": "cli", "to": "direct"});
    let every = json!({"kind": "every", "everyMs": 1_000});
    let file = json!({"version": 1, "jobs": [{"id": "a", "name": "a", "schedule": every, "payload": target}]});
    let refused = gateway.run_with_input(&["cron", "import", "-"], &file.to_string()).await;
    assert!(refused.code == Some(1) && refused.stdout.contains("a prompt every 1s asks the model"), "{refused:?}");
    let id = gateway.accept("in", &Message::new("hello").chat("c")).await;
    assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "echo: hello");
}
