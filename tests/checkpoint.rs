//! Sessions return to the end of any of their turns, from the command line and from a chat, without loss.

use std::path::Path;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::gateway::Message;
use crate::support::invariants::{Witness, check};
use crate::support::model::user_messages;
use crate::support::{Gate, Gateway, Model, Reply, Setup, until};

const SESSION: &str = "webhook:in:c";

/// Returns the user's messages in the request about `text`.
fn user_messages_given(model: &Model, text: &str) -> Vec<String> {
    let requests = model.requests_about(text);
    let request = requests.last().expect("a request about it");
    user_messages(request).into_iter().map(str::to_owned).collect()
}

/// Returns the id of the turn that answered `text`.
async fn turn(gateway: &Gateway, text: &str) -> String {
    let list = gateway.json(&["turns", "list", "--session", SESSION]).await;
    let row = list.as_array().unwrap().iter().find(|row| row["content"] == text);
    row.unwrap_or_else(|| panic!("{text} in {list}"))["turn"].as_str().unwrap().to_owned()
}

/// Returns the messages of the session, without their positions in the log.
async fn session_messages(gateway: &Gateway) -> Vec<Value> {
    let shown = gateway.json(&["sessions", "show", SESSION]).await;
    let messages = shown["messages"].as_array().unwrap();
    messages.iter().map(|one| json!([one["turn"], one["role"], one["message"]])).collect()
}

fn change_store(database: &Path, sql: &str, turn: &str) {
    let store = Connection::open(database).unwrap();
    assert!(store.execute(sql, [turn]).unwrap() > 0, "{sql}");
}

