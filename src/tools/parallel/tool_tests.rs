//! Tests of `parallel` from the perspective of a model.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};

use crate::chat::{ToolSpec, Usage};
use crate::postprocess::{ModelUse, Question};
use crate::tools::testing::{ToolFixture, context, message_content};
use crate::tools::truncation::TextExtent;
use crate::tools::{
    OutputLimit, PlannedCallState, ReplayPolicy, Tool, ToolContext, ToolDefinition, ToolOutcome, ToolResult,
    ToolsConfig, plain_schema,
};

fn fresh() -> ToolFixture {
    ToolFixture::new(&ToolsConfig::default())
}

async fn run(fixture: &ToolFixture, arguments: &Value) -> ToolOutcome {
    fixture.run("parallel", arguments, &context()).await
}

#[tokio::test]
async fn results_are_in_input_order_and_fill_placeholders() {
    let fixture = fresh();
    let plan = json!({ "calls": [
        { "tool": "read_file", "arguments": { "path": "both.txt" }, "needs": ["write"] },
        { "id": "write", "tool": "write_file", "needs": ["a", "4"],
          "arguments": { "path": "both.txt", "content": "{{a}}+{{4}} {{other}}" } },
        { "id": "a", "tool": "cat", "arguments": { "file_path": "a.txt" } },
        { "tool": "read_file", "arguments": { "path": "b.txt" } },
    ] });
    std::fs::write(fixture.path("a.txt"), "one").unwrap();
    std::fs::write(fixture.path("b.txt"), "{{a}}").unwrap();
    let outcome = run(&fixture, &plan).await;
    assert_eq!(
        outcome.result.render(),
        "[1] read_file: done\n1\tone+{{a}} {{other}}\n\n[write] write_file: done\nCreated both.txt: 1 line, 19 bytes\n\n\
         [a] cat: done\n1\tone\n\n[4] read_file: done\n1\t{{a}}"
    );
    assert_eq!(outcome.result.planned_calls[1].state, PlannedCallState::Done);
}

#[tokio::test]
async fn a_failure_skips_dependent_calls_and_stops_the_rest_on_request() {
    let fixture = fresh();
    std::fs::write(fixture.path("a.txt"), "one").unwrap();
    let plan = |on_error: &str| {
        json!({ "on_error": on_error, "calls": [
            { "id": "gone", "tool": "read_file", "arguments": { "path": "gone.txt" } },
            { "id": "after", "tool": "write_file", "arguments": { "path": "x", "content": "{{gone}}" }, "needs": ["gone"] },
            { "id": "ok", "tool": "read_file", "arguments": { "path": "a.txt" } },
            { "id": "last", "tool": "read_file", "arguments": { "path": "a.txt" }, "needs": ["ok"] },
        ] })
    };
    let got = run(&fixture, &plan("go_on")).await.result.render();
    assert!(
        got.starts_with("Error: 2 of 4 calls did not succeed: gone, after\n[gone] read_file: failed\nError: "),
        "{got}"
    );
    assert!(got.contains(
        "\n\n[after] write_file: skipped: a step that it needs failed (gone)\n\n[ok] read_file: done\n1\tone\n\n"
    ));
    assert!(got.ends_with("[last] read_file: done\n1\tone"), "{got}");
    let got = run(&fixture, &plan("stop_others")).await.result.render();
    // The plan may be stopped before the file is read.
    let is_stopped = ["not run: the plan had been stopped", "skipped: a step that it needs failed (ok)"];
    assert!(is_stopped.iter().any(|end| got.ends_with(&format!("[last] read_file: {end}"))), "{got}");
    assert!(!fixture.path("x").exists());
}

#[tokio::test]
async fn an_invalid_plan_is_not_started() {
    let fixture = fresh();
    let write = |id: &str, needs: &[&str]| json!({ "id": id, "tool": "write_file", "arguments": { "path": id, "content": "" }, "needs": needs });
    let with = |call: Value| json!({ "calls": [write("a", &[]), call] });
    for (plan, expected) in [
        (json!({}), "missing: calls"),
        (json!({ "calls": [] }), "the plan is empty"),
        (json!({ "calls": [{ "id": "a" }] }), "calls[0]: missing: tool"),
        (json!({ "calls": [write("a", &["b"]), write("b", &["a"])] }), "none can start: a needs b needs a"),
        (with(write("b", &["c"])), "\"b\" needs \"c\", which is not in the plan; its ids are a, b"),
        (with(write("a", &[])), "the id \"a\" is given to more than one call"),
        (with(json!({ "tool": "nope" })), "\"2\": Tool \"nope\" not found. Available tools: read_file, "),
        (with(json!({ "tool": "parallel", "arguments": { "calls": [] } })), "a plan cannot stand in a plan"),
        (with(json!({ "tool": "batch" })), "a plan cannot stand in a plan"),
        (
            with(json!({ "tool": "write_file", "arguments": { "path": "b", "content": "{{a}}" } })),
            "\"2\" takes in the result of \"a\" and must name it in needs",
        ),
        (
            with(json!({ "tool": "exec", "arguments": { "cmd": "echo {{a}}" }, "needs": ["a"] })),
            "no result can be put into cmd of exec",
        ),
        (
            with(json!({ "tool": "message", "arguments": { "content": "x", "chat_id": "{{a}}" }, "needs": ["a"] })),
            "no result can be put into chat_id of message",
        ),
        (
            with(json!({ "tool": "process", "arguments": { "action": "{{a}}" }, "needs": ["a"] })),
            "no result can be put into action of process",
        ),
    ] {
        let got = run(&fixture, &plan).await.result.render();
        assert!(got.starts_with("Error: ") && got.contains(expected), "{plan}: {got}");
        assert!(!fixture.path("a").exists(), "{plan}");
    }
}

