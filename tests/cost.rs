//! The cost of models: counted exactly once, at the price valid at the time, and shown everywhere.

use serde_json::{Value, json};

use crate::support::gateway::Message;
use crate::support::{Gate, Gateway, Model, Reply, Setup, until};

/// Sets the prices per million tokens.
fn priced(setup: Setup, input: f64, output: f64, currency: &str) -> Setup {
    let key = |name: &str| format!("providers.scripted.price.{name}");
    setup.set(&key("input"), input).set(&key("output"), output).set(&key("currency"), currency)
}

/// Returns the numbers of a usage view.
fn numbers(used: &Value) -> (u64, u64, u64) {
    let number = |key: &str| used[key].as_u64().unwrap_or_else(|| panic!("{key} in {used}"));
    (number("turns"), number("input"), number("output"))
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_and_cost_are_counted_by_turn_session_day_and_model() {
    let model = Model::start().await;
    let call = Reply::tool("list_dir", &json!({"path": "."}));
    model.on("work", [call.usage(1_000, 200), Reply::text("done").usage(2_000, 300)]);
    model.on("hello", [Reply::text("hello").usage(500, 50)]);
    let mut gateway = Gateway::start(priced(Setup::scripted(&model), 2.0, 10.0, "USD")).await;
    // 3,000 in and 500 out, then 500 and 50.
    gateway.ask("in", "c", "work").await;
    gateway.ask("in", "d", "hello").await;
    let metrics = Gateway::try_send(gateway.client.get(gateway.url("/metrics")).bearer_auth(gateway.token())).await;
    let metrics = metrics.unwrap().body.to_string();
    let line = r#"daoyou_model_cost_total{provider=\"scripted\",model=\"scripted\",currency=\"USD\"} 0.0125"#;
    assert!(metrics.contains(line), "{metrics}");

    // A new price applies from now on, in its own currency; earlier costs stay.
    gateway.setup().clone_from(&priced(Setup::scripted(&model), 4.0, 20.0, "CNY"));
    gateway.restart().await;
    gateway.ask("in", "c", "hello").await;
    let reply = gateway.ask("in", "c", "/cost").await;
    for words in [
        "This session: 2 turns, 3500 tokens in (0 cached), 550 tokens out, **0.0030 CNY, 0.0110 USD**",
        "Today, all sessions: 3 turns, 4000 tokens in (0 cached), 600 tokens out, **0.0030 CNY, 0.0125 USD**",
        "- `scripted/scripted`: 4000 tokens in",
    ] {
        assert!(reply.contains(words), "{words:?} in {reply}");
    }

    for is_up in [true, false] {
        if !is_up {
            gateway.stop().await;
        }
        let today = gateway.json(&["status"]).await["today"].clone();
        assert_eq!(numbers(&today), (3, 4_000, 600));
        assert_eq!(today["cost"], "0.0030 CNY, 0.0125 USD");
        assert_eq!(today["costs"][1], json!({"currency": "USD", "micros": 12_500}));
        assert_eq!(
            (numbers(&today["by_model"][0]), &today["by_model"][0]["model"]),
            ((3, 4_000, 600), &json!("scripted/scripted"))
        );
        let shown = gateway.run(&["status"]).await.stdout;
        assert!(shown.contains("600 out, cost 0.0030 CNY, 0.0125 USD"), "{shown}");
        let sessions = gateway.json(&["sessions", "list"]).await;
        let costs: Vec<_> = sessions.as_array().unwrap().iter().map(|row| row["cost"].clone()).collect();
        assert_eq!(costs, [json!("0.0030 CNY, 0.0110 USD"), json!("0.0015 USD")]);
        let session = gateway.json(&["sessions", "show", "webhook:in:c"]).await;
        assert_eq!(numbers(&session["used"]), (2, 3_500, 550));
        let turns = gateway.json(&["turns", "list"]).await;
        let of = |text: &str| turns.as_array().unwrap().iter().find(|row| row["content"] == text).unwrap().clone();
        let (work, command) = (of("work"), of("/cost"));
        assert_eq!(
            [&work["cost"], &work["tokens"], &work["model"], &command["cost"], &command["tokens"]],
            [&json!("0.0110 USD"), &json!(3_500), &json!("scripted/scripted"), &Value::Null, &json!(0)]
        );
        let shown = gateway.json(&["turns", "show", work["turn"].as_str().unwrap()]).await;
        let steps = shown["steps"].as_array().unwrap().iter().filter(|step| step["kind"] == "response");
        let micros: Vec<_> = steps.map(|step| step["body"]["response"]["cost"]["micros"].as_u64().unwrap()).collect();
        assert_eq!((micros.as_slice(), &shown["used"]["cost"]), (&[4_000, 7_000][..], &json!("0.0110 USD")));
    }
}

/// `daoyou agent --json` has the cost as a text for people and as numbers for programs.
#[tokio::test(flavor = "multi_thread")]
async fn agent_prints_the_cost_as_numbers_too() {
    let model = Model::start().await;
    model.on("hello", [Reply::text("hello").usage(1_000, 500)]);
    let gateway = Gateway::new(priced(Setup::scripted(&model), 1.0, 1.0, "EUR"));
    let answer = gateway.json(&["agent", "-m", "hello"]).await;
    let costs = json!([{"currency": "EUR", "micros": 1_500}]);
    assert_eq!((&answer["cost"], &answer["costs"]), (&json!("0.0015 EUR"), &costs), "{answer}");
}

/// A killed turn repeats and pays for the responses that were not written. Written responses are charged once, at the price
/// valid at the time.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_counts_no_usage_twice() {
    let model = Model::start().await;
    let gate = Gate::new();
    let call = Reply::tool("list_dir", &json!({"path": "."}));
    model.on("work", [call.usage(1_000, 0), Reply::text("done").usage(2_000, 0).held_by(&gate)]);
    let mut gateway = Gateway::start(priced(Setup::scripted(&model), 1.0, 1.0, "USD")).await;
    let id = gateway.accept("in", &Message::new("work").chat("c")).await;
    model.wait_requests(2).await;
    gateway.kill9().await;
    gate.open();
    gateway.setup().clone_from(&priced(Setup::scripted(&model), 3.0, 1.0, "USD"));
    gateway.up().await;
    gateway.wait_done("in", &id).await;
    let turn = &gateway.json(&["turns", "list"]).await[0];
    assert_eq!((&turn["tokens"], &turn["cost"]), (&json!(3_000), &json!("0.0070 USD")));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_price_only_tokens_are_shown() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    gateway.ask("in", "c", "hello").await;
    let today = gateway.json(&["status"]).await["today"].clone();
    assert_eq!(
        (&today["turns"], &today["cost"], &today["by_model"][0]["cost"]),
        (&json!(1), &Value::Null, &Value::Null)
    );
    let reply = gateway.ask("in", "c", "/cost").await;
    assert!(!reply.contains("**") && reply.contains("1 turn,"), "{reply}");
}

