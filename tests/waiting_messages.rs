//! Messages that wait for a model service, because its key is refused, its account is empty, or it fails for a while. They
//! are kept and answered when it works again. The owner is notified once, and nobody else sees the service's own text.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::support::gateway::Message;
use crate::support::invariants::{Journal, Witness, check, wait_settled};
use crate::support::pty::Terminal;
use crate::support::{Gate, Gateway, Hook, Model, Reply, Setup, Sink, deadline, until};

/// Text that no sender may read.
const RAW: &str = "raw words from 10.1.2.3";

/// Answers all requests with `fault` while the returned switch is on.
fn fail_while(model: &Model, fault: Reply) -> Arc<AtomicBool> {
    let is_bad = Arc::new(AtomicBool::new(true));
    let switch = is_bad.clone();
    model.script(move |_| switch.load(Ordering::SeqCst).then(|| fault.clone()));
    is_bad
}

fn setup(model: &Model) -> Setup {
    Setup::new().model(model).set("providers.scripted.retries", 0).set("memory.enabled", false).hook(Hook::bearer("in"))
}

/// Returns the contents in one slot of the outbox.
fn outbox_contents(gateway: &Gateway, slot: &str) -> Vec<String> {
    let rows = Journal::read(&gateway.database()).unwrap().outbox.into_iter().filter(|row| row.slot == slot);
    rows.map(|row| row.body["content"].as_str().unwrap_or_default().to_owned()).collect()
}

async fn readyz(gateway: &Gateway) -> (u16, Value) {
    let answer = gateway.client.get(gateway.url("/readyz")).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// A refused key is tried once, whoever writes. The messages wait, the owner is notified once with the cause, `status`,
/// `doctor` and `/readyz` report it, and all messages are answered after a reload.
#[tokio::test(flavor = "multi_thread")]
async fn messages_wait_while_the_api_key_is_refused_until_a_reload() {
    let (model, sink) = (Model::start().await, Sink::signed().await);
    let is_bad = fail_while(&model, Reply::status(401).saying(RAW));
    let hook = Hook::bearer("in").callback(&sink);
    let mut gateway = Gateway::start(setup(&model).hook(hook).set("owner.notify", "webhook:in:owner")).await;
    let waited = gateway.post("in", "?wait=6", &Message::new("one").chat("a")).await;
    assert_eq!((waited.status, waited.text("status")), (202, "waiting"), "{waited:?}");
    let one = waited.text("id").to_owned();
    let two = gateway.accept("in", &Message::new("two").chat("b")).await;
    gateway.wait_status(&two, "waiting").await;
    assert_eq!(model.count(), 1, "a refused key is not asked again by itself");

    let notices = outbox_contents(&gateway, "notice:waiting");
    let words = "The model service scripted refuses its API key at the moment. Your message is kept and will be answered \
                 when it is back.";
    assert_eq!(notices, [words, words]);
    let owner = outbox_contents(&gateway, "notice:service");
    assert!(
        owner.len() == 1 && owner[0].contains("HTTP 401") && owner[0].contains("providers.scripted.api_key"),
        "{owner:?}"
    );
    let status = gateway.json(&["status"]).await;
    assert_eq!(
        (&status["services"][0]["provider"], &status["services"][0]["code"]),
        (&json!("scripted"), &json!("llm_auth"))
    );
    let lines = gateway.run(&["status"]).await.stdout;
    assert!(lines.contains("WAITS     for scripted") && lines.contains("2 waiting"), "{lines}");
    let queue = gateway.json(&["queue", "list"]).await;
    let waits = queue.as_array().unwrap().iter().map(|entry| (entry["id"].as_str(), entry["state"].as_str()));
    assert_eq!(waits.collect::<Vec<_>>(), [(Some(&*one), Some("waiting")), (Some(&*two), Some("waiting"))], "{queue}");
    let doctor = gateway.run(&["doctor", "--json"]).await;
    let doctor: Value = serde_json::from_str(&doctor.stdout).unwrap();
    let check_of =
        |name: &str| doctor["checks"].as_array().unwrap().iter().find(|check| check["name"] == name).cloned();
    assert_eq!(check_of("waiting for scripted").unwrap()["state"], "fail", "{doctor}");
    let (code, page) = readyz(&gateway).await;
    assert_eq!((code, &page["parts"]["services"]["scripted"]), (200, &json!("llm_auth")), "it takes messages: {page}");
    let result = gateway.ask("in", "a", "/status").await;
    assert!(result.contains("The model service scripted refuses its API key"), "{result}");

    // A restarted process repeats no notice.
    gateway.restart().await;
    until("it to be asked again", async || (model.count() > 1).then_some(())).await;
    gateway.wait_status(&one, "waiting").await;
    is_bad.store(false, Ordering::SeqCst);
    gateway.sighup();
    for (id, reply) in [(&one, "echo: one"), (&two, "echo: two")] {
        assert_eq!(gateway.wait_done("in", id).await.text("reply"), reply);
    }
    let (_, page) = readyz(&gateway).await;
    assert_eq!(page["parts"]["services"], json!({}), "{page}");
    assert_eq!(outbox_contents(&gateway, "notice:service").len(), 1);
    wait_settled(&gateway.database()).await;
    let posts = sink.posts();
    let raw = posts.iter().filter(|post| post.data("content").contains(RAW));
    assert_eq!(raw.count(), 1, "the owner's notice alone");
    check(&gateway.database(), &Witness { accepted: &[one, two], ..Witness::default() });
}

/// A message that the service always answers with an error does not stop the service for others, however often it is retried, and
/// the owner gets one notice of it, however often others are answered in between.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_always_fails_neither_delays_others_nor_repeats_its_notice() {
    let model = Model::start().await;
    let inside = json!({"error": {"message": RAW, "type": "server_error"}}).to_string();
    model.script(move |asked| asked.user.starts_with("fail").then(|| Reply::events([inside.as_str()])));
    let gateway = Gateway::start(setup(&model).set("owner.notify", "webhook:in:owner")).await;
    let failing = gateway.accept("in", &Message::new("fail").chat("a")).await;
    let calls = || model.requests_about("fail").len();
    for number in 0..2 {
        gateway.wait_status(&failing, "waiting").await;
        let before = calls();
        assert_eq!(gateway.ask("in", "b", &format!("hello {number}")).await, format!("echo: hello {number}"));
        until("a retry after the answer", async || (calls() > before).then_some(())).await;
    }
    for _ in 0..6 {
        gateway.wait_status(&failing, "waiting").await;
        let before = calls();
        gateway.ask("in", "a", "/model scripted/scripted").await;
        until("a retry by hand", async || (calls() > before).then_some(())).await;
    }
    gateway.wait_status(&failing, "waiting").await;
    assert_eq!(gateway.json(&["status"]).await["circuits"], json!([]));
    assert_eq!(gateway.ask("in", "b", "hello").await, "echo: hello");
    assert_eq!(outbox_contents(&gateway, "notice:service").len(), 1);
}

