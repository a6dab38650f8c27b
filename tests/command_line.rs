//! Commands in unusual situations: something is missing, broken or already present.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;

use rustix::fs::{CWD, FileType, OFlags, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::support::gateway::Message;
use crate::support::invariants::wait_settled;
use crate::support::pty::Terminal;
use crate::support::sink::Answer;
use crate::support::{Gateway, Hook, Model, Reply, Setup, Sink, deadline, until, write_file};

/// An empty model is refused, and not ignored.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_model_is_refused() {
    let gateway = Gateway::new(Setup::new());
    let job = ["cron", "add", "--prompt", "x", "--every", "1h", "--model", ""];
    for args in [&["agent", "-m", "x", "--model", ""][..], &["chat", "--model", ""], &job] {
        let ran = gateway.run(args).await;
        assert!(ran.code == Some(2) && ran.stderr.contains("the model is empty"), "{args:?}: {ran:?}");
    }
}

/// `agent -m -` reads the message from standard input, whether or not a gateway runs.
#[tokio::test(flavor = "multi_thread")]
async fn agent_reads_a_message_from_standard_input() {
    let mut gateway = Gateway::new(Setup::new().hook(Hook::bearer("in")));
    for is_running in [false, true] {
        if is_running {
            gateway.up().await;
        }
        let ran = gateway.run_with_input(&["agent", "-m", "-"], "remember that the door code\nis 4711\n").await;
        assert!(ran.code == Some(0) && ran.stdout.contains("4711"), "{ran:?}");
        let ran = gateway.run_with_input(&["agent", "-m", "-"], "\n \n").await;
        assert!(ran.code == Some(1) && ran.stderr.contains("the message is empty"), "{ran:?}");
    }
    let session = gateway.json(&["sessions", "show", "cli:direct"]).await;
    let text: Vec<&str> =
        session["messages"].as_array().unwrap().iter().filter_map(|row| row["message"]["content"].as_str()).collect();
    assert!(text[0].starts_with("remember that the door code\nis 4711\n\n[Runtime Context]"), "{text:?}");
}

/// An export in either form is imported unchanged without further options, and never twice.
#[tokio::test(flavor = "multi_thread")]
async fn an_exported_conversation_is_imported_without_options() {
    let model = Model::start().await;
    let tricky = "--> <!-- What `daoyou sessions import` reads, a message a line:\n{}\n--> --- ## user, 2026-01-01T10:00:00Z \u{9b}\u{202e}";
    model.on("what is there?", [Reply::tool("list_dir", &json!({"path": "scratch"})), Reply::text(tricky)]);
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    // The name of a file of others taints the conversation.
    write_file(gateway.workspace().join("scratch/x.txt"), "x\n");
    gateway.post("in", "?wait=30", &Message::new("what is there?").chat("c").sender("ann")).await;
    let key = "webhook:in:c";
    let session = gateway.json(&["sessions", "show", key]).await;
    assert_eq!((&session["owner"], &session["shared"]), (&json!("webhook:in:ann"), &json!(false)), "{session}");
    assert_eq!(session["tainted"], true, "{session}");
    for (format, is_running) in [("jsonl", false), ("md", true)] {
        let file = gateway.run(&["sessions", "export", key, "--format", format]).await.stdout;
        let ran = gateway.run_with_input(&["sessions", "import", "-"], &file).await;
        assert!(ran.code == Some(1) && ran.stderr.contains("already exists"), "{format}: {ran:?}");

        let mut other = Gateway::new(Setup::new());
        if is_running {
            other.up().await;
        }
        let ran = other.run_with_input(&["sessions", "import", "-"], &file).await;
        assert_eq!((ran.code, ran.stdout.trim()), (Some(0), "webhook:in:c: 4 messages, of webhook:in:ann"), "{ran:?}");
        let there = other.json(&["sessions", "show", key]).await;
        for part in ["session", "owner", "shared", "tainted", "messages"] {
            assert_eq!(there[part], session[part], "{format} {part}");
        }
        assert_eq!(other.run(&["sessions", "export", key, "--format", format]).await.stdout, file, "{format}");
        let lines = format!("{file}{file}");
        let ran = other.run_with_input(&["sessions", "import", "-", "--session", "cli:new", "--json"], &lines).await;
        let taken: Value = serde_json::from_str(&ran.stdout).unwrap();
        let twice = if format == "jsonl" { 8 } else { 4 };
        assert_eq!(taken, json!({"session": "cli:new", "owner": "owner", "messages": twice}), "{ran:?}");
        let others = file.lines().last().map_or(String::new(), |line| line.replace(key, "webhook:in:d"));
        let ran = other.run_with_input(&["sessions", "import", "-"], &format!("{file}{others}\n")).await;
        assert!(format == "md" || ran.stderr.contains("line 5: it is of another conversation"), "{ran:?}");
    }
}

