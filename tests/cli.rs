//! Commands and the terminal, with a running gateway and without one.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::task::block_in_place;

use crate::support::exposition::scrape;
use crate::support::gateway::Message;
use crate::support::invariants::{Witness, wait_settled};
use crate::support::pty::Terminal;
use crate::support::requirements::bubblewrap_is_missing;
use crate::support::{Answer, Gate, Gateway, Hook, Model, Reply, Setup, Sink, deadline, until};

const NOBODY: &str = "01900000-0000-7000-8000-000000000000";

/// Returns the keys of a value, recursively.
fn key_structure(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), key_structure(value))).collect(),
        _ => Value::Null,
    }
}

/// Every command that prints data prints the same with and without a running gateway.
#[tokio::test(flavor = "multi_thread")]
async fn commands_print_the_same_data_with_and_without_a_gateway() {
    let model = Model::start().await;
    let sink = Sink::start(None).await;
    sink.then([Answer::Status(410, None)]);
    let mut gateway = Gateway::start(Setup::new().model(&model).hook(Hook::bearer("in").callback(&sink))).await;
    let id = gateway.accept("in", &Message::new("hello").chat("c")).await;
    wait_settled(&gateway.database()).await;
    let dead_letter = gateway.json(&["queue", "list"]).await[0]["id"].as_str().unwrap().to_owned();
    let commands: [&[&str]; 9] = [
        &["sessions", "list"],
        &["sessions", "show", "webhook:in:c"],
        &["turns", "list"],
        &["turns", "show", &id],
        &["queue", "list"],
        &["queue", "show", &dead_letter],
        &["config", "show"],
        &["config", "path"],
        &["config", "check"],
    ];
    let mut running = Vec::new();
    for args in commands {
        let ran = gateway.run(args).await;
        assert_eq!((ran.code, ran.stdout.is_empty()), (Some(0), false), "{args:?}: {ran:?}");
        running.push((gateway.json(args).await, ran.stdout));
    }
    let export = gateway.run(&["sessions", "export", "webhook:in:c"]).await;
    assert_eq!(export.stdout.lines().count(), 2, "{export:?}");
    let as_json = gateway.run(&["sessions", "export", "webhook:in:c", "--json"]).await;
    assert_eq!((as_json.code, as_json.stdout), (Some(0), export.stdout.clone()));
    let status = gateway.json(&["status"]).await;
    assert_eq!(
        (&status["gateway"], &status["pid"], &status["ready"]),
        (&json!("up"), &gateway.pid().into(), &true.into())
    );

    gateway.stop().await;
    for (args, (json, text)) in commands.iter().zip(running) {
        assert_eq!(gateway.json(args).await, json, "{args:?}");
        assert_eq!(gateway.run(args).await.stdout, text, "{args:?}");
    }
    assert_eq!(gateway.run(&["sessions", "export", "webhook:in:c"]).await.stdout, export.stdout);
    let resting = gateway.json(&["status"]).await;
    assert_eq!((&resting["gateway"], &resting["pid"]), (&json!("down"), &Value::Null));
    assert_eq!((&resting["dead_letters"], &resting["today"]), (&json!(1), &status["today"]));
    let mut same = status.clone();
    same["parts"]["channels"] = json!({});
    // Only a running gateway has a page to log in to.
    same["login"] = Value::Null;
    assert_eq!(key_structure(&same), key_structure(&resting));

    // A change made while the gateway is stopped persists.
    gateway.json(&["queue", "retry", &dead_letter]).await;
    gateway.up().await;
    assert_eq!(sink.wait_posts(2).await[1].data("in_reply_to"), id);
    gateway.json(&["sessions", "clear", "webhook:in:c"]).await;
    for format in ["jsonl", "md"] {
        let ran = gateway.run(&["sessions", "export", "webhook:in:c", "--format", format]).await;
        ran.assert_refused("session webhook:in:c has no messages since it began anew");
    }
    assert_eq!(gateway.ask("in", "c", "again").await, "echo: again");
    assert_eq!(model.requests_about("again")[0]["messages"].as_array().unwrap().len(), 2, "system and message");
}

