//! The prompt in a real terminal: keys, paste, completion, the display of a running turn, and incoming messages.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::support::invariants::{Witness, check, wait_settled};
use crate::support::model::user_messages;
use crate::support::pty::Terminal;
use crate::support::{Gate, Gateway, Model, Reply, Setup};

const CTRL_P: &str = "\x10";
const LEFT: &str = "\x1b[D";
const CTRL_A: &str = "\x01";
const PASTE: (&str, &str) = ("\x1b[200~", "\x1b[201~");

/// Returns the last user message of each request.
fn messages_sent(model: &Model) -> Vec<String> {
    let last = |request: &Value| user_messages(request).pop().unwrap_or_default().to_owned();
    model.requests().iter().map(last).collect()
}

/// Starts a home with a model, for `daoyou chat`.
async fn chat(setup: Setup) -> (Gateway, Model) {
    let model = Model::start().await;
    let gateway = Gateway::new(setup.model(&model));
    gateway.write_config();
    (gateway, model)
}

/// Returns the final rows on the screen, since the last row is redrawn while it grows.
fn screen_rows(drawn: &str) -> Vec<String> {
    let last = |row: &str| row.rsplit("\x1b[J").next().unwrap_or_default().trim_end_matches('\r').to_owned();
    drawn.split("\r\n").map(|row| last(row).rsplit('\r').next().unwrap_or_default().to_owned()).collect()
}

/// Returns a row without its colours.
fn without_colours(row: &str) -> String {
    let mut pieces = row.split("\x1b[");
    let first = pieces.next().unwrap_or_default().to_owned();
    first + &pieces.filter_map(|piece| piece.split_once('m')).map(|(_, text)| text).collect::<String>()
}

fn exit_chat(terminal: &mut Terminal) {
    terminal.control('d');
    assert_eq!(terminal.wait_exit(), Some(0));
}

/// Lines are edited with the usual keys and kept for the next program in a file that only the owner can read. A message of
/// several lines is one message, however it is typed.
#[tokio::test(flavor = "multi_thread")]
async fn lines_are_edited_joined_and_kept_in_the_history() {
    let (gateway, model) = chat(Setup::new()).await;
    block_in_place(|| {
        let mut terminal = Terminal::chat(&gateway);
        terminal.keys(&format!("hallo{LEFT}{LEFT}{LEFT}\x7fe{CTRL_A}oh, \r"));
        terminal.expect("echo: oh, hello");
        terminal.expect("You> ");
        terminal.keys("one \\\r");
        terminal.keys("two\r");
        terminal.expect("two");
        terminal.expect("You> ");
        terminal.keys("```\rlet x;\r```\r");
        terminal.expect("echo");
        terminal.expect("You> ");
        terminal.keys(&format!("{}first\nsecond{}\r", PASTE.0, PASTE.1));
        terminal.expect("echo: first");
        terminal.expect("You> ");
        terminal.keys(" a secret behind a space\r");
        terminal.expect("echo: a secret");
        terminal.expect("You> ");
        exit_chat(&mut terminal);
        let mut terminal = Terminal::chat(&gateway);
        terminal.keys(&format!("{CTRL_P}{CTRL_P}{CTRL_P}{CTRL_P}\r"));
        terminal.expect("echo: oh, hello");
        terminal.expect("You> ");
        exit_chat(&mut terminal);
    });
    let lines = ["oh, hello", "one \ntwo", "```\nlet x;\n```", "first\nsecond", "a secret behind a space", "oh, hello"];
    assert_eq!(messages_sent(&model), lines);
    let history = gateway.home().join("history");
    assert_eq!(fs::metadata(&history).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!fs::read_to_string(&history).unwrap().contains("secret"));
}

/// Tab completes commands, sessions, models and files. A hint appears after the input.
#[tokio::test(flavor = "multi_thread")]
async fn tab_completes_commands_sessions_models_and_files() {
    let (gateway, _model) = chat(Setup::new()).await;
    fs::write(gateway.home().parent().unwrap().join("my notes.txt"), "remember the milk").unwrap();
    assert_eq!(gateway.run(&["agent", "-m", "hi", "--session", "cli:work"]).await.code, Some(0));
    block_in_place(|| {
        let mut terminal = Terminal::chat(&gateway);
        terminal.keys("/he");
        terminal.expect("\x1b[2mlp\x1b[0m");
        terminal.keys("\t\r");
        terminal.expect("daoyou commands");
        terminal.expect("in the terminal also");
        terminal.expect("You> ");
        terminal.keys("/session cli:w\t\r");
        terminal.expect("Switched to cli:work.");
        terminal.expect("You> ");
        terminal.keys("/model o\t\r");
        terminal.expect("This session now uses offline");
        terminal.expect("You> ");
        terminal.keys("/add my\t\r");
        terminal.expect("Added my notes.txt (17 B)");
        terminal.expect("You> ");
        terminal.keys("/drop m\t\r");
        terminal.expect("Removed my notes.txt.");
        terminal.expect("You> ");
        exit_chat(&mut terminal);
    });
}

