//! Connections break, servers disappear, mail numbers change: nothing is lost, and nothing is answered twice.

use std::time::Duration;

use super::servers::{ScriptedServers, wait_watching};
use crate::support::invariants::wait_settled;
use crate::support::mail::{ASSISTANT, Draft, Proxy};
use crate::support::until;

fn numbered_mail(n: usize) -> Draft {
    Draft::new("ada@example.test", &format!("mail {n}"), &format!("words {n}"))
}

fn subjects(sent: &[crate::support::mail::ReceivedMail]) -> Vec<String> {
    sent.iter().map(|taken| taken.mail.subject()).collect()
}

/// Disconnected while it waits for mail, and locked out for a while, the channel recovers automatically.
#[tokio::test(flavor = "multi_thread")]
async fn the_channel_reconnects_after_the_mailbox_was_unavailable() {
    let Some(mut servers) = ScriptedServers::start(|setup| setup).await else { return };
    servers.receive(&numbered_mail(1));
    servers.sent(1).await;
    servers.dovecot.kick(ASSISTANT);
    servers.receive(&numbered_mail(2));
    servers.sent(2).await;
    servers.dovecot.down().await;
    servers.receive(&numbered_mail(3));
    servers.receive(&numbered_mail(4));
    servers.dovecot.up().await;
    let mut subjects = subjects(&servers.sent(4).await);
    // Mails of different threads may overtake each other.
    subjects.sort();
    assert_eq!(subjects, ["Re: mail 1", "Re: mail 2", "Re: mail 3", "Re: mail 4"]);
    servers.dovecot.wait_seen(ASSISTANT, "INBOX", 4).await;
    assert_eq!(servers.model.count(), 4);
    servers.check();
}

/// Mails that arrive between the first start and the first successful login are answered; older ones are not.
#[tokio::test(flavor = "multi_thread")]
async fn mail_before_the_first_login_is_answered() {
    let Some(mut servers) = ScriptedServers::stopped(|setup| setup).await else { return };
    servers.receive(&numbered_mail(1).received(std::time::SystemTime::now() - Duration::from_secs(3_600)));
    servers.dovecot.down().await;
    servers.gateway.spawn();
    until("the first login to fail", async || {
        let listed = servers.gateway.run(&["channels", "list", "--json"]).await;
        let channels: serde_json::Value = serde_json::from_str(&listed.stdout).ok()?;
        channels.as_array()?.iter().any(|one| one["name"] == "email" && one["state"] == "failed").then_some(())
    })
    .await;
    servers.receive(&numbered_mail(2));
    servers.dovecot.up().await;
    let sent = servers.sent(1).await;
    assert_eq!(subjects(&sent), ["Re: mail 2"]);
    servers.check();
}

/// A connection that is silent but not closed is replaced within a minute.
#[tokio::test(flavor = "multi_thread")]
async fn a_half_open_connection_is_replaced() {
    let Some(mut servers) = ScriptedServers::stopped(|setup| setup).await else { return };
    let proxy = Proxy::start(servers.dovecot.imaps_port()).await;
    let setup = servers.gateway.setup();
    *setup = setup.clone().mail("imap_port", i64::from(proxy.port()));
    servers.gateway.up().await;
    wait_watching(&servers.gateway.database(), 1).await;
    servers.receive(&numbered_mail(1));
    servers.sent(1).await;
    let before = proxy.connections();
    proxy.freeze();
    servers.receive(&numbered_mail(2));
    // After 40 s of silence the channel asks, and waits 10 s for an answer. The rest is for a busy machine.
    let again = tokio::time::timeout(Duration::from_secs(100), proxy.next_connection(before));
    again.await.expect("a new connection");
    servers.sent(2).await;
    servers.dovecot.wait_seen(ASSISTANT, "INBOX", 2).await;
    servers.check();
}

/// The mailbox is recreated with a new UIDVALIDITY. Answered mails are recognized by their Message-ID, and new mails are
/// answered, whether the gateway runs at the time or not.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_uidvalidity_loses_and_repeats_no_mail() {
    let Some(mut servers) = ScriptedServers::start(|setup| setup).await else { return };
    servers.receive(&numbered_mail(1));
    servers.receive(&numbered_mail(2));
    servers.sent(2).await;
    servers.dovecot.wait_seen(ASSISTANT, "INBOX", 2).await;
    servers.gateway.stop().await;
    servers.dovecot.set_uidvalidity(ASSISTANT, "INBOX", 4_711);
    servers.receive(&numbered_mail(3));
    servers.gateway.up().await;
    servers.sent(3).await;
    servers.dovecot.wait_seen(ASSISTANT, "INBOX", 3).await;
    servers.dovecot.set_uidvalidity(ASSISTANT, "INBOX", 4_712);
    servers.receive(&numbered_mail(4));
    let sent = servers.sent(4).await;
    // Conversations run concurrently, so only the fact that each is answered once is certain.
    let mut subjects = subjects(&sent);
    subjects.sort_unstable();
    assert_eq!(subjects, ["Re: mail 1", "Re: mail 2", "Re: mail 3", "Re: mail 4"]);
    wait_settled(&servers.gateway.database()).await;
    assert_eq!(servers.model.count(), 4);
    servers.check();
}