/// By default each open terminal shows owner notices, whatever it displays. With no open terminal, notices do not wait.
#[tokio::test(flavor = "multi_thread")]
async fn owner_notices_appear_on_every_open_terminal() {
    let sink = Sink::signed().await;
    sink.always(Some(Answer::Status(503, None)));
    let down = |name: &str| Hook::bearer(name).callback(&sink).set("retry", vec!["50ms"]);
    let setup = Setup::new().hook(down("one")).hook(down("two")).env("NO_COLOR", "1");
    let gateway = Gateway::start(setup).await;
    gateway.accept("one", &Message::new("/help").chat("c")).await;
    wait_settled(&gateway.database()).await;
    let queue = gateway.json(&["queue", "list"]).await;
    assert!(queue.as_array().unwrap().len() == 1 && queue[0]["channel"] == "webhook:one", "{queue}");
    let mut terminals = block_in_place(|| {
        [&["chat"][..], &["chat", "--session", "cli:side"]].map(|args| {
            let mut terminal = Terminal::start(&gateway, args);
            terminal.expect("You> ");
            terminal
        })
    });
    gateway.accept("two", &Message::new("/help").chat("c")).await;
    block_in_place(|| {
        for terminal in &mut terminals {
            terminal.expect("webhook:two");
            terminal.expect("You> ");
            terminal.line("/exit");
            assert_eq!(terminal.wait_exit(), Some(0));
        }
    });
    wait_settled(&gateway.database()).await;
}

/// `agent --model` applies only to this message, with and without a running gateway.
#[tokio::test(flavor = "multi_thread")]
async fn agent_asks_the_model_of_its_option() {
    let model = Model::start().await;
    let mut gateway = Gateway::new(Setup::scripted(&model));
    for is_running in [false, true] {
        if is_running {
            gateway.up().await;
        }
        let answer = gateway.json(&["agent", "-m", "hello", "--model", "scripted/other"]).await;
        let used = (&answer["reply"], answer["tokens"]["input"].as_u64() > Some(0), &answer["error"]);
        assert_eq!(used, (&json!("echo: hello"), true, &Value::Null), "{answer}");
        assert_eq!(gateway.run(&["agent", "-m", "hello"]).await.code, Some(0));
        let asked: Vec<Value> = model.requests().into_iter().map(|request| request["model"].clone()).collect();
        assert_eq!(asked[asked.len() - 2..], ["other", "scripted"]);
        let ran = gateway.run(&["agent", "-m", "hello", "--model", "nobody/x"]).await;
        assert!(ran.code == Some(1) && format!("{ran:?}").contains("unknown provider"), "{ran:?}");
    }
}