/// A message that waits for its model stays `waiting`, with the reason, while the model is asked again, and commands are answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_stays_waiting_while_its_model_is_asked_again() {
    let (model, gate) = (Model::start().await, Gate::new());
    let held = gate.clone();
    model.script(move |asked| Some(if asked.n == 1 { Reply::status(503) } else { Reply::text("hi").held_by(&held) }));
    let gateway = Gateway::start(setup(&model)).await;
    let message = Message::new("hello").chat("a").id("m1");
    let id = gateway.accept("in", &message).await;
    gate.wait_arrived(1).await;
    for state in [gateway.state("in", &id).await, gateway.post("in", "?wait=1", &message).await] {
        assert_eq!(state.text("status"), "waiting", "{state:?}");
        assert!(state.text("reason").contains("reports an error"), "{state:?}");
    }
    assert!(gateway.ask("in", "a", "/help").await.contains("/model"));
    gate.open();
    let done = gateway.wait_done("in", &id).await;
    assert_eq!((done.text("reply"), &done.body["reason"]), ("hi", &Value::Null));
}

/// The gateway is killed while a waiting turn is being retried.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_during_a_retry_repeats_no_notice() {
    let model = Model::start().await;
    model.script(|asked| Some(if asked.n == 2 { Reply::hang() } else { Reply::status(500) }));
    let mut gateway = Gateway::start(setup(&model).set("owner.notify", "webhook:in:owner")).await;
    let id = gateway.accept("in", &Message::new("hello").chat("a")).await;
    until("a retry", async || (model.count() == 2).then_some(())).await;
    gateway.restart().await;
    until("a retry after the restart", async || (model.count() > 2).then_some(())).await;
    gateway.wait_status(&id, "waiting").await;
    assert_eq!(outbox_contents(&gateway, "notice:service").len(), 1);
}

