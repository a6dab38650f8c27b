//! Outputs that clients, scripts and later versions depend on, recorded in `tests/data/` and compared byte for byte. Record
//! an intended change with `DAOYOU_RECORD=1 cargo test --test stories fixtures`, and review the difference.

use std::time::Duration;

use std::fmt::Write;

use serde_json::{Value, json};

use crate::support::attached::Attached;
use crate::support::gateway::{CommandOutput, Message};
use crate::support::invariants::{Journal, open, wait_settled};
use crate::support::recorded::{Placeholders, assert_recorded, form};
use crate::support::{Answer, Gate, Gateway, Hook, Model, Reply, Setup, Sink, until, write_file, write_files};

/// Returns the frames of a terminal's stream as lines of JSON, with placeholders. Pieces of the same text are joined,
/// because the network splits them at random.
fn stream_lines(gateway: &Gateway, frames: Vec<Value>) -> String {
    let mut placeholders = Placeholders::new(gateway, &["seconds"]);
    let (mut lines, mut joined): (String, Vec<Value>) = (String::new(), Vec::new());
    for frame in frames {
        let delta = frame["event"]["event"]["delta"].as_str().map(str::to_owned);
        match (joined.last_mut(), delta) {
            (Some(last), Some(delta)) if last["event"]["event"]["type"] == frame["event"]["event"]["type"] => {
                let before = last["event"]["event"]["delta"].as_str().unwrap_or_default().to_owned();
                last["event"]["event"]["delta"] = json!(before + &delta);
            }
            _ => joined.push(frame),
        }
    }
    for frame in joined {
        writeln!(lines, "{}", placeholders.value(&frame)).expect("a string can be written");
    }
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_a_turn_stay_as_recorded() {
    let model = Model::start().await;
    model.on(
        "work",
        [
            Reply::tool("read_file", &json!({"path": "notes.txt"}))
                .call_id("call_1")
                .saying("I read it.")
                .usage(100, 20),
            Reply::text("It says hello.").reasoning("That is all.").usage(200, 10),
        ],
    );
    model.on("broken", [Reply::status(400)]);
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    std::fs::write(gateway.workspace().join("notes.txt"), "hello\n").unwrap();
    let mut attached = Attached::open(&gateway).await;
    assert_eq!(gateway.run(&["agent", "-m", "work"]).await.stdout, "It says hello.\n");
    assert_recorded("events/turn.jsonl", &stream_lines(&gateway, attached.turn().await));
    assert_eq!(gateway.run(&["agent", "-m", "broken"]).await.code, Some(1));
    assert_recorded("events/failed_turn.jsonl", &stream_lines(&gateway, attached.turn().await));
}

/// An answer that breaks off and is requested again, and a turn that is stopped.
#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_interrupted_turns_stay_as_recorded() {
    let model = Model::start().await;
    let gate = Gate::new();
    model.on("cut", [Reply::text("The whole answer.").usage(100, 20)]);
    // The first part arrives before the connection breaks. It ends in a space, because a last letter that may begin a
    // secret would be held back.
    let half = Reply::text("Half of an answer").chunk_chars(5).chunk_delay(Duration::from_millis(100));
    model.nth(1, half.drops_after(2));
    model.on("stop me", [Reply::text("never said").held_by(&gate)]);
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    let mut attached = Attached::open(&gateway).await;
    assert_eq!(gateway.run(&["agent", "-m", "cut"]).await.stdout, "The whole answer.\n");
    assert_recorded("events/restarted_turn.jsonl", &stream_lines(&gateway, attached.turn().await));
    let stop = async {
        gate.wait_arrived(1).await;
        gateway.run(&["agent", "-m", "/stop"]).await
    };
    let (stopped, stop) = tokio::join!(gateway.run(&["agent", "-m", "stop me"]), stop);
    assert_eq!((stopped.code, stop.code), (Some(1), Some(0)), "{stopped:?} {stop:?}");
    assert_recorded("events/stopped_turn.jsonl", &stream_lines(&gateway, attached.turn().await));
}

