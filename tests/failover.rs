//! If a model is unavailable, another one answers, or the message waits. A service that fails repeatedly is paused, and a
//! conversation that is too long is shortened.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::support::exposition::scrape;
use crate::support::gateway::Message;
use crate::support::invariants::{Journal, Witness, check, open, wait_settled};
use crate::support::model::{last_text, user_messages};
use crate::support::port::Port;
use crate::support::{Gate, Gateway, Hook, Model, Reply, Setup, Sink, deadline, until};

const NOTICE: &str = "The model service scripted cannot be reached at the moment. Your message is kept and will be answered when it is back.";
/// The waiting notice for a service that answers with 503; compare [`NOTICE`].
const FAULT_NOTICE: &str = "The model service scripted reports an error at the moment. Your message is kept and will be answered when it is back.";

/// Makes the service fail for messages that begin with `text` while `is_down` is set, for longer than a turn may wait.
fn fail_requests_while(model: &Model, is_down: &Arc<AtomicBool>, text: &'static str) {
    let is_down = is_down.clone();
    model.script(move |asked| {
        let is_refused = asked.user.starts_with(text) && is_down.load(Ordering::SeqCst);
        is_refused.then(|| Reply::status(503).retry_after("3600"))
    });
}

/// Configures `providers.NAME` at this local port, without retries.
fn provider(setup: Setup, name: &str, port: u16) -> Setup {
    setup.provider(name, format!("http://127.0.0.1:{port}/v1")).set(&format!("providers.{name}.retries"), 0)
}

fn port_of(model: &Model) -> u16 {
    reqwest::Url::parse(&model.base_url()).unwrap().port().unwrap()
}

/// Uses the model at `port`, whether it is running or not.
fn setup(port: u16) -> Setup {
    provider(Setup::new().set("agent.model", "scripted/scripted"), "scripted", port).hook(Hook::bearer("in"))
}

/// Returns all waiting notices.
fn notices(gateway: &Gateway) -> Vec<String> {
    let journal = Journal::read(&gateway.database()).unwrap();
    let notices = journal.outbox.into_iter().filter(|row| row.slot == "notice:waiting");
    notices.map(|row| row.body["content"].as_str().unwrap_or_default().to_owned()).collect()
}

/// A service fails in the middle of a turn, and a service with another protocol continues. The history has the earlier
/// calls, each model is charged for its part, and the session can switch back.
#[tokio::test(flavor = "multi_thread")]
async fn a_fallback_with_another_protocol_continues_a_turn() {
    let (first, second) = (Model::start().await, Model::start().await);
    let read = Reply::tool("read_file", &json!({"path": "USER.md"})).and_tool("list_dir", &json!({"path": "."}));
    first.on("in the middle", [read.usage(1_000, 10), Reply::text("words that are lost").drops_after(2)]);
    second.on("in the middle", [Reply::text("to the end").usage(2_000, 20)]);
    let price = |name: &str, input: f64, currency: &str| {
        let price = [("input", input.into()), ("output", input.into()), ("currency", currency.to_owned().into())];
        let price = toml::Table::from_iter(price.map(|(key, value): (&str, toml::Value)| (key.to_owned(), value)));
        (format!("providers.{name}.price"), price)
    };
    let (dollars, yuan) = (price("scripted", 100.0, "USD"), price("other", 10.0, "CNY"));
    let setup = provider(setup(port_of(&first)), "other", port_of(&second))
        .set("providers.other.kind", "anthropic")
        .set("providers.other.thinking", 1_024)
        .set("agent.fallback", vec!["other/claude"])
        .set(&dollars.0, dollars.1)
        .set(&yuan.0, yuan.1);
    let gateway = Gateway::start(setup).await;
    assert_eq!(gateway.ask("in", "a", "in the middle").await, "to the end");
    assert_eq!(gateway.ask("in", "a", "and back").await, "echo: and back");
    assert_eq!((first.count(), second.count()), (3, 1));
    assert_eq!((first.refused(), second.refused()), (Vec::new(), Vec::new()));
    let cost = gateway.ask("in", "a", "/cost").await;
    // 1,010 tokens at 100 USD a million, and 2,020 tokens at 10 CNY.
    for words in ["0.0202 CNY", "`other/claude`", "`scripted/scripted`"] {
        assert!(cost.contains(words), "{words}: {cost}");
    }
    let turns = gateway.json(&["turns", "list"]).await;
    let turn = turns.as_array().unwrap().iter().find(|turn| turn["content"] == "in the middle").unwrap();
    assert!(turn["cost"].to_string().contains("0.1010 USD"), "{turn}");
    gateway.check_settled(&Witness::default()).await;
}