/// The owner can retry a refused key at once, and another model can answer waiting messages.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_messages_are_retried_by_hand_or_answered_by_another_model() {
    let (model, other) = (Model::start().await, Model::start().await);
    let is_bad = fail_while(&model, Reply::status(403));
    let setup = setup(&model).provider("other", other.base_url());
    let gateway = Gateway::start(setup).await;
    let mut waiting = Vec::new();
    for chat in ["a", "b"] {
        let id = gateway.accept("in", &Message::new(&format!("for {chat}")).chat(chat)).await;
        gateway.wait_status(&id, "waiting").await;
        waiting.push(id);
    }
    assert_eq!(model.count(), 1);
    // Commands do not queue behind waiting messages.
    assert!(gateway.ask("in", "a", "/help").await.contains("/model"));
    let reply = gateway.ask("in", "a", "/model other/m2").await;
    assert!(reply.contains("other/m2"), "{reply}");
    assert_eq!(gateway.wait_done("in", &waiting[0]).await.text("reply"), "echo: for a");
    assert_eq!(other.requests_about("for a")[0]["model"], "m2");
    gateway.wait_status(&waiting[1], "waiting").await;

    is_bad.store(false, Ordering::SeqCst);
    let asked = gateway.json(&["queue", "retry", &waiting[1]]).await;
    assert_eq!(asked["state"], "waiting", "{asked}");
    assert_eq!(gateway.wait_done("in", &waiting[1]).await.text("reply"), "echo: for b");
    gateway.check_settled(&Witness { accepted: &waiting, ..Witness::default() }).await;
}

/// A waiting message that is dropped ends as `/stop` ends it, without a gateway at the next start.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_messages_are_dropped() {
    let model = Model::start().await;
    fail_while(&model, Reply::status(401));
    let mut gateway = Gateway::start(setup(&model)).await;
    let mut waiting = Vec::new();
    for chat in ["a", "b"] {
        let id = gateway.accept("in", &Message::new("hello").chat(chat)).await;
        gateway.wait_status(&id, "waiting").await;
        waiting.push(id);
    }
    for (id, is_running) in waiting.iter().zip([true, false]) {
        if !is_running {
            gateway.stop().await;
        }
        assert_eq!(gateway.json(&["queue", "drop", id]).await, json!({"id": id, "dropped": true}));
        if !is_running {
            assert_eq!(gateway.json(&["queue", "list"]).await, json!([]));
            gateway.up().await;
        }
        let ended = gateway.wait_done("in", id).await;
        assert_eq!(ended.body["error"]["code"], "stopped", "{ended:?}");
        let again = gateway.run(&["queue", "drop", id]).await;
        assert!(again.code == Some(1) && again.stderr.contains("there is no undelivered message"), "{again:?}");
    }
    assert_eq!(gateway.json(&["queue", "list"]).await, json!([]));
    gateway.check_settled(&Witness { accepted: &waiting, ..Witness::default() }).await;
}

/// A provider fault is cleared as soon as no message waits for the provider, even if another model answered after a restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_fault_is_cleared_when_no_message_waits_for_it() {
    let (model, other) = (Model::start().await, Model::start().await);
    let _always = fail_while(&model, Reply::status(401));
    let setup = setup(&model).provider("other", other.base_url());
    let mut gateway = Gateway::start(setup).await;
    let id = gateway.accept("in", &Message::new("hello").chat("c")).await;
    gateway.wait_status(&id, "waiting").await;
    *gateway.setup() = gateway.setup().clone().set("agent.model", "other/m2");
    gateway.restart().await;
    assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "echo: hello");
    until("nothing to be wrong", async || (gateway.json(&["status"]).await["services"] == json!([])).then_some(()))
        .await;
    assert_eq!(readyz(&gateway).await.1["parts"]["services"], json!({}));
}

