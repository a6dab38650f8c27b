//! Results of tools are filtered by the question of the turn. The whole result stays available by one `read_file`.

use std::fs;

use serde_json::{Value, json};

use crate::support::gateway::Message;
use crate::support::model::last_text;
use crate::support::requirements::bubblewrap_is_missing;
use crate::support::{Embeddings, Gate, Gateway, Model, Reply, Setup};

const QUESTION: &str = "Where is retry_limit computed?";

/// Returns the source of forty functions, one of which the question concerns.
fn source() -> String {
    let function = |at: usize| {
        let (name, body) = if at == 17 {
            ("retry_limit".to_owned(), "self.retries.min(MAX_RETRIES)".to_owned())
        } else {
            (format!("part_{at}"), format!("self.values[{at}]"))
        };
        format!("/// Returns something.\npub fn {name}(&self) -> usize {{\n    let value = {body};\n    value\n}}\n")
    };
    (0..40).map(function).collect::<Vec<_>>().join("\n")
}

fn reads() -> [Reply; 2] {
    [Reply::tool("read_file", &json!({"path": "limits.rs"})), Reply::text("in limits.rs")]
}

async fn result_of(setup: Setup, model: &Model) -> (Gateway, String) {
    let gateway = Gateway::start(setup).await;
    fs::write(gateway.workspace().join("limits.rs"), source()).unwrap();
    assert_eq!(gateway.ask("in", "c", QUESTION).await, "in limits.rs");
    let result = last_text(model.requests().last().unwrap()).to_owned();
    (gateway, result)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_sees_what_it_asks_for_and_can_read_the_whole() {
    let model = Model::start().await;
    model.on(QUESTION, reads());
    let (gateway, shown) = result_of(Setup::scripted(&model), &model).await;
    assert!(shown.contains("pub fn retry_limit(&self)") && shown.contains("MAX_RETRIES"), "{shown}");
    assert!(!shown.contains("part_3(") && shown.len() < source().len(), "{shown}");
    let (_, note) = shown.rsplit_once("[filtered for the question: ").unwrap();
    let path = note.rsplit_once("the whole output: ").unwrap().1.trim_end_matches(']').to_owned();
    let whole = fs::read_to_string(gateway.workspace().join(&path)).unwrap();
    assert!(whole.contains("1\t/// Returns something.") && whole.contains("part_32("), "{whole}");
    // A second read is not filtered again.
    model.on("read the whole", [Reply::tool("read_file", &json!({ "path": path })), Reply::text("read")]);
    gateway.ask("in", "c", "read the whole retry_limit result").await;
    let again = last_text(model.requests().last().unwrap()).to_owned();
    assert!(again.contains("part_3(") && !again.contains("[filtered"), "{again}");
    // Run manually, with and without a question.
    let (arguments, query) = (r#"{"path":"limits.rs"}"#, ["--query", QUESTION]);
    let by_hand = gateway.json(&[&["tools", "run", "read_file", arguments], &query[..]].concat()).await;
    let metadata = &by_hand["metadata"];
    assert_eq!(metadata["post_processed"], true, "{by_hand}");
    assert_eq!((&metadata["tier"], &metadata["intent"]), (&json!("basic"), &json!("general")));
    assert_eq!(metadata["keywords"], json!(["retry_limit", "computed"]));
    assert!(metadata["kept_count"].as_u64() < metadata["original_count"].as_u64() && metadata["spill"].is_string());
    for more in [&[][..], &["--query", QUESTION, "--raw"][..]] {
        let plain = gateway.json(&[&["tools", "run", "read_file", arguments], more].concat()).await;
        assert!(plain["metadata"].get("post_processed").is_none(), "{plain}");
        assert!(plain["content"].as_str().unwrap().contains("part_3("), "{plain}");
    }
    assert_eq!(model.refused(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_plan_are_filtered_unless_another_call_reads_them() {
    let model = Model::start().await;
    let plan = json!({"calls": [
        {"id": "a", "tool": "read_file", "arguments": {"path": "limits.rs"}},
        {"id": "b", "tool": "read_file", "arguments": {"path": "limits.rs", "limit": 500}},
        {"id": "c", "tool": "write_file", "arguments": {"path": "copy.rs", "content": "{{b}}"}, "needs": ["b"]},
    ]});
    model.on(QUESTION, [Reply::tool("parallel", &plan), Reply::text("in limits.rs")]);
    let (gateway, shown) = result_of(Setup::scripted(&model), &model).await;
    assert_eq!(shown.matches("[filtered for the question: ").count(), 1, "{shown}");
    assert_eq!(fs::read_to_string(gateway.workspace().join("copy.rs")).unwrap().trim_end(), source().trim_end());
}

#[tokio::test(flavor = "multi_thread")]
async fn with_postprocessing_off_results_are_unchanged() {
    let mut results = Vec::new();
    for (key, value) in [
        ("tools.postprocess.enabled", toml::Value::from(false)),
        ("tools.postprocess.tools.cat.enabled", toml::Value::from(false)),
    ] {
        let model = Model::start().await;
        model.on(QUESTION, reads());
        results.push(result_of(Setup::scripted(&model).set(key, value), &model).await.1);
    }
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    fs::write(gateway.workspace().join("limits.rs"), source()).unwrap();
    let plain = gateway.json(&["tools", "run", "read_file", r#"{"path":"limits.rs"}"#, "--raw"]).await;
    assert_eq!((results[0].as_str(), results[1].as_str()), (plain["content"].as_str().unwrap(), results[0].as_str()));
}

/// The answer is in the middle, which a cut removes.
#[tokio::test(flavor = "multi_thread")]
async fn the_configured_order_decides_whether_a_filter_sees_the_cut_lines() {
    for (order, is_filtered) in [("filter_first", true), ("truncate_first", false)] {
        let model = Model::start().await;
        model.on(QUESTION, reads());
        let setup =
            Setup::scripted(&model).set("tools.output.read_file.chars", 2_500).set("tools.postprocess.order", order);
        let shown = result_of(setup, &model).await.1;
        assert_eq!(shown.contains("pub fn retry_limit(&self)"), is_filtered, "{order}: {shown}");
        assert_eq!(shown.contains("[filtered for the question: "), is_filtered, "{order}: {shown}");
        assert_eq!(shown.contains(" lines cut"), !is_filtered, "{order}: {shown}");
        assert!(shown.len() < 3_000, "{order}: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_command_keeps_its_failures_and_other_failures_stay() {
    if bubblewrap_is_missing() {
        return;
    }
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    let lines = r#"for i in $(seq 1 400); do echo "test case_$i ... ok"; done; echo "test net::joins ... FAILED"; echo "panicked at src/net.rs:48:9"; exit 1"#;
    let arguments = json!({ "command": lines }).to_string();
    let run = gateway.run(&["tools", "run", "exec", &arguments, "--json", "--query", "which tests fail?"]).await;
    let result: Value = serde_json::from_str(&run.stdout).unwrap();
    let content = result["content"].as_str().unwrap();
    assert_eq!((run.code, &result["metadata"]["post_processed"]), (Some(1), &json!(true)), "{result}");
    assert!(
        content.contains("net::joins") && content.contains("src/net.rs:48:9") && !content.contains("case_200 "),
        "{content}"
    );
    assert!(content.len() < 2_000, "{content}");
    // The middle of a very long output is not read again. The answer stays visible, as does the number of all lines.
    let long = r#"seq 1 60000 | sed 's/.*/test case_& ... ok/'; echo "test net::joins ... FAILED"; exit 1"#;
    let arguments = json!({ "command": long }).to_string();
    let run = gateway.run(&["tools", "run", "exec", &arguments, "--json", "--query", "which tests fail?"]).await;
    let result: Value = serde_json::from_str(&run.stdout).unwrap();
    let content = result["content"].as_str().unwrap();
    assert!(content.contains("net::joins") && content.contains(" lines are not searched"), "{content}");
    assert_eq!((&result["metadata"]["original_count"], content.len() < 2_000), (&json!(60_001), true), "{content}");
    let missing = r#"{"path":"missing.rs"}"#;
    let run = gateway.run(&["tools", "run", "read_file", missing, "--json", "--query", QUESTION]).await;
    assert!(!run.stdout.contains("post_processed"), "{}", run.stdout);
}

/// The stored file ends before the failure, which only the cut output still has.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_without_the_end_of_an_output_is_not_filtered_in_its_place() {
    if bubblewrap_is_missing() {
        return;
    }
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::scripted(&model).set("tools.max_file_size", "300KB")).await;
    let long = r#"seq 1 60000 | sed 's/.*/test case_& ... ok/'; echo "test net::joins ... FAILED"; exit 1"#;
    let arguments = json!({ "command": long }).to_string();
    let run = gateway.run(&["tools", "run", "exec", &arguments, "--json", "--query", "which tests fail?"]).await;
    let result: Value = serde_json::from_str(&run.stdout).unwrap();
    let content = result["content"].as_str().unwrap();
    assert!(content.contains("net::joins") && content.contains("; the first 300000 of "), "{content}");
    assert!(!content.contains("whole"), "{content}");
    assert_eq!(result["metadata"]["spill_part"]["start"]["bytes"], 300_000, "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedding_model_selects_by_meaning_and_its_failure_falls_back() {
    let (model, server) = (Model::start().await, Embeddings::start().await);
    server.alike(&["attempts", "retries"]);
    let question = "the attempts that are allowed at most";
    model.on(question, reads());
    let setup = Setup::scripted(&model)
        .set("providers.numbers.api_key", "a-key-of-numbers")
        .set("providers.numbers.base_url", server.base_url())
        .set("providers.numbers.retries", 0)
        .set("tools.postprocess.mode", "semantic")
        .set("tools.postprocess.semantic.model", "numbers/small")
        .set("tools.postprocess.semantic.threshold", 0.01)
        .set("tools.postprocess.semantic.max_items", 3);
    let gateway = Gateway::start(setup).await;
    fs::write(gateway.workspace().join("limits.rs"), source()).unwrap();
    let run = async |query: &str| {
        gateway.json(&["tools", "run", "read_file", r#"{"path":"limits.rs"}"#, "--query", query]).await
    };
    let result = run(question).await;
    assert_eq!(result["metadata"]["tier"], "semantic", "{result}");
    assert!(result["content"].as_str().unwrap().contains("retries"), "{result}");
    let asked = server.texts().len();
    run(question).await;
    assert_eq!(server.texts().len(), asked, "vectors are cached by their texts");
    // A rule is certain enough, so no model is called.
    assert_eq!(run("what is retry_limit").await["metadata"]["tier"], "basic");
    assert_eq!(server.texts().len(), asked);
    // No model is called either for a question about all lines, which selects none.
    assert_eq!(run("how many attempts are allowed").await["metadata"].get("tier"), None);
    assert_eq!(server.texts().len(), asked);
    server.refuse(|_| Some(500));
    assert_eq!(run("retry_limit please").await["metadata"]["tier"], "basic");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cheap_model_summarises_and_a_kill_meanwhile_loses_nothing() {
    let (model, cheap) = (Model::start().await, Model::start().await);
    let [call, answer] = reads();
    model.on(QUESTION, [call.usage(100, 10), answer.usage(200, 20)]);
    let gate = Gate::new();
    let (held, summary) = (gate.clone(), "18: pub fn retry_limit(&self) -> usize");
    cheap.script(move |_| Some(Reply::text(summary).usage(900, 20).held_by(&held)));
    let mut gateway = Gateway::new(
        Setup::scripted(&model)
            .provider("cheap", cheap.base_url())
            .set("tools.postprocess.mode", "llm")
            .set("tools.postprocess.llm.model", "cheap/small")
            .set("tools.postprocess.llm.tools", vec!["read_file"]),
    );
    gateway.up().await;
    fs::write(gateway.workspace().join("limits.rs"), source()).unwrap();
    let id = gateway.accept("in", &Message::new(QUESTION).chat("c")).await;
    cheap.wait_requests(1).await;
    gateway.kill9().await;
    gate.open();
    gateway.up().await;
    let done = gateway.wait_done("in", &id).await;
    assert_eq!(done.text("reply"), "in limits.rs");
    let shown = last_text(model.requests().last().unwrap()).to_owned();
    assert!(shown.starts_with(summary) && shown.contains("a summary of"), "{shown}");
    // The model is called again after the kill; its tokens belong to the turn.
    assert_eq!(cheap.count(), 2);
    let turn = gateway.json(&["turns", "list"]).await[0].clone();
    assert_eq!((&turn["input_tokens"], &turn["output_tokens"]), (&json!(1_200), &json!(50)), "{turn}");
    assert!(turn["model"].as_str().unwrap().contains("cheap/small"), "{turn}");
    assert_eq!(cheap.refused(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setting_that_cannot_work_is_one_clear_error() {
    let cases: [(&str, toml::Value, &str); 7] = [
        ("tools.postprocess.mode", "semantic".into(), "tools.postprocess.semantic.model"),
        ("tools.postprocess.mode", "llm".into(), "tools.postprocess.llm.model"),
        ("tools.postprocess.mode", "clever".into(), "basic"),
        ("tools.postprocess.tools.redad_file.enabled", false.into(), "read_file"),
        ("tools.postprocess.llm.tools", vec!["gerp"].into(), "grep"),
        ("tools.postprocess.basic.relevance_threshold", 1.5.into(), "relevance_threshold"),
        ("tools.postprocess.semantic.model", "nobody/x".into(), "nobody"),
    ];
    for (key, value, expected) in cases {
        let gateway = Gateway::new(Setup::new().set(key, value.clone()));
        gateway.write_config();
        let run = gateway.run(&["config", "check"]).await;
        assert_eq!(run.code, Some(78), "{key} {value}: {run:?}");
        assert!(run.stderr.contains(expected), "{key} {value}: {}", run.stderr);
    }
}
