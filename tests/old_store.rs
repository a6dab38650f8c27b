//! This version opens a store that an earlier version wrote when it was killed at work, and finishes the work.

use serde_json::json;

use crate::support::clock::{faketime, start_at_time};
use crate::support::gateway::Message;
use crate::support::invariants::{Journal, Witness, open};
use crate::support::model::{ModelRequest, user_messages};
use crate::support::{Answer, Gate, Gateway, Hook, Model, Reply, Setup, Sink, until};

/// `daoyou.db` of commit 8563155, written by [`write_fixture`] and killed.
const STORE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/store-8563155.db");

fn setup(model: &Model, sink: &Sink) -> Setup {
    let ops = Hook::bearer("ops").callback(sink).set("prompt", "Answer as operator.");
    Setup::new()
        .model(model)
        .hook(Hook::bearer("in").callback(sink))
        .hook(ops)
        .set("tools.exec.sandbox", "off")
        .set("owner.identities", vec!["webhook:in:boss"])
}

/// Writes the fixture: every kind of origin that a turn can have, most of them unfinished. Run it with `DAOYOU_FIXTURE=FILE
/// cargo test --test stories -- --ignored write_fixture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes a new fixture, for the version after the next change of the schema"]
async fn write_fixture() {
    let file = std::env::var_os("DAOYOU_FIXTURE").expect("DAOYOU_FIXTURE names the file to write");
    let (model, gate) = (Model::start().await, Gate::new());
    let sink = Sink::signed().await;
    let mut gateway = Gateway::start(setup(&model, &sink)).await;
    let held = || Reply::text("never sent").held_by(&gate);
    model.on(
        "remember tea",
        [Reply::tool("remember", &json!({"text": "Ann drinks oolong tea."})), Reply::text("noted")],
    );
    let news = json!({"action": "add", "name": "news", "message": "what is new?", "every": "12h"});
    model.on("plan the news", [Reply::tool("cron", &news), Reply::text("planned")]);
    model.on(
        "compile it",
        [Reply::tool("exec", &json!({"command": "sleep 600", "background": true})), Reply::text("compiling")],
    );
    model.on(
        "delegate both",
        [Reply::tool("spawn", &json!({"task": "first half", "label": "one", "wait": true}))
            .and_tool("spawn", &json!({"task": "second half", "label": "two", "wait": true}))],
    );
    model.on(
        "delegate later",
        [Reply::tool("spawn", &json!({"task": "the far task", "label": "far"})), Reply::text("asked")],
    );
    for task in ["first half", "second half", "the far task", "what is new?", "think long", "operate"] {
        model.on(task, [held()]);
    }
    for (text, chat, sender) in [
        ("remember tea", "tea", "ann"),
        ("plan the news", "news", "ann"),
        ("compile it", "build", "boss"),
        ("delegate later", "far", "ann"),
    ] {
        let id = gateway.accept("in", &Message::new(text).chat(chat).sender(sender)).await;
        gateway.wait_done("in", &id).await;
        sink.wait_reply(&id).await;
    }
    assert_eq!(gateway.run(&["cron", "run", "news"]).await.code, Some(0));
    gateway.accept("in", &Message::new("delegate both").chat("both").sender("ann").id("both")).await;
    gateway.accept("in", &Message::new("think long").chat("long").sender("bob").id("long")).await;
    gateway.accept("in", &Message::new("and then?").chat("long").sender("bob").id("then")).await;
    gateway.accept("ops", &Message::new("operate").chat("o").sender("carl").id("operate")).await;
    gate.wait_arrived(6).await;
    gateway.kill9().await;
    let merged = rusqlite::Connection::open(gateway.database()).expect("the store of the killed gateway");
    merged.pragma_update(None, "journal_mode", "DELETE").expect("nobody else has it open");
    std::fs::copy(gateway.database(), file).expect("the fixture can be written");
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_work_of_an_earlier_version_is_finished() {
    let model = Model::start().await;
    let sink = Sink::signed().await;
    for (text, answer) in [
        ("first half", "1"),
        ("second half", "2"),
        ("the far task", "far away"),
        ("[sub-agent far finished", "it is far away"),
        ("delegate both", "1 and 2"),
        ("what is new?", "nothing new"),
        ("think long", "thought"),
        ("and then?", "then that"),
        ("operate", "operated"),
        ("[background process", "the build is gone"),
    ] {
        model.on(text, [Reply::text(answer)]);
    }
    let mut gateway = Gateway::new(setup(&model, &sink));
    gateway.write_config();
    std::fs::copy(STORE, gateway.database()).expect("the fixture is there");
    gateway.up().await;

    let replies = ["1 and 2", "thought", "then that", "operated", "nothing new", "it is far away", "the build is gone"];
    until("what was unfinished", async || {
        let posts = sink.posts();
        replies.iter().all(|reply| posts.iter().any(|post| post.data("content") == *reply)).then_some(())
    })
    .await;
    for (hook, id, reply) in [
        ("in", "both", "1 and 2"),
        ("in", "long", "thought"),
        ("in", "then", "then that"),
        ("ops", "operate", "operated"),
    ] {
        assert_eq!(gateway.wait_done(hook, id).await.text("reply"), reply);
    }
    gateway.check_settled(&Witness { sink: Some(&sink), ..Witness::default() }).await;

    // The owner's settings of a hook still apply to a message that was accepted earlier.
    let operated = &model.requests_about("operate")[0];
    assert!(operated.to_string().contains("Answer as operator."), "{operated}");
    // The results of both sub-agents returned to the turn that waited for them.
    let both = model.requests_about("delegate both");
    assert_eq!(ModelRequest::new(0, both.last().expect("it went on")).results, ["1", "2"]);

    // A job created by a sender still runs on that sender's behalf, so it recalls what that sender told.
    let recall = || Reply::tool("recall", &json!({"query": "oolong tea"}));
    model.on("which tea", [recall(), Reply::text("oolong")]);
    let id = gateway.accept("in", &Message::new("which tea").chat("other").sender("ann")).await;
    assert_eq!(sink.wait_reply(&id).await.data("content"), "oolong");
    let recalled = ModelRequest::new(0, model.requests_about("which tea").last().expect("a request")).results;
    assert!(recalled.iter().any(|result| result.contains("Ann drinks oolong tea.")), "{recalled:?}");
    model.on("what is new?", [recall(), Reply::text("tea is new")]);
    assert_eq!(gateway.run(&["cron", "run", "news"]).await.code, Some(0));
    until("the run", async || sink.posts().iter().any(|post| post.data("content") == "tea is new").then_some(())).await;
    let run = model.requests_about("what is new?");
    let recalled = ModelRequest::new(0, run.last().expect("the run")).results;
    assert!(recalled.iter().any(|result| result.contains("Ann drinks oolong tea.")), "{recalled:?}");
    assert_eq!(model.refused(), Vec::<String>::new());

    // Nothing of the earlier form remains.
    let connection = open(&gateway.database()).expect("the store");
    let columns = "SELECT count(*) FROM inbox WHERE json_extract(metadata, '$.errand') IS NOT NULL";
    assert_eq!(connection.query_row(columns, [], |row| row.get::<_, i64>(0)).expect("a count"), 0);
}

/// A home of the first format with a conversation opens, and the conversation continues.
#[tokio::test(flavor = "multi_thread")]
async fn a_home_of_the_first_format_opens() {
    let mut gateway = Gateway::new(Setup::new().hook(Hook::bearer("in")));
    gateway.write_config();
    let first = rusqlite::Connection::open(gateway.database()).unwrap();
    first.execute_batch(include_str!("../src/store/migrations/0001_spine.sql")).unwrap();
    first
        .execute_batch(
            "INSERT INTO sessions (session, next_seq, created_at, updated_at) VALUES ('cli:direct', 1, 1, 1);
             INSERT INTO messages (session, epoch, seq, role, body, turn, at)
                 VALUES ('cli:direct', 0, 0, 'user', '{\"role\":\"user\",\"content\":\"the code is 4711\"}', 't1', 1);
             PRAGMA user_version = 1;",
        )
        .unwrap();
    drop(first);
    gateway.up().await;
    assert_eq!(gateway.run(&["agent", "-m", "hello"]).await.code, Some(0));
    let session = gateway.json(&["sessions", "show", "cli:direct"]).await;
    let messages = session["messages"].to_string();
    assert!(messages.contains("the code is 4711") && messages.contains("hello"), "{messages}");
    gateway.stop().await;
    let ran = gateway.run(&["doctor", "--json"]).await;
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let database = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == "database").unwrap();
    assert_eq!(database["state"], "ok", "{database}");
}

