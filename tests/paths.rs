//! Fault 30: for any path that a model writes, the real program reads and changes nothing outside the workspace, nothing
//! hangs, and each call gets one clear error.

use std::fs;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, makedev, mknodat};
use serde_json::{Value, json};

use crate::support::swapper::Swapper;
use crate::support::{Gateway, Hook, Model, Setup, Sink};

const CANARY: &str = "canary-5d1c";
/// The tools that take a path, in the order of the columns of the corpus.
const TOOLS: [&str; 5] = ["read_file", "write_file", "edit_file", "list_dir", "message"];
/// Further tools that take a path: they search, describe, create and delete. `path_corpus` tests them.
const FURTHER_TOOLS: [&str; 5] = ["grep", "glob", "file_info", "create_dir", "delete_file"];
/// The tools for code, which take a path as `grep` and `glob` do.
const CODE_TOOLS: [&str; 5] = ["repo_structure", "repo_map", "symbols", "ast_grep_search", "ast_grep_replace"];
/// The tools that pass a path to a program in the sandbox, and the argument that takes it.
const SANDBOXED: [(&str, &str); 14] = [
    ("run_test", "path"),
    ("git_status", "repo_path"),
    ("git_diff", "repo_path"),
    ("git_diff", "path"),
    ("git_log", "repo_path"),
    ("git_log", "path"),
    ("git_commit", "repo_path"),
    ("git_commit", "files"),
    ("lsp_diagnostics", "path"),
    ("lsp_definition", "path"),
    ("lsp_references", "path"),
    ("lsp_symbols", "path"),
    ("lsp_code_actions", "path"),
    ("lsp_rename", "path"),
];
/// The time limit of a single call, on however busy a machine.
const LIMIT: Duration = Duration::from_secs(20);

mod corpus;

/// A gateway whose model calls the tools that a message names and repeats their results.
struct Harness {
    model: Model,
    gateway: Gateway,
    outside: PathBuf,
    /// Gets the messages of the tool `message`.
    _sink: Sink,
    _socket: UnixListener,
}

impl Harness {
    async fn start(restricted: bool) -> Self {
        let model = Model::start().await;
        model.call_named_tools();
        let setup = Setup::new().model(&model).set("tools.restrict_to_workspace", restricted);
        let sink = Sink::signed().await;
        let gateway = Gateway::start(setup.hook(Hook::bearer("in").callback(&sink))).await;
        let outside = gateway.home().parent().unwrap().join("outside");
        let socket = create_traps(&gateway.workspace(), &outside);
        Self { model, gateway, outside, _sink: sink, _socket: socket }
    }

    /// Returns the results of the calls, made in one turn.
    async fn calls(&self, calls: &[(&str, Value)]) -> Vec<String> {
        let begun = Instant::now();
        let reply = self.gateway.ask("in", "c", &json!(calls).to_string()).await;
        assert!(begun.elapsed() < LIMIT, "{calls:?} took {:?}", begun.elapsed());
        let results: Vec<String> = serde_json::from_str(&reply).unwrap_or_else(|_| panic!("{calls:?}: {reply}"));
        assert_eq!(results.len(), calls.len());
        for result in &results {
            assert!(!result.contains(CANARY), "{calls:?}: {result}");
        }
        results
    }

    /// Calls each tool that takes a path with `path`.
    async fn each_tool(&self, path: &str) -> [String; TOOLS.len()] {
        let edit = json!({"path": path, "old_text": "a", "new_text": "b", "replace_all": true});
        let calls = [
            (TOOLS[0], json!({"path": path})),
            (TOOLS[1], json!({"path": path, "content": "changed"})),
            (TOOLS[2], edit),
            (TOOLS[3], json!({"path": path})),
            (TOOLS[4], json!({"content": "look at this", "attachments": [path]})),
        ];
        self.calls(&calls).await.try_into().unwrap()
    }

    fn assert_untouched(&self, after: &str) {
        assert_eq!(fs::read_to_string(self.outside.join("secret")).unwrap(), CANARY, "{after}");
        let names: Vec<_> = fs::read_dir(&self.outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["secret"], "{after}");
    }
}

