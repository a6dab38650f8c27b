//! Sub-agents: delegated tasks, awaited or not, across crashes of the process.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::gateway::Message;
use crate::support::invariants::{Journal, Witness, check, wait_settled};
use crate::support::model::{ModelRequest, tools_of};
use crate::support::{Gate, Gateway, Hook, Model, Reply, Setup, Sink, until};

fn spawn(arguments: &Value) -> Reply {
    Reply::tool("spawn", arguments)
}

/// Returns one answer with an awaited `spawn` call for each of these tasks.
fn awaited_spawns(tasks: &[&str]) -> Reply {
    let one = |reply: Reply, (n, task): (usize, &&str)| {
        reply.and_tool("spawn", &json!({"task": task, "wait": true})).call_id(&format!("c{n}"))
    };
    tasks.iter().enumerate().fold(Reply::default(), one)
}

/// Returns the results at the end of the last request about `text`.
fn last_results(model: &Model, text: &str) -> Vec<String> {
    let requests = model.requests_about(text);
    ModelRequest::new(0, requests.last().expect("a request about it")).results
}

/// The report arrives as a message and is answered in the chat once, wherever the process dies.
#[tokio::test(flavor = "multi_thread")]
async fn a_sub_agent_report_is_answered_once_at_every_crash_point() {
    for point in [None, Some("spawn_committed"), Some("child_ended"), Some("turn_started=[sub-agent sheep")] {
        let model = Model::start().await;
        let task = json!({"task": "count the sheep", "label": "sheep"});
        model.on("delegate", [spawn(&task), Reply::text("I have asked.")]);
        model.on("count the sheep", [Reply::text("42 of them")]);
        model.on("[sub-agent sheep finished", [Reply::text("There are 42 sheep.")]);
        let sink = Sink::signed().await;
        let mut gateway = Gateway::new(Setup::scripted(&model).hook(Hook::bearer("in").callback(&sink)));
        if let Some(point) = point {
            gateway.crash_at(point);
        }
        gateway.up().await;
        let id = gateway.accept("in", &Message::new("delegate").chat("c").id("m1")).await;
        if point.is_some() {
            gateway.wait_crash().await;
            gateway.recover().await;
        }
        // A reply that was sent but not marked as sent is sent again under its id.
        let replies = || {
            let posts = sink.posts();
            posts.iter().map(|post| (post.id().to_owned(), post.data("content").to_owned())).collect::<BTreeSet<_>>()
        };
        until("both replies", async || (replies().len() >= 2).then_some(())).await;
        wait_settled(&gateway.database()).await;
        // The receiver knows the message that the first reply answers, and none that the report answers.
        for post in sink.posts() {
            let is_reply = post.data("content") == "I have asked.";
            let known = if is_reply { json!([id, "m1", null]) } else { json!([null, null, id]) };
            let data = &post.body["data"];
            assert_eq!(json!([data["in_reply_to"], data["external_id"], data["follows"]]), known, "{point:?}: {data}");
        }
        let mut replies: Vec<_> = replies().into_iter().map(|(_, content)| content).collect();
        replies.sort_unstable();
        assert_eq!(replies, ["I have asked.", "There are 42 sheep."], "{point:?}: and nothing of the sub-agent itself");
        let report = model.requests_about("[sub-agent sheep finished");
        assert_eq!((model.requests_about("count the sheep").len(), report.len()), (1, 1), "{point:?}");
        let report = ModelRequest::new(0, &report[0]).user;
        assert!(report.ends_with("tokens]\n42 of them"), "{report}");
        assert_eq!(model.refused(), Vec::<String>::new(), "{point:?}");
        check(&gateway.database(), &Witness { accepted: &[id], sink: Some(&sink), strict_order: false });
    }
}