/// An empty account and a broken or busy service are retried after growing waits, for longer than a turn may take, and
/// messages are answered when they work again. Senders see nothing of the service's own text.
#[tokio::test(flavor = "multi_thread")]
async fn temporary_provider_faults_are_waited_out_beyond_the_turn_timeout() {
    let quota = json!({"error": {"message": RAW, "type": "insufficient_quota"}}).to_string();
    let broken = json!({"error": {"message": RAW, "type": "server_error"}}).to_string();
    let faults = [
        ("402", 2, Reply::status(402).saying(RAW), "has no credit left"),
        ("quota", 2, Reply::status(400).saying(&format!("{RAW}: credit balance is too low")), "has no credit left"),
        ("500", 4, Reply::status(500).saying(RAW), "reports an error"),
        ("429", 4, Reply::status(429).saying(RAW), "takes no more requests"),
        ("inside", 4, Reply::events([broken.as_str()]), "reports an error"),
        ("quota inside", 4, Reply::events([quota.as_str()]), "reports an error"),
    ];
    // These attempts take at least 3.5 s: half a second before the second, one before the third, two before the fourth.
    // Those for an account wait five seconds.
    join_all(faults.into_iter().map(async |(name, tries, fault, words)| {
        let model = Model::start().await;
        let is_bad = fail_while(&model, fault);
        let setup = setup(&model).set("agent.turn_timeout", "3s").set("agent.wait_for_model", "0s");
        let gateway = Gateway::start(setup).await;
        let id = gateway.accept("in", &Message::new("hello").chat("c")).await;
        until("longer than a turn may take", async || (model.count() >= tries).then_some(())).await;
        gateway.wait_status(&id, "waiting").await;
        let notices = outbox_contents(&gateway, "notice:waiting");
        assert!(
            notices.len() == 1 && notices[0].contains(words) && !notices[0].contains("10.1.2.3"),
            "{name}: {notices:?}"
        );
        is_bad.store(false, Ordering::SeqCst);
        assert_eq!(gateway.run(&["queue", "retry", "--all"]).await.code, Some(0));
        assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "echo: hello", "{name}");
        let is_well = async || (gateway.json(&["status"]).await["services"] == json!([])).then_some(());
        until(&format!("nothing to be wrong after {name}"), is_well).await;
        check(&gateway.database(), &Witness { accepted: &[id], ..Witness::default() });
    }))
    .await;
}

/// A turn that fails because of the request itself says so without the service's text. The owner can retry it by the id
/// that `status` shows. It then continues from its journal. `--all` does not retry it.
#[tokio::test(flavor = "multi_thread")]
async fn failed_turns_and_dead_letters_are_retried_by_id_all_or_by_outcome() {
    let model = Model::start().await;
    let write = Reply::tool("write_file", &json!({"path": "once.txt", "content": "once"}));
    let is_bad = Arc::new(AtomicBool::new(true));
    let switch = is_bad.clone();
    model.script(move |asked| {
        let bad = switch.load(Ordering::SeqCst);
        match (asked.user.starts_with("fail"), asked.step) {
            (true, 0) => Some(write.clone()),
            (true, _) => bad.then(|| Reply::status(400).saying(RAW)),
            (false, _) => (bad && asked.user.starts_with("down")).then(|| Reply::status(503)),
        }
    });
    let gateway = Gateway::start(setup(&model).set("agent.wait_for_model", "1s")).await;
    let mut failed = Vec::new();
    for chat in ["a", "b"] {
        let state = gateway.post("in", "?wait=30", &Message::new(&format!("fail {chat}")).chat(chat)).await;
        assert_eq!(state.body["error"]["code"], "llm_bad_request", "{state:?}");
        assert_eq!(state.text("reply"), "I could not get an answer from the model: scripted: HTTP 400");
        failed.push(state.text("id").to_owned());
    }
    let dead = gateway.accept("in", &Message::new("down").chat("d")).await;
    assert_eq!(gateway.wait_done("in", &dead).await.text("status"), "dead");
    let command = gateway.post("in", "?wait=30", &Message::new("/model nowhere/m").chat("e")).await;
    assert!(command.body["error"].is_object(), "a command that failed, and is not given again later: {command:?}");
    is_bad.store(false, Ordering::SeqCst);

    let lines = gateway.run(&["status"]).await.stdout;
    let line = lines.lines().find(|line| line.contains("webhook:in:a")).unwrap_or_default();
    let id = line.split_whitespace().last().unwrap_or_default();
    assert_eq!(id, failed[0], "{lines}");
    assert_eq!(gateway.run(&["queue", "retry", id]).await.code, Some(0));
    let answered = async |id: &str| {
        until("the answer", async || {
            let state = gateway.state("in", id).await;
            (state.text("status") == "done" && state.body["error"].is_null()).then_some(state.text("reply").to_owned())
        })
        .await
    };
    assert_eq!(answered(id).await, "echo: fail a");
    let all = gateway.json(&["queue", "retry", "--all"]).await;
    assert_eq!(all, json!({"deliveries": 0, "messages": 1, "waiting": 0}));
    assert_eq!(answered(&dead).await, "echo: down");
    let by_outcome = gateway.json(&["queue", "retry", "--outcome", "failed"]).await;
    assert_eq!(by_outcome["messages"], 1, "{by_outcome}");
    assert_eq!(answered(&failed[1]).await, "echo: fail b");
    let wrote = Journal::read(&gateway.database()).unwrap();
    let wrote = wrote.steps.iter().filter(|step| step.kind == "tool_result").count();
    assert_eq!(wrote, 2, "nothing done is done again");
    for wrong in [&["queue", "retry"][..], &["queue", "retry", id, "--all"], &["queue", "retry", "--outcome", "lost"]] {
        assert_eq!(gateway.run(wrong).await.code, Some(2), "{wrong:?}");
    }
    assert_eq!(gateway.run(&["queue", "retry", id]).await.code, Some(1), "it is answered");
}

