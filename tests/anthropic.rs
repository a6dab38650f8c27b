//! A service that speaks Anthropic's Messages API: the same turns and failures in another protocol.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::support::invariants::Witness;
use crate::support::model::messages_of;
use crate::support::{Gateway, Hook, Model, Reply, Setup};

fn setup(model: &Model) -> Setup {
    Setup::new().anthropic(model).hook(Hook::bearer("in"))
}

fn blocks(request: &Value, message: usize) -> Vec<&str> {
    let content = request["messages"][message]["content"].as_array().expect("a list of blocks");
    content.iter().map(|block| block["type"].as_str().expect("a block has a type")).collect()
}

/// Returns the positions of the messages with a cache mark.
fn cache_marked_messages(request: &Value) -> Vec<usize> {
    (0..)
        .zip(messages_of(request))
        .filter(|(_, message)| message.to_string().contains("cache_control"))
        .map(|(at, _)| at)
        .collect()
}

/// Thinking blocks are returned within the turn, results of parallel calls go into one message, and the common prefix of
/// requests is marked for the cache.
#[tokio::test(flavor = "multi_thread")]
async fn thinking_blocks_and_parallel_calls_are_kept_across_turns() {
    let model = Model::start().await;
    let write = |path: &str| json!({"path": path, "content": "多语言"});
    let calls = Reply::tool("write_file", &write("a.txt")).and_tool("write_file", &write("b.txt")).saying("Two files.");
    let list = Reply::tool("list_dir", &json!({})).reasoning("Now look.").call_id("same.id");
    model.on(
        "write",
        [
            calls.reasoning("想一想: two files").chunk_chars(3).one_byte_chunks().crlf(),
            list.clone(),
            Reply::text("Done.").reasoning("Enough.").usage(10, 5).cached(200, 30),
        ],
    );
    model.on("again", [list, Reply::text("Same.")]);
    let gateway = Gateway::start(setup(&model).set("providers.scripted.thinking", 2048)).await;
    assert_eq!(gateway.ask("in", "c", "write").await, "Done.");
    assert_eq!(gateway.ask("in", "c", "again").await, "Same.");
    assert_eq!(gateway.ask("in", "c", "hello").await, "echo: hello");
    assert_eq!(std::fs::read_to_string(gateway.workspace().join("b.txt")).unwrap(), "多语言");

    assert_eq!((model.refused(), model.count()), (Vec::new(), 6));
    let requests = model.requests();
    assert!(requests.iter().all(|request| request["thinking"]["budget_tokens"] == 2048));
    let third = &requests[2];
    assert_eq!(blocks(third, 1), ["thinking", "text", "tool_use", "tool_use"]);
    assert_eq!(third["messages"][1]["content"][0]["thinking"], "想一想: two files");
    assert_eq!(blocks(third, 2), ["tool_result", "tool_result"]);
    assert_eq!((blocks(third, 3), blocks(third, 4)), (vec!["thinking", "tool_use"], vec!["tool_result"]));
    // Thinking before a call also stays in later requests, so that the sent prefix does not change.
    let fifth = &requests[4];
    assert_eq!(blocks(fifth, 1), ["thinking", "text", "tool_use", "tool_use"]);
    assert_eq!(fifth["messages"].to_string().matches("想一想").count(), 1);
    let marks: Vec<_> = requests.iter().map(cache_marked_messages).collect();
    assert_eq!(marks, [vec![0], vec![2], vec![4], vec![5, 6], vec![5, 8], vec![9, 10]]);
    assert!(requests.iter().all(|request| request["system"][0]["cache_control"]["type"] == "ephemeral"));
    let tools = requests[0]["tools"].as_array().unwrap();
    assert!(tools.iter().rev().skip(1).all(|tool| tool.get("cache_control").is_none()));

    let journal = gateway.check_settled(&Witness::default()).await;
    let counted = journal.steps.iter().filter(|step| step.body["response"]["usage"]["input_tokens"] == 240);
    assert_eq!(counted.map(|step| &step.body["response"]["usage"]["cached_tokens"]).collect::<Vec<_>>(), [&json!(200)]);
}

