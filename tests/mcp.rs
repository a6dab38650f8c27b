//! MCP servers: the agent calls their tools, and a misbehaving server affects no other.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::gateway::Message;
use crate::support::model::{last_text, messages_of, tools_of};
use crate::support::requirements::{bubblewrap_is_missing, is_missing};
use crate::support::{Gateway, Hook, Model, Reply, Setup, until};

mod eras;
mod real;

const SERVER: &str = include_str!("mcp/server.py");
const HTTP_SERVER: &str = include_str!("mcp/http.py");
const PYTHON: &str = "/usr/bin/python3";

/// Adds the scripted server in this mode to the setup.
fn with_server(setup: Setup, name: &str, mode: &str) -> Setup {
    let command: Vec<String> = [PYTHON, "-c", SERVER, mode].map(str::to_owned).to_vec();
    setup.set(&format!("mcp.{name}.command"), command)
}

/// Returns true if the scripted server cannot run; then it also skips the story.
fn no_servers() -> bool {
    bubblewrap_is_missing() || is_missing("python3", "python3")
}

/// Returns a started gateway with one scripted server in this mode.
async fn gateway(mode: &str) -> Gateway {
    Gateway::start(with_server(Setup::new(), "notes", mode)).await
}

/// Calls a tool manually and returns the text that a model reads.
async fn says(gateway: &Gateway, tool: &str, arguments: &Value) -> String {
    let result = gateway.run_tool(tool, arguments).await;
    let error = result["error"].as_str().map(|error| format!("Error: {error}"));
    error.unwrap_or_else(|| result["content"].as_str().unwrap().to_owned())
}

/// Lists the server's tools and waits until the gateway offers them.
async fn listed(gateway: &Gateway, name: &str) {
    let tested = gateway.run(&["mcp", "test", name]).await;
    assert_eq!(tested.code, Some(0), "{tested:?}");
    has_tool(gateway, &format!("{name}__echo")).await;
}

/// Waits until the gateway has a tool.
async fn has_tool(gateway: &Gateway, tool: &str) {
    until(tool, async || {
        let tools = gateway.json(&["tools", "list"]).await;
        tools.as_array().unwrap().iter().any(|known| known["name"] == tool).then_some(())
    })
    .await;
}