/// `daoyou agent -m` with a running gateway exits with 76 and the message's id; the message is answered later.
#[tokio::test(flavor = "multi_thread")]
async fn agent_exits_76_when_its_wait_expires() {
    let model = Model::start().await;
    let is_bad = fail_while(&model, Reply::status(401));
    let gateway = Gateway::start(setup(&model)).await;
    let ran = gateway.run(&["agent", "-m", "hello", "--timeout", "6s", "--json"]).await;
    let printed: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
    assert_eq!((ran.code, &printed["error"]["code"]), (Some(76), &json!("timeout")), "{ran:?}");
    let id = printed["id"].as_str().unwrap_or_default();
    assert!(ran.stderr.contains(id) && ran.stderr.contains("refuses its API key"), "{ran:?}");
    is_bad.store(false, Ordering::SeqCst);
    gateway.json(&["queue", "retry", "--all"]).await;
    until("the answer", async || {
        let replies = outbox_contents(&gateway, "reply");
        replies.contains(&"echo: hello".to_owned()).then_some(())
    })
    .await;
}

/// While a message waits, the prompt is usable: it shows the awaited message, accepts commands, and another model can answer.
#[tokio::test(flavor = "multi_thread")]
async fn the_chat_prompt_stays_usable_while_a_message_waits() {
    let (model, other) = (Model::start().await, Model::start().await);
    fail_while(&model, Reply::status(401).saying(RAW));
    let setup = setup(&model).provider("other", other.base_url());
    let gateway = Gateway::start(setup).await;
    block_in_place(|| {
        let mut terminal = Terminal::chat(&gateway);
        terminal.keys("hello\r");
        terminal.expect("The model service scripted refuses its API key");
        terminal.expect("You> ");
        terminal.keys("/status\r");
        terminal.expect("is up for");
        terminal.expect("scripted refuses its API key");
        terminal.control('c');
        terminal.expect("your message stays");
        terminal.keys("/model other/m2\r");
        terminal.expect("other/m2");
        terminal.expect("echo: hello");
        terminal.keys("and now\r");
        terminal.expect("echo: and now");
        terminal.keys("/model scripted/scripted\r");
        terminal.expect("scripted/scripted");
        terminal.keys("again\r");
        terminal.expect("refuses its API key");
        terminal.expect("You> ");
        terminal.control('d');
        assert_eq!(terminal.wait_exit(), Some(0));
    });
}

/// `/readyz` is 503 from its first answer until each channel has started, and 200 from then on.
#[tokio::test(flavor = "multi_thread")]
async fn readyz_is_503_until_every_channel_has_started() {
    let model = Model::start().await;
    let hooks = (0..20).fold(setup(&model), |setup, n| setup.hook(Hook::bearer(&format!("h{n}"))));
    let mut gateway = Gateway::new(hooks);
    for _ in 0..3 {
        gateway.spawn();
        let url = gateway.url("/readyz");
        let client = gateway.client.clone();
        let mut codes = Vec::new();
        deadline("20 answers of a ready gateway", async {
            while codes.iter().filter(|code| **code == 200).count() < 20 {
                match client.get(&url).send().await {
                    Ok(answer) => {
                        let code = answer.status().as_u16();
                        let page: Value = answer.json().await.unwrap();
                        assert!(code != 200 || page["parts"]["channels"].as_object().unwrap().len() > 20, "{page}");
                        codes.push(code);
                    }
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        })
        .await;
        let first = codes.iter().position(|code| *code == 200).unwrap();
        assert!(codes[first..].iter().all(|code| *code == 200), "{codes:?}");
        gateway.wait_ready().await;
        gateway.stop().await;
    }
}