/// A turn shows dim reasoning, a tool call in one yellow row with its folded result, Markdown rendered while it streams,
/// and the usage below. Nothing appears twice, and nothing controls the terminal.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_rendered_in_colour() {
    let setup = Setup::new().set("providers.scripted.price.input", 2.0).set("providers.scripted.price.output", 8.0);
    let (gateway, model) = chat(setup).await;
    let answer = "## Result\nIt is **forty-two**, see `sum`.\n\n- one\n- two\n\n```sh\necho done\n```\n";
    let command = json!({"command": "seq 1 6"});
    model.on(
        "work",
        [Reply::tool("exec", &command).reasoning("Let me count."), Reply::text(answer).chunk_chars(4).usage(1_200, 34)],
    );
    model.on("evil", [Reply::text("x\x1b[2J\x1b]0;owned\x07y &#27;[31mz").chunk_chars(2)]);
    block_in_place(|| {
        let mut terminal = Terminal::chat(&gateway);
        terminal.line("work");
        terminal.expect("\x1b[2mthought for ");
        terminal.expect("\x1b[33mexec(command=\"seq 1 6\")\x1b[0m");
        terminal.expect("\x1b[2m  └ 1\x1b[0m");
        terminal.expect("… 3 more lines");
        terminal.expect("Bot> ");
        let rows = screen_rows(&terminal.expect("tokens in"));
        terminal.expect(" out · 0.00");
        let plain: Vec<_> = rows.iter().map(|row| without_colours(row)).collect();
        let expected =
            ["Bot> Result", "", "It is forty-two, see sum.", "", "• one", "• two", "", "  sh", "  echo done"];
        assert_eq!(plain[..expected.len()], expected);
        for face in ["\x1b[1mforty-two\x1b[0m", "\x1b[36msum\x1b[0m", "\x1b[33m• \x1b[0m"] {
            assert!(rows.iter().any(|row| row.contains(face)), "{face:?} in {rows:?}");
        }
        terminal.expect("You> ");
        terminal.line("evil");
        let drawn = terminal.expect("out");
        assert!(!drawn.contains("\x1b[2J") && !drawn.contains("\x1b]0") && !drawn.contains("\x1b[31m"), "{drawn:?}");
        terminal.expect("You> ");
        exit_chat(&mut terminal);
    });
    gateway.check_settled(&Witness::default()).await;
}

/// NO_COLOR removes colours; a dumb terminal and a pipe get no escape sequence at all.
#[tokio::test(flavor = "multi_thread")]
async fn no_color_dumb_terminals_and_pipes_get_plain_text() {
    for (name, value, forbidden) in [("NO_COLOR", "1", "m"), ("TERM", "dumb", "")] {
        let (gateway, model) = chat(Setup::new().env(name, value)).await;
        model.on("work", [Reply::tool("exec", &json!({"command": "echo hi"})), Reply::text("It is **done**.\n")]);
        block_in_place(|| {
            let mut terminal = Terminal::start(&gateway, &["chat"]);
            let mut drawn = terminal.expect("You> ");
            terminal.line("work");
            drawn += &terminal.expect("It is **done**.");
            drawn += &terminal.expect("You> ");
            terminal.line("/exit");
            assert_eq!(terminal.wait_exit(), Some(0));
            let sequences = drawn.split('\x1b').skip(1);
            let bad: Vec<_> = sequences
                .filter(|rest| {
                    let end = rest.chars().find(char::is_ascii_alphabetic).map(String::from).unwrap_or_default();
                    forbidden.is_empty() || end == forbidden
                })
                .collect();
            assert!(bad.is_empty(), "{name}: {bad:?} in {drawn:?}");
        });
    }
    let (gateway, model) = chat(Setup::new()).await;
    model.on("evil", [Reply::text("# x\n\x1b[2J**y**")]);
    let piped = gateway.run_with_input(&["chat"], "evil\n/clear\n").await;
    assert_eq!((piped.code, piped.stdout.as_str()), (Some(0), "# x\n**y**\n"), "{piped:?}");
}

