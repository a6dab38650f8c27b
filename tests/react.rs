//! Models without tools. The prompt describes the tools, and the model's text is parsed. The turn, its journal, its limits
//! and the session stay the same.

use serde_json::{Value, json};

use crate::support::invariants::{Witness, check};
use crate::support::model::{answers_in, current_turn, messages_of, system_of, user_text};
use crate::support::requirements::bubblewrap_is_missing;
use crate::support::{Gateway, Model, Reply, Setup};

/// Returns the messages of a request as `role: text`, without the system prompt.
fn message_lines(request: &Value) -> Vec<String> {
    let line = |message: &Value| {
        let text = user_text(message["content"].as_str().unwrap_or_default());
        format!("{}: {text}", message["role"].as_str().unwrap_or_default())
    };
    messages_of(request).iter().skip(1).map(line).collect()
}

/// Answers a user message that contains `about` with these texts, one for each step of its turn. The last text repeats.
fn script_texts(model: &Model, about: &str, steps: &[&str]) {
    let (about, steps) = (about.to_owned(), steps.iter().map(|&step| step.to_owned()).collect::<Vec<_>>());
    model.script(move |asked| {
        let (user, after) = current_turn(asked.body)?;
        let step = answers_in(after);
        let text = || steps.get(step).or(steps.last()).cloned().unwrap_or_default();
        user_text(user).contains(&about).then(|| Reply::text(text()))
    });
}

/// Makes the model refuse tools, as a server whose model has none does.
fn refuse_tools(model: &Model) {
    model.script(|asked| {
        let reply = || Reply::status(400).saying("registry.example/library/small:2b does not support tools");
        asked.body["tools"].is_array().then(reply)
    });
}

/// A model that refuses tools is detected automatically. It solves a task with two tools and is not offered tools again.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_refuses_tools_falls_back_to_react() {
    let model = Model::start().await;
    script_texts(
        &model,
        "note it",
        &[
            "Thought: I write it down.\nAction: write_file\nAction Input: {\"path\": \"note.txt\", \"content\": \"buy\nmilk\"}",
            "**Thought:** Now I look.\n**Action:** `read_file`\n**Action Input:** note.txt\nObservation: it is empty\nFinal Answer: wrong",
            "Thought: It is there.\nFinal Answer: Noted:\n\n- buy\n- milk",
        ],
    );
    script_texts(&model, "thanks", &["You are welcome."]);
    refuse_tools(&model);
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    assert_eq!(gateway.ask("in", "c", "note it").await, "Noted:\n\n- buy\n- milk");
    assert_eq!(std::fs::read_to_string(gateway.workspace().join("note.txt")).unwrap(), "buy\nmilk");
    assert_eq!(gateway.ask("in", "c", "thanks").await, "You are welcome.");
    let requests = model.requests();
    let offered: Vec<_> = requests.iter().map(|request| request["tools"].is_array()).collect();
    assert_eq!((offered, model.refused()), (vec![true, false, false, false, false], Vec::new()));
    let system = system_of(&requests[1]);
    assert!(system.contains("Action Input:") && system.contains("## read_file"), "{system}");
    let last = message_lines(&requests[4]);
    assert_eq!(last.len(), 7, "{last:#?}");
    assert!(
        last[1].starts_with("assistant: Thought: I write it down.\nAction: write_file\nAction Input: {"),
        "{last:#?}"
    );
    assert!(last[2].starts_with("user: Observation: ") && last[4].contains("buy\n"), "{last:#?}");
    assert!(!last.join("").contains("it is empty"), "what the model made up is not kept: {last:#?}");
    assert_eq!(last[5..], ["assistant: Final Answer: Noted:\n\n- buy\n- milk", "user: thanks"]);
    gateway.check_settled(&Witness::default()).await;
}

/// An invalid step becomes an observation, a repeated step is reported as such, and the limit gives an answer.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_react_steps_are_observed_and_the_limit_gives_an_answer() {
    let model = Model::start().await;
    let look = "Action: list_dir\nAction Input: {\"path\": \"memory\"}";
    script_texts(
        &model,
        "try",
        &[
            "Action: weather\nAction Input: cats",
            "Action: write_file\nAction Input: cats.txt, all of them",
            look,
            look,
            look,
            "Final Answer: I gave up.",
        ],
    );
    script_texts(&model, "loop", &[look, look, look, "Thought: I must stop.\nFinal Answer: This is what I found."]);
    let gateway =
        Gateway::start(Setup::scripted(&model).set("agent.orchestrator", "react").set("agent.max_iterations", 5)).await;
    let notice = |steps: u32| {
        format!("(I stopped after {steps} steps, which is the limit. Ask me to go on if there is more to do.)")
    };
    assert_eq!(gateway.ask("in", "c", "try").await, format!("I gave up.\n\n{}", notice(5)));
    let requests = model.requests();
    let observed = |request: &Value| -> Vec<String> {
        message_lines(request).into_iter().filter(|line| line.starts_with("user: Observation:")).collect()
    };
    let (before, last) = (observed(&requests[4]), observed(&requests[5]));
    assert_eq!((before.len(), last.len()), (4, 5), "{last:#?}");
    assert!(before[0].contains("\"weather\" not found. Available tools: "), "{before:#?}");
    assert!(before[1].contains("Action Input: {\"path\": …, \"content\": …}"), "{before:#?}");
    assert!(!last[3].contains("in a row") && last[4].contains("3 times in a row"), "{last:#?}");
    assert!(last[4].contains("No more actions can be taken"), "{last:#?}");
    assert!(requests.iter().all(|request| request["tools"].is_null()), "the model is never offered tools");
    assert!(!system_of(requests.last().unwrap()).contains("## list_dir"));
    assert_eq!((gateway.ask("in", "d", "loop").await.as_str(), model.refused()), ("This is what I found.", Vec::new()));
}