/// One provider is dead, one does not know the model, and one answers. The last one is used, even in the middle of a turn,
/// and for the rest of that turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_fallback_model_answers_when_the_first_fails() {
    let (first, third) = (Model::start().await, Model::start().await);
    let list = Reply::tool("list_dir", &json!({"path": "."}));
    first.on("in the middle", [list.clone(), Reply::status(500)]);
    first.on("half", [Reply::text("words that are taken back").drops_after(2)]);
    first.on("wrong", [Reply::status(400)]);
    third.on("in the middle", [list.clone(), list, Reply::text("to the end")]);
    let nowhere = Port::claim();
    let setup = provider(setup(port_of(&first)), "second", nowhere.number);
    let setup = provider(setup, "third", port_of(&third));
    let mut gateway =
        Gateway::start(setup.set("agent.fallback", vec!["second/m", "scripted/scripted", "third/big"])).await;
    assert_eq!(gateway.ask("in", "a", "hello").await, "echo: hello");
    assert_eq!((first.count(), third.count()), (1, 0));

    assert_eq!(gateway.ask("in", "a", "in the middle").await, "to the end");
    assert_eq!((first.count(), third.count()), (3, 2), "it stays with what answered");
    assert!(third.requests().iter().all(|request| request["model"] == "big"));
    assert_eq!(gateway.ask("in", "a", "half").await, "echo: half");
    let reply = gateway.ask("in", "a", "wrong").await;
    assert!(reply.contains("scripted: HTTP 400") && third.requests_about("wrong").is_empty(), "{reply}");

    let journal = gateway.check_settled(&Witness::default()).await;
    let steps_of = |kind: &str| journal.steps.iter().filter(|step| step.kind == kind).collect::<Vec<_>>();
    let answered: Vec<_> =
        steps_of("response").iter().map(|step| step.body["response"]["answered_by"].clone()).collect();
    assert_eq!(answered.iter().filter(|name| **name == "third/big").count(), 3, "{answered:?}");
    assert!(journal.messages.iter().all(|message| !message.body.to_string().contains("taken back")));
    assert!(gateway.logs().contains("another model answered"), "{}", gateway.logs());
    assert_eq!((first.refused(), third.refused()), (Vec::new(), Vec::new()));

    for (name, fault) in [
        ("nowhere/x", "agent.fallback: unknown provider \"nowhere\""),
        ("auto", "agent.fallback: \"auto\" names no provider and model; allowed: \"PROVIDER/MODEL\""),
        ("m", "agent.fallback: \"m\" names no provider and model"),
    ] {
        let wrong = Gateway::new(gateway.setup().clone().set("agent.fallback", vec![name]));
        let ran = wrong.run(&["config", "check"]).await;
        let output = format!("{}{}", ran.stdout, ran.stderr);
        assert!(ran.code != Some(0) && output.contains(fault), "{output}");
    }
}

/// After five consecutive failures the service is paused. A slow answer to an earlier call shows that the service works again.
#[tokio::test(flavor = "multi_thread")]
async fn the_circuit_breaker_pauses_a_failing_service() {
    let (model, gate) = (Model::start().await, Gate::new());
    model.on("slow", [Reply::text("at last").held_by(&gate)]);
    model.on("broken", [Reply::text("half an answer").drops_after(1)]);
    let gateway = Gateway::start(setup(port_of(&model))).await;
    let slow = gateway.accept("in", &Message::new("slow").chat("slow")).await;
    gate.wait_arrived(1).await;
    for number in 0..5 {
        let reply = gateway.ask("in", "b", &format!("broken {number}")).await;
        assert!(reply.contains("scripted: the connection broke"), "{reply}");
    }
    assert_eq!(model.count(), 6);
    let kept = gateway.accept("in", &Message::new("kept").chat("c")).await;
    gateway.wait_status(&kept, "waiting").await;
    assert_eq!(model.count(), 6, "it is not even asked");
    // The pause of the breaker must not end meanwhile.
    let (models, status, lines) =
        tokio::join!(gateway.json(&["models"]), gateway.json(&["status"]), gateway.run(&["status"]));
    let row = models["providers"].as_array().unwrap().iter().find(|row| row["name"] == "scripted").unwrap().clone();
    assert_eq!(row["circuit"], "open", "{row}");
    assert_eq!((&status["queues"]["waiting"], &status["ready"]), (&json!(1), &json!(true)), "{status}");
    let lines = lines.stdout;
    assert!(
        lines.contains("for scripted, for ")
            && lines.contains("is not asked for the next ")
            && lines.contains("1 waiting"),
        "{lines}"
    );
    let ready = gateway.client.get(gateway.url("/readyz")).send().await.unwrap();
    assert_eq!(ready.status(), 200);
    let page = scrape(&gateway).await;
    for (name, value) in [("daoyou_provider_circuit_closed", 0.0), ("daoyou_provider_circuit_opened_total", 1.0)] {
        assert_eq!(page.value(name, &[("provider", "scripted")]), Some(value), "{name}");
    }

    gate.open();
    assert_eq!(gateway.wait_done("in", &slow).await.text("reply"), "at last");
    assert_eq!(gateway.wait_done("in", &kept).await.text("reply"), "echo: kept");
    let status = gateway.json(&["status"]).await;
    assert_eq!(status["circuits"], json!([]), "{status}");
    gateway.check_settled(&Witness { accepted: &[slow, kept], ..Witness::default() }).await;
}

