//! Effects of a model's behaviour on a turn: invalid calls, loops, huge output, silence, reasoning.

use serde_json::{Value, json};

use crate::support::gateway::Message;
use crate::support::invariants::{Witness, open_to_change};
use crate::support::model::{messages_of, results_of};
use crate::support::processes::{peak_bytes, reset_peak};
use crate::support::requirements::bubblewrap_is_missing;
use crate::support::{Gate, Gateway, Model, Reply, Setup, until};

/// One answer of the model, and the expected result of each call, in order.
struct InvalidCalls {
    name: &'static str,
    calls: Reply,
    expected: &'static [&'static str],
}

fn invalid_calls() -> Vec<InvalidCalls> {
    let list = json!({"path": "."});
    let row = |name, calls, expected| InvalidCalls { name, calls, expected };
    vec![
        row("cut arguments", Reply::raw_tool("read_file", "{\"path\":"), &["not valid JSON"]),
        row("a list of arguments", Reply::raw_tool("read_file", "[1]"), &["expected a JSON object, got array"]),
        row("words as arguments", Reply::raw_tool("exec", "ls -la"), &["not valid JSON"]),
        row("an unknown tool", Reply::tool("no such.tool", &json!({})), &["Available tools: read_file"]),
        row(
            "a wrong type",
            Reply::tool("read_file", &json!({"path": {"a": 1}})),
            &["path: expected string, got object"],
        ),
        row("a missing one", Reply::tool("write_file", &json!({"path": "x"})), &["missing: content"]),
        row("an unknown one", Reply::tool("list_dir", &json!({"path": ".", "colour": 1})), &["unknown: colour"]),
        row(
            "the same id twice",
            Reply::tool("list_dir", &list)
                .call_id("same")
                .and_tool("read_file", &json!({"path": "USER.md"}))
                .call_id("same"),
            &["AGENTS.md", "#"],
        ),
        row(
            "ids that are empty or too long",
            Reply::tool("list_dir", &list).call_id("").and_tool("list_dir", &list).call_id(&"i".repeat(90)),
            &["AGENTS.md", "AGENTS.md"],
        ),
        row(
            "one of two is wrong",
            Reply::tool("list_dir", &list).and_tool("edit_file", &json!({"path": "x"})),
            &["AGENTS.md", "give old_text and new_text"],
        ),
    ]
}

/// For every invalid call the model gets an error, and the conversation stays valid, now and in the next turn.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_calls_are_reported_to_the_model_and_the_history_stays_valid() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    for (n, case) in invalid_calls().into_iter().enumerate() {
        let (chat, text) = (format!("chat {n}"), format!("case <{n}>"));
        // The same answer occurs twice, so that its ids occur in two responses of one turn.
        model.on(&text, [case.calls.clone(), case.calls, Reply::text("understood")]);
        assert_eq!(gateway.ask("in", &chat, &text).await, "understood", "{}", case.name);
        let requests = model.requests_about(&text);
        assert_eq!((requests.len(), model.refused()), (3, Vec::new()), "{}", case.name);
        for request in &requests[1..] {
            let results = results_of(request);
            let fits = results.len() == case.expected.len()
                && results.iter().zip(case.expected).all(|(got, want)| got.contains(want));
            assert!(fits, "{}: told {results:?}", case.name);
        }
        assert_eq!(gateway.ask("in", &chat, "go on").await, "echo: go on");
        assert_eq!(model.refused(), Vec::<String>::new(), "{}: the next turn", case.name);
    }
    gateway.check_settled(&Witness::default()).await;
}

