//! Tests of the arguments that other systems name differently.

use schemars::JsonSchema;
use serde_json::{Value, json};

use super::argument_aliases::argument_name;
use super::arguments::parse_call;
use super::testing::ToolFixture;
use super::{ToolsConfig, tool_spec};

/// Returns the parsed arguments of a call, or its faults.
fn parse(fixture: &ToolFixture, called: &str, arguments: &Value) -> Result<Value, String> {
    let tool = fixture.executor.registry().get(called).unwrap();
    let fault = |error: String| error.split_once(": ").unwrap().1.to_owned();
    parse_call(tool.spec(), called, &arguments.to_string()).map_err(fault)
}

#[test]
fn arguments_of_other_systems_are_understood() {
    let fixture = ToolFixture::new(&ToolsConfig::default());
    for (called, arguments, expected) in [
        (
            "run_command",
            json!({"command": "make a; make b", "cwd": "it's", "timeout": 30, "shell": true}),
            json!({"command": "cd 'it'\\''s' || exit\nmake a; make b", "timeout": 30}),
        ),
        ("exec", json!({"command": "x", "workdir": "-"}), json!({"command": "cd './-' || exit\nx"})),
        ("exec", json!({"command": "x", "cwd": "."}), json!({"command": "x"})),
        ("exec", json!({"command": "x", "cwd": null, "shell": null}), json!({"command": "x"})),
        ("run_test", json!({"test_path": "tests/a.py", "cwd": "app"}), json!({"path": "app/tests/a.py"})),
        (
            "run_test",
            json!({"cwd": "app", "test_framework": "pytest", "timeout": "60"}),
            json!({"path": "app", "framework": "pytest", "timeout": 60}),
        ),
        ("read_file", json!({"file_path": "a", "encoding": "UTF-8"}), json!({"path": "a"})),
        ("list_files", json!({"directory": "a", "pattern": "*.py"}), json!({"path": "a", "pattern": "*.py"})),
        ("get_repo_structure", json!({"repo_path": ".", "show_files": true}), json!({"path": "."})),
        ("lsp_symbols", json!({"file_path": "a", "scope": "document"}), json!({"path": "a"})),
        ("lsp_diagnostics", json!({"file_path": "a", "severity": "all"}), json!({"path": "a"})),
        ("text_search", json!({"query": "a.b"}), json!({"pattern": r"a\.b", "ignore_case": true})),
        ("text_search", json!({"query": "a", "case_sensitive": "true"}), json!({"pattern": "a", "ignore_case": false})),
        ("search_files", json!({"query": "a.b"}), json!({"pattern": "a.b"})),
    ] {
        assert_eq!(parse(&fixture, called, &arguments), Ok(expected), "{called} {arguments}");
    }
}

#[test]
fn a_skill_is_loaded_by_skill_name() {
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct LoadSkillArgs {
        name: String,
    }
    let spec = tool_spec::<LoadSkillArgs>("load_skill", "d");
    let parsed = parse_call(&spec, "load_skill", r#"{"skill_name": "tea"}"#);
    assert_eq!(parsed, Ok(json!({"name": "tea"})));
}

#[test]
fn arguments_that_ask_for_something_else_are_refused() {
    let fixture = ToolFixture::new(&ToolsConfig::default());
    for (called, arguments, expected) in [
        ("exec", json!({"command": "x", "shell": false}), "shell: only true is possible: a shell runs every command"),
        ("exec", json!({"command": "x", "cwd": {}}), "cwd: expected string, got object"),
        (
            "read_file",
            json!({"path": "a", "encoding": "gbk"}),
            "encoding: only utf-8 is possible: other encodings are recognized, not chosen",
        ),
        (
            "get_repo_structure",
            json!({"show_files": false, "nope": 1}),
            "show_files: only true is possible: files are always shown; unknown: nope (known: max_depth, path)",
        ),
        ("write_file", json!({"path": "a", "content": "x", "cwd": "b"}), "unknown: cwd (known: content, path)"),
    ] {
        assert_eq!(parse(&fixture, called, &arguments), Err(expected.to_owned()), "{called} {arguments}");
    }
}

#[test]
fn an_argument_that_must_be_literal_is_known_by_each_of_its_names() {
    let fixture = ToolFixture::new(&ToolsConfig::default());
    for (tool, names) in
        [("exec", ["command", "cmd", "cwd", "workdir"]), ("run_test", ["path", "test_path", "cwd", "workdir"])]
    {
        let tool = fixture.executor.registry().get(tool).unwrap();
        for name in names {
            assert!(tool.definition().literal_arguments.contains(&argument_name(tool.spec(), name)), "{name}");
        }
    }
}