/// If no model answers, the sender is notified once, even if the gateway is killed in between. Sessions of another model
/// continue. When the model works again, everything is answered once and in order.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_message_survives_a_kill_and_is_answered_once() {
    let sink = Sink::signed().await;
    let (port, other) = (Port::claim(), Model::start().await);
    let setup = provider(setup(port.number), "other", port_of(&other)).hook(Hook::bearer("in").callback(&sink));
    let mut gateway = Gateway::start(setup.hook(Hook::bearer("well").set("model", "other/m"))).await;
    let waited = gateway.post("in", "?wait=6", &Message::new("first").chat("c").id("m1")).await;
    assert_eq!((waited.status, waited.text("status")), (202, "waiting"), "{waited:?}");
    let first = waited.text("id").to_owned();
    let second = gateway.accept("in", &Message::new("second").chat("c")).await;
    assert_eq!(gateway.ask("well", "d", "hello").await, "echo: hello");
    assert_eq!(gateway.state("in", &second).await.text("status"), "queued", "it keeps the order");

    for _ in 0..3 {
        gateway.restart().await;
        // A retry of this start: the message already waited before.
        until("another wait", async || {
            let logs = gateway.logs();
            logs.rsplit("log of start").next()?.contains("no model is available; the turn waits").then_some(())
        })
        .await;
        gateway.wait_status(&first, "waiting").await;
    }
    // A drain does not wait for a waiting message.
    gateway.stop().await;
    gateway.up().await;
    assert_eq!(notices(&gateway), [NOTICE]);

    let model = Model::start_on_port(&port).await;
    for (id, reply) in [(&first, "echo: first"), (&second, "echo: second")] {
        assert_eq!(gateway.wait_done("in", id).await.text("reply"), reply);
    }
    let requests = model.requests();
    let asked: Vec<_> = requests.iter().map(|request| *user_messages(request).last().unwrap()).collect();
    assert_eq!((asked, model.refused()), (vec!["first", "second"], Vec::new()));
    wait_settled(&gateway.database()).await;
    let journal = check(
        &gateway.database(),
        &Witness { accepted: &[first.clone(), second], sink: Some(&sink), strict_order: true },
    );
    assert_eq!(notices(&gateway).len(), 1);
    assert_eq!(sink.posts().iter().filter(|post| post.data("content") == NOTICE).count(), 1);
    // Waiting does not count against the message.
    let stalled: i64 =
        open(&gateway.database()).unwrap().query_row("SELECT max(stalled) FROM inbox", [], |row| row.get(0)).unwrap();
    assert!(stalled <= 1 && journal.steps_of(&first).len() >= 3, "{stalled}");
}

