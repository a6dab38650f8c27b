//! Conversations stay short: a summary replaces the older part in the background. Important facts stay known to their owner
//! and nobody else.

use std::path::Path;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::exposition::scrape;
use crate::support::gateway::Message;
use crate::support::invariants::{Witness, open};
use crate::support::model::{ModelRequest, last_text, system_of, user_messages};
use crate::support::{Gate, Gateway, Hook, Model, Reply, Setup, until};

const SESSION: &str = "webhook:in:c";

/// Configures the scripted model to write summaries from ten messages on, four of which stay.
fn setup(model: &Model) -> Setup {
    Setup::scripted(model)
        .hook(Hook::bearer("other"))
        .set("memory.model", "")
        .set("memory.consolidate_at", 10)
        .set("memory.keep", 4)
}

fn is_summary(body: &Value) -> bool {
    body["tools"][0]["function"]["name"] == "save_memory"
}

fn summary_reply(arguments: &Value) -> Reply {
    Reply::tool("save_memory", arguments)
}

/// Answers each summary request with the result of `write` for its text.
fn script_summaries(model: &Model, write: impl Fn(&str) -> Reply + Send + Sync + 'static) {
    model.script(move |asked: &ModelRequest<'_>| {
        let text = asked.body["messages"].as_array()?.last()?["content"].as_str()?;
        is_summary(asked.body).then(|| write(text))
    });
}

fn summaries(model: &Model) -> Vec<Value> {
    model.requests().into_iter().filter(is_summary).collect()
}

fn turns(model: &Model) -> Vec<Value> {
    model.requests().into_iter().filter(|body| !is_summary(body)).collect()
}

fn last_request(model: &Model) -> Value {
    turns(model).pop().expect("a turn")
}

fn store(gateway: &Gateway) -> Connection {
    open(&gateway.database()).unwrap()
}

/// Returns the end and the text of the summary of the session's first epoch.
fn stored_summary(database: &Path, session: &str) -> Option<(i64, String)> {
    let sql = "SELECT m.cursor, s.text FROM session_memory m JOIN memories s ON s.id = m.summary
               WHERE m.session = ? AND m.epoch = 0";
    open(database).ok()?.query_row(sql, [session], |row| Ok((row.get(0)?, row.get(1)?))).ok()
}

async fn wait_summary(gateway: &Gateway, cursor: i64) -> String {
    until(&format!("a summary up to {cursor}"), async || {
        stored_summary(&gateway.database(), SESSION).filter(|(at, _)| *at == cursor).map(|(_, text)| text)
    })
    .await
}

