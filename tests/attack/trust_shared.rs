//! What the owner's turns must not show or allow where others read and write too: private memories, commands, and foreign text.

use serde_json::{Value, json};

use crate::support::gateway::Message;
use crate::support::model::{answers_in, current_turn, texts_of};
use crate::support::{Gateway, Hook, Model, Reply, Setup};

const SECRET: &str = "the vault code is 991827";

/// A model that makes the calls that the message names after `STEPS `, as JSON, and repeats the results.
fn script_steps(model: &Model) {
    model.script(|asked| {
        let (user, after) = current_turn(asked.body)?;
        let (_, steps) = user.split_once("STEPS ")?;
        let mut steps = serde_json::Deserializer::from_str(steps).into_iter::<Vec<(String, Value)>>();
        let steps = steps.next()?.ok()?;
        Some(match steps.get(answers_in(after)) {
            Some((name, arguments)) => Reply::tool(name, arguments),
            None => Reply::text(texts_of(after, "tool").join(" | ")),
        })
    });
}

async fn gateway(model: &Model, sandbox: &str) -> Gateway {
    script_steps(model);
    let setup = Setup::scripted(model).hook(Hook::bearer("group").trusting(&["ann"]));
    let setup = setup.set("owner.identities", vec!["webhook:group:me"]).set("approval.default", "never");
    let gateway = Gateway::start(setup.set("tools.exec.sandbox", sandbox)).await;
    std::fs::create_dir_all(gateway.workspace().join("memory")).unwrap();
    std::fs::write(gateway.workspace().join("memory/diary.md"), SECRET).unwrap();
    gateway
}

async fn ask(gateway: &Gateway, sender: &str, chat: &str, steps: &Value) -> String {
    let text = if steps.is_null() { "hello".to_owned() } else { format!("STEPS {steps}") };
    let answer = gateway.post("group", "?wait=30", &Message::new(&text).chat(chat).sender(sender)).await;
    answer.text("reply").to_owned()
}

/// Files of memory are hidden from the owner's turns in a chat that others read, for whatever tool, also through a sub-agent.
#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_memory_are_hidden_where_others_read() {
    for sandbox in ["auto", "off"] {
        files_are_hidden(sandbox).await;
    }
}

async fn files_are_hidden(sandbox: &str) {
    let model = Model::start().await;
    let gateway = gateway(&model, sandbox).await;
    let read = json!([["read_file", {"path": "memory/diary.md"}]]);
    let by_agent = json!([["spawn", {"task": format!("STEPS {read}"), "wait": true}]]);
    assert!(ask(&gateway, "me", "alone", &read).await.contains(SECRET));
    for (chat, other) in [("with-ann", "ann"), ("with-eve", "eve")] {
        ask(&gateway, other, chat, &json!(null)).await;
        let (search, print) = (json!([["grep", {"pattern": "vault"}]]), json!([["exec", {"command": "cat memory/*"}]]));
        for steps in [&read, &search, &print, &by_agent] {
            let told = ask(&gateway, "me", chat, steps).await;
            assert!(!told.is_empty() && !told.contains(SECRET), "{chat} {steps}: {told}");
        }
    }
}

/// What a sub-agent read of the memory while the owner was alone is taken out of the chat's history when somebody joins.
#[tokio::test(flavor = "multi_thread")]
async fn reports_of_sub_agents_about_memory_are_private() {
    let model = Model::start().await;
    let gateway = gateway(&model, "auto").await;
    let agent = |task: &Value| json!(["spawn", {"task": format!("STEPS {task}"), "wait": true}]);
    let (read, search) = (json!([["read_file", {"path": "memory/diary.md"}]]), json!([["grep", {"pattern": "vault"}]]));
    let steps = json!([agent(&read), agent(&search), search[0]]);
    model.script(|asked| {
        let (user, after) = current_turn(asked.body)?;
        (user.contains("QUIET") && answers_in(after) > 2).then(|| Reply::text("done"))
    });
    let quiet = Message::new(&format!("QUIET STEPS {steps}")).chat("c").sender("me");
    assert_eq!(gateway.post("group", "?wait=30", &quiet).await.text("reply"), "done");
    let before = model.requests().last().unwrap().to_string();
    assert!(before.contains(SECRET), "the owner's own turn has the result: {before}");
    ask(&gateway, "ann", "c", &json!(null)).await;
    let given = model.requests().last().unwrap().to_string();
    assert!(given.contains("hello") && !given.contains(SECRET), "{given}");
}