#[tokio::test(flavor = "multi_thread")]
async fn restoring_gives_the_model_the_history_up_to_that_turn() {
    let model = Model::start().await;
    let mut gateway = Gateway::start(Setup::scripted(&model)).await;
    for text in ["one", "two", "three"] {
        gateway.ask("in", "c", text).await;
    }
    let [one, two, three] = [turn(&gateway, "one").await, turn(&gateway, "two").await, turn(&gateway, "three").await];

    let restored = gateway.json(&["turns", "restore", &one]).await;
    assert_eq!(
        (&restored["session"], &restored["restored"], &restored["messages"]),
        (&json!(SESSION), &json!(true), &json!(2))
    );
    gateway.ask("in", "c", "four").await;
    assert_eq!(user_messages_given(&model, "four"), ["one", "four"]);
    // The abandoned end is a checkpoint too. A part of its id suffices.
    gateway.json(&["turns", "restore", &three[..23]]).await;
    gateway.ask("in", "c", "five").await;
    assert_eq!(user_messages_given(&model, "five"), ["one", "two", "three", "five"]);

    let forked = gateway.run(&["turns", "fork", &two]).await;
    assert!(forked.code == Some(0) && forked.stdout.starts_with("fork:"), "{forked:?}");
    gateway.run(&["agent", "-m", "six", "--session", forked.stdout.trim()]).await;
    assert_eq!(user_messages_given(&model, "six"), ["one", "two", "six"]);
    gateway.ask("in", "c", "seven").await;
    assert_eq!(user_messages_given(&model, "seven"), ["one", "two", "three", "five", "seven"]);

    // Without a gateway, the same commands print and do the same.
    let asked: [&[&str]; 3] = [&["turns", "list"], &["turns", "show", &two[..23]], &["turns", "list", "--limit", "2"]];
    let mut running = Vec::new();
    for args in asked {
        running.push(gateway.json(args).await);
    }
    gateway.stop().await;
    for (args, running) in asked.iter().zip(&running) {
        assert_eq!(&gateway.json(args).await, running, "{args:?}");
    }
    assert_eq!((running[1]["intact"].clone(), running[2].as_array().unwrap().len()), (json!(true), 2));
    let restored = gateway.json(&["turns", "restore", &two]).await;
    assert_eq!((&restored["restored"], &restored["messages"]), (&json!(true), &json!(4)));
    let forked = gateway.json(&["turns", "fork", &one, "--session", "cli:other"]).await;
    assert_eq!((&forked["session"], &forked["messages"]), (&json!("cli:other"), &json!(2)));
    for (key, fault) in
        [("plain", "names no chat"), ("cli:", "names no chat"), ("cli:a ", "without spaces at its ends")]
    {
        let refused = gateway.run(&["turns", "fork", &one, "--session", key]).await;
        assert!(refused.code == Some(1) && refused.stderr.contains(fault), "{refused:?}");
    }
    gateway.up().await;
    gateway.ask("in", "c", "eight").await;
    assert_eq!(user_messages_given(&model, "eight"), ["one", "two", "eight"]);
    gateway.check_settled(&Witness::default()).await;
    assert_eq!(model.refused(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_checkpoint_survives_a_kill_unchanged() {
    let model = Model::start().await;
    let gate = Gate::new();
    let call = Reply::tool("list_dir", &json!({"path": "."}));
    model.on("work", [call.clone(), Reply::text("done")]);
    model.on("long", [call, Reply::text("late").held_by(&gate)]);
    let mut gateway = Gateway::start(Setup::scripted(&model)).await;
    for text in ["hello", "work"] {
        gateway.ask("in", "c", text).await;
    }
    let (saved, point) = (session_messages(&gateway).await, turn(&gateway, "work").await);
    gateway.accept("in", &Message::new("long").chat("c")).await;
    model.wait_requests(5).await;
    gateway.kill9().await;

    // The turn continues at the next start. Until then, nothing else may write to its session.
    let refused = gateway.run(&["turns", "restore", &point]).await;
    assert!(refused.code == Some(1) && refused.stderr.contains("has not ended yet"), "{refused:?}");
    let refused = gateway.run(&["sessions", "clear", "webhook:in:c"]).await;
    assert!(refused.code == Some(1) && refused.stderr.contains("has not ended yet"), "{refused:?}");
    let long = turn(&gateway, "long").await;
    let refused = gateway.run(&["turns", "fork", &long]).await;
    assert!(refused.code == Some(1) && refused.stderr.contains("has not ended yet"), "{refused:?}");
    assert_eq!(session_messages(&gateway).await, saved);

    gateway.up().await;
    model.wait_requests(6).await;
    // The command waits for the running turn.
    let order = ["turns", "restore", &point];
    let restoring = gateway.json(&order);
    let opened = async {
        let orders = "SELECT count(*) FROM inbox WHERE content LIKE '/restore %'";
        until("the order to be accepted", async || {
            let store = crate::support::invariants::open(&gateway.database()).ok()?;
            (store.query_row(orders, [], |row| row.get::<_, i64>(0)).ok()? == 1).then_some(())
        })
        .await;
        gate.open();
    };
    let (restored, ()) = tokio::join!(restoring, opened);
    assert_eq!(restored["restored"], true);
    assert_eq!(session_messages(&gateway).await, saved);
    gateway.ask("in", "c", "next").await;
    assert_eq!(user_messages_given(&model, "next"), ["hello", "work", "next"]);
    gateway.check_settled(&Witness::default()).await;
    assert_eq!(model.refused(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn restoring_from_a_damaged_journal_is_refused() {
    let model = Model::start().await;
    let mut gateway = Gateway::start(Setup::scripted(&model)).await;
    for text in ["one", "two", "three"] {
        gateway.ask("in", "c", text).await;
    }
    let [one, two] = [turn(&gateway, "one").await, turn(&gateway, "two").await];
    let before = session_messages(&gateway).await;
    gateway.stop().await;
    change_store(&gateway.database(), "UPDATE turn_steps SET body = replace(body, 'two', 'too') WHERE turn = ?", &two);
    change_store(&gateway.database(), "DELETE FROM turn_steps WHERE turn = ?", &one);
    let refuses = async |gateway: &Gateway| {
        for command in ["restore", "fork"] {
            let refused = gateway.run(&["turns", command, &two]).await;
            assert!(refused.code == Some(1) && refused.stderr.contains("state_corrupted"), "{refused:?}");
        }
        assert_eq!(session_messages(gateway).await, before);
        let shown = gateway.json(&["turns", "show", &two]).await;
        assert_eq!((&shown["intact"], &shown["checkpoint"]["code"]), (&json!(false), &json!("state_corrupted")));
    };
    refuses(&gateway).await;
    gateway.up().await;
    refuses(&gateway).await;
    let id = gateway.accept("in", &Message::new(&format!("/restore {two}")).chat("c")).await;
    let state = gateway.wait_done("in", &id).await;
    assert_eq!(state.body["error"]["code"], "state_corrupted", "{state:?}");
    assert_eq!(session_messages(&gateway).await, before);
    // Expired steps are not damage, since the messages exist.
    assert_eq!(gateway.json(&["turns", "restore", &one]).await["messages"], 2);

    for (args, words) in [
        (["turns", "restore", "ffffffff"], "there is no turn ffffffff; `daoyou turns list`"),
        (["turns", "show", "nonsense"], "is not an id"),
        (["turns", "restore", &two[..4]], "several turn ids"),
    ] {
        let refused = gateway.run(&args).await;
        assert!(refused.code == Some(1) && refused.stderr.contains(words), "{args:?}: {refused:?}");
    }
}

/// The journal is intact, but a message was changed or is missing: the restore is refused.
#[tokio::test(flavor = "multi_thread")]
async fn restoring_with_a_changed_or_missing_message_is_refused() {
    let model = Model::start().await;
    let mut gateway = Gateway::start(Setup::scripted(&model)).await;
    for text in ["one", "two", "three"] {
        gateway.ask("in", "c", text).await;
    }
    let [one, two, three] = [turn(&gateway, "one").await, turn(&gateway, "two").await, turn(&gateway, "three").await];
    gateway.stop().await;
    let refuses = async |gateway: &Gateway, missing: &str| {
        let before = session_messages(gateway).await;
        for (command, point) in [("restore", &two), ("restore", &three), ("fork", &two)] {
            let refused = gateway.run(&["turns", command, point]).await;
            assert!(refused.code == Some(1) && refused.stderr.contains("state_corrupted"), "{refused:?}");
            assert!(refused.stderr.contains(missing), "{refused:?}");
        }
        assert_eq!(session_messages(gateway).await, before);
    };
    let edit = |from: &str, to: &str| {
        let sql =
            format!("UPDATE messages SET body = replace(body, '{from}', '{to}') WHERE turn = ? AND role = 'user'");
        change_store(&gateway.database(), &sql, &two);
    };
    edit("two", "too");
    refuses(&gateway, "message 2 of").await;
    edit("too", "two");
    assert_eq!(gateway.json(&["turns", "restore", &two]).await["messages"], 4, "it is the one that was written");
    change_store(&gateway.database(), "DELETE FROM messages WHERE turn = ? AND role = 'assistant'", &two);
    refuses(&gateway, "message 3 of").await;
    assert_eq!(gateway.json(&["turns", "restore", &one]).await["messages"], 2, "what was before it is whole");
    gateway.up().await;
    let id = gateway.accept("in", &Message::new(&format!("/restore {two}")).chat("c")).await;
    let state = gateway.wait_done("in", &id).await;
    assert_eq!(state.body["error"]["code"], "state_corrupted", "{state:?}");
    assert!(state.text("reply").contains("damaged"), "{state:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_lists_names_and_restores_its_own_checkpoints() {
    let model = Model::start().await;
    let mut gateway = Gateway::start(Setup::scripted(&model)).await;
    let empty = gateway.ask("in", "c", "/checkpoint").await;
    assert!(empty.contains("no checkpoint yet"), "{empty}");
    gateway.ask("in", "c", "plan the trip").await;
    let named = gateway.ask("in", "c", "/checkpoint before Rome").await;
    assert!(named.contains("before Rome"), "{named}");
    gateway.ask("in", "c", "go to Rome").await;
    gateway.ask("in", "other", "a secret").await;

    let list = gateway.ask("in", "c", "/checkpoint").await;
    let lines: Vec<_> = list.lines().filter(|line| line.starts_with("- `")).collect();
    assert!(lines.len() == 2 && lines[0].ends_with("go to Rome"), "{list}");
    assert!(lines[1].ends_with("**before Rome** plan the trip"), "{list}");
    let restored = gateway.ask("in", "c", "/restore before Rome").await;
    assert!(restored.contains("plan the trip"), "{restored}");
    gateway.ask("in", "c", "go to Paris").await;
    assert_eq!(user_messages_given(&model, "go to Paris"), ["plan the trip", "go to Paris"]);
    let short = lines[0].split('`').nth(1).unwrap();
    gateway.ask("in", "c", &format!("/restore {short}")).await;
    gateway.ask("in", "c", "and then?").await;
    assert_eq!(user_messages_given(&model, "and then?"), ["plan the trip", "go to Rome", "and then?"]);

    // Turns of another chat are not checkpoints of this chat.
    let foreign = gateway.json(&["turns", "list", "--session", "webhook:in:other"]).await;
    for wanted in [foreign[0]["turn"].as_str().unwrap(), "before Venice"] {
        let id = gateway.accept("in", &Message::new(&format!("/restore {wanted}")).chat("c")).await;
        let state = gateway.wait_done("in", &id).await;
        assert_eq!(state.body["error"]["code"], "not_found", "{state:?}");
        assert!(state.text("reply").contains("/checkpoint"), "{state:?}");
    }
    gateway.setup().clone_from(&Setup::scripted(&model).set("agent.locale", "zh"));
    gateway.restart().await;
    let list = gateway.ask("in", "c", "/checkpoint").await;
    assert!(list.contains("本会话的检查点") && list.contains("before Rome"), "{list}");
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// The command and its effect are in one commit with the reply. After a kill before the commit, the next start applies the
/// command; after a kill later, nothing is repeated.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_restore_command_is_applied_once() {
    for point in ["turn_started=/restore", "end_committed=/restore"] {
        let model = Model::start().await;
        let mut gateway = Gateway::new(Setup::scripted(&model));
        gateway.crash_at(point).up().await;
        for text in ["one", "two"] {
            gateway.ask("in", "c", text).await;
        }
        let one = turn(&gateway, "one").await;
        gateway.try_post("in", "", &Message::new(&format!("/restore {one}")).chat("c").id("r")).await;
        gateway.wait_crash().await;
        gateway.recover().await;
        let shown = gateway.json(&["sessions", "show", SESSION]).await;
        assert_eq!((&shown["epoch"], shown["messages"].as_array().unwrap().len()), (&json!(1), 2), "{point}");
        gateway.ask("in", "c", "three").await;
        assert_eq!(user_messages_given(&model, "three"), ["one", "three"], "{point}");
        check(&gateway.database(), &Witness::default());
    }
}