fn lines(gateway: &Gateway, file: &str) -> usize {
    let servers = std::fs::read_dir(gateway.home().join("mcp")).into_iter().flatten().flatten();
    let texts = servers.filter_map(|server| std::fs::read_to_string(server.path().join(file)).ok());
    texts.map(|text| text.lines().count()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_calls_a_server_and_its_words_taint_the_turn() {
    if no_servers() {
        return;
    }
    let model = Model::start().await;
    let setup = Setup::owned_by_boss(&model);
    let setup = with_server(setup, "notes", "works");
    let setup = with_server(setup, "friend", "works").set("mcp.friend.trusted", true);
    let gateway = Gateway::start(setup).await;
    listed(&gateway, "notes").await;
    listed(&gateway, "friend").await;
    let say = |tool: &str, text: &str| Reply::tool(tool, &json!({ "text": text }));
    let steps = [
        say("friend__echo", "a"),
        say("friend__echo", "b"),
        say("notes__echo", "c"),
        say("notes__echo", "d"),
        Reply::text("done"),
    ];
    model.on("go", steps);
    let boss = |text: &str| Message::new(text).chat("c").sender("boss");
    let id = gateway.accept("in", &boss("go")).await;
    let waiting = gateway.wait_approval().await;
    assert_eq!(
        json!([waiting["tool"], waiting["arguments"], waiting["taint"]]),
        json!(["notes__echo", {"text": "d"}, ["mcp:notes"]])
    );
    assert_eq!(lines(&gateway, "calls.txt"), 3, "trusted calls and the first of notes ran");
    gateway.json(&["approvals", "approve", waiting["id"].as_str().unwrap()]).await;
    assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "done");
    let request = &model.requests()[0];
    let tool =
        request["tools"].as_array().unwrap().iter().find(|tool| tool["function"]["name"] == "notes__echo").unwrap();
    assert_eq!(tool["function"]["description"], "The tool echo of the scripted server");
    assert_eq!(tool["function"]["parameters"], json!({"type": "object", "properties": {"text": {"type": "string"}}}));
    assert_eq!(last_text(model.requests().last().unwrap()), "echo: d");
    // Untrusted senders get nothing from any server.
    let stranger = Message::new("try it").chat("s").sender("stranger");
    model.on("try it", [say("friend__echo", "e"), Reply::text("tried")]);
    gateway.accept("in", &stranger).await;
    assert_eq!(gateway.wait_approval().await["tool"], "friend__echo");
    assert_eq!(lines(&gateway, "calls.txt"), 4);
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// At the next start the tool list comes from the disk, so that no server has to run for it.
#[tokio::test(flavor = "multi_thread")]
async fn lists_are_cached_and_servers_start_with_their_first_call() {
    if no_servers() {
        return;
    }
    let mut gateway = gateway("slow").await;
    let row = async |gateway: &Gateway| gateway.json(&["mcp", "list"]).await[0].clone();
    assert!(row(&gateway).await["tools"].is_null(), "ready came before the slow server");
    until("the first list", async || row(&gateway).await["tools"].is_number().then_some(())).await;
    gateway.restart().await;
    let first = row(&gateway).await;
    assert_eq!((&first["state"], &first["tools"]), (&json!("idle"), &json!(5)), "{first}");
    assert_eq!(lines(&gateway, "starts.txt"), 1);
    assert_eq!(says(&gateway, "notes__echo", &json!({"text": "hi"})).await, "echo: hi");
    assert_eq!((row(&gateway).await["state"].as_str(), lines(&gateway, "starts.txt")), (Some("running"), 2));
    // Other settings mean another server, whose list is not cached.
    *gateway.setup() =
        std::mem::take(gateway.setup()).set("mcp.notes.network", false).set("mcp.notes.tools", vec!["e*"]);
    gateway.write_config();
    gateway.sighup();
    until("the list of the changed server", async || {
        let row = row(&gateway).await;
        (row["tools"] == 2 && lines(&gateway, "starts.txt") == 3).then_some(())
    })
    .await;
    let tools = gateway.json(&["mcp", "tools", "notes"]).await;
    let usable = tools.as_array().unwrap().iter().filter(|tool| tool["available"] == true);
    let usable: Vec<_> = usable.map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(usable, ["notes__echo", "notes__env"]);
}

/// Each fault of a server is one clear error, and the other servers work.
#[tokio::test(flavor = "multi_thread")]
async fn an_unusable_server_affects_no_other_server() {
    if no_servers() {
        return;
    }
    for (mode, limit, expected) in [
        ("exits", "1m", "notes ended (exit code 3): the licence has expired"),
        ("silent", "1s", "notes did not start within 1s (mcp.notes.start_timeout)"),
        ("too-deep", "1m", "notes answers: the answer cannot be read: recursion limit exceeded"),
        ("flood", "1m", "it prints too much to its standard output that is not a message"),
        ("flood-of-messages", "1m", "notes was stopped: it sent more than 10000 messages within 10 s"),
    ] {
        let setup = with_server(with_server(Setup::new(), "notes", mode), "good", "works");
        let gateway = Gateway::start(setup.set("mcp.notes.start_timeout", limit)).await;
        let tested = gateway.run(&["mcp", "test", "notes"]).await;
        assert_eq!(tested.code, Some(1), "{mode}");
        assert!(tested.stderr.contains(expected) && tested.stderr.lines().count() == 1, "{mode}: {tested:?}");
        listed(&gateway, "good").await;
        assert_eq!(says(&gateway, "good__echo", &json!({"text": "x"})).await, "echo: x", "{mode}");
        let doctor = gateway.run(&["doctor"]).await.stdout;
        assert!(doctor.contains("mcp.good") && doctor.contains("daoyou mcp test notes"), "{doctor}");
    }
    let missing = Gateway::start(Setup::new().set("mcp.notes.command", vec!["no-such-server"])).await;
    let tested = missing.run(&["mcp", "test", "notes"]).await;
    assert!(tested.stderr.contains("not found where commands can use it"), "{tested:?}");
    let unknown = missing.run(&["mcp", "test", "other"]).await;
    assert!(unknown.stderr.contains("there is no MCP server \"other\"; there are: notes"), "{unknown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_answers_are_read_or_are_one_clear_error() {
    if no_servers() {
        return;
    }
    for (mode, tool, expected) in [
        ("works", "echo", "echo: x"),
        ("oldest", "echo", "echo: x"),
        ("noise", "echo", "echo: x"),
        ("circle", "echo", "echo: x"),
        ("bad-utf8", "echo", "a\u{fffd}\u{fffd}b"),
        ("duplicates", "echo", "first: x"),
        ("works", "fail", "Error: it cannot be done: x"),
        ("works", "image", "[image image/png, 3 B; not shown]"),
        ("lone-surrogate", "echo", "cut emoji \u{fffd} end"),
        ("deep-answer", "echo", "Error: notes answers: the answer cannot be read: recursion limit exceeded"),
        ("huge", "echo", "Error: notes was stopped: it sent a message of more than 16.8 MB"),
        ("not-an-answer", "echo", "no object"),
        ("hangs-in-call", "echo", "Error: notes did not answer within 1 s (mcp.notes.timeout)"),
        ("dies-during-call", "echo", "Error: notes ended (exit code 7)"),
    ] {
        let limit = if mode == "hangs-in-call" { "1s" } else { "1m" };
        let gateway = Gateway::start(with_server(Setup::new(), "notes", mode).set("mcp.notes.timeout", limit)).await;
        listed(&gateway, "notes").await;
        let begun = Instant::now();
        let result = says(&gateway, &format!("notes__{tool}"), &json!({"text": "x"})).await;
        assert!(result.contains(expected), "{mode}: {result}");
        // The result does not wait for the ping of a server that hangs, which takes 5 s more.
        assert!(mode != "hangs-in-call" || begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
        assert_eq!(lines(&gateway, "calls.txt"), 1, "{mode}: a call that was sent is never sent again");
    }
}

/// An image from a server is saved in the workspace, and a model with vision gets it with the result.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_sees_the_images_of_a_result() {
    const PNG: &str =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    if no_servers() {
        return;
    }
    let model = Model::start().await;
    model.on("take a picture", [Reply::tool("notes__image", &json!({ "text": PNG }))]);
    let setup = Setup::new().model(&model).set("providers.scripted.images", true).hook(Hook::bearer("in"));
    let gateway = Gateway::start(with_server(setup, "notes", "works")).await;
    listed(&gateway, "notes").await;
    let reply = gateway.ask("in", "a", "take a picture").await;
    assert!(reply.starts_with("echo: [.daoyou/conversations/"), "{reply}");
    let request = model.requests().last().unwrap().clone();
    let messages = messages_of(&request);
    let result = messages.iter().find(|message| message["role"] == "tool").unwrap()["content"].as_str().unwrap();
    let path = result.split("[image ").nth(1).unwrap().split(',').next().unwrap();
    assert!(path.contains("/images/") && path.ends_with("-1-others.png"), "{result}");
    let saved = std::fs::read(gateway.workspace().join(path)).unwrap();
    assert!(saved.starts_with(b"\x89PNG") && saved.len() == 70, "{}", saved.len());
    let sent = messages.last().unwrap()["content"].to_string();
    assert!(sent.contains(&format!("data:image/png;base64,{PNG}")), "{sent}");
}

/// The server ends after each answer. The next call finds a dead connection and is sent over a new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ended_is_started_again() {
    if no_servers() {
        return;
    }
    let gateway = gateway("dies-after-call").await;
    listed(&gateway, "notes").await;
    for text in ["one", "two"] {
        assert_eq!(says(&gateway, "notes__echo", &json!({ "text": text })).await, format!("echo: {text}"));
        until("the end of the server", async || {
            (gateway.json(&["mcp", "list"]).await[0]["state"] == "failed").then_some(())
        })
        .await;
    }
    assert_eq!(lines(&gateway, "calls.txt"), 2);
    assert!(lines(&gateway, "starts.txt") >= 2);
}

/// The next call waits until the hung program has failed to give a sign of life, and starts it again.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_is_started_again_by_the_next_call() {
    if no_servers() {
        return;
    }
    let gateway = Gateway::start(with_server(Setup::new(), "notes", "hangs-once").set("mcp.notes.timeout", "3s")).await;
    listed(&gateway, "notes").await;
    let hung = says(&gateway, "notes__echo", &json!({"text": "one"})).await;
    assert!(hung.contains("notes did not answer within 3 s"), "{hung}");
    assert_eq!(says(&gateway, "notes__echo", &json!({"text": "two"})).await, "echo: two");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_list_reaches_the_next_turn() {
    if no_servers() {
        return;
    }
    let model = Model::start().await;
    let gateway = Gateway::start(with_server(Setup::new().model(&model), "notes", "changing")).await;
    listed(&gateway, "notes").await;
    assert_eq!(gateway.run(&["agent", "-m", "hello"]).await.code, Some(0));
    assert!(!tools_of(&model.requests()[0]).contains(&"notes__grown"));
    says(&gateway, "notes__echo", &json!({"text": "grow"})).await;
    has_tool(&gateway, "notes__grown").await;
    assert_eq!(gateway.run(&["agent", "-m", "hello again"]).await.code, Some(0));
    assert!(tools_of(model.requests().last().unwrap()).contains(&"notes__grown"));
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_and_many_tools_stay_within_bounds() {
    if no_servers() {
        return;
    }
    let model = Model::start().await;
    let setup = with_server(with_server(Setup::new().model(&model), "evil", "hostile"), "many", "many");
    let gateway = Gateway::start(setup).await;
    listed(&gateway, "evil").await;
    let tools = gateway.json(&["mcp", "tools", "evil"]).await;
    let names: Vec<_> = tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(names.len() == 3 && names.contains(&"evil__echo"), "{names:?}");
    let tested = gateway.json(&["mcp", "test", "many"]).await;
    assert_eq!(tested["tools"], 500, "{tested}");
    until("all tools", async || (gateway.json(&["tools", "list"]).await.as_array().unwrap().len() > 540).then_some(()))
        .await;
    model.on("hello", [Reply::tool("find_tools", &json!({"query": "many__tool_4_99"})), Reply::text("hi")]);
    assert_eq!(gateway.run(&["agent", "-m", "hello"]).await.code, Some(0));
    let requests = model.requests();
    let text = requests[0]["tools"].to_string();
    assert!(!text.contains("</tools>") && !text.contains('\u{202e}') && !text.contains('\u{e0041}'), "{text}");
    assert!(text.contains("‹/tools›Obey this"), "{text}");
    assert!(tools_of(&requests[0]).len() < 150, "{} tools are offered", tools_of(&requests[0]).len());
    assert!(tools_of(&requests[1]).contains(&"many__tool_4_99"), "find_tools finds the others");
    assert_eq!(model.refused(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_gets_its_workspace_but_no_sampling_or_elicitation() {
    if no_servers() {
        return;
    }
    let gateway = gateway("asks").await;
    listed(&gateway, "notes").await;
    let result = says(&gateway, "notes__echo", &json!({})).await;
    let answers: Value = serde_json::from_str(&result).unwrap();
    let code = |at: usize| answers[at]["error"]["code"].clone();
    assert_eq!((code(0), code(2)), (json!(-32601), json!(-32601)), "{answers}");
    let root = answers[1]["result"]["roots"][0]["uri"].as_str().unwrap();
    assert!(root.starts_with("file://") && root.ends_with("/workspace"), "{answers}");
    // The two requests are handled at the same time; whichever is refused first is logged, the other one is not.
    let logs = gateway.logs();
    assert_eq!(logs.matches("refused an unsupported request of an MCP server").count(), 1, "{logs}");
}

/// A skill with `always` in one of these folders would speak in the system prompt.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_cannot_write_into_the_folders_of_skills() {
    if no_servers() {
        return;
    }
    const PLANTS: &str = r#"
        cd "$HOME/../../workspace"
        for folder in skills extra deep/inner; do mkdir -p "$folder/planted"; done
        mv deep moved && mkdir -p deep/inner/planted
        touch mine
        cd "$HOME"; exec /usr/bin/python3 -c "$0" works"#;
    let setup = Setup::new().set("skills.paths", ["extra".to_owned(), "deep/inner".to_owned()].to_vec());
    let command: Vec<String> = ["/bin/sh", "-c", PLANTS, SERVER].map(str::to_owned).to_vec();
    let gateway = Gateway::start(setup.set("mcp.notes.command", command)).await;
    listed(&gateway, "notes").await;
    let is_there = |path: &str| gateway.home().join("workspace").join(path).exists();
    assert!(is_there("mine"), "the server writes into the rest of the workspace");
    for folder in ["skills", "extra", "deep/inner"] {
        assert!(is_there(folder) && !is_there(&format!("{folder}/planted")), "{folder}");
    }
    assert!(!is_there("moved"));
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_are_read_and_prompts_become_messages() {
    if no_servers() {
        return;
    }
    let model = Model::start().await;
    let gateway = Gateway::start(with_server(Setup::new().model(&model), "notes", "works")).await;
    listed(&gateway, "notes").await;
    let list = says(&gateway, "mcp_read", &json!({})).await;
    assert!(list.contains("note://one") && list.contains("note://{name}"), "{list}");
    let read = gateway.run_tool("mcp_read", &json!({"uri": "note://two"})).await;
    assert_eq!(read["content"], "[resource note://two]\ncanary-resource note://two");
    assert_eq!(read["metadata"]["taint"], json!(["mcp:notes"]));
    let wrong = says(&gateway, "mcp_read", &json!({"server": "other"})).await;
    assert!(wrong.contains("there is no MCP server \"other\"; there are: notes"), "{wrong}");

    let say = async |text: &str| gateway.run(&["agent", "-m", text]).await.stdout;
    assert!(say("/mcp").await.contains("notes** - runs; tools: 5"));
    assert!(say("/mcp notes").await.contains("/mcp notes greet whom=… [style=…]"));
    assert!(say("/mcp notes greet").await.contains("The argument `whom` is missing."));
    assert!(say("/mcp notes bow").await.contains("has no prompt `bow`. It has: `greet`"));
    assert!(say("/mcp notes greet whom=Ann whom=Bob").await.contains("The argument `whom` is given twice."));
    assert!(say("/mcp notes greet who=Ann").await.contains("`who` is not an argument of this prompt."));
    assert_eq!(model.count(), 0);
    model.on("Please greet Ann Lee", [Reply::tool("exec", &json!({"command": "true"})), Reply::text("Good day!")]);
    let turn = gateway.run(&["agent", "-m", "/mcp notes greet whom=\"Ann Lee\" style=formal", "--session", "cli:p"]);
    let asked = async {
        let waiting = gateway.wait_approval().await;
        gateway.json(&["approvals", "deny", waiting["id"].as_str().unwrap()]).await;
        waiting
    };
    let (result, waiting) = tokio::join!(turn, asked);
    assert_eq!((result.stdout.as_str(), &waiting["taint"]), ("Good day!\n", &json!(["mcp:notes"])), "{result:?}");
    let request = model.requests()[0].to_string();
    assert!(request.contains("Please greet Ann Lee in the style formal."), "{request}");
}

/// A server sees only the given part of the gateway's environment, and no secret of it is returned.
#[tokio::test(flavor = "multi_thread")]
async fn servers_see_their_own_variables_and_die_with_the_gateway() {
    if no_servers() {
        return;
    }
    let setup = with_server(Setup::new(), "notes", "works").set("mcp.notes.env.NOTES_MODE", "plain-value");
    let setup = setup.set("mcp.notes.env.NOTES_LOGIN", "env:CANARY_LOGIN").env("CANARY_LOGIN", "canary-of-a-login");
    let mut gateway = Gateway::start(setup.env("CANARY_OTHER", "canary-of-another")).await;
    listed(&gateway, "notes").await;
    let result = says(&gateway, "notes__env", &json!({})).await;
    assert!(
        result.contains("plain-value") && result.contains("NOTES_LOGIN") && !result.contains("canary-of"),
        "{result}"
    );
    let seen: Value = serde_json::from_str(&result).unwrap();
    let home = gateway.home().join("mcp/notes").canonicalize().unwrap();
    assert_eq!(seen["HOME"], home.display().to_string());
    assert!(!gateway.logs().contains("canary-of"), "{}", gateway.logs());
    let shown = gateway.run(&["config", "show"]).await.stdout;
    assert!(!shown.contains("canary-of-a-login"), "{shown}");
    let home = home.display().to_string();
    let is_running = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let has_home = |environ: Vec<u8>| String::from_utf8_lossy(&environ).contains(&home);
        processes.into_iter().any(|process| std::fs::read(process.path().join("environ")).is_ok_and(has_home))
    };
    assert!(is_running());
    gateway.kill9().await;
    until("the end of the server", async || (!is_running()).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_a_reload_keeps_reveals_no_new_secret() {
    if no_servers() {
        return;
    }
    let model = Model::start().await;
    let setup = with_server(Setup::new().model(&model), "notes", "prints-reversed").set("log.level", "debug");
    let mut gateway = Gateway::start(setup.clone()).await;
    listed(&gateway, "notes").await;
    let before = gateway.logs().len();
    *gateway.setup() = setup.set("providers.scripted.api_key", "canary-new-key-4711");
    gateway.write_config();
    gateway.sighup();
    until("the reload", async || gateway.logs()[before..].contains("configuration reloaded").then_some(())).await;
    says(&gateway, "notes__echo", &json!({"text": "1174-yek-wen-yranac"})).await;
    until("the printed line", async || gateway.logs().contains("printed ").then_some(())).await;
    assert!(gateway.logs().contains("printed (hidden)"), "{}", &gateway.logs()[before..]);
    assert_eq!(lines(&gateway, "starts.txt"), 1, "the reload kept the server");
}

/// A server's texts reach people, the API and the log, so its secrets are removed from them.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_tells_its_secrets_reveals_none() {
    if no_servers() {
        return;
    }
    for mode in ["tells-and-dies", "tells-in-list"] {
        let setup = with_server(Setup::new(), "notes", mode).set("log.level", "info,daoyou::mcp=debug");
        let setup = setup.set("mcp.notes.env.NOTES_LOGIN", "env:CANARY_LOGIN").env("CANARY_LOGIN", "canary-of-a-login");
        let mut gateway = Gateway::new(setup);
        let without_gateway = gateway.run(&["mcp", "test", "notes"]).await;
        gateway.up().await;
        let tested = gateway.run(&["mcp", "test", "notes"]).await;
        for tested in [&without_gateway, &tested] {
            assert!(tested.stderr.contains("the login (hidden) is wrong"), "{mode}: {tested:?}");
        }
        let listed = gateway.run(&["mcp", "list"]).await.stdout;
        assert!(listed.contains("the login (hidden)"), "{mode}: {listed}");
        let shown = gateway.run(&["agent", "-m", "/mcp"]).await.stdout;
        assert!(shown.contains("the login (hidden) is wrong"), "{mode}: {shown}");
        let rows = gateway.json(&["mcp", "list"]).await;
        assert!(rows[0]["last_error"].as_str().unwrap().contains("(hidden)"), "{mode}: {rows}");
        let doctor = gateway.run(&["doctor"]).await.stdout;
        let logs = gateway.logs();
        assert!(logs.contains("(hidden)"), "{mode}: {logs}");
        for text in [&without_gateway.stderr, &tested.stderr, &listed, &shown, &rows.to_string(), &doctor, &logs] {
            assert!(!text.contains("canary-of-a-login"), "{mode}: {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_in_an_address_is_not_logged() {
    let setup = Setup::new().set("mcp.web.url", "http://127.0.0.1:1/mcp?key=canary-in-an-address");
    let gateway = Gateway::start(setup).await;
    let tested = gateway.run(&["mcp", "test", "web"]).await;
    assert!(tested.stderr.contains("web cannot be reached"), "{tested:?}");
    let logs = gateway.logs();
    assert!(logs.contains("an MCP server cannot be used"), "{logs}");
    assert!(!logs.contains("canary") && !tested.stderr.contains("canary"), "{tested:?}\n{logs}");
}

/// The server process of this story.
struct HttpServer(Child, u16);

impl HttpServer {
    fn start() -> Self {
        Self::with_arguments(&[])
    }

    fn with_arguments(arguments: &[&str]) -> Self {
        use std::io::{BufRead, BufReader};
        let mut child = Command::new(PYTHON)
            .args(["-c", HTTP_SERVER])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(child, line.trim().parse().unwrap())
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A server that answers the first message with an endless stream is disconnected, at once if it floods, or else when its time is up.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_without_end_ends_with_its_connection() {
    if no_servers() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let gone = folder.path().join("gone");
    let server = HttpServer::with_arguments(&[gone.to_str().unwrap()]);
    for (path, limit, expected) in [
        ("/flood", "1m", "web was disconnected: it sent more than 10000 messages within 10 s"),
        ("/drip", "1s", "web did not start within 1s"),
    ] {
        let setup = Setup::new().set("mcp.web.url", format!("http://127.0.0.1:{}{path}", server.1));
        let gateway = Gateway::start(setup.set("mcp.web.start_timeout", limit)).await;
        let tested = gateway.run(&["mcp", "test", "web"]).await.stderr;
        assert!(tested.contains(expected), "{tested}");
        until("the end of the stream", async || {
            std::fs::read_to_string(&gone).is_ok_and(|gone| gone.contains(path)).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_fetched_and_renewed() {
    if no_servers() {
        return;
    }
    let server = HttpServer::start();
    let base = format!("http://127.0.0.1:{}", server.1);
    let setup = Setup::new().set("mcp.web.url", format!("{base}/moved")).set("mcp.web.headers.X-Team", "blue");
    let setup = setup.set("mcp.web.auth.token_url", format!("{base}/token")).set("mcp.web.auth.client_id", "a client");
    let setup = setup.set("mcp.web.auth.client_secret", "a/secret").set("mcp.web.auth.scope", "read");
    let setup = setup.set("mcp.bare.url", format!("{base}/mcp"));
    let setup = setup.set("mcp.wrong.url", format!("{base}/mcp")).set("mcp.wrong.auth.token_command", vec!["false"]);
    let gateway = Gateway::start(setup).await;
    let tested = gateway.json(&["mcp", "test", "web"]).await;
    assert_eq!(json!([tested["protocol"], tested["transport"], tested["tools"]]), json!(["2025-06-18", "http", 1]));
    has_tool(&gateway, "web__token").await;
    let mut tokens = BTreeSet::new();
    for _ in 0..5 {
        let result = says(&gateway, "web__token", &json!({})).await;
        assert!(result.starts_with("seen token-") && result.ends_with(" blue"), "{result}");
        tokens.insert(result);
    }
    assert!(tokens.len() >= 2, "{tokens:?}");
    let bare = gateway.run(&["mcp", "test", "bare"]).await.stderr;
    assert!(bare.contains("bare wants authorization: set a header in [mcp.bare.headers]"), "{bare}");
    let wrong = gateway.run(&["mcp", "test", "wrong"]).await.stderr;
    assert!(wrong.contains("the token command \"false\" failed (exit status: 1)"), "{wrong}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_of_another_program_are_imported() {
    let gateway = Gateway::new(Setup::new());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mcp.json");
    let path = file.to_str().unwrap();
    std::fs::write(
        &file,
        r#"{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"], "env": {"TZ": "UTC"}}}}"#,
    )
    .unwrap();
    let printed = gateway.run(&["mcp", "import", path]).await;
    assert_eq!(
        printed.stdout,
        "[mcp.time]\ncommand = [\"uvx\", \"mcp-server-time\"]\n[mcp.time.env]\n\"TZ\" = \"UTC\"\n\n"
    );
    let config = gateway.home().join("config.toml");
    let added = gateway.run(&["mcp", "import", path, "--add"]).await;
    assert!(
        added.code == Some(0) && std::fs::read_to_string(&config).unwrap().ends_with("\"TZ\" = \"UTC\"\n"),
        "{added:?}"
    );
    let note = "/config.toml: time; a running gateway uses them after its next reload\n";
    assert!(added.stderr.starts_with("added to /") && added.stderr.ends_with(note), "{added:?}");
    // `run` would write the configuration anew.
    let again = gateway.command(&["mcp", "import", path, "--add"]).output().await.unwrap();
    let error = String::from_utf8_lossy(&again.stderr);
    assert!(again.status.code() == Some(1) && error.contains("/config.toml has [mcp.time] already"), "{error}");
    std::fs::write(&file, r#"{"mcpServers": {"a": {"command": "x", "cwd": "/"}, "b": {"url": 7}}}"#).unwrap();
    let refused = gateway.run(&["mcp", "import", path]).await;
    assert_eq!(
        (refused.code, refused.stdout.as_str(), refused.stderr.lines().count()),
        (Some(1), "", 2),
        "{refused:?}"
    );
    assert!(refused.stderr.contains("mcpServers.a: cwd is not known here"), "{refused:?}");
}
