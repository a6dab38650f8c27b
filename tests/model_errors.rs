//! A model service that refuses, stalls, breaks off or streams nothing. The call is retried where that helps, and otherwise
//! gives one clear reply.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::invariants::Witness;
use crate::support::{Gate, Gateway, Model, Reply, Setup};

/// Failures that end a turn, with the number of model calls and the reply.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_call_is_one_clear_reply_with_a_code() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::scripted(&model).set("providers.scripted.retries", 1)).await;
    for (text, answer, asked, code, words) in [
        ("the request is wrong", Reply::status(400), 1, "llm_bad_request", "HTTP 400"),
        ("it breaks off", Reply::text("half an answer").drops_after(2), 2, "llm_connection", "(after 2 tries)"),
        ("it is not a service", Reply::raw("<html>hello</html>"), 2, "llm_parse", "web page"),
    ] {
        model.on(text, [answer]);
        let (reply, found) = gateway.reply_and_error_code(text).await;
        assert_eq!((model.requests_about(text).len(), found), (asked, json!(code)), "{text}: {reply}");
        let clear = reply.starts_with("I could not get an answer from the model: scripted: ") && reply.contains(words);
        assert!(clear && !reply.contains("a-model-key"), "{text}: {reply}");
        // The history contains the failed turn as reported, and the next turn continues.
        assert_eq!(gateway.ask("in", text, "go on").await, "echo: go on");
        assert!(model.requests().last().is_some_and(|request| request["messages"][2]["content"] == reply), "{text}");
    }
    assert_eq!(model.refused(), Vec::<String>::new());
    gateway.check_settled(&Witness::default()).await;
}

/// Only the owner reads why the service refused a request, and which address was asked.
#[tokio::test(flavor = "multi_thread")]
async fn the_owner_alone_reads_the_words_of_a_refusal() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    model.on("too hot", [Reply::status(422).saying("the oven is missing")]);
    let ran = gateway.run(&["agent", "-m", "too hot"]).await;
    let reply = format!("{}{}", ran.stdout, ran.stderr);
    for words in ["scripted: HTTP 422: ", "the oven is missing", "; asked http://127.0.0.1:", "/chat/completions"] {
        assert!(reply.contains(words), "{words}: {reply}");
    }
    let reply = gateway.ask("in", "c", "too hot").await;
    assert_eq!(reply, "I could not get an answer from the model: scripted: HTTP 422");
}

/// Temporary failures are retried, and the reply contains nothing of the failed answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_call_is_retried() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::scripted(&model).set("providers.scripted.idle_timeout", "3s")).await;
    let never = Gate::new();
    let lost = "data: {\"choices\":[{\"delta\":{\"content\":\"lost words\"}}]}\n\n";
    let inside = format!("{lost}data: {{\"error\":{{\"message\":\"overloaded\",\"type\":\"server_error\"}}}}\n\n");
    let call = Reply::tool("write_file", &json!({"path": "lost.txt", "content": "lost words"}));
    let cases = [
        ("it is broken once", Reply::status(503)),
        ("headers never come", Reply::hang()),
        ("it stalls in the middle", Reply::text("lost words and more of them").stalls_after(2, &never)),
        ("it breaks off", Reply::text("lost words and more of them").drops_after(2)),
        ("it ends within a call", call.chunk_chars(4).drops_after(6)),
        ("it ends too soon", Reply::raw(lost)),
        ("an error comes inside", Reply::raw(inside)),
        ("unreadable", Reply::raw("data: {\"choices\":\n\n")),
    ];
    for (text, failing) in &cases {
        let (text, failing, has_failed) = ((*text).to_owned(), failing.clone(), AtomicBool::new(false));
        model.script(move |asked| {
            let is_first = asked.user == text && !has_failed.swap(true, Ordering::SeqCst);
            is_first.then(|| failing.clone())
        });
    }
    // The cases run concurrently, since each waits before its retry.
    join_all(cases.iter().map(async |(text, _)| {
        assert_eq!(gateway.reply_and_error_code(text).await, (format!("echo: {text}"), Value::Null));
        let requests = model.requests_about(text);
        assert_eq!(requests.len(), 2, "{text}");
        assert_eq!(requests[0], requests[1], "{text}: the same is asked again");
    }))
    .await;
    assert!(!gateway.workspace().join("lost.txt").exists(), "half a call is not run");
    assert_eq!(model.refused(), Vec::<String>::new());
    let journal = gateway.check_settled(&Witness::default()).await;
    assert!(journal.messages.iter().all(|message| !message.body.to_string().contains("lost words")));
}

/// A service that names a time is called again at that time, not before.
#[tokio::test(flavor = "multi_thread")]
async fn retry_after_delays_the_next_call() {
    let model = Model::start().await;
    model.nth(1, Reply::status(429).retry_after("1"));
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    let began = Instant::now();
    assert_eq!(gateway.ask("in", "c", "hello").await, "echo: hello");
    assert!(began.elapsed() >= Duration::from_secs(1) && model.count() == 2, "{:?}", began.elapsed());
}

/// `daoyou agent -m` prints the clear error as the reply, and exits with 1.
#[tokio::test(flavor = "multi_thread")]
async fn agent_exits_1_when_the_turn_fails() {
    let model = Model::start().await;
    model.on("broken", [Reply::status(500)]);
    let gateway = Gateway::new(Setup::scripted(&model).set("providers.scripted.retries", 0));
    let ran = gateway.run(&["agent", "-m", "broken"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let said =
        "I could not get an answer from the model: scripted: HTTP 500: scripted failure; asked http://127.0.0.1:";
    assert!(ran.stdout.starts_with(said) && ran.stdout.ends_with("/chat/completions\n"), "{ran:?}");
    let ran = gateway.run(&["agent", "-m", "broken", "--json"]).await;
    let printed: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &printed["error"]["code"]), (Some(1), &json!("llm_server_error")), "{ran:?}");
    let ran = gateway.run(&["agent", "-m", "hello"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "echo: hello\n"), "{ran:?}");
}

/// `stream = false`: the same turn, with tools.
#[tokio::test(flavor = "multi_thread")]
async fn a_non_streaming_service_runs_the_same_turn() {
    let model = Model::start().await;
    let write = Reply::tool("write_file", &json!({"path": "a.txt", "content": "whole"}));
    model.on("write", [write.saying("<think>hm</think>"), Reply::text("<think>hm</think>written").usage(30, 5)]);
    let gateway = Gateway::start(Setup::scripted(&model).set("providers.scripted.stream", false)).await;
    assert_eq!(gateway.ask("in", "c", "write").await, "written");
    assert_eq!(gateway.ask("in", "c", "go on").await, "echo: go on");
    assert_eq!(std::fs::read_to_string(gateway.workspace().join("a.txt")).unwrap(), "whole");
    assert!(model.requests().iter().all(|request| request.get("stream").is_none_or(|stream| stream == false)));
    assert_eq!((model.count(), model.refused()), (3, Vec::new()));
}
