//! A fresh installation without configuration, key or network. The gateway answers nevertheless, with real tools.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;

use crate::support::deadline;
use crate::support::gateway::{CommandOutput, NO_OLLAMA, binary};
use crate::support::invariants::{Witness, check, wait_settled};

/// Runs the program in an empty environment; the first run creates the home.
async fn daoyou(folder: &Path, args: &[&str]) -> CommandOutput {
    let mut command = Command::new(binary());
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", folder).env("LANG", "C.UTF-8");
    command.env("OLLAMA_HOST", NO_OLLAMA);
    command.current_dir(folder).args(args).stdin(Stdio::null()).kill_on_drop(true);
    deadline(&format!("daoyou {args:?}"), command.output()).await.expect("the program starts").into()
}

/// Returns the reply to one message. Asserts that stdout has nothing else and stderr nothing alarming.
async fn ask(folder: &Path, text: &str) -> String {
    let ran = daoyou(folder, &["agent", "-m", text]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{text}: {ran:?}");
    assert!(ran.stdout.ends_with('\n') && !ran.stdout.trim().is_empty(), "{text}: {ran:?}");
    ran.stdout.trim_end().to_owned()
}

/// Returns the kinds of the steps of the newest turn, and the tools that it ran.
async fn newest_turn(folder: &Path) -> (Vec<String>, Vec<String>) {
    let read = async |args: &[&str]| -> Value {
        let ran = daoyou(folder, args).await;
        assert_eq!(ran.code, Some(0), "{args:?}: {ran:?}");
        serde_json::from_str(&ran.stdout).unwrap()
    };
    let turns = read(&["turns", "list", "--json"]).await;
    let turn = read(&["turns", "show", turns[0]["turn"].as_str().expect("an id"), "--json"]).await;
    assert_eq!(turn["intact"], true, "{turn}");
    let steps = turn["steps"].as_array().expect("a list");
    let words = |key: fn(&Value) -> Option<&str>| steps.iter().filter_map(key).map(str::to_owned).collect();
    (
        words(|step| step["kind"].as_str()),
        words(|step| step["body"]["result"].as_object().and(step["body"]["name"].as_str())),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_installation_answers_in_english() {
    let folder = tempfile::tempdir().unwrap();
    let hello = ask(folder.path(), "hello").await;
    assert!(hello.contains("daoyou") || hello.to_lowercase().contains("hello"), "{hello}");
    let files = ask(folder.path(), "list files").await;
    assert!(files.contains("AGENTS.md"), "{files}");
    let (kinds, tools) = newest_turn(folder.path()).await;
    assert_eq!(kinds, ["context", "response", "tool_result", "response"]);
    assert_eq!(tools, ["list_dir"]);
    ask(folder.path(), "write buy some tea to notes.md").await;
    let workspace = folder.path().join(".daoyou/workspace");
    assert_eq!(std::fs::read_to_string(workspace.join("notes.md")).unwrap().trim_end(), "buy some tea");
    let notes = ask(folder.path(), "read notes.md").await;
    assert!(notes.contains("buy some tea"), "{notes}");
    assert_eq!(newest_turn(folder.path()).await.1, ["read_file"]);
    let unknown = ask(folder.path(), "why is the sky blue").await;
    assert!(unknown.contains("model"), "it says that it is none: {unknown}");
    let database = folder.path().join(".daoyou/daoyou.db");
    wait_settled(&database).await;
    assert_eq!(check(&database, &Witness::default()).inbox.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_installation_answers_in_chinese() {
    let folder = tempfile::tempdir().unwrap();
    let files = ask(folder.path(), "列出文件").await;
    assert!(files.contains("AGENTS.md") && files.contains("文件"), "{files}");
    ask(folder.path(), "把“买茶”写到 笔记.md").await;
    let note = std::fs::read_to_string(folder.path().join(".daoyou/workspace/笔记.md")).unwrap();
    assert_eq!(note.trim_end(), "买茶");
    let notes = ask(folder.path(), "读 笔记.md").await;
    assert!(notes.contains("买茶"), "{notes}");
    let (kinds, tools) = newest_turn(folder.path()).await;
    assert_eq!((kinds.len(), tools), (4, vec!["read_file".to_owned()]));
    let unknown = ask(folder.path(), "天为什么是蓝的").await;
    assert!(unknown.contains("模型"), "{unknown}");
}
