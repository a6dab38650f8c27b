//! The process dies while it handles mails.

use std::collections::BTreeMap;

use super::servers::{ScriptedServers, wait_watching};
use crate::support::invariants::wait_settled;
use crate::support::mail::{ASSISTANT, Draft};
use crate::support::{POLL, until};

/// A row: the point at which the process dies, whether the mail is \Seen then, and how often its reply is sent.
struct Row {
    point: &'static str,
    sent: usize,
}

#[rustfmt::skip]
const TABLE: &[Row] = &[
    Row { point: "accept_before_commit", sent: 1 },
    Row { point: "accept_committed",     sent: 1 },
    Row { point: "end_committed",        sent: 1 },
    Row { point: "sending_committed",    sent: 1 },
    Row { point: "sent_unmarked",        sent: 2 },
];

/// Killed between fetching and accepting, accepting and marking, or sending and recording, the gateway answers each mail. A
/// repeated reply is the same mail with the same Message-ID.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_at_each_step_answers_every_mail_once() {
    let Some(mut servers) = ScriptedServers::start(|setup| setup).await else { return };
    let mut before = 0;
    for (n, row) in TABLE.iter().enumerate() {
        servers.gateway.stop().await;
        servers.gateway.crash_at(row.point).up().await;
        servers.receive(&Draft::new("ada@example.test", &format!("mail {n}"), &format!("words {n}")));
        servers.gateway.wait_crash().await;
        if row.point.starts_with("accept") {
            let seen = servers.dovecot.mails(ASSISTANT, "INBOX").iter().filter(|mail| mail.is_seen()).count();
            assert_eq!(seen, n, "{}: marked before it was kept", row.point);
        }
        servers.gateway.up().await;
        let sent = servers.sent(before + row.sent).await.split_off(before);
        before += row.sent;
        assert!(sent.iter().all(|taken| taken.mail.subject() == format!("Re: mail {n}")), "{}", row.point);
        assert!(sent.iter().all(|taken| taken.mail.raw == sent[0].mail.raw), "{}: another mail", row.point);
        servers.dovecot.wait_seen(ASSISTANT, "INBOX", n + 1).await;
        assert_eq!(servers.model.count(), n + 1, "{}: the model was asked again", row.point);
    }
    servers.check();
}

/// Killed repeatedly while mails arrive and replies leave, the gateway answers every mail, and none twice.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_kills_lose_and_repeat_no_mail() {
    const KILLS: usize = 20;
    let Some(mut servers) = ScriptedServers::start(|setup| setup).await else { return };
    let mut count = 0;
    for round in 0..KILLS {
        for _ in 0..3 {
            let sender = format!("p{}@example.test", count % 5);
            servers.receive(&Draft::new(&sender, &format!("mail {count}"), &format!("words {count}")));
            count += 1;
        }
        // The process dies a little later each time: while it fetches, calls the model, or sends.
        let asked = servers.model.count() + round % 4;
        until("some progress", async || (servers.model.count() >= asked).then_some(())).await;
        tokio::time::sleep(POLL * u32::try_from(round).expect("a small number")).await;
        servers.gateway.restart().await;
    }
    until("every mail to be answered", async || {
        let mut subjects: Vec<_> = servers.smtp.taken().iter().map(|taken| taken.mail.subject()).collect();
        subjects.sort_unstable();
        subjects.dedup();
        (subjects.len() >= count).then_some(())
    })
    .await;
    wait_watching(&servers.gateway.database(), 1).await;
    wait_settled(&servers.gateway.database()).await;
    let mut ids: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for taken in servers.smtp.taken() {
        ids.entry(taken.mail.subject()).or_default().push(taken.mail.header("message-id"));
    }
    for (subject, ids) in &ids {
        assert!(ids.iter().all(|id| *id == ids[0]), "{subject} was answered by two mails: {ids:?}");
    }
    let journal = servers.check();
    assert_eq!((journal.inbox.len(), ids.len()), (count, count));
    servers.dovecot.wait_seen(ASSISTANT, "INBOX", count).await;
}