/// Creates traps in the workspace: objects that could lead out of it, hang, or fill the memory.
fn create_traps(workspace: &Path, outside: &Path) -> UnixListener {
    fs::create_dir(outside).unwrap();
    fs::write(outside.join("secret"), CANARY).unwrap();
    fs::create_dir(workspace.join("folder")).unwrap();
    fs::write(workspace.join("plain"), "a plain file").unwrap();
    symlink(outside.join("secret"), workspace.join("link")).unwrap();
    symlink("../../outside", workspace.join("up")).unwrap();
    symlink("/", workspace.join("folder/root")).unwrap();
    symlink("/proc/self/environ", workspace.join("environ")).unwrap();
    symlink("/dev/zero", workspace.join("zero")).unwrap();
    symlink(outside.join("new"), workspace.join("dangling")).unwrap();
    symlink("loop", workspace.join("loop")).unwrap();
    fs::hard_link(outside.join("secret"), workspace.join("hard")).unwrap();
    mknodat(CWD, workspace.join("pipe"), FileType::Fifo, 0o600.into(), 0).unwrap();
    let sparse = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(workspace.join("sparse"));
    sparse.unwrap().set_len(10_000_000_000).unwrap();
    UnixListener::bind(workspace.join("socket")).unwrap()
}

/// The result of each of [`TOOLS`] for a path.
type Row<'a> = (&'a str, [&'a str; TOOLS.len()]);

fn check(path: &str, got: &[String; TOOLS.len()], expected: [&str; TOOLS.len()]) {
    for ((tool, got), words) in TOOLS.iter().zip(got).zip(expected) {
        let is_error = got.starts_with("Error: ");
        let lines = got.trim_end().split("\n\n[Please analyze").next().unwrap_or_default().lines().count();
        assert!(is_error && got.contains(words) && lines == 1, "{tool} {path:?}, expected {words:?}: {got}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_path_escapes_the_workspace_or_hangs() {
    let harness = Harness::start(true).await;
    let out = "outside the workspace";
    let absolute = harness.outside.join("secret").display().to_string();
    let home = harness.gateway.home().display().to_string();
    let (token, above) = (format!("{home}/token"), format!("{home}/workspace/../token"));
    let (long_name, long_path) = ("n".repeat(300), "d/".repeat(3_000));
    let (special, large) = ("not a regular file", "10000000000 bytes");
    // Attachments follow no link, wherever it leads.
    let linked = [out, out, out, out, "is a link"];
    let table: Vec<Row<'_>> = vec![
        ("../token", [out; 5]),
        ("folder/../../token", [out; 5]),
        ("folder/../../../outside/secret", [out; 5]),
        (&absolute, [out; 5]),
        (&token, [out; 5]),
        (&above, [out; 5]),
        ("/etc/passwd", [out; 5]),
        ("/proc/self/environ", [out; 5]),
        ("/dev/zero", [out; 5]),
        ("~", ["~ is not expanded"; 5]),
        ("~/.ssh/id_rsa", ["~ is not expanded"; 5]),
        ("link", linked),
        ("up/secret", linked),
        ("up/new", linked),
        ("up", linked),
        ("folder/root/etc/passwd", linked),
        ("folder/root/proc/self/environ", linked),
        ("environ", linked),
        ("zero", linked),
        ("dangling", linked),
        ("hard", ["hard link", "hard link", "hard link", "is not a folder", "hard link"]),
        ("pipe", [special, special, special, "is not a folder", special]),
        ("socket", [special, special, special, "is not a folder", special]),
        ("sparse", [large, large, large, "is not a folder", "limit of 18000000"]),
        ("plain/below", ["is not a folder"; 5]),
        ("a\0b", ["NUL", "NUL", "NUL", "NUL", "control characters"]),
        (&long_name, ["too long"; 5]),
        (&long_path, ["too long"; 5]),
        ("loop", ["links", "links", "links", "links", "is a link"]),
        ("", ["empty"; 5]),
        ("no\nsuch\u{1b}[31m/../../x\ny", [out, out, out, out, "control characters"]),
    ];
    for (path, expected) in table {
        let got = harness.each_tool(path).await;
        check(path, &got, expected);
        harness.assert_untouched(path);
    }
    // A folder where a file is expected: only listing succeeds.
    let [read, write, edit, list, attach] = harness.each_tool("folder").await;
    check("folder", &[read, write, edit.clone(), edit, attach], ["is a folder"; 5]);
    assert!(list.contains("root (link)"), "{list}");
    // A line break in a name cannot add a line to the text that the model reads.
    let [missing, written, _, _, attached] = harness.each_tool("two\nlines").await;
    check("two\nlines", &std::array::from_fn(|_| missing.clone()), ["no such file"; 5]);
    assert!(attached.contains("control characters"), "{attached}");
    assert!(
        written.starts_with("Created ") && written.ends_with(": 1 line, 7 bytes") && written.lines().count() == 1,
        "{written}"
    );
    let listed = &harness.calls(&[("list_dir", json!({}))]).await[0];
    assert!(listed.contains("\"two\\nlines\" (7 B)") && listed.contains("pipe (special)"), "{listed}");

    assert!(
        fs::read_dir(harness.gateway.workspace())
            .unwrap()
            .flatten()
            .all(|entry| { !entry.file_name().to_string_lossy().ends_with(".tmp") })
    );
    harness.assert_untouched("all");
    assert_eq!(harness.model.refused(), Vec::<String>::new());
}

/// Programs that work on a path get no path that leads out of the workspace or makes them wait.
#[tokio::test(flavor = "multi_thread")]
async fn no_path_that_leads_out_reaches_a_program() {
    let harness = Harness::start(true).await;
    let out = "outside the workspace";
    let absolute = harness.outside.join("secret").display().to_string();
    let (long_name, long_path) = ("n".repeat(300), "d/".repeat(3_000));
    for (path, expected) in [
        ("../token", out),
        ("folder/../../token", out),
        (&absolute, out),
        ("/etc/passwd", out),
        ("~/.ssh/id_rsa", "~ is not expanded"),
        ("link", out),
        ("up/secret", out),
        ("up/new", out),
        ("folder/root/etc/passwd", out),
        ("dangling", "Error: "),
        ("a\0b", "NUL"),
        (&long_name, "too long"),
        (&long_path, "too long"),
        ("loop", "links"),
        ("", "empty"),
        ("pipe", "Error: "),
        ("no\nsuch\u{1b}[31m/../../x\ny", out),
    ] {
        let calls = SANDBOXED.map(|(tool, argument)| {
            let value = if argument == "files" { json!([path]) } else { json!(path) };
            let mut arguments = json!({ argument: value });
            let further = match tool {
                "git_commit" => json!({"message": "x"}),
                "lsp_definition" | "lsp_references" | "lsp_code_actions" => json!({"line": 1, "character": 1}),
                "lsp_rename" => json!({"line": 1, "character": 1, "new_name": "x"}),
                _ => json!({}),
            };
            arguments.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
            (tool, arguments)
        });
        for (call, got) in calls.iter().zip(harness.calls(&calls).await) {
            let lines = got.trim_end().split("\n\n[Please analyze").next().unwrap_or_default().lines().count();
            assert!(got.starts_with("Error: ") && got.contains(expected) && lines == 1, "{call:?}: {got}");
        }
        harness.assert_untouched(path);
    }
    assert_eq!(harness.model.refused(), Vec::<String>::new());
}

/// The corpora above cover each tool that takes a path. A new tool must get a column or a row there.
#[tokio::test(flavor = "multi_thread")]
async fn every_tool_that_takes_a_path_is_tested() {
    let harness = Harness::start(true).await;
    let listed = harness.gateway.json(&["tools", "list"]).await;
    let takes_a_path = |tool: &&Value| {
        let properties = tool["schema"]["properties"].as_object().unwrap();
        let is_path =
            |name: &String| ["path", "file", "folder", "dir", "attachment"].iter().any(|word| name.contains(word));
        properties.keys().any(is_path)
    };
    let tools = listed.as_array().unwrap();
    let mut found: Vec<_> = tools.iter().filter(takes_a_path).map(|tool| tool["name"].as_str().unwrap()).collect();
    let further = FURTHER_TOOLS.iter().chain(&CODE_TOOLS).chain(SANDBOXED.iter().map(|(tool, _)| tool));
    let mut asked: Vec<_> = TOOLS.iter().chain(further).copied().collect();
    found.sort_unstable();
    asked.sort_unstable();
    asked.dedup();
    assert_eq!(found, asked);
}

/// A name alternates between a folder and a link out of the workspace. The answer is one of the two, and outside files stay unchanged.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_swapped_during_calls_never_escapes_the_workspace() {
    let harness = Harness::start(true).await;
    let workspace = harness.gateway.workspace();
    fs::create_dir(workspace.join("fine")).unwrap();
    fs::write(workspace.join("fine/secret"), "inside").unwrap();
    symlink("../../outside", workspace.join("swap")).unwrap();
    let swapper = Swapper::start(workspace.join("swap"), workspace.join("fine"));
    let (read, list) = (json!({"path": "swap/secret"}), json!({"path": "swap"}));
    let write = json!({"path": "swap/secret", "content": "inside"});
    let edit = json!({"path": "swap/secret", "old_text": "inside", "new_text": "inside!"});
    let mut calls = Vec::new();
    for _ in 0..20 {
        calls.extend([("read_file", &read), ("write_file", &write), ("edit_file", &edit), ("list_dir", &list)]);
    }
    let calls: Vec<_> = calls.into_iter().map(|(tool, arguments)| (tool, arguments.clone())).collect();
    let mut good = 0;
    for _ in 0..10 {
        for ((tool, _), result) in calls.iter().zip(harness.calls(&calls).await) {
            let is_error = result.starts_with("Error: ");
            good += usize::from(!is_error);
            assert!(is_error || *tool != "list_dir" || result.contains("secret ("), "{tool}: {result}");
        }
        harness.assert_untouched("a swap");
    }
    let swaps = swapper.stop();
    assert!(good > 0 && swaps > 100, "{good} calls went through, {swaps} swaps: the race was none");
}

/// Even with the whole machine open to the tools, daoyou's own folder, kernel files and special files stay closed.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_restriction_private_data_and_kernel_files_stay_closed() {
    let harness = Harness::start(false).await;
    let home = harness.gateway.home();
    let own = |name: &str| home.join(name).display().to_string();
    let before = fs::read(home.join("token")).unwrap();
    let pid = harness.gateway.pid();
    let zero = harness.gateway.workspace().join("device");
    if mknodat(CWD, &zero, FileType::CharacterDevice, 0o600.into(), makedev(1, 5)).is_err() {
        println!("only root may make a device; the link to /dev/zero stands for it");
    }
    for path in [
        own("token"),
        own("config.toml"),
        own("daoyou.db"),
        own("daoyou.sock"),
        own("new"),
        "../token".to_owned(),
        format!("/proc/self/root{}", own("token")),
        format!("/proc/{pid}/cwd/../../{}", own("token")),
        format!("/proc/{pid}/environ"),
        "/proc/self/environ".to_owned(),
        "/proc/self/mem".to_owned(),
        "/proc/self/fd/0".to_owned(),
        "/sys/kernel/notes".to_owned(),
        "/dev/zero".to_owned(),
        "environ".to_owned(),
        "zero".to_owned(),
        "device".to_owned(),
        "pipe".to_owned(),
        "sparse".to_owned(),
        "loop".to_owned(),
    ] {
        for got in harness.each_tool(&path).await {
            assert!(got.starts_with("Error: "), "{path}: {got}");
        }
    }
    assert_eq!(fs::read(home.join("token")).unwrap(), before);
    assert!(!home.join("new").exists());
    // The gateway still works as before.
    assert_eq!(harness.calls(&[("read_file", json!({"path": "plain"}))]).await, ["1\ta plain file"]);
}

