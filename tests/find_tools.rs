//! The size of a request, and the tools that a request offers only after a search found them.

use serde_json::json;

use crate::support::model::{last_text, tools_of};
use crate::support::{Gateway, Model, Reply, Setup};

#[tokio::test(flavor = "multi_thread")]
async fn a_found_tool_stays_for_the_conversation() {
    let model = Model::start().await;
    let look = |query: &str| Reply::tool("find_tools", &json!({ "query": query }));
    model.on("remind me", [look("set a reminder"), Reply::tool("cron", &json!({"action": "list"})), Reply::text("ok")]);
    let mut gateway = Gateway::start(Setup::scripted(&model)).await;
    for text in ["hello", "remind me"] {
        gateway.ask("in", "c", text).await;
    }
    gateway.restart().await;
    for (chat, text) in [("c", "still there?"), ("d", "elsewhere"), ("c", "/new"), ("c", "anew")] {
        gateway.ask("in", chat, text).await;
    }
    let requests = model.requests();
    let has_cron: Vec<bool> = requests.iter().map(|request| tools_of(request).contains(&"cron")).collect();
    assert_eq!(
        has_cron,
        [false, false, true, true, true, false, false],
        "hello, found, called, answered, later, elsewhere, anew"
    );
    assert_eq!(tools_of(&requests[0]), tools_of(&requests[5]));
    let found = last_text(&requests[2]).to_owned();
    assert!(found.contains("- cron: "), "{found}");
    let find = requests[0]["tools"].as_array().unwrap().iter().find(|tool| tool["function"]["name"] == "find_tools");
    let find = find.unwrap().to_string();
    assert!(
        find.contains("cron (reminders, schedules)") && find.contains("git_*") && !find.contains("git_log"),
        "{find}"
    );
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// A model may know a tool that the request does not offer, e.g. from its instructions.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_works_without_being_searched_for() {
    let model = Model::start().await;
    model.on("list", [Reply::tool("cron", &json!({"action": "list"})), Reply::text("listed")]);
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    gateway.ask("in", "c", "list").await;
    let result = last_text(&model.requests()[1]).to_owned();
    assert!(!result.contains("Error"), "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_request_of_a_new_agent_is_small() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    assert_eq!(gateway.run(&["agent", "-m", "hello"]).await.code, Some(0));
    let body = model.requests()[0].to_string();
    assert!(body.len() < 6_000, "{} bytes: {body}", body.len());
}
