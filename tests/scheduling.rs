//! The order of messages: sequential within a session, concurrent across sessions, fair, and bounded.

use std::ops::Range;

use futures_util::stream::{self, StreamExt};

use crate::support::gateway::{HttpAnswer, Message};
use crate::support::invariants::{Witness, check, wait_settled};
use crate::support::model::user_messages;
use crate::support::{Gate, Gateway, Hook, Model, Reply, Setup, Sink, until};

/// Posts `texts` to one chat, each accepted before the next is sent; returns their ids.
async fn accept_all(gateway: &Gateway, chat: &str, texts: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut ids = Vec::new();
    for text in texts {
        ids.push(gateway.accept("in", &Message::new(&text).chat(chat)).await);
    }
    ids
}

fn numbered(word: &str, numbers: Range<usize>) -> impl Iterator<Item = String> {
    numbers.map(move |n| format!("{word} {n}"))
}

/// Each request contains the answers to all earlier messages, so no two messages ran at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_session_are_answered_in_order() {
    let model = Model::start().await;
    let sink = Sink::signed().await;
    let setup = Setup::new().model(&model).hook(Hook::bearer("in").callback(&sink)).set("memory.enabled", false);
    let gateway = Gateway::start(setup).await;
    let accepted = accept_all(&gateway, "c", numbered("message", 0..50)).await;
    sink.wait_posts(50).await;
    let requests = model.requests();
    assert_eq!((requests.len(), model.refused()), (50, Vec::new()));
    for (n, request) in requests.iter().enumerate() {
        assert_eq!(user_messages(request), numbered("message", 0..n + 1).collect::<Vec<_>>());
        assert_eq!(request["messages"].as_array().map(Vec::len), Some(2 + 2 * n), "an answer is missing");
    }
    gateway.check_settled(&Witness { accepted: &accepted, sink: Some(&sink), strict_order: true }).await;
}

/// Sessions run concurrently up to `max_concurrent_turns`; further sessions wait.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_run_concurrently_up_to_the_limit() {
    let model = Model::start().await;
    let gate = Gate::new();
    model.on("held", [Reply::text("let go").held_by(&gate)]);
    let gateway = Gateway::start(Setup::scripted(&model).set("agent.max_concurrent_turns", 3)).await;
    let mut ids = Vec::new();
    for chat in ["a", "b", "c", "d", "e"] {
        ids.push(gateway.accept("in", &Message::new("held").chat(chat)).await);
    }
    let mut states = Vec::new();
    for running in [3, 4, 5] {
        gate.wait_arrived(running).await;
        states.clear();
        for id in &ids {
            states.push(gateway.state("in", id).await.text("status").to_owned());
        }
        let waiting = states.iter().filter(|state| *state == "queued").count();
        assert_eq!((model.count(), waiting), (running, 5 - running), "{states:?}");
        gate.release(1);
    }
    gate.open();
    for id in &ids {
        assert_eq!(gateway.wait_done("in", id).await.text("reply"), "let go");
    }
    gateway.check_settled(&Witness { accepted: &ids, ..Witness::default() }).await;
}

/// A session with a thousand messages lets another session's message run after one turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowded_session_does_not_starve_others() {
    let model = Model::start().await;
    let gate = Gate::new();
    model.on("crowd", [Reply::text("one of many").held_by(&gate)]);
    let gateway = Gateway::start(Setup::scripted(&model).set("agent.max_concurrent_turns", 1)).await;
    let posts = numbered("crowd", 0..1_000).map(|text| {
        let gateway = &gateway;
        async move { gateway.accept("in", &Message::new(&text).chat("crowd")).await }
    });
    let crowd: Vec<String> = stream::iter(posts).buffer_unordered(32).collect().await;
    assert_eq!((crowd.len(), model.count()), (1_000, 1));
    let single = gateway.accept("in", &Message::new("me too").chat("single")).await;
    gate.release(1);
    assert_eq!(gateway.wait_done("in", &single).await.text("reply"), "echo: me too");
    let turns = model.requests_about("crowd").len();
    assert!(turns <= 2, "{turns} turns of the crowd came before the single message");
}