/// Covers the files that the gateway itself reads and writes in the workspace. Commands of its agent can replace them with
/// links and pipes, and wait for the gateway to follow these.
#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_follows_no_link_made_by_its_agent() {
    let mut harness = Harness::start(true).await;
    let (workspace, home) = (harness.gateway.workspace(), harness.gateway.home());
    fs::write(home.join("private"), CANARY).unwrap();
    for name in ["AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", ".daoyou-template"] {
        fs::remove_file(workspace.join(name)).unwrap();
    }
    symlink("../private", workspace.join("AGENTS.md")).unwrap();
    mknodat(CWD, workspace.join("SOUL.md"), FileType::Fifo, 0o600.into(), 0).unwrap();
    symlink("/dev/zero", workspace.join("USER.md")).unwrap();
    fs::hard_link(home.join("private"), workspace.join("TOOLS.md")).unwrap();
    assert_eq!(harness.calls(&[("read_file", json!({"path": "plain"}))]).await, ["1\ta plain file"]);

    // The next start writes missing files of the template and does not touch objects in their places.
    fs::remove_file(workspace.join("SOUL.md")).unwrap();
    symlink("../private", workspace.join(".SOUL.md.new")).unwrap();
    fs::remove_dir_all(workspace.join("memory")).unwrap();
    symlink("../../outside", workspace.join("memory")).unwrap();
    harness.gateway.stop().await;
    harness.gateway.up().await;
    assert_eq!(harness.calls(&[("read_file", json!({"path": "plain"}))]).await, ["1\ta plain file"]);
    assert_eq!(fs::read_to_string(home.join("private")).unwrap(), CANARY);
    assert!(workspace.join("SOUL.md").symlink_metadata().unwrap().is_file());
    harness.assert_untouched("a new start");
    let text = json!(harness.model.requests()).to_string();
    assert!(!text.contains(CANARY) && text.contains("daoyou"), "{text}");
    assert!(harness.gateway.logs().contains("is left out of the system prompt"));
}