/// `daoyou.db` of commit 8bef218, whose gateway was killed at work, as [`write_killed_fixture`] writes it. The log
/// `daoyou.db-wal` stays beside it, and contains the last messages alone.
const KILLED_STORE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/store-8bef218.db");

/// Ann is trusted, and only `boss` is the owner. A callback that fails is tried again after an hour.
fn setup_of_killed_store(model: &Model, sink: &Sink) -> Setup {
    let hook = Hook::bearer("in").trusting(&["ann"]).callback(sink).set("retry", vec!["1h", "1h"]);
    Setup::new().model(model).hook(hook).set("owner.identities", vec!["webhook:in:boss"])
}

/// Makes the model write a file, ask a question, and repeat every other message.
fn script_killed_work(model: &Model) {
    let write = json!({"path": "trip.txt", "content": "We travel by train.\n"});
    model.on("write it", [Reply::tool("write_file", &write), Reply::text("It is written.")]);
    let colour = json!({"question": "Which colour?", "options": ["Blue", "Dark green"]});
    model.script(move |asked| {
        let painted = || Reply::text(format!("painted: {}", asked.results.join(" + ")));
        let is_first = asked.step == 0;
        (asked.user == "paint").then(|| if is_first { Reply::tool("ask_user", &colour) } else { painted() })
    });
}

