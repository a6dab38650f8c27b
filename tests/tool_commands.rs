//! `daoyou tools` and `daoyou prompt`, with and without a running gateway.

use serde_json::{Value, json};

use crate::support::invariants::Journal;
use crate::support::{Gateway, Hook, Model, Reply, Setup};

async fn run(gateway: &Gateway, tool: &str, arguments: &Value, more: &[&str]) -> (Option<i32>, Value) {
    let arguments = arguments.to_string();
    let ran = gateway.run(&[&["tools", "run", tool, &arguments, "--json"], more].concat()).await;
    let result = serde_json::from_str(&ran.stdout).unwrap_or_else(|fault| panic!("{fault}: {ran:?}"));
    (ran.code, result)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_runs_by_hand_with_and_without_a_gateway() {
    let model = Model::start().await;
    // Without a callback, nobody would read the message.
    let hook = Hook::bearer("in").set("callback_url", "http://127.0.0.1:9/never");
    let mut gateway = Gateway::start(Setup::new().model(&model).set("tools.max_output", 200).hook(hook)).await;
    for is_running in [true, false] {
        let (code, made) =
            run(&gateway, "write_file", &json!({"path": "a.txt", "content": "x\n".repeat(500)}), &[]).await;
        assert_eq!((code, &made["success"], &made["error"]), (Some(0), &json!(true), &Value::Null), "{made}");
        // By an alias. The result is within the limit, and complete with --raw.
        let (code, read) = run(&gateway, "cat", &json!({"path": "a.txt", "limit": 500}), &[]).await;
        let metadata = &read["metadata"];
        let text = read["content"].as_str().unwrap();
        assert_eq!(
            (code, &metadata["truncated"], &metadata["original_length"]),
            (Some(0), &json!(true), &json!(2_891))
        );
        assert_eq!(metadata["truncated_length"], json!(text.chars().count()), "{read}");
        assert!(text.chars().count() <= 200 && metadata["spill"].is_string(), "{read}");
        let (_, whole) = run(&gateway, "read_file", &json!({"path": "a.txt", "limit": 500}), &["--raw"]).await;
        let numbered: String = (1..=500).map(|number| format!("{number}\tx\n")).collect();
        assert_eq!(whole["content"].as_str().map(str::trim_end), Some(numbered.trim_end()));
        // The path jail and the schema apply.
        for (arguments, expected) in [(json!({"path": "/etc/passwd"}), "outside the workspace"), (json!({}), "path")] {
            let (code, failed) = run(&gateway, "read_file", &arguments, &[]).await;
            let error = failed["error"].as_str().unwrap_or_default();
            assert_eq!((code, &failed["success"]), (Some(1), &json!(false)));
            assert!(error.contains(expected) && !error.contains("[Please"), "{failed}");
        }
        // Data that a tool stores in daoyou persists.
        let fact = format!("The harbour opens at six, {is_running}.");
        assert_eq!(run(&gateway, "remember", &json!({"content": fact}), &[]).await.0, Some(0));
        let known = gateway.json(&["memory", "show"]).await.to_string();
        assert!(known.contains(&fact), "{known}");
        let job = json!({"action": "add", "message": "x", "every": "2h"});
        assert_eq!(run(&gateway, "cron", &job, &[]).await.0, Some(0));
        let jobs = gateway.json(&["cron", "list"]).await;
        assert_eq!(jobs.as_array().unwrap().len(), if is_running { 1 } else { 2 }, "{jobs}");
        let message = json!({"content": format!("by hand {is_running}"), "channel": "webhook:in", "chat_id": "c"});
        assert_eq!(run(&gateway, "message", &message, &[]).await.0, Some(0));
        let rows = Journal::read(&gateway.database()).unwrap().outbox;
        let sent = rows.iter().filter(|row| row.body["content"].as_str() == message["content"].as_str()).count();
        assert_eq!(sent, 1, "{rows:?}");
        // Nobody can be asked, so the call fails and nothing waits.
        let (code, asked) = run(&gateway, "ask_user", &json!({"question": "Which?"}), &[]).await;
        assert_eq!(code, Some(1));
        assert!(asked["error"].as_str().unwrap().contains("only a turn of a conversation can do"), "{asked}");
        if is_running {
            gateway.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_names_and_arguments_are_usage_errors() {
    let gateway = Gateway::new(Setup::new());
    for (args, expected) in [
        (&["tools", "show", "read_fle"][..], "did you mean read_file"),
        (&["tools", "show", ".."], "\"..\" is not a tool"),
        (&["tools", "run", "exce", "{}"], "did you mean exec"),
        (&["tools", "run", "list_dir", "{"], "not a JSON object"),
        (&["tools", "run", "list_dir", "[]"], "not a JSON object"),
    ] {
        let ran = gateway.run(args).await;
        assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(expected), "{args:?}: {ran:?}");
    }
    let shown = gateway.run(&["tools", "show", "bash"]).await.stdout;
    for words in
        ["exec: ", "offered: in each request", "other names: bash", "8000 characters", "command (string)", "tainted"]
    {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let listed = gateway.json(&["tools", "list"]).await;
    let offered = |name: &str| {
        let tool = listed.as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap();
        tool["offered"].as_bool().unwrap()
    };
    assert!(offered("exec") && !offered("cron"), "{listed}");
    // JSON is formatted for people.
    std::fs::create_dir_all(gateway.workspace()).unwrap();
    std::fs::write(gateway.workspace().join("a.json"), r#"{"b":[1]}"#).unwrap();
    let ran = gateway.run(&["tools", "run", "exec", r#"{"command":"cat a.json"}"#]).await;
    assert_eq!(ran.stdout, "{\n  \"b\": [\n    1\n  ]\n}\n", "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_tool_is_called_disabled() {
    let gateway = Gateway::new(Setup::new().set("tools.disabled", vec!["exec"]));
    let (code, refused) = run(&gateway, "bash", &json!({"command": "true"}), &[]).await;
    assert_eq!((code, &refused["success"]), (Some(1), &json!(false)));
    assert_eq!(refused["error"], "exec is disabled (tools.disabled)");
    let ran = gateway.run(&["tools", "run", "exec", r#"{"command":"true"}"#]).await;
    assert!(ran.code == Some(1) && ran.stdout.is_empty() && ran.stderr.contains("exec is disabled"), "{ran:?}");
}

/// The printed prompt has the bytes of the body that is sent next.
#[tokio::test(flavor = "multi_thread")]
async fn the_prompt_is_the_request_that_is_sent_next() {
    let model = Model::start().await;
    model.on("list", [Reply::tool("list_dir", &json!({})), Reply::text("nothing there")]);
    let mut gateway = Gateway::new(Setup::new().model(&model));
    for is_running in [false, true] {
        if is_running {
            gateway.up().await;
        }
        for text in ["hello", "list 文件"] {
            let shown = gateway.json(&["prompt", "--message", text]).await;
            assert_eq!(gateway.run(&["agent", "-m", text]).await.code, Some(0));
            let sent = model.requests_about(text).into_iter().rfind(|request| {
                let last = request["messages"].as_array().and_then(|messages| messages.last());
                last.is_some_and(|last| last["role"] == "user")
            });
            let sent = sent.expect("a request");
            assert_eq!(shown["bytes"], json!(sent.to_string().len()), "{shown}\n{sent}");
            let mut request = shown["request"].clone();
            // A new minute may have begun between the two.
            let last = |request: &Value| request["messages"].as_array().unwrap().len() - 1;
            assert_eq!(last(&request), last(&sent));
            let at = last(&sent);
            request["messages"][at] = sent["messages"][at].clone();
            assert_eq!(request, sent);
            let parts = shown["parts"].as_array().unwrap();
            let bytes: u64 = parts.iter().map(|part| part["bytes"].as_u64().unwrap()).sum();
            assert_eq!(json!(bytes), shown["bytes"], "{parts:?}");
            let named = |name: &str| {
                parts.iter().find(|part| part["name"] == name).map_or(0, |part| part["bytes"].as_u64().unwrap())
            };
            for name in ["identity", "AGENTS.md", "tool exec", "message"] {
                assert!(named(name) > 20, "{name}: {parts:?}");
            }
            assert_eq!(named("history") > 0, is_running || text != "hello", "{parts:?}");
            assert!(shown["tokens"].as_u64().unwrap() > 500, "{shown}");
        }
    }
    let words = gateway.run(&["prompt"]).await.stdout;
    assert!(words.contains("AGENTS.md") && words.contains("\"role\": \"user\""), "{words}");
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// The model of one message is not that of the next one.
#[tokio::test(flavor = "multi_thread")]
async fn the_prompt_has_the_sessions_model_after_a_message_with_another() {
    let model = Model::start().await;
    let gateway = Gateway::new(Setup::scripted(&model));
    let before = gateway.json(&["prompt"]).await["model"].clone();
    let ran = gateway.run(&["agent", "-m", "hello", "--model", "scripted/another"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(model.requests()[0]["model"], "another");
    assert_eq!(gateway.json(&["prompt"]).await["model"], before);
}