/// Tokens that a service counts besides prompt and answer are charged: reasoning outside the completion, and cache writes.
/// Without counts, the estimate includes tools.
#[tokio::test(flavor = "multi_thread")]
async fn all_charged_tokens_are_counted() {
    let model = Model::start().await;
    model.on("think", [Reply::text("thought").usage(1_000, 100).thinking_tokens(900)]);
    model.on("silent", [Reply::text("ok").without_usage()]);
    let gateway = Gateway::start(priced(Setup::scripted(&model), 1.0, 10.0, "USD")).await;
    gateway.ask("in", "c", "think").await;
    gateway.ask("in", "d", "silent").await;
    let sessions = gateway.json(&["sessions", "show", "webhook:in:c"]).await;
    assert_eq!((numbers(&sessions["used"]), &sessions["used"]["cost"]), ((1, 1_000, 1_000), &json!("0.0110 USD")));
    let (_, input, _) = numbers(&gateway.json(&["sessions", "show", "webhook:in:d"]).await["used"]);
    let request = model.requests_about("silent").pop().unwrap();
    let tools = u64::try_from(request["tools"].to_string().len()).unwrap();
    let others = u64::try_from(request["messages"].to_string().len()).unwrap();
    assert!(input > (tools + others) / 6, "{input} tokens of {tools} and {others} bytes");

    let model = Model::start().await;
    // 240 read from the cache, 1,000 written to it.
    model.on("hello", [Reply::text("hello").usage(2_000, 0).cached(240, 1_000)]);
    let gateway = Gateway::start(priced(Setup::scripted(&model).anthropic(&model), 4.0, 0.0, "USD")).await;
    gateway.ask("in", "c", "hello").await;
    let used = gateway.json(&["sessions", "show", "webhook:in:c"]).await["used"].clone();
    let fresh = used["input"].as_f64().unwrap() - 1_000.0;
    let expected = format!("{:.4} USD", (fresh * 4.0 + 1_000.0 * 5.0) / 1e6);
    assert_eq!(used["cost"], expected, "{used}");
}

/// A turn that has reached its budget makes no further call and says so. The owner must set an unknown price.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_stops_at_its_cost_budget() {
    let model = Model::start().await;
    model.on("work", [Reply::tool("list_dir", &json!({"path": "."})).usage(1_000, 0)]);
    let price = |name: &str| format!("agent.fallback_price.{name}");
    let setup = Setup::scripted(&model)
        .set("agent.budget.turn_cost", 0.0025)
        .set(&price("input"), 1.0)
        .set(&price("output"), 1.0);
    let gateway = Gateway::start(setup).await;
    let id = gateway.accept("in", &Message::new("work").chat("c")).await;
    let state = gateway.wait_done("in", &id).await;
    assert_eq!((state.body["error"]["code"].as_str(), model.count()), (Some("budget"), 3), "{}", state.body);
    let reply = state.text("reply");
    assert!(reply.contains("has cost 0.003 USD") && reply.contains("is 0.0025 USD"), "{reply}");
    assert_eq!(gateway.run(&["queue", "retry", &id]).await.code, Some(0));
    until("the turn to have spent as much once more", async || (model.count() >= 6).then_some(())).await;
    assert_eq!(gateway.wait_done("in", &id).await.body["error"]["code"], "budget", "it has the same again, no more");
    assert_eq!(gateway.ask("in", "c", "hello").await, "echo: hello", "the next turn has its own");
    assert_eq!(model.count(), 7);
}