/// An answer to another message retries the waiting messages at once, whatever their remaining wait. `/stop` ends a wait at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_turn_is_retried_after_another_answer_or_stopped() {
    let (model, is_down) = (Model::start().await, Arc::new(AtomicBool::new(true)));
    fail_requests_while(&model, &is_down, "kept");
    let gateway = Gateway::start(setup(port_of(&model))).await;
    let mut kept = Vec::new();
    for chat in ["a", "b", "c"] {
        let id = gateway.accept("in", &Message::new(&format!("kept {chat}")).chat(chat)).await;
        gateway.wait_status(&id, "waiting").await;
        kept.push(id);
    }
    assert_eq!(gateway.ask("in", "c", "/stop").await, "Stopping.");
    let stopped = gateway.wait_done("in", &kept[2]).await;
    assert_eq!((stopped.text("reply"), &stopped.body["error"]["code"]), ("(stopped)", &json!("stopped")));
    assert_eq!(gateway.ask("in", "c", "hello").await, "echo: hello");
    for id in &kept[..2] {
        gateway.wait_status(id, "waiting").await;
    }
    is_down.store(false, Ordering::SeqCst);
    assert_eq!(gateway.ask("in", "d", "hello").await, "echo: hello");
    for (id, chat) in kept.iter().zip(["a", "b"]) {
        assert_eq!(gateway.wait_done("in", id).await.text("reply"), format!("echo: kept {chat}"));
    }
    gateway.check_settled(&Witness { accepted: &kept, ..Witness::default() }).await;
}