/// The error code of each failed request, and the number of tries.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_call_is_one_clear_reply_with_a_code() {
    let model = Model::start().await;
    let gateway = Gateway::start(setup(&model).set("providers.scripted.retries", 1)).await;
    for (text, answer, asked, code, words) in [
        ("the request is wrong", Reply::status(400), 1, "llm_bad_request", "HTTP 400"),
        ("it withholds", Reply::text("I will").finish("refusal"), 1, "llm_refused", "withheld the answer"),
        ("it breaks off", Reply::text("half an answer").drops_after(4), 2, "llm_connection", "(after 2 tries)"),
    ] {
        model.on(text, [answer]);
        let (reply, found) = gateway.reply_and_error_code(text).await;
        assert_eq!((&found, model.requests_about(text).len()), (&json!(code), asked), "{text}: {reply}");
        assert!(reply.contains(words), "{text}: {reply}");
    }
    assert_eq!(model.refused(), Vec::<String>::new());
    gateway.check_settled(&Witness::default()).await;
}

/// A truncated call never runs: neither after a broken connection, nor after an early end of the stream, nor at the length limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_tool_call_is_never_run() {
    let model = Model::start().await;
    let gateway = Gateway::start(setup(&model)).await;
    let call = || Reply::tool("write_file", &json!({"path": "lost.txt", "content": "lost words"})).chunk_chars(4);
    let once = [
        ("it breaks within a call", call().drops_after(8)),
        ("it breaks before the end", call().drops_after(16)),
        ("overloaded once", Reply::status(529)),
    ];
    for (text, failing) in once {
        let has_failed = AtomicBool::new(false);
        model.script(move |asked| {
            let is_first = asked.user == text && !has_failed.swap(true, Ordering::SeqCst);
            is_first.then(|| failing.clone())
        });
        assert_eq!(gateway.reply_and_error_code(text).await, (format!("echo: {text}"), Value::Null));
        assert_eq!(model.requests_about(text).len(), 2, "{text}");
    }
    let cut = r#"{"path": "lost.txt", "con"#;
    model.on("too long", [Reply::raw_tool("write_file", cut).saying("I write").finish("max_tokens")]);
    let (reply, code) = gateway.reply_and_error_code("too long").await;
    assert!(reply.starts_with("I write\n\n") && code.is_null(), "{reply} {code}");
    assert_eq!(model.requests_about("too long").len(), 1);
    assert!(!gateway.workspace().join("lost.txt").exists());
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// At the round limit the model is offered no tools, although the conversation contains calls. The same holds without streaming.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_round_offers_no_tools_and_non_streaming_works() {
    let model = Model::start().await;
    let list = || Reply::tool("list_dir", &json!({})).reasoning("Look.");
    model.script(move |asked| {
        let is_last = asked.body["tool_choice"]["type"] == "none";
        (asked.user == "loop").then(|| if is_last { Reply::text("That was it.") } else { list() })
    });
    let settings = setup(&model).set("agent.max_iterations", 2).set("providers.scripted.stream", false);
    let gateway = Gateway::start(settings.set("providers.scripted.thinking", 1024)).await;
    let reply = gateway.ask("in", "c", "loop").await;
    assert!(reply.starts_with("That was it."), "{reply}");
    assert_eq!(gateway.ask("in", "c", "go on").await, "echo: go on");
    let requests = model.requests();
    assert_eq!(requests[2]["tools"].as_array().map(Vec::len), Some(1));
    assert!(requests.iter().all(|request| request.get("stream").is_none()));
    assert_eq!((model.count(), model.refused()), (4, Vec::new()));
}

/// A conversation that began with a service of another protocol continues with this one and back again, even within a turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_history_from_another_protocol_is_valid() {
    let model = Model::start().await;
    let read = Reply::tool("read_file", &json!({"path": "USER.md"})).call_id("call.1").and_tool("list_dir", &json!({}));
    model.on("look", [read.clone(), read, Reply::text("Seen.")]);
    let other = setup(&model).provider("other", model.base_url()).set("providers.scripted.thinking", 1024);
    let gateway = Gateway::start(other).await;
    for name in ["other", "scripted", "other", "scripted"] {
        gateway.ask("in", "c", &format!("/model {name}/scripted")).await;
        assert_eq!(gateway.ask("in", "c", "look").await, "Seen.", "{name}");
    }
    assert_eq!(model.refused(), Vec::<String>::new());
    let is_anthropic: Vec<_> = model.requests().iter().map(|request| request.get("max_tokens").is_some()).collect();
    assert_eq!(is_anthropic, [[false; 3], [true; 3], [false; 3], [true; 3]].concat());
}
