//! Many concurrent sessions and one hanging sink: everything else continues in bounded memory.

use std::time::Instant;

use futures_util::stream::{self, StreamExt};

use crate::support::gateway::Message;
use crate::support::invariants::{Witness, check};
use crate::support::model::ModelOptions;
use crate::support::processes::{peak_bytes, reset_peak};
use crate::support::{Answer, Gateway, Hook, Model, Setup, Sink, deadline};

const SESSIONS: usize = 2_000;
/// Concurrent senders.
const AT_ONCE: usize = 64;
/// The maximum memory that the load may add, with some 20 MB of program pages, which the gateway unmaps after its start
/// and the load maps again.
const MEMORY: u64 = 60 << 20;

async fn send_all(gateway: &Gateway, hook: &str, chats: usize) -> Vec<String> {
    let sent = stream::iter(0..chats).map(|n| async move {
        let message = Message::new(&format!("message {n}")).chat(&format!("chat-{n}"));
        gateway.accept(hook, &message).await
    });
    sent.buffer_unordered(AT_ONCE).collect().await
}

/// Sends a message for each of many sessions, as fast as they are accepted, while another hook's callback hangs.
#[tokio::test(flavor = "multi_thread")]
async fn many_concurrent_sessions_are_answered_in_bounded_memory() {
    let model = Model::with(ModelOptions { strict: false, ..ModelOptions::default() }).await;
    let (sink, stuck) = (Sink::start(None).await, Sink::start(None).await);
    stuck.always(Some(Answer::Hang));
    let hooks = Setup::new().hook(Hook::bearer("in").callback(&sink)).hook(Hook::bearer("stuck").callback(&stuck));
    let gateway = Gateway::start(hooks.model(&model).set("gateway.inbound_capacity", 10_000)).await;
    let before = reset_peak(gateway.pid());
    let blocked = send_all(&gateway, "stuck", 100).await;

    let begun = Instant::now();
    let accepted = send_all(&gateway, "in", SESSIONS).await;
    let taken = begun.elapsed();
    let mut arrived = sink.counter();
    deadline("every callback", arrived.wait_for(|count| *count >= SESSIONS)).await.unwrap();
    let (answered, peak) = (begun.elapsed(), peak_bytes(gateway.pid()).saturating_sub(before));
    println!("{SESSIONS} sessions: taken in {taken:?}, answered in {answered:?}, at most {} MiB more", peak >> 20);
    assert!((1..MEMORY).contains(&peak), "{} MiB", peak >> 20);

    stuck.always(None);
    stuck.down();
    stuck.up().await;
    let journal = gateway.check_settled(&Witness { accepted: &accepted, sink: Some(&sink), strict_order: true }).await;
    check(&gateway.database(), &Witness { accepted: &blocked, ..Witness::default() });
    assert_eq!((sink.posts().len(), journal.inbox.len(), model.count()), (SESSIONS, SESSIONS + 100, SESSIONS + 100));
}
