//! This version opens a store that an earlier version wrote when it was killed at work, and finishes the work.

use serde_json::json;

use crate::support::gateway::Message;
use crate::support::invariants::{Witness, open};
use crate::support::model::ModelRequest;
use crate::support::{Gate, Gateway, Hook, Model, Reply, Setup, Sink, until};

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
