//! The tools of language servers, with a scripted server that has each fault, and with real servers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use daoyou::chat::ToolCall;
use daoyou::guard::SandboxMode;
use daoyou::tools::{
    ExecConfig, LspConfig, PrivateFolders, ToolContext, ToolDeps, ToolExecutor, ToolResult, ToolsConfig, build,
};
use daoyou_channels::Trust;
use daoyou_channels::settings::HumanDuration;
use serde_json::{Value, json};

use crate::support::model::last_text;
use crate::support::processes::is_running;
use crate::support::requirements::{bubblewrap_is_missing, is_missing, sandbox_is_missing, skip_story};
use crate::support::{Gateway, Model, Reply, Setup, tool_context, until, write_file};

mod real;
mod rename;

const BINARY: &str = env!("CARGO_BIN_EXE_daoyou");
const SERVER: &str = include_str!("lsp/server.py");
const PYTHON: &str = "/usr/bin/python3";
/// The environment variables that servers see.
const ENVIRONMENT: [&str; 20] = [
    "PYTHONDONTWRITEBYTECODE", "PATH", "LANG", "TERM", "TZ", "USER", "HOME", "TMPDIR", "XDG_CACHE_HOME",
    "CARGO_NET_OFFLINE", "GOPROXY", "GOTOOLCHAIN", "CARGO_HOME", "RUSTUP_HOME", "GOMODCACHE", "PWD", "OLDPWD", "SHLVL",
    "_", "SHELL",
];
/// Two files that use a function, one of them with wide characters before it.
const FILES: [(&str, &str); 4] = [
    ("go.mod", "module x\n"),
    ("a.go", "func 道友() {}\nfunc old() {}\n// TODO old 😀 TODO\n"),
    ("sub/b.go", "/* 😀道 */ old(old)\r\n道友()\r\n"),
    ("c.txt", "plain\n"),
];

/// Returns true if the scripted server cannot run; then it also skips the story.
fn python_is_missing() -> bool {
    let is_missing = !Path::new(PYTHON).exists();
    if is_missing {
        skip_story(&format!("there is no {PYTHON} (package python3)"));
    }
    is_missing
}

/// A workspace with files, and its tools.
struct Harness {
    home: tempfile::TempDir,
    executor: ToolExecutor,
}

impl Harness {
    /// Returns a harness with the scripted server in this mode; if there is no sandbox, skips the story and returns `None`.
    fn scripted(mode: &str) -> Option<Self> {
        Self::with_lsp(mode, |_| {})
    }

    fn with_lsp(mode: &str, change: impl FnOnce(&mut LspConfig)) -> Option<Self> {
        if python_is_missing() {
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let server = home.path().join("workspace/server.py").display().to_string();
        let command = vec![PYTHON.to_owned(), server, mode.to_owned()];
        let mut lsp = LspConfig { servers: BTreeMap::from([("go".to_owned(), command)]), ..LspConfig::default() };
        change(&mut lsp);
        let files = FILES.into_iter().chain([("server.py", SERVER)]);
        Self::build(home, files, &ToolsConfig { lsp, ..ToolsConfig::default() })
    }

    fn build<'a>(
        home: tempfile::TempDir,
        files: impl IntoIterator<Item = (&'a str, &'a str)>,
        config: &ToolsConfig,
    ) -> Option<Self> {
        if config.exec.sandbox != SandboxMode::Off && sandbox_is_missing() {
            return None;
        }
        let workspace = home.path().join("workspace");
        for (path, text) in files {
            write_file(workspace.join(path), text);
        }
        let deps = ToolDeps { private: PrivateFolders::new(&["memory"]), ..ToolDeps::default() };
        let executor = build(config, &workspace, home.path(), PathBuf::from(BINARY), deps).unwrap();
        Some(Self { home, executor })
    }

    fn path(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.home.path().join("workspace")).unwrap().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        write_file(self.path(name), text);
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    async fn run(&self, name: &str, arguments: Value, context: &ToolContext) -> ToolResult {
        let call = ToolCall { id: "call-1".to_owned(), name: name.to_owned(), arguments: arguments.to_string() };
        self.executor.run(&call, context).await.result
    }

    /// Returns the text that the model reads, without the advice after errors.
    async fn says(&self, name: &str, arguments: Value) -> String {
        let text = self.run(name, arguments, &tool_context(Trust::Owner)).await.render();
        text.split("\n\n[Please analyze").next().unwrap().to_owned()
    }

