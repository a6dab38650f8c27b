//! Middleware of turns and model calls: budgets, the rate limit, the cache, redaction, and error reports.

use serde_json::{Value, json};

use crate::support::exposition::scrape;
use crate::support::gateway::{HttpAnswer, Message};
use crate::support::invariants::{Journal, Witness, wait_settled};
use crate::support::{Gateway, Hook, Model, Reply, Setup, Sink, until};

async fn ask(gateway: &Gateway, chat: &str, text: &str) -> HttpAnswer {
    gateway.post("in", "?wait=30", &Message::new(text).chat(chat)).await
}

/// Sends a message and expects a refusal by the budget that contains all of `words`.
async fn refused(gateway: &Gateway, chat: &str, words: &[&str]) {
    let answered = ask(gateway, chat, "one more").await;
    let reply = answered.text("reply");
    assert_eq!(answered.body["error"]["code"], json!("budget"), "{answered:?}");
    assert!(words.iter().all(|word| reply.contains(word)), "{reply}");
}

/// Above the budget of a session, the reply names the limit and no model is called. A restart changes nothing; `/new` does.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_over_budget_asks_no_model() {
    let model = Model::start().await;
    model.script(|asked| Some(Reply::text(format!("to {}", asked.user)).usage(400, 200)));
    let mut gateway = Gateway::start(Setup::scripted(&model).set("agent.budget.session_tokens", 1_000)).await;
    for text in ["first", "second"] {
        assert_eq!(gateway.ask("in", "c", text).await, format!("to {text}"));
    }
    refused(&gateway, "c", &["1200 tokens of 1000 tokens", "`/new`"]).await;
    gateway.restart().await;
    refused(&gateway, "c", &["1200 tokens of 1000 tokens"]).await;
    assert_eq!(model.count(), 2);
    assert_eq!(gateway.ask("in", "other", "hi").await, "to hi", "another session has its own");
    gateway.ask("in", "c", "/new").await;
    assert_eq!(gateway.ask("in", "c", "afresh").await, "to afresh");
    gateway.check_settled(&Witness::default()).await;
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// A session's and a turn's budget include the sub-agents, which stop with them.
#[tokio::test(flavor = "multi_thread")]
async fn sub_agents_have_no_budget_of_their_own() {
    for (key, limit, said) in [
        ("agent.budget.session_tokens", 3_000.into(), "3000 tokens of 3000 tokens"),
        ("agent.budget.session_cost", 0.003.into(), "0.003 USD of 0.003 USD"),
        ("agent.budget.turn_cost", 0.003.into(), "has cost 0.003 USD"),
    ] {
        let model = Model::start().await;
        let task = json!({"task": "dig for ever", "wait": true});
        model.on("delegate", [Reply::tool("spawn", &task).usage(1_000, 0)]);
        model.on("dig for ever", [Reply::tool("list_dir", &json!({"path": "."})).usage(1_000, 0)]);
        let price = |name: &str| format!("agent.fallback_price.{name}");
        let setup = Setup::scripted(&model).set(key, toml::Value::clone(&limit));
        let gateway = Gateway::start(setup.set(&price("input"), 1.0).set(&price("output"), 1.0)).await;
        let answered = ask(&gateway, "c", "delegate").await;
        let reply = answered.text("reply");
        assert_eq!((&answered.body["error"]["code"], model.count()), (&json!("budget"), 3), "{key}: {answered:?}");
        assert!(reply.contains(said), "{key}: {reply}");
        let cost = gateway.ask("in", "c", "/cost").await;
        let session = cost.lines().find(|line| line.contains("session")).unwrap_or_default();
        assert!(session.contains("3000"), "{key}: {cost}");
    }
}

/// The daily budget covers all sessions and also applies within a turn. Usage before a crash counts when the turn continues.
#[tokio::test(flavor = "multi_thread")]
async fn the_daily_budget_survives_a_crash_in_a_turn() {
    let model = Model::start().await;
    model.on("work", [Reply::tool("list_dir", &json!({"path": "."})).usage(400, 200)]);
    let price =
        toml::Table::from_iter([("input", 1_000.0), ("output", 2_000.0)].map(|(k, v)| (k.to_owned(), v.into())));
    let priced =
        Setup::scripted(&model).set("providers.scripted.price", price).set("providers.scripted.price.currency", "CNY");
    let mut gateway = Gateway::new(priced.clone().set("agent.budget.day_tokens", 500));
    gateway.crash_at("tool_result_committed=list_dir").up().await;
    let id = gateway.accept("in", &Message::new("work").chat("c")).await;
    gateway.wait_crash().await;
    gateway.up().await;
    let state = gateway.wait_done("in", &id).await;
    assert_eq!((&state.body["error"]["code"], model.count()), (&json!("budget"), 1), "{state:?}");
    let reply = state.text("reply");
    assert!(reply.contains("600 tokens of 500 tokens") && reply.contains("00:00 (UTC)"), "{reply}");
    refused(&gateway, "other", &["600 tokens of 500 tokens"]).await;
    assert_eq!(model.count(), 1);

    gateway.stop().await;
    *gateway.setup() = priced.set("agent.locale", "zh").set("agent.budget.day_cost", 0.5);
    gateway.up().await;
    refused(&gateway, "c", &["0.80 CNY", "0.50 CNY", "预算"]).await;
    assert_eq!(model.count(), 1);
    gateway.check_settled(&Witness::default()).await;
}

