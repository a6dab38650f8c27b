//! The delivery of replies: retried, in order, without one sink or chat delaying another, and given up visibly.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;

use crate::support::gateway::Message;
use crate::support::invariants::{Witness, check, open, open_to_change, wait_settled};
use crate::support::sink::Post;
use crate::support::{Answer, Gateway, Hook, Setup, Sink, deadline, until};

/// A setup that answers every message at once, without a model.
fn offline(hooks: impl IntoIterator<Item = Hook>) -> Setup {
    hooks.into_iter().fold(Setup::new(), Setup::hook)
}

fn hook(name: &str, sink: &Sink, retry: &[&str]) -> Hook {
    Hook::bearer(name).callback(sink).set("retry", retry.to_vec())
}

/// Returns the messages that the posts answer, in order of arrival.
fn answered_ids(posts: &[Post]) -> Vec<&str> {
    posts.iter().map(|post| post.data("in_reply_to")).collect()
}

/// Counts the deliveries in `state`.
fn outbox(database: &Path, state: &str) -> usize {
    let count = |store: rusqlite::Connection| {
        store.query_row("SELECT count(*) FROM outbox WHERE state = ?", [state], |row| row.get::<_, i64>(0))
    };
    let counted = open(database).and_then(count).unwrap();
    usize::try_from(counted).unwrap()
}

async fn wait_outbox(gateway: &Gateway, state: &str, count: usize) {
    let what = format!("{count} deliveries {state}");
    until(&what, async || (outbox(&gateway.database(), state) == count).then_some(())).await;
}

/// Returns the number of pending deliveries in `/readyz`.
async fn outbound_depth(gateway: &Gateway) -> Value {
    let ready = Gateway::try_send(gateway.client.get(gateway.url("/readyz"))).await.unwrap();
    ready.body["parts"]["outbound"].clone()
}

/// Replies of three chats whose callback failed are sent when it works again, in order within each chat. Another hook is not affected.
#[tokio::test(flavor = "multi_thread")]
async fn a_failing_callback_keeps_chat_order_and_delays_no_other_hook() {
    let (broken, sound) = (Sink::signed().await, Sink::signed().await);
    let is_broken = Arc::new(AtomicBool::new(true));
    let refuses = Arc::clone(&is_broken);
    broken.when(move |post| {
        let refused = refuses.load(Ordering::SeqCst) && post.data("chat_id") == "refused";
        refused.then_some(Answer::Status(503, None))
    });
    // The first wait is longer than all that happens before the callback works again.
    let retry = ["10s", "1s", "1s"];
    let gateway = Gateway::start(offline([hook("a", &broken, &retry), hook("b", &sound, &retry)])).await;
    let mut accepted = Vec::new();
    for n in 0..4 {
        accepted.push(gateway.accept("a", &Message::new(&format!("m{n}")).chat("refused")).await);
    }
    broken.wait_posts(1).await;
    let beside = gateway.accept("a", &Message::new("beside").chat("other")).await;
    let elsewhere = gateway.accept("b", &Message::new("elsewhere").chat("refused")).await;
    broken.wait_reply(&beside).await;
    sound.wait_reply(&elsewhere).await;
    let seen = broken.posts();
    assert_eq!(answered_ids(&seen), [accepted[0].as_str(), &beside], "the head of a chat holds back those behind it");

    is_broken.store(false, Ordering::SeqCst);
    wait_settled(&gateway.database()).await;
    let posts = broken.posts();
    let of_chat: Vec<_> = posts.iter().filter(|post| post.data("chat_id") == "refused").cloned().collect();
    let mut expected = vec![accepted[0].as_str()];
    expected.extend(accepted.iter().map(String::as_str));
    assert_eq!(answered_ids(&of_chat), expected);
    assert_eq!(of_chat[0].id(), of_chat[1].id());
    accepted.push(beside);
    check(&gateway.database(), &Witness { accepted: &accepted, sink: Some(&broken), strict_order: false });
}

