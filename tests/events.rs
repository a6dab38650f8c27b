//! The display of a running turn, on the control socket's stream and on a terminal. Two calls arrive interleaved, and each
//! keeps its own data.

use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::support::attached::Attached;
use crate::support::invariants::Witness;
use crate::support::pty::Terminal;
use crate::support::requirements::bubblewrap_is_missing;
use crate::support::{Gate, Gateway, Model, Reply, Setup};

/// Returns all events up to the turn's end. Pieces of the same text are joined.
async fn turn(attached: &mut Attached) -> Vec<Value> {
    let mut seen: Vec<Value> = Vec::new();
    for frame in attached.turn().await {
        let event = frame["event"]["event"].clone();
        match (seen.last_mut(), event["delta"].as_str()) {
            (Some(last), Some(delta)) if last["type"] == event["type"] => {
                last["delta"] = json!(last["delta"].as_str().unwrap_or_default().to_owned() + delta);
            }
            _ => seen.push(event),
        }
    }
    seen
}

/// Returns the events of call `id`: its arguments and whether they are complete, then its result.
fn events_of_call(events: &[Value], id: &str) -> Vec<Value> {
    let of = events.iter().filter(|event| event["id"] == id);
    of.map(|event| match event["type"].as_str() {
        Some("tool_call") => json!([event["name"], event["arguments"], event["args_complete"]]),
        _ => json!([event["name"], event["success"]]),
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_event_stream_shows_a_whole_turn() {
    let model = Model::start().await;
    let listing = json!({"path": "."});
    let reading = json!({"path": "notes <中文>.txt"});
    let both = Reply::tool("list_dir", &listing).call_id("x").and_tool("read_file", &reading).call_id("y");
    model.on(
        "work",
        [
            both.interleaved().chunk_chars(3).reasoning("What is there?").saying("I look.").usage(100, 20),
            // The service restarts its ids, and the model does not close its braces.
            Reply::raw_tool("read_file", "{\"path\": \"a").call_id("x").chunk_chars(2).usage(200, 10),
            Reply::text("That is all.").usage(300, 5),
        ],
    );
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    std::fs::write(gateway.workspace().join("notes <中文>.txt"), "hello").unwrap();
    let mut events = Attached::open(&gateway).await;
    assert_eq!(gateway.run(&["agent", "-m", "work"]).await.stdout, "That is all.\n");
    let events = turn(&mut events).await;
    assert_eq!(
        events_of_call(&events, "x"),
        [json!(["list_dir", null, false]), json!(["list_dir", listing, true]), json!(["list_dir", true]),]
    );
    assert_eq!(
        events_of_call(&events, "y"),
        [json!(["read_file", null, false]), json!(["read_file", reading, true]), json!(["read_file", true]),]
    );
    assert_eq!(
        events_of_call(&events, "x_2"),
        [json!(["read_file", null, false]), json!(["read_file", "{\"path\": \"a", true]), json!(["read_file", false]),]
    );
    let others: Vec<Value> = events.iter().filter(|event| event.get("id").is_none()).cloned().collect();
    let usage = |input: u64, output: u64| json!({"type": "usage", "input_tokens": input, "output_tokens": output, "cached_tokens": 0});
    assert_eq!(
        others[..7],
        [
            json!({"type": "started"}),
            json!({"type": "thinking", "delta": "What is there?"}),
            json!({"type": "text", "delta": "I look."}),
            usage(100, 20),
            usage(200, 10),
            json!({"type": "text", "delta": "That is all."}),
            usage(300, 5),
        ]
    );
    let done = &others[7];
    assert_eq!((&done["type"], &done["reply"]), (&json!("done"), &json!("That is all.")));
    assert_eq!((&done["input_tokens"], &done["output_tokens"], others.len()), (&json!(600), &json!(35), 8));
    // A waiting caller gets only the reply.
    assert_eq!(gateway.ask("in", "c", "work").await, "That is all.");
    assert_eq!(model.refused(), Vec::<String>::new());
    gateway.check_settled(&Witness::default()).await;
}

/// A response that breaks off within a call is discarded. The events show this, the call does not run, and the next call gets another id.
#[tokio::test(flavor = "multi_thread")]
async fn a_discarded_response_restarts_and_a_failure_ends_the_stream() {
    let model = Model::start().await;
    let write = Reply::tool("write_file", &json!({"path": "cut.txt", "content": "never written"}));
    model.on("cut", [Reply::text("whole")]);
    model.nth(1, write.saying("I write.").chunk_chars(4).drops_after(8));
    model.on("broken", [Reply::status(400)]);
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    let mut events = Attached::open(&gateway).await;
    assert_eq!(gateway.run(&["agent", "-m", "cut"]).await.stdout, "whole\n");
    let kinds = |events: &[Value]| -> Vec<String> {
        events.iter().map(|event| event["type"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let cut = turn(&mut events).await;
    assert_eq!(kinds(&cut), ["started", "text", "tool_call", "restart", "text", "usage", "done"]);
    assert!(!gateway.workspace().join("cut.txt").exists());
    assert_eq!(gateway.run(&["agent", "-m", "broken"]).await.code, Some(1));
    let broken = turn(&mut events).await;
    assert_eq!(kinds(&broken), ["started", "error"]);
    assert!(broken[1]["message"].as_str().is_some_and(|words| words.contains("HTTP 400")), "{broken:?}");
}

/// Returns the final rows on the screen, since the last row is redrawn while it grows.
fn screen_rows(drawn: &str) -> Vec<String> {
    drawn.split("\r\n").map(|row| row.rsplit("\r\x1b[K").next().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_shows_one_row_for_each_call() {
    if bubblewrap_is_missing() {
        return;
    }
    let (model, gate) = (Model::start().await, Gate::new());
    let wait = json!({"command": "while ! test -e go; do sleep 0.02; done; echo went"});
    let both = Reply::tool("exec", &wait).and_tool("list_dir", &json!({"path": "empty"}));
    let both = both.interleaved().chunk_chars(8).stalls_after(4, &gate);
    model.on("work", [both.usage(1_000, 20), Reply::text("Both done.").usage(2_000, 5)]);
    let gateway = Gateway::start(Setup::new().model(&model).env("NO_COLOR", "1")).await;
    std::fs::create_dir(gateway.workspace().join("empty")).unwrap();
    std::fs::write(gateway.workspace().join("empty/only.txt"), "").unwrap();
    let mut terminal = block_in_place(|| {
        let mut terminal = Terminal::chat(&gateway);
        terminal.line("work");
        // A pending call is visible, with a spinner.
        terminal.expect(" exec(…) +1");
        terminal
    });
    gate.wait_arrived(1).await;
    gate.open();
    let mut drawn = block_in_place(|| {
        terminal.expect("exec(command=\"while ");
        // A frame of the spinner, which is redrawn while the command runs.
        let drawn = terminal.expect("exec(command=\"while ");
        assert!(drawn.ends_with(['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏', ' ']), "{drawn:?}");
        drawn
    });
    std::fs::write(gateway.workspace().join("go"), "").unwrap();
    block_in_place(|| {
        drawn += &terminal.expect("3,000 tokens in · 25 out");
        let rows = screen_rows(&drawn);
        let at = |text: &str| -> Vec<usize> { (0..rows.len()).filter(|row| rows[*row].contains(text)).collect() };
        let (first, second) = (at("● exec(command="), at("● list_dir(path=\"empty\")"));
        assert_eq!((first.len(), second.len()), (1, 1), "{rows:?}");
        assert!(rows[first[0] + 1].contains("└ went") && rows[second[0] + 1].contains("only.txt"), "{rows:?}");
        assert_eq!((at("Both done.").len(), at("(no result)").len(), at("(…)").len()), (1, 0, 0), "{rows:?}");
        terminal.expect("You> ");
        terminal.control('d');
        assert_eq!(terminal.wait_exit(), Some(0));
    });
    assert_eq!(model.refused(), Vec::<String>::new());
}