/// A message that arrives while the user types a line appears above the line, which stays.
#[tokio::test(flavor = "multi_thread")]
async fn an_incoming_message_keeps_the_typed_line() {
    let model = Model::start().await;
    let gateway = Gateway::new(Setup::new().model(&model));
    gateway.write_config();
    let mut terminal = block_in_place(|| {
        let mut terminal = Terminal::start(&gateway, &["gateway"]);
        terminal.expect("You> ");
        terminal.keys("half of 一半");
        terminal.expect("一半");
        terminal
    });
    for n in 0..5 {
        assert_eq!(gateway.run(&["agent", "-m", &format!("from afar {n}")]).await.code, Some(0));
    }
    block_in_place(|| {
        for n in 0..5 {
            terminal.expect(&format!("echo: from afar {n}"));
            terminal.expect("You> ");
            terminal.expect("half of 一半");
        }
        terminal.keys(" a line\r");
        terminal.expect("echo: half of 一半 a line");
        terminal.expect("You> ");
        exit_chat(&mut terminal);
    });
    assert_eq!(messages_sent(&model).last().map(String::as_str), Some("half of 一半 a line"));
}

/// The screen is resized while an answer streams and a tool runs. Nothing appears twice, nothing is lost, and a line of
/// code is copied as one line however the terminal wraps it.
#[tokio::test(flavor = "multi_thread")]
async fn resizing_while_an_answer_streams_duplicates_nothing() {
    let (gateway, model) = chat(Setup::new().env("NO_COLOR", "1")).await;
    let words: Vec<String> = (0..60).map(|n| format!("word{n:02}")).collect();
    let code = format!("let total = {};", (0..30).map(|n| format!("value_{n}")).collect::<Vec<_>>().join(" + "));
    let answer = format!("{}\n\n```\n{code}\n```\n\nThe end.", words.join(" "));
    let gates: Vec<Gate> = (0..3).map(|_| Gate::new()).collect();
    // A chunk is a word and its space; the first event has no text.
    let stops = [10, 24, 42];
    let reply = Reply::text(answer).chunk_chars(7);
    model.on("go", [gates.iter().zip(stops).fold(reply, |reply, (gate, at)| reply.stalls_after(at, gate))]);
    let mut terminal = block_in_place(|| {
        let mut terminal = Terminal::chat(&gateway);
        terminal.line("go");
        terminal
    });
    for ((gate, stop), columns) in gates.iter().zip(stops).zip([50, 31, 100]) {
        gate.wait_arrived(1).await;
        block_in_place(|| {
            terminal.expect(&format!("{}\r", words[stop - 2]));
            terminal.resize(columns);
        });
        gate.open();
    }
    block_in_place(|| {
        terminal.expect("The end.");
        terminal.expect("tokens in");
        terminal.expect("You> ");
    });
    let screen = terminal.screen();
    let shown: Vec<&str> = screen.split_whitespace().filter(|word| word.starts_with("word")).collect();
    assert_eq!(shown, words, "{screen}");
    assert!(screen.lines().any(|line| line.trim() == code), "{screen}");
    assert_eq!(screen.matches("Bot> ").count(), 1, "{screen}");
    block_in_place(|| exit_chat(&mut terminal));
}

/// Notes for the model appear in no chat, in no answer of the offline responder, and not in `sessions show`.
#[tokio::test(flavor = "multi_thread")]
async fn model_only_notes_are_hidden_from_people() {
    for is_offline in [false, true] {
        let (gateway, model) =
            chat(if is_offline { Setup::new().set("agent.model", "offline") } else { Setup::new() }).await;
        let missing = json!({"path": "missing.md"});
        let call = || Reply::tool("read_file", &missing);
        model.on("read missing.md", [call(), call(), call(), call(), Reply::text("There is no such file.")]);
        block_in_place(|| {
            let mut terminal = Terminal::chat(&gateway);
            terminal.line("read missing.md");
            terminal.expect("Bot> ");
            terminal.expect("You> ");
            let screen = terminal.screen();
            assert!(
                screen.contains("missing.md") && !screen.contains("[Please") && !screen.contains("in a row"),
                "{screen}"
            );
            exit_chat(&mut terminal);
        });
        let shown = gateway.run(&["sessions", "show", "cli:direct"]).await.stdout;
        for note in ["[Please analyze", "[Runtime Context]", "[The same call", "Current Time:"] {
            assert!(!shown.contains(note), "{note}: {shown}");
        }
        assert!(
            shown.contains("user: read missing.md\n") && shown.contains("read_file({\"path\":\"missing.md\"})"),
            "{shown}"
        );
        if !is_offline {
            let asked = model.requests().last().cloned().unwrap_or_default().to_string();
            assert!(
                asked.contains("[Please analyze") && asked.contains("[The same call"),
                "the model is told: {asked}"
            );
        }
    }
}