/// An undeliverable message blocks its chat until its second failure, then lets later messages pass. When its retry table
/// is used up, it becomes a dead letter, which the owner can see, retry, or drop.
#[tokio::test(flavor = "multi_thread")]
async fn a_failing_delivery_lets_others_pass_and_becomes_a_dead_letter() {
    let sink = Sink::signed().await;
    let is_broken = Arc::new(AtomicBool::new(true));
    let refuses = Arc::clone(&is_broken);
    sink.when(move |post| {
        let refused =
            refuses.load(Ordering::SeqCst) && post.data("chat_id") != "sound" && post.data("content").contains("bad");
        refused.then_some(Answer::Status(500, None))
    });
    let gateway = Gateway::start(offline([hook("in", &sink, &["300ms", "4s"])])).await;
    let bad = gateway.accept("in", &Message::new("/bad").chat("c")).await;
    let good = gateway.accept("in", &Message::new("/help").chat("c")).await;
    let posts = sink.wait_posts(4).await;
    assert_eq!(answered_ids(&posts), [bad.as_str(), &bad, &good, &bad]);
    assert!(posts.iter().all(|post| post.faults.is_empty()), "{posts:?}");
    assert!(posts[0].id() == posts[1].id() && posts[1].id() == posts[3].id() && posts[0].id() != posts[2].id());

    wait_outbox(&gateway, "dead", 1).await;
    let list = gateway.json(&["queue", "list"]).await;
    let [dead_letter] = list.as_array().unwrap().as_slice() else { panic!("one dead letter: {list}") };
    let old = dead_letter["id"].as_str().unwrap();
    assert_eq!(
        (old, &dead_letter["state"], &dead_letter["tries"]),
        (posts[0].id(), &"dead".into(), &3.into()),
        "{dead_letter}"
    );
    let why = dead_letter["last_error"].as_str().unwrap();
    assert!(why.contains("given up after 3 tries") && why.contains("500"), "{why}");
    assert_eq!(&gateway.json(&["queue", "show", old]).await, dead_letter);

    is_broken.store(false, Ordering::SeqCst);
    let again = gateway.json(&["queue", "retry", old]).await;
    let posts = sink.wait_posts(5).await;
    assert_eq!((posts[4].id(), posts[4].data("in_reply_to")), (again["id"].as_str().unwrap(), bad.as_str()));
    assert_eq!(posts[4].id(), old, "a receiver knows by the id whether it has the reply already");
    let journal =
        gateway.check_settled(&Witness { accepted: &[bad, good], sink: Some(&sink), strict_order: false }).await;
    let row = journal.outbox.iter().find(|row| row.id == posts[4].id()).unwrap();
    assert_eq!((row.attempt, row.state.as_str(), row.tries), (0, "sent", 1));

    // 410 means that no further attempt is allowed.
    sink.then([Answer::Status(410, None)]);
    let gone = gateway.accept("in", &Message::new("/help").chat("gone")).await;
    wait_outbox(&gateway, "dead", 1).await;
    let list = gateway.json(&["queue", "list"]).await;
    assert!(list[0]["tries"] == 1 && list[0]["last_error"].as_str().unwrap().contains("410"), "{list}");
    let id = list[0]["id"].as_str().unwrap();
    assert_eq!(gateway.json(&["queue", "drop", id]).await["dropped"], true);
    assert_eq!(gateway.json(&["queue", "list"]).await, Value::Array(Vec::new()));
    let twice = gateway.run(&["queue", "drop", id]).await;
    assert_eq!((twice.code, twice.stdout.as_str()), (Some(1), ""), "{twice:?}");
    assert_eq!(sink.replies_to(&gone).len(), 1);
}

/// `Retry-After` can extend a wait: never below the table's wait, never above its longest one.
#[tokio::test(flavor = "multi_thread")]
async fn retry_after_is_honoured_within_the_retry_table() {
    let sink = Sink::signed().await;
    sink.then(["0", "1", "3600"].map(|after| Answer::Status(503, Some(after))));
    let gateway = Gateway::start(offline([hook("in", &sink, &["200ms", "200ms", "1200ms"])])).await;
    gateway.accept("in", &Message::new("/help").chat("c")).await;
    let posts = sink.wait_posts(4).await;
    let waits: Vec<Duration> = posts.windows(2).map(|two| two[1].at - two[0].at).collect();
    for (wait, least) in waits.iter().zip([200, 1_000, 1_200]) {
        assert!(*wait >= Duration::from_millis(least), "{waits:?}");
    }
    wait_settled(&gateway.database()).await;
}