/// Writes the fixture with the version `PROGRAM`: `DAOYOU_BIN=PROGRAM DAOYOU_FIXTURE=FILE cargo test --test stories --
/// --ignored write_killed_fixture`. The two clean stops before the kill empty the log, so that both files remain small.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes a new fixture, for the version after the next change of the schema"]
async fn write_killed_fixture() {
    let file = std::env::var("DAOYOU_FIXTURE").expect("DAOYOU_FIXTURE names the file to write");
    let library = faketime().expect("libfaketime, so that all times are in the past");
    let (model, gate, sink) = (Model::start().await, Gate::new(), Sink::signed().await);
    script_killed_work(&model);
    model.on("think long", [Reply::text("never sent").held_by(&gate)]);
    sink.when(|post| match post.data("chat_id") {
        "gone" => Some(Answer::Status(410, None)),
        "late" => Some(Answer::Status(503, None)),
        _ => None,
    });
    let setup = setup_of_killed_store(&model, &sink).set("approval.expires", "36500d");
    let mut gateway = Gateway::new(setup);
    let send = async |gateway: &Gateway, sender: &str, chat: &str, text: &str| {
        gateway.accept("in", &Message::new(text).chat(chat).sender(sender)).await
    };
    start_at_time(&mut gateway, &library, "2026-01-05 08:00:00");
    gateway.up().await;
    for (chat, text) in
        [("plan", "hello"), ("plan", "/checkpoint before the trip"), ("plan", "we travel"), ("gone", "to nobody")]
    {
        let id = send(&gateway, "ann", chat, text).await;
        gateway.wait_done("in", &id).await;
    }
    let at = ["cron", "add", "--name", "news", "--at", "2099-01-01T08:00:00Z", "--prompt", "what is new?"];
    gateway.json(&[&at[..], &["--channel", "webhook:in", "--chat", "news"]].concat()).await;
    gateway.json(&["tokens", "add", "phone", "--scope", "read"]).await;
    gateway.json(&["memory", "add", "Ann drinks oolong tea."]).await;
    let is_dead = async || gateway.json(&["queue", "list"]).await[0]["state"] == "dead";
    until("the dead letter", async || is_dead().await.then_some(())).await;
    gateway.stop().await;

    start_at_time(&mut gateway, &library, "2026-01-05 08:01:00");
    gateway.up().await;
    let id = send(&gateway, "ann", "late", "hello later").await;
    gateway.wait_done("in", &id).await;
    let is_refused = || sink.posts().iter().any(|post| post.data("chat_id") == "late");
    until("the refused callback", async || is_refused().then_some(())).await;
    let id = send(&gateway, "stranger", "write", "write it").await;
    gateway.wait_status(&id, "waiting").await;
    gateway.stop().await;

    start_at_time(&mut gateway, &library, "2026-01-05 08:02:00");
    gateway.up().await;
    let id = send(&gateway, "ann", "paint", "paint").await;
    gateway.wait_status(&id, "waiting").await;
    send(&gateway, "bob", "long", "think long").await;
    gate.wait_arrived(1).await;
    gateway.kill9().await;
    for suffix in ["", "-wal"] {
        let original = format!("{}{suffix}", gateway.database().display());
        std::fs::copy(original, format!("{file}{suffix}")).expect("the fixture can be written");
    }
}

/// Starts this version in a home with the killed store.
async fn revived_gateway(model: &Model, sink: &Sink) -> Gateway {
    let mut gateway = Gateway::new(setup_of_killed_store(model, sink));
    gateway.write_config();
    for suffix in ["", "-wal"] {
        let copy = format!("{}{suffix}", gateway.database().display());
        std::fs::copy(format!("{KILLED_STORE}{suffix}"), copy).expect("the fixture is there");
    }
    gateway.up().await;
    gateway
}

