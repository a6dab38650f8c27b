//! Tests with malicious files: each must cost little time, and no call may fail.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::language::CodeLanguage;
use super::parser::{MAX_SOURCE, ParseFailure, SourceParser};
use super::tags::extract_tags;
use crate::guard::StopSignal;
use crate::tools::ToolsConfig;
use crate::tools::testing::{ToolFixture, context};

/// Returns the files, each with a name for its fault and without an extension.
fn hostile_files() -> Vec<(&'static str, Vec<u8>)> {
    let nested =
        |open: &str, close: &str, count: usize| format!("{}1{}", open.repeat(count), close.repeat(count)).into_bytes();
    vec![
        ("one_line", b"a+".repeat(5_000_000)),
        ("deep_parens", nested("(", ")", 100_000)),
        ("deep_braces", nested("{", "}", 100_000)),
        ("unclosed", b"((((f(".repeat(40_000)),
        ("deep_calls", nested("f(g(", "))", 20_000)),
        (
            "deep_indent",
            (0..2_000).flat_map(|level| format!("{}if x:\n", " ".repeat(level.min(200))).into_bytes()).collect(),
        ),
        ("nul", b"fn a() {}\0fn b() {}".to_vec()),
        ("not_utf8", b"fn \xff\xfe() { \xc3\x28 }\ndef \xf0\x28: pass\nfn good_one() { call() }\n".to_vec()),
        ("long_name", [b"fn ".to_vec(), vec![b'a'; 400_000], b"() {}".to_vec()].concat()),
        ("many_names", (0..20_000).flat_map(|n| format!("fn f{n}() {{}}\n").into_bytes()).collect()),
        ("many_strings", b"\"'`\"\"\"'''/*//#\\".repeat(15_000)),
        ("empty", Vec::new()),
        ("marked", b"\xef\xbb\xbffn marked() {}\n".to_vec()),
        ("line_ends", b"fn a() {\r\n\r}\r\n\xe2\x80\xa8fn b() {}".to_vec()),
    ]
}

#[test]
fn each_hostile_file_ends_in_time() {
    // Twice the time limit of one file, for parsing and the query, plus a margin for a slow machine.
    let most = Duration::from_secs(12);
    std::thread::scope(|scope| {
        // Languages with their own scanner, and one without.
        for language in
            [CodeLanguage::Cpp, CodeLanguage::Java, CodeLanguage::Python, CodeLanguage::Rust, CodeLanguage::Tsx]
        {
            scope.spawn(move || {
                for (name, bytes) in hostile_files() {
                    let begin = Instant::now();
                    let stop = StopSignal::new(Duration::from_secs(600), CancellationToken::new());
                    let source = &bytes[..bytes.len().min(MAX_SOURCE as usize)];
                    let tags = extract_tags(&mut SourceParser::new(), language, source, &stop);
                    assert!(begin.elapsed() < most, "{language:?} {name}: {:?}", begin.elapsed());
                    assert_ne!(tags.err(), Some(ParseFailure::Stopped), "{language:?} {name}");
                }
            });
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_files_keep_no_call_from_the_others() {
    let fixture = ToolFixture::new(&ToolsConfig::default());
    let quick = ["one_line", "deep_parens", "nul", "not_utf8", "long_name", "empty", "marked", "line_ends"];
    for (name, bytes) in hostile_files().into_iter().filter(|(name, _)| quick.contains(name)) {
        std::fs::write(fixture.path(&format!("{name}.rs")), bytes).unwrap();
    }
    std::fs::write(fixture.path("good.rs"), "fn good() { good_one() }").unwrap();
    for (name, arguments, expected) in [
        ("repo_map", json!({}), &["function good (line 1)", "function marked (line 1)", "1 too large", "1 binary"][..]),
        ("repo_map", json!({"files": ["good.rs"]}), &["good.rs:"]),
        (
            "symbols",
            json!({"path": ".", "query": "GOOD"}),
            &["function good (1): fn good() { good_one() }", "good_one"],
        ),
        ("ast_grep_search", json!({"pattern": "good_one()", "lang": "rust"}), &["good.rs:1: fn good() { good_one() }"]),
        ("ast_grep_search", json!({"pattern": "f($A, $A)", "lang": "rust"}), &["No match", "1 binary"]),
        ("ast_grep_search", json!({"pattern": "($A)", "lang": "rust"}), &["skipped: "]),
        (
            "ast_grep_replace",
            json!({"pattern": "$A()", "rewrite": "x()", "lang": "rust", "dry_run": false}),
            &["+fn good() { x() }", "skipped: "],
        ),
        ("repo_structure", json!({}), &["good.rs", "9 files"]),
    ] {
        let rendered = fixture.rendered(name, arguments.clone()).await;
        for part in expected {
            assert!(rendered.contains(part), "{name} {arguments}: {part}: {rendered:.2000}");
        }
        assert!(rendered.len() < 20_000, "{name}: {}", rendered.len());
    }
    // Bytes that are not valid text stay unchanged.
    let kept = std::fs::read(fixture.path("not_utf8.rs")).unwrap();
    assert!(kept.starts_with(b"fn \xff\xfe() { \xc3\x28 }\ndef \xf0\x28: pass\n"), "{kept:?}");
}

#[tokio::test]
async fn a_cancelled_call_ends() {
    let fixture = ToolFixture::new(&ToolsConfig::default());
    std::fs::write(fixture.path("a.rs"), "fn a() {}").unwrap();
    for (name, arguments) in [
        ("repo_map", json!({})),
        ("repo_structure", json!({})),
        ("symbols", json!({"path": "."})),
        ("ast_grep_search", json!({"pattern": "a", "lang": "rust"})),
        ("ast_grep_replace", json!({"pattern": "a()", "rewrite": "b()", "lang": "rust", "dry_run": false})),
    ] {
        let context = context();
        context.cancel.cancel();
        let tool = fixture.executor.registry().get(name).unwrap();
        let result = tool.call(arguments, &context).await.result;
        let rendered = result.render();
        assert!(rendered.to_lowercase().contains("cancelled"), "{name}: {rendered}");
        assert!(result.is_partial || tool.definition().cache_ttl.is_none(), "{name} would be kept");
    }
}
