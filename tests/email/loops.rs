//! Mail from other machines, and loops with them.

use super::servers::{ScriptedServers, skip_reasons, wait_watching};
use crate::support::gateway::Gateway;
use crate::support::invariants::{Journal, wait_settled};
use crate::support::mail::{ASSISTANT, AUTHSERV, Dovecot, Draft, Mail, PASSWORD, Postfix};
use crate::support::{Model, Setup, until};

fn mail_from(address: &str) -> Draft {
    Draft::new(address, "Hello", "words of a machine")
}

/// None of these mails is answered, and the model never sees them.
#[tokio::test(flavor = "multi_thread")]
async fn automatic_mails_are_not_answered() {
    let Some(servers) = ScriptedServers::start(|setup| setup).await else { return };
    let report = "--b\r\nContent-Type: text/plain\r\n\r\nIt could not be delivered.\r\n--b\r\n\
                  Content-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; mx.example.test\r\n\r\n\
                  Final-Recipient: rfc822; x@example.test\r\nAction: failed\r\nStatus: 5.1.1\r\n--b--\r\n";
    let own = format!("<daoyou.{}.0123456789abcdef@example.test>", uuid::Uuid::new_v4());
    let table: Vec<(&str, Draft)> = vec![
        ("a vacation answer", mail_from("ada@example.test").header("Auto-Submitted", "auto-replied")),
        ("a generated mail", mail_from("ada@example.test").header("Auto-Submitted", "auto-generated; owner=x")),
        ("a null return path", mail_from("ada@example.test").header("Return-Path", "<>")),
        (
            "a bounce",
            mail_from("ada@example.test").body(
                "multipart/report; report-type=delivery-status; boundary=b",
                "7bit",
                report,
            ),
        ),
        ("the mailer", mail_from("MAILER-DAEMON@example.test")),
        ("bulk", mail_from("ada@example.test").header("Precedence", "bulk")),
        ("a list", mail_from("ada@example.test").header("List-Id", "Talk <talk.example.test>")),
        ("another list", mail_from("ada@example.test").header("Precedence", "list")),
        ("an autoreply", mail_from("ada@example.test").header("X-Autoreply", "yes")),
        ("an autoresponder", mail_from("ada@example.test").header("X-Autorespond", "Out of servers")),
        ("ourselves", mail_from(ASSISTANT)),
        ("our own mail, come back", mail_from("ada@example.test").header("Message-ID", &own)),
    ];
    for (_, draft) in &table {
        servers.receive(draft);
    }
    servers.receive(&Draft::new("ada@example.test", "Hello", "words of a person"));
    let sent = servers.sent(1).await;
    assert!(sent[0].mail.text().contains("words of a person"), "{}", sent[0].mail.text());
    let reasons = skip_reasons(&servers.gateway.database());
    println!("{reasons:#?}");
    assert_eq!((reasons.len(), servers.model.count()), (table.len(), 1), "{reasons:#?}");
    servers.dovecot.wait_seen(ASSISTANT, "INBOX", 1).await;
    assert_eq!(servers.check().inbox.len(), 1);
}

/// A machine answers every mail at once without marking its mails as automatic. It gets one notice about the limit; then
/// nothing more is sent.
#[tokio::test(flavor = "multi_thread")]
async fn an_auto_responder_loop_ends_at_the_limit() {
    let Some(servers) = ScriptedServers::start(|setup| setup.mail("hourly_limit", 3)).await else { return };
    let mut draft = Draft::new("robot@example.test", "Out of servers", "I am away, round 1");
    for round in 1..=4 {
        servers.receive(&draft);
        let sent = servers.smtp.wait_taken(round).await;
        let mut mail: Mail = sent[round - 1].mail.clone();
        // The robot drops the headers of the conversation, as real auto-responders do.
        if round > 2 {
            mail = Mail::new(String::from_utf8_lossy(&mail.raw).replace("Message-ID", "X-Was").into_bytes());
        }
        draft = Draft::reply("robot@example.test", &mail, &format!("I am away, round {}", round + 1));
    }
    for round in 5..=7 {
        servers.receive(&Draft::new("robot@example.test", "Out of servers", &format!("I am away, round {round}")));
    }
    servers.receive(&Draft::new("ada@example.test", "A person", "hello"));
    let sent = servers.sent(5).await;
    assert_eq!(sent[4].to, ["ada@example.test"]);
    assert_eq!(servers.model.count(), 4, "three turns of the robot, one of the person");
    assert!(!sent[3].mail.text().contains("round"), "a word of ours: {}", sent[3].mail.text());
    servers.check();
}

/// Two gateways that each take the other for a person stop after one reply.
#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_stop_answering_each_other() {
    const HELPER: &str = "helper@other.test";
    let Some(dovecot) = Dovecot::start().await else { return };
    let Some(postfix) = Postfix::start(&dovecot).await else { return };
    let model = Model::start().await;
    let setup = |address: &str, other: &str| {
        let setup = Setup::new().model(&model).email_through_postfix(&dovecot, &postfix);
        setup.mail("address", address).mail("imap_password", PASSWORD).mail("allow_from", vec![other])
    };
    let assistant = Gateway::start(setup(ASSISTANT, HELPER)).await;
    let helper = Gateway::start(setup(HELPER, ASSISTANT)).await;
    for gateway in [&assistant, &helper] {
        wait_watching(&gateway.database(), 1).await;
    }
    let began = Draft::new(HELPER, "Are you there?", "a question").header("To", ASSISTANT);
    postfix.transfer(HELPER, &[ASSISTANT], &began).await;
    let reply = dovecot.wait_mail(HELPER, "the reply", |mail| mail.header("in-reply-to") == began.message_id()).await;
    assert_eq!(reply.header("auto-submitted"), "auto-replied");
    assert!(reply.header("authentication-results").starts_with(AUTHSERV));
    let reasons = until("the helper to pass it over", async || {
        let reasons = skip_reasons(&helper.database());
        (!reasons.is_empty()).then_some(reasons)
    })
    .await;
    println!("{reasons:?}");
    wait_settled(&assistant.database()).await;
    assert_eq!(model.count(), 1);
    assert_eq!(Journal::read(&helper.database()).unwrap().inbox.len(), 0);
    assert_eq!([dovecot.mails(HELPER, "INBOX").len(), dovecot.mails(ASSISTANT, "INBOX").len()], [1, 1]);
}