/// A sink that accepts posts and never answers delays nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_callback_delays_no_other_hook() {
    let (stuck, sound) = (Sink::signed().await, Sink::signed().await);
    stuck.always(Some(Answer::Hang));
    let gateway = Gateway::start(offline([hook("a", &stuck, &["1s"]), hook("b", &sound, &["1s"])])).await;
    // More chats than one channel serves at once.
    let messages: Vec<_> = (0..40).map(|n| Message::new("/help").chat(&format!("c{n}"))).collect();
    let begun = std::time::Instant::now();
    let blocked = join_all(messages.iter().map(|message| gateway.accept("a", message))).await;
    stuck.wait_posts(32).await;
    let accepted = join_all(messages.iter().map(|message| gateway.accept("b", message))).await;
    for id in &accepted {
        sound.wait_reply(id).await;
    }
    // Each hanging callback takes 15 s.
    assert!(begun.elapsed() < Duration::from_secs(14), "it took {:?}", begun.elapsed());
    assert!(stuck.posts().len() <= 32 && blocked.len() == 40, "nothing was answered meanwhile");
}

/// A hook with too many undelivered replies refuses messages; other hooks accept them. The hook accepts messages again once
/// there is room.
#[tokio::test(flavor = "multi_thread")]
async fn a_hook_with_too_many_undelivered_replies_refuses_messages() {
    let (full, sound) = (Sink::signed().await, Sink::signed().await);
    full.always(Some(Answer::Status(503, None)));
    let hooks = [hook("a", &full, &["100ms"; 200]), hook("b", &sound, &["1s"])];
    let mut gateway = Gateway::start(offline(hooks).set("gateway.outbound_capacity", 2)).await;
    let message = |n: usize| Message::new("/help").chat(&format!("c{n}")).id(&format!("id{n}"));
    let mut accepted = Vec::new();
    for n in 0..2 {
        let id = gateway.accept("a", &message(n)).await;
        gateway.wait_done("a", &id).await;
        accepted.push(id);
    }
    wait_outbox(&gateway, "pending", 2).await;
    let refused = gateway.post("a", "", &message(2)).await;
    assert_eq!((refused.status, &refused.body["error"]["code"]), (503, &"outbox_full".into()), "{refused:?}");
    assert!(refused.retry_after.is_some_and(|after| after.parse::<u64>().unwrap() > 0));
    let again = gateway.post("a", "", &message(0)).await;
    assert_eq!((again.status, again.text("id")), (202, accepted[0].as_str()), "what was accepted is known");
    gateway.accept("b", &message(2)).await;

    // A drop by the owner makes room once.
    let list = gateway.json(&["queue", "list"]).await;
    let dropped = list.as_array().unwrap().iter().find(|row| row["channel"] == "webhook:a").unwrap();
    // A row that is being sent is not dropped, but its next attempt is.
    let id = dropped["id"].as_str().unwrap();
    until("the drop", async || (gateway.run(&["queue", "drop", id]).await.code == Some(0)).then_some(())).await;
    accepted.push(gateway.accept("a", &message(3)).await);
    gateway.wait_done("a", &accepted[2]).await;
    let tried = full.posts().len();
    full.wait_posts(tried + 6).await;
    assert_eq!((outbound_depth(&gateway).await, gateway.post("a", "", &message(4)).await.status), (2.into(), 503));

    // A restart counts the undelivered replies again.
    gateway.restart().await;
    assert_eq!(gateway.post("a", "", &message(4)).await.status, 503);
    full.always(None);
    wait_settled(&gateway.database()).await;
    until("all places free", async || (outbound_depth(&gateway).await == 0).then_some(())).await;
    gateway.accept("a", &message(4)).await;
}