/// A running gateway takes names that are not segments of a path, or those of other paths of the API, as names.
#[tokio::test(flavor = "multi_thread")]
async fn odd_names_have_the_same_answers_with_and_without_a_gateway() {
    let mut gateway = Gateway::new(Setup::new());
    let table: [(&[&str], &str); 13] = [
        (&["sessions", "clear", ""], "there is no session"),
        (&["sessions", "clear", ".."], "there is no session .."),
        (&["sessions", "show", ""], "there is no session "),
        (&["sessions", "show", "."], "there is no session ."),
        (&["turns", "show", ""], "\"\" is not an id"),
        (&["turns", "fork", ".."], "\"..\" is not an id"),
        (&["cron", "show", ""], "there is no job \"\""),
        (&["cron", "remove", "."], "there is no job \".\""),
        (&["cron", "show", "export"], "there is no job \"export\""),
        (&["skills", "show", ".."], "there is no skill \"..\""),
        (&["agents", "show", ""], "Agent '' not found"),
        (&["mcp", "tools", ".."], "there is no MCP server \"..\""),
        (&["mcp", "test", ""], "there is no MCP server \"\""),
    ];
    let mut answers = Vec::new();
    for is_running in [false, true] {
        if is_running {
            gateway.up().await;
        }
        for (number, (args, words)) in table.iter().enumerate() {
            let ran = gateway.run(args).await;
            ran.assert_refused(words);
            match answers.get(number) {
                Some(answer) => assert_eq!(&ran.stderr, answer, "{args:?}"),
                None => answers.push(ran.stderr),
            }
        }
    }
}

/// A missing item gives one line, exit code 1, and nothing on stdout.
#[tokio::test(flavor = "multi_thread")]
async fn asking_for_a_missing_item_fails_with_one_clear_error() {
    let mut gateway = Gateway::new(Setup::new());
    let table: [(&[&str], &str); 11] = [
        (&["sessions", "clear", "cli:nobody"], "there is no session cli:nobody"),
        (&["sessions", "show", "cli:nobody"], "there is no session cli:nobody"),
        (&["sessions", "export", "cli:nobody"], "there is no session cli:nobody"),
        (&["sessions", "search", "--session", "cli:nobody", "tea"], "there is no session cli:nobody"),
        (&["turns", "list", "--session", "cli:nobody"], "there is no session cli:nobody"),
        (&["turns", "show", NOBODY], "there is no turn"),
        (&["turns", "show", "nonsense"], "\"nonsense\" is not an id"),
        (&["queue", "show", NOBODY], "in the queue"),
        (&["queue", "retry", NOBODY], "there is no undelivered message"),
        (&["queue", "drop", NOBODY], "there is no undelivered message"),
        (&["agent", "-m", " "], "the message is empty"),
    ];
    // In a new home, next to a running gateway, and in a used home.
    for state in ["new", "running", "used"] {
        for (args, words) in &table {
            for json in [&[][..], &["--json"]] {
                if args[1] == "export" && !json.is_empty() {
                    continue;
                }
                let ran = gateway.run(&[args, json].concat()).await;
                assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{state} {args:?}: {ran:?}");
                assert!(ran.stderr.contains(words) && ran.stderr.lines().count() == 1, "{state} {args:?}: {ran:?}");
            }
        }
        assert_eq!(gateway.json(&["sessions", "list"]).await, json!([]), "{state}");
        match state {
            "new" => gateway.up().await,
            "running" => gateway.stop().await,
            _ => {}
        }
    }
}

/// Returns how many messages the gateway refused with a status on its control socket.
async fn refused(gateway: &Gateway, status: &str) -> Option<f64> {
    scrape(gateway).await.value("daoyou_http_requests_total", &[("route", "/api/messages"), ("status", status)])
}

/// A message that the gateway never accepts is sent once. A message that it has no room for is sent again after the time that it names.
#[tokio::test(flavor = "multi_thread")]
async fn agent_repeats_a_message_only_if_the_gateway_may_accept_it_later() {
    let (model, gate) = (Model::start().await, Gate::new());
    model.on("first", [Reply::text("the first").held_by(&gate)]);
    let gateway = Gateway::start(Setup::new().model(&model).set("gateway.session_capacity", 1)).await;
    // JSON escapes each quotation mark, so the request is a little larger than its limit.
    let ran = gateway.run_with_input(&["agent", "-m", "-"], &"\"".repeat(1_049_000)).await;
    assert_eq!((ran.code, ran.stderr.lines().count()), (Some(1), 1), "{ran:?}");
    assert_eq!(refused(&gateway, "413").await, Some(1.0), "{ran:?}");

    let first = gateway.run(&["agent", "-m", "first"]);
    let second = async {
        gate.wait_arrived(1).await;
        gateway.run(&["agent", "-m", "second"]).await
    };
    let open = async {
        until("the session to be full", async || refused(&gateway, "429").await).await;
        gate.open();
    };
    let (first, second, ()) = tokio::join!(first, second, open);
    assert_eq!((first.code, first.stdout.as_str()), (Some(0), "the first\n"), "{first:?}");
    assert_eq!((second.code, second.stdout.as_str()), (Some(0), "echo: second\n"), "{second:?}");
    assert!(second.stderr.contains("(sent again after 5 s)"), "{second:?}");
    assert_eq!(refused(&gateway, "429").await, Some(1.0));
}

