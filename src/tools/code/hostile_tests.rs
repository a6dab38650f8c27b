//! Tests with files that were made to do harm: they cost little time, and no call fails.

use std::time::{Duration, Instant};

use serde_json::json;

use super::language::CodeLanguage;
use crate::tools::ToolsConfig;
use crate::tools::testing::{ToolWorld, context};

/// The files, by what is wrong with them, without an ending.
fn hostile_files() -> Vec<(&'static str, Vec<u8>)> {
    let nested = |open: &str, close: &str, count: usize| format!("{}1{}", open.repeat(count), close.repeat(count)).into_bytes();
    vec![
        ("one_line", b"a+".repeat(5_000_000)),
        ("long_line", b"f(x);".repeat(60_000)),
        ("deep_parens", nested("(", ")", 100_000)),
        ("deep_braces", nested("{", "}", 100_000)),
        ("deep_lists", nested("[", "]", 50_000)),
        ("unclosed", b"((((f(".repeat(40_000)),
        ("only_closed", b")}]>".repeat(60_000)),
        ("deep_calls", nested("f(g(", "))", 20_000)),
        ("deep_types", nested("A<B<", ">>", 20_000)),
        ("deep_indent", (0..2_000).flat_map(|level| format!("{}if x:\n", " ".repeat(level.min(200))).into_bytes()).collect()),
        ("nul", b"fn a() {}\0fn b() {}".to_vec()),
        ("not_utf8", b"fn \xff\xfe() { \xc3\x28 }\ndef \xf0\x28: pass\nfn good_one() { call() }\n".to_vec()),
        ("long_name", [b"fn ".to_vec(), vec![b'a'; 400_000], b"() {}".to_vec()].concat()),
        ("many_names", (0..20_000).flat_map(|n| format!("fn f{n}() {{}}\n").into_bytes()).collect()),
        ("many_strings", b"\"'`\"\"\"'''/*//#\\".repeat(15_000)),
        ("heredocs", b"R\"x(r#\"<<E\n".repeat(20_000)),
        ("empty", Vec::new()),
        ("marked", b"\xef\xbb\xbffn marked() {}\n".to_vec()),
        ("line_ends", b"fn a() {\r\n\r}\r\n\xe2\x80\xa8fn b() {}".to_vec()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_files_harm_nothing() {
    let world = ToolWorld::new(&ToolsConfig::default());
    let mut files = 0;
    for language in CodeLanguage::ALL {
        let ending = match language.name() {
            "cpp" => "hpp",
            "javascript" => "js",
            "python" => "py",
            "rust" => "rs",
            "typescript" => "ts",
            other => other,
        };
        for (name, bytes) in hostile_files() {
            std::fs::write(world.path(&format!("{name}.{ending}")), bytes).unwrap();
            files += 1;
        }
    }
    std::fs::write(world.path("good.rs"), "fn good() { good_one() }").unwrap();
    for (name, arguments, expected) in [
        ("repo_map", json!({}), "good_one"),
        ("repo_map", json!({"files": ["good.rs"]}), "good.rs:"),
        ("symbols", json!({"path": ".", "query": "good"}), "function good (1): fn good() { good_one() }"),
        ("symbols", json!({"path": "."}), "too large to parse"),
        ("ast_grep_search", json!({"pattern": "good_one()", "lang": "rust"}), "good.rs:1: fn good() { good_one() }"),
        ("ast_grep_search", json!({"pattern": "f($A, $A)", "lang": "ts"}), "No match"),
        ("ast_grep_search", json!({"pattern": "$A($B)", "lang": "c"}), "nested too deeply"),
        ("ast_grep_replace", json!({"pattern": "good_one()", "rewrite": "x()", "lang": "rust"}), "+fn good() { x() }"),
        ("repo_structure", json!({}), "good.rs"),
    ] {
        let begin = Instant::now();
        let told = world.says(name, arguments.clone()).await;
        assert!(told.contains(expected), "{name} {arguments}: {told:.2000}");
        // Much longer than it takes: the machine may be slow, and the grammars are not optimized here.
        assert!(begin.elapsed() < Duration::from_secs(60), "{name} {arguments}: {:?}", begin.elapsed());
        assert!(told.len() < 60_000, "{name}: {}", told.len());
    }
    assert!(files > 100, "{files}");
}

#[tokio::test]
async fn a_cancelled_call_ends() {
    let world = ToolWorld::new(&ToolsConfig::default());
    std::fs::write(world.path("a.rs"), "fn a() {}").unwrap();
    for (name, arguments) in [
        ("repo_map", json!({})),
        ("repo_structure", json!({})),
        ("symbols", json!({"path": "."})),
        ("ast_grep_search", json!({"pattern": "a", "lang": "rust"})),
        ("ast_grep_replace", json!({"pattern": "a()", "rewrite": "b()", "lang": "rust", "dry_run": false})),
    ] {
        let context = context();
        context.cancel.cancel();
        let arguments = arguments.to_string();
        let call = crate::chat::ToolCall { id: "1".to_owned(), name: name.to_owned(), arguments };
        let told = world.executor.run(&call, &context).await.result.render();
        assert!(told.to_lowercase().contains("cancelled"), "{name}: {told}");
    }
}