/// At the rate limit a turn waits and can be stopped; other turns continue. A wait that is too long for a turn is refused at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limited_turn_waits_without_delaying_others() {
    let model = Model::start().await;
    let limited = Setup::scripted(&model).set("agent.rate_limit.session_per_minute", 1);
    let mut gateway = Gateway::start(limited.clone()).await;
    assert_eq!(gateway.ask("in", "c", "first").await, "echo: first");
    let waits = gateway.accept("in", &Message::new("second").chat("c")).await;
    until("the wait", async || gateway.logs().contains("waits for the rate limit").then_some(())).await;
    assert_eq!(gateway.ask("in", "other", "hi").await, "echo: hi");
    gateway.accept("in", &Message::new("/stop").chat("c")).await;
    let state = gateway.wait_done("in", &waits).await;
    assert_eq!((state.text("reply"), model.count()), ("(stopped)", 2), "{state:?}");

    gateway.stop().await;
    *gateway.setup() = limited.set("agent.turn_timeout", "20s");
    gateway.up().await;
    assert_eq!(gateway.ask("in", "c", "again").await, "echo: again");
    let answered = ask(&gateway, "c", "too soon").await;
    assert_eq!(answered.body["error"]["code"], json!("rate_limit"), "{answered:?}");
    assert!(answered.text("reply").contains("session_per_minute = 1"), "{answered:?}");
    assert_eq!(model.count(), 3);
}

/// An identical request does not reach the model. The journal marks it as cached, it costs nothing, and `status` shows it.
/// A failed request is sent again.
#[tokio::test(flavor = "multi_thread")]
async fn an_identical_request_is_answered_from_the_cache() {
    let model = Model::start().await;
    model.on("same", [Reply::text("the answer").usage(100, 20)]);
    model.on("bad", [Reply::status(400)]);
    let setup = Setup::scripted(&model).set("agent.temperature", 0.0).set("agent.cache.responses", true);
    // `/new` also calls a model, for a summary.
    let setup = setup.set("memory.enabled", false);
    let gateway = Gateway::start(setup).await;
    for (text, requests) in [("same", 1), ("same", 1), ("bad", 2), ("bad", 3)] {
        let answered = ask(&gateway, "c", text).await;
        assert_eq!((answered.text("reply") == "the answer", model.count()), (text == "same", requests), "{answered:?}");
        gateway.ask("in", "c", "/new").await;
    }
    let journal = gateway.check_settled(&Witness::default()).await;
    let responses: Vec<_> =
        journal.steps.iter().filter(|step| step.kind == "response").map(|step| &step.body).collect();
    let cache_use = |body: &&Value| {
        let response = &body["response"];
        (response["cached"].as_bool(), response["usage"]["input_tokens"].as_u64())
    };
    assert_eq!(responses.iter().map(cache_use).collect::<Vec<_>>(), [(None, Some(100)), (Some(true), Some(0))]);
    let status = gateway.json(&["status"]).await;
    assert_eq!(status["caches"]["responses"], json!({"hits": 1, "misses": 3, "entries": 1}));
    assert_eq!((&status["today"]["input"], &status["today"]["turns"]), (&json!(100), &json!(4)));
    let ran = gateway.run(&["status"]).await;
    assert!(ran.stdout.contains("caches    responses 1 hits, 3 misses, 1 kept"), "{}", ran.stdout);
}

