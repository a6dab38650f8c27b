//! Conversations: searched, exported and imported, separated, and reset.

use serde_json::{Value, json};

use crate::support::clock::{faketime, start_at_time};
use crate::support::gateway::{Gateway, Message};
use crate::support::model::messages_of;
use crate::support::{Model, Reply, Setup, until};

/// Returns the session of this key from the list.
async fn listed_session(gateway: &Gateway, key: &str) -> Value {
    let list = gateway.json(&["sessions", "list"]).await;
    list.as_array().unwrap().iter().find(|row| row["session"] == key).cloned().unwrap_or(Value::Null)
}

/// Waits for search results and returns them as `session #seq`.
async fn search_results(gateway: &Gateway, args: &[&str]) -> Vec<String> {
    let place = |hit: &Value| format!("{} #{}", hit["session"].as_str().unwrap(), hit["seq"]);
    until("a message to be found", async || {
        let hits = gateway.json(&[&["sessions", "search"], args].concat()).await;
        let places: Vec<_> = hits.as_array()?.iter().map(place).collect();
        (!places.is_empty()).then_some(places)
    })
    .await
}

/// Returns the messages of the last request about `text`, without the system prompt.
fn messages_given(model: &Model, text: &str) -> Vec<String> {
    let requests = model.requests_about(text);
    let messages = messages_of(requests.last().unwrap());
    let content = |message: &Value| message["content"].as_str().unwrap_or_default().to_owned();
    messages.iter().filter(|message| message["role"] != "system").map(content).collect()
}

/// After a hundred turns with a kill in the middle, the log is complete and in order, each request was valid, and the first
/// and last messages are found.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_turns_stay_complete_across_a_kill() {
    let model = Model::start().await;
    let mut gateway = Gateway::start(Setup::scripted(&model)).await;
    let message = |n: usize| match n {
        0 => "the first thing is a walrus".to_owned(),
        99 => "the last thing is a pangolin".to_owned(),
        n => format!("number {n}"),
    };
    for n in 0..100 {
        if n == 50 {
            gateway.restart().await;
        }
        assert_eq!(gateway.ask("in", "c", &message(n)).await, format!("echo: {}", message(n)));
    }
    assert_eq!(model.refused(), Vec::<String>::new(), "every window was a valid conversation");
    let session = gateway.json(&["sessions", "show", "webhook:in:c"]).await;
    let log: Vec<_> = session["messages"].as_array().unwrap().iter().map(|row| row["seq"].as_i64().unwrap()).collect();
    assert_eq!(log, (0..200).collect::<Vec<_>>(), "whole and in order");
    for (n, row) in session["messages"].as_array().unwrap().iter().enumerate().step_by(2) {
        let content = row["message"]["content"].as_str().unwrap();
        assert!(content.starts_with(&message(n / 2)) && row["role"] == "user", "{n}: {content}");
    }
    assert!(messages_given(&model, &message(99)).len() <= 101, "the window is bounded");
    let first = search_results(&gateway, &["walrus"]).await;
    assert!(first.contains(&"webhook:in:c #0".to_owned()), "{first:?}");
    let last = search_results(&gateway, &["pangolin", "--session", "webhook:in:c"]).await;
    assert!(last.contains(&"webhook:in:c #198".to_owned()), "{last:?}");
    gateway.stop().await;
    let at_rest = search_results(&gateway, &["pangolin"]).await;
    assert_eq!(at_rest, last, "the same where no gateway runs");
}

