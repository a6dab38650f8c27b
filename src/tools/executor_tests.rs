//! Tests of the executor and the file tools from the perspective of a model.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use daoyou_channels::settings::{ByteSize, Secret};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::testing::{ToolFixture, context};
use super::truncation::TextExtent;
use super::*;
use crate::chat::{ToolCall, ToolSpec};
use crate::guard::KnownSecrets;
use crate::postprocess::{PostprocessOrder, Question};

/// A tool with scripted behaviour.
struct FakeTool {
    definition: ToolDefinition,
    act: fn() -> ToolResult,
    hangs: bool,
    tried: Arc<AtomicU32>,
}

impl FakeTool {
    fn new(name: &str, act: fn() -> ToolResult) -> Self {
        let spec = ToolSpec {
            name: name.to_owned(),
            description: String::new(),
            parameters: plain_schema(&json!({ "type": "object" })),
        };
        let output_limit = OutputLimit { chars: 400, lines: 20 };
        let definition = ToolDefinition { output_limit, ..ToolDefinition::of_spec(spec, ReplayPolicy::Idempotent) };
        Self { definition, act, hangs: false, tried: Arc::default() }
    }
}

#[async_trait]
impl Tool for FakeTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    async fn call(&self, _: Value, _: &ToolContext) -> ToolOutcome {
        self.tried.fetch_add(1, Ordering::Relaxed);
        if self.hangs {
            std::future::pending::<()>().await;
        }
        (self.act)().into()
    }
}

fn call(name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: "call-1".to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
}

fn fresh() -> ToolFixture {
    ToolFixture::new(&ToolsConfig::default())
}

#[test]
fn the_specifications_are_small_strict_and_stable() {
    let fixture = fresh();
    let specs = fixture.executor.specs(&BTreeSet::new());
    let names: Vec<_> = specs.iter().map(|spec| spec.name.as_str()).collect();
    let expected = "read_file write_file edit_file list_dir grep exec find_tools".split(' ').collect::<Vec<_>>();
    assert_eq!(names, expected);
    for spec in specs.iter() {
        assert_eq!(schema_faults(&spec.parameters), Vec::<String>::new(), "{}", spec.name);
        // Calls are checked strictly, although the specification in the request does not say so.
        assert_eq!(spec.parameters.get("additionalProperties"), None);
        let whole = fixture.executor.registry().get(&spec.name).unwrap().spec();
        assert_eq!(whole.parameters.get("additionalProperties"), Some(&json!(false)));
    }
    let bytes = serde_json::to_string(&*specs).unwrap();
    assert_eq!(bytes, serde_json::to_string(&*fresh().executor.specs(&BTreeSet::new())).unwrap());
    let found = BTreeSet::from(["glob".to_owned()]);
    let with_found = fixture.executor.specs(&found);
    assert!(with_found.iter().any(|spec| spec.name == "glob"));
    assert!(Arc::ptr_eq(&with_found, &fixture.executor.specs(&found)), "what is known by their address stays known");
    assert!(bytes.len() < 4_500, "tools cost tokens in every request: {} bytes\n{bytes}", bytes.len());
}

#[test]
fn tools_are_found_by_name_or_alias() {
    let registry = |disabled: &[&str]| {
        let disabled = disabled.iter().map(|name| (*name).to_owned()).collect();
        ToolFixture::new(&ToolsConfig { disabled, ..ToolsConfig::default() })
    };
    let fixture = registry(&[]);
    for (name, found) in [
        ("exec", Some("exec")),
        ("bash", Some("exec")),
        ("run_command", Some("exec")),
        ("edit", Some("edit_file")),
        ("search_replace", Some("edit_file")),
        ("list_files", Some("list_dir")),
        ("ls", Some("list_dir")),
        ("Read_File", Some("read_file")),
        (" exec ", Some("exec")),
        ("rm", Some("delete_file")),
        ("text_search", Some("grep")),
        ("find_files", Some("glob")),
        ("get_file_info", Some("file_info")),
        ("mkdir", Some("create_dir")),
        ("get_repo_structure", Some("repo_structure")),
        ("get_file_symbols", Some("symbols")),
        ("ast_grep", Some("ast_grep_search")),
        ("chmod", None),
        ("", None),
    ] {
        let got = fixture.executor.registry().get(name).map(|tool| tool.spec().name.clone());
        assert_eq!(got.as_deref(), found, "{name}");
    }
    let fewer = registry(&["exec", "edit"]);
    assert_eq!(fewer.executor.registry().names().count(), 24);
    assert!(fewer.executor.registry().get("bash").is_none());
}

