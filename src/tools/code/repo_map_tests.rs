//! Tests of maps through the executor: the cache, the token budget, and what a conversation may see.

use std::time::{Duration, SystemTime};

use daoyou_channels::Trust;
use serde_json::json;

use crate::llm::estimate_tokens;
use crate::tools::testing::ToolFixture;
use crate::tools::{PrivateFolders, ToolsConfig};

/// Returns how many files a map read, how many it parsed, and how many it took from the cache.
async fn counts(fixture: &ToolFixture) -> [u64; 3] {
    let metadata = fixture.run_as(Trust::Owner, "repo_map", &json!({})).await.metadata;
    ["files", "parsed", "from_cache"].map(|key| metadata[key].as_u64().unwrap())
}

const FILES: [(&str, &str); 4] = [
    ("src/store.rs", "pub struct Store;\nimpl Store {\n    pub fn load_all(&self) {}\n}\nfn unused_one() {}\n"),
    ("src/main.rs", "use crate::store::Store;\nfn main() {\n    Store.load_all();\n    Store.load_all();\n}\n"),
    ("app/view.py", "class View:\n    def draw(self):\n        render_it()\n"),
    ("app/render.py", "def render_it():\n    pass\n"),
];

#[tokio::test]
async fn a_map_shows_what_matters_first() {
    let fixture = ToolFixture::new(&ToolsConfig::default());
    fixture.write(&FILES);
    fixture.write(&[
        ("README.md", "# x"),
        ("notes.txt", "x"),
        (".hidden/a.rs", "fn hidden() {}"),
        (".gitignore", "target\n"),
    ]);
    fixture.write(&[("target/b.rs", "fn ignored() {}")]);
    let map = fixture.run_as(Trust::Owner, "repo_map", &json!({})).await.content;
    assert!(map.starts_with("# Code map (top 4 files)\n\napp/render.py:\n  function render_it (line 1)\n\n"), "{map}");
    let store =
        "\nsrc/store.rs:\n  struct Store (line 1)\n  method load_all (line 3)\n  function unused_one (line 5)\n\n";
    assert!(map.contains(store) && map.find(store) < map.find("src/main.rs:"), "{map}");
    assert!(map.ends_with("[4 source files; 2 files of other kinds (1 md, 1 txt)]"), "{map}");
    assert!(!map.contains("hidden") && !map.contains("ignored"), "{map}");
    for (arguments, first) in [
        (json!({"files": ["app/view.py"]}), "app/render.py:"),
        (json!({"chat_files": ["./view.py"], "repo_path": "app"}), "app/render.py:"),
        (json!({"idents": ["draw"]}), "app/view.py:"),
        (json!({"mentioned_idents": ["main"]}), "src/main.rs:"),
    ] {
        let map = fixture.run_as(Trust::Owner, "repo_map", &arguments).await.content;
        assert_eq!(map.lines().nth(2), Some(first), "{arguments}: {map}");
    }
    let map = fixture
        .run_as(Trust::Owner, "repo_map", &json!({"files": ["nope.rs", "src/main.rs"], "path": "src"}))
        .await
        .content;
    assert!(
        map.contains("[under discussion, but no source file here: nope.rs]") && map.contains("src/main.rs:"),
        "{map}"
    );
    for (arguments, error) in [
        (json!({"path": "missing"}), "missing: no such file or folder"),
        (json!({"path": "README.md"}), "README.md: not a file of a language that is read here"),
        (json!({"path": "../x"}), "outside the workspace"),
        (json!({"max_tokens": 1}), "must be at least 100"),
    ] {
        let rendered = fixture.run_as(Trust::Owner, "repo_map", &arguments).await.render();
        assert!(rendered.starts_with("Error: ") && rendered.contains(error), "{arguments}: {rendered}");
    }
    let file = fixture.run_as(Trust::Owner, "repo_map", &json!({"path": "src/store.rs"})).await.content;
    assert!(file.starts_with("# Code map (top 1 files)\n\nsrc/store.rs:\n"), "{file}");
}