/// A message waits for `wait_for_model` at most, however short `turn_timeout` is. Then it is set aside, its sender is
/// notified, later messages continue, and the owner can still have it answered.
#[tokio::test(flavor = "multi_thread")]
async fn an_expired_wait_is_given_up_and_can_be_revived() {
    let port = Port::claim();
    // The circuit breaker opens after five failures, and would refuse the revived message. The retries of 3 s are fewer.
    let gateway = Gateway::start(
        setup(port.number).set("agent.turn_timeout", "2s").set("agent.wait_for_model", "3s").set("agent.locale", "zh"),
    )
    .await;
    let began = Instant::now();
    let id = gateway.accept("in", &Message::new("hello").chat("c")).await;
    let dead = gateway.wait_done("in", &id).await;
    assert_eq!((dead.text("status"), &dead.body["error"]["code"]), ("dead", &json!("llm_unavailable")), "{dead:?}");
    let reply = dead.text("reply");
    assert!(
        reply.starts_with("3s 内一直没有可用的模型服务")
            && reply.contains(&id)
            && reply.contains("it cannot be reached"),
        "{reply}"
    );
    assert!(began.elapsed() >= Duration::from_secs(3));
    let queue = gateway.run(&["queue", "list"]).await.stdout;
    assert!(queue.contains(&id[..8]), "{queue}");

    let model = Model::start_on_port(&port).await;
    let ran = gateway.run(&["queue", "retry", &id]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let answered = until("the revived message to be answered", async || {
        let state = gateway.state("in", &id).await;
        (state.text("status") == "done").then_some(state)
    })
    .await;
    assert_eq!((answered.text("reply"), model.refused()), ("echo: hello", Vec::new()));
    assert_eq!(gateway.ask("in", "c", "and now").await, "echo: and now");
    gateway.check_settled(&Witness { accepted: &[id], ..Witness::default() }).await;
}

/// `agent -m` prints on standard error that the message waits, and then the answer. Without a gateway it reports at once
/// that no model answers.
#[tokio::test(flavor = "multi_thread")]
async fn agent_reports_that_its_message_waits() {
    let (model, is_down) = (Model::start().await, Arc::new(AtomicBool::new(true)));
    let nowhere = Port::claim();
    let mut gateway = Gateway::new(setup(nowhere.number));
    let ran = gateway.run(&["agent", "-m", "hello"]).await;
    assert!(ran.code == Some(1) && !ran.stderr.contains(NOTICE), "{ran:?}");
    assert!(
        ran.stdout.starts_with("I could not get an answer from the model: scripted: cannot connect to 127.0.0.1:")
            && ran.stdout.contains("; asked http://127.0.0.1:"),
        "{ran:?}"
    );

    *gateway.setup() = setup(port_of(&model));
    fail_requests_while(&model, &is_down, "typed");
    gateway.up().await;
    // `chat` first: the owner's notice goes to the terminals that are connected when the first message waits.
    let back = async {
        until("the first to wait", async || (notices(&gateway).len() == 1).then_some(())).await;
        let mut asking = gateway.command(&["agent", "-m", "typed one", "--session", "cli:one"]);
        let mut asking = asking.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(asking.stderr.take().unwrap()).lines();
        until("both to wait", async || (notices(&gateway).len() == 2).then_some(())).await;
        assert_eq!(deadline("the notice", errors.next_line()).await.unwrap().as_deref(), Some(FAULT_NOTICE));
        is_down.store(false, Ordering::SeqCst);
        gateway.ask("in", "d", "hello").await;
        (asking, errors)
    };
    let typed = gateway.run_with_input(&["chat", "--session", "cli:two"], "typed two\n");
    let (chat, (asking, mut errors)) = tokio::join!(typed, back);
    let asked = deadline("the reply", asking.wait_with_output()).await.unwrap();
    assert_eq!((asked.status.code(), asked.stdout), (Some(0), b"echo: typed one\n".to_vec()));
    assert_eq!(errors.next_line().await.unwrap(), None, "it is said once");

    // The gateway dies while `agent -m` waits. The command ends, and the message waits for the next gateway.
    is_down.store(true, Ordering::SeqCst);
    let waiting = gateway.accept("in", &Message::new("typed in vain").chat("v")).await;
    gateway.wait_status(&waiting, "waiting").await;
    gateway.kill9().await;
    let ran = gateway.run(&["agent", "-m", "typed last", "--session", "webhook:in:v"]).await;
    assert!(ran.code == Some(1) && ran.stderr.contains("answered by the next gateway"), "{ran:?}");
    is_down.store(false, Ordering::SeqCst);
    gateway.up().await;
    assert_eq!(gateway.wait_done("in", &waiting).await.text("reply"), "echo: typed in vain");
    gateway.check_settled(&Witness { accepted: &[waiting], ..Witness::default() }).await;
    assert_eq!((chat.code, chat.stdout.as_str()), (Some(0), "echo: typed two\n"), "a pipe gets the replies alone");
    assert_eq!(chat.stderr.matches(FAULT_NOTICE).count(), 1, "{}", chat.stderr);
    assert_eq!(chat.stderr.matches("Messages that need it wait").count(), 1, "what the owner is told: {}", chat.stderr);
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// A conversation that the model refuses is shortened: first older turns, then long results. The message stays.
#[tokio::test(flavor = "multi_thread")]
async fn an_oversized_conversation_is_shortened_and_answered() {
    let model = Model::start().await;
    let refuse = || Reply::status(400).saying("This model's maximum context length is 8192 tokens");
    model.script(move |asked| (asked.body["messages"].as_array().unwrap().len() > 8).then(refuse));
    model.script(move |asked| asked.results.iter().any(|result| result.len() > 2_000).then(refuse));
    model.script(move |asked| asked.user.starts_with("never").then(refuse));
    let read = Reply::tool("read_file", &json!({"path": "long.txt"}));
    model.script(move |asked| (asked.user == "read" && asked.step == 0).then(|| read.clone()));
    let mut gateway = Gateway::start(setup(port_of(&model))).await;
    std::fs::write(gateway.workspace().join("long.txt"), "a long line of words\n".repeat(1_000)).unwrap();
    for number in 0..8 {
        let text = format!("message {number}");
        assert_eq!(gateway.ask("in", "c", &text).await, format!("echo: {text}"));
    }
    let sizes: Vec<_> = model.requests().iter().map(|request| request["messages"].as_array().unwrap().len()).collect();
    assert_eq!(sizes[..6], [2, 4, 6, 8, 10, 6], "half of what was said before is left out: {sizes:?}");

    let before = model.count();
    assert_eq!(gateway.ask("in", "new", "read").await, "echo: read");
    let requests = model.requests().split_off(before);
    assert_eq!(requests.len(), 3);
    let result = last_text(&requests[2]).to_owned();
    assert!(result.contains("lines cut") && result.len() < 2_000, "{result}");
    gateway.restart().await;
    let answer = gateway.post("in", "?wait=30", &Message::new("never mind").chat("new")).await;
    assert_eq!(answer.body["error"]["code"], "llm_context_too_long", "{answer:?}");
    assert_eq!(model.refused(), Vec::<String>::new());
    let journal = gateway.check_settled(&Witness::default()).await;
    assert!(journal.steps.iter().any(|step| step.kind == "context" && step.body["compactions"] == 2));
}

/// A date in `Retry-After` counts like seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_after_date_is_honoured() {
    let model = Model::start().await;
    model.script(|asked| {
        let date = jiff::Timestamp::now() + Duration::from_secs(3);
        let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&date).unwrap();
        (asked.n == 1).then(|| Reply::status(429).retry_after(&date))
    });
    let gateway = Gateway::start(setup(port_of(&model)).set("providers.scripted.retries", 1)).await;
    let began = Instant::now();
    assert_eq!(gateway.ask("in", "c", "hello").await, "echo: hello");
    // The date has whole seconds.
    assert!(began.elapsed() >= Duration::from_millis(1_900) && model.count() == 2, "{:?}", began.elapsed());
}