/// A hundred calls in one answer give a hundred results in the same order.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_calls_in_one_answer_are_answered_in_order() {
    let model = Model::start().await;
    let call = |reply: Reply, n: usize| {
        reply.and_tool("write_file", &json!({"path": format!("many/{n}.txt"), "content": format!("number {n}")}))
    };
    model.on("many", [(0..100).fold(Reply::default(), call), Reply::text("all written")]);
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    assert_eq!(gateway.ask("in", "c", "many").await, "all written");
    let results = results_of(&model.requests()[1]);
    assert_eq!((results.len(), model.refused()), (100, Vec::new()));
    for (n, result) in results.iter().enumerate() {
        assert!(result.contains(&format!("many/{n}.txt")), "result {n}: {result}");
        let written = std::fs::read_to_string(gateway.workspace().join(format!("many/{n}.txt"))).unwrap();
        assert_eq!(written, format!("number {n}"));
    }
    gateway.check_settled(&Witness::default()).await;
}

/// A model that never stops calling tools is called once more without them, and the answer says so.
#[tokio::test(flavor = "multi_thread")]
async fn an_endless_tool_loop_ends_at_the_round_limit() {
    let model = Model::start().await;
    let call = || Reply::tool("list_dir", &json!({"path": "."}));
    model.script(move |asked| {
        let has_tools = asked.body["tools"].is_array();
        match asked.user.as_str() {
            "loop" if has_tools => Some(call()),
            "loop" => Some(Reply::text("This is what I found.")),
            "stubborn" => Some(call()),
            _ => None,
        }
    });
    let gateway = Gateway::start(Setup::scripted(&model).set("agent.max_iterations", 3)).await;
    let reply = gateway.ask("in", "c", "loop").await;
    let notice = "(I stopped after 3 steps, which is the limit. Ask me to go on if there is more to do.)";
    assert_eq!(reply, format!("This is what I found.\n\n{notice}"));
    assert_eq!(gateway.ask("in", "c", "stubborn").await, notice, "a model that calls on is not taken to be done");
    for text in ["loop", "stubborn"] {
        let with_tools: Vec<_> = model.requests_about(text).iter().map(|request| request["tools"].is_array()).collect();
        assert_eq!(with_tools, [true, true, true, false]);
    }
    assert_eq!(gateway.ask("in", "c", "still there?").await, "echo: still there?");
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// At its token limit a turn closes its running calls, and the reply says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_ends_at_its_token_limit() {
    let model = Model::start().await;
    model.on("dear", [Reply::tool("list_dir", &json!({"path": "."})).usage(400, 200)]);
    let gateway = Gateway::start(Setup::scripted(&model).set("agent.max_turn_tokens", 1_000)).await;
    let id = gateway.accept("in", &Message::new("dear").chat("c")).await;
    let state = gateway.wait_done("in", &id).await;
    assert!(state.text("reply").contains("after 1200 tokens"), "{state:?}");
    assert_eq!((&state.body["error"]["code"], model.count()), (&json!("token_cap"), 2));
    assert_eq!(gateway.ask("in", "c", "go on").await, "echo: go on");
    assert_eq!(model.refused(), Vec::<String>::new());
    assert!(gateway.ask("in", "c", "/cost").await.contains("tokens in"));
}