#[tokio::test]
async fn messages_are_sent_with_the_result_in_input_order() {
    let fixture = fresh();
    let message = |content: &str, needs: &[&str]| json!({ "tool": "message", "arguments": { "content": content }, "needs": needs });
    let plan = json!({ "calls": [message("second", &["2"]), message("first", &[]), message(" ", &[])] });
    let outcome = run(&fixture, &plan).await;
    let rendered: Vec<_> = outcome.effects.iter().map(message_content).collect();
    assert_eq!(rendered, ["second", "first"]);
    assert!(outcome.result.render().contains("[3] message: failed\nError: content is empty"));
}

#[tokio::test]
async fn long_results_share_the_limit_and_are_kept_whole() {
    let fixture = ToolFixture::new(&ToolsConfig { max_output: 20_000, ..ToolsConfig::default() });
    for n in 0..40 {
        let lines: String = (0..300).map(|line| format!("file {n} line {line}\n")).collect();
        std::fs::write(fixture.path(&format!("{n}.txt")), lines).unwrap();
    }
    let read = |n: usize| json!({ "id": format!("f{n}"), "tool": "read_file", "arguments": { "path": format!("{n}.txt"), "limit": 300 } });
    let plan = json!({ "calls": (0..40).map(read).collect::<Vec<_>>() });
    let got = run(&fixture, &plan).await.result.render();
    assert!(TextExtent::of(&got).fits(OutputLimit { chars: 20_000, lines: 1_000 }), "{:?}", TextExtent::of(&got));
    for n in 0..40 {
        let section = got.split(&format!("[f{n}] read_file: done\n")).nth(1).unwrap();
        assert!(section.starts_with(&format!("1\tfile {n} line 0\n")), "{section}");
    }
    let path = got.split("the whole output: ").nth(1).unwrap().split(" ...]").next().unwrap();
    assert_eq!(std::fs::read_to_string(fixture.path(path)).unwrap().lines().count(), 300, "{path}");
}

#[tokio::test]
async fn a_result_is_filtered_unless_another_call_takes_it_in() {
    let fixture = fresh();
    let function = |at: usize| format!("fn part{at}() {{\n    let value = {at};\n    value.max({at})\n}}\n\n");
    std::fs::write(fixture.path("a.rs"), (0..60).map(function).collect::<String>()).unwrap();
    let context = ToolContext { question: Arc::new(Question::new("where is part17?")), ..context() };
    for (content, needs, filtered) in [
        ("{{a}}", json!(["a"]), false),
        ("done", json!(["a"]), true),
        ("{{b}}", json!(["a"]), true),
        ("x", json!([]), true),
    ] {
        let plan = json!({ "calls": [
            { "id": "a", "tool": "read_file", "arguments": { "path": "a.rs" } },
            { "tool": "write_file", "arguments": { "path": "b.rs", "content": content }, "needs": needs },
        ] });
        let shown = fixture.run("parallel", &plan, &context).await.result.render();
        assert_eq!(shown.contains("[filtered for the question: "), filtered, "{content}: {shown}");
    }
}

/// A tool that never answers, and reports when it is cancelled.
struct WaitingTool(ToolDefinition);

