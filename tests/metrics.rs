//! The metrics of a gateway: known traffic gives exact numbers.

use serde_json::json;

use crate::support::exposition::{Exposition, scrape};
use crate::support::gateway::Message;
use crate::support::invariants::wait_settled;
use crate::support::{Answer, Gate, Gateway, Hook, Model, Reply, Setup, Sink, until};

/// Name, labels, value.
type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], f64);

fn assert_values(page: &Exposition, expected: &[Row<'_>]) {
    for (name, labels, value) in expected {
        assert_eq!(page.value(name, labels), Some(*value), "{name} {labels:?}");
    }
}

/// Returns a gateway with a model that does a bit of everything, and a hook that accepts one waiting message in each chat.
async fn busy_gateway(model: &Model, sink: &Sink, gate: &Gate) -> Gateway {
    model.on("good", [Reply::text("yes").usage(100, 20)]);
    model.on("fail", [Reply::status(400)]);
    let write = json!({"path": "a.txt", "content": "a"});
    let calls = Reply::tool("write_file", &write).and_tool("cat", &json!({"path": "none"}));
    let planned = json!({"calls": [{"tool": "list_dir"}, {"tool": "ls", "arguments": {"path": "none"}}]});
    let calls = calls.and_tool("parallel", &planned);
    model.on("work", [calls.and_tool("no_such_tool", &json!({})).usage(10, 5), Reply::text("worked").usage(20, 5)]);
    model.on("held", [Reply::text("late").held_by(gate)]);
    sink.when(|post| (post.data("chat_id") == "doomed").then_some(Answer::Status(503, None)));
    let setup = Setup::new().model(model).set("gateway.session_capacity", 1);
    let deaf = Hook::bearer("deaf").callback(sink).set("retry", vec!["10ms"]);
    Gateway::start(setup.hook(Hook::bearer("in")).hook(deaf)).await
}

/// Fault 35: the page counts all events exactly, message by message.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_known_traffic_exactly() {
    let (model, gate) = (Model::start().await, Gate::new());
    let sink = Sink::signed().await;
    let gateway = busy_gateway(&model, &sink, &gate).await;

    for time in ["first", "second"] {
        let answered = gateway.post("in", "?wait=30", &Message::new("good").chat("chat-a").id("order-7")).await;
        assert_eq!((answered.status, answered.text("reply")), (200, "yes"), "{time}: {answered:?}");
    }
    gateway.ask("in", "chat-b", "fail").await;
    gateway.ask("in", "chat-c", "work").await;
    let held = gateway.accept("in", &Message::new("held").chat("chat-d")).await;
    gate.wait_arrived(1).await;
    assert_eq!(gateway.post("in", "", &Message::new("more").chat("chat-d")).await.status, 429);

    let busy = scrape(&gateway).await;
    let running: &[(&str, &str)] = &[("channel", "webhook:in"), ("state", "running")];
    assert_values(&busy, &[("daoyou_turns_running", &[], 1.0), ("daoyou_inbox_messages", running, 1.0)]);

    gateway.accept("in", &Message::new("/stop").chat("chat-d")).await;
    gateway.wait_done("in", &held).await;
    gateway.accept("deaf", &Message::new("good").chat("doomed")).await;
    let dead: &[(&str, &str)] = &[("channel", "webhook:deaf"), ("outcome", "dead")];
    let sent: &[(&str, &str)] = &[("channel", "webhook:in"), ("outcome", "sent")];
    let page = until("the dead letter, and the replies to be sent", async || {
        let page = scrape(&gateway).await;
        let ended = [dead, sent].map(|labels| page.value("daoyou_deliveries_total", labels));
        // Counters are exact at once; the store's figures follow a moment later.
        let stored = page.value("daoyou_outbox_messages", &[("channel", "webhook:deaf"), ("state", "dead")]);
        (ended == [Some(1.0), Some(5.0)] && stored == Some(1.0)).then_some(page)
    });
    let page = page.await;
    wait_settled(&gateway.database()).await;

    assert_known_traffic(&page);
    let commits = page.value("daoyou_store_commit_duration_seconds_count", &[("commit", "synced")]);
    assert!(commits.is_some_and(|count| count >= 12.0), "{commits:?}");
    assert!(page.value("process_resident_memory_bytes", &[]).is_some_and(|bytes| bytes > 1e6));
    assert!(page.value("process_open_fds", &[]).is_some_and(|fds| fds > 5.0));
    // No label identifies a person.
    for sample in &page.samples {
        let personal =
            sample.labels.values().find(|value| ["chat-", "doomed", "order-"].iter().any(|id| value.contains(id)));
        assert_eq!(personal, None, "{sample:?}");
    }
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// Asserts that the page counts exactly the traffic of [`metrics_count_known_traffic_exactly`].
fn assert_known_traffic(page: &Exposition) {
    let (web, deaf) = (("channel", "webhook:in"), ("channel", "webhook:deaf"));
    let tokens = |kind| [("provider", "scripted"), ("model", "scripted"), ("kind", kind)];
    let (input, output) = (tokens("input"), tokens("output"));
    assert_values(
        page,
        &[
            ("daoyou_messages_accepted_total", &[web], 5.0),
            ("daoyou_messages_accepted_total", &[deaf], 1.0),
            ("daoyou_messages_duplicate_total", &[web], 1.0),
            ("daoyou_messages_refused_total", &[web, ("reason", "session_full")], 1.0),
            ("daoyou_turns_total", &[("outcome", "done")], 3.0),
            ("daoyou_turns_total", &[("outcome", "failed")], 1.0),
            ("daoyou_turns_total", &[("outcome", "cancelled")], 1.0),
            ("daoyou_turns_total", &[("outcome", "dead")], 0.0),
            ("daoyou_turn_failures_total", &[("code", "llm_bad_request")], 1.0),
            ("daoyou_turns_running", &[], 0.0),
            ("daoyou_turn_phase_duration_seconds_count", &[("phase", "waiting")], 5.0),
            ("daoyou_turn_phase_duration_seconds_count", &[("phase", "model")], 5.0),
            ("daoyou_turn_phase_duration_seconds_count", &[("phase", "tools")], 1.0),
            ("daoyou_turn_phase_duration_seconds_count", &[("phase", "end")], 5.0),
            ("daoyou_turn_duration_seconds_count", &[], 5.0),
            ("daoyou_model_tokens_total", &input, 230.0),
            ("daoyou_model_tokens_total", &output, 50.0),
            ("daoyou_tool_calls_total", &[("tool", "write_file"), ("outcome", "ok")], 1.0),
            ("daoyou_tool_calls_total", &[("tool", "read_file"), ("outcome", "failed")], 1.0),
            ("daoyou_tool_calls_total", &[("tool", "parallel"), ("outcome", "failed")], 1.0),
            ("daoyou_tool_calls_total", &[("tool", "list_dir"), ("outcome", "ok")], 1.0),
            ("daoyou_tool_calls_total", &[("tool", "list_dir"), ("outcome", "failed")], 1.0),
            ("daoyou_tool_calls_total", &[("tool", "unknown"), ("outcome", "failed")], 1.0),
            ("daoyou_tool_call_duration_seconds_count", &[("tool", "write_file")], 1.0),
            ("daoyou_deliveries_total", &[web, ("outcome", "sent")], 5.0),
            ("daoyou_deliveries_total", &[deaf, ("outcome", "sent")], 0.0),
            ("daoyou_delivery_retries_total", &[deaf], 1.0),
            ("daoyou_outbox_messages", &[deaf, ("state", "dead")], 1.0),
            ("daoyou_outbox_messages", &[deaf, ("state", "pending")], 0.0),
            ("daoyou_inbox_messages", &[web, ("state", "queued")], 0.0),
            ("daoyou_outbox_oldest_age_seconds", &[deaf], 0.0),
            ("daoyou_channel_up", &[web], 1.0),
            ("daoyou_accepting", &[], 1.0),
            ("daoyou_store_commit_failures_total", &[], 0.0),
            ("daoyou_http_requests_total", &[("route", "/webhook/in"), ("status", "429")], 1.0),
            ("daoyou_build_info", &[("version", env!("CARGO_PKG_VERSION")), ("build", "debug")], 1.0),
        ],
    );
}

/// A message that crashes the gateway each time ends as dead, and the gateway that gives it up counts it.
#[tokio::test(flavor = "multi_thread")]
async fn a_given_up_message_is_counted_as_dead() {
    let mut gateway = Gateway::new(Setup::new().hook(Hook::bearer("in")));
    gateway.crash_at("turn_started=poison").up().await;
    // The answer may or may not arrive before the crash.
    drop(gateway.try_post("in", "", &Message::new("poison").chat("c")).await);
    gateway.wait_crash().await;
    for _ in 0..2 {
        gateway.crash_at("turn_started=poison").spawn();
        gateway.wait_crash().await;
    }
    gateway.up().await;
    wait_settled(&gateway.database()).await;
    let page = scrape(&gateway).await;
    assert_values(
        &page,
        &[
            ("daoyou_turns_total", &[("outcome", "dead")], 1.0),
            ("daoyou_inbox_messages", &[("channel", "webhook:in"), ("state", "dead")], 1.0),
            ("daoyou_inbox_oldest_age_seconds", &[("channel", "webhook:in")], 0.0),
        ],
    );
}

/// Grafana's dashboard uses only metrics that the gateway has.
#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_asks_for_metrics_that_exist() {
    let gateway = Gateway::start(Setup::new()).await;
    let page = scrape(&gateway).await;
    let dashboard: serde_json::Value = serde_json::from_str(include_str!("../docs/grafana.json")).unwrap();
    let mut asked = 0;
    for target in dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap())
    {
        let expression = target["expr"].as_str().unwrap();
        for (at, _) in expression.match_indices("{job=") {
            let name = expression[..at].rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap();
            let family = name.trim_end_matches("_bucket");
            assert!(page.kinds.contains_key(family), "{name} in {expression}");
            asked += 1;
        }
    }
    assert!(asked >= 20, "{asked}");
}