/// The model gets head and tail of huge output and can page through the rest. The gateway's memory does not grow.
#[tokio::test(flavor = "multi_thread")]
async fn huge_tool_output_is_truncated_spilled_and_paged() {
    if bubblewrap_is_missing() {
        return;
    }
    let model = Model::start().await;
    model.script(|asked| {
        let note = "the first 10000000 of 55000032 bytes: ";
        let path = || asked.results.first()?.split(note).nth(1)?.split(' ').next().map(str::to_owned);
        match (asked.user.as_str(), asked.step) {
            ("flood", 0) => {
                let command = "echo first-line; seq 1000000000 1005000000; echo last-line";
                Some(Reply::tool("exec", &json!({"command": command})))
            }
            ("flood", 1) => Some(Reply::tool("read_file", &json!({"path": path()?, "offset": 5_001, "limit": 2}))),
            ("flood", _) => Some(Reply::text("read it")),
            _ => None,
        }
    });
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    gateway.ask("in", "c", "warm up").await;
    let before = reset_peak(gateway.pid());
    assert_eq!(gateway.ask("in", "c", "flood").await, "read it");
    let grown = peak_bytes(gateway.pid()).saturating_sub(before);
    assert!(grown < 16 << 20, "55 MB of output took {grown} bytes");
    let requests = model.requests_about("flood");
    let cut = results_of(&requests[1])[0].clone();
    assert!(cut.starts_with("first-line\n") && cut.trim_end().ends_with("last-line"), "{cut}");
    assert!(cut.chars().count() <= 8_000 && cut.contains(" characters, "), "{}", cut.len());
    let page = results_of(&requests[2])[0].clone();
    assert!(page.starts_with("5001\t1000004999\n5002\t1000005000\n"), "{page}");
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// Reasoning is not part of the answer, however its tags are split. It is returned to the model only if the service keeps it separate.
#[tokio::test(flavor = "multi_thread")]
async fn reasoning_is_no_part_of_the_answer() {
    let model = Model::start().await;
    let look = Reply::tool("list_dir", &json!({"path": "."})).saying("<think>\nplan one\n</think>Let me look.");
    let last =
        Reply::text("<think>plan two</think>\n\n好的，the <think> tag is\n<thinking>plan three</thinking>\nhere.");
    model.on("think", [look.reasoning("plan four"), last.one_byte_chunks().chunk_chars(1).crlf()]);
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    assert_eq!(gateway.ask("in", "c", "think").await, "好的，the <think> tag is\nhere.");
    gateway.ask("in", "c", "and now").await;
    let requests = model.requests();
    for request in &requests[1..] {
        let apart = json!({"reasoning_content": "plan four"}).to_string();
        let rest = request.to_string().replace(apart.trim_matches(['{', '}']), "");
        assert!(!rest.contains("plan "), "{request}");
    }
    let answers: Vec<_> = messages_of(&requests[2]).iter().filter(|m| m["role"] == "assistant").collect();
    assert_eq!(answers[0]["reasoning_content"], "plan four");
    assert_eq!(
        (&answers[0]["content"], &answers[1]["content"]),
        (&json!("Let me look."), &json!("好的，the <think> tag is\nhere."))
    );
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// An answer without text is a clear error, unless tools did what the user asked.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_answer_is_a_clear_error() {
    let model = Model::start().await;
    model.on("nothing", [Reply::text("")]);
    model.on("blank", [Reply::text("<think>hm</think> \n ")]);
    let write = Reply::tool("write_file", &json!({"path": "a.txt", "content": "a"}));
    model.on("act", [write, Reply::text("")]);
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    for (text, reply, code) in [
        ("nothing", "The model gave no answer. Please try again.", json!("empty_answer")),
        ("blank", "The model gave no answer. Please try again.", json!("empty_answer")),
        ("act", "Done.", Value::Null),
    ] {
        let id = gateway.accept("in", &Message::new(text).chat("c")).await;
        let state = gateway.wait_done("in", &id).await;
        assert_eq!((state.text("reply"), &state.body["error"]["code"]), (reply, &code), "{text}");
    }
    assert_eq!(gateway.ask("in", "c", "go on").await, "echo: go on");
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// At its timeout a turn says so, ends what it runs, and the next turn can start.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_ends_at_its_timeout() {
    if bubblewrap_is_missing() {
        return;
    }
    let model = Model::start().await;
    model.on("hang", [Reply::hang()]);
    model.on("sleep", [Reply::tool("exec", &json!({"command": "echo begun; sleep 1000"}))]);
    let gateway = Gateway::start(Setup::scripted(&model).set("agent.turn_timeout", "4s")).await;
    for text in ["hang", "sleep"] {
        let id = gateway.accept("in", &Message::new(text).chat(text)).await;
        let behind = gateway.accept("in", &Message::new("behind").chat(text)).await;
        let state = gateway.wait_done("in", &id).await;
        assert_eq!(state.text("reply"), "I stopped because this took longer than 4s.");
        assert_eq!(state.body["error"]["code"], "turn_timeout");
        assert_eq!(gateway.wait_done("in", &behind).await.text("reply"), "echo: behind");
    }
    model.wait_disconnected(1).await;
    let request = model.requests_about("behind").pop().expect("it was asked");
    let result = messages_of(&request).iter().find(|message| message["role"] == "tool").expect("the command's result");
    assert_eq!(result["content"], "Error: Cancelled; the command was killed\nbegun\n");
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// A row that cannot be read completely is answered too, and its session continues.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_metadata_is_unreadable_is_answered() {
    let model = Model::start().await;
    let gate = Gate::new();
    model.on("work", [Reply::text("done").held_by(&gate)]);
    let mut gateway = Gateway::start(Setup::scripted(&model)).await;
    let id = gateway.accept("in", &Message::new("work").chat("c")).await;
    gate.wait_arrived(1).await;
    gateway.kill9().await;
    let store = rusqlite::Connection::open(gateway.database()).unwrap();
    assert_eq!(store.execute("UPDATE inbox SET metadata = 'x'", []).unwrap(), 1);
    drop(store);
    gate.open();
    gateway.up().await;
    assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "done");
    assert_eq!(gateway.ask("in", "c", "go on").await, "echo: go on");
}

