//! Messages by webhook, as contract.md specifies them.

use futures_util::future::join_all;
use serde_json::json;

use crate::support::gateway::Message;
use crate::support::invariants::Witness;
use crate::support::{Answer, Gate, Gateway, Hook, Model, Reply, Setup, Sink, until};

/// A hundred concurrent copies of a message are one turn, and every caller gets the same answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_concurrent_duplicates_are_one_turn() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    let message = Message::new("once").chat("c1").id("order-1");
    let answers = join_all((0..100).map(|_| gateway.post("in", "", &message))).await;
    let first = &answers[0];
    assert!(answers.iter().all(|answer| answer.status == 202), "{answers:?}");
    assert!(answers.iter().all(|answer| answer.text("id") == first.text("id")));
    assert!(answers.iter().all(|answer| answer.text("session") == "webhook:in:c1"));
    assert_eq!(answers.iter().filter(|answer| answer.text("status") == "accepted").count(), 1);

    let state = gateway.wait_done("in", first.text("id")).await;
    assert_eq!((state.text("status"), state.text("reply")), ("done", "echo: once"));
    assert_eq!((model.count(), model.refused()), (1, Vec::<String>::new()));
    let accepted = [first.text("id").to_owned()];
    gateway.check_settled(&Witness { accepted: &accepted, ..Witness::default() }).await;
}

/// `?wait` waits for the reply. If the reply is late, the answer is a 202, and the caller fetches the reply later.
#[tokio::test(flavor = "multi_thread")]
async fn a_reply_is_awaited_or_fetched_later() {
    let model = Model::start().await;
    let gate = Gate::new();
    model.on("slow", [Reply::text("at last").held_by(&gate)]);
    let gateway = Gateway::start(Setup::scripted(&model)).await;

    assert_eq!(gateway.ask("in", "c1", "hello").await, "echo: hello");

    let answered = gateway.post("in", "?wait=1", &Message::new("slow").chat("c1")).await;
    assert_eq!((answered.status, answered.text("status")), (202, "accepted"), "{answered:?}");
    let id = answered.text("id");
    gate.wait_arrived(1).await;
    assert_eq!(gateway.state("in", id).await.text("status"), "running");
    gate.open();
    assert_eq!(gateway.wait_done("in", id).await.text("reply"), "at last");
    assert_eq!(gateway.state("in", "no-such-message").await.status, 404);
}

/// Replies are signed, sent again under the same id after a refusal or an unknown outcome, and in order within a chat.
#[tokio::test(flavor = "multi_thread")]
async fn replies_are_signed_and_retried_under_the_same_id() {
    let model = Model::start().await;
    let sink = Sink::signed().await;
    sink.then([Answer::Status(503, None), Answer::Cut, Answer::Status(200, None)]);
    let gateway = Gateway::start(Setup::new().model(&model).hook(Hook::standard("in").callback(&sink))).await;
    let id = gateway.accept("in", &Message::new("ping").chat("c1")).await;
    let posts = sink.wait_posts(3).await;
    assert!(posts.iter().all(|post| post.id() == posts[0].id() && post.faults.is_empty()), "{posts:?}");
    assert_eq!((posts[2].data("in_reply_to"), posts[2].data("content")), (id.as_str(), "echo: ping"));
    assert_eq!((posts[2].data("session"), posts[2].data("chat_id")), ("webhook:in:c1", "c1"));

    // The receiver is unreachable and returns: pending replies arrive in order.
    sink.down();
    let mut accepted = vec![id];
    for n in 0..3 {
        accepted.push(gateway.accept("in", &Message::new(&format!("away {n}")).chat("c1")).await);
    }
    gateway.wait_done("in", &accepted[3]).await;
    sink.up().await;
    for id in &accepted {
        sink.wait_reply(id).await;
    }
    gateway.check_settled(&Witness { accepted: &accepted, sink: Some(&sink), strict_order: false }).await;
    assert_eq!(model.refused(), Vec::<String>::new());
}

/// An unauthenticated caller is refused before anything is written.
#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_posts_are_refused_before_anything_is_written() {
    let only_ann = Hook::open("named").set("allow_from", vec!["ann"]);
    let hooks = Setup::new().hook(Hook::bearer("token")).hook(Hook::standard("signed")).hook(only_ann);
    let gateway = Gateway::start(hooks).await;
    let bare = |hook: &str, body: serde_json::Value| {
        Gateway::try_send(gateway.client.post(gateway.url(&format!("/webhook/{hook}"))).json(&body))
    };
    for (hook, body, status) in [
        ("token", json!({"content": "hi"}), 401),
        ("signed", json!({"content": "hi"}), 401),
        ("named", json!({"content": "hi", "sender": "bob"}), 403),
        ("nowhere", json!({"content": "hi"}), 404),
        ("named", json!({"sender": "ann"}), 422),
        ("named", json!({"content": "hi", "sender": "ann", "chat_id": "a "}), 422),
        ("named", json!({"content": "hi", "sender": "ann"}), 202),
    ] {
        let answered = bare(hook, body).await.expect("an answer");
        assert_eq!(answered.status, status, "{hook}: {answered:?}");
        let has_error = answered.body["error"]["code"].is_string() && answered.body["error"]["message"].is_string();
        assert_eq!(has_error, status >= 400, "{answered:?}");
    }
    assert_eq!(gateway.check_settled(&Witness::default()).await.inbox.len(), 1);
}

/// A slow chat delays no other chat, and its own messages keep their order.
#[tokio::test(flavor = "multi_thread")]
async fn chats_run_concurrently_and_each_in_order() {
    let model = Model::start().await;
    let gate = Gate::new();
    model.on("slow", [Reply::text("slow done").held_by(&gate)]);
    let gateway = Gateway::start(Setup::scripted(&model)).await;
    let slow = gateway.accept("in", &Message::new("slow").chat("a")).await;
    gate.wait_arrived(1).await;
    let behind = gateway.accept("in", &Message::new("behind").chat("a")).await;
    assert_eq!(gateway.ask("in", "b", "quick").await, "echo: quick");
    assert_eq!(gateway.state("in", &behind).await.text("status"), "queued");
    gate.open();
    assert_eq!(gateway.wait_done("in", &behind).await.text("reply"), "echo: behind");
    assert_eq!(gateway.wait_done("in", &slow).await.text("reply"), "slow done");
    until("the history of chat a", async || (model.requests_about("behind").len() == 1).then_some(())).await;
    let history = model.requests_about("behind")[0]["messages"].to_string();
    assert!(history.contains("slow done"), "the second turn knows the first: {history}");
}
