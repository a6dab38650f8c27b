//! The agent's deletions go to the trash, from which the owner restores them, with and without a gateway.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::clock::{faketime, follow_clock_file, set_clock};
use crate::support::requirements::bubblewrap_is_missing;
use crate::support::{Gateway, Hook, Model, Setup, until};

struct Harness {
    gateway: Gateway,
    /// Keeps the model server running.
    _model: Model,
}

impl Harness {
    async fn start() -> Self {
        let model = Model::start().await;
        model.call_named_tools();
        let setup = Setup::scripted(&model);
        Self { gateway: Gateway::start(setup).await, _model: model }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.gateway.workspace().join(path)
    }

    async fn list(&self) -> Vec<Value> {
        self.gateway.json(&["trash", "list"]).await.as_array().unwrap().clone()
    }
}

fn id(entry: &Value) -> &str {
    entry["id"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_files_are_restored_with_and_without_a_gateway() {
    let mut harness = Harness::start().await;
    assert_eq!(harness.gateway.run(&["trash", "list"]).await.stdout, "the trash is empty\n");
    for is_running in [true, false] {
        fs::create_dir_all(harness.at("notes/old")).unwrap();
        fs::write(harness.at("notes/old/a.txt"), "one").unwrap();
        fs::write(harness.at("b.txt"), "two").unwrap();
        for path in ["notes", "b.txt"] {
            let result = harness.gateway.call_tool("rm", &json!({"file_path": path, "recursive": true})).await;
            assert!(result.starts_with(&format!("Moved {path} to the trash")), "{result}");
        }
        if !is_running {
            harness.gateway.stop().await;
        }
        let listed = harness.list().await;
        assert_eq!(listed.len(), 2);
        let (file, folder) = (&listed[0], &listed[1]);
        assert_eq!((&file["path"], &file["kind"], &file["size"]), (&json!("b.txt"), &json!("file"), &json!(3)));
        assert_eq!((&folder["path"], &folder["kind"]), (&json!("notes"), &json!("folder")));
        assert_eq!(file["session"], "webhook:in:c");
        let shown = harness.gateway.run(&["trash", "list"]).await.stdout;
        assert!(shown.contains("b.txt") && shown.contains(id(folder)), "{shown}");

        // A restore overwrites nothing.
        fs::write(harness.at("b.txt"), "newer").unwrap();
        let ran = harness.gateway.run(&["trash", "restore", id(file)]).await;
        assert!(ran.code == Some(1) && ran.stderr.contains("b.txt: there is something already"), "{ran:?}");
        assert_eq!(fs::read_to_string(harness.at("b.txt")).unwrap(), "newer");
        for (args, expected) in [
            (&["trash", "restore", "nope"][..], "no entry nope"),
            (&["trash", "restore", id(file), "--to", "../out"], "outside the workspace"),
            (&["trash", "restore", id(file), "--to", "/etc/x"], "outside the workspace"),
            (&["trash", "restore", id(file), "--to", ".daoyou/x"], "off limits"),
        ] {
            let ran = harness.gateway.run(args).await;
            assert!(ran.code == Some(1) && ran.stderr.contains(expected), "{args:?}: {ran:?}");
        }
        let ran = harness.gateway.run(&["trash", "restore", id(file), "--to", "kept/b.txt"]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "restored: kept/b.txt\n"), "{ran:?}");
        assert_eq!(harness.gateway.json(&["trash", "restore", id(folder)]).await["restored"], "notes");
        assert_eq!(fs::read_to_string(harness.at("kept/b.txt")).unwrap(), "two");
        assert_eq!(fs::read_to_string(harness.at("notes/old/a.txt")).unwrap(), "one");
        assert_eq!(harness.list().await, Vec::<Value>::new());
        fs::remove_dir_all(harness.at("kept")).unwrap();
    }
    let ran = harness.gateway.run(&["trash", "empty"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "0 entries removed\n"), "{ran:?}");
}

/// The hourly upkeep removes entries older than `tools.trash`.
#[tokio::test(flavor = "multi_thread")]
async fn old_entries_are_removed_by_the_upkeep() {
    let Some(library) = faketime() else { return };
    let folder = tempfile::tempdir().unwrap();
    let clock = folder.path().join("clock");
    set_clock(&clock, 0);
    let model = Model::start().await;
    model.call_named_tools();
    let setup = Setup::scripted(&model).set("tools.trash", "1d");
    let mut gateway = Gateway::new(setup);
    follow_clock_file(&mut gateway, &library, &clock);
    gateway.up().await;
    let harness = Harness { gateway, _model: model };
    fs::write(harness.at("file"), "x").unwrap();
    harness.gateway.call_tool("delete_file", &json!({"path": "file"})).await;
    set_clock(&clock, 26 * 3_600);
    until("the entry to be removed", async || harness.list().await.is_empty().then_some(())).await;
    assert!(harness.gateway.logs().contains("old entries of the trash removed"), "{}", harness.gateway.logs());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trash_is_emptied_by_hand() {
    let harness = Harness::start().await;
    fs::create_dir(harness.at("folder")).unwrap();
    for path in ["folder/a", "b"] {
        fs::write(harness.at(path), path).unwrap();
    }
    for path in ["folder", "b"] {
        harness.gateway.call_tool("delete_file", &json!({ "path": path })).await;
    }
    assert_eq!(harness.list().await.len(), 2);
    assert_eq!(harness.gateway.json(&["trash", "empty"]).await, json!({"removed": 2}));
    assert_eq!(harness.list().await, Vec::<Value>::new());
    assert_eq!(fs::read_dir(harness.at(".daoyou/trash")).unwrap().count(), 0);
}

/// Commands cannot see the trash, and tools cannot reach it.
#[tokio::test(flavor = "multi_thread")]
async fn the_trash_is_closed_to_tools_and_commands() {
    if bubblewrap_is_missing() {
        return;
    }
    let harness = Harness::start().await;
    fs::write(harness.at("file"), "canary-trash").unwrap();
    harness.gateway.call_tool("delete_file", &json!({"path": "file"})).await;
    let entry = harness.list().await.remove(0);
    let content = format!(".daoyou/trash/{}/content", id(&entry));
    assert_eq!(fs::read_to_string(harness.at(&content)).unwrap(), "canary-trash");
    for (tool, arguments) in [
        ("read_file", json!({"path": content})),
        ("grep", json!({"pattern": "canary", "path": content})),
        ("grep", json!({"pattern": "canary"})),
        ("grep", json!({"pattern": "canary", "glob": ".daoyou/**"})),
        ("glob", json!({"pattern": "**/content"})),
        ("repo_structure", json!({"path": ".daoyou/trash"})),
        ("symbols", json!({"path": content})),
        ("ast_grep_search", json!({"pattern": "canary", "lang": "js", "path": content})),
        ("file_info", json!({"path": content})),
        ("delete_file", json!({"path": content})),
        ("write_file", json!({"path": content, "content": "x"})),
        ("exec", json!({"command": format!("cat {content}; grep -r canary .; find . -name content")})),
    ] {
        let result = harness.gateway.call_tool(tool, &arguments).await;
        assert!(!result.contains("canary-trash") && !result.contains("Moved"), "{tool} {arguments}: {result}");
        assert!(!result.contains("/content\n"), "{tool} {arguments}: {result}");
    }
    assert_eq!(harness.list().await.len(), 1);
}

/// A deletion is a change, so in a tainted turn it waits for the owner's approval.
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_requested_by_others_waits_for_the_owners_approval() {
    let model = Model::start().await;
    model.call_named_tools();
    let gateway = Gateway::start(Setup::new().model(&model).hook(Hook::bearer("in").trusting(&[]))).await;
    fs::write(gateway.workspace().join("file"), "x").unwrap();
    let call = json!([("delete_file", json!({"path": "file"}))]).to_string();
    gateway.accept("in", &crate::support::gateway::Message::new(&call).chat("c")).await;
    let asked = gateway.wait_approval().await;
    assert_eq!(asked["tool"], "delete_file");
    assert!(gateway.workspace().join("file").exists());
    assert_eq!(gateway.run(&["approvals", "approve", id(&asked)]).await.code, Some(0));
    until("the deletion", async || (!gateway.workspace().join("file").exists()).then_some(())).await;
    assert_eq!(gateway.json(&["trash", "list"]).await[0]["path"], "file");
}
