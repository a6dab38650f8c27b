//! The tool `run_test` with real test runners, in the sandbox of commands.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use daoyou::chat::ToolCall;
use daoyou::tools::{ToolDeps, ToolExecutor, ToolResult, ToolsConfig, build};
use daoyou_channels::Trust;
use serde_json::{Value, json};

use crate::support::requirements::{bubblewrap_is_missing, is_missing, sandbox_is_missing, skip_story};
use crate::support::{Gateway, Model, Setup, tool_context, write_files};

const BINARY: &str = env!("CARGO_BIN_EXE_daoyou");

/// A workspace with files, and its tools.
struct Harness {
    home: tempfile::TempDir,
    executor: ToolExecutor,
}

impl Harness {
    /// Returns a harness; if there is no sandbox, skips the story and returns `None`.
    fn new(files: &[(&str, &str)]) -> Option<Self> {
        if sandbox_is_missing() {
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let workspace = home.path().join("workspace");
        write_files(&workspace, files);
        let config = ToolsConfig::default();
        let executor = build(&config, &workspace, home.path(), PathBuf::from(BINARY), ToolDeps::default()).unwrap();
        Some(Self { home, executor })
    }

    async fn run(&self, arguments: Value) -> ToolResult {
        let call = ToolCall { id: "call-1".to_owned(), name: "run_test".to_owned(), arguments: arguments.to_string() };
        self.executor.run(&call, &tool_context(Trust::Owner)).await.result
    }

    /// Asserts the counts and the position of the only failure; returns the result as the model reads it.
    async fn check(&self, arguments: Value, counts: (u64, u64, u64), failure: Option<(&str, &str, u64)>) -> String {
        let result = self.run(arguments).await;
        let text = result.render();
        let count = |name: &str| result.metadata[name].as_u64().unwrap();
        assert_eq!((count("passed"), count("failed"), count("skipped")), counts, "{text}");
        let words = format!("{} passed, {} failed, {} skipped", counts.0, counts.1, counts.2);
        assert!(text.contains(&words), "{text}");
        assert_eq!(result.success, counts.1 == 0, "{text}");
        let failures = result.metadata["failures"].as_array().unwrap();
        let found: Vec<_> = failures.iter().map(|f| (&f["name"], &f["file"], &f["line"])).collect();
        let (name, file, line) =
            failure.map_or((json!(0), json!(0), json!(0)), |(n, f, l)| (json!(n), json!(f), json!(l)));
        let expected = if failure.is_some() { vec![(&name, &file, &line)] } else { Vec::new() };
        assert_eq!(found, expected, "{text}");
        let spill = self.home.path().join("workspace").join(&result.spill.as_ref().unwrap().path);
        assert!(fs::metadata(spill).unwrap().len() > 0);
        text
    }
}

/// Returns true if pytest does not run in the sandbox; then it also skips the story. The default Python may be in a user's home.
fn pytest_is_missing() -> bool {
    let ran = Command::new("/usr/bin/python3").args(["-m", "pytest", "--version"]).output();
    let is_missing = !ran.is_ok_and(|ran| ran.status.success());
    if is_missing {
        skip_story("there is no pytest (package python3-pytest)");
    }
    is_missing
}

const PYTHON: &str = "import calc\n\ndef test_adds():\n    assert calc.add(1, 1) == 2\n\n\
                      def test_fails():\n    assert calc.add(1, 1) == 3\n";

#[tokio::test]
async fn pytest_tests_are_run_and_counted() {
    let files = [
        ("py/calc.py", "def add(a, b):\n    return a + b\n"),
        ("py/tests/test_calc.py", PYTHON),
        ("py/tests/test_other.py", "import pytest\n\n@pytest.mark.skip\ndef test_later():\n    pass\n"),
        ("empty/tests/test_none.py", ""),
    ];
    let Some(harness) = Harness::new(&files) else { return };
    if pytest_is_missing() {
        return;
    }
    let failure = Some(("tests/test_calc.py::test_fails", "py/tests/test_calc.py", 7));
    let text = harness.check(json!({"path": "py"}), (1, 1, 1), failure).await;
    assert!(
        text.contains(
            " s (pytest)\nFAILED tests/test_calc.py::test_fails (py/tests/test_calc.py:7)\n    assert 2 == 3"
        ),
        "{text}"
    );
    harness.check(json!({"test_path": "py/tests/test_other.py", "test_framework": "pytest"}), (0, 0, 1), None).await;
    let none = harness.run(json!({"path": "empty"})).await;
    assert!(!none.success && none.render().contains("no tests found in"), "{}", none.render());
}

#[tokio::test]
async fn node_tests_are_run_through_npm_and_counted() {
    let test = "const test = require('node:test');\nconst assert = require('node:assert');\n\
                test('adds', () => {});\ntest('fails', () => {\n  assert.strictEqual(1 + 1, 3);\n});\n";
    let files = [
        ("web/package.json", r#"{"scripts": {"test": "node --test"}}"#),
        ("web/a.test.js", test),
        ("web/b.test.js", "require('node:test')('fine', () => {});\n"),
        ("plain/package.json", "{}"),
    ];
    let Some(harness) = Harness::new(&files) else { return };
    if is_missing("npm", "npm") || is_missing("node", "nodejs") {
        return;
    }
    let text = harness.check(json!({"path": "web"}), (2, 1, 0), Some(("fails", "web/a.test.js", 5))).await;
    assert!(text.contains("(npm)") && text.contains("2 !== 3"), "{text}");
    harness.check(json!({"path": "web/b.test.js"}), (1, 0, 0), None).await;
    let none = harness.run(json!({"path": "plain"})).await.render();
    assert!(
        none.contains("no tests found in plain or above it") && none.contains("package.json with a script"),
        "{none}"
    );
}

#[tokio::test]
async fn make_runs_the_tests_and_its_runner_is_recognised() {
    let files = [
        ("ok/Makefile", "test:\n\t@echo all is well\n"),
        ("bad/Makefile", "check:\n\t@echo it broke; exit 3\n"),
        ("py/Makefile", "test:\n\t/usr/bin/python3 -m pytest -p no:cacheprovider test_calc.py\n"),
        ("py/calc.py", "def add(a, b):\n    return a + b\n"),
        ("py/test_calc.py", PYTHON),
        ("slow/Makefile", "test:\n\tsleep 987\n"),
    ];
    let Some(harness) = Harness::new(&files) else { return };
    if is_missing("make", "make") {
        return;
    }
    let ok = harness.run(json!({"path": "ok"})).await;
    assert!(ok.success && ok.content.contains("succeeded, but its output names no tests"), "{}", ok.render());
    assert!(ok.content.ends_with("all is well"), "{}", ok.content);
    let bad = harness.run(json!({"path": "bad"})).await;
    assert!(bad.render().starts_with("Error: failed with exit code 2 before any test in"), "{}", bad.render());
    assert!(bad.content.contains("it broke") && bad.metadata["exit_code"] == 2, "{}", bad.render());
    let slow = harness.run(json!({"path": "slow", "timeout": 1})).await.render();
    assert!(slow.contains("timed out after 1 seconds"), "{slow}");
    if !pytest_is_missing() {
        let failure = Some(("test_calc.py::test_fails", "py/test_calc.py", 7));
        harness.check(json!({"path": "py", "framework": "make"}), (1, 1, 0), failure).await;
    }
}

#[tokio::test]
async fn each_fault_is_one_clear_error() {
    let Some(harness) = Harness::new(&[("notes.txt", ""), ("go/go.mod", "module x\n"), ("rust/Cargo.toml", "")]) else {
        return;
    };
    for (arguments, expected) in [
        (json!({}), "no tests found in the workspace or above it; looked for Cargo.toml"),
        (json!({"path": "notes.txt", "framework": "cargo"}), "no cargo project in notes.txt"),
        (json!({"framework": "rspec"}), "is not one of cargo, pytest, npm, go, maven, make"),
        (json!({"path": "../x"}), "outside the workspace"),
        (json!({"path": "gone"}), "no such file"),
        (json!({"path": ""}), "the path is empty"),
        (json!({"path": "go", "timeout": 0}), "at least 1"),
    ] {
        let result = harness.run(arguments.clone()).await;
        let text = result.render();
        assert!(!result.success && text.contains(expected), "{arguments}: {text}");
    }
    if crate::support::requirements::find("go").is_none() {
        let text = harness.run(json!({"path": "go"})).await.render();
        assert!(text.starts_with("Error: go is not installed where commands can use it"), "{text}");
    }
}

const LIBRARY: &str = "pub fn add(a: i32, b: i32) -> i32 { a + b }\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    \
                       fn adds() { assert_eq!(super::add(1, 1), 2); }\n    #[test]\n    fn fails() {\n        \
                       assert_eq!(super::add(1, 1), 3, \"the sum\");\n    }\n    #[test]\n    #[ignore]\n    fn later() {}\n}\n";

/// Runs the tool through the real program, as its model sees it.
#[tokio::test(flavor = "multi_thread")]
async fn cargo_tests_are_run_and_counted() {
    if bubblewrap_is_missing() {
        return;
    }
    let found = Command::new("rustc").args(["--print", "sysroot"]).output();
    let Some(toolchain) = found.ok().and_then(|found| String::from_utf8(found.stdout).ok()) else {
        return skip_story("there is no rustc");
    };
    let toolchain = toolchain.trim();
    let model = Model::start().await;
    model.call_named_tools();
    let path = format!("{toolchain}/bin:{}", std::env::var("PATH").unwrap());
    let setup = Setup::scripted(&model).env("PATH", &path);
    let gateway = Gateway::start(setup.set("tools.exec.read_paths", vec![toolchain])).await;
    let manifest = "[package]\nname = \"calc\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    let files = [
        ("rust/Cargo.toml", manifest),
        ("rust/src/lib.rs", LIBRARY),
        ("rust/tests/other.rs", "#[test]\nfn fine() {}\n"),
        ("broken/Cargo.toml", manifest),
        ("broken/src/lib.rs", "pub fn f() -> u8 {\n    missing\n}\n"),
    ];
    write_files(&gateway.workspace(), &files);
    let mut results = Vec::new();
    for path in ["rust", "rust/tests/other.rs", "broken/src/lib.rs"] {
        results.push(gateway.call_tool("run_test", &json!({ "path": path })).await);
    }
    assert!(results[0].starts_with("Error: 2 passed, 1 failed, 1 skipped in "), "{}", results[0]);
    let failure =
        " s (cargo)\nFAILED tests::fails (rust/src/lib.rs:9)\n    assertion `left == right` failed: the sum\n";
    assert!(results[0].contains(failure), "{}", results[0]);
    assert!(results[1].starts_with("1 passed, 0 failed, 0 skipped in "), "{}", results[1]);
    assert!(results[2].starts_with("Error: does not compile: 1 error in "), "{}", results[2]);
    assert!(results[2].contains("cannot find value `missing` in this scope (broken/src/lib.rs:2)"), "{}", results[2]);
    assert_eq!(model.refused(), Vec::<String>::new());
}