/// The reply to collected messages and a later report name the same one, and the report is fetched with each of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_to_collected_messages_names_the_one_that_the_reply_names() {
    let (model, gate, sink) = (Model::start().await, Gate::new(), Sink::signed().await);
    model.on("first", [Reply::text("one").held_by(&gate)]);
    model.on("delegate", [spawn(&json!({"task": "count", "label": "sheep"})), Reply::text("I have asked.")]);
    model.on("[sub-agent sheep finished", [Reply::text("There are 42 sheep.")]);
    let setup = Setup::scripted(&model).hook(Hook::bearer("in").callback(&sink)).set("agent.queue", "collect");
    let gateway = Gateway::start(setup).await;
    gateway.accept("in", &Message::new("first").chat("c")).await;
    gate.wait_arrived(1).await;
    let collected = [
        gateway.accept("in", &Message::new("delegate").chat("c")).await,
        gateway.accept("in", &Message::new("please").chat("c")).await,
    ];
    gate.open();
    let post = |content: &str| sink.posts().into_iter().find(|post| post.data("content") == content);
    let reply = until("the reply", async || post("I have asked.")).await;
    let report = until("the report", async || post("There are 42 sheep.")).await;
    assert_eq!([reply.data("in_reply_to"), report.data("follows")], [collected[1].as_str(); 2]);
    for id in &collected {
        let state = gateway.state("in", id).await.body;
        assert_eq!(state["follow_ups"][0]["reply"], "There are 42 sheep.", "{state}");
    }
}

/// Without a callback, the reports are fetched with the state of the message whose turn started the sub-agents.
#[tokio::test(flavor = "multi_thread")]
async fn reports_are_fetched_with_the_message_that_they_follow_from() {
    let model = Model::start().await;
    let count = |what: &str| spawn(&json!({"task": format!("count the {what}"), "label": what}));
    model.on("delegate", [count("sheep"), Reply::text("I have asked.")]);
    model.on("[sub-agent sheep finished", [count("goats"), Reply::text("There are 42 sheep.")]);
    model.on("[sub-agent goats finished", [Reply::text("And 7 goats.")]);
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    let id = gateway.accept("in", &Message::new("delegate").chat("c").id("m1")).await;
    let state = until("both reports", async || {
        let state = gateway.state("in", "m1").await.body;
        (state["follow_ups"][1]["status"] == "done").then_some(state)
    })
    .await;
    assert_eq!((&state["id"], &state["reply"]), (&json!(id), &json!("I have asked.")));
    let replies: Vec<_> = state["follow_ups"].as_array().unwrap().iter().map(|later| later["reply"].clone()).collect();
    assert_eq!(replies, ["There are 42 sheep.", "And 7 goats."]);
    // Another message of the chat has none, even under an id of their form.
    let other = gateway.accept("in", &Message::new("hello").chat("c").id(&format!("{id}:x"))).await;
    assert_eq!(gateway.wait_done("in", &other).await.body.get("follow_ups"), None);
    assert_eq!(gateway.state("in", &id).await.body, state);
    assert_eq!(gateway.json(&["queue", "list"]).await, json!([]), "no reply is lost");
    gateway.check_settled(&Witness { accepted: &[id, other], ..Witness::default() }).await;
}

/// Three sub-agents run at once while their turn is parked without a slot. After a kill everything continues.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_waits_for_sub_agents_uses_no_slot_and_survives_a_kill() {
    let model = Model::start().await;
    let gate = Gate::new();
    let tasks = ["first part", "second part", "third part"];
    for task in tasks {
        model.on(task, [Reply::text(format!("{task} is done")).held_by(&gate)]);
    }
    model.on("everything", [awaited_spawns(&tasks), Reply::text("all parts are done")]);
    let mut gateway = Gateway::start(Setup::scripted(&model).set("agent.max_concurrent_turns", 1)).await;
    let id = gateway.accept("in", &Message::new("everything").chat("c")).await;
    gate.wait_arrived(3).await;
    gateway.wait_status(&id, "waiting").await;
    assert_eq!(gateway.ask("in", "other", "hello").await, "echo: hello", "the one place is free");
    let status = gateway.ask("in", "c", "/status").await;
    assert!(status.contains("Sub-agents at work here: 3 (first part, second part, third part)"), "{status}");
    gateway.restart().await;
    gate.wait_arrived(6).await;
    gateway.wait_status(&id, "waiting").await;
    gate.open();
    assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "all parts are done");
    assert_eq!(last_results(&model, "everything"), tasks.map(|task| format!("{task} is done")));
    assert_eq!((model.requests_about("everything").len(), model.refused()), (2, Vec::new()));
    gateway.check_settled(&Witness { accepted: &[id], ..Witness::default() }).await;
}