/// One message gives only its reply on stdout; a failed turn gives exit code 1. Lines from a pipe are consecutive messages.
#[tokio::test(flavor = "multi_thread")]
async fn agent_and_chat_are_answered_with_and_without_a_gateway() {
    let model = Model::start().await;
    model.on("fails", [Reply::status(400)]);
    let mut gateway = Gateway::new(Setup::new().model(&model));
    for is_running in [false, true] {
        if is_running {
            gateway.up().await;
        }
        let ran = gateway.run(&["agent", "-m", "hello"]).await;
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "echo: hello\n", ""));
        let answer = gateway.json(&["agent", "-m", "hi", "--session", "cli:side"]).await;
        assert_eq!(
            (&answer["reply"], &answer["session"], &answer["error"]),
            (&json!("echo: hi"), &json!("cli:side"), &Value::Null)
        );
        let failed = gateway.run(&["agent", "-m", "this fails"]).await;
        assert_eq!((failed.code, failed.stdout.trim().is_empty()), (Some(1), false), "{failed:?}");
        let failed = gateway.run(&["agent", "-m", "this fails", "--json"]).await;
        let failure: Value = serde_json::from_str(&failed.stdout).unwrap();
        assert!(failed.code == Some(1) && failure["error"]["code"].is_string(), "{failed:?}");

        let chat = gateway.run_with_input(&["chat"], "one\n\n/session\ntwo").await;
        assert_eq!((chat.code, chat.stderr.as_str()), (Some(0), ""), "{chat:?}");
        let lines: Vec<&str> = chat.stdout.lines().collect();
        assert_eq!((lines[0], lines.last()), ("echo: one", Some(&"echo: two")), "{chat:?}");
        assert!(chat.stdout.contains("cli:direct"), "{chat:?}");
        let left = gateway.run_with_input(&["chat", "--session", "cli:side"], "three\n/exit\nfour\n").await;
        assert_eq!((left.code, left.stdout.as_str()), (Some(0), "echo: three\n"), "{left:?}");
    }
    assert_eq!(gateway.json(&["queue", "list"]).await, json!([]), "all of it was delivered");
    let journal = gateway.check_settled(&Witness::default()).await;
    assert_eq!((journal.inbox.len(), model.refused()), (16, Vec::new()));
}

/// A line from a pipe that finds no room is sent again; a failed turn gives exit code 1 after the last line.
#[tokio::test(flavor = "multi_thread")]
async fn piped_chat_repeats_a_refused_line_and_fails_with_its_turns() {
    let (model, gate) = (Model::start().await, Gate::new());
    model.on("first", [Reply::text("the first").held_by(&gate)]);
    model.on("fails", [Reply::status(400)]);
    let mut gateway = Gateway::start(Setup::new().model(&model).set("gateway.session_capacity", 1)).await;
    let first = gateway.run(&["agent", "-m", "first"]);
    let second = async {
        gate.wait_arrived(1).await;
        gateway.run_with_input(&["chat"], "second\n").await
    };
    let open = async {
        until("the session to be full", async || refused(&gateway, "429").await).await;
        gate.open();
    };
    let (_, second, ()) = tokio::join!(first, second, open);
    // The terminal also shows the reply of the session's other turn.
    assert_eq!((second.code, second.stdout.lines().last()), (Some(0), Some("echo: second")), "{second:?}");
    assert!(second.stderr.contains("(sent again after 5 s)"), "{second:?}");
    for is_running in [true, false] {
        let failed = gateway.run_with_input(&["chat"], "this fails\nand on\n").await;
        assert_eq!((failed.code, failed.stdout.lines().last()), (Some(1), Some("echo: and on")), "{failed:?}");
        if is_running {
            gateway.stop().await;
        }
    }
}