/// `logs` finds the log of a running gateway at its standard error, the log of the last gateway in the home, and follows it.
#[tokio::test(flavor = "multi_thread")]
async fn logs_finds_and_follows_the_log() {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let mut gateway = Gateway::new(Setup::new());
    let ran = gateway.run(&["logs"]).await;
    assert!(ran.code == Some(1) && ran.stderr.contains("no gateway runs, and none has left a log"), "{ran:?}");

    let ran = gateway.run(&["status", "--ready"]).await;
    assert!(ran.code == Some(1) && !ran.stderr.is_empty(), "{ran:?}");
    gateway.up().await;
    let ran = gateway.run(&["status", "--ready"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{ran:?}");
    let ran = gateway.run(&["logs"]).await;
    assert!(ran.code == Some(0) && ran.stdout.contains("ready listen="), "{ran:?}");
    assert_eq!(gateway.run(&["logs", "--lines", "1"]).await.stdout.lines().count(), 1);
    let ran = gateway.run(&["logs", "--json"]).await;
    let lines: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let is_ready = |line: &&Value| line["message"].as_str().is_some_and(|text| text.starts_with("ready listen="));
    let ready = lines.iter().find(is_ready).unwrap();
    assert!(ready["level"] == "INFO" && ready["target"].is_string() && ready["time"].is_string(), "{ready}");
    let errors = gateway.run(&["logs", "--level", "error"]).await;
    assert_eq!((errors.code, errors.stdout.as_str()), (Some(0), ""), "{errors:?}");

    let mut command = gateway.command(&["logs", "-f", "-n", "1"]);
    let mut follower = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut next = async || deadline("a line of the log", lines.next_line()).await.unwrap().unwrap();
    next().await;
    gateway.sighup();
    while !next().await.contains("configuration") {}
    follower.kill().await.unwrap();
    gateway.stop().await;

    // A gateway that chats on its terminal leaves its log in the home.
    std::fs::write(gateway.home().join("daoyou.log"), "2026-01-01T00:00:00Z  WARN daoyou: a\u{1b}[2J\nhalf").unwrap();
    let ran = gateway.run(&["logs"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "2026-01-01T00:00:00Z  WARN daoyou: a\n"), "{ran:?}");
}

/// The path of a socket has 107 bytes at most; that of a home may be longer.
#[tokio::test(flavor = "multi_thread")]
async fn a_home_with_a_long_path_works() {
    let gateway = Gateway::new(Setup::new());
    gateway.write_config();
    let long = gateway.home().join("x".repeat(120));
    std::fs::create_dir(&long).unwrap();
    std::fs::copy(gateway.home().join("config.toml"), long.join("config.toml")).unwrap();
    let home = long.to_str().unwrap();
    let ask = async || {
        let ran = gateway.run(&["--home", home, "agent", "-m", "hello"]).await;
        assert!(ran.code == Some(0) && ran.stderr.is_empty(), "{ran:?}");
    };
    ask().await;
    let mut running = gateway.command(&["--home", home, "gateway", "--no-cli"]).spawn().unwrap();
    until("the gateway in the long home", async || {
        let ready = gateway.run(&["--home", home, "status", "--ready"]).await;
        (ready.code == Some(0)).then_some(())
    })
    .await;
    let ran = gateway.run(&["--home", home, "status", "--json"]).await;
    assert!(ran.stdout.contains(&format!("\"pid\": {}", running.id().unwrap())), "{ran:?}");
    ask().await;
    let ran = gateway.run(&["--home", home, "sessions", "export", "cli:direct"]).await;
    assert_eq!(ran.stdout.lines().count(), 4, "{ran:?}");
    running.kill().await.unwrap();
}

/// Starts a gateway that reads its configuration from a pipe, and returns the pipe's other end when the gateway waits for it. Later
/// reads find the file that was written.
async fn launch_at_pipe(gateway: &mut Gateway) -> (File, String) {
    gateway.write_config();
    let (pipe, config) = (gateway.home().join("pipe.toml"), gateway.home().join("config.toml"));
    fs::remove_file(&pipe).ok();
    mknodat(CWD, &pipe, FileType::Fifo, 0o600.into(), 0).unwrap();
    gateway.setup().args = vec!["--config".to_owned(), pipe.display().to_string()];
    gateway.launch();
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let writer = until("the gateway to open its configuration", async || {
        File::options().write(true).custom_flags(flags).open(&pipe).ok()
    })
    .await;
    fs::copy(&config, pipe.with_extension("copy")).unwrap();
    fs::rename(pipe.with_extension("copy"), &pipe).unwrap();
    (writer, fs::read_to_string(config).unwrap())
}

/// Signals that arrive before the gateway has read its configuration are handled like later ones.
#[tokio::test(flavor = "multi_thread")]
async fn signals_during_the_start_do_not_kill_the_gateway() {
    let mut gateway = Gateway::new(Setup::new());
    let signal = |gateway: &Gateway, signal| {
        kill_process(Pid::from_raw(i32::try_from(gateway.pid()).unwrap()).unwrap(), signal).unwrap();
    };
    let (mut writer, text) = launch_at_pipe(&mut gateway).await;
    for harmless in [Signal::HUP, Signal::USR1, Signal::USR2] {
        signal(&gateway, harmless);
    }
    writer.write_all(text.as_bytes()).unwrap();
    drop(writer);
    gateway.wait_ready().await;
    gateway.stop().await;
    for stopping in [Signal::TERM, Signal::INT] {
        let (mut writer, text) = launch_at_pipe(&mut gateway).await;
        signal(&gateway, stopping);
        writer.write_all(text.as_bytes()).unwrap();
        drop(writer);
        let status = gateway.wait_exit().await;
        assert_eq!(status.code(), Some(0), "{stopping:?}: {status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn help_has_help_of_its_own() {
    let gateway = Gateway::new(Setup::new());
    for (args, expected) in [
        (&["help", "--help"][..], "Usage: daoyou"),
        (&["help", "status", "--help"], "Usage: daoyou status"),
        (&["help", "queue", "retry", "-h"], "Usage: daoyou queue retry"),
        (&["queue", "help", "retry", "--help"], "Usage: daoyou queue retry"),
    ] {
        let ran = gateway.run(args).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{args:?}");
        assert!(ran.stdout.contains(expected), "{args:?}: {}", ran.stdout);
    }
    assert_eq!(gateway.run(&["hlep", "--help"]).await.code, Some(2));
}

/// A conversation that cannot print its replies fails with one line; a reader that closes the pipe is not an error.
#[tokio::test(flavor = "multi_thread")]
async fn a_chat_whose_output_cannot_be_written_fails() {
    let mut gateway = Gateway::new(Setup::new());
    for is_running in [false, true] {
        if is_running {
            gateway.up().await;
        }
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        for (output, code, errors) in
            [(Stdio::from(full), 1, "daoyou: No space left on device (os error 28)\n"), (Stdio::from(closed), 0, "")]
        {
            let (lines, mut input) = std::io::pipe().unwrap();
            input.write_all(b"what time is it?\nwhat time is it?\n").unwrap();
            drop(input);
            let mut command = gateway.command(&["chat"]);
            let ran = command.stdin(lines).stdout(output).stderr(Stdio::piped()).spawn().unwrap();
            let ran = deadline("daoyou chat", ran.wait_with_output()).await.unwrap();
            let shown = String::from_utf8(ran.stderr).unwrap();
            // A reply that the first chat could not print may be shown by the second.
            let own: String = shown.split_inclusive('\n').filter(|line| !line.starts_with("It is ")).collect();
            assert_eq!((ran.status.code(), own.as_str()), (Some(code), errors), "{is_running}");
        }
    }
    let agent = ["agent", "-m", "hello", "--json"];
    for args in [&["--help"][..], &agent[..3], &agent, &["prompt", "--json"], &["sessions", "list"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        for (output, code) in [(Stdio::from(full), 1), (Stdio::from(closed), 0)] {
            let ran = gateway.command(args).stdout(output).stderr(Stdio::piped()).spawn().unwrap();
            let ran = deadline("daoyou", ran.wait_with_output()).await.unwrap();
            let shown = String::from_utf8(ran.stderr).unwrap();
            let lines = usize::from(code == 1);
            assert_eq!((ran.status.code(), shown.lines().count()), (Some(code), lines), "{args:?}: {shown}");
        }
    }
}