/// `queue = "collect"`: waiting messages of one sender become one turn with one reply, even after a kill in the middle.
/// Another sender's message and a command stay separate.
#[tokio::test(flavor = "multi_thread")]
async fn queued_messages_are_collected_into_one_turn() {
    let model = Model::start().await;
    let (first, joined) = (Gate::new(), Gate::new());
    model.on("part", [Reply::text("all five read").held_by(&joined)]);
    model.on("first", [Reply::text("first read").held_by(&first)]);
    let mut gateway = Gateway::start(Setup::scripted(&model).set("agent.queue", "collect")).await;
    let from = |sender: &str, text: &str| Message::new(text).chat("c").sender(sender);
    let mut ids = vec![gateway.accept("in", &from("ann", "first")).await];
    first.wait_arrived(1).await;
    for text in ["part 1", "part 2", "part 3", "part 4", "part 5"] {
        ids.push(gateway.accept("in", &from("ann", text)).await);
    }
    for (sender, text) in [("bob", "other sender"), ("ann", "after bob"), ("ann", "/session"), ("ann", "last")] {
        ids.push(gateway.accept("in", &from(sender, text)).await);
    }
    first.open();
    joined.wait_arrived(1).await;
    // Messages that arrive while the turn runs are not part of it, before and after a restart.
    ids.push(gateway.accept("in", &from("ann", "late")).await);
    gateway.restart().await;
    joined.wait_arrived(2).await;
    joined.open();

    let parts = "part 1\n\npart 2\n\npart 3\n\npart 4\n\npart 5";
    for id in &ids[1..6] {
        let state = gateway.wait_done("in", id).await;
        assert_eq!((state.text("status"), state.text("reply")), ("done", "all five read"));
    }
    let expected =
        ["echo: other sender", "echo: after bob", "Session: webhook:in:c", "echo: last\n\nlate", "echo: last\n\nlate"];
    for (id, reply) in ids[6..].iter().zip(expected) {
        let state = gateway.wait_done("in", id).await;
        assert!(state.text("reply").starts_with(reply), "{reply}: {state:?}");
    }
    let asked: Vec<String> = model
        .requests()
        .iter()
        .map(|request| user_messages(request).last().copied().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(asked, ["first", parts, parts, "other sender", "after bob", "last\n\nlate"]);
    let (before, after) = (&model.requests()[1], &model.requests()[2]);
    assert_eq!(before["messages"], after["messages"], "the turn goes on with the same messages");
    assert_eq!(model.refused(), Vec::<String>::new());
    let journal = gateway.check_settled(&Witness { accepted: &ids, ..Witness::default() }).await;
    assert_eq!(journal.outbox.len(), 6, "one reply a turn: {:?}", journal.outbox);
}

fn assert_refused(answered: &HttpAnswer, status: u16) {
    let seconds = answered.retry_after.as_deref().and_then(|after| after.parse::<u64>().ok());
    assert!(answered.status == status && seconds.is_some_and(|secs| secs > 0), "expected {status}: {answered:?}");
    assert!(answered.body["error"]["code"].is_string(), "{answered:?}");
}

/// A full session answers 429 and a full gateway 503, and both say when to retry. Accepted messages stay known, commands
/// still pass, a restart keeps everything, and space becomes free again.
#[tokio::test(flavor = "multi_thread")]
async fn full_queues_refuse_messages_until_there_is_room() {
    let model = Model::start().await;
    let gate = Gate::new();
    model.on("held", [Reply::text("let go").held_by(&gate)]);
    let full = Setup::scripted(&model).set("gateway.session_capacity", 3).set("gateway.inbound_capacity", 5);
    let mut gateway = Gateway::start(full).await;
    let message = |chat: &str, id: &str| Message::new("held").chat(chat).id(id);
    let mut ids = Vec::new();
    for (chat, id) in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1")] {
        ids.push(gateway.accept("in", &message(chat, id)).await);
    }
    assert_refused(&gateway.post("in", "", &message("a", "a4")).await, 429);
    ids.push(gateway.accept("in", &message("b", "b2")).await);
    for start in ["first", "second"] {
        assert_refused(&gateway.post("in", "", &message("c", "c1")).await, 503);
        let again = gateway.post("in", "", &message("a", "a2")).await;
        assert_eq!((again.status, again.text("status"), again.text("id")), (202, "duplicate", ids[1].as_str()));
        assert!(gateway.ask("in", "c", "/status").await.contains('5'), "orders get through");
        if start == "first" {
            gateway.restart().await;
        }
    }
    gate.open();
    for id in &ids {
        assert_eq!(gateway.wait_done("in", id).await.text("reply"), "let go");
    }
    for (chat, id) in [("a", "a4"), ("c", "c1")] {
        ids.push(gateway.accept("in", &message(chat, id)).await);
    }
    wait_settled(&gateway.database()).await;
    until("all places to be free", async || {
        gateway.ask("in", "c", "/status").await.contains("waiting or running: 0").then_some(())
    })
    .await;
    check(&gateway.database(), &Witness { accepted: &ids, ..Witness::default() });
}