/// The next gateway answers the message of a killed command once, and does not print the answer again if it may have been printed.
#[tokio::test(flavor = "multi_thread")]
async fn the_message_of_a_killed_command_is_not_lost() {
    let model = Model::start().await;
    let mut gateway = Gateway::new(Setup::new().model(&model));
    for (point, asked) in [("accept_committed", 0), ("turn_started", 0), ("sending_committed", 1)] {
        let before = model.count();
        let setup = gateway.setup().clone();
        *gateway.setup() = setup.env("DAOYOU_CRASH_AT", point);
        let killed = gateway.run(&["agent", "-m", point]).await;
        assert_eq!((killed.code, killed.stdout.as_str()), (None, ""), "{point}: {killed:?}");
        assert_eq!(model.count() - before, asked, "{point}");
        gateway.setup().env.clear();
        gateway.up().await;
        until("the answer", async || {
            let turns = gateway.json(&["turns", "list"]).await;
            (turns[0]["content"] == point && turns[0]["state"] == "done").then_some(())
        })
        .await;
        assert_eq!(model.count() - before, 1, "{point}: it is asked once");
        gateway.stop().await;
    }
    let queue = gateway.json(&["queue", "list"]).await;
    let states: Vec<_> = queue.as_array().unwrap().iter().map(|row| (&row["state"], &row["content"])).collect();
    assert_eq!(states, [(&json!("unknown"), &json!("echo: sending_committed"))], "whether it was printed is unknown");
    gateway.up().await;
    let ready = Gateway::try_send(gateway.client.get(gateway.url("/readyz"))).await.unwrap();
    assert_eq!(ready.body["parts"]["outbound"], 0, "nothing is on its way: {ready:?}");
}