/// Ctrl-C while an answer streams shows first the running action, then the partial answer and its mark. The answer to the
/// `/stop` adds nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_answer_is_shown_with_its_mark_in_order() {
    let (gateway, model) = chat(Setup::new().env("NO_COLOR", "1")).await;
    let gate = Gate::new();
    model.on("long", [Reply::text("One two three four five six").chunk_chars(4).stalls_after(4, &gate)]);
    let mut terminal = block_in_place(|| {
        let mut terminal = Terminal::chat(&gateway);
        terminal.line("long");
        terminal.expect("One two");
        terminal
    });
    gate.wait_arrived(1).await;
    block_in_place(|| {
        terminal.control('c');
        terminal.expect("You> ");
        terminal.line("and on");
        terminal.expect("echo: and on");
        terminal.expect("You> ");
        let screen = terminal.screen();
        let at = |text: &str| screen.find(text).unwrap_or_else(|| panic!("{text:?} in {screen}"));
        assert!(at("One two") < at("(stopping") && at("(stopping") < at("(stopped)"), "{screen}");
        assert!(at("(stopped)") < at("and on"), "{screen}");
        assert!(!screen.contains("Stopping.") && screen.matches("One two").count() == 1, "{screen}");
        exit_chat(&mut terminal);
    });
}

/// Reasoning is one line with its duration. `/thinking` prints the reasoning and shows later reasoning. An unknown command
/// gives one line with the nearest command. A tool's row names the file before its content.
#[tokio::test(flavor = "multi_thread")]
async fn reasoning_is_folded_and_tool_rows_name_the_file_first() {
    let (gateway, model) = chat(Setup::new().env("NO_COLOR", "1")).await;
    let write = json!({"content": "many words that fill a row ".repeat(9), "path": "notes/a.md"});
    model.on("write", [Reply::tool("write_file", &write).reasoning("It wants a file."), Reply::text("Done.")]);
    model.on("again", [Reply::text("Well.").reasoning("Once more.")]);
    block_in_place(|| {
        let mut terminal = Terminal::chat(&gateway);
        terminal.line("write");
        terminal.expect("thought for ");
        terminal.expect("write_file(path=\"notes/a.md\"");
        terminal.expect("Done.");
        terminal.expect("You> ");
        assert!(!terminal.screen().contains("It wants a file."));
        terminal.line("/thinking");
        terminal.expect("It wants a file.");
        terminal.expect("You> ");
        terminal.line("/thinking show");
        terminal.expect("shown from now on");
        terminal.expect("You> ");
        terminal.line("again");
        terminal.expect("thinking: Once more.");
        terminal.expect("Well.");
        terminal.expect("You> ");
        let before = terminal.screen().lines().count();
        terminal.line("/hepl");
        terminal.expect("did you mean `/help`?");
        terminal.expect("You> ");
        assert!(terminal.screen().lines().count() - before < 8, "{}", terminal.screen());
        exit_chat(&mut terminal);
    });
}

