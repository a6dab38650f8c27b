//! A model service that shows each fault for as long as requested. After each fault there is one clear reply with a stable
//! code, or the answer. The history is valid, and the session continues.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use crate::support::gateway::Message;
use crate::support::invariants::Witness;
use crate::support::model::ModelRequest;
use crate::support::processes::{peak_bytes, reset_peak};
use crate::support::requirements::bubblewrap_is_missing;
use crate::support::{Gate, Gateway, Hook, Model, Reply, Setup, until};

const PING: &str = ": ping\n\n";
const NO_DATA: &str = "event: ping\n\n";
const PACE: Duration = Duration::from_millis(200);
/// A stream at full speed.
const AT_ONCE: Duration = Duration::ZERO;
/// Deadlines that are longer than the test.
const AMPLE: (&str, &str) = ("25s", "25s");
const LINE: usize = 10_000_000;

/// A lasting fault with its error.
struct Fault {
    name: &'static str,
    reply: Reply,
    code: &'static str,
    words: &'static str,
}

/// Returns the data of an event with `text`.
fn text_event_data(text: &str) -> String {
    json!({"choices": [{"index": 0, "delta": {"content": text}}]}).to_string()
}

fn event(data: &str) -> Vec<u8> {
    format!("data: {data}\n\n").into_bytes()
}

fn half_answer() -> Reply {
    Reply::events([text_event_data("lost words").as_str()])
}

/// Returns faults that send nothing, only keep-alives, or too little, without end.
fn silent_faults(never: &Gate) -> Vec<Fault> {
    const SILENT: &str = "sent no data for 4s (idle_timeout)";
    const LATE: &str = "not complete within 9s (timeout)";
    let row = |name, reply, words| Fault { name, reply, code: "llm_timeout", words };
    vec![
        row("headers never come", Reply::hang(), SILENT),
        row("it stalls", Reply::text("lost words, and more of them").stalls_after(2, never), SILENT),
        row("pings and no answer", Reply::raw(PING).repeating_for_ever(PING, PACE), SILENT),
        row("pings after half an answer", half_answer().repeating_for_ever(PING, PACE), SILENT),
        row("events without data", half_answer().repeating_for_ever(NO_DATA, PACE), SILENT),
        row("empty lines", Reply::raw("\n").repeating_for_ever("\r\n", PACE), SILENT),
        row("a slow drip", half_answer().repeating_for_ever(event(&text_event_data(".")), PACE), LATE),
        row("a slow line", Reply::raw("data: ").repeating_for_ever(" ", PACE), LATE),
    ]
}

/// Returns faults that send more than requested.
fn flood_faults() -> Vec<Fault> {
    let row = |name, reply, words| Fault { name, reply, code: "llm_parse", words };
    let call = |n: usize| {
        let function = json!({"name": "list_dir", "arguments": "{}"});
        let call = json!({"index": n, "id": format!("c{n}"), "function": function});
        json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}).to_string()
    };
    let many: Vec<String> = (0..257).map(call).collect();
    let many = Reply::events(many.iter().map(String::as_str)).repeating_for_ever(PING, PACE);
    let words = half_answer().repeating_for_ever(event(&text_event_data(&"x".repeat(1 << 16))), AT_ONCE);
    vec![
        row("a line without end", Reply::raw("data: ").repeating_for_ever(vec![b'x'; 1 << 16], AT_ONCE), "too long"),
        row("an answer without end", words, "longer than 16777216 bytes"),
        row("too many calls", many, "more than 256 tool calls"),
    ]
}