/// Killed just after an awaited sub-agent has begun or ended, or after its turn was parked.
#[tokio::test(flavor = "multi_thread")]
async fn an_awaited_sub_agent_runs_once_at_every_crash_point() {
    for point in ["spawn_committed", "child_ended", "waiting_committed=ask one"] {
        let model = Model::start().await;
        model.on("ask one", [awaited_spawns(&["the only task"]), Reply::text("thanks")]);
        model.on("the only task", [Reply::text("the only answer")]);
        let mut gateway = Gateway::new(Setup::scripted(&model));
        gateway.crash_at(point).up().await;
        let id = gateway.try_post("in", "", &Message::new("ask one").chat("c").id("m1")).await;
        gateway.wait_crash().await;
        gateway.recover().await;
        let id = id.map_or_else(String::new, |id| id.text("id").to_owned());
        let again = gateway.post("in", "", &Message::new("ask one").chat("c").id("m1")).await;
        assert!(id.is_empty() || again.text("id") == id, "{point}");
        assert_eq!(gateway.wait_done("in", again.text("id")).await.text("reply"), "thanks", "{point}");
        assert_eq!(last_results(&model, "ask one"), ["the only answer"], "{point}");
        // A kill may happen between a request and the step of its answer.
        let asked = model.requests_about("the only task").len();
        assert!(asked == 1 || (asked == 2 && point.starts_with("waiting")), "{point}: {asked}");
        let journal = check(&gateway.database(), &Witness::default());
        assert_eq!(journal.inbox.iter().filter(|row| row.session.starts_with("spawn:")).count(), 1, "{point}");
    }
}

/// More sub-agents than slots, each with its own sub-agent, and one turn at a time: no turn waits for another's slot. The
/// deepest sub-agents are not offered `spawn`.
#[tokio::test(flavor = "multi_thread")]
async fn parent_and_child_turns_never_deadlock_over_slots() {
    let model = Model::start().await;
    let tasks = ["outer 1", "outer 2", "outer 3", "outer 4"];
    model.script(|asked| {
        let number = asked.user.strip_prefix("outer ")?;
        let inner = spawn(&json!({"task": format!("inner {number}")}));
        Some(if asked.step == 0 { inner } else { Reply::text(format!("{} and outer {number}", asked.results[0])) })
    });
    model.on("nest", [awaited_spawns(&tasks), Reply::text("nested")]);
    let setup = Setup::scripted(&model).set("agent.max_concurrent_turns", 1).set("agent.spawn.at_once", 1);
    let gateway = Gateway::start(setup).await;
    assert_eq!(gateway.ask("in", "c", "nest").await, "nested");
    let expected: Vec<_> = (1..=4).map(|n| format!("echo: inner {n} and outer {n}")).collect();
    assert_eq!(last_results(&model, "nest"), expected);
    assert!(model.requests_about("outer 1")[0]["tools"].to_string().contains("spawn (sub-agents)"));
    let deepest = &model.requests_about("inner 1")[0];
    assert!(tools_of(deepest).contains(&"exec") && !deepest["tools"].to_string().contains("spawn"), "{deepest}");
    let task = deepest["messages"][1]["content"].as_str().unwrap();
    assert!(task.contains("You are the sub-agent \"inner 1\"") && task.contains("in session spawn:"), "{task}");
    gateway.check_settled(&Witness::default()).await;
}

