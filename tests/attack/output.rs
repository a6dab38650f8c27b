//! Text that controls a terminal, from every possible author. No command prints it, and no log contains it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::support::gateway::CommandOutput;
use crate::support::invariants::open;
use crate::support::pty::Terminal;
use crate::support::{Answer, Gateway, Hook, Model, Reply, Setup, Sink, until};

/// Sequences that a terminal obeys: clipboard, link, title, cursor and colours, each in C0 and C1; text direction; hidden
/// tags; and a line feed followed by a line that looks like a log line.
const EVIL: &str = "\x1b]52;c;b3duZWQ=\x07\x1b]8;;http://evil.test\x1b\\link\x1b]8;;\x1b\\\x1b]0;owned\x07\x1b[2J\x1b[31m\
    \u{9b}2J\u{9d}0;owned\u{9c}\u{90}q\u{9c}\u{202e}\u{2066}\u{200f}\u{61c}\u{e0041}\u{7f}\x08\x1bc\
    \n2026-01-01T00:00:00.000000Z ERROR daoyou: forged";

/// Legitimate, though rare, text.
const GOOD: &str = "e\u{301}中👩\u{200d}🚀";

/// Returns true for a control character other than line feed and tab.
fn is_terminal_control(c: char) -> bool {
    let is_format = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        | '\u{e0000}'..='\u{e007f}');
    (c.is_control() && c != '\n' && c != '\t') || is_format
}

fn check_text(what: &str, text: &str) {
    if let Some(at) = text.find(is_terminal_control) {
        let near: String = text[at..].chars().take(40).collect();
        panic!("{what}: commands a terminal: {near:?}\nin {text:?}");
    }
}

fn hostile_text(name: &str) -> String {
    format!("{name} {GOOD}{EVIL} end")
}

/// Delivers a message in which every field is hostile.
async fn accept(gateway: &Gateway, id: &str, content: &str) {
    let message = json!({
        "channel": "cli", "external_id": format!("{id}{EVIL}"), "chat_id": hostile_text("chat"), "sender": hostile_text("sender"),
        "trust": "owner", "content": format!("{content} {}", hostile_text("content")), "session": hostile_text("cli:session"),
        "attachments": [], "received_at": jiff::Timestamp::now(),
    });
    gateway.deliver(&message).await;
}

/// Starts a gateway in which everything is hostile: messages, replies, tool results, errors of a model, files,
/// memories, jobs.
async fn hostile_gateway(model: &Model, sink: &Sink, format: &str) -> Gateway {
    let file = hostile_text("file").replace(['/', '\n'], "_");
    model.on(
        "first",
        [
            Reply::tool("list_dir", &json!({"path": "."})),
            Reply::tool("read_file", &json!({ "path": file })),
            Reply::tool("exec", &json!({ "command": format!("printf '%s' '{}'; exit 3", hostile_text("printed")) })),
            Reply::tool(&hostile_text("tool"), &json!({ "path": hostile_text("argument") })),
            Reply::text(hostile_text("reply")),
        ],
    );
    let fault =
        json!({ "error": { "message": hostile_text("fault"), "code": 400, "type": hostile_text("code") } }).to_string();
    model.on("second", [Reply::raw(fault.clone()), Reply::raw(fault)]);
    let mut setup = Setup::new().model(model).hook(Hook::bearer("in").callback(sink)).env("NO_COLOR", "1");
    setup.args = ["--log", "trace", "--log-format", format].map(str::to_owned).into();
    let setup = setup.set("owner.name", hostile_text("owner").replace('\n', " "));
    let gateway = Gateway::start(setup).await;
    std::fs::write(gateway.workspace().join(&file), hostile_text("written")).unwrap();
    accept(&gateway, "one", "first").await;
    accept(&gateway, "two", "second").await;
    gateway
        .post("in", "?wait=30", &crate::support::gateway::Message::new(&format!("third {}", hostile_text("hook"))))
        .await;
    // Replies to a terminal wait if no terminal is open.
    const DONE: &str = "SELECT (SELECT count(*) FROM inbox WHERE state IN ('done', 'dead'))
        + (SELECT count(*) FROM outbox WHERE state = 'dead')";
    until("three ended turns and a dead letter", async || {
        let done = open(&gateway.database()).and_then(|store| store.query_row(DONE, [], |row| row.get::<_, i64>(0)));
        (done == Ok(4)).then_some(())
    })
    .await;
    for args in [
        vec!["memory".to_owned(), "add".to_owned(), hostile_text("memory")],
        ["cron", "add", "--every", "1d", "--name", "job", "--prompt"]
            .map(str::to_owned)
            .into_iter()
            .chain([hostile_text("prompt")])
            .collect(),
    ] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let ran = gateway.run(&args).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        check_text("stdout", &ran.stdout);
        check_text("stderr", &ran.stderr);
    }
    gateway
}

