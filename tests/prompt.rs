//! The model's input: its bytes stay the same from request to request, so that the service's cache hits.

use serde_json::json;

use crate::support::model::{RUNTIME_CONTEXT, messages_of, system_of, user_messages};
use crate::support::{Gateway, Model, Reply, Setup};

/// Each request of a session begins with the whole previous one, across turns, tools, failures, commands and a kill.
#[tokio::test(flavor = "multi_thread")]
async fn each_request_extends_the_previous_one() {
    let model = Model::start().await;
    let list = Reply::tool("list_dir", &json!({"path": "."})).saying("<think>hm</think>I look.").reasoning("hm");
    let wrong = Reply::raw_tool("no such", "{\"x").call_id("").and_tool("list_dir", &json!({"path": "/nowhere"}));
    model.on("look", [list, wrong, Reply::text("<think>hm</think>\nDone looking.")]);
    model.on("fail", [Reply::status(400)]);
    let mut gateway = Gateway::start(Setup::scripted(&model)).await;
    let texts = ["first", "look", "  spaces around\n", "/session", "fail", "look again", "last"];
    for (n, text) in texts.iter().enumerate() {
        if n == 3 {
            gateway.restart().await;
        }
        gateway.ask("in", "other", "something else").await;
        gateway.ask("in", "c", text).await;
    }
    let requests: Vec<_> =
        model.requests().into_iter().filter(|request| !request.to_string().contains("something else")).collect();
    assert_eq!((requests.len(), model.refused()), (10, Vec::new()));
    for (n, pair) in requests.windows(2).enumerate() {
        let (before, after) = (messages_of(&pair[0]), messages_of(&pair[1]));
        assert!(after.len() > before.len() && after.starts_with(before), "request {n}: {before:#?}\nthen {after:#?}");
        assert_eq!(pair[0]["tools"].to_string(), pair[1]["tools"].to_string());
    }

    // Each message occurs once, including its time and place, and nowhere else.
    let last = messages_of(&requests[9]);
    assert_eq!(user_messages(&requests[9]), ["first", "look", "  spaces around\n", "fail", "look again", "last"]);
    for message in last {
        let text = message["content"].as_str().unwrap_or_default();
        let is_user = message["role"] == "user";
        assert_eq!(text.matches(RUNTIME_CONTEXT).count(), usize::from(is_user), "{text}");
        assert_eq!(text.contains("Channel: webhook:in\nChat ID: c") && text.contains("(UTC)"), is_user, "{text}");
    }
}

/// An edited workspace file appears in the next request; nothing else changes.
#[tokio::test(flavor = "multi_thread")]
async fn an_edited_workspace_file_appears_in_the_next_request() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    gateway.ask("in", "c", "one").await;
    let path = gateway.workspace().join("AGENTS.md");
    let before = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{}\nAlways say moo.\n", before.trim_end())).unwrap();
    gateway.ask("in", "c", "two").await;
    std::fs::remove_file(&path).unwrap();
    gateway.ask("in", "c", "three").await;
    std::fs::write(&path, &before).unwrap();
    gateway.ask("in", "c", "four").await;
    let requests = model.requests();
    let systems: Vec<_> = requests.iter().map(system_of).collect();
    assert!(!systems[0].contains("moo") && systems[1].contains("Always say moo."), "{}", systems[1]);
    assert_eq!(systems[1].replace("\nAlways say moo.", ""), systems[0]);
    assert!(systems[0].contains(before.trim()) && !systems[2].contains(before.trim()));
    assert_eq!(systems[3], systems[0]);
    assert!(messages_of(&requests[3])[1..].starts_with(&messages_of(&requests[0])[1..]));
}

/// A window or a token budget that is too small for the history drops whole turns, never parts of one. The current message
/// is always in the request.
#[tokio::test(flavor = "multi_thread")]
async fn a_small_window_drops_whole_turns() {
    for (key, bound) in [("agent.memory_window", 8), ("agent.context_tokens", 400)] {
        let model = Model::start().await;
        let calls = Reply::tool("list_dir", &json!({"path": "."})).and_tool("list_dir", &json!({"path": "memory"}));
        model.on("look", [calls.clone(), calls, Reply::text("looked")]);
        let setup = Setup::scripted(&model).set(key, bound);
        let gateway = Gateway::start(setup).await;
        let long = "long ".repeat(2_000);
        for text in ["one", "look", "two", "look", "three", "four", &long, "five", "six", "seven", "eight"] {
            gateway.ask("in", "c", text).await;
            let requests = model.requests();
            assert!(user_messages(requests.last().expect("it was asked")).contains(&text), "{text}");
        }
        assert_eq!(model.refused(), Vec::<String>::new(), "{key}");
        let requests = model.requests();
        if key == "agent.memory_window" {
            // The system prompt, the window, this message, and the additions of its own turn.
            let longest = requests.iter().map(|request| messages_of(request).len()).max();
            assert!(longest <= Some(1 + 8 + 1 + 6), "{longest:?}");
        }
        let knows_long = model.requests_about("five")[0].to_string().contains(&long);
        assert_eq!(knows_long, key == "agent.memory_window", "what costs more than the budget is left out");
        for request in &requests {
            assert_eq!(messages_of(request)[1]["role"], "user", "{key}: {request}");
        }
        let last = messages_of(requests.last().expect("it was asked"));
        assert!(last.len() > 2, "{key}: what fits is given: {last:?}");
    }
}