#[tokio::test]
async fn only_changed_files_are_parsed_again() {
    let fixture = ToolFixture::new(&ToolsConfig::default());
    fixture.write(&FILES);
    assert_eq!(counts(&fixture).await, [4, 4, 0]);
    assert_eq!(counts(&fixture).await, [4, 0, 4]);
    // The file is touched, but its content is the same.
    let touched = std::fs::File::options().write(true).open(fixture.path("src/main.rs")).unwrap();
    touched.set_modified(SystemTime::now() - Duration::from_secs(999)).unwrap();
    assert_eq!(counts(&fixture).await, [4, 0, 4]);
    fixture.write(&[("src/main.rs", "fn other() {}\n")]);
    assert_eq!(counts(&fixture).await, [4, 1, 3]);
    // The cache knows the content of the copy.
    fixture.write(&[("copy.rs", "fn other() {}\n")]);
    assert_eq!(counts(&fixture).await, [5, 0, 5]);
    std::fs::remove_file(fixture.path("src/main.rs")).unwrap();
    std::fs::remove_file(fixture.path("copy.rs")).unwrap();
    assert_eq!(counts(&fixture).await, [3, 0, 3]);
    let rows = || {
        let cache = rusqlite::Connection::open(fixture.home.path().join("code-cache.db")).unwrap();
        cache.query_row("SELECT count(*) FROM files", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(rows(), 3);
    // A map of a subfolder does not remove the other entries.
    fixture.run_as(Trust::Owner, "repo_map", &json!({"path": "app"})).await;
    assert_eq!(rows(), 3);
}

#[tokio::test]
async fn a_damaged_cache_is_made_anew() {
    let fixture = ToolFixture::new(&ToolsConfig::default());
    fixture.write(&FILES);
    let cache = fixture.home.path().join("code-cache.db");
    std::fs::write(&cache, "not a database, and never was one").unwrap();
    assert_eq!(counts(&fixture).await, [4, 4, 0]);
    assert_eq!(counts(&fixture).await, [4, 0, 4]);
    // Nothing fails without a cache.
    let fixture = ToolFixture::new(&ToolsConfig::default());
    fixture.write(&FILES);
    std::fs::create_dir(fixture.home.path().join("code-cache.db")).unwrap();
    assert_eq!(counts(&fixture).await, [4, 4, 0]);
    assert_eq!(counts(&fixture).await, [4, 4, 0]);
}

#[tokio::test]
async fn a_map_never_takes_more_tokens_than_it_may() {
    let fixture = ToolFixture::new(&ToolsConfig { max_output: 1_000_000, ..ToolsConfig::default() });
    for number in 0..120 {
        let functions: String =
            (0..20).map(|n| format!("def handler_{number}_{n}(request):\n    call_{n}()\n")).collect();
        let ending = if number % 2 == 0 { "道" } else { "x" };
        fixture.write(&[(&format!("pkg_{}/module_{number}_{ending}.py", number % 7), &functions)]);
    }
    fixture.write(&[("a.md", ""), ("b.toml", ""), ("c.css", "")]);
    let discussed: Vec<_> = (0..120).map(|number| format!("pkg_{}/module_{number}_x.py", number % 7)).collect();
    let mut before = 0;
    for budget in [100, 150, 333, 1_000, 2_000, 5_000, 10_000] {
        for arguments in [json!({"max_tokens": budget}), json!({"max_tokens": budget, "files": discussed})] {
            let map = fixture.run_as(Trust::Owner, "repo_map", &arguments).await.content;
            let tokens = estimate_tokens(&map);
            assert!(tokens <= budget && map.starts_with("# Code map"), "{tokens} of {budget}: {map:.500}");
        }
        let map = fixture.run_as(Trust::Owner, "repo_map", &json!({"max_tokens": budget})).await.content;
        assert!(estimate_tokens(&map) > before && estimate_tokens(&map) > budget * 3 / 4, "{budget}: {map:.500}");
        before = estimate_tokens(&map);
    }
    let map = fixture.run_as(Trust::Owner, "repo_map", &json!({})).await.content;
    assert!((1_800..=2_000).contains(&estimate_tokens(&map)), "{}", estimate_tokens(&map));
}

#[tokio::test]
async fn the_cache_shows_nobody_what_is_private() {
    let config = ToolsConfig { strangers_read: vec![".".to_owned()], ..ToolsConfig::default() };
    let fixture = ToolFixture::with_private(&config, PrivateFolders::new(&["memory"]));
    fixture.write(&FILES);
    fixture.write(&[
        ("memory/secret.rs", "fn secret_canary() { load_all() }"),
        ("scratch/theirs.rs", "fn foreign_canary() {}"),
    ]);
    let owner = fixture.run_as(Trust::Owner, "repo_map", &json!({"idents": ["secret_canary"]})).await;
    assert!(owner.content.contains("secret_canary"), "{}", owner.content);
    assert_eq!(owner.taint, ["file:scratch/theirs.rs".to_owned()].into());
    for trust in [Trust::Known, Trust::Untrusted] {
        for arguments in [json!({}), json!({"files": ["memory/secret.rs"], "idents": ["secret_canary"]})] {
            let other = fixture.run_as(trust, "repo_map", &arguments).await;
            assert!(other.success && !other.content.contains("secret_canary"), "{trust:?}: {}", other.render());
            assert!(!other.content.contains("\nmemory/secret.rs"), "{trust:?}: {}", other.content);
        }
        let other = fixture.run_as(trust, "repo_map", &json!({"path": "memory"})).await;
        assert!(!other.success, "{}", other.content);
    }
    // The entries of files that other senders may not see are still there for the owner.
    assert_eq!(counts(&fixture).await, [6, 0, 6]);
    let clean = fixture.run_as(Trust::Owner, "repo_map", &json!({"path": "src"})).await;
    assert!(!clean.metadata.contains_key("taint"), "{:?}", clean.metadata);
    // A link out of the workspace is not followed. A file that became a link is not answered from the cache.
    std::fs::write(fixture.home.path().join("outside.rs"), "fn outside_canary() {}").unwrap();
    std::fs::remove_file(fixture.path("src/store.rs")).unwrap();
    std::os::unix::fs::symlink("../../outside.rs", fixture.path("src/store.rs")).unwrap();
    let map = fixture.run_as(Trust::Owner, "repo_map", &json!({})).await.content;
    assert!(!map.contains("outside_canary") && !map.contains("load_all"), "{map}");
}