/// Returns the replies of a turn that reads other people's files in `scratch`; its writes elsewhere wait for the owner.
fn tainted_write() -> [Reply; 3] {
    [
        Reply::tool("read_file", &json!({"path": "scratch/notes.txt"})).call_id("call_1").usage(100, 20),
        Reply::tool("write_file", &json!({"path": "out.txt", "content": "hello"})).call_id("call_2").usage(150, 20),
        Reply::text("It is written.").usage(200, 10),
    ]
}

fn put_foreign_notes(gateway: &Gateway) {
    std::fs::create_dir(gateway.workspace().join("scratch")).unwrap();
    std::fs::write(gateway.workspace().join("scratch/notes.txt"), "hello\n").unwrap();
}

/// Waits for the call that waits for the owner, and returns its id.
async fn waiting_call(gateway: &Gateway) -> String {
    gateway.wait_approval().await["id"].as_str().expect("an id").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_a_turn_that_waits_for_the_owner_stay_as_recorded() {
    let model = Model::start().await;
    model.on("write it", tainted_write());
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    put_foreign_notes(&gateway);
    let mut attached = Attached::open(&gateway).await;
    let approve = async {
        let code = waiting_call(&gateway).await;
        let approved = gateway.run(&["approvals", "approve", &code]).await;
        assert_eq!(approved.code, Some(0), "{approved:?}");
        code
    };
    let (asked, code) = tokio::join!(gateway.run(&["agent", "-m", "write it"]), approve);
    let lines = stream_lines(&gateway, attached.turn().await).replace(&code, "<approval>");
    assert_recorded("events/parked_turn.jsonl", &lines);
    assert!(asked.stdout.contains("It is written.") || asked.code == Some(76), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bodies_of_outbound_rows_stay_as_recorded() {
    let model = Model::start().await;
    let sink = Sink::signed().await;
    model.on("news", [Reply::text("Nothing new.")]);
    model.on("broken", [Reply::status(400)]);
    model.on("later", [Reply::status(503).retry_after("3600")]);
    let setup = Setup::new().model(&model).set("providers.scripted.retries", 0);
    let gateway = Gateway::start(setup.hook(Hook::bearer("in").callback(&sink))).await;
    let job = "cron add --name n --every 12h --prompt news --channel webhook:in --chat job";
    let job = gateway.json(&job.split(' ').collect::<Vec<_>>()).await;
    let mut bodies = String::new();
    let mut placeholders = Placeholders::new(&gateway, &[]);
    placeholders.literal(job["id"].as_str().unwrap(), "<job>");
    let mut record = |what: &str, slot: &str, chat: &str| {
        let journal = Journal::read(&gateway.database()).unwrap();
        let rows: Vec<_> = journal.outbox.iter().filter(|row| row.slot == slot && row.chat_id == chat).collect();
        assert_eq!(rows.len(), 1, "{what}: {:?}", journal.outbox);
        writeln!(bodies, "{what} ({slot}): {}", placeholders.value(&rows[0].body)).unwrap();
    };

    let id = gateway.accept("in", &Message::new("hello").chat("reply").sender("ann").id("first")).await;
    gateway.wait_done("in", &id).await;
    record("a reply", "reply", "reply");

    let id = gateway.accept("in", &Message::new("broken").chat("error").sender("ann").id("second")).await;
    gateway.wait_done("in", &id).await;
    record("an error", "reply", "error");

    assert_eq!(gateway.run(&["cron", "run", "n"]).await.code, Some(0));
    until("the run's output", async || sink.posts().iter().any(|post| post.data("chat_id") == "job").then_some(()))
        .await;
    record("the output of a cron run", "reply", "job");

    let id = gateway.accept("in", &Message::new("later").chat("notice").sender("ann").id("third")).await;
    until("the notice", async || (gateway.state("in", &id).await.text("status") == "waiting").then_some(())).await;
    record("a notice", "notice:waiting", "notice");
    assert_recorded("outbound_bodies.txt", &bodies);
}

/// Messages that are not replies: those of a tool or a sub-agent, and notices for the owner.
#[tokio::test(flavor = "multi_thread")]
async fn the_bodies_of_other_messages_stay_as_recorded() {
    let model = Model::start().await;
    let sink = Sink::signed().await;
    model.on("write it", tainted_write());
    let message = json!({"content": "Here it is.", "attachments": ["notes.txt"], "subject": "The notes"});
    model.on("send", [Reply::tool("message", &message), Reply::text("Sent.")]);
    let task = json!({"task": "count the files", "label": "counting"});
    model.on("ask another", [Reply::tool("spawn", &task), Reply::text("It is under way.")]);
    model.on("count the files", [Reply::text("There are three.")]);
    model.on("[sub-agent counting finished", [Reply::text("They are three.")]);
    model.on("later", [Reply::status(503).retry_after("3600")]);
    sink.when(|post| (post.data("chat_id") == "gone").then_some(Answer::Status(410, None)));
    let setup = Setup::new().model(&model).set("providers.scripted.retries", 0);
    let setup = setup.hook(Hook::bearer("in").callback(&sink)).set("owner.notify", "webhook:in:owner");
    let gateway = Gateway::start(setup).await;
    std::fs::write(gateway.workspace().join("notes.txt"), "hello\n").unwrap();
    put_foreign_notes(&gateway);
    let mut bodies = String::new();
    let mut placeholders = Placeholders::new(&gateway, &["message_id", "id"]);
    for (text, chat, rows) in [
        ("send", "tool", &[("a message of a tool", "tool:", "tool", 1)][..]),
        // The parent's reply comes first, and the report after it.
        ("ask another", "parent", &[("the report of a sub-agent", "reply", "parent", 2)]),
        ("hello", "gone", &[("a dead letter", "notice:dead:", "owner", 1)]),
        (
            "write it",
            "asks",
            &[
                ("a call that waits", "notice:approval", "asks", 1),
                ("the owner is asked", "notice:owner-approval:", "owner", 1),
            ],
        ),
        ("later", "waits", &[("a service that does not answer", "notice:service", "owner", 1)]),
    ] {
        gateway.accept("in", &Message::new(text).chat(chat).sender("ann").id(chat)).await;
        for (what, slot, chat, number) in rows {
            let row = until(what, async || {
                let mut rows = Journal::read(&gateway.database()).ok()?.outbox;
                rows.retain(|row| row.slot.starts_with(slot) && row.chat_id == *chat);
                rows.into_iter().nth(number - 1)
            });
            let row = row.await;
            if let Some((_, code)) = row.slot.split_once("approval:") {
                placeholders.literal(code, "<approval>");
            }
            writeln!(bodies, "{what} ({}): {}", placeholders.text(&row.slot), placeholders.value(&row.body)).unwrap();
        }
    }
    assert_recorded("other_bodies.txt", &bodies);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_schema_of_a_new_database_stays_as_recorded() {
    let gateway = Gateway::start(Setup::new()).await;
    let database = open(&gateway.database()).unwrap();
    let sql = "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master ORDER BY type, name";
    let mut statement = database.prepare(sql).unwrap();
    let text = |row: &rusqlite::Row<'_>, column| row.get::<_, String>(column);
    let rows = statement.query_map([], |row| {
        Ok(format!("-- {} {} on {}\n{}\n\n", text(row, 0)?, text(row, 1)?, text(row, 2)?, text(row, 3)?))
    });
    let schema: String = rows.unwrap().map(Result::unwrap).collect();
    let version: i64 = database.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_recorded("schema.sql", &format!("-- user_version {version}\n\n{schema}"));
}

/// The keys whose values differ between runs or machines, or contain prose for people.
const VOLATILE: &[&str] = &[
    "pid", "behind", "in_force", "expires_in", "uptime", "uptime_seconds", "bytes", "description", "free_bytes",
    "known", "size", "wal",
];

/// The commands whose values change with every tool or service, so that only the structure of their JSON is recorded.
const STRUCTURE_ONLY: &[&[&str]] = &[&["agents", "list"], &["models", "--json"], &["prompt"]];

/// Returns the record of a command: its arguments, and its JSON or its error.
fn command_lines(placeholders: &mut Placeholders, args: &[&str], ran: &CommandOutput) -> String {
    let mut lines = format!("$ daoyou {}\n", placeholders.text(&args.join(" ")));
    if ran.stdout.is_empty() {
        let code = ran.code.filter(|code| *code != 0).unwrap_or_else(|| panic!("{args:?}: {ran:?}"));
        let error = ran.stderr.lines().last().unwrap_or_default();
        writeln!(lines, "exit code {code}: {}", placeholders.text(error)).unwrap();
        return lines;
    }
    let read: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(&ran.stdout).into_iter().collect();
    let values = read.unwrap_or_else(|fault| panic!("{args:?}: {fault}: {ran:?}"));
    assert!(!values.is_empty(), "{args:?}: {ran:?}");
    for value in values {
        let is_structure_only = STRUCTURE_ONLY.iter().any(|command| args.starts_with(command));
        let mut value = if is_structure_only { form(&value) } else { placeholders.value(&value) };
        // Each tool has its own parameters, which `tools show` prints.
        if let Some(tools) = value.pointer_mut("/request/tools") {
            *tools = json!("array");
        }
        writeln!(lines, "{value:#}").unwrap();
    }
    lines
}

/// Starts a gateway with turns, a dead letter, jobs and memories. Returns the ids of the first turn and of the dead letter.
async fn busy_gateway(model: &Model, sink: &Sink) -> (Gateway, String, String) {
    let read = Reply::tool("read_file", &json!({"path": "notes.txt"})).call_id("call_1").usage(100, 20);
    model.on("read the notes", [read, Reply::text("They say hello.").usage(200, 10)]);
    model.on("news", [Reply::text("Nothing new.").usage(50, 5)]);
    model.on("hello", [Reply::text("Hello, Ann.").usage(80, 8)]);
    sink.when(|post| (post.data("chat_id") == "gone").then_some(Answer::Status(410, None)));
    let gateway = Gateway::start(Setup::new().model(model).hook(Hook::bearer("in").callback(sink))).await;
    std::fs::write(gateway.workspace().join("notes.txt"), "hello\n").unwrap();
    let turn = gateway.accept("in", &Message::new("read the notes").chat("c").sender("ann").id("first")).await;
    sink.wait_reply(&turn).await;
    let dead_letter = gateway.accept("in", &Message::new("hello").chat("gone").sender("ann").id("second")).await;
    gateway.wait_done("in", &dead_letter).await;
    let dead_letter =
        until("the dead letter", async || gateway.json(&["queue", "list"]).await[0]["id"].as_str().map(str::to_owned));
    let dead_letter = dead_letter.await;
    wait_settled(&gateway.database()).await;
    (gateway, turn, dead_letter)
}

/// Commands about conversations, jobs, memories, the queue and the gateway; the tests below record others. Not recorded
/// are `doctor`, `backup`, `restore`, `logs` and `open`, whose outputs depend on the machine or the moment, `tools list`
/// and `config show`, which grow with every tool and setting, and `mcp test`, `mcp tools`, `skills install` and
/// `skills accept`, which need a server or a source and have their own tests.
#[tokio::test(flavor = "multi_thread")]
async fn the_json_of_commands_stays_as_recorded() {
    let model = Model::start().await;
    let sink = Sink::signed().await;
    let (gateway, turn, dead_letter) = busy_gateway(&model, &sink).await;
    let mut placeholders = Placeholders::new(&gateway, VOLATILE);
    let mut outputs = String::new();
    let session = "webhook:in:c";
    let job = ["--every", "12h", "--prompt", "news", "--channel", "webhook:in", "--chat", "job"];
    let memories = gateway.home().join("memories.jsonl").display().to_string();
    let jobs = gateway.home().join("cron.json").display().to_string();
    std::fs::write(&memories, "{\"text\":\"Ben plays chess.\",\"owner\":\"owner\",\"kind\":\"fact\"}\n").unwrap();
    std::fs::write(&jobs, "{\"jobs\":[]}").unwrap();
    let commands: [&[&str]; 34] = [
        &["agent", "-m", "hello", "--session", "cli:side"],
        &[&["cron", "add", "--name", "n"], &job[..]].concat(),
        &["cron", "list"],
        &["cron", "show", "n"],
        &["cron", "disable", "n"],
        &["cron", "enable", "n"],
        &["cron", "run", "n"],
        &["cron", "history", "n"],
        &["cron", "export"],
        &["cron", "import", &jobs],
        &["cron", "remove", "n"],
        &["memory", "add", "Ann drinks oolong tea."],
        &["memory", "show"],
        &["memory", "search", "oolong"],
        &["memory", "export"],
        &["memory", "import", &memories],
        &["memory", "stats"],
        &["sessions", "list"],
        &["sessions", "show", session],
        &["sessions", "search", "notes"],
        &["turns", "list"],
        &["turns", "show", &turn],
        &["turns", "fork", &turn],
        &["turns", "restore", &turn],
        &["queue", "list"],
        &["queue", "show", &dead_letter],
        &["queue", "drop", &dead_letter],
        &["sessions", "clear", "cli:side"],
        &["channels", "list"],
        &["channels", "test", "in"],
        &["models", "scripted"],
        &["config", "path"],
        &["config", "check"],
        &["status"],
    ];
    for args in commands {
        if args == ["status"] {
            let behind = async || gateway.json(&["status"]).await["memory"]["index"]["behind"].as_u64();
            until("an index that has read all messages", async || behind().await.filter(|count| *count == 0)).await;
        }
        let ran = gateway.run(&[args, &["--json"]].concat()).await;
        let read: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(&ran.stdout).into_iter().collect();
        let values = read.unwrap_or_else(|fault| panic!("{args:?}: {fault}: {ran:?}"));
        assert!(!values.is_empty(), "{args:?}: {ran:?}");
        if args.starts_with(&["cron", "add"]) {
            placeholders.literal(values[0]["id"].as_str().unwrap(), "<job>");
        }
        if let Some(code) = values[0]["login"]["code"].as_str() {
            placeholders.literal(code, "<code>");
        }
        writeln!(outputs, "$ daoyou {}", placeholders.text(&args.join(" "))).unwrap();
        for value in values {
            writeln!(outputs, "{:#}", placeholders.value(&value)).unwrap();
        }
        if args.starts_with(&["cron", "run"]) {
            until("the run", async || sink.posts().iter().any(|post| post.data("chat_id") == "job").then_some(()))
                .await;
            wait_settled(&gateway.database()).await;
        }
    }
    assert_recorded("commands.txt", &outputs);
}

/// Commands that show or change approvals, the queue, memories and sessions.
#[tokio::test(flavor = "multi_thread")]
async fn the_json_of_approval_queue_and_memory_commands_stays_as_recorded() {
    let model = Model::start().await;
    let sink = Sink::signed().await;
    let (gateway, _, dead_letter) = busy_gateway(&model, &sink).await;
    model.on("write it", tainted_write());
    put_foreign_notes(&gateway);
    let mut placeholders = Placeholders::new(&gateway, VOLATILE);
    let added = gateway.json(&["memory", "add", "Ann drinks oolong tea."]).await;
    gateway.accept("in", &Message::new("write it").chat("w").sender("ann").id("third")).await;
    let code = waiting_call(&gateway).await;
    placeholders.literal(&code, "<approval>");
    let mut outputs = String::new();
    let forgotten = added["id"].to_string();
    let commands: [&[&str]; 6] = [
        &["approvals", "list", "--json"],
        &["approvals", "deny", &code, "--json"],
        &["queue", "retry", &dead_letter, "--json"],
        &["memory", "forget", &forgotten, "--json"],
        &["sessions", "export", "webhook:in:c"],
        &["models", "--json"],
    ];
    for args in commands {
        outputs += &command_lines(&mut placeholders, args, &gateway.run(args).await);
    }
    assert_recorded("waiting_commands.txt", &outputs);
}

/// Starts a gateway with two skills, an agent, and an MCP server that is switched off.
async fn equipped_gateway(model: &Model) -> Gateway {
    let setup = Setup::new().model(model).set("skills.built_in", false).set("skills.disabled", vec!["sails"]);
    let setup = setup.set("agents.scout.description", "Looks around.").set("agents.scout.tools", vec!["read_file"]);
    let setup = setup.set("mcp.notes.command", vec!["no-such-server"]).set("mcp.notes.enabled", false);
    let gateway = Gateway::start(setup).await;
    let files = [
        ("skills/knots/SKILL.md", "---\nname: knots\ndescription: Tie knots.\n---\n\nUse a bowline.\n"),
        ("skills/sails/SKILL.md", "---\nname: sails\ndescription: Set sails.\n---\n\nPull.\n"),
        ("notes.txt", "hello\n"),
        ("old.txt", "old\n"),
    ];
    write_files(&gateway.workspace(), &files);
    gateway
}

/// Commands about skills, agents, servers, tools, tokens and the trash, and some that fail.
#[tokio::test(flavor = "multi_thread")]
async fn the_json_of_commands_about_the_agent_stays_as_recorded() {
    let model = Model::start().await;
    let gateway = equipped_gateway(&model).await;
    assert_eq!(gateway.run(&["agent", "-m", "hello", "--session", "cli:side"]).await.code, Some(0));
    let conversation = gateway.home().join("conversation.jsonl").display().to_string();
    std::fs::write(&conversation, gateway.run(&["sessions", "export", "cli:side"]).await.stdout).unwrap();
    let drafts = gateway.home().join("drafts").display().to_string();
    write_file(gateway.home().join("drafts/reefs/SKILL.md"), "No front matter.\n");
    assert_eq!(gateway.run_tool("delete_file", &json!({"path": "old.txt"})).await["success"], true);
    let deleted = gateway.json(&["trash", "list"]).await[0]["id"].as_str().unwrap().to_owned();
    let mut placeholders = Placeholders::new(&gateway, VOLATILE);
    let add_token = ["tokens", "add", "phone", "--scope", "read"];
    let added = gateway.run(&[&add_token[..], &["--json"]].concat()).await;
    let secret: Value = serde_json::from_str(&added.stdout).unwrap();
    placeholders.literal(secret["token"].as_str().unwrap(), "<token>");
    let mut outputs = command_lines(&mut placeholders, &add_token, &added);
    let commands: [&[&str]; 20] = [
        &["tokens", "list"],
        &["tokens", "revoke", "phone"],
        &["skills", "list"],
        &["skills", "show", "knots"],
        &["skills", "show", "reefs"],
        &["skills", "check"],
        &["skills", "check", &drafts],
        &["skills", "remove", "knots"],
        &["agents", "list"],
        &["agents", "show", "scout"],
        &["mcp", "list"],
        &["tools", "show", "read_file"],
        &["tools", "run", "read_file", r#"{"path":"notes.txt"}"#],
        &["tools", "run", "read_file", r#"{"path":"missing.txt"}"#],
        &["prompt"],
        &["sessions", "import", &conversation, "--session", "cli:copy"],
        &["sessions", "import", &conversation, "--session", "cli:copy"],
        &["trash", "restore", &deleted],
        &["trash", "list"],
        &["approvals", "approve", "0123456789"],
    ];
    for args in commands {
        let ran = gateway.run(&[args, &["--json"]].concat()).await;
        outputs += &command_lines(&mut placeholders, args, &ran);
    }
    assert_recorded("agent_commands.txt", &outputs);
}