/// Returns the id of the accepted message with this text.
fn id_of(gateway: &Gateway, text: &str) -> String {
    let inbox = Journal::read(&gateway.database()).expect("the store").inbox;
    inbox.into_iter().find(|row| row.content == text).unwrap_or_else(|| panic!("{text} was accepted")).id
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waited_when_an_earlier_version_was_killed_goes_on_once() {
    let (model, sink) = (Model::start().await, Sink::signed().await);
    script_killed_work(&model);
    let gateway = revived_gateway(&model, &sink).await;
    let texts = ["think long", "hello later", "write it", "paint"];
    let ids = texts.map(|text| id_of(&gateway, text));
    let [long, later, write, paint] = &ids;

    // The message that the model had not answered, and the callback that had failed.
    assert_eq!(sink.wait_reply(long).await.data("content"), "echo: think long");
    assert_eq!(sink.wait_reply(later).await.data("content"), "echo: hello later");

    // The call that waits for the owner.
    let waiting = gateway.json(&["approvals", "list"]).await;
    let calls: Vec<_> = waiting.as_array().unwrap().iter().map(|call| json!([call["tool"], call["turn"]])).collect();
    assert_eq!(calls, [json!(["write_file", write])], "{waiting}");
    let written = json!({"path": "trip.txt", "content": "We travel by train.\n"});
    assert_eq!((&waiting[0]["arguments"], &waiting[0]["taint"]), (&written, &json!(["sender:webhook:in:stranger"])));
    assert!(!gateway.workspace().join("trip.txt").exists());
    let approved = gateway.json(&["approvals", "approve", waiting[0]["id"].as_str().unwrap()]).await;
    assert_eq!(approved["state"], "approved", "{approved}");
    assert_eq!(sink.wait_reply(write).await.data("content"), "It is written.");
    assert_eq!(std::fs::read_to_string(gateway.workspace().join("trip.txt")).unwrap(), "We travel by train.\n");

    // The question that waits for its answer.
    let question = until("the question", async || {
        let state = gateway.state("in", paint).await;
        (state.text("status") == "waiting").then(|| state.text("question").to_owned())
    });
    assert_eq!(question.await, "Which colour?\n\n1. Blue\n2. Dark green");
    gateway.accept("in", &Message::new("2").chat("paint").sender("ann")).await;
    assert_eq!(sink.wait_reply(paint).await.data("content"), "painted: Dark green");

    let journal = gateway.check_settled(&Witness { accepted: &ids, sink: Some(&sink), ..Witness::default() }).await;
    assert_eq!(ids.each_ref().map(|id| sink.replies_to(id).len()), [1; 4]);
    // The reply that had only to be delivered needed no model.
    assert_eq!(texts.map(|text| model.requests_about(text).len()), [1, 0, 1, 1]);
    assert_eq!(journal.steps_of(write).iter().filter(|step| step.kind == "tool_result").count(), 1);
    assert_eq!(gateway.json(&["approvals", "list"]).await, json!([]));
    assert_eq!(model.refused(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_version_had_stored_when_it_was_killed_is_kept() {
    let (model, sink) = (Model::start().await, Sink::signed().await);
    let gateway = revived_gateway(&model, &sink).await;
    let tokens = gateway.json(&["tokens", "list"]).await;
    assert_eq!((&tokens[0]["name"], &tokens[0]["scope"]), (&json!("phone"), &json!("read")), "{tokens}");
    let jobs = gateway.json(&["cron", "list"]).await;
    assert_eq!(
        json!([jobs[0]["name"], jobs[0]["schedule"], jobs[0]["state"], jobs[0]["channel"], jobs[0]["chat_id"]]),
        json!(["news", {"at": "2099-01-01T08:00:00Z"}, "enabled", "webhook:in", "news"])
    );
    let found = gateway.json(&["memory", "search", "oolong"]).await;
    assert_eq!(found[0]["text"], "Ann drinks oolong tea.", "{found}");

    // The named checkpoint can be restored.
    let list = gateway.ask_as("in", "ann", "plan", "/checkpoint").await;
    assert!(list.contains("**before the trip** hello"), "{list}");
    gateway.ask_as("in", "ann", "plan", "/restore before the trip").await;
    gateway.ask_as("in", "ann", "plan", "and now?").await;
    assert_eq!(user_messages(&model.requests_about("and now?")[0]), ["hello", "and now?"]);

    // The dead letter can be sent again.
    let queue = gateway.json(&["queue", "list"]).await;
    let dead: Vec<_> = queue.as_array().unwrap().iter().filter(|row| row["state"] == "dead").collect();
    assert_eq!(dead.len(), 1, "{queue}");
    assert_eq!((&dead[0]["chat_id"], &dead[0]["content"]), (&json!("gone"), &json!("echo: to nobody")), "{queue}");
    gateway.json(&["queue", "retry", dead[0]["id"].as_str().unwrap()]).await;
    assert_eq!(sink.wait_reply(&id_of(&gateway, "to nobody")).await.data("content"), "echo: to nobody");
    assert_eq!(model.refused(), Vec::<String>::new());
}