/// `/stop` ends the running turn and everything below it, or without a running turn the independent sub-agents.
#[tokio::test(flavor = "multi_thread")]
async fn stop_ends_sub_agents_at_every_depth() {
    let model = Model::start().await;
    let gate = Gate::new();
    model.on("deep work", [awaited_spawns(&["middle work"]), Reply::text("never")]);
    model.on("middle work", [awaited_spawns(&["lowest work"]), Reply::text("never")]);
    model.on("lowest work", [Reply::text("never").held_by(&gate)]);
    let task = json!({"task": "background work", "label": "back"});
    model.on("send off", [spawn(&task), Reply::text("sent off")]);
    model.on("background work", [Reply::text("never").held_by(&gate)]);
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    let id = gateway.accept("in", &Message::new("deep work").chat("c")).await;
    gate.wait_arrived(1).await;
    gateway.wait_status(&id, "waiting").await;
    assert_eq!(gateway.ask("in", "c", "/stop").await, "Stopping, and its sub-agents with it: 2.");
    let state = gateway.wait_done("in", &id).await;
    assert_eq!((state.text("reply"), &state.body["error"]["code"]), ("(stopped)", &json!("stopped")));
    wait_settled(&gateway.database()).await;

    assert_eq!(gateway.ask("in", "c", "send off").await, "sent off");
    gate.wait_arrived(2).await;
    let stopped = gateway.ask("in", "c", "/stop").await;
    assert_eq!(stopped, "Nothing else is running here; stopping sub-agents: 1.");
    wait_settled(&gateway.database()).await;
    model.wait_disconnected(2).await;
    assert_eq!(gateway.ask("in", "c", "what now").await, "echo: what now");
    let asked = model.requests_about("what now")[0].to_string();
    assert!(asked.contains("[sub-agent back was stopped after"), "{asked}");
    assert_eq!(gateway.ask("in", "c", "/stop").await, "Nothing is running here.");
    check(&gateway.database(), &Witness::default());
}

/// A plan waits for its sub-agents, passes their answers to the steps that need them, and runs each once.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_passes_answers_between_sub_agents() {
    let model = Model::start().await;
    let (first, second) = (Gate::new(), Gate::new());
    let call = |id: &str, task: &str, needs: &[&str]| {
        let arguments = json!({"task": task, "wait": true, "label": id});
        json!({"id": id, "tool": "spawn", "arguments": arguments, "needs": needs})
    };
    let look = json!({"id": "look", "tool": "list_dir", "arguments": {}});
    let calls = [call("a", "find one", &[]), call("b", "find two", &[]), call("c", "add {{a}} and {{b}}", &["a", "b"])];
    let sum = json!({"path": "sum.txt", "content": "{{c}}"});
    let write = json!({"id": "write", "tool": "write_file", "arguments": sum, "needs": ["c"]});
    let calls: Vec<_> = calls.into_iter().chain([look, write]).collect();
    let exec = json!({"id": "e", "tool": "exec", "arguments": {"command": "true"}});
    let refused = Reply::tool("parallel", &json!({"calls": [calls[0], exec]}));
    let plan = Reply::tool("parallel", &json!({"calls": calls}));
    model.on("plan it", [refused.call_id("p1"), plan.call_id("p2"), Reply::text("planned")]);
    model.on("find one", [Reply::text("1").held_by(&first)]);
    model.on("find two", [Reply::text("2").held_by(&second)]);
    model.on("add 1 and 2", [Reply::text("3")]);
    let mut gateway = Gateway::start(Setup::scripted(&model)).await;
    let id = gateway.accept("in", &Message::new("plan it").chat("c")).await;
    first.wait_arrived(1).await;
    second.wait_arrived(1).await;
    first.open();
    until("the first end", async || {
        let journal = Journal::read(&gateway.database()).ok()?;
        let done = |row: &crate::support::invariants::InboxRow| row.content == "find one" && row.state == "done";
        journal.inbox.iter().any(done).then_some(())
    })
    .await;
    gateway.restart().await;
    second.wait_arrived(2).await;
    second.open();
    assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "planned");
    let result = last_results(&model, "plan it").remove(0);
    for part in
        ["[a] spawn: done\n1", "[b] spawn: done\n2", "[c] spawn: done\n3", "[look] list_dir: done", "Created sum.txt"]
    {
        assert!(result.contains(part), "{result}");
    }
    let result = ModelRequest::new(0, &model.requests_about("plan it")[1]).results.remove(0);
    assert!(
        result.contains("this plan waits for spawn and is run again when that ends, which exec (\"e\")"),
        "{result}"
    );
    let asked = |text: &str| model.requests_about(text).len();
    assert_eq!((asked("find one"), asked("add 1 and 2"), model.refused()), (1, 1, Vec::new()));
    gateway.check_settled(&Witness { accepted: &[id], ..Witness::default() }).await;
}