/// Waiting messages try new settings at once, even if their server could not list its models.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_messages_try_new_settings_at_once() {
    let model = Model::start().await;
    let (local, nowhere) = (Setup::new().set("agent.model", "auto").hook(Hook::bearer("in")), Port::claim());
    let local = |port: u16| local.clone().set("providers.vllm.base_url", format!("http://127.0.0.1:{port}/v1"));
    let mut gateway = Gateway::start(local(nowhere.number)).await;
    let id = gateway.accept("in", &Message::new("hello").chat("c")).await;
    gateway.wait_status(&id, "waiting").await;
    *gateway.setup() = local(port_of(&model));
    gateway.write_config();
    gateway.sighup();
    assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "echo: hello");
    assert_eq!((model.refused(), notices(&gateway).len()), (Vec::new(), 1));
    gateway.check_settled(&Witness { accepted: &[id], ..Witness::default() }).await;
}

/// A fallback answers everything while the chosen service refuses its key: the owner is notified once, also across a restart.
#[tokio::test(flavor = "multi_thread")]
async fn the_owner_is_told_of_a_refused_key_although_a_fallback_answers() {
    let (first, second) = (Model::start().await, Model::start().await);
    first.script(|_| Some(Reply::status(401)));
    let setup = provider(setup(port_of(&first)), "other", port_of(&second)).set("owner.notify", "webhook:in:owner");
    let mut gateway = Gateway::start(setup.set("agent.fallback", vec!["other/m"])).await;
    let owner = |gateway: &Gateway| {
        let rows = Journal::read(&gateway.database()).unwrap().outbox.into_iter();
        let notices = rows.filter(|row| row.slot == "notice:service");
        notices.map(|row| row.body["content"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    for text in ["one", "two"] {
        assert_eq!(gateway.ask("in", "a", text).await, format!("echo: {text}"));
    }
    until("the notice", async || (!owner(&gateway).is_empty()).then_some(())).await;
    gateway.restart().await;
    let asked = first.count();
    assert_eq!(gateway.ask("in", "a", "three").await, "echo: three");
    assert!(first.count() > asked, "the new process asks it once");
    gateway.stop().await;
    let notices = owner(&gateway);
    let words = [
        "The model service scripted refuses its API key",
        "HTTP 401",
        "other answers in its place",
        "providers.scripted.api_key",
    ];
    assert!(notices.len() == 1 && words.iter().all(|words| notices[0].contains(words)), "{notices:?}");
}

/// If a mended key has worked, its next refusal is a new notice, even within the day, with or without a restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_mended_key_that_is_refused_again_is_a_new_notice() {
    let (first, second, is_bad) = (Model::start().await, Model::start().await, Arc::new(AtomicBool::new(true)));
    let refuses = is_bad.clone();
    first.script(move |_| refuses.load(Ordering::SeqCst).then(|| Reply::status(401)));
    let setup = provider(setup(port_of(&first)), "other", port_of(&second)).set("owner.notify", "webhook:in:owner");
    let mut gateway = Gateway::start(setup.set("agent.fallback", vec!["other/m"])).await;
    let notices = |gateway: &Gateway| {
        let rows = Journal::read(&gateway.database()).unwrap().outbox;
        rows.iter().filter(|row| row.slot == "notice:service").count()
    };
    assert_eq!(gateway.ask("in", "a", "one").await, "echo: one");
    until("the notice", async || (notices(&gateway) == 1).then_some(())).await;
    for (restarts, expected) in [(true, 2), (false, 3)] {
        is_bad.store(false, Ordering::SeqCst);
        if restarts {
            gateway.restart().await;
        } else {
            // The key would otherwise be tried again only after an hour.
            assert_eq!(gateway.run(&["queue", "retry", "--all"]).await.code, Some(0));
        }
        let answered = second.count();
        assert_eq!(gateway.ask("in", "a", "mended").await, "echo: mended");
        assert_eq!(second.count(), answered, "the mended key works");
        is_bad.store(true, Ordering::SeqCst);
        assert_eq!(gateway.ask("in", "a", "refused").await, "echo: refused");
        until("another notice", async || (notices(&gateway) == expected).then_some(())).await;
    }
}