/// Returns every command that prints something, and whether it must print the legitimate part of a hostile text.
async fn printing_commands(gateway: &Gateway) -> Vec<(Vec<String>, bool)> {
    let key = hostile_text("cli:session");
    let turns = gateway.json(&["turns", "list"]).await;
    let turns: Vec<&str> = turns.as_array().unwrap().iter().map(|turn| turn["turn"].as_str().unwrap()).collect();
    let queue = gateway.json(&["queue", "list"]).await;
    let dead_letter = queue[0]["id"].as_str().expect("a dead letter");
    let mut commands: Vec<(Vec<&str>, bool)> = vec![
        (vec!["sessions", "list"], true),
        (vec!["sessions", "show", &key], true),
        (vec!["sessions", "search", "content"], true),
        (vec!["sessions", "export", &key], true),
        (vec!["sessions", "export", &key, "--format", "md"], true),
        (vec!["turns", "list"], true),
        (vec!["queue", "list"], true),
        (vec!["queue", "show", dead_letter], true),
        (vec!["cron", "list"], true),
        (vec!["cron", "show", "job"], true),
        (vec!["cron", "history", "job"], false),
        (vec!["cron", "export"], true),
        (vec!["memory", "show"], true),
        (vec!["memory", "show", "1"], true),
        (vec!["memory", "search", "memory"], true),
        (vec!["memory", "export"], true),
        (vec!["memory", "stats"], false),
        (vec!["status"], true),
        (vec!["doctor"], false),
        (vec!["models"], false),
        (vec!["channels", "list"], false),
        (vec!["tools", "list"], false),
        (vec!["config", "show"], true),
        (vec!["config", "check"], false),
        // Errors repeat arguments.
        (vec!["sessions", "show", EVIL], false),
        (vec!["queue", "show", EVIL], false),
        (vec!["cron", "show", EVIL], false),
        (vec!["channels", "test", EVIL], false),
        (vec![EVIL], false),
        (vec!["--config", EVIL, "config", "check"], false),
    ];
    commands.extend(turns.iter().map(|turn| (vec!["turns", "show", turn], true)));
    commands.into_iter().map(|(args, shows)| (args.into_iter().map(str::to_owned).collect(), shows)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_command_prints_terminal_escapes() {
    let (model, sink) = (Model::start().await, Sink::start(None).await);
    sink.then([Answer::Status(410, None)]);
    let mut gateway = hostile_gateway(&model, &sink, "text").await;
    let commands = printing_commands(&gateway).await;
    for is_running in [true, false] {
        for (args, shows) in &commands {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let ran: CommandOutput = gateway.run(&args).await;
            let what = format!("{args:?}, running: {is_running}");
            check_text(&what, &ran.stdout);
            check_text(&what, &ran.stderr);
            assert!(!shows || ran.stdout.contains(GOOD), "{what}: text is kept: {ran:?}");
            if is_running {
                let screen = block_in_place(|| Terminal::start(&gateway, &args).rest());
                check_text(&format!("{args:?} at a terminal"), &screen.replace("\r\n", "\n"));
                assert!(!shows || screen.contains(GOOD), "{what}: text is kept: {screen:?}");
            }
        }
        if is_running {
            gateway.stop().await;
        }
    }
}

/// Data stays unmodified: as JSON always, and as text with `--raw`, whose output is not a terminal.
#[tokio::test(flavor = "multi_thread")]
async fn raw_and_json_output_is_unmodified() {
    let (model, sink) = (Model::start().await, Sink::start(None).await);
    sink.then([Answer::Status(410, None)]);
    let gateway = hostile_gateway(&model, &sink, "text").await;
    let key = hostile_text("cli:session");
    let contents = |list: &Value| {
        let texts = list.as_array().unwrap().iter().map(|entry| entry["message"]["content"].to_string());
        texts.collect::<Vec<_>>()
    };
    let json = gateway.run(&["sessions", "show", &key, "--json"]).await;
    check_text("JSON", &json.stdout);
    let session: Value = serde_json::from_str(&json.stdout).unwrap();
    let whole = serde_json::to_string(&hostile_text("content")).unwrap();
    assert!(contents(&session["messages"])[0].contains(whole.trim_matches('"')), "{session}");
    let lines = gateway.run(&["sessions", "export", &key]).await;
    let lines: Vec<Value> = lines.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(contents(&lines.into()), contents(&session["messages"]));

    let memories = gateway.json(&["memory", "show"]).await;
    let is_ours = |memory: &&Value| memory["text"].as_str().is_some_and(|text| text.starts_with("memory"));
    let memory = memories.as_array().unwrap().iter().find(is_ours).expect("the memory that was added");
    let (memory, remembered) = (memory["id"].to_string(), memory["text"].as_str().unwrap().to_owned());
    assert!(remembered.contains('\u{61c}'), "{remembered:?}");
    let turn = gateway.json(&["turns", "list"]).await[0]["turn"].as_str().unwrap().to_owned();
    let raw: [(&[&str], String); 4] = [
        (&["sessions", "show", &key, "--raw"], hostile_text("reply")),
        (&["--raw", "sessions", "export", &key, "--format", "md"], hostile_text("content")),
        (&["memory", "show", &memory, "--raw"], remembered),
        (&["--raw", "turns", "show", &turn], hostile_text("hook")),
    ];
    for (args, expected) in raw {
        let ran = gateway.run(args).await;
        assert!(ran.code == Some(0) && ran.stdout.contains(&expected), "{args:?}: {ran:?}");
        let mut terminal = block_in_place(|| Terminal::start(&gateway, args));
        let screen = block_in_place(|| terminal.rest()).replace("\r\n", "\n");
        assert_eq!((screen.lines().count(), block_in_place(|| terminal.wait_exit())), (1, Some(2)), "{screen:?}");
        assert!(screen.contains("--raw") && screen.contains("pipe"), "{screen:?}");
        check_text("the refusal", &screen);
    }
}

/// At every log level, each line comes from the gateway, and none controls a terminal.
#[tokio::test(flavor = "multi_thread")]
async fn log_lines_cannot_be_forged_or_control_a_terminal() {
    for format in ["text", "json"] {
        let (model, sink) = (Model::start().await, Sink::start(None).await);
        sink.then([Answer::Status(410, None)]);
        let mut gateway = hostile_gateway(&model, &sink, format).await;
        gateway.stop().await;
        let logs = gateway.logs();
        let mut levels = BTreeMap::<String, usize>::new();
        for line in logs.lines().filter(|line| !line.starts_with("---- log of start")) {
            if let Some(at) = line.find(|c: char| is_terminal_control(c) || c == '\t') {
                panic!("{format}: {:?} of {line:?}", line[at..].chars().next());
            }
            let level = match format {
                "json" => {
                    let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
                    event["level"].as_str().expect("an event").to_owned()
                }
                _ => {
                    let time: Result<jiff::Timestamp, _> = line.split(' ').next().unwrap_or_default().parse();
                    assert!(time.is_ok_and(|time| time > "2026-01-02T00:00:00Z".parse().unwrap()), "{line}");
                    line.split_whitespace().nth(1).unwrap_or_default().to_owned()
                }
            };
            *levels.entry(level).or_default() += 1;
        }
        assert!(levels.contains_key("DEBUG") && levels.contains_key("TRACE"), "{levels:?}");
        assert!(logs.contains("forged"), "{format}: the words of others are logged, or this story tests nothing");
    }
}
