//! Connections break, servers go away, numbers change: nothing is lost, and nothing is answered twice.

use std::time::Duration;

use super::desk::{Desk, wait_watching};
use crate::support::invariants::wait_settled;
use crate::support::mail::{ASSISTANT, Draft, Proxy};
use crate::support::until;

fn mail(n: usize) -> Draft {
    Draft::new("ada@example.test", &format!("mail {n}"), &format!("words {n}"))
}

fn subjects(sent: &[crate::support::mail::Taken]) -> Vec<String> {
    sent.iter().map(|taken| taken.mail.subject()).collect()
}

/// Kicked out while it listens, and shut out for a while: it comes back by itself.
#[tokio::test(flavor = "multi_thread")]
async fn the_mailbox_goes_away_and_comes_back() {
    let Some(mut desk) = Desk::open(|setup| setup).await else { return };
    desk.receive(&mail(1));
    desk.sent(1).await;
    desk.dovecot.kick(ASSISTANT);
    desk.receive(&mail(2));
    desk.sent(2).await;
    desk.dovecot.down().await;
    desk.receive(&mail(3));
    desk.receive(&mail(4));
    desk.dovecot.up().await;
    let mut subjects = subjects(&desk.sent(4).await);
    // Those of different threads may overtake each other.
    subjects.sort();
    assert_eq!(subjects, ["Re: mail 1", "Re: mail 2", "Re: mail 3", "Re: mail 4"]);
    desk.dovecot.wait_seen(ASSISTANT, "INBOX", 4).await;
    assert_eq!(desk.model.count(), 4);
    desk.check();
}

/// What comes between the first start and the first time that the mailbox can be opened is answered; what lay there before is not.
#[tokio::test(flavor = "multi_thread")]
async fn mail_before_the_first_login_is_answered() {
    let Some(mut desk) = Desk::closed(|setup| setup).await else { return };
    desk.receive(&mail(1).received(std::time::SystemTime::now() - Duration::from_secs(3_600)));
    desk.dovecot.down().await;
    desk.gateway.spawn();
    until("the first login to fail", async || {
        let listed = desk.gateway.run(&["channels", "list", "--json"]).await;
        let channels: serde_json::Value = serde_json::from_str(&listed.stdout).ok()?;
        channels.as_array()?.iter().any(|one| one["name"] == "email" && one["state"] == "failed").then_some(())
    })
    .await;
    desk.receive(&mail(2));
    desk.dovecot.up().await;
    let sent = desk.sent(1).await;
    assert_eq!(subjects(&sent), ["Re: mail 2"]);
    desk.check();
}

/// A connection that says nothing any more, and is not closed either, is given up within a minute and replaced.
#[tokio::test(flavor = "multi_thread")]
async fn a_half_open_connection_is_noticed() {
    let Some(mut desk) = Desk::closed(|setup| setup).await else { return };
    let proxy = Proxy::start(desk.dovecot.imaps_port()).await;
    let setup = desk.gateway.setup();
    *setup = setup.clone().mail("imap_port", i64::from(proxy.port()));
    desk.gateway.up().await;
    wait_watching(&desk.gateway.database(), 1).await;
    desk.receive(&mail(1));
    desk.sent(1).await;
    let before = proxy.connections();
    proxy.freeze();
    desk.receive(&mail(2));
    let again = tokio::time::timeout(Duration::from_secs(60), proxy.next_connection(before));
    again.await.expect("a new connection within a minute");
    desk.sent(2).await;
    desk.dovecot.wait_seen(ASSISTANT, "INBOX", 2).await;
    desk.check();
}

/// The mailbox was made anew and its numbers mean nothing: what was answered is known by its Message-ID, and what came
/// meanwhile is answered; at rest and while it runs.
#[tokio::test(flavor = "multi_thread")]
async fn the_numbers_change() {
    let Some(mut desk) = Desk::open(|setup| setup).await else { return };
    desk.receive(&mail(1));
    desk.receive(&mail(2));
    desk.sent(2).await;
    desk.dovecot.wait_seen(ASSISTANT, "INBOX", 2).await;
    desk.gateway.stop().await;
    desk.dovecot.renumber(ASSISTANT, "INBOX", 4_711);
    desk.receive(&mail(3));
    desk.gateway.up().await;
    desk.sent(3).await;
    desk.dovecot.wait_seen(ASSISTANT, "INBOX", 3).await;
    desk.dovecot.renumber(ASSISTANT, "INBOX", 4_712);
    desk.receive(&mail(4));
    let sent = desk.sent(4).await;
    // Conversations run side by side: only that each is answered once is certain.
    let mut subjects = subjects(&sent);
    subjects.sort_unstable();
    assert_eq!(subjects, ["Re: mail 1", "Re: mail 2", "Re: mail 3", "Re: mail 4"]);
    wait_settled(&desk.gateway.database()).await;
    assert_eq!(desk.model.count(), 4);
    desk.check();
}