/// Returns faults in which the service ends its answer without reporting an error.
fn ending_faults() -> Vec<Fault> {
    let row = |name, reply, code, words| Fault { name, reply, code, words };
    let call = Reply::tool("write_file", &json!({"path": "cut.txt", "content": "half a call is not run"}));
    let long_comment = format!(": {}\n\n", "x".repeat(LINE));
    vec![
        row("half a stream", half_answer(), "llm_connection", "ended before the answer was complete"),
        row("nothing at all", Reply::raw(""), "llm_parse", "the answer is empty"),
        row(
            "a cut",
            Reply::text("lost words, and more of them").drops_after(2),
            "llm_connection",
            "the connection broke",
        ),
        row("a cut in a call", call.chunk_chars(4).drops_after(8), "llm_connection", "the connection broke"),
        row("no choice", Reply::raw("{\"choices\":[]}"), "llm_parse", "there is no answer"),
        row("no JSON", Reply::events(["{\"choices\":"]), "llm_parse", "unreadable answer"),
        row(
            "too deep",
            Reply::events([format!("{{\"usage\":{}", "[".repeat(500)).as_str()]),
            "llm_parse",
            "unreadable answer",
        ),
        row("a long line of nonsense", Reply::raw(event(&"x".repeat(LINE))), "llm_parse", "unreadable answer"),
        row("a long comment", Reply::raw(long_comment), "llm_connection", "before the answer was complete"),
        row(
            "a compressed answer",
            Reply::raw(b"\x1f\x8b\x08\0\0\0\0\0".to_vec()).header("content-encoding", "gzip"),
            "llm_parse",
            "compressed",
        ),
        row("a call without a name", Reply::tool("", &json!({})), "llm_parse", "without a name"),
    ]
}

/// Gives each fault a separate provider and hook, so that none affects another.
fn setup(model: &Model, faults: &[Fault], deadlines: (&str, &str)) -> Setup {
    let mut setup = Setup::new().model(model);
    for n in 0..faults.len() {
        let provider = format!("providers.p{n}");
        setup = setup
            .set(&format!("{provider}.base_url"), model.base_url())
            .set(&format!("{provider}.api_key"), "a-model-key")
            .set(&format!("{provider}.retries"), 0)
            .set(&format!("{provider}.idle_timeout"), deadlines.0)
            .set(&format!("{provider}.timeout"), deadlines.1)
            .hook(Hook::bearer(&format!("h{n}")).set("model", format!("p{n}/scripted")));
    }
    setup
}