/// An export is imported unchanged, with a gateway and without; a file of another assistant is imported too.
#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_is_exported_and_imported() {
    let model = Model::start().await;
    model.on("what is there?", [Reply::tool("list_dir", &json!({"path": "."})), Reply::text("Some files.")]);
    let mut gateway = Gateway::start(Setup::scripted(&model)).await;
    gateway.ask("in", "c", "what is there?").await;
    let key = "webhook:in:c";
    let lines = gateway.run(&["sessions", "export", key]).await.stdout;
    assert_eq!(lines.lines().count(), 4);
    let text = gateway.run(&["sessions", "export", key, "--format", "md"]).await.stdout;
    assert!(
        text.starts_with(&format!("# {key}\n\n## user, ")) && text.contains("<summary>list_dir</summary>"),
        "{text}"
    );
    assert!(text.contains("what is there?\n") && !text.contains("[Runtime Context]"), "{text}");

    let whole = json!({
        "key": "telegram:42",
        "messages": [
            {"role": "user", "content": "my bicycle is red", "timestamp": "2026-01-01T10:00:00"},
            {"role": "assistant", "content": "noted", "timestamp": "2026-01-01T10:00:05"},
        ],
        "lastConsolidated": 0, "createdAt": "2026-01-01T10:00:00", "updatedAt": "2026-01-01T10:00:05",
    });
    for (is_running, name) in [(true, "cli:one"), (false, "cli:two")] {
        if !is_running {
            gateway.stop().await;
        }
        let ran = gateway.run_with_input(&["sessions", "import", "-", "--session", name, "--json"], &lines).await;
        let taken: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(taken, json!({"session": name, "owner": "owner", "messages": 4}), "{ran:?}");
        let exported = gateway.run(&["sessions", "export", name]).await.stdout;
        // The result of a tool taints the imported conversation.
        let renamed =
            lines.replace(&format!("\"session\":\"{key}\""), &format!("\"session\":\"{name}\",\"tainted\":true"));
        let expected = renamed.replace("\"owner\":\"webhook:in:webhook:in\"", "\"owner\":\"owner\"");
        assert_eq!(exported, expected, "but for the name and the taint, byte for byte");
        let ran = gateway.run_with_input(&["sessions", "import", "-", "--session", name], &lines).await;
        assert!(ran.code == Some(1) && ran.stderr.contains("already exists"), "{ran:?}");
        let spoilt = format!("{lines}{{}}\n");
        let ran = gateway.run_with_input(&["sessions", "import", "-", "--session", "cli:no"], &spoilt).await;
        assert!(ran.code == Some(1) && ran.stderr.contains("nothing was imported:\nline 5: "), "{ran:?}");
        assert_eq!(listed_session(&gateway, "cli:no").await, Value::Null, "all or nothing");
        // The format of earlier versions.
        let nameless = lines.replace(&format!(",\"session\":\"{key}\""), "");
        let ran = gateway.run_with_input(&["sessions", "import", "-"], &nameless).await;
        assert!(ran.code == Some(1) && ran.stderr.contains("--session KEY"), "{ran:?}");
    }
    let ran = gateway.run_with_input(&["sessions", "import", "-"], &whole.to_string()).await;
    assert_eq!((ran.code, ran.stdout.trim()), (Some(0), "telegram:42: 2 messages, of owner"), "{ran:?}");
    let shown = gateway.json(&["sessions", "show", "telegram:42"]).await;
    assert_eq!(shown["messages"][0]["at"], "2026-01-01T10:00:00Z");
    gateway.up().await;
    assert_eq!(search_results(&gateway, &["bicycle"]).await, ["telegram:42 #0"]);
    let ran = gateway.run(&["agent", "-m", "which colour?", "--session", "telegram:42"]).await;
    assert_eq!(ran.stdout.trim(), "echo: which colour?", "{ran:?}");
    let given = messages_given(&model, "which colour?");
    assert_eq!((given.len(), given[0].as_str()), (3, "my bicycle is red"), "the conversation goes on: {given:?}");
}

/// Each sender of a chat has a separate conversation if that is configured. A reload applies the setting.
#[tokio::test(flavor = "multi_thread")]
async fn each_sender_of_a_chat_can_have_a_session() {
    let model = Model::start().await;
    let setup = Setup::scripted(&model).set("agent.session.scope", "sender");
    let gateway = Gateway::start(setup).await;
    let say = async |sender: &str, text: &str| {
        let answered = gateway.post("in", "?wait=30", &Message::new(text).chat("group").sender(sender)).await;
        assert_eq!(answered.text("reply"), format!("echo: {text}"), "{answered:?}");
        answered.text("session").to_owned()
    };
    assert_eq!(say("ann", "a secret of Ann's").await, "webhook:in:group:ann");
    assert_eq!(say("bob", "what did she say?").await, "webhook:in:group:bob");
    assert_eq!(say("ann", "and again").await, "webhook:in:group:ann");
    assert_eq!(messages_given(&model, "what did she say?").len(), 1);
    assert_eq!(messages_given(&model, "and again").len(), 3);
    let own = Message::new("here").chat("group").sender("ann").session("ops");
    assert_eq!(gateway.post("in", "?wait=30", &own).await.text("session"), "webhook:in:ops", "it says so itself");
}