/// A write that the store never accepts ends its turn with an error. The session continues when the store accepts writes again.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_the_store_never_accepts_ends_with_an_error() {
    let model = Model::start().await;
    let list = Reply::tool("list_dir", &json!({"path": "."}));
    model.on("by tools", [list, Reply::text("never said")]);
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    let store = open_to_change(&gateway.database());
    for (table, text) in [("messages", "hello"), ("turn_steps", "by tools")] {
        let refuse = format!("CREATE TRIGGER refuse BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'never'); END");
        store.execute_batch(&refuse).unwrap();
        let id = gateway.accept("in", &Message::new(text).chat("c")).await;
        let state = gateway.wait_done("in", &id).await;
        assert_eq!(state.body["error"]["code"], "internal", "{state:?}");
        assert!(state.text("reply").starts_with("Something went wrong inside daoyou"), "{state:?}");
        store.execute_batch("DROP TRIGGER refuse").unwrap();
        assert_eq!(gateway.ask("in", "c", "go on").await, "echo: go on");
    }
    // Not even an error can be written.
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON outbox BEGIN SELECT RAISE(ABORT, 'never'); END";
    store.execute_batch(refuse).unwrap();
    let id = gateway.accept("in", &Message::new("hello again").chat("c")).await;
    let state = until("the end", async || {
        let state = gateway.state("in", &id).await;
        (state.text("status") == "dead").then_some(state)
    });
    assert_eq!(state.await.body["reply"], Value::Null);
    store.execute_batch("DROP TRIGGER refuse").unwrap();
    assert_eq!(gateway.ask("in", "c", "go on").await, "echo: go on");
}

/// A turn whose journal was changed from outside is not resumed. The sender is notified, and the session continues.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_with_a_damaged_journal_is_not_resumed() {
    let model = Model::start().await;
    let gate = Gate::new();
    let list = Reply::tool("list_dir", &json!({"path": "."}));
    model.on("work", [list, Reply::text("never said").held_by(&gate)]);
    let mut gateway = Gateway::start(Setup::scripted(&model)).await;
    let id = gateway.accept("in", &Message::new("work").chat("c")).await;
    gate.wait_arrived(1).await;
    gateway.kill9().await;
    let store = rusqlite::Connection::open(gateway.database()).unwrap();
    let changed = store.execute("UPDATE turn_steps SET body = replace(body, 'list_dir', 'exec')", []).unwrap();
    assert!(changed > 0);
    drop(store);
    gateway.up().await;
    let state = gateway.wait_done("in", &id).await;
    assert_eq!((&state.body["error"]["code"], model.count()), (&json!("state_corrupted"), 2), "{state:?}");
    assert!(state.text("reply").contains("damaged"), "{state:?}");
    assert_eq!(gateway.json(&["turns", "show", &id]).await["intact"], false);
    assert_eq!(gateway.ask("in", "c", "go on").await, "echo: go on");
    assert_eq!(model.refused(), Vec::<String>::new());
}