/// Runs all faults concurrently. `deadlines` are the idle and the total timeout.
async fn play_faults(model: &Model, faults: &[Fault], deadlines: (&str, &str)) {
    for fault in faults {
        model.on(&format!("<{}>", fault.name), [fault.reply.clone()]);
    }
    let gateway = Gateway::start(setup(model, faults, deadlines)).await;
    let gateway = &gateway;
    let ids = join_all(faults.iter().enumerate().map(async |(n, fault)| {
        let Fault { name, code, words, .. } = fault;
        let (hook, text) = (format!("h{n}"), format!("<{name}>"));
        let id = gateway.accept(&hook, &Message::new(&text).chat("c").session(&hook)).await;
        let state = gateway.wait_done(&hook, &id).await;
        let reply = state.text("reply");
        assert_eq!((state.text("status"), &state.body["error"]["code"]), ("done", &json!(code)), "{name}: {state:?}");
        let clear = format!("I could not get an answer from the model: p{n}: ");
        assert!(reply.starts_with(&clear) && reply.contains(words) && reply.len() < 1_000, "{name}: {reply}");
        assert_eq!(model.requests_about(&text).len(), 1, "{name}");
        // The lane is free, and the next request of the session is valid.
        let next = format!("[{name}] go on");
        let answered = gateway.post(&hook, "?wait=30", &Message::new(&next).chat("c").session(&hook)).await;
        assert_eq!(answered.text("reply"), format!("echo: {next}"), "{name}: {answered:?}");
        let request = model.requests_about(&next).pop().expect("it was asked");
        assert_eq!(request["messages"][2]["content"], reply, "{name}: the failed turn stands as it was told");
        id
    }))
    .await;
    assert_eq!(model.refused(), Vec::<String>::new());
    assert!(!gateway.workspace().join("cut.txt").exists(), "half a call is not run");
    let journal = gateway.check_settled(&Witness { accepted: &ids, ..Witness::default() }).await;
    assert!(journal.messages.iter().all(|message| !message.body.to_string().contains("lost words")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_response_is_aborted_and_its_connection_closed() {
    let (model, never) = (Model::start().await, Gate::new());
    let faults = silent_faults(&never);
    play_faults(&model, &faults, ("4s", "9s")).await;
    model.wait_disconnected(faults.len()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_response_is_aborted_and_its_connection_closed() {
    let (model, faults) = (Model::start().await, flood_faults());
    play_faults(&model, &faults, AMPLE).await;
    model.wait_disconnected(faults.len()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lasting_fault_is_one_clear_reply() {
    let model = Model::start().await;
    play_faults(&model, &ending_faults(), AMPLE).await;
}

/// 429 twice, with a time in seconds and as a date, and then an answer.
#[tokio::test(flavor = "multi_thread")]
async fn two_rate_limit_answers_are_retried() {
    let model = Model::start().await;
    let soon = jiff::Timestamp::now() + Duration::from_secs(2);
    let date = jiff::fmt::rfc2822::to_string(&soon.to_zoned(jiff::tz::TimeZone::UTC)).unwrap();
    model.nth(1, Reply::status(429).retry_after("1"));
    model.nth(2, Reply::status(429).retry_after(&date));
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    assert_eq!(gateway.ask("in", "c", "hello").await, "echo: hello");
    assert!(jiff::Timestamp::now() >= soon - Duration::from_secs(1), "a date has whole seconds");
    let requests = model.requests();
    assert!(requests.len() == 3 && requests.iter().all(|request| *request == requests[0]), "the same each time");
    assert_eq!(gateway.ask("in", "c", "go on").await, "echo: go on");
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// The bytes may be split in any way: one by one, within a character, with CR LF and a byte order mark, with interleaved calls.
#[tokio::test(flavor = "multi_thread")]
async fn responses_are_read_however_their_bytes_are_split() {
    let model = Model::start().await;
    let written = "多语言 😀 é\r\n\u{2028}tab\there";
    let odd = |reply: Reply| reply.one_byte_chunks().chunk_chars(1).crlf().with_bom();
    let write = |path: &str| json!({"path": path, "content": format!("{path}: {written}")});
    let calls = Reply::tool("write_file", &write("a.txt")).and_tool("write_file", &write("b.txt")).interleaved();
    model.on("bytes", [odd(calls.reasoning("想一想")), odd(Reply::text(written))]);
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    assert_eq!(gateway.ask("in", "c", "bytes").await, written);
    for path in ["a.txt", "b.txt"] {
        let file = std::fs::read_to_string(gateway.workspace().join(path)).unwrap();
        assert_eq!(file, format!("{path}: {written}"));
    }
    assert_eq!(gateway.ask("in", "c", "go on").await, "echo: go on");
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// An answer of several megabytes on one line is accepted. An answer of fifty megabytes is refused, without being held many times over.
#[tokio::test(flavor = "multi_thread")]
async fn huge_answers_are_read_or_refused_in_bounded_memory() {
    const LONG: usize = 3_000_000;
    let model = Model::start().await;
    let whole = json!({"choices": [{"index": 0, "delta": {"content": "y".repeat(LONG)}, "finish_reason": "stop"}]});
    let long = Reply::events([whole.to_string().as_str(), "[DONE]"]);
    let endless = half_answer().repeating_for_ever(event(&text_event_data(&"x".repeat(1 << 16))), AT_ONCE);
    model.on("fifty", [endless]);
    model.on("long", [long]);
    let setup = Setup::new().model(&model).set("providers.scripted.retries", 0).hook(Hook::bearer("in"));
    let gateway = Gateway::start(setup).await;
    gateway.ask("in", "warm", "warm up").await;
    let before = reset_peak(gateway.pid());
    let refused = gateway.ask("in", "c", "fifty").await;
    assert!(refused.contains("longer than 16777216 bytes"), "{refused}");
    let grown = peak_bytes(gateway.pid()).saturating_sub(before);
    // 16 MiB are held twice (the answer, and the text that a stop would show), each together with the smaller buffer from which it grew.
    assert!(grown < 64 << 20, "an answer without end took {grown} bytes");
    let reply = gateway.ask("in", "d", "long").await;
    assert!(reply.len() == LONG && reply.bytes().all(|byte| byte == b'y'), "{} bytes", reply.len());
    for chat in ["c", "d"] {
        assert_eq!(gateway.ask("in", chat, "go on").await, "echo: go on");
    }
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// A point at which a turn can be stopped, and how it is observed from outside.
struct Phase {
    name: &'static str,
    steps: Vec<Reply>,
    /// The number of requests of the turn up to this point.
    requests: usize,
    /// A file whose existence shows that the turn has reached this point.
    file: Option<&'static str>,
    /// True if the service holds a connection, which must close.
    is_connected: bool,
    reply: &'static str,
}

fn phases(never: &Gate) -> Vec<Phase> {
    let row =
        |name, steps, requests, file, is_connected, reply| Phase { name, steps, requests, file, is_connected, reply };
    let list = || Reply::tool("list_dir", &json!({"path": "."}));
    let sleep = json!({"command": "touch asleep.txt; sleep 1000"});
    vec![
        row("before the headers", vec![Reply::hang()], 1, None, true, "(stopped)"),
        row("between two words", vec![half_answer().repeating_for_ever(PING, PACE)], 1, None, true, "(stopped)"),
        row("before another try", vec![Reply::status(429).retry_after("50")], 1, None, false, "(stopped)"),
        row(
            "while a tool runs",
            vec![Reply::tool("exec", &sleep).and_tool("list_dir", &json!({"path": "."}))],
            1,
            Some("asleep.txt"),
            false,
            "(stopped)",
        ),
        row("after a tool", vec![list(), Reply::hang()], 2, None, true, "(stopped)"),
        row("within a call", vec![list().chunk_chars(2).stalls_after(3, never)], 1, None, true, "(stopped)"),
    ]
}

/// `/stop` in each phase of a turn reaches the service: the connection closes, and no further request follows.
#[tokio::test(flavor = "multi_thread")]
async fn stop_closes_the_model_connection_in_each_phase() {
    if bubblewrap_is_missing() {
        return;
    }
    let (model, never) = (Model::start().await, Gate::new());
    let phases = phases(&never);
    for phase in &phases {
        model.on(&format!("<{}>", phase.name), phase.steps.clone());
    }
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    let mut left = 0;
    for Phase { name, requests, file, is_connected, reply, .. } in &phases {
        let text = format!("<{name}>");
        let id = gateway.accept("in", &Message::new(&text).chat(name)).await;
        until(&format!("{name}: the turn to come there"), async || {
            let shown = file.is_none_or(|file| gateway.workspace().join(file).exists());
            (shown && model.requests_about(&text).len() >= *requests).then_some(())
        })
        .await;
        assert_eq!(gateway.ask("in", name, "/stop").await, "Stopping.", "{name}");
        let state = gateway.wait_done("in", &id).await;
        let code = &state.body["error"]["code"];
        assert!(state.text("reply").ends_with(reply) && *code == json!("stopped"), "{name}: {state:?}");
        left += usize::from(*is_connected);
        model.wait_disconnected(left).await;
        assert_eq!(gateway.ask("in", name, "go on").await, "echo: go on", "{name}");
        assert_eq!((model.requests_about(&text).len(), model.refused()), (*requests, Vec::new()), "{name}");
    }
    gateway.check_settled(&Witness::default()).await;
}

/// A hundred reads in one answer, with interleaved pieces, twice. Each result belongs to its own call, in the requested order.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_interleaved_calls_keep_their_results_in_order() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    for n in 0..100 {
        std::fs::write(gateway.workspace().join(format!("{n}.txt")), format!("number <{n}>")).unwrap();
    }
    let read = |reply: Reply, n: usize| reply.and_tool("read_file", &json!({"path": format!("{n}.txt")}));
    let all = (0..100).fold(Reply::default(), read).interleaved().chunk_chars(3);
    model.on("read", [all.clone(), all, Reply::text("all read")]);
    assert_eq!(gateway.ask("in", "c", "read").await, "all read");
    assert_eq!(gateway.ask("in", "c", "go on").await, "echo: go on");
    assert_eq!(model.refused(), Vec::<String>::new());
    let results = ModelRequest::new(3, &model.requests()[2]).results;
    assert_eq!(results.len(), 100);
    let ids: BTreeSet<String> = model.requests()[2]["messages"]
        .as_array()
        .expect("a request that was not refused")
        .iter()
        .filter_map(|message| message["tool_call_id"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(ids.len(), 200, "each call of the turn has an id of its own");
    for (n, result) in results.iter().enumerate() {
        assert!(result.contains(&format!("number <{n}>")), "{n}: {result}");
    }
}