/// The asking turn gets the failures and the exceeded limits of its sub-agents.
#[tokio::test(flavor = "multi_thread")]
async fn limits_and_failures_of_sub_agents_are_reported() {
    let model = Model::start().await;
    let gate = Gate::new();
    let list = || Reply::tool("list_dir", &json!({}));
    model.on("go round", [list(), list(), list(), list()]);
    model.on("think for ever", [Reply::text("never").held_by(&gate)]);
    model.on("fail", [Reply::status(400)]);
    model.on("eat much", [list().usage(90_000, 20_000), Reply::text("full")]);
    let tools = json!({"task": "use few tools", "tools": ["read_file"], "wait": true, "label": "few"});
    model.on("use few tools", [Reply::tool("exec", &json!({"command": "id"})), Reply::text("had few")]);
    let tasks = ["go round", "think for ever", "fail", "eat much"];
    let calls = awaited_spawns(&tasks).and_tool("spawn", &tools).call_id("c4");
    model.on("try all", [calls, Reply::text("tried")]);
    let setup = Setup::scripted(&model)
        .set("agent.spawn.max_iterations", 2)
        .set("agent.spawn.timeout", "5s")
        .set("agent.spawn.max_tokens", 100_000)
        .set("agent.spawn.max_children", 5)
        .set("agent.spawn.at_once", 5);
    let gateway = Gateway::start(setup).await;
    assert_eq!(gateway.ask("in", "c", "try all").await, "tried");
    let outcomes = last_results(&model, "try all");
    for (outcome, expected) in outcomes.iter().zip([
        "I stopped after 2 steps",
        "Sub-agent \"think for ever\" failed (turn_timeout): I stopped because this took longer than 5s.",
        "Sub-agent \"fail\" failed (llm_",
        "failed (token_cap): (I stopped after 110000 tokens",
        "had few",
    ]) {
        assert!(outcome.contains(expected), "{outcome}");
    }
    assert_eq!(outcomes.len(), 5);
    let few = model.requests_about("use few tools");
    assert_eq!(tools_of(&few[0]), ["read_file"]);
    let refused = ModelRequest::new(0, &few[1]).results.remove(0);
    assert!(refused.contains("\"exec\" is not available in this turn. Available tools: read_file"), "{refused}");

    let turns = gateway.json(&["turns", "list"]).await;
    let few = turns.as_array().unwrap().iter().find(|turn| turn["sub_agent"]["label"] == "few").unwrap();
    assert_eq!((&few["sub_agent"]["session"], &few["sub_agent"]["depth"]), (&json!("webhook:in:c"), &json!(1)));
    let ran = gateway.run(&["turns", "show", few["turn"].as_str().unwrap()]).await;
    assert!(ran.stdout.contains("the turn of sub-agent \"few\", asked for by session webhook:in:c"), "{}", ran.stdout);

    let many: Vec<_> = (1..=6).map(|n| format!("one of {n}")).collect();
    let held = Gate::new();
    model.on("one of", [Reply::text("here").held_by(&held)]);
    let calls = many.iter().enumerate().fold(Reply::default(), |reply, (n, task)| {
        reply.and_tool("spawn", &json!({"task": task})).call_id(&format!("d{n}"))
    });
    model.on("too many", [calls, Reply::text("some began")]);
    assert_eq!(gateway.ask("in", "c", "too many").await, "some began");
    let outcomes = last_results(&model, "too many");
    assert!(
        outcomes[4].contains("works on it") && outcomes[5].contains("5 sub-agents of this conversation are at work"),
        "{outcomes:?}"
    );
    held.open();
    gateway.check_settled(&Witness::default()).await;
}
