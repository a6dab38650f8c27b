//! Slash commands, which are answered without the model on any channel, `/stop`, and the program's commands that query a gateway.

use serde_json::{Value, json};

use crate::support::gateway::Message;
use crate::support::invariants::Witness;
use crate::support::model::{messages_of, texts_of};
use crate::support::page::{PageClient, text_of};
use crate::support::processes::{is_running, unique_sleep};
use crate::support::requirements::bubblewrap_is_missing;
use crate::support::{Gate, Gateway, Hook, Model, Reply, Setup, until};

fn setup(model: &Model) -> Setup {
    Setup::scripted(model).set("skills.built_in", false)
}

/// Returns the number of messages in a request without the system prompt.
fn message_count(request: &Value) -> usize {
    messages_of(request).len() - 1
}

/// Each question with all texts that the answer must contain.
type Table = &'static [(&'static str, &'static [&'static str])];

const COMMANDS: &[&str] = &[
    "/new", "/stop", "/status", "/model", "/agent", "/session", "/cost", "/checkpoint", "/restore", "/tools",
    "/skills", "/help",
];

const ENGLISH: Table = &[
    ("/help", COMMANDS),
    ("  /HELP  me please", COMMANDS),
    ("/status", &["daoyou ", " is up for ", "waiting or running: 0"]),
    ("/model", &["Model: scripted/scripted", "offline"]),
    ("/model nowhere/x", &["nowhere", "scripted", "offline"]),
    ("/agent", &["Agent: assistant", "`explorer`", "`translator`"]),
    ("/agent nobody", &["Agent 'nobody' not found", "explorer"]),
    ("/agent plain", &["This session is now answered by plain."]),
    ("/agent default", &["usual agent"]),
    ("/session", &["webhook:in:c", "Messages: 2"]),
    ("/cost", &["1 turn,", "100 tokens in", "7 tokens out"]),
    ("/tools", &["read_file", "exec", "message"]),
    ("/skills", &["There are no skills yet"]),
    ("/history", &["`/history` is a command of the interactive terminal"]),
    ("/clear", &["`/clear` is a command of the interactive terminal, `daoyou chat`; `/help`"]),
    ("/add x", &["`/add` is a command of the interactive terminal"]),
    ("/stop", &["Nothing is running here."]),
    ("/nonsense", &["Unknown command `/nonsense`: did you mean `/", "`/help` lists all"]),
    ("/modle", &["Unknown command `/modle`: did you mean `/model`?"]),
    ("/new", &["New session started."]),
    ("/session", &["Messages: 0", "before this one here: 1"]),
];

const CHINESE: Table = &[
    ("/help", COMMANDS),
    ("/status", &["已运行", "等待或处理中的消息：0"]),
    ("/model", &["模型：scripted/scripted"]),
    ("/model nowhere/x", &["无法使用模型 nowhere/x：没有名为 \"nowhere\" 的服务商", "；现有：", "scripted"]),
    ("/agent", &["智能体：assistant"]),
    ("/agent nobody", &["没有名为“nobody”的智能体", "现有：assistant, "]),
    ("/agent plain", &["本会话现在由 plain 回答。"]),
    ("/agent default", &["本会话恢复由默认智能体回答。"]),
    ("/session", &["会话：webhook:in:c", "消息数：2"]),
    ("/cost", &["本会话：1 个回合", "输入 100 token"]),
    ("/tools", &["工具：", "read_file"]),
    ("/stop", &["这里没有正在运行的任务。"]),
    ("/nonsense", &["没有 `/nonsense` 这个命令，是不是想用 `/", "`/help`"]),
    ("/quit", &["`/quit` 是交互式终端 `daoyou chat` 的命令"]),
    ("/modle", &["是不是想用 `/model`？"]),
    ("/new", &["已开启新会话。"]),
    ("/session", &["消息数：0", "此前的会话数：1"]),
];

