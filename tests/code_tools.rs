//! The tools that understand source code, through the real program.

use std::fs;

use serde_json::json;

use crate::support::{Gateway, Model, Reply, Setup, write_files};

/// Returns the number of files that a map parsed, and the number taken from the cache.
async fn parsed(gateway: &Gateway) -> (u64, u64) {
    let result = gateway.run_tool("repo_map", &json!({"path": "src"})).await;
    let count = |key: &str| result["metadata"][key].as_u64().unwrap_or_else(|| panic!("{result}"));
    assert_eq!(count("files"), count("parsed") + count("from_cache"), "{result}");
    (count("parsed"), count("from_cache"))
}

/// The gateway and the commands share the cache, which survives them. Without the cache, everything works.
#[tokio::test(flavor = "multi_thread")]
async fn unchanged_files_are_parsed_once() {
    let model = Model::start().await;
    let mut gateway = Gateway::start(Setup::new().model(&model)).await;
    write_files(
        &gateway.workspace(),
        &[("src/a.rs", "pub fn first() {}\n"), ("src/b.py", "def second():\n    first()\n")],
    );
    assert_eq!(parsed(&gateway).await, (2, 0));
    assert_eq!(parsed(&gateway).await, (0, 2));
    gateway.restart().await;
    assert_eq!(parsed(&gateway).await, (0, 2));
    gateway.stop().await;
    write_files(&gateway.workspace(), &[("src/a.rs", "pub fn first() {}\npub fn third() {}\n")]);
    assert_eq!(parsed(&gateway).await, (1, 1));
    let cache = gateway.home().join("code-cache.db");
    for ending in ["wal", "shm"] {
        // A killed process may have left these files.
        drop(fs::remove_file(gateway.home().join(format!("code-cache.db-{ending}"))));
    }
    fs::write(&cache, "damaged, and by no means a database ".repeat(200)).unwrap();
    assert_eq!(parsed(&gateway).await, (2, 0));
    assert_eq!(parsed(&gateway).await, (0, 2));
    // The file is in no backup and in no finding of doctor.
    let archive = gateway.home().parent().unwrap().join("backup.tar");
    let made = gateway.run(&["backup", archive.to_str().unwrap()]).await;
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(!made.stdout.contains("code-cache"), "{made:?}");
    let mut archive = tar::Archive::new(fs::File::open(archive).unwrap());
    let paths = archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string());
    let paths: Vec<String> = paths.collect();
    assert!(paths.iter().any(|path| path == "home/daoyou.db"), "{paths:?}");
    assert!(!paths.iter().any(|path| path.contains("code-cache")), "{paths:?}");
    let doctor = gateway.run(&["doctor", "--json"]).await.stdout;
    assert!(doctor.contains("\"checks\"") && !doctor.contains("code-cache"), "{doctor}");
}

/// A model finds the tools and uses them.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_maps_searches_and_changes_code() {
    let model = Model::start().await;
    let replace = json!({"pattern": "log($A)", "rewrite": "print($A)", "lang": "python", "dry_run": false});
    model.on(
        "tidy up",
        [
            Reply::tool("find_tools", &json!({"query": "repo_map ast_grep_replace"})),
            Reply::tool("repo_map", &json!({"files": ["app/main.py"]}))
                .and_tool("get_repo_structure", &json!({"repo_path": "app"}))
                .and_tool("get_file_symbols", &json!({"file_path": "app/main.py"}))
                .and_tool("ast_grep", &json!({"pattern": "log($A)", "lang": "python"})),
            Reply::tool("ast_grep_replace", &replace),
            Reply::text("tidied"),
        ],
    );
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    let files = [("app/main.py", "def main():\n    log(load(1))\n"), ("app/load.py", "def load(x):\n    return x\n")];
    write_files(&gateway.workspace(), &files);
    assert_eq!(gateway.ask("in", "c", "tidy up").await, "tidied");
    let last = model.requests().last().unwrap()["messages"].to_string();
    for part in [
        "# Code map (top 2 files)",
        "  function load (line 1)",
        "load.py\\nmain.py",
        "  function main (1-2): def main():",
        "app/main.py:2:     log(load(1))",
        "Changed 1 place in 1 file",
    ] {
        assert!(last.contains(part), "{part}: {last}");
    }
    let changed = fs::read_to_string(gateway.workspace().join("app/main.py")).unwrap();
    assert_eq!(changed, "def main():\n    print(load(1))\n");
    assert_eq!(model.refused(), Vec::<String>::new());
}