/// A session moves from a model with tools to one without and back. Each sees the earlier calls in its own format.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_moves_to_a_model_without_tools_and_back() {
    let (native, small) = (Model::start().await, Model::start().await);
    let list = json!({"path": "."});
    native.on(
        "first",
        [Reply::tool("list_dir", &list).call_id("same").saying("I look."), Reply::text("There are files.")],
    );
    native.on("third", [Reply::tool("list_dir", &list).call_id("same"), Reply::text("Still there.")]);
    script_texts(
        &small,
        "second",
        &["Thought: I read.\nAction: read_file\nAction Input: USER.md", "Final Answer: I have read it."],
    );
    refuse_tools(&small);
    let gateway = Gateway::start(
        Setup::scripted(&native)
            .set("providers.small.api_key", "a-model-key")
            .set("providers.small.base_url", small.base_url()),
    )
    .await;
    assert_eq!(gateway.ask("in", "c", "first").await, "There are files.");
    assert!(gateway.ask("in", "c", "/model small/tiny").await.contains("small/tiny"));
    assert_eq!(gateway.ask("in", "c", "second").await, "I have read it.");
    assert!(gateway.ask("in", "c", "/model scripted/scripted").await.contains("scripted"));
    assert_eq!(gateway.ask("in", "c", "third").await, "Still there.");

    let result = message_lines(&small.requests_about("second")[1]);
    assert!(
        result[1].starts_with("assistant: Thought: I look.\nAction: list_dir\nAction Input: {\"path\":\".\"}"),
        "{result:#?}"
    );
    assert!(result[2].starts_with("user: Observation: ") && result[2].contains("USER.md"), "{result:#?}");
    assert_eq!(result[3..], ["assistant: Final Answer: There are files.", "user: second"]);
    let messages = native.requests().last().unwrap()["messages"].clone();
    let ids: Vec<_> = messages.as_array().unwrap().iter().filter_map(|it| it["tool_calls"][0]["id"].as_str()).collect();
    assert!(ids[0] == "same" && ids[2] == "same_2" && ids.len() == 3, "each id means one call: {ids:?}");
    assert_eq!(messages[6]["tool_calls"][0]["function"]["name"], "read_file", "{messages:#}");
    assert_eq!((&messages[6]["content"], &messages[7]["role"]), (&json!("I read."), &json!("tool")), "{messages:#}");
    assert_eq!(
        (&messages[8]["content"], native.refused(), small.refused()),
        (&json!("I have read it."), vec![], vec![])
    );
}

/// Chinese texts, with the markers that Chinese models write.
#[tokio::test(flavor = "multi_thread")]
async fn chinese_react_markers_are_understood() {
    let model = Model::start().await;
    script_texts(
        &model,
        "记一下",
        &[
            "<think>行动：无</think>\n思考：先写下来。\n行动：write_file\n行动输入：{\"path\": \"笔记.txt\", \"content\": \"买牛奶\"}\n观察：好",
            "思考：写好了。\n最终答案：已记下：\n买牛奶",
        ],
    );
    let setup = Setup::scripted(&model).set("agent.orchestrator", "react").set("agent.locale", "zh");
    let gateway = Gateway::start(setup).await;
    assert_eq!(gateway.ask("in", "c", "记一下").await, "已记下：\n买牛奶");
    assert_eq!(std::fs::read_to_string(gateway.workspace().join("笔记.txt")).unwrap(), "买牛奶");
    assert_eq!((model.count(), model.refused()), (2, Vec::new()));
}

/// A process that dies between two ReAct steps continues at that point.
#[tokio::test(flavor = "multi_thread")]
async fn a_react_turn_continues_after_a_crash() {
    if bubblewrap_is_missing() {
        return;
    }
    let model = Model::start().await;
    let add = "Thought: I add a line.\nAction: exec\nAction Input: echo x >> effects.txt && echo it-is-done";
    script_texts(&model, "work", &[add, "Final Answer: finished"]);
    for point in ["response_committed", "tool_result_committed"] {
        let mut gateway = Gateway::new(Setup::scripted(&model).set("agent.orchestrator", "react"));
        gateway.crash_at(point).up().await;
        let message = crate::support::gateway::Message::new("work").chat("c").id("m1");
        let before = model.count();
        gateway.try_post("in", "", &message).await;
        gateway.wait_crash().await;
        gateway.recover().await;
        let id = gateway.post("in", "", &message).await.text("id").to_owned();
        assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "finished", "{point}");
        assert_eq!(model.count() - before, 2, "{point}: no answer is asked for twice");
        assert_eq!(std::fs::read_to_string(gateway.workspace().join("effects.txt")).unwrap(), "x\n", "{point}");
        check(&gateway.database(), &Witness { accepted: &[id], ..Witness::default() });
    }
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// `plain` calls the model once and offers no tools.
#[tokio::test(flavor = "multi_thread")]
async fn plain_mode_asks_once_without_tools() {
    let model = Model::start().await;
    model.on("list", [Reply::tool("list_dir", &json!({"path": "."})).saying("I would look.")]);
    let gateway = Gateway::start(Setup::scripted(&model).set("agent.orchestrator", "plain")).await;
    assert_eq!(gateway.ask("in", "c", "list").await, "I would look.");
    let requests = model.requests();
    assert_eq!((requests.len(), &requests[0]["tools"], model.refused()), (1, &Value::Null, Vec::new()));
    assert!(!system_of(&requests[0]).contains("# Tools"));
}