/// The first message after the reset time, and the first after a long silence, begin a new conversation, exactly once, even
/// across a clock change.
#[tokio::test(flavor = "multi_thread")]
async fn conversations_are_reset_by_time_and_silence() {
    let Some(library) = faketime() else { return };
    let model = Model::start().await;
    let setup = Setup::scripted(&model)
        .set("agent.timezone", "America/New_York")
        .set("agent.session.daily_reset", "02:30")
        .set("agent.session.idle_reset", "12h");
    let mut gateway = Gateway::new(setup);
    // 02:30 does not exist on that day: the clock goes from 01:59:59 to 03:00:00 at 07:00 UTC, and 03:30 replaces it.
    for (time, text, epoch, messages) in [
        ("2026-03-08 06:50:00", "one", 0, 2),
        ("2026-03-08 07:29:00", "two", 0, 4),
        ("2026-03-08 07:31:00", "three", 1, 2),
        ("2026-03-08 19:00:00", "four", 1, 4),
        ("2026-03-09 06:29:00", "five", 1, 6),
        ("2026-03-09 06:31:00", "six", 2, 2),
        ("2026-03-09 18:40:00", "seven", 3, 2),
    ] {
        start_at_time(&mut gateway, &library, time);
        gateway.up().await;
        if text == "six" {
            // A command is answered in the conversation that it concerns.
            assert!(gateway.ask("in", "c", "/session").await.contains('6'), "{time}");
        }
        assert_eq!(gateway.ask("in", "c", text).await, format!("echo: {text}"));
        let session = listed_session(&gateway, "webhook:in:c").await;
        assert_eq!((&session["epoch"], &session["messages"]), (&json!(epoch), &json!(messages)), "{time}: {session}");
        assert_eq!(messages_given(&model, text).len() + 1, messages, "{time}");
        gateway.stop().await;
    }
}

/// Any key of a webhook's chat is one for `--session`, however long it is and with spaces in it.
#[tokio::test(flavor = "multi_thread")]
async fn commands_take_the_keys_of_all_chats() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    for chat in ["the daily report", &"道 x".repeat(80)] {
        gateway.ask("in", chat, "hello").await;
        let key = format!("webhook:in:{chat}");
        let ran = gateway.run(&["agent", "-m", "go on", "--session", &key]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "echo: go on\n"), "{ran:?}");
        assert_eq!(listed_session(&gateway, &key).await["session"], json!(key));
        let begun = gateway.run(&["cron", "add", "--every", "2h", "--prompt", "x", "--session", &key]).await;
        assert_eq!(begun.code, Some(0), "{begun:?}");
    }
}

/// Asserts that a key of a session is refused wherever one is chosen.
async fn assert_key_refused(gateway: &Gateway, key: &str) {
    let job = ["cron", "add", "--prompt", "x", "--every", "1h", "--session", key];
    for args in [&["agent", "-m", "x", "--session", key][..], &job, &["sessions", "import", "-", "--session", key]] {
        let ran = gateway.run(args).await;
        assert!(ran.code == Some(2) && ran.stderr.contains("a key is one line"), "{args:?}: {ran:?}");
    }
    let job = json!({"prompt": "x", "every": "1h", "session": key});
    for (path, body) in [("/api/cron", job), ("/api/chat", json!({"content": "x", "session": key}))] {
        let request = gateway.client.post(gateway.url(path)).bearer_auth(gateway.token()).json(&body);
        let answer = Gateway::try_send(request).await.unwrap();
        let message = answer.body["error"]["message"].as_str().unwrap_or_default();
        assert!(answer.status == 422 && message.contains("a key is one line"), "{path} {key:?}: {answer:?}");
    }
    // A webhook's senders name only its own sessions.
    for message in [Message::new("x").chat(key), Message::new("x").session(&key.replace("cli:", ""))] {
        let answer = gateway.post("in", "", &message).await;
        assert_eq!((answer.status, &answer.body["error"]["code"]), (422, &json!("invalid")), "{key:?}: {answer:?}");
    }
}

/// A key with spaces at its ends is refused, and never trimmed.
#[tokio::test(flavor = "multi_thread")]
async fn keys_with_spaces_at_their_ends_are_refused() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    for key in [" cli:a", "cli:a "] {
        assert_key_refused(&gateway, key).await;
    }
}

/// A key with characters that nobody sees is refused, and one from elsewhere is listed with them.
#[tokio::test(flavor = "multi_thread")]
async fn keys_with_unseen_characters_are_refused_and_listed_escaped() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    for key in ["cli:a\u{2028}b", "cli:a\u{2029}b", "cli:a\u{202e}b", "cli:a\u{200f}b"] {
        assert_key_refused(&gateway, key).await;
    }
    let message = json!({
        "channel": "webhook:in", "external_id": "m", "chat_id": "a\u{202e}b", "sender": "ann", "trust": "known",
        "content": "hi", "received_at": jiff::Timestamp::now(),
    });
    let id = gateway.deliver(&message).await;
    gateway.wait_done("in", &id).await;
    for list in [["sessions", "list"], ["turns", "list"]] {
        let listed = gateway.run(&list).await.stdout;
        assert!(listed.contains("webhook:in:a\\u{202e}b"), "{listed}");
    }
}