async fn answered_without_the_model(locale: &str, table: Table) {
    let model = Model::start().await;
    model.on("hello", [Reply::text("hello to you").usage(100, 7)]);
    let setup = setup(&model).set("agent.locale", locale).set("agents.plain.prompt", "You are plain.");
    let gateway = Gateway::start(setup).await;
    gateway.ask("in", "c", "hello").await;
    for (command, words) in table {
        let answer = gateway.ask("in", "c", command).await;
        let missing: Vec<_> = words.iter().filter(|word| !answer.contains(**word)).collect();
        assert!(missing.is_empty(), "{command}: {missing:?} is missing in {answer}");
    }
    assert_eq!(model.count(), 1, "a command needs no model");

    // The model no longer has the history, commands were never part of it, and a path is not a command.
    assert!(gateway.ask("in", "c", "/etc/hosts is missing").await.starts_with("echo: /etc/hosts"));
    let request = &model.requests()[1];
    assert_eq!((message_count(request), model.refused()), (1, Vec::new()), "{request}");
    let journal = gateway.check_settled(&Witness::default()).await;
    let epochs: Vec<_> = journal.messages.iter().map(|message| (message.epoch, message.role.as_str())).collect();
    assert_eq!(epochs, [(0, "user"), (0, "assistant"), (1, "user"), (1, "assistant")], "nothing said is deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn slash_commands_are_answered_without_the_model() {
    answered_without_the_model("en", ENGLISH).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slash_commands_are_answered_in_chinese() {
    answered_without_the_model("zh", CHINESE).await;
}

/// A command that does not exist is an error of its sender, whose program must notice it.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_command_fails() {
    let model = Model::start().await;
    let gateway = Gateway::start(setup(&model)).await;
    let failed = gateway.run(&["agent", "-m", "/modle"]).await;
    assert!(failed.code == Some(1) && failed.stdout.contains("did you mean `/model`?"), "{failed:?}");
    let failed = gateway.run(&["agent", "-m", "/modle", "--json"]).await;
    let answer: Value = serde_json::from_str(&failed.stdout).unwrap();
    assert_eq!((failed.code, &answer["error"]["code"]), (Some(1), &json!("unknown_command")), "{failed:?}");
    assert!(answer["reply"].as_str().unwrap().contains("`/model`"), "{answer}");
    assert_eq!(gateway.run(&["agent", "-m", "/model"]).await.code, Some(0));
    for count in ["abc", "2x", "-1", "0"] {
        let answer = gateway.run(&["agent", "-m", &format!("/history {count}")]).await.stdout;
        assert!(answer.contains(&format!("`{count}` is not a number of messages")), "{answer}");
    }
    assert!(gateway.run(&["agent", "-m", "/history 1"]).await.stdout.contains("There are no messages here yet"));
}

/// The model choice of a session is separate, survives a kill, and is reset with `auto`.
#[tokio::test(flavor = "multi_thread")]
async fn each_session_chooses_its_model() {
    let model = Model::start().await;
    let mut gateway = Gateway::start(setup(&model)).await;
    assert!(gateway.ask("in", "c", "/model scripted/other").await.contains("scripted/other"));
    gateway.ask("in", "c", "one").await;
    gateway.ask("in", "d", "two").await;
    gateway.restart().await;
    assert!(gateway.ask("in", "c", "/model").await.contains("Model: scripted/other"));
    gateway.ask("in", "c", "/model nowhere/x").await;
    gateway.ask("in", "c", "three").await;
    gateway.ask("in", "c", "/new").await;
    gateway.ask("in", "c", "four").await;
    gateway.ask("in", "c", "/model auto").await;
    gateway.ask("in", "c", "five").await;
    let asked: Vec<_> = model.requests().iter().map(|request| request["model"].clone()).collect();
    // A name that the service does not list is tried when it is chosen.
    assert_eq!(asked, ["other", "other", "scripted", "other", "other", "scripted"]);
}

/// `/stop` while the model is silent: the connection closes, the turn ends, and queued messages continue.
#[tokio::test(flavor = "multi_thread")]
async fn stop_ends_the_wait_for_a_silent_model() {
    let model = Model::start().await;
    model.on("hang", [Reply::hang()]);
    let gateway = Gateway::start(setup(&model)).await;
    let hangs = gateway.accept("in", &Message::new("hang").chat("c")).await;
    let elsewhere = gateway.accept("in", &Message::new("hang").chat("d")).await;
    model.wait_requests(2).await;
    let behind = gateway.accept("in", &Message::new("behind").chat("c")).await;
    assert_eq!(gateway.ask("in", "c", "/stop").await, "Stopping.");
    model.wait_disconnected(1).await;
    let state = gateway.wait_done("in", &hangs).await;
    assert_eq!((state.text("status"), state.text("reply")), ("done", "(stopped)"));
    assert_eq!(state.body["error"]["code"], "stopped");
    assert_eq!(gateway.wait_done("in", &behind).await.text("reply"), "echo: behind");
    assert_eq!(gateway.state("in", &elsewhere).await.text("status"), "running", "another session is not stopped");
    let request = &model.requests_about("behind")[0];
    assert_eq!(texts_of(messages_of(request), "assistant"), ["(stopped)"]);
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// `/stop` in the middle of an answer: the streamed part is the reply, without the reasoning.
#[tokio::test(flavor = "multi_thread")]
async fn stop_keeps_the_streamed_part_of_an_answer() {
    let model = Model::start().await;
    let gate = Gate::new();
    let answer = "<think>secret thoughts</think>\nThe first half. The second half.";
    let half = answer.find("The second").expect("it is there") + 1;
    model.on("tell", [Reply::text(answer).chunk_chars(1).stalls_after(half, &gate)]);
    let gateway = Gateway::start(setup(&model)).await;
    let mut events = PageClient::login(&gateway, &gateway.token()).await.events("", None).await;
    let id = gateway.accept("in", &Message::new("tell").chat("c")).await;
    let mut shown = String::new();
    while !shown.contains("The first half.") {
        shown += &text_of(&[events.next().await]);
    }
    let after = gateway.accept("in", &Message::new("after").chat("c")).await;
    gateway.ask("in", "c", "/stop").await;
    model.wait_disconnected(1).await;
    let reply = gateway.wait_done("in", &id).await.text("reply").to_owned();
    assert_eq!(reply, "The first half.\n\n(stopped)");
    gateway.wait_done("in", &after).await;
    assert_eq!(texts_of(messages_of(&model.requests_about("after")[0]), "assistant"), [reply]);
}

/// `/stop` while a command runs: its processes are gone, and the history says that it was stopped.
#[tokio::test(flavor = "multi_thread")]
async fn stop_ends_a_running_command() {
    if bubblewrap_is_missing() {
        return;
    }
    let model = Model::start().await;
    let seconds = unique_sleep(100_000);
    let command = json!({"command": format!("echo halfway; sleep {seconds}")});
    let calls = Reply::tool("exec", &command).and_tool("exec", &json!({"command": "touch second.txt"}));
    model.on("work", [calls]);
    let gateway = Gateway::start(setup(&model)).await;
    let work = gateway.accept("in", &Message::new("work").chat("c")).await;
    let sleeping = format!("sleep\0{seconds}\0");
    until("the command to start", async || is_running(&sleeping).then_some(())).await;
    gateway.ask("in", "c", "/stop").await;
    let state = gateway.wait_done("in", &work).await;
    assert_eq!((state.text("reply"), &state.body["error"]["code"]), ("(stopped)", &json!("stopped")));
    until("the command to be gone", async || (!is_running(&seconds)).then_some(())).await;
    assert!(!gateway.workspace().join("second.txt").exists(), "what had not begun is not begun");

    assert_eq!(gateway.ask("in", "c", "and now?").await, "echo: and now?");
    let request = &model.requests_about("and now?")[0];
    let results = texts_of(messages_of(request), "tool");
    let expected = ["Error: Cancelled; the command was killed\nhalfway\n", "Error: stopped by the user"];
    assert_eq!(results, expected);
    assert_eq!(model.refused(), Vec::<String>::new());
    gateway.check_settled(&Witness { accepted: &[work], ..Witness::default() }).await;
}

/// A stopped turn does not continue after a kill: it ends as stopped, and the model is not called.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_turn_stays_stopped_after_a_kill() {
    if bubblewrap_is_missing() {
        return;
    }
    let model = Model::start().await;
    model.on("work", [Reply::tool("exec", &json!({"command": "touch started.txt; sleep 1000"}))]);
    let mut gateway = Gateway::new(setup(&model));
    gateway.crash_at("tool_finished=exec").up().await;
    let work = gateway.accept("in", &Message::new("work").chat("c")).await;
    let started = gateway.workspace().join("started.txt");
    until("the command to start", async || started.exists().then_some(())).await;
    let stop = gateway.try_post("in", "", &Message::new("/stop").chat("c").id("stop")).await;
    gateway.wait_crash().await;
    gateway.up().await;
    let again = gateway.post("in", "", &Message::new("/stop").chat("c").id("stop")).await;
    assert_eq!(again.text("status"), "duplicate", "{again:?}");
    assert!(stop.is_none_or(|first| first.text("id") == again.text("id")));
    let state = gateway.wait_done("in", &work).await;
    assert_eq!((state.text("reply"), model.count()), ("(stopped)", 1), "{state:?}");
    gateway.ask("in", "c", "and now?").await;
    let requests = model.requests_about("and now?");
    assert!(
        texts_of(messages_of(&requests[0]), "tool")[0].contains("whether it took effect is unknown"),
        "{requests:?}"
    );
    assert_eq!(model.refused(), Vec::<String>::new());
    gateway.check_settled(&Witness { accepted: &[work], ..Witness::default() }).await;
}

/// Commands about the gateway itself have the same JSON form with and without a gateway, text for people, and no secret.
#[tokio::test(flavor = "multi_thread")]
async fn gateway_commands_have_the_same_form_with_and_without_a_gateway() {
    let model = Model::start().await;
    let hook = Hook::bearer("in").set("allow_from", vec!["ann", "bob"]);
    let setup = setup(&model).hook(hook).hook(Hook::bearer("off").set("enabled", false));
    let mut gateway = Gateway::start(setup.set("tools.disabled", vec!["bash"])).await;
    let asked = gateway.post("in", "?wait=30", &Message::new("hello").chat("c").sender("ann")).await;
    assert_eq!(asked.text("reply"), "echo: hello");
    let commands: &[(&[&str], &str)] = &[
        (&["status"], "gateway   "),
        (&["channels", "list"], "webhook:in   webhook  yes"),
        (&["channels", "test", "in"], "ok    config"),
        (&["channels", "test", "email"], "set enabled = true under [channels.email]"),
        (&["models"], "scripted"),
        (&["models", "scripted"], "  scripted/scripted\n"),
        (&["tools", "list"], "exec              no"),
    ];
    let mut before = Vec::new();
    for (args, words) in commands {
        let ran = gateway.run(args).await;
        assert!(ran.code == Some(0) && ran.stdout.contains(words), "{args:?}: {ran:?}");
        before.push(gateway.json(args).await);
    }
    assert!(before[0]["login"].take()["code"].is_string(), "only a running gateway has a login");
    let [status, channels, test, _, models, ..] = before.as_slice() else { panic!("{before:?}") };
    assert_eq!((&status["gateway"], &status["model"]), (&json!("up"), &json!("scripted")));
    assert_eq!((&status["today"]["turns"], &status["today"]["cost"]), (&json!(1), &Value::Null));
    assert_eq!(
        (&status["last_turns"][0]["outcome"], &status["last_turns"][0]["error"]),
        (&json!("done"), &Value::Null)
    );
    let rows: Vec<_> = channels.as_array().unwrap().iter().map(|row| (&row["name"], &row["state"])).collect();
    let expected = [("cli", "running"), ("webhook:in", "running"), ("webhook:off", "off")];
    assert_eq!(rows, expected.map(|(name, state)| (json!(name), json!(state))).each_ref().map(|(n, s)| (n, s)));
    assert_eq!((&channels[1]["allow_from"], &channels[2]["enabled"]), (&json!(["ann", "bob"]), &json!(false)));
    assert_eq!((&test["channel"], &test["ok"]), (&json!("webhook:in"), &json!(true)));
    assert_eq!((&models["takes"], &models["providers"][0]["key"]), (&json!("scripted"), &json!(true)));

    gateway.stop().await;
    for ((args, _), running) in commands.iter().zip(&before) {
        let resting = gateway.json(args).await;
        assert_eq!(key_paths(&resting), key_paths(running), "{args:?}");
        assert!(!format!("{resting}{running}").contains("a-model-key"), "{args:?}");
    }
    assert_eq!(gateway.json(&["status"]).await["gateway"], "down");
    for (args, words) in
        [(&["channels", "test", "nobody"][..], "webhook:in"), (&["models", "nobody"], "`daoyou models` lists")]
    {
        let ran = gateway.run(args).await;
        assert!(ran.code == Some(1) && ran.stdout.is_empty() && ran.stderr.contains(words), "{ran:?}");
    }
}

/// Returns the paths of all keys of a JSON value. The first entry of a list stands for all entries.
fn key_paths(value: &Value) -> Vec<String> {
    match value {
        Value::Object(table) => {
            // A running gateway reports parts that a stopped one lacks.
            let shared = table.iter().filter(|(key, _)| *key != "parts");
            shared
                .flat_map(|(key, value)| {
                    let below = key_paths(value).into_iter().map(|inner| format!("{key}.{inner}"));
                    [key.clone()].into_iter().chain(below).collect::<Vec<_>>()
                })
                .collect()
        }
        Value::Array(list) => list.first().map(key_paths).unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// Commands that depend only on the command line need no home, and a typing error gets a suggestion.
#[tokio::test(flavor = "multi_thread")]
async fn help_and_suggestions_need_no_home() {
    let gateway = Gateway::new(Setup::new());
    let run = async |args: &[&str]| {
        let output = gateway.command(args).output().await.unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr))
    };
    let table: &[(&[&str], i32, &str)] = &[
        (&["completions", "bash"], 0, "_daoyou()"),
        (&["completions", "zsh"], 0, "#compdef daoyou"),
        (&["completions", "fish"], 0, "complete -c daoyou"),
        (&["completions", "tcl"], 2, "possible values"),
        (&["man"], 0, ".TH DAOYOU 1"),
        (&["statsu"], 2, "'status'"),
        (&["queue", "retyr"], 2, "'retry'"),
        (&["doctor", "--fixx"], 2, "'--fix'"),
        (&["channels", "test", "--help"], 0, "Examples:\n  daoyou channels test cli"),
    ];
    for (args, code, words) in table {
        let (got, text) = run(args).await;
        assert!(got == Some(*code) && text.contains(words), "{args:?}: {got:?} {text}");
    }
    let pages = gateway.home().with_file_name("man");
    assert_eq!(run(&["man", pages.to_str().unwrap()]).await, (Some(0), String::new()));
    for page in ["daoyou.1", "daoyou-doctor.1", "daoyou-channels-test.1"] {
        let text = std::fs::read_to_string(pages.join(page)).unwrap();
        assert!(text.contains("daoyou") && text.contains("Example"), "{page}: {text}");
    }
    assert!(!gateway.home().exists());
}

/// A command to a running gateway does not need the local configuration, such as credentials that only the service has.
/// History is readable whatever the configuration says. Commands that need the configuration report its error.
#[tokio::test(flavor = "multi_thread")]
async fn a_local_configuration_error_does_not_hide_a_running_gateway() {
    let model = Model::start().await;
    let mut gateway = Gateway::start(setup(&model)).await;
    assert_eq!(gateway.ask("in", "c", "hello").await, "echo: hello");
    let broken = setup(&model).set("providers.scripted.api_key", "cred:elsewhere");
    *gateway.setup() = broken;
    assert_eq!(gateway.json(&["status"]).await["gateway"], "up");
    for args in [&["turns", "list"][..], &["queue", "list"], &["sessions", "list"], &["tools", "list"], &["models"]] {
        assert_eq!(gateway.run(args).await.code, Some(0), "{args:?}");
    }
    let ran = gateway.run(&["agent", "-m", "hi"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "echo: hi\n"), "{ran:?}");

    gateway.stop().await;
    let ran = gateway.run(&["turns", "list"]).await;
    assert!(ran.code == Some(0) && ran.stdout.contains("hello"), "{ran:?}");
    for args in [&["status"][..], &["models"]] {
        assert_eq!(gateway.run(args).await.code, Some(0), "no secret is needed: {args:?}");
    }
    for args in [&["agent", "-m", "hi"][..], &["gateway", "--no-cli"]] {
        let ran = gateway.run(args).await;
        assert!(ran.code == Some(78) && ran.stderr.contains("providers.scripted.api_key: "), "{args:?}: {ran:?}");
    }
}
