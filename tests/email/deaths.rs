//! The process dies with mails in its hands.

use std::collections::BTreeMap;

use super::desk::{Desk, wait_watching};
use crate::support::invariants::wait_settled;
use crate::support::mail::{ASSISTANT, Draft};
use crate::support::{POLL, until};

/// One row: where the process dies, whether the mail is \Seen then, and how often its reply is sent.
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

/// Between fetching and keeping, between keeping and marking, between sending and noting it: each mail is answered, and what
/// may go out twice is the same mail with the same Message-ID.
#[tokio::test(flavor = "multi_thread")]
async fn killed_with_a_mail_in_hand() {
    let Some(mut desk) = Desk::open(|setup| setup).await else { return };
    let mut before = 0;
    for (n, row) in TABLE.iter().enumerate() {
        desk.gateway.stop().await;
        desk.gateway.crash_at(row.point).up().await;
        desk.receive(&Draft::new("ada@example.test", &format!("mail {n}"), &format!("words {n}")));
        desk.gateway.wait_crash().await;
        if row.point.starts_with("accept") {
            let seen = desk.dovecot.mails(ASSISTANT, "INBOX").iter().filter(|mail| mail.is_seen()).count();
            assert_eq!(seen, n, "{}: marked before it was kept", row.point);
        }
        desk.gateway.up().await;
        let sent = desk.sent(before + row.sent).await.split_off(before);
        before += row.sent;
        assert!(sent.iter().all(|taken| taken.mail.subject() == format!("Re: mail {n}")), "{}", row.point);
        assert!(sent.iter().all(|taken| taken.mail.raw == sent[0].mail.raw), "{}: another mail", row.point);
        desk.dovecot.wait_seen(ASSISTANT, "INBOX", n + 1).await;
        assert_eq!(desk.model.count(), n + 1, "{}: the model was asked again", row.point);
    }
    desk.check();
}

/// Killed again and again while mails come in and replies go out: every mail is answered, none twice.
#[tokio::test(flavor = "multi_thread")]
async fn killed_again_and_again() {
    const KILLS: usize = 20;
    let Some(mut desk) = Desk::open(|setup| setup).await else { return };
    let mut count = 0;
    for round in 0..KILLS {
        for _ in 0..3 {
            let sender = format!("p{}@example.test", count % 5);
            desk.receive(&Draft::new(&sender, &format!("mail {count}"), &format!("words {count}")));
            count += 1;
        }
        // Dies a little later each time: while it fetches, thinks, sends.
        let asked = desk.model.count() + round % 4;
        until("some headway", async || (desk.model.count() >= asked).then_some(())).await;
        tokio::time::sleep(POLL * u32::try_from(round).expect("a small number")).await;
        desk.gateway.restart().await;
    }
    until("every mail to be answered", async || {
        let mut subjects: Vec<_> = desk.smtp.taken().iter().map(|taken| taken.mail.subject()).collect();
        subjects.sort_unstable();
        subjects.dedup();
        (subjects.len() >= count).then_some(())
    })
    .await;
    wait_watching(&desk.gateway.database(), 1).await;
    wait_settled(&desk.gateway.database()).await;
    let mut ids: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for taken in desk.smtp.taken() {
        ids.entry(taken.mail.subject()).or_default().push(taken.mail.header("message-id"));
    }
    for (subject, ids) in &ids {
        assert!(ids.iter().all(|id| *id == ids[0]), "{subject} was answered by two mails: {ids:?}");
    }
    let journal = desk.check();
    assert_eq!((journal.inbox.len(), ids.len()), (count, count));
    desk.dovecot.wait_seen(ASSISTANT, "INBOX", count).await;
}