    /// Requests the definition of `old` in `sub/b.go`.
    async fn definition(&self) -> String {
        self.says("lsp_definition", json!({"path": "sub/b.go", "line": 1, "character": 10})).await
    }

    /// Returns the values that the scripted server recorded under a key.
    fn noted(&self, key: &str) -> Vec<Value> {
        let log = fs::read_to_string(self.path("server.log")).unwrap_or_default();
        let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter_map(|line| line.get(key).cloned()).collect()
    }

    /// Returns true if a process of this harness is running.
    fn is_running(&self) -> bool {
        is_running(self.home.path().join("workspace/server.py").to_str().unwrap())
    }
}

const FOUND: &str = "a.go:2:6: func old() {}";

#[tokio::test(flavor = "multi_thread")]
async fn places_are_found_in_every_encoding() {
    for mode in ["utf16", "utf8"] {
        let Some(harness) = Harness::scripted(mode) else { return };
        assert_eq!(harness.definition().await, FOUND);
        let references = json!({"file_path": "sub/b.go", "line": "1", "character": 15});
        let expected = "a.go:2:6: func old() {}\na.go:3:9: // TODO old 😀 TODO\n\
                        sub/b.go:1:10: /* 😀道 */ old(old)\nsub/b.go:1:14: /* 😀道 */ old(old)";
        assert_eq!(harness.says("lsp_find_references", references).await, expected, "{mode}");
        for (line, character, expected) in [
            (9, 1, "Error: there is no line 9: the file has 2 lines"),
            (1, 99, "Error: there is no character 99 in line 1: it has 17 characters"),
        ] {
            let place = json!({"path": "sub/b.go", "line": line, "character": character});
            assert_eq!(harness.says("lsp_definition", place).await, expected);
        }
        assert_eq!(
            harness.says("lsp_definition", json!({"path": "a.go", "line": 3, "character": 1})).await,
            "No definition found."
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn diagnostics_symbols_and_fixes_are_listed() {
    for mode in ["publish", "pull"] {
        let Some(harness) = Harness::scripted(mode) else { return };
        let todo = "a.go:3:4 warning [todo] // TODO old 😀 TODO\n[1 warning]";
        assert_eq!(harness.says("lsp_diagnostics", json!({"path": "a.go"})).await, todo, "{mode}");
        assert_eq!(harness.says("lsp_diagnostics", json!({"path": "a.go"})).await, todo, "{mode}");
        harness.write("a.go", "func 道友() {}\n\n\n/*道*/ TODO\n");
        let changed = "a.go:4:7 warning [todo] /*道*/ TODO\n[1 warning]";
        assert_eq!(harness.says("lsp_diagnostics", json!({"path": "a.go"})).await, changed, "{mode}");
        assert_eq!(harness.says("lsp_diagnostics", json!({"path": "sub/b.go"})).await, "sub/b.go: no diagnostics");
        assert_eq!(harness.says("lsp_symbols", json!({"path": "a.go"})).await, "1: function 道友");
        assert_eq!(harness.says("lsp_symbols", json!({"path": "a.go", "query": "x"})).await, "No symbol found.");
        let named = json!({"path": ".", "query": "道"});
        assert_eq!(harness.says("lsp_symbols", named).await, "a.go:1:6: function f");
        assert_eq!(
            harness.says("lsp_symbols", json!({"path": "sub"})).await,
            "Error: the symbols of a project are found by name: query is missing"
        );
        let place = json!({"path": "a.go", "line": 4, "character": 8});
        assert_eq!(harness.says("lsp_code_actions", place).await, "1. [quickfix] Fix todo\n2. [source] Sort");
        let place = json!({"path": "a.go", "line": 1, "character": 1});
        assert_eq!(harness.says("lsp_code_actions", place).await, "1. [source] Sort");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_folder_of_other_conversations_is_hidden_from_the_next_answer() {
    let Some(harness) = Harness::scripted("works") else { return };
    if bubblewrap_is_missing() {
        return;
    }
    assert_eq!(harness.definition().await, FOUND);
    harness.write("mail/m.go", "func old() {}\n");
    for _ in 0..2 {
        assert_eq!(harness.definition().await, FOUND);
        assert_eq!((harness.noted("started").len(), harness.noted("shutdown").len()), (2, 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_sends_the_current_content_of_files() {
    let Some(harness) = Harness::scripted("works") else { return };
    assert_eq!(harness.definition().await, FOUND);
    harness.write("a.go", "\n\nfunc old() {}\n");
    assert_eq!(harness.definition().await, "a.go:3:6: func old() {}");
    harness.write("new/d.go", "func old() {}\n");
    fs::remove_file(harness.path("a.go")).unwrap();
    assert_eq!(harness.definition().await, "new/d.go:1:6: func old() {}");
    assert_eq!(harness.noted("changes"), [json!([["a.go", 2]]), json!([["a.go", 3], ["d.go", 1]])]);
    assert_eq!(harness.noted("started").len(), 1);
    assert_eq!(harness.noted("pid"), [Value::Null]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_misbehaves_gives_one_clear_error() {
    let short: fn(&mut LspConfig) = |config| {
        (config.startup_timeout, config.timeout) = (HumanDuration::from_secs(5), HumanDuration::from_secs(2));
    };
    for (mode, expected) in [
        ("noise", FOUND),
        ("duplicates", "No definition found."),
        ("asks", FOUND),
        ("indexing", "a.go:2:6: func old() {}\n[python3 still reads the project: something may be missing]"),
        ("shows-early", "a.go:2:6: func old() {}\n[python3 still reads the project: something may be missing]"),
        ("dies", "Error: python3 ended (exit code 3): no license found"),
        ("dies-once", FOUND),
        ("crash", "Error: python3 ended (exit code 7): panic: no more memory"),
        ("silent", "Error: python3 did not answer initialize within 5 seconds"),
        ("slow", "Error: python3 did not answer textDocument/definition within 2 seconds"),
        ("garbage", "Error: python3 was stopped: it sent an invalid message"),
        ("binary", "Error: python3 was stopped: its output is not that of a language server"),
        ("huge", "Error: python3 was stopped: it sent a message of 50 MB, and at most 8 MB are read"),
        ("flood", "Error: python3 was stopped: it asks without reading the answers"),
        ("wrong", "Error: python3 returned invalid places"),
        ("fault", "Error: python3 answers: no such thing"),
        ("poor", "Error: python3 cannot do this: it finds no definitions"),
    ] {
        let waits = ["indexing", "shows-early", "silent", "slow"].contains(&mode);
        let limits: fn(&mut LspConfig) = if waits { short } else { |_| {} };
        let Some(harness) = Harness::with_lsp(mode, limits) else { return };
        let result = harness.definition().await;
        assert!(result.starts_with(expected), "{mode}: {result}");
        match mode {
            "asks" => {
                let answers = harness.noted("result");
                let root = format!("file://{}", harness.path("").display());
                let folder = json!([{"uri": root.trim_end_matches('/'), "name": "workspace"}]);
                let refused = json!({"applied": false, "failureReason": "only an edit that was asked for is applied"});
                let expected =
                    [json!([null, null]), json!(null), refused, json!(null), json!(null), folder, json!(null)];
                assert_eq!(answers, expected);
                assert_eq!(harness.noted("error")[6]["code"], -32601);
            }
            "slow" => {
                until("the cancellation", async || (harness.noted("cancelled") == [json!("slow")]).then_some(())).await;
            }
            "indexing" | "shows-early" => {
                let rename = json!({"path": "a.go", "line": 2, "character": 7, "new_name": "new"});
                let result = harness.says("lsp_rename", rename).await;
                assert!(result.contains("may not know all places; nothing was changed"), "{result}");
            }
            // Each attempt starts a server.
            "crash" => assert_eq!(harness.noted("started").len(), 3),
            _ => {}
        }
        // A stopped server leaves no process.
        let lives = matches!(
            mode,
            "noise"
                | "duplicates"
                | "asks"
                | "indexing"
                | "shows-early"
                | "dies-once"
                | "slow"
                | "wrong"
                | "fault"
                | "poor"
        );
        until("the end of the server", async || (harness.is_running() == lives).then_some(())).await;
        assert!(harness.says("read_file", json!({"path": "c.txt"})).await.contains("plain"), "{mode}");
    }
    let Some(harness) = Harness::with_lsp("mute", short) else { return };
    let result = harness.says("lsp_diagnostics", json!({"path": "a.go"})).await;
    assert_eq!(result, "Error: python3 sent no diagnostics of a.go in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_reports_its_readiness_is_awaited() {
    let Some(harness) = Harness::with_lsp("status", |lsp| {
        let command = lsp.servers.remove("go").unwrap();
        lsp.servers.insert("rust".to_owned(), command);
    }) else {
        return;
    };
    harness.write("a.rs", "func old() { old }\n");
    let result = harness.says("lsp_definition", json!({"path": "a.rs", "line": 1, "character": 14})).await;
    assert_eq!(result, "a.go:2:6: func old() {}\na.rs:1:6: func old() { old }");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_problem_that_a_server_reports_is_noted_in_results() {
    for (mode, report, renames) in [
        ("shows", "reports a problem with the project or its libraries", true),
        ("error", "reports that it could not load the project", false),
        ("warning", "reports a problem with the project or its libraries", true),
    ] {
        let Some(harness) = Harness::scripted(mode) else { return };
        let note = format!("[python3 {report}: something may be missing]");
        let result = harness.says("lsp_references", json!({"path": "a.go", "line": 2, "character": 6})).await;
        assert!(result.starts_with("a.go:2:6: ") && result.ends_with(&note), "{result}");
        let place = json!({"path": "a.go", "line": 2, "character": 6, "new_name": "new"});
        let result = harness.says("lsp_rename", place).await;
        let refused = format!("python3 {report}, so it may not know all places; nothing was changed");
        assert!(if renames { result.ends_with(&note) } else { result.contains(&refused) }, "{result}");
        assert_eq!(harness.text("a.go") != FILES[1].1, renames, "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_paths_and_missing_servers_are_named() {
    let Some(harness) = Harness::with_lsp("works", |lsp| {
        lsp.servers.insert("c".to_owned(), vec!["no-such-server".to_owned()]);
    }) else {
        return;
    };
    harness.write("x.c", "int x;\n");
    harness.write("memory/m.go", "func old() {}\n");
    harness.write("mail/m.go", "func old() {}\n");
    harness.write("bin.go", "a\0b");
    harness.write("big.go", &"// x\n".repeat(500_000));
    for (path, expected) in [
        ("gone.go", "gone.go: no such file"),
        ("sub", "sub is a folder; name a file"),
        ("c.txt", "c.txt: no language server is known for this kind of file; known are rs, py"),
        ("../outside.go", "outside the workspace"),
        ("/etc/passwd", "outside the workspace"),
        ("", "path"),
        ("x.c", "no-such-server of tools.lsp.servers is not a program"),
        ("memory/m.go", "language servers serve all conversations, so they do not see this folder"),
        ("mail/m.go", "language servers serve all conversations, so they do not see this folder"),
        ("bin.go", "a binary file, not text"),
        ("big.go", "big.go: language servers get files of at most 2 MB"),
    ] {
        let result = harness.says("lsp_diagnostics", json!({ "path": path })).await;
        assert!(result.starts_with("Error: ") && result.contains(expected), "{path}: {result}");
    }
    let result = harness.says("lsp_symbols", json!({"path": "/"})).await;
    assert!(result.contains("outside the workspace"), "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_other_conversations_are_left_out_of_results() {
    let Some(harness) = Harness::scripted("outside") else { return };
    for folder in ["memory", "mail"] {
        harness.write(&format!("{folder}/secret.go"), "\n\nfunc old() { secret }\n");
    }
    let result = harness.definition().await;
    assert_eq!(result, "a.go:2:6: func old() {}\n/usr/lib/go/std.go:3 (outside the workspace)");
    let environment = harness.noted("environment");
    for name in environment[0].as_array().unwrap().iter().filter_map(Value::as_str) {
        assert!(name.starts_with("LC_") || ENVIRONMENT.contains(&name), "{name}");
    }
    if bubblewrap_is_missing() {
        return;
    }
    // The server sees the folders of other conversations as empty.
    assert_eq!(harness.noted("seen"), [json!(["a.go", "sub/b.go"])]);
    let place = json!({"path": "sub/b.go", "line": 1, "character": 10});
    let result = harness.says("lsp_references", place.clone()).await;
    assert!(!result.contains("secret"), "{result}");
    for (trust, expected) in [(Trust::Known, "a.go:2:6"), (Trust::Untrusted, "lsp_definition is refused")] {
        let result = harness.run("lsp_definition", place.clone(), &tool_context(trust)).await.render();
        assert!(result.contains(expected), "{trust:?}: {result}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_namespaces_only_the_owner_asks_servers() {
    let Some(_) = Harness::scripted("works") else { return };
    let home = tempfile::tempdir().unwrap();
    let command =
        vec![PYTHON.to_owned(), home.path().join("workspace/server.py").display().to_string(), "works".to_owned()];
    let lsp = LspConfig { servers: BTreeMap::from([("go".to_owned(), command)]), ..LspConfig::default() };
    let exec = ExecConfig { sandbox: SandboxMode::Off, ..ExecConfig::default() };
    let files = FILES.into_iter().chain([("server.py", SERVER), ("memory/secret.go", "func old() { secret }")]);
    let harness = Harness::build(home, files, &ToolsConfig { lsp, exec, ..ToolsConfig::default() }).unwrap();
    // The server then sees everything, but the results contain only what the turn may see.
    assert_eq!(harness.definition().await, FOUND);
    let place = json!({"path": "sub/b.go", "line": 1, "character": 10});
    let result = harness.run("lsp_definition", place, &tool_context(Trust::Known)).await.render();
    assert!(result.contains("only the owner's turns can run commands here"), "{result}");
    let rename = json!({"path": "a.go", "line": 2, "character": 7, "new_name": "new"});
    let result = harness.says("lsp_rename", rename).await;
    assert!(result.contains("memory/secret.go, which is not for it; nothing was changed"), "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_servers_are_stopped_and_few_run_at_once() {
    let short = |config: &mut LspConfig| config.idle_timeout = HumanDuration(Duration::from_millis(300));
    let Some(harness) = Harness::with_lsp("works", short) else { return };
    assert_eq!(harness.definition().await, FOUND);
    until("the idle server to end", async || (!harness.is_running()).then_some(())).await;
    assert_eq!(harness.noted("shutdown"), [json!("works")]);
    assert_eq!(harness.definition().await, FOUND);
    let Some(harness) = Harness::scripted("works") else { return };
    for folder in ["p1", "p2", "p3", "p4", "p5"] {
        harness.write(&format!("{folder}/go.mod"), "");
        harness.write(&format!("{folder}/a.go"), "func f() {}\n");
        let result = harness.says("lsp_symbols", json!({"path": format!("{folder}/a.go")})).await;
        assert_eq!(result, "1: function f");
    }
    // The first server was idle for the longest time.
    assert_eq!((harness.noted("started").len(), harness.noted("shutdown").len()), (5, 1));
    drop(harness.executor);
    let mark = harness.home.path().join("workspace/server.py").display().to_string();
    until("the servers to end", async || (!is_running(&mark)).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_turn_cancels_its_request() {
    let Some(harness) = Harness::scripted("slow") else { return };
    let context = tool_context(Trust::Owner);
    let asked = harness.run("lsp_definition", json!({"path": "sub/b.go", "line": 1, "character": 10}), &context);
    let cancelled = async {
        until("the start of the server", async || (!harness.noted("started").is_empty()).then_some(())).await;
        context.cancel.cancel();
    };
    let (result, ()) = tokio::join!(asked, cancelled);
    assert!(result.render().contains("Cancelled"), "{}", result.render());
    // The server continues.
    assert_eq!(harness.says("lsp_symbols", json!({"path": "sub/b.go"})).await, "No symbol found.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_gateway_leaves_no_server_behind() {
    if bubblewrap_is_missing() || python_is_missing() {
        return;
    }
    let model = Model::start().await;
    let place = json!({"path": "sub/b.go", "line": 1, "character": 10});
    model.on("where", [Reply::tool("lsp_goto_definition", &place), Reply::text("there")]);
    let mut gateway = Gateway::new(Setup::scripted(&model));
    let workspace = gateway.workspace();
    for (path, text) in FILES.into_iter().chain([("server.py", SERVER)]) {
        write_file(workspace.join(path), text);
    }
    let server = workspace.join("server.py").display().to_string();
    let command = vec![PYTHON.to_owned(), server.clone(), "works".to_owned()];
    let setup = std::mem::take(gateway.setup());
    *gateway.setup() = setup.set("tools.lsp.servers.go", command);
    gateway.write_config();
    gateway.up().await;
    assert_eq!(gateway.ask("in", "c", "where").await, "there");
    let result = last_text(&model.requests()[1]).to_owned();
    assert!(result.contains(FOUND), "{result}");
    assert!(is_running(&server));
    gateway.kill9().await;
    until("the server to end", async || (!is_running(&server)).then_some(())).await;
    gateway.up().await;
    assert_eq!(gateway.ask("in", "d", "where").await, "there");
    gateway.stop().await;
    until("the server to end", async || (!is_running(&server)).then_some(())).await;
}