/// When the gateway restarts during a chat, the chat says so, keeps the typed line, accepts messages, and follows the
/// awaited reply. Each message is answered once.
#[tokio::test(flavor = "multi_thread")]
async fn a_chat_survives_a_restart_of_its_gateway() {
    let model = Model::start().await;
    let mut gateway = Gateway::start(Setup::new().model(&model).env("NO_COLOR", "1")).await;
    let gate = Gate::new();
    model.on("wait", [Reply::text("It was worth it.").held_by(&gate)]);
    let mut terminal = block_in_place(|| {
        let mut terminal = Terminal::chat(&gateway);
        terminal.keys("half a line");
        terminal.expect("half a line");
        terminal
    });
    gateway.kill9().await;
    block_in_place(|| {
        terminal.expect("the gateway has stopped");
        terminal.expect("half a line");
    });
    gateway.up().await;
    block_in_place(|| {
        terminal.expect("connected again");
        terminal.expect("half a line");
        terminal.keys(" and its end\r");
        terminal.expect("echo: half a line and its end");
        terminal.expect("You> ");
        terminal.line("wait");
    });
    gate.wait_arrived(1).await;
    gateway.kill9().await;
    block_in_place(|| terminal.expect("the gateway has stopped"));
    gate.open();
    gateway.up().await;
    block_in_place(|| {
        terminal.expect("connected again");
        terminal.expect("It was worth it.");
        terminal.expect("You> ");
    });
    gateway.kill9().await;
    block_in_place(|| {
        terminal.expect("the gateway has stopped");
        terminal.line("sent while nobody was there");
        terminal.expect("nobody was there");
    });
    gateway.up().await;
    block_in_place(|| {
        terminal.expect("echo: sent while nobody was there");
        terminal.expect("You> ");
        exit_chat(&mut terminal);
    });
    assert_eq!(terminal.screen().matches("It was worth it.").count(), 1, "{}", terminal.screen());
    wait_settled(&gateway.database()).await;
    assert_eq!(messages_sent(&model).iter().filter(|message| *message == "sent while nobody was there").count(), 1);
    check(&gateway.database(), &Witness::default());
}

/// Chinese text is wrapped by its display width, and a narrowed screen is respected.
#[tokio::test(flavor = "multi_thread")]
async fn chinese_text_wraps_by_display_width() {
    let (gateway, model) = chat(Setup::new().set("agent.locale", "zh").env("NO_COLOR", "1")).await;
    let answer = "这是一段比较长的中文回答，在窄屏上要按宽度换行。".repeat(3);
    model.on("你好", [Reply::text(answer.clone()).chunk_chars(5)]);
    block_in_place(|| {
        let mut terminal = Terminal::start(&gateway, &["chat"]);
        terminal.resize(60);
        terminal.expect("道友 ");
        terminal.expect("/exit 离开。");
        terminal.expect("You> ");
        for columns in [60_usize, 20] {
            terminal.resize(u16::try_from(columns).unwrap());
            terminal.line("你好");
            terminal.expect("Bot> ");
            let drawn = format!("Bot> {}", terminal.expect("token"));
            let rows = screen_rows(&drawn);
            let wide = |row: &str| row.chars().map(|c| if c.is_ascii() { 1 } else { 2 }).sum::<usize>();
            assert!(rows.iter().all(|row| wide(row) < columns), "{columns}: {rows:?}");
            let text: String = rows.concat().chars().filter(|c| !c.is_ascii()).collect();
            assert!(text.contains(&answer), "{columns}: {text:?}");
            terminal.expect("You> ");
        }
        exit_chat(&mut terminal);
    });
}

/// Ctrl-C discards a line, explains at an empty prompt how to leave, and leaves the second time. SIGTERM restores the terminal.
#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_and_sigterm_leave_the_chat_cleanly() {
    let (gateway, model) = chat(Setup::new()).await;
    let gate = Gate::new();
    model.on("wait", [Reply::text("late").held_by(&gate)]);
    let mut waiting = block_in_place(|| {
        let mut terminal = Terminal::chat(&gateway);
        terminal.keys("never mind");
        terminal.expect("never mind");
        terminal.control('c');
        let after = terminal.expect("You> ");
        assert!(!after.contains("leaves"), "{after:?}");
        terminal.control('c');
        terminal.expect("Ctrl-C again, or Ctrl-D, leaves");
        terminal.expect("You> ");
        terminal.line("hello");
        terminal.expect("echo: hello");
        terminal.expect("You> ");
        terminal.control('c');
        terminal.expect("leaves");
        terminal.expect("You> ");
        terminal.control('c');
        assert_eq!(terminal.wait_exit(), Some(0));

        let mut terminal = Terminal::chat(&gateway);
        terminal.keys("half a line");
        terminal.expect("half a line");
        assert!(!terminal.is_cooked(), "the line editor reads keys");
        terminal.sigterm();
        terminal.expect("\x1b[?2004l");
        assert_eq!(terminal.wait_exit(), Some(0));
        assert!(terminal.is_cooked());
        let mut terminal = Terminal::chat(&gateway);
        terminal.line("wait");
        terminal
    });
    gate.wait_arrived(1).await;
    block_in_place(|| {
        waiting.sigterm();
    });
    gate.open();
    block_in_place(|| assert_eq!(waiting.wait_exit(), Some(0)));
    assert!(waiting.is_cooked());
}