/// A configuration secret found by a tool reaches neither model nor journal nor reply.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_found_by_a_tool_is_redacted() {
    let model = Model::start().await;
    let reply = "The key is a-model-key, said the model.";
    model.on("look", [Reply::tool("read_file", &json!({"path": "notes.txt"})), Reply::text(reply).chunk_chars(3)]);
    let sink = Sink::signed().await;
    let gateway = Gateway::start(Setup::new().model(&model).hook(Hook::bearer("in").callback(&sink))).await;
    std::fs::write(gateway.workspace().join("notes.txt"), "key = a-model-key; hook = the-bearer-secret\n").unwrap();
    assert_eq!(gateway.ask("in", "c", "look").await, "The key is (hidden), said the model.");
    let request = model.requests_about("look")[1].to_string();
    assert!(request.contains("key = (hidden); hook = (hidden)"), "{request}");
    assert!(!request.contains("a-model-key") && !request.contains("the-bearer-secret"), "{request}");
    wait_settled(&gateway.database()).await;
    let journal = Journal::read(&gateway.database()).unwrap();
    let kept = format!("{:?}{:?}{:?}", journal.steps, journal.messages, journal.outbox);
    assert!(!kept.contains("a-model-key") && !kept.contains("the-bearer-secret"), "{kept}");

    model.on("tell", [Reply::tool("message", &json!({"content": "it is a-model-key"})), Reply::text("told")]);
    assert_eq!(gateway.ask("in", "c", "tell").await, "told");
    let journal = Journal::read(&gateway.database()).unwrap();
    let sent = journal.outbox.iter().find(|row| row.slot.starts_with("tool:")).map(|row| row.body["content"].clone());
    assert_eq!(sent, Some(json!("it is (hidden)")));
    assert_eq!(gateway.ask("in", "c", "go on").await, "echo: go on");
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// A configuration secret that a person types reaches no model, neither in its own turn nor as history of a time at which it was
/// not configured.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_typed_by_a_person_is_redacted() {
    let model = Model::start().await;
    let mut gateway = Gateway::start(Setup::scripted(&model)).await;
    let typed = "my hook has the secret a-typed-secret and the key a-model-key";
    assert_eq!(gateway.ask("in", "c", typed).await, "echo: my hook has the secret a-typed-secret and the key (hidden)");
    assert_eq!(gateway.ask("in", "c", "next").await, "echo: next");
    let known = |request: &Value| {
        let request = request.to_string();
        assert!(!request.contains("a-model-key"), "{request}");
        request.contains("a-typed-secret")
    };
    assert_eq!(model.requests_about("next").iter().map(known).collect::<Vec<_>>(), [true]);
    let other = Hook::bearer("other").set("secret", "a-typed-secret");
    gateway.setup().clone_from(&Setup::scripted(&model).hook(other));
    gateway.restart().await;
    assert_eq!(gateway.ask("in", "c", "later").await, "echo: later");
    assert_eq!(model.requests_about("later").iter().map(known).collect::<Vec<_>>(), [false]);
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// An error passes each middleware, the log and the counter once. A failed attempt followed by a success passes none of them.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_is_reported_once_and_a_successful_retry_never() {
    let model = Model::start().await;
    model.nth(1, Reply::status(500));
    model.on("fails", [Reply::status(400)]);
    let gateway = Gateway::start(Setup::scripted(&model).set("log.level", "debug")).await;
    let lines = |words: &[&str]| {
        let logs = gateway.logs();
        logs.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
    };
    assert_eq!(gateway.ask("in", "c", "flaky").await, "echo: flaky");
    assert_eq!(model.count(), 2);
    assert_eq!((lines(&["a turn failed"]), lines(&["middleware", "failed"])), (0, 0), "{}", gateway.logs());

    let answered = ask(&gateway, "c", "fails").await;
    assert_eq!(answered.body["error"]["code"], json!("llm_bad_request"), "{answered:?}");
    assert_eq!(lines(&["WARN", "a turn failed", "llm_bad_request", "status=400", "retryable=false"]), 1);
    for around in ["around=\"model_call\"", "around=\"turn\""] {
        assert_eq!(lines(&["failed", around]), 1, "{around}: {}", gateway.logs());
    }
    let page = scrape(&gateway).await;
    assert_eq!(page.value("daoyou_turn_failures_total", &[("code", "llm_bad_request")]), Some(1.0));
    let answered = [("provider", "scripted"), ("outcome", "ok")];
    assert_eq!(page.value("daoyou_model_calls_total", &answered), Some(1.0));
}

/// An unknown middleware is one clear error, and nothing starts.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_middleware_is_one_configuration_error() {
    let setup = Setup::new().set("agent.middleware", vec!["logging", "budgets"]);
    let ran = Gateway::new(setup).run(&["config", "check"]).await;
    let faults: Vec<_> = ran.stdout.lines().chain(ran.stderr.lines()).filter(|line| line.contains("agent.")).collect();
    assert!(ran.code != Some(0) && faults.len() == 1, "{ran:?}");
    let fault = "agent.middleware[1]: \"budgets\" is not known; the nearest known is \"budget\"; allowed: \"logging\"";
    assert!(faults[0].contains(fault), "{}", faults[0]);
}