#[test]
fn a_call_by_an_alias_becomes_the_same_call_by_the_tools_canonical_name() {
    let fixture = fresh();
    for (name, arguments, expected, expected_arguments) in [
        ("Bash", r#"{"cmd":"ls"}"#, "exec", r#"{"cmd":"ls"}"#),
        ("regex_search", r#"{"pattern":"a.b"}"#, "grep", r#"{"pattern":"a.b"}"#),
        ("Text_Search", r#"{"query":"a.b"}"#, "grep", r#"{"ignore_case":true,"pattern":"a\\.b"}"#),
        ("text_search", r#"{"query":["a","b"]}"#, "grep", r#"{"query":["a","b"]}"#),
        ("text_search", "{", "grep", "{"),
        ("chmod", "{}", "chmod", "{}"),
    ] {
        let mut call = ToolCall { id: "1".to_owned(), name: name.to_owned(), arguments: arguments.to_owned() };
        fixture.executor.registry().canonicalize(&mut call);
        assert_eq!(call.name, expected, "{name}");
        let read = |text: &str| serde_json::from_str::<Value>(text).map_err(|_| text.to_owned());
        assert_eq!(read(&call.arguments), read(expected_arguments), "{name} {arguments}");
    }
}

#[test]
fn a_call_is_as_careful_as_the_most_careful_tool_in_it() {
    use ReplayPolicy::{Atomic, Idempotent, Once, Overwrites};
    use ToolAccess::{Changes, Reads};
    let fixture = fresh();
    let plan =
        |tools: &[&str]| json!({ "calls": tools.iter().map(|tool| json!({ "tool": tool })).collect::<Vec<_>>() });
    for (name, arguments, replay, access) in [
        ("read_file", json!({}), Some(Idempotent), Some(Reads)),
        ("ls", json!({}), Some(Idempotent), Some(Reads)),
        ("write_file", json!({}), Some(Overwrites), Some(Changes)),
        ("edit_file", json!({}), Some(Once), Some(Changes)),
        ("repo_map", json!({}), Some(Idempotent), Some(Reads)),
        ("ast_grep_search", json!({}), Some(Idempotent), Some(Reads)),
        ("ast_grep_replace", json!({}), Some(Once), Some(Changes)),
        ("exec", json!({}), Some(Once), Some(Changes)),
        ("message", json!({}), Some(Atomic), Some(Changes)),
        ("x", json!({}), None, None),
        ("parallel", plan(&["read_file", "write_file"]), Some(Overwrites), Some(Changes)),
        ("parallel", plan(&["message", "read_file"]), Some(Atomic), Some(Changes)),
        ("parallel", plan(&["message", "bash", "read_file"]), Some(Once), Some(Changes)),
        ("parallel", json!({ "calls": plan(&["bash"])["calls"].to_string() }), Some(Once), Some(Changes)),
        ("parallel", plan(&["read_file", "nothing"]), Some(Once), Some(Changes)),
        ("parallel", json!({ "calls": 1 }), Some(Once), Some(Changes)),
    ] {
        let got = fixture.executor.replay_of(&call(name, &arguments.to_string()));
        assert_eq!((got, fixture.executor.access_of(name)), (replay, access), "{name} {arguments}");
    }
}

#[tokio::test]
async fn the_error_of_a_wrong_call_says_what_is_right() {
    let fixture = fresh();
    for (name, arguments, expected) in [
        (
            "frobnicate",
            "{}",
            "Error: Tool \"frobnicate\" not found. Available tools: read_file, write_file, edit_file, apply_patch, list_dir, grep, glob, repo_map, repo_structure, symbols, ast_grep_search, ast_grep_replace, file_info, create_dir, delete_file, exec, process, run_test, git_status, git_diff, git_log, git_commit, message, web_fetch, web_search, find_tools, parallel, lsp_diagnostics, lsp_definition, lsp_references, lsp_symbols, lsp_code_actions, lsp_rename\n\n\
             [Please analyze the error above and try a different approach.]",
        ),
        (
            "read_file",
            r#"{"foo":1,"offset":"x"}"#,
            "Error: Invalid params for tool \"read_file\": missing: path; unknown: foo (known: column, limit, offset, path); \
             offset: expected integer, got string\n\n[Please analyze the error above and try a different approach.]",
        ),
        (
            "edit_file",
            r#"{"path":"a","old_text":"x","new_text":"x"}"#,
            "Error: old_text and new_text are the same; nothing was changed\n\n\
             [Please analyze the error above and try a different approach.]",
        ),
        (
            "edit_file",
            r#"{"path":"a","old_text":"","new_text":"x"}"#,
            "Error: old_text is empty; use write_file for a whole file\n\n\
             [Please analyze the error above and try a different approach.]",
        ),
        (
            "exec",
            r#"{"command":" "}"#,
            "Error: command is empty\n\n[Please analyze the error above and try a different approach.]",
        ),
        (
            "read_file",
            r#"{"path":"#,
            "Error: Invalid params for tool \"read_file\": not valid JSON: EOF while parsing a value at line 1 column 8\n\n\
             [Please analyze the error above and try a different approach.]",
        ),
    ] {
        let outcome = fixture.executor.run(&call(name, arguments), &context()).await;
        assert!(!outcome.result.success && outcome.effects.is_empty());
        assert_eq!(outcome.result.render(), expected);
    }
}

#[tokio::test]
async fn files_are_written_read_edited_and_listed() {
    let fixture = fresh();
    let numbers: String = (1..=450).map(|n| format!("{n}\n")).collect();
    for (name, arguments, expected) in [
        (
            "write_file",
            json!({ "path": "notes/a.txt", "content": "one\ntwo\n" }),
            "Created notes/a.txt: 2 lines, 8 bytes",
        ),
        ("read_file", json!({ "file_path": "notes/a.txt" }), "1\tone\n2\ttwo"),
        (
            "edit_file",
            json!({ "path": "notes/a.txt", "oldStr": "two", "newStr": "2" }),
            "Replaced 1 occurrence in notes/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2",
        ),
        ("read_file", json!({ "path": "notes/a.txt", "offset": 2 }), "2\t2\n[lines 2-2 of 2]"),
        ("write_file", json!({ "path": "empty", "content": "" }), "Created empty: 0 lines, 0 bytes"),
        ("read_file", json!({ "path": "empty" }), "(the file is empty)"),
        ("write_file", json!({ "path": "n", "content": numbers }), "Created n: 450 lines, 1692 bytes"),
        ("list_dir", json!({}), "empty (0 B)\nn (1.7 KB)\nnotes/"),
        ("ls", json!({ "directory": "notes" }), "a.txt (6 B)"),
    ] {
        assert_eq!(fixture.rendered(name, arguments.clone()).await, expected, "{name} {arguments}");
    }
    let page = fixture.rendered("read_file", json!({ "path": "n", "offset": "201" })).await;
    assert!(
        page.starts_with("201\t201\n") && page.ends_with("400\t400\n[lines 201-400 of 450; continue with offset=401]")
    );
    let page = fixture.rendered("read_file", json!({ "path": "n", "limit": 5_000 })).await;
    assert!(page.starts_with("1\t1\n") && page.ends_with("\n450\t450"), "{page}");
    for (name, arguments, expected) in [
        ("read_file", json!({ "path": "../config.toml" }), "outside the workspace"),
        ("edit_file", json!({ "path": "n", "old_text": "nowhere", "new_text": "x" }), "nothing was changed"),
        ("edit_file", json!({ "path": "none", "old_text": "a", "new_text": "x" }), "no such file"),
        ("list_dir", json!({ "path": "n" }), "is not a folder"),
        ("write_file", json!({ "path": "/etc/daoyou", "content": "x" }), "outside the workspace"),
    ] {
        let got = fixture.rendered(name, arguments).await;
        assert!(got.starts_with("Error: ") && got.contains(expected), "{got}");
    }
    std::fs::write(fixture.path("bin"), b"\x7fELF\0\0").unwrap();
    assert!(fixture.rendered("read_file", json!({ "path": "bin" })).await.contains("binary file of 6 bytes"));
    std::fs::write(fixture.path("latin"), b"caf\xe9\n").unwrap();
    assert!(
        fixture
            .rendered("read_file", json!({ "path": "latin" }))
            .await
            .starts_with("1\tcaf\u{e9}\n[encoding: windows-1252]")
    );
}

#[tokio::test]
async fn a_cut_result_says_so_in_its_metadata() {
    let set = |chars, strategy| OutputConfig { chars: Some(chars), lines: None, strategy: Some(strategy) };
    for (max_output, output, left, ends) in [
        (12_000, None, 400, "y"),
        (150, None, 150, "y"),
        (12_000, Some(set(300, TruncationStrategy::HeadOnly)), 300, "]"),
        (12_000, Some(set(300, TruncationStrategy::None)), 5_000, "y"),
        (600, Some(set(9_000, TruncationStrategy::None)), 600, "y"),
    ] {
        let output = output.into_iter().map(|output| ("long".to_owned(), output)).collect();
        let mut fixture = ToolFixture::new(&ToolsConfig { max_output, output, ..ToolsConfig::default() });
        fixture.executor.register(Arc::new(FakeTool::new("long", || ToolResult::ok("y".repeat(5_000))))).unwrap();
        fixture.executor.register(Arc::new(FakeTool::new("short", || ToolResult::ok("x".repeat(100))))).unwrap();
        let short = fixture.executor.run(&call("short", "{}"), &context()).await.result;
        assert_eq!((short.content.len(), short.metadata.len()), (100, 0), "at or below the limit nothing changes");
        let long = fixture.executor.run(&call("long", "{}"), &context()).await.result;
        let (content, metadata) = (&long.content, long.shown_metadata());
        assert!(content.len() <= left && content.len() + 100 > left && content.ends_with(ends), "{left}: {content}");
        if left == 5_000 {
            assert!(metadata.is_empty(), "{metadata:?}");
            continue;
        }
        assert_eq!(
            (&metadata["truncated"], &metadata["original_length"], &metadata["truncated_length"]),
            (&json!(true), &json!(5_000), &json!(content.len()))
        );
        let spill = std::fs::read_to_string(fixture.path(metadata["spill"].as_str().unwrap())).unwrap();
        assert_eq!(spill, "y".repeat(5_000));
        let whole = fixture.executor.run_whole(&call("long", "{}"), &context()).await.result;
        assert_eq!((whole.content.len(), whole.metadata.len()), (5_000, 0));
    }
}

#[tokio::test]
async fn a_large_folder_is_listed_in_part() {
    let fixture = fresh();
    for n in 0..520 {
        std::fs::write(fixture.path(&format!("f{n:04}")), "").unwrap();
    }
    let got = fixture.rendered("list_dir", json!({ "path": "." })).await;
    assert_eq!(got.lines().count(), 501);
    assert!(got.starts_with("f0000 (0 B)\n") && got.ends_with("f0499 (0 B)\n[20 more entries, not shown]"), "{got}");
}

#[tokio::test]
async fn concurrent_edits_are_all_kept() {
    let fixture = fresh();
    let lines: String = (0..20).map(|n| format!("[{n}]\n")).collect();
    std::fs::write(fixture.path("f"), lines).unwrap();
    let edits = (0..20).map(|n| {
        fixture.rendered(
            "edit_file",
            json!({ "path": "f", "old_text": format!("[{n}]"), "new_text": format!("done {n}") }),
        )
    });
    futures_util::future::join_all(edits).await;
    let expected: String = (0..20).map(|n| format!("done {n}\n")).collect();
    assert_eq!(std::fs::read_to_string(fixture.path("f")).unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_panics_hangs_or_is_cancelled_still_gives_a_result() {
    let mut fixture = fresh();
    let panics = FakeTool::new("panics", || panic!("on purpose"));
    let hangs = FakeTool { hangs: true, ..FakeTool::new("hangs", || ToolResult::ok("never")) };
    let mut brief = FakeTool { hangs: true, ..FakeTool::new("brief", || ToolResult::ok("")) };
    brief.definition.timeout = Some(Duration::from_secs(3));
    for tool in [panics, hangs, brief] {
        fixture.executor.register(Arc::new(tool)).unwrap();
    }
    let got = fixture.executor.run(&call("panics", ""), &context()).await.result.render();
    assert!(got.starts_with("Error: The tool failed inside daoyou"), "{got}");
    let got = fixture.executor.run(&call("hangs", ""), &context()).await.result.render();
    assert!(got.starts_with("Error: The tool timed out after 600 seconds"), "{got}");
    let got = fixture.executor.run(&call("brief", ""), &context()).await.result.render();
    assert!(got.starts_with("Error: The tool timed out after 3 seconds"), "{got}");
    let context = context();
    let cancel = context.cancel.clone();
    let hanging = call("hangs", "");
    let (outcome, ()) = tokio::join!(fixture.executor.run(&hanging, &context), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        cancel.cancel();
    });
    assert_eq!(outcome.result.render(), "Error: Cancelled while it ran; whether it took effect is unknown");
    let got = fixture.executor.run(&call("panics", ""), &context).await.result.render();
    assert_eq!(got, "Error: Cancelled before it started");
}

#[tokio::test(start_paused = true)]
async fn only_temporary_failures_of_repeatable_tools_are_retried() {
    let busy = || ToolResult::failed_for_now("busy");
    let wrong = || ToolResult::failed("wrong");
    let odd = || ToolResult { success: true, retryable: true, ..ToolResult::default() };
    for (name, act, replay, timeout, tries) in [
        ("busy", busy as fn() -> ToolResult, ReplayPolicy::Idempotent, None, 3),
        ("atomic", busy, ReplayPolicy::Atomic, None, 3),
        ("once", busy, ReplayPolicy::Once, None, 1),
        ("wrong", wrong, ReplayPolicy::Idempotent, None, 1),
        ("odd", odd, ReplayPolicy::Idempotent, None, 1),
        ("short", busy, ReplayPolicy::Idempotent, Some(Duration::from_millis(400)), 1),
        ("shorter", busy, ReplayPolicy::Idempotent, Some(Duration::from_millis(1_500)), 2),
    ] {
        let mut fixture = fresh();
        let mut fake = FakeTool::new(name, act);
        (fake.definition.replay, fake.definition.timeout) = (replay, timeout);
        let tried = Arc::clone(&fake.tried);
        fixture.executor.register(Arc::new(fake)).unwrap();
        let began = tokio::time::Instant::now();
        let result = fixture.executor.run(&call(name, ""), &context()).await.result;
        assert_eq!(tried.load(Ordering::Relaxed), tries, "{name}");
        let rendered = result.metadata.get("retries").and_then(Value::as_u64).unwrap_or(0);
        assert_eq!(rendered, u64::from(tries - 1), "{name}");
        assert!(!result.render().contains("retr"), "the model is not told: {}", result.render());
        let waited = began.elapsed().as_millis();
        let waits = [0..=100, 500..=1_100, 1_500..=3_100];
        assert!(waits[tries as usize - 1].contains(&waited), "{name}: {waited} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_between_tries_ends_when_the_turn_is_cancelled() {
    let mut fixture = fresh();
    let fake = FakeTool::new("busy", || ToolResult::failed_for_now("busy"));
    let tried = Arc::clone(&fake.tried);
    fixture.executor.register(Arc::new(fake)).unwrap();
    let context = context();
    let cancel = context.cancel.clone();
    let busy = call("busy", "");
    let (outcome, ()) = tokio::join!(fixture.executor.run(&busy, &context), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        cancel.cancel();
    });
    assert_eq!((outcome.result.render().as_str(), tried.load(Ordering::Relaxed)), ("Error: busy", 1));
}

#[tokio::test]
async fn long_output_is_shortened_and_kept_whole_for_read_file() {
    let mut fixture = fresh();
    let long = || ToolResult::ok((0..500).map(|n| format!("line {n}\n")).collect::<String>());
    let wrong = || ToolResult { content: "out\n".repeat(900), ..ToolResult::failed("e".repeat(900)) };
    for (name, act) in [("long", long as fn() -> ToolResult), ("wrong", wrong)] {
        fixture.executor.register(Arc::new(FakeTool::new(name, act))).unwrap();
    }
    let got = fixture.rendered("long", json!({})).await;
    assert!(TextExtent::of(&got).fits(OutputLimit { chars: 400, lines: 20 }));
    assert!(got.starts_with("line 0\n") && got.ends_with("line 499\n"), "{got}");
    let path = got.split("the whole output: ").nth(1).unwrap().split(" ...]").next().unwrap();
    assert!(path.starts_with(".daoyou/conversations/") && path.contains("-owner/spill/"), "{path}");
    let page = fixture.rendered("read_file", json!({ "path": path, "offset": 300, "limit": 2 })).await;
    assert_eq!(page, "300\tline 299\n301\tline 300\n[lines 300-301 of 500; continue with offset=302]");
    let got = fixture.rendered("wrong", json!({})).await;
    assert!(got.starts_with("Error: eee") && got.ends_with("out\n"), "{got}");
    assert!(TextExtent::of(&got).fits(OutputLimit { chars: 400, lines: 20 }), "{got}");
}

#[tokio::test]
async fn an_output_that_is_too_long_to_store_is_not_called_whole() {
    let mut fixture = ToolFixture::new(&ToolsConfig { max_file_size: ByteSize(1_000), ..ToolsConfig::default() });
    let long = || ToolResult::ok("line 1\n".repeat(2_000));
    fixture.executor.register(Arc::new(FakeTool::new("long", long))).unwrap();
    for (tool, arguments) in [
        ("long", json!({})),
        ("parallel", json!({"calls": [{"tool": "long", "arguments": {}}, {"tool": "long", "arguments": {}}]})),
    ] {
        let result = fixture.run(tool, &arguments, &context()).await.result;
        let got = &result.content;
        let note = "lines cut; the first 1000 of 14000 bytes: .daoyou/conversations/";
        assert!(got.contains(note) && !got.contains("whole"), "{tool}: {got}");
        if tool == "long" {
            assert_eq!(result.shown_metadata()["spill_part"], json!({"start": {"bytes": 1000, "of": 14000}}));
        }
    }
}

/// A call within a plan passes its result on, and a long result goes to a spill file. Neither may contain the secret.
#[tokio::test]
async fn secrets_are_removed_before_results_are_shortened_kept_or_passed_on() {
    let mut fixture = fresh();
    fixture.executor.secrets = KnownSecrets::new(["sk-canary-1".to_owned()].map(Secret::new));
    std::fs::write(fixture.path("keys.txt"), "the key is sk-canary-1").unwrap();
    let calls = json!([
        { "id": "a", "tool": "read_file", "arguments": { "path": "keys.txt" } },
        { "id": "b", "tool": "write_file", "arguments": { "path": "copy.txt", "content": "{{a}}" }, "needs": ["a"] },
    ]);
    let rendered = fixture.rendered("parallel", json!({ "calls": calls })).await;
    assert!(rendered.contains("the key is (hidden)"), "{rendered}");
    assert_eq!(std::fs::read_to_string(fixture.path("copy.txt")).unwrap(), "the key is (hidden)");

    // The cut goes through the first secret.
    let long = || ToolResult::ok("sk-canary-1 ".repeat(400));
    fixture.executor.register(Arc::new(FakeTool::new("long", long))).unwrap();
    let rendered = fixture.rendered("long", json!({})).await;
    assert!(rendered.contains("(hidden)") && !rendered.contains("canary"), "{rendered}");
    let path = rendered.split("the whole output: ").nth(1).unwrap().split(" ...]").next().unwrap();
    let kept = std::fs::read_to_string(fixture.path(path)).unwrap();
    assert_eq!(kept.trim_end(), "(hidden) ".repeat(400).trim_end());
}

/// Long lines are cut within a secret, both in a match and in the lines around a match.
#[tokio::test]
async fn a_cut_within_a_secret_leaves_no_part_of_it() {
    let secrets = KnownSecrets::new([Secret::new("sk-canary-0123456789")]);
    let fixture = ToolFixture::with_deps(&ToolsConfig::default(), ToolDeps { secrets, ..ToolDeps::default() });
    for at in 0..200 {
        let call = if at % 7 == 3 { "open_database(path)" } else { "compute(path)" };
        let around = format!("{}sk-canary-0123456789", "z".repeat(190));
        let text = format!("{around}\nlet value_{at} = {call};\n{around}\n");
        std::fs::write(fixture.path(&format!("file_{at}.rs")), text).unwrap();
    }
    let long = format!("needle{}sk-canary-0123456789 {}", "y".repeat(284), "x".repeat(300));
    let before = format!("{}sk-canary-0123456789{}needle", "w".repeat(400), "x".repeat(90));
    std::fs::write(fixture.path("long.txt"), format!("{long}\n{before}\n")).unwrap();
    let context = ToolContext { question: Arc::new(Question::new("where is the database opened?")), ..context() };
    let around = fixture
        .executor
        .run(&call("grep", r#"{"pattern":"let value","max_results":500}"#), &context)
        .await
        .result
        .render();
    assert!(around.contains("[filtered for the question: ") && around.contains("  1- zzz"), "{around}");
    let matched = fixture.rendered("grep", json!({ "pattern": "needle" })).await;
    assert!(matched.contains("yyy(hidden)"), "{matched}");
    for shown in [around, matched] {
        assert!(shown.contains("(hidden)") && !shown.contains("sk-") && !shown.contains("012"), "{shown}");
    }
}

#[tokio::test]
async fn a_result_that_is_cut_first_is_counted_as_a_whole() {
    let mut config = ToolsConfig::default();
    config.postprocess.order = PostprocessOrder::TruncateFirst;
    config.output.insert("read_file".to_owned(), OutputConfig { chars: Some(2_500), ..OutputConfig::default() });
    let fixture = ToolFixture::new(&config);
    let city = |at: usize| if at.is_multiple_of(2) { "Lisbon" } else { "Oslo" };
    let rows: String = (0..900).map(|at| format!("{at},{},{}\n", city(at), "x".repeat(30))).collect();
    std::fs::write(fixture.path("a.csv"), format!("id,city,more\n{rows}")).unwrap();
    // A page has 116 lines; the limit keeps about half of them.
    let context = ToolContext { question: Arc::new(Question::new("id of Oslo")), ..context() };
    let result = fixture.executor.run(&call("read_file", r#"{"path":"a.csv"}"#), &context).await.result;
    let shown = result.render();
    assert_eq!(result.metadata["original_count"], 115, "{shown}");
    assert!(shown.contains(" lines cut") && shown.contains(" of 115 rows"), "{shown}");
    assert!(shown.matches("Oslo").count() < 40, "{shown}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_arguments_give_a_result(text in "\\PC{0,60}|\\{\"[a-z_]{0,9}\":[0-9\"\\[\\]{}a-z,:]{0,30}\\}") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let fixture = fresh();
        runtime.block_on(async {
            for name in ["read_file", "edit_file", "list_dir", "message"] {
                let outcome = fixture.executor.run(&call(name, &text), &context()).await;
                assert!(!outcome.result.render().is_empty());
            }
        });
    }
}