async fn send_messages(gateway: &Gateway, numbers: std::ops::Range<usize>) {
    for n in numbers {
        assert_eq!(gateway.ask("in", "c", &format!("number {n}.")).await, format!("echo: number {n}."));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn older_messages_are_summarised_in_the_background() {
    let model = Model::start().await;
    let gate = Gate::new();
    let held = gate.clone();
    script_summaries(&model, move |_| summary_reply(&json!({"summary": "They counted from zero."})).held_by(&held));
    let setup = setup(&model).set("memory.consolidate_at", 50).set("memory.keep", 25);
    let setup = setup.set("providers.scripted.price.input", 2.0).set("providers.scripted.price.output", 10.0);
    let mut gateway = Gateway::start(setup).await;
    send_messages(&gateway, 0..24).await;
    assert!(summaries(&model).is_empty());
    send_messages(&gateway, 24..25).await;
    gate.wait_arrived(1).await;
    // While the summary is being written, the next turn is answered with the whole conversation.
    send_messages(&gateway, 25..26).await;
    assert_eq!(user_messages(&last_request(&model)).len(), 26);
    assert!(!system_of(&last_request(&model)).contains("# Earlier"));
    gate.open();
    assert_eq!(wait_summary(&gateway, 24).await, "They counted from zero.");

    send_messages(&gateway, 26..27).await;
    let request = last_request(&model);
    let kept_messages: Vec<_> = (12..27).map(|n| format!("number {n}.")).collect();
    assert_eq!(user_messages(&request), kept_messages);
    assert!(system_of(&request).contains("\n\n---\n\n# Earlier in this conversation\n\n"), "{}", system_of(&request));
    assert!(system_of(&request).ends_with("They counted from zero.") && !request.to_string().contains("number 11."));
    // The metrics count the cost of the summary as /cost does.
    let page = scrape(&gateway).await;
    let labels = [("provider", "scripted"), ("model", "scripted"), ("currency", "USD")];
    let today = gateway.json(&["status"]).await["today"]["costs"][0]["micros"].as_f64().unwrap() / 1e6;
    let counted = page.value("daoyou_model_cost_total", &labels).unwrap();
    assert!((counted - today).abs() < 1e-9 && today > 0.0, "{counted} {today}");
    // The same bytes after a restart.
    gateway.restart().await;
    send_messages(&gateway, 27..28).await;
    assert_eq!(system_of(&last_request(&model)), system_of(&request));
    let [asked] = summaries(&model).try_into().expect("one summary");
    let transcript = user_messages(&asked).remove(0).to_owned();
    assert!(
        transcript.contains("number 0.") && transcript.contains("number 11.") && !transcript.contains("number 12.")
    );
    assert!(!transcript.contains("[Runtime Context]"), "{transcript}");
    let spent = "SELECT count(*) FROM usage WHERE session = ?";
    let count: i64 = store(&gateway).query_row(spent, [SESSION], |row| row.get(0)).unwrap();
    assert_eq!(count, 29, "what the summary used is told by /cost");
    gateway.check_settled(&Witness::default()).await;
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// After a kill at any point, either the old or the new summary exists. Every message is covered, and none is summarised twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_leaves_either_the_old_or_the_new_summary() {
    for (point, asked) in [("consolidation_begun", 1), ("consolidation_answered", 2), ("consolidation_committed", 1)] {
        let model = Model::start().await;
        script_summaries(&model, |_| summary_reply(&json!({"summary": "They counted."})));
        let mut gateway = Gateway::new(setup(&model));
        gateway.crash_at(point).up().await;
        send_messages(&gateway, 0..4).await;
        gateway.try_post("in", "", &Message::new("number 4.").chat("c").id("five")).await;
        gateway.wait_crash().await;
        let found = stored_summary(&gateway.database(), SESSION);
        let is_new = point == "consolidation_committed";
        assert_eq!(found.map(|(cursor, _)| cursor), is_new.then_some(6), "{point}");

        gateway.recover().await;
        wait_summary(&gateway, 6).await;
        let sql = "SELECT count(*) FROM memories WHERE kind = 'summary'";
        assert_eq!(store(&gateway).query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap(), 1, "{point}");
        assert_eq!(summaries(&model).len(), asked, "{point}");
        send_messages(&gateway, 5..6).await;
        assert_eq!(user_messages(&last_request(&model)), ["number 3.", "number 4.", "number 5."], "{point}");
        assert!(system_of(&last_request(&model)).ends_with("They counted."));
        gateway.check_settled(&Witness::default()).await;
    }
}

/// HISTORY.md is written before the commit that records it. After a kill in between, each summary is still present once.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_after_writing_history_leaves_each_summary_once() {
    let model = Model::start().await;
    let written = std::sync::atomic::AtomicUsize::new(0);
    script_summaries(&model, move |_| {
        let number = written.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        summary_reply(&json!({"summary": format!("They counted, part {number}.")}))
    });
    let mut gateway = Gateway::new(setup(&model));
    gateway.crash_at("history_file_written").up().await;
    send_messages(&gateway, 0..5).await;
    gateway.wait_crash().await;
    let log = gateway.workspace().join("memory/HISTORY.md");
    let sections = |part: &str| std::fs::read_to_string(&log).unwrap_or_default().matches(part).count();
    assert_eq!(sections("part 0."), 1, "the gateway died after the writing");
    let noted = "SELECT count(*) FROM meta WHERE key = 'memory_history'";
    let noted: i64 = store(&gateway).query_row(noted, [], |row| row.get(0)).unwrap();
    assert_eq!(noted, 0, "and before it was noted");
    gateway.recover().await;
    send_messages(&gateway, 5..9).await;
    until("the next summary in the log", async || (sections("part 1.") > 0).then_some(())).await;
    assert_eq!((sections("part 0."), sections("part 1.")), (1, 1));
    gateway.check_settled(&Witness::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_three_failed_summaries_an_extract_is_used() {
    for reply in [Reply::status(400), summary_reply(&json!({"facts": []})), Reply::raw_tool("save_memory", "{\"summ")] {
        let model = Model::start().await;
        script_summaries(&model, move |_| reply.clone());
        let gateway = Gateway::start(setup(&model)).await;
        send_messages(&gateway, 0..5).await;
        for tries in 1..3 {
            until("a failed try to be noted", async || {
                let sql = "SELECT failures FROM session_memory WHERE session = ? AND retry_at > 0";
                let failures = store(&gateway).query_row(sql, [SESSION], |row| row.get::<_, i64>(0)).ok()?;
                (failures == tries).then_some(())
            })
            .await;
            assert_eq!(summaries(&model).len(), usize::try_from(tries).unwrap());
            let again = Connection::open(gateway.database()).unwrap();
            again.execute("UPDATE session_memory SET retry_at = 0", []).unwrap();
            // The next check finds the session due.
            gateway.ask("in", "elsewhere", "hello").await;
        }
        let summary = wait_summary(&gateway, 6).await;
        assert_eq!(summary, "The user was concerned with: number 0; number 1; number 2");
        send_messages(&gateway, 5..6).await;
        assert!(system_of(&last_request(&model)).ends_with(&summary));
        assert_eq!((summaries(&model).len(), model.refused()), (3, Vec::new()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn summaries_stay_within_the_daily_token_limit() {
    let model = Model::start().await;
    script_summaries(&model, |_| summary_reply(&json!({"summary": "They counted."})).usage(900, 100));
    let gateway = Gateway::start(setup(&model).set("memory.tokens_per_day", 1_000).set("agent.locale", "zh")).await;
    send_messages(&gateway, 0..5).await;
    assert_eq!(wait_summary(&gateway, 6).await, "They counted.");
    send_messages(&gateway, 5..8).await;
    assert_eq!(wait_summary(&gateway, 12).await, "They counted.\n用户关心: number 3、number 4、number 5");
    assert_eq!(summaries(&model).len(), 1);
}

/// `/new` summarises all of the old conversation. Its facts are known in the new conversation, which does not get the summary.
#[tokio::test(flavor = "multi_thread")]
async fn closing_a_conversation_keeps_its_facts() {
    let model = Model::start().await;
    script_summaries(&model, |_| {
        summary_reply(&json!({"summary": "Ann spoke of her dog.", "facts": [
            {"text": "Ann's dog is called Rex", "message": 1},
            {"text": "The password of the server is hunter2", "message": 1},
        ]}))
    });
    let gateway = Gateway::start(setup(&model)).await;
    gateway.ask("in", "c", "my dog is called Rex").await;
    gateway.ask("in", "c", "/new").await;
    wait_summary(&gateway, 2).await;
    gateway.ask("in", "c", "hello again").await;
    let request = last_request(&model);
    assert_eq!(user_messages(&request), ["hello again"]);
    let system = system_of(&request);
    assert!(system.contains("# Memory\n\n") && system.contains("\n- Ann's dog is called Rex"), "{system}");
    assert!(!system.contains("hunter2"), "what nobody said is not remembered: {system}");
    assert!(!system.contains("# Earlier"), "{system}");
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// An idle conversation is summarised completely, and the next message still gets the last messages verbatim.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_conversation_is_summarised_completely() {
    let model = Model::start().await;
    script_summaries(&model, |_| summary_reply(&json!({"summary": "They counted."})));
    let gateway = Gateway::start(setup(&model).set("memory.idle", "1s")).await;
    send_messages(&gateway, 0..4).await;
    wait_summary(&gateway, 8).await;
    send_messages(&gateway, 4..5).await;
    assert_eq!(user_messages(&last_request(&model)), ["number 2.", "number 3.", "number 4."]);
    assert!(system_of(&last_request(&model)).ends_with("They counted."));
}

/// With a model that copies the previous summary, ten consolidations lose nothing.
#[tokio::test(flavor = "multi_thread")]
async fn ten_consolidations_keep_planted_facts() {
    let model = Model::start().await;
    script_summaries(&model, |text| {
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.starts_with("planted"));
        let mut planted: Vec<_> = words.collect();
        planted.sort_unstable();
        planted.dedup();
        summary_reply(&json!({"summary": planted.join(" ")}))
    });
    let gateway = Gateway::start(setup(&model).set("memory.consolidate_at", 4).set("memory.keep", 2)).await;
    gateway.ask("in", "c", "planted0").await;
    for n in 1..=10 {
        gateway.ask("in", "c", &format!("planted{n}")).await;
        wait_summary(&gateway, i64::from(n) * 2).await;
    }
    gateway.ask("in", "c", "planted99").await;
    let request = last_request(&model);
    for n in 0..10 {
        assert!(system_of(&request).contains(&format!("planted{n}")), "{}", system_of(&request));
    }
    assert_eq!(user_messages(&request), ["planted10", "planted99"]);
    assert!(summaries(&model).len() >= 10);
}

/// A fact told in one channel is known in another, after a restart and sixty messages.
#[tokio::test(flavor = "multi_thread")]
async fn a_fact_from_one_channel_is_recalled_in_another() {
    let model = Model::start().await;
    script_summaries(&model, |text| {
        let line = text.lines().find(|line| line.contains("Mitzi")).unwrap_or_default();
        let number = line.trim_start_matches('[').split(']').next().unwrap_or_default();
        let facts = json!([{"text": "Ann's cat is called Mitzi", "message": number}]);
        summary_reply(&json!({"summary": "They counted.", "facts": facts}))
    });
    let setup = setup(&model).set("memory.consolidate_at", 50).set("memory.keep", 25);
    let setup = setup.set("identities.ann", vec!["webhook:in:ann", "webhook:other:ann"]);
    let mut gateway = Gateway::start(setup).await;
    let ask = async |gateway: &Gateway, hook: &str, text: &str| {
        let message = Message::new(text).chat("c").sender("ann");
        assert_eq!(gateway.post(hook, "?wait=30", &message).await.status, 200);
    };
    // A conversation that began before any fact was known.
    ask(&gateway, "other", "good morning").await;
    ask(&gateway, "in", "my cat is called Mitzi").await;
    for n in 0..30 {
        ask(&gateway, "in", &format!("number {n}.")).await;
    }
    // The last messages may be summarised with the first ones.
    until("a summary of what was said first", async || {
        stored_summary(&gateway.database(), SESSION).filter(|(at, _)| *at >= 24)
    })
    .await;
    gateway.restart().await;
    ask(&gateway, "other", "What is the name of my cat?").await;
    let request = last_request(&model);
    assert!(
        !system_of(&request).contains("Mitzi"),
        "a prompt does not change from turn to turn: {}",
        system_of(&request)
    );
    let sent = last_text(&request).to_owned();
    let (asked, found) = sent.split_once("\n\n[Memory]\n").unwrap_or_else(|| panic!("{sent}"));
    assert!(asked.contains("[Runtime Context]") && found.contains("\n- Ann's cat is called Mitzi"), "{sent}");
    ask(&gateway, "other", "/new").await;
    ask(&gateway, "other", "hello").await;
    assert!(
        system_of(&last_request(&model)).contains("- Ann's cat is called Mitzi"),
        "{}",
        system_of(&last_request(&model))
    );
    // Nobody else knows it.
    let stranger = Message::new("What is the name of my cat?").chat("d").sender("bob");
    gateway.post("other", "?wait=30", &stranger).await;
    assert!(!last_request(&model).to_string().contains("Mitzi"));
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// Recalled memories are not learned again from the conversation in which they were recalled.
#[tokio::test(flavor = "multi_thread")]
async fn recalled_memories_are_not_stored_again() {
    let model = Model::start().await;
    let content = json!({"content": "Ann's cat is called Mitzi"});
    model.on("keep this", [Reply::tool("remember", &content), Reply::text("kept")]);
    model.on("find", [Reply::tool("recall", &json!({"query": "cat"})), Reply::text("Your cat Mitzi.")]);
    // The newest rule takes precedence.
    script_summaries(&model, |_| {
        summary_reply(&json!({"summary": "They spoke of the cat.", "facts": [
            {"text": "The name of Ann's cat is Mitzi", "message": 1},
            {"text": "Mitzi the cat belongs to Ann", "message": 3},
        ]}))
    });
    let gateway = Gateway::start(setup(&model)).await;
    // The conversation begins before any fact is known, so that the prompt does not contain it.
    gateway.ask("in", "c", "good morning").await;
    gateway.ask("in", "elsewhere", "keep this").await;
    gateway.ask("in", "c", "what is the name of my cat?").await;
    gateway.ask("in", "c", "find my cat").await;
    gateway.ask("in", "c", "/new").await;
    wait_summary(&gateway, 8).await;
    let facts = "SELECT group_concat(text, '; ') FROM memories WHERE kind = 'fact'";
    let known: String = store(&gateway).query_row(facts, [], |row| row.get(0)).unwrap();
    assert_eq!(known, "Ann's cat is called Mitzi");
    let asked = summaries(&model).remove(0);
    assert!(asked.to_string().contains("find my cat") && !asked.to_string().contains("[Memory]"), "{asked}");
}

/// In a shared chat, no private memory reaches another person: neither in prompts, nor attached to messages, nor through earlier recalls.
#[tokio::test(flavor = "multi_thread")]
async fn two_users_in_one_chat_never_see_each_others_private_facts() {
    let model = Model::start().await;
    script_summaries(&model, |_| summary_reply(&json!({"summary": "They met."})));
    model.on("keep this", [Reply::tool("remember", &json!({"content": "Ann's code is tulip"})), Reply::text("kept")]);
    model.on("find", [Reply::tool("recall", &json!({"query": "code"})), Reply::text("found")]);
    let gateway = Gateway::start(setup(&model)).await;
    let ask = async |sender: &str, chat: &str, text: &str| {
        let message = Message::new(text).chat(chat).sender(sender);
        assert_eq!(gateway.post("in", "?wait=30", &message).await.status, 200);
        last_request(&model)
    };
    ask("ann", "group", "good morning").await;
    ask("ann", "alone", "keep this, please").await;
    let own = ask("ann", "group", "what is my code?").await;
    assert!(own.to_string().contains("tulip"), "alone in a chat she is given what she told: {own}");
    let own = ask("ann", "group", "find my code").await;
    assert!(own.to_string().contains("tulip"));

    // From here on, Bob is in the chat.
    for (sender, text) in [("bob", "hello, what is the code?"), ("ann", "what is my code?"), ("bob", "find the code")] {
        let given = ask(sender, "group", text).await;
        assert!(!given.to_string().contains("tulip"), "{sender}: {given}");
    }
    let shown = gateway.post("in", "?wait=30", &Message::new("/memory").chat("group").sender("ann")).await;
    assert!(shown.text("reply").starts_with("Several people read this chat"), "{}", shown.text("reply"));
    assert!(!ask("bob", "his", "what is the code?").await.to_string().contains("tulip"));
    assert!(ask("ann", "hers", "what is my code?").await.to_string().contains("tulip"));
    let shared = "SELECT owner, is_shared FROM sessions WHERE session = 'webhook:in:group'";
    let row = store(&gateway).query_row(shared, [], |row| Ok((row.get::<_, String>(0)?, row.get::<_, bool>(1)?)));
    assert_eq!(row.unwrap(), ("sender:webhook:in:ann".to_owned(), true));
    assert_eq!(model.refused(), Vec::<String>::new());
}
