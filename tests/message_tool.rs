//! The `message` tool: messages that the agent sends in addition to its reply.

use serde_json::json;

use crate::support::gateway::Message;
use crate::support::invariants::{Witness, check, open, wait_settled};
use crate::support::{Gateway, Hook, Model, Reply, Setup, Sink};

/// The message is sent once, under its own id, before the reply, even if the process dies around it.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_message_is_sent_once_under_its_own_id() {
    // The message is sent during the next model call, so a process that dies then may repeat that request.
    for (point, asked) in [
        ("", 2..=2),
        ("tool_finished=message", 2..=2),
        ("tool_result_committed=message", 2..=2),
        ("sending_committed=on my way", 2..=3),
    ] {
        let model = Model::start().await;
        model.on("work", [Reply::tool("message", &json!({"content": "on my way"})), Reply::text("finished")]);
        let sink = Sink::signed().await;
        let mut gateway = Gateway::new(Setup::new().model(&model).hook(Hook::bearer("in").callback(&sink)));
        if !point.is_empty() {
            gateway.crash_at(point);
        }
        gateway.up().await;
        let id = gateway.accept("in", &Message::new("work").chat("c").id("m1")).await;
        if !point.is_empty() {
            gateway.wait_crash().await;
            gateway.up().await;
        }
        sink.wait_reply(&id).await;
        wait_settled(&gateway.database()).await;
        let posts = sink.posts();
        let delivered: Vec<_> = posts.iter().map(|post| (post.data("chat_id"), post.data("content"))).collect();
        assert_eq!(delivered, [("c", "on my way"), ("c", "finished")], "{point}");
        assert_ne!(posts[0].id(), posts[1].id());
        assert!(asked.contains(&model.count()) && model.refused().is_empty(), "{point}: asked {}", model.count());
        let witness = Witness { accepted: &[id], sink: Some(&sink), strict_order: true };
        let journal = check(&gateway.database(), &witness);
        assert_eq!(
            (&journal.outbox[0].id, journal.outbox[0].slot.starts_with("tool:")),
            (&posts[0].id().to_owned(), true)
        );
    }
}

/// A message to a missing channel, or to a webhook where nobody would read it, is an error that names the channels; the turn
/// continues.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_nobody_would_read_is_refused() {
    let model = Model::start().await;
    let lost = json!({"content": "anybody?", "channel": "pigeon", "chat_id": "loft"});
    let unaddressed = json!({"content": "anybody?", "channel": "pigeon"});
    let unread = json!({"content": "one moment"});
    let calls = Reply::tool("message", &lost).and_tool("message", &unaddressed).and_tool("message", &unread);
    model.on("call", [calls, Reply::text("called")]);
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    let id = gateway.accept("in", &Message::new("call").chat("c")).await;
    assert_eq!(gateway.wait_done("in", &id).await.text("reply"), "called");
    wait_settled(&gateway.database()).await;
    let queue = gateway.json(&["queue", "list"]).await;
    assert_eq!(queue, json!([]));
    let result = model.requests()[1]["messages"].to_string();
    assert!(result.contains("there is no channel") && result.contains("needs a chat_id"), "{result}");
    for words in ["webhook:in has no callback_url", "set channels.webhook.in.callback_url", "or say it in your answer"]
    {
        assert!(result.contains(words), "{result}");
    }
    check(&gateway.database(), &Witness { accepted: &[id], ..Witness::default() });
}

/// Workspace files are attached by name, with the subject that the model gives. Other files are not sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_message_carries_workspace_files() {
    let model = Model::start().await;
    let send = |paths: &[&str]| json!({"content": "here it is", "subject": "The report", "attachments": paths});
    let (good, bad) = (send(&["out/report.pdf"]), send(&["../config.toml"]));
    model.on("send it", [Reply::tool("message", &good), Reply::tool("message", &bad), Reply::text("sent")]);
    let sink = Sink::signed().await;
    let gateway = Gateway::start(Setup::new().model(&model).hook(Hook::bearer("in").callback(&sink))).await;
    std::fs::create_dir(gateway.workspace().join("out")).unwrap();
    std::fs::write(gateway.workspace().join("out/report.pdf"), "%PDF").unwrap();
    let id = gateway.accept("in", &Message::new("send it").chat("c")).await;
    sink.wait_reply(&id).await;
    wait_settled(&gateway.database()).await;
    let posts = sink.posts();
    assert_eq!(posts.len(), 2);
    let expected = json!([{"name": "report.pdf", "media_type": "application/pdf", "size": 4}]);
    assert_eq!((posts[0].data("content"), &posts[0].body["data"]["attachments"]), ("here it is", &expected));
    assert_eq!(posts[1].body["data"].get("attachments"), None);
    let result = model.requests()[2]["messages"].to_string();
    assert!(result.contains("outside the workspace"), "{result}");
    let sql = "SELECT body FROM outbox ORDER BY seq LIMIT 1";
    let body: String = open(&gateway.database()).unwrap().query_row(sql, [], |row| row.get(0)).unwrap();
    assert!(body.contains(r#""subject":"The report""#) && body.contains("out/report.pdf"), "{body}");
}
