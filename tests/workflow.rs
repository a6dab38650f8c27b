//! Workflows: agents with written steps. Each step runs once, even if the process crashes.

use std::path::Path;

use serde_json::json;

use crate::support::gateway::Message;
use crate::support::invariants::{Journal, Witness, check};
use crate::support::model::ModelRequest;
use crate::support::requirements::bubblewrap_is_missing;
use crate::support::{Gateway, Model, Reply, Setup, until};

/// Returns a setup in which `flow` answers all messages; its steps are in `flow.yaml` next to the configuration.
fn setup(model: &Model) -> Setup {
    let mut route = toml::Table::new();
    route.insert("agent".to_owned(), "flow".into());
    Setup::scripted(model)
        .set("agents.flow.orchestrator", "workflow")
        .set("agents.flow.workflow", "file:flow.yaml")
        .set("routes", toml::Value::Array(vec![route.into()]))
}

/// Returns a stopped gateway with these steps.
fn with_flow(setup: Setup, flow: &str) -> Gateway {
    let gateway = Gateway::new(setup);
    std::fs::create_dir_all(gateway.home()).unwrap();
    std::fs::write(gateway.home().join("flow.yaml"), flow).unwrap();
    gateway
}

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_run_in_order_with_conditions_and_an_output() {
    let model = Model::start().await;
    model.on("good day", [Reply::text("bonjour")]);
    let flow = "
inputs:
  file: {description: The file to translate, required: true}
  lines: {default: 10}
steps:
  - id: source
    tool: read_file
    arguments: {path: '{{ inputs.file }}', limit: 5}
  - id: translation
    agent: translator
    prompt: 'Translate: {{ steps.source.output | trim }}'
  - id: warning
    agent: coder
    prompt: This never runs
    when: steps.translation.output | length > inputs.lines
  - parallel:
      - id: saved
        tool: write
        arguments: {path: out.txt, content: '{{ steps.translation.output }}'}
      - id: missing
        tool: read_file
        arguments: {path: nowhere.txt}
        on_error: continue
output: '{{ steps.translation.output }}, {{ steps.warning.status }}, {{ steps.saved.status }}, {{ steps.missing.error }}'
";
    let mut gateway = with_flow(setup(&model), flow);
    gateway.up().await;
    std::fs::write(gateway.workspace().join("a.txt"), "good day\n").unwrap();
    let answer = gateway.ask("in", "c", r#"{"file": "a.txt"}"#).await;
    assert!(answer.starts_with("bonjour, skipped, done, ") && answer.contains("nowhere.txt"), "{answer}");
    assert_eq!(std::fs::read_to_string(gateway.workspace().join("out.txt")).unwrap(), "bonjour");
    // Only the model of the step was called, with the agent's own prompt and tools.
    let requests = model.requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
    let asked = ModelRequest::new(0, &requests[0]);
    assert!(asked.user.starts_with("Translate: ") && asked.user.contains("good day"), "{}", asked.user);
    let system = requests[0]["messages"][0]["content"].as_str().unwrap();
    assert!(system.starts_with("You are a translator.") && requests[0].get("tools").is_none(), "{system}");
    let missing = gateway.ask("in", "c", r#"{"lines": 3}"#).await;
    assert_eq!(
        missing,
        "The workflow cannot start: missing: file (The file to translate). Send them as {\"file\":\"…\"}"
    );
    let shown = gateway.json(&["agents", "show", "flow"]).await;
    assert_eq!(shown["workflow"]["steps"][1], json!({"id": "translation", "agent": "translator"}));
    let preview = gateway.run(&["prompt", "--session", "webhook:in:c"]).await;
    assert!(preview.stderr.contains("agent flow follows its steps, and asks no model itself"), "{preview:?}");
    gateway.check_settled(&Witness::default()).await;
}

/// The first attempt fails and the second succeeds. A step that fails each time stops the workflow with its reason.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_fails_is_repeated_and_then_stops_the_workflow() {
    if bubblewrap_is_missing() {
        return;
    }
    let model = Model::start().await;
    let flow = |retries: u32| {
        format!(
            "
steps:
  - id: flaky
    tool: exec
    arguments: {{command: 'echo x >> tries.txt; test $(wc -l < tries.txt) -ge 3'}}
    retries: {retries}
  - id: after
    tool: write_file
    arguments: {{path: after.txt, content: '{{{{ steps.flaky.status }}}}'}}
output: '{{{{ input }}}} is {{{{ steps.after.status }}}}'
"
        )
    };
    for (retries, expected, tries) in [(3, "it is done", 3), (1, "Workflow: step flaky failed 2 times: ", 2)] {
        let mut gateway = with_flow(setup(&model), &flow(retries));
        gateway.up().await;
        let answer = gateway.ask("in", "c", "it").await;
        assert!(answer.starts_with(expected), "{answer}");
        assert_eq!(lines(&gateway.workspace().join("tries.txt")), tries);
        assert_eq!(gateway.workspace().join("after.txt").exists(), retries == 3);
    }
    assert_eq!(model.requests().len(), 0);
}

/// Killed at each point between the steps, the turn continues after the last finished step, and nothing runs twice.
#[tokio::test(flavor = "multi_thread")]
async fn no_step_runs_twice_at_any_crash_point() {
    if bubblewrap_is_missing() {
        return;
    }
    let flow = "
steps:
  - id: first
    tool: exec
    arguments: {command: echo x >> first.txt}
    retries: 2
  - id: asked
    agent: coder
    prompt: 'the question'
  - id: last
    tool: exec
    arguments: {command: 'echo {{ steps.asked.output }} >> last.txt'}
    retries: 2
output: '{{ steps.asked.output }} and {{ steps.last.status }}'
";
    for point in [
        "turn_started=go",
        "response_committed=Step first",
        "tool_started=exec",
        "tool_finished=exec",
        "tool_result_committed=exec",
        "response_committed=Step asked",
        "spawn_committed=asked",
        "waiting_committed=go",
        "child_ended=asked",
        "response_committed=Step last",
        "final_response_received=fine and done",
    ] {
        let model = Model::start().await;
        model.on("the question", [Reply::text("fine")]);
        let mut gateway = with_flow(setup(&model), flow);
        gateway.crash_at(point).up().await;
        let message = Message::new("go").chat("c").id("m1");
        gateway.try_post("in", "", &message).await;
        gateway.wait_crash().await;
        gateway.recover().await;
        let again = gateway.post("in", "", &message).await;
        let answer = gateway.wait_done("in", again.text("id")).await.text("reply").to_owned();
        let counts = ["first.txt", "last.txt"].map(|name| lines(&gateway.workspace().join(name)));
        match point {
            // The outcome is unknown, so the call is not repeated despite its retries.
            "tool_started=exec" | "tool_finished=exec" => {
                assert!(answer.starts_with("Workflow: step first failed: interrupted: "), "{point}: {answer}");
                assert_eq!(counts, [usize::from(point == "tool_finished=exec"), 0], "{point}");
            }
            _ => assert_eq!((answer.as_str(), counts), ("fine and done", [1, 1]), "{point}"),
        }
        let journal: Journal = check(&gateway.database(), &Witness::default());
        assert!(journal.inbox.iter().filter(|row| row.session.starts_with("spawn:")).count() <= 1, "{point}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_waits_for_an_approval_and_goes_on_and_a_denial_is_not_repeated() {
    if bubblewrap_is_missing() {
        return;
    }
    let model = Model::start().await;
    let flow = "
steps:
  - id: run
    tool: exec
    arguments: {command: echo x >> count.txt}
    retries: 3
output: '{{ steps.run.status }}'
";
    let mut gateway = with_flow(setup(&model).set("approval.default", "always"), flow);
    gateway.up().await;
    for (answer, expected, count) in [("approve", "done", 1), ("deny", "Workflow: step run failed: ", 1)] {
        let id = gateway.accept("in", &Message::new("go").chat("c")).await;
        let code = gateway.wait_approval().await["id"].as_str().unwrap().to_owned();
        gateway.restart().await;
        assert_eq!(gateway.run(&["approvals", answer, &code]).await.code, Some(0));
        let reply = gateway.wait_done("in", &id).await.text("reply").to_owned();
        assert!(reply.starts_with(expected), "{reply}");
        assert_eq!(lines(&gateway.workspace().join("count.txt")), count);
        assert_eq!(gateway.json(&["approvals", "list"]).await, json!([]), "the owner is asked once");
    }
}

/// If a workflow changes while a turn waits, the turn does not continue with results of the old workflow.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_workflow_ends_the_turns_of_the_old_one() {
    let model = Model::start().await;
    let flow = "steps: [{id: run, tool: exec, arguments: {command: echo x >> count.txt}}]\n";
    let mut gateway = with_flow(setup(&model).set("approval.default", "always"), flow);
    gateway.up().await;
    let id = gateway.accept("in", &Message::new("go").chat("c")).await;
    until("the question", async || (gateway.state("in", &id).await.text("status") == "waiting").then_some(())).await;
    std::fs::write(gateway.home().join("flow.yaml"), flow.replace("echo x", "echo y")).unwrap();
    gateway.restart().await;
    let reply = gateway.wait_done("in", &id).await.text("reply").to_owned();
    assert!(reply.starts_with("Workflow: it was changed while this ran"), "{reply}");
    assert!(!gateway.workspace().join("count.txt").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_workflow_is_one_clear_error() {
    let model = Model::start().await;
    let tool = |tool: &str| format!("steps:\n  - id: a\n    tool: {tool}\n");
    let agent = |name: &str| format!("steps:\n  - {{id: a, agent: {name}, prompt: x}}\n");
    for (flow, expected) in [
        ("steps: [".to_owned(), "flow.yaml, line "),
        (tool("exek"), "flow.yaml, line 2: step \"a\": \"exek\" is not a tool; the nearest is \"exec\""),
        (format!("{}    retry: 3\n", tool("exec")), "flow.yaml, line 4: "),
        (format!("{}    when: steps.b.output\n", tool("exec")), "no step \"b\" has ended here"),
        (agent("nobody"), "line 2: step \"a\": Agent 'nobody' not found; agents: assistant, "),
        (agent("flow"), "line 2: step \"a\": flow is the agent itself"),
        (agent("other"), "the workflows call each other without an end: flow, other, flow"),
        (tool("write_file"), "line 2: step \"a\": write_file is none of the agent's tools, which are read_file, exec"),
    ] {
        let other = "steps: [{id: b, agent: flow, prompt: x}]";
        let setup = setup(&model).set("agents.flow.tools", vec!["read_file", "exec"]);
        let setup = match flow.contains("other") {
            true => setup.set("agents.other.orchestrator", "workflow").set("agents.other.workflow", other),
            false => setup,
        };
        let mut gateway = with_flow(setup, &flow);
        let check = gateway.run(&["config", "check"]).await;
        assert!(check.code == Some(78) && check.stderr.contains(expected), "{flow}: {check:?}");
        assert!(check.stderr.contains("config.toml:") && check.stderr.contains("agents.flow.workflow: "), "{check:?}");
        gateway.spawn();
        assert_eq!(gateway.wait_exit().await.code(), Some(78), "{flow}");
    }
    // Only the broken profile of the workspace is rejected.
    let mut gateway = Gateway::new(Setup::scripted(&model));
    for (name, flow) in
        [("good", "steps: [{id: a, tool: list_dir, arguments: {path: .}}]"), ("bad", "steps:\n  - id: a\n")]
    {
        let folder = gateway.home().join("workspace/skills").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let head = format!("name: {name}\nversion: 1\ndescription: d\norchestrator: workflow\n");
        std::fs::write(folder.join("skill.yaml"), head).unwrap();
        std::fs::write(folder.join("workflow.yaml"), flow).unwrap();
    }
    gateway.up().await;
    let list = gateway.run(&["agents", "list"]).await;
    assert!(list.stdout.contains("good") && !list.stdout.contains("bad"), "{list:?}");
    assert!(list.stderr.contains("workflow.yaml, line 2: step \"a\": has one of agent and tool"), "{list:?}");
    gateway.ask("in", "c", "/agent good").await;
    let listed = gateway.ask("in", "c", "go").await;
    assert!(listed.contains("skills"), "{listed}");
    assert_eq!(model.requests().len(), 0);
}

/// The output of a step goes completely to the next step, however little of it the message uses. A step without output
/// gives an empty text. A failed workflow would stop at the same step again, so it is not retried.
#[tokio::test(flavor = "multi_thread")]
async fn outputs_go_whole_to_the_next_step_and_a_failure_stays() {
    let model = Model::start().await;
    let flow = "
steps:
  - {id: all, tool: read_file, arguments: {path: big.txt, limit: 500}}
  - {id: none, tool: read_file, arguments: {path: empty.txt}, on_error: continue}
output: '{{ steps.all.output | length }} {% for n in range(200) %}{% if (\"line \" ~ n ~ \" \") not in steps.all.output %}lost {{ n }}{% endif %}{% endfor %}'
";
    let mut gateway = with_flow(setup(&model).set("tools.postprocess.enabled", true), flow);
    gateway.up().await;
    let text: String = (0..200).map(|line| format!("line {line} of a file about tea and cups\n")).collect();
    std::fs::write(gateway.workspace().join("big.txt"), text).unwrap();
    std::fs::write(gateway.workspace().join("empty.txt"), "").unwrap();
    let answer = gateway.ask("in", "c", "what is the boiling point of zirconium?").await;
    assert!(!answer.contains("lost"), "{answer}");
    std::fs::remove_file(gateway.workspace().join("big.txt")).unwrap();
    let id = gateway.accept("in", &Message::new("again").chat("c")).await;
    assert_eq!(gateway.wait_done("in", &id).await.body["error"]["code"], "workflow");
    let retried = gateway.run(&["queue", "retry", &id]).await;
    assert_ne!(retried.code, Some(0), "{retried:?}");
    assert_eq!(gateway.run(&["queue", "retry", "--outcome", "failed"]).await.code, Some(0));
    assert_eq!(gateway.wait_done("in", &id).await.body["error"]["code"], "workflow");
    assert_eq!(model.count(), 0);
}