#[async_trait]
impl Tool for WaitingTool {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    async fn call(&self, _: Value, context: &ToolContext) -> ToolOutcome {
        context.cancel.cancelled().await;
        ToolResult::failed("I was told to end").into()
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_plan_reports_how_far_it_came() {
    let mut fixture = fresh();
    let parameters = plain_schema(&json!({ "type": "object" }));
    let spec = ToolSpec { name: "waits".to_owned(), description: String::new(), parameters };
    let timeout = Some(Duration::from_secs(3_600));
    let definition = ToolDefinition { timeout, ..ToolDefinition::of_spec(spec, ReplayPolicy::Idempotent) };
    fixture.executor.register(Arc::new(WaitingTool(definition))).unwrap();
    let plan = json!({ "calls": [
        { "tool": "message", "arguments": { "content": "begun" } },
        { "tool": "waits" },
        { "tool": "read_file", "arguments": { "path": "a" }, "needs": ["1"] },
    ] });
    let expected = "Error: 2 of 3 calls did not succeed: 2, 3\n[1] message: done\nThe message goes to cli, chat direct.\n\n\
         [2] waits: failed\nError: I was told to end\n\n[3] read_file: not run: the plan had been stopped";
    let began = tokio::time::Instant::now();
    let outcome = run(&fixture, &plan).await;
    assert_eq!((outcome.result.render().as_str(), outcome.effects.len()), (expected, 1));
    assert_eq!(began.elapsed().as_secs(), 600);

    let context = context();
    let (outcome, ()) = tokio::join!(fixture.run("parallel", &plan, &context), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        context.cancel.cancel();
    });
    assert_eq!((outcome.result.render().as_str(), outcome.effects.len()), (expected, 1));
}

/// A tool whose result is foreign content, or, with the name `asks`, the taint that the tool sees.
struct ForeignTool(ToolDefinition);

#[async_trait]
impl Tool for ForeignTool {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    async fn call(&self, _: Value, context: &ToolContext) -> ToolOutcome {
        if self.0.spec.name == "asks" {
            return ToolResult::ok(format!("seen: {:?}", context.taint)).into();
        }
        let mut result = ToolResult::ok("line\n".repeat(5_000));
        result.add_sources(["web:x".to_owned()].into());
        result.found_tools.insert("git_log".to_owned());
        result.model_use.push(ModelUse { model: "a/b".to_owned(), usage: Usage::default(), cost: None });
        result.into()
    }
}

#[tokio::test]
async fn a_plan_passes_on_what_its_calls_read_and_found() {
    let mut fixture = fresh();
    for name in ["foreign", "asks"] {
        let parameters = plain_schema(&json!({ "type": "object" }));
        let spec = ToolSpec { name: name.to_owned(), description: String::new(), parameters };
        let definition = ToolDefinition::of_spec(spec, ReplayPolicy::Idempotent);
        fixture.executor.register(Arc::new(ForeignTool(definition))).unwrap();
    }
    let plan = json!({ "calls": [{ "id": "a", "tool": "foreign" }, { "id": "b", "tool": "asks", "needs": ["a"] }] });
    let result = run(&fixture, &plan).await.result;
    let got = result.render();
    assert!(got.contains("[b] asks: done\nseen: {\"web:x\"}"), "{got}");
    assert_eq!((result.taint.len(), result.found_tools.len(), result.model_use.len()), (1, 1, 1));
    let path = got.split("the whole output: ").nth(1).unwrap().split(" ...]").next().unwrap();
    assert!(crate::tools::spill::is_foreign(path.as_ref()), "{path}");
}

/// A tool that may wait for a person.
struct AskingTool(ToolDefinition);

#[async_trait]
impl Tool for AskingTool {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn may_wait(&self, _: &Value, _: &ToolContext) -> bool {
        true
    }

    async fn call(&self, _: Value, _: &ToolContext) -> ToolOutcome {
        ToolResult::ok("yes").into()
    }
}

/// A plan runs again after each wait, which may take days.
#[tokio::test]
async fn a_plan_that_waits_changes_files_only_after_the_last_wait() {
    let mut fixture = fresh();
    let parameters = plain_schema(&json!({ "type": "object" }));
    let spec = ToolSpec { name: "asks".to_owned(), description: String::new(), parameters };
    let definition = ToolDefinition::of_spec(spec, ReplayPolicy::Idempotent);
    fixture.executor.register(Arc::new(AskingTool(definition))).unwrap();
    let asks = |id: &str, needs: &[&str]| json!({ "id": id, "tool": "asks", "needs": needs });
    let file = |tool: &str, needs: &[&str]| {
        let content = if tool == "write_file" { json!("new") } else { Value::Null };
        let mut arguments = json!({ "path": "notes.txt", "content": content });
        arguments.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        json!({ "id": "file", "tool": tool, "arguments": arguments, "needs": needs })
    };
    for (calls, expected) in [
        (json!([asks("a", &[]), file("write_file", &[])]), Some("which write_file (\"file\") does not bear")),
        (json!([asks("a", &[]), file("delete_file", &[])]), Some("or let it need all of them")),
        (json!([asks("a", &[]), asks("b", &["file"]), file("write_file", &["a"])]), Some("let it need all of them")),
        (json!([asks("a", &[]), asks("b", &[]), file("write_file", &["a"])]), Some("let it need all of them")),
        (json!([asks("a", &[]), asks("b", &["a"]), file("write_file", &["b"])]), None),
        (json!([asks("a", &[]), file("read_file", &[])]), None),
    ] {
        fixture.write(&[("notes.txt", "of the owner")]);
        let got = run(&fixture, &json!({ "calls": calls })).await.result.render();
        match expected {
            Some(words) => {
                assert!(got.starts_with("Error: Nothing was run: ") && got.contains(words), "{calls}: {got}");
                assert_eq!(std::fs::read_to_string(fixture.path("notes.txt")).unwrap(), "of the owner");
            }
            None => assert!(got.starts_with("[a] asks: done"), "{calls}: {got}"),
        }
    }
}