/// Opens a chat in which a turn runs until the gate opens.
async fn chat_in_held_turn() -> (Gateway, Model, Gate, Terminal) {
    let (gateway, model) = chat(Setup::new()).await;
    let gate = Gate::new();
    model.on("wait", [Reply::text("late").held_by(&gate)]);
    let terminal = block_in_place(|| {
        let mut terminal = Terminal::chat(&gateway);
        terminal.line("wait");
        // The cursor is hidden after the input is.
        terminal.expect("\x1b[?25l");
        terminal
    });
    (gateway, model, gate, terminal)
}

/// Ctrl-D that is typed while a turn runs is read after it.
#[tokio::test(flavor = "multi_thread")]
async fn ctrl_d_during_a_turn_leaves_after_it() {
    let (_gateway, _model, gate, mut terminal) = chat_in_held_turn().await;
    block_in_place(|| {
        terminal.control('d');
        gate.open();
        terminal.expect("late");
        assert_eq!(terminal.wait_exit(), Some(0));
        assert!(terminal.is_cooked());
    });
}

/// Lines that are typed while a turn runs become one message each, in their order.
#[tokio::test(flavor = "multi_thread")]
async fn lines_typed_during_a_turn_are_sent_after_it() {
    let (_gateway, _model, gate, mut terminal) = chat_in_held_turn().await;
    block_in_place(|| {
        for line in ["first", "second", "third"] {
            terminal.line(line);
        }
        gate.open();
        for reply in ["late", "echo: first", "echo: second", "echo: third"] {
            terminal.expect(reply);
        }
        terminal.expect("You> ");
        exit_chat(&mut terminal);
    });
}

/// Files go with the next message and are stored permanently. `--model` applies to this chat only. `/session` switches the session.
#[tokio::test(flavor = "multi_thread")]
async fn a_chat_attaches_files_and_switches_model_and_session() {
    let model = Model::start().await;
    let mut gateway = Gateway::new(Setup::new().model(&model).env("NO_COLOR", "1"));
    let folder = gateway.home().parent().unwrap().to_owned();
    fs::write(folder.join("notes.txt"), "remember the milk\n").unwrap();
    fs::write(folder.join("binary"), b"\x00\x01").unwrap();
    for is_running in [false, true] {
        if is_running {
            gateway.up().await;
        }
        let before = model.count();
        for (args, words) in [
            (&["chat", "missing.txt"][..], "there is no file missing.txt"),
            (&["chat", "binary"], "binary is not UTF-8 text"),
            (&["chat", "."], ". is not a regular file"),
            (&["chat", "--model", "nowhere/x"], "the model nowhere/x cannot be used"),
        ] {
            let ran = gateway.run_with_input(args, "hello\n").await;
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{args:?}: {ran:?}");
            assert!(ran.stderr.contains(words) && ran.stderr.lines().count() == 1, "{args:?}: {ran:?}");
        }
        block_in_place(|| {
            let mut terminal = Terminal::start(&gateway, &["chat", "--model", "scripted/other", "notes.txt"]);
            terminal.expect("model scripted/other");
            terminal.expect("1 file");
            terminal.expect("You> ");
            terminal.line("read it");
            terminal.expect("echo: read it");
            terminal.expect("You> ");
            terminal.line("/files");
            terminal.expect("notes.txt  18 B  sent");
            terminal.expect("You> ");
            terminal.line("/session cli:side");
            terminal.expect("Switched to cli:side.");
            terminal.expect("You> ");
            terminal.line("hello there");
            terminal.expect("echo: hello there");
            terminal.expect("You> ");
            terminal.line("/history");
            terminal.expect("you** hello there");
            terminal.expect("You> ");
            terminal.line("/session");
            terminal.expect("Session: cli:side");
            terminal.expect("cli:direct");
            terminal.expect("You> ");
            exit_chat(&mut terminal);
        });
        let asked = model.requests().split_off(before);
        let models: Vec<_> = asked.iter().map(|request| request["model"].clone()).collect();
        assert_eq!(models, ["other", "other"]);
        let with_file = "read it\n\n[File: notes.txt, 18 bytes]\n```\nremember the milk\n```";
        assert_eq!(messages_sent(&model).split_off(before), [with_file, "hello there"]);
    }
    let session = gateway.json(&["sessions", "show", "cli:side"]).await;
    assert_eq!((&session["model"], session["messages"].as_array().map(Vec::len)), (&Value::Null, Some(4)));
    gateway.run(&["agent", "-m", "and now"]).await;
    assert_eq!(model.requests().last().unwrap()["model"], "scripted");
    gateway.check_settled(&Witness::default()).await;
}