/// A disabled hook keeps its pending replies. Replies of a hook removed from the configuration become dead letters.
#[tokio::test(flavor = "multi_thread")]
async fn disabled_hooks_keep_replies_and_removed_hooks_make_dead_letters() {
    const MORE: usize = 1_500;
    let sink = Sink::signed().await;
    sink.always(Some(Answer::Status(503, None)));
    let table = ["100ms"; 200];
    let other = || Hook::bearer("other");
    let mut gateway = Gateway::start(offline([hook("a", &sink, &table), other()])).await;
    let id = gateway.accept("a", &Message::new("/help").chat("c")).await;
    sink.wait_posts(2).await;
    gateway.stop().await;

    *gateway.setup() = offline([hook("a", &sink, &table).set("enabled", false), other()]);
    sink.always(None);
    let tried = sink.posts().len();
    gateway.up().await;
    assert_eq!(gateway.post("a", "", &Message::new("hi")).await.status, 404);
    assert!(gateway.ask("other", "c", "/help").await.contains("/help"));
    wait_outbox(&gateway, "pending", 1).await;
    assert_eq!(sink.posts().len(), tried);
    gateway.stop().await;

    *gateway.setup() = offline([hook("a", &sink, &table), other()]);
    gateway.up().await;
    wait_settled(&gateway.database()).await;
    assert!(sink.replies_to(&id).iter().all(|post| post.id() == sink.posts()[0].id()));
    assert_eq!(sink.posts().last().unwrap().status, Some(200));

    // The hook is removed with more pending replies than one batch.
    sink.always(Some(Answer::Status(503, None)));
    let orphan = gateway.accept("a", &Message::new("/help").chat("c")).await;
    gateway.wait_done("a", &orphan).await;
    gateway.stop().await;
    let copies = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
        INSERT INTO outbox (id, turn, slot, attempt, channel, chat_id, body, state, created_at)
        SELECT printf('00000000-0000-7000-8000-%012d', i), turn, 'tool:' || i, 0, channel, chat_id, body, 'pending', created_at
        FROM n, outbox WHERE state = 'pending' AND slot = 'reply'";
    let store = rusqlite::Connection::open(gateway.database()).unwrap();
    assert_eq!(store.execute(copies, [MORE]).unwrap(), MORE);
    drop(store);
    *gateway.setup() = offline([other()]);
    gateway.up().await;
    wait_outbox(&gateway, "dead", MORE + 1).await;
    let list = gateway.json(&["queue", "list"]).await;
    let reasons: Vec<_> = list.as_array().unwrap().iter().map(|row| row["last_error"].as_str().unwrap()).collect();
    assert!(reasons.iter().all(|why| why.contains("there is no channel \"webhook:a\"")), "{reasons:?}");
    assert_eq!(outbound_depth(&gateway).await, 0);
    assert!(deadline("the other hook", gateway.ask("other", "c", "/help")).await.contains("/help"));
}

/// The outcome of an attempt is written as soon as the store accepts writes again, without a restart.
#[tokio::test(flavor = "multi_thread")]
async fn delivery_outcomes_are_written_once_the_store_recovers() {
    let sink = Sink::signed().await;
    sink.then([Answer::Status(503, None)]);
    let gateway = Gateway::start(offline([hook("in", &sink, &["50ms"])])).await;
    let store = open_to_change(&gateway.database());
    // The error is not the row's own fault, which would be permanent.
    let refuse = "CREATE TRIGGER refuse BEFORE UPDATE OF next_at ON outbox BEGIN SELECT json('no room'); END";
    store.execute_batch(refuse).unwrap();
    gateway.accept("in", &Message::new("/help").chat("c")).await;
    until("the refusal", async || gateway.logs().contains("malformed JSON").then_some(())).await;
    store.execute_batch("DROP TRIGGER refuse").unwrap();
    sink.wait_posts(2).await;
    wait_settled(&gateway.database()).await;
}

/// If the store never accepts the outcome, the row becomes `unknown`, and its chat continues.
#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_whose_outcome_is_always_refused_ends_as_unknown() {
    let sink = Sink::signed().await;
    sink.then([Answer::Status(503, None)]);
    let gateway = Gateway::start(offline([hook("in", &sink, &["50ms"])])).await;
    let store = open_to_change(&gateway.database());
    let refuse = "CREATE TRIGGER refuse BEFORE UPDATE OF next_at ON outbox BEGIN SELECT RAISE(ABORT, 'never'); END";
    store.execute_batch(refuse).unwrap();
    gateway.accept("in", &Message::new("/help").chat("c")).await;
    wait_outbox(&gateway, "unknown", 1).await;
    until("an empty outbox", async || (outbound_depth(&gateway).await == 0).then_some(())).await;
    gateway.accept("in", &Message::new("/help").chat("c")).await;
    wait_outbox(&gateway, "sent", 1).await;
}