/// A turn that ends while the command's own gateway drains gives its reply. After the time limit, the command does not wait for its turn;
/// the next gateway answers the message.
#[tokio::test(flavor = "multi_thread")]
async fn agent_prints_a_reply_that_comes_while_it_stops() {
    let (model, gate) = (Model::start().await, Gate::new());
    model.on("slow", [Reply::text("at last").held_by(&gate)]);
    model.on("overdue", [Reply::text("late").held_by(&gate)]);
    let mut gateway = Gateway::new(Setup::new().model(&model));
    gateway.write_config();
    let mut command = gateway.command(&["agent", "-m", "slow"]);
    let asking = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    gate.wait_arrived(1).await;
    let pid = Pid::from_raw(i32::try_from(asking.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    until("the drain", async || (gateway.run(&["status", "--ready"]).await.code == Some(1)).then_some(())).await;
    gate.release(1);
    let asked = deadline("the reply", asking.wait_with_output()).await.unwrap();
    assert_eq!((asked.status.code(), asked.stdout.as_slice()), (Some(0), &b"at last\n"[..]), "{asked:?}");

    let limited = gateway.run(&["agent", "-m", "overdue", "--timeout", "3s"]).await;
    assert_eq!((limited.code, limited.stdout.as_str()), (Some(76), ""), "{limited:?}");
    assert!(limited.stderr.contains("no reply within 3s"), "{limited:?}");
    gate.open();
    gateway.up().await;
    let shown = async || gateway.json(&["sessions", "show", "cli:direct"]).await.to_string();
    until("the reply", async || shown().await.contains("\"late\"").then_some(())).await;
    gateway.stop().await;
    gateway.check_settled(&Witness::default()).await;
}

/// A chat with piped lines says that it was stopped before a reply. The reply is kept, and the next line was not taken.
#[tokio::test(flavor = "multi_thread")]
async fn piped_chat_says_that_it_stopped_before_a_reply() {
    let (model, gate) = (Model::start().await, Gate::new());
    model.on("slow", [Reply::text("at last").held_by(&gate)]);
    let gateway = Gateway::new(Setup::new().model(&model));
    gateway.write_config();
    let mut command = gateway.command(&["chat"]);
    let mut chatting = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = chatting.stdin.take().unwrap();
    lines.write_all(b"slow\nnext\n").await.unwrap();
    gate.wait_arrived(1).await;
    let pid = Pid::from_raw(i32::try_from(chatting.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    until("the drain", async || (gateway.run(&["status", "--ready"]).await.code == Some(1)).then_some(())).await;
    gate.release(1);
    let ended = deadline("the end", chatting.wait_with_output()).await.unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(
        (ended.status.code(), ended.stdout.as_slice(), said.lines().count()),
        (Some(1), &b""[..], 1),
        "{ended:?}"
    );
    assert!(said.starts_with("Stopped before the reply came"), "{said}");
    assert_eq!(model.count(), 1, "the next line was not taken");
    let shown = gateway.json(&["sessions", "show", "cli:direct"]).await.to_string();
    assert!(shown.contains("at last"), "{shown}");
}

/// Returns a model whose answers differ from what is typed, and a gate for the one that stalls.
async fn scripted_model() -> (Model, Gate) {
    let (model, gate) = (Model::start().await, Gate::new());
    model.on("greet", [Reply::text("A very good morning to you.").chunk_chars(3)]);
    let command = json!({"command": "echo seen-$((6 * 7))"});
    model.on("work", [Reply::tool("exec", &command), Reply::text("The work is finished.")]);
    model.on(
        "wait",
        [Reply::text("It begins like this and then stands still for long.").chunk_chars(8).stalls_after(4, &gate)],
    );
    (model, gate)
}

/// Asserts that the answer up to the next prompt contains `words` once.
fn answered_once(terminal: &mut Terminal, words: &str) {
    terminal.expect("Bot> ");
    terminal.expect("You> ");
    let screen = terminal.screen();
    assert_eq!(screen.matches(words).count(), 1, "{screen}");
}

/// Holds a conversation at a prompt: answers are streamed once, tools are shown, Ctrl-C stops.
fn check_conversation(terminal: &mut Terminal) {
    terminal.expect("/help lists the commands");
    terminal.expect("You> ");
    terminal.line("greet me");
    answered_once(terminal, "good morning");
    terminal.line("do some work");
    // The text before the name is not ASCII, and the screen is read as ASCII.
    terminal.expect(" exec(command=");
    terminal.expect("seen-42");
    answered_once(terminal, "The work is finished.");
    terminal.line("wait for it");
    terminal.expect("It begins");
    terminal.control('c');
    terminal.expect("stopping");
    terminal.expect("You> ");
    terminal.line("/tools");
    terminal.expect("read_file");
    terminal.expect("You> ");
}

/// Ctrl-D shuts the gateway down in order.
#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_chats_in_its_own_terminal() {
    if bubblewrap_is_missing() {
        return;
    }
    let (model, _gate) = scripted_model().await;
    let gateway = Gateway::new(Setup::new().model(&model).env("NO_COLOR", "1"));
    gateway.write_config();
    block_in_place(|| {
        let mut terminal = Terminal::start(&gateway, &["gateway"]);
        check_conversation(&mut terminal);
        terminal.control('d');
        assert_eq!(terminal.wait_exit(), Some(0));
    });
    let journal = gateway.check_settled(&Witness::default()).await;
    // The four typed messages, and the /stop.
    assert_eq!((journal.inbox.len(), model.refused()), (5, Vec::new()));
    assert!(gateway.home().join("daoyou.log").exists(), "the log does not go to the screen");
    assert!(!gateway.home().join("daoyou.sock").exists());
}

/// `daoyou chat` next to a running gateway shares its conversation. A second screen on the same chat sees the answers.
/// Ctrl-D leaves, and the gateway stays.
#[tokio::test(flavor = "multi_thread")]
async fn chat_attaches_to_a_running_gateway() {
    if bubblewrap_is_missing() {
        return;
    }
    let (model, _gate) = scripted_model().await;
    let gateway = Gateway::start(Setup::new().model(&model).env("NO_COLOR", "1")).await;
    block_in_place(|| {
        let mut first = Terminal::start(&gateway, &["chat"]);
        check_conversation(&mut first);
        let mut second = Terminal::start(&gateway, &["chat"]);
        second.expect("You> ");
        first.line("greet us both");
        first.expect("good morning");
        first.expect("You> ");
        second.expect("good morning");
        second.line("/exit");
        assert_eq!(second.wait_exit(), Some(0));
        first.control('d');
        assert_eq!(first.wait_exit(), Some(0));
    });
    assert_eq!(gateway.json(&["status"]).await["gateway"], "up");
    gateway.check_settled(&Witness::default()).await;
}

/// A reply that arrives without a terminal waits for one, across a restart, and is shown once.
#[tokio::test(flavor = "multi_thread")]
async fn a_reply_is_kept_until_a_terminal_attaches() {
    let model = Model::start().await;
    let gate = Gate::new();
    model.on("slowly", [Reply::text("Here I am at last.").held_by(&gate)]);
    let mut gateway = Gateway::start(Setup::new().model(&model).env("NO_COLOR", "1")).await;
    let mut terminal = block_in_place(|| Terminal::start(&gateway, &["chat"]));
    block_in_place(|| {
        terminal.expect("You> ");
        terminal.line("come slowly");
    });
    gate.wait_arrived(1).await;
    gateway.kill9().await;
    block_in_place(|| {
        terminal.expect("the gateway has stopped");
        terminal.sigterm();
        assert_eq!(terminal.wait_exit(), Some(1));
    });
    gate.open();
    gateway.up().await;
    until("the reply to wait", async || {
        let queue = gateway.json(&["queue", "list"]).await;
        (queue[0]["state"] == "pending" && queue[0]["content"] == "Here I am at last.").then_some(())
    })
    .await;
    // An orderly stop: a gateway that is killed while it shows a reply may have shown it, and does not show it again.
    gateway.stop().await;
    gateway.up().await;
    block_in_place(|| {
        let mut terminal = Terminal::start(&gateway, &["chat"]);
        terminal.expect("Here I am at last.");
        terminal.line("hello");
        let between = terminal.expect("echo: hello");
        assert!(!between.contains("at last"), "{between:?}");
        terminal.expect("You> ");
        terminal.control('d');
        terminal.wait_exit();
    });
    wait_settled(&gateway.database()).await;
}

/// A conversation without a gateway serves the other commands of its home and is not disturbed by them.
#[tokio::test(flavor = "multi_thread")]
async fn a_standalone_chat_serves_other_commands() {
    let model = Model::start().await;
    let setup = Setup::scripted(&model).env("NO_COLOR", "1");
    let mut gateway = Gateway::start(setup).await;
    let gate = Gate::new();
    model.on("later", [Reply::text("later, then").held_by(&gate)]);
    let id = gateway.accept("in", &Message::new("later").chat("c")).await;
    gate.wait_arrived(1).await;
    gateway.kill9().await;
    let mut terminal = block_in_place(|| Terminal::chat(&gateway));
    let beside = gateway.run(&["agent", "-m", "hello", "--session", "cli:side"]).await;
    assert_eq!((beside.code, beside.stdout.as_str()), (Some(0), "echo: hello\n"), "{beside:?}");
    let piped = gateway.run_with_input(&["chat", "--session", "cli:third"], "one\ntwo\n").await;
    assert_eq!((piped.code, piped.stdout.as_str()), (Some(0), "echo: one\necho: two\n"), "{piped:?}");
    let turns = gateway.json(&["turns", "list"]).await;
    let left = turns.as_array().unwrap().iter().find(|turn| turn["id"] == id.as_str()).unwrap();
    assert_eq!(left["state"], "running", "what the gateway left is the next gateway's");
    block_in_place(|| {
        terminal.line("still here?");
        terminal.expect("echo: still here?");
        terminal.expect("You> ");
        terminal.control('d');
        assert_eq!(terminal.wait_exit(), Some(0));
    });
    gate.open();
    gateway.up().await;
    assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "later, then");
    gateway.check_settled(&Witness { accepted: &[id], ..Witness::default() }).await;
}

/// `agent.locale = "auto"` follows the environment: texts for people are Chinese, and data for programs stays the same.
#[tokio::test(flavor = "multi_thread")]
async fn commands_print_chinese_in_a_chinese_locale() {
    let mut gateway = Gateway::start(Setup::new().env("LANG", "zh_CN.UTF-8")).await;
    let status = gateway.run(&["status"]).await.stdout;
    for words in
        ["网关      已运行", "模型      ", "数据库    ", "队列      待处理 0", "今天      0 个回合，输入 0 个 token"]
    {
        assert!(status.contains(words), "{words}: {status}");
    }
    assert!(gateway.run(&["agent", "-m", "/help"]).await.stdout.contains("显示此帮助"));
    assert_eq!(gateway.json(&["status"]).await["gateway"], "up");
    gateway.stop().await;
    assert!(gateway.run(&["status"]).await.stdout.contains("网关      未运行"));
    let doctor = gateway.run(&["doctor"]).await.stdout;
    for words in ["正常  ", "数据库大小", "仅自己可访问", "设置均正确", "共检查 "] {
        assert!(doctor.contains(words), "{words}: {doctor}");
    }
    assert_eq!(gateway.run(&["config", "check"]).await.stdout, "配置正确\n");
    let wrong = gateway.command(&["config", "check"]).env("DAOYOU_AGENT__MODLE", "x").output().await.unwrap();
    let errors = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(wrong.status.code() == Some(78) && errors.contains("未知的键；最接近的键是 agent.model"), "{errors}");
    let english = Gateway::new(Setup::new().env("LANG", "zh_CN.UTF-8").set("agent.locale", "en"));
    assert!(english.run(&["status"]).await.stdout.contains("gateway   down"));
}

/// Headings, keys and sentences of the commands are Chinese; states, names and the keys of JSON are not.
#[tokio::test(flavor = "multi_thread")]
async fn lists_and_details_are_chinese_in_a_chinese_locale() {
    let mut gateway = Gateway::start(Setup::new().set("agent.locale", "zh").set("skills.built_in", true)).await;
    let asked = gateway.json(&["agent", "-m", "现在几点？"]).await;
    let id = asked["id"].as_str().unwrap().to_owned();
    let gone = gateway.json(&["cron", "add", "--every", "1h", "--prompt", "x"]).await["id"].to_string();
    let job = gone.trim_matches('"');
    let file = gateway.home().with_extension("backup");
    let file = file.to_str().unwrap();
    let expected: &[(&[&str], &[&str])] = &[
        (&["approvals", "list"], &["没有等待你批准的操作"]),
        (&["turns", "list"], &["回合 ", "  状态  ", "收到时间", "token 数", "done"]),
        (
            &["turns", "show", &id],
            &["消息 ", "步的哈希链完好", "用量 offline/offline：输入 ", "会话可以回到这个回合：daoyou turns restore "],
        ),
        (&["turns", "show", &id], &["context       模型 offline", " 发往 cli ", "[输入 "]),
        (&["turns", "restore", &id], &["会话：cli:direct", "已恢复：是", "回合："]),
        (&["queue", "list"], &["没有卡住的消息，也没有未完成的投递"]),
        (&["queue", "show", &id], &["类型：inbound", "状态：done", "收到时间：", "内容：现在几点？"]),
        (&["queue", "retry", "--all"], &["投递：0", "等待中：0"]),
        (&["agents", "list"], &["智能体 ", "用途", "explorer", "来源"]),
        (&["agents", "show", "explorer"], &["名称：explorer", "编排方式：", "说明："]),
        (&["skills", "list"], &["技能 ", "可用", "  是  ", "built-in"]),
        (&["channels", "list"], &["渠道 ", "允许的发送者", "running"]),
        (&["tools", "list"], &["工具 ", "提供给模型", "中断后可重跑"]),
        (&["models"], &["，即 offline", "常用模型", "需要 OPENAI_API_KEY", "* 是 agent.model 选用的服务"]),
        (&["prompt"], &["部分 ", "字节数", "整个请求的字节数"]),
        (&["service", "status", "--user"], &["管理者：user", "单元文件：", "已安装："]),
        (&["cron", "run", job], &["已开始："]),
        (&["tokens", "list"], &["没有令牌"]),
        (&["backup", file], &["至今已接收的消息数："]),
    ];
    let mut missing = Vec::new();
    for (arguments, words) in expected {
        let ran = gateway.run(arguments).await;
        let lacks = words.iter().filter(|word| !ran.stdout.contains(**word));
        missing.extend(lacks.map(|word| format!("{arguments:?}: {word} is not in {} {}", ran.stdout, ran.stderr)));
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    let id_error = "不是编号；编号形如";
    for (arguments, code, words) in [
        (&["agent", "-m", " "][..], 1, "消息是空的"),
        (&["turns", "show", "?"], 1, id_error),
        (&["restore", file], 75, "另一个网关（进程 "),
        (&["init"], 2, "daoyou：init 需要在终端中提问"),
    ] {
        let ran = gateway.run(arguments).await;
        assert!(ran.code == Some(code) && ran.stderr.contains(words), "{arguments:?}: {:?} {}", ran.code, ran.stderr);
    }
    assert_eq!(gateway.json(&["queue", "show", &id]).await["state"], "done");
    gateway.stop().await;
    let restored = gateway.run(&["restore", file]).await.stdout;
    assert!(restored.contains(" 个文件，恢复到 ") && restored.contains("原有内容移到了 "), "{restored}");
}
