//! Tests with mails that try to reach foreign threads, and with our own mails that return.

use uuid::Uuid;

use super::tests::IntakeFixture;
use crate::email::config::{EmailConfig, TrustMethod};
use crate::email::intake::NOTE_AGES;
use crate::email::mail::IntakeOutcome;
use crate::email::mail::ReplyContext;
use crate::email::message_id::message_id;
use crate::inbox::SentMessage;

const ANN: &str = "ann@example.org";
const OUTBOX: Uuid = Uuid::from_u128(0x0192_f0c1_2345_7abc_8def_0123_4567_89ab);

fn unproven(config: &mut EmailConfig) {
    config.trust = TrustMethod::None;
}

#[tokio::test]
async fn a_reply_goes_only_to_addresses_that_its_sender_controls() {
    let proven: fn(&mut EmailConfig) = |_| {};
    for (what, change, reply_to, to, joins) in [
        ("proven", proven, "", ANN, true),
        ("proven, to a stranger", proven, "eve@evil.test", ANN, true),
        ("proven, to one who is allowed", proven, "bob@example.org", "bob@example.org", true),
        ("believed", unproven, "", ANN, true),
        ("believed, to the sender", unproven, "Ann <ANN@example.org>", "Ann <ANN@example.org>", true),
        ("believed, to a stranger", unproven, "eve@evil.test", ANN, false),
        ("believed, to one who is allowed", unproven, "bob@example.org", "bob@example.org", false),
    ] {
        let fixture = IntakeFixture::new(change);
        fixture.take(ANN, "Message-ID: <1@x>\r\nSubject: Lunch\r\n", "Hello").await.unwrap();
        let reply_to = if reply_to.is_empty() { String::new() } else { format!("Reply-To: {reply_to}\r\n") };
        fixture.take(ANN, &format!("Message-ID: <2@x>\r\nSubject: Re: Lunch\r\n{reply_to}"), "More").await.unwrap();
        let answering = ReplyContext::of(&fixture.inbox.accepted()[1].metadata).unwrap();
        let root = if joins { "<1@x>" } else { "<2@x>" };
        assert_eq!(
            (answering.to, fixture.sessions()[1].clone()),
            (vec![to.to_owned()], format!("email:{root}")),
            "{what}"
        );
        let noted = fixture.inbox.note_of("email", "thread", "<1@x>");
        assert!(!noted.contains("eve@evil.test") && noted.contains(if joins { to } else { ANN }), "{what}: {noted}");
    }
    // A list that allows everybody names nobody.
    let fixture = IntakeFixture::new(|config| config.allow_from = crate::trust::AllowList::new(["*"]));
    fixture.take(ANN, "Message-ID: <1@x>\r\nReply-To: eve@evil.test, desk@example.org\r\n", "Hello").await.unwrap();
    assert_eq!(ReplyContext::of(&fixture.inbox.accepted()[0].metadata).unwrap().to, ["desk@example.org"]);
}

#[tokio::test]
async fn an_old_thread_still_belongs_to_its_participants() {
    let fixture = IntakeFixture::new(|_| {});
    fixture.take(ANN, "Message-ID: <1@x>\r\nSubject: Lunch\r\n", "Hello").await.unwrap();
    let kinds: Vec<_> = NOTE_AGES.iter().map(|(kind, _)| *kind).collect();
    fixture.inbox.forget_notes(&kinds);
    for (from, lines, expected) in [
        ("eve@example.org", "Message-ID: <2@x>\r\nReferences: <1@x>\r\n", "email:<2@x>"),
        (ANN, "Message-ID: <3@x>\r\nReferences: <1@x>\r\n", "email:<1@x>"),
    ] {
        fixture.take(from, lines, "Hello").await.unwrap();
        assert_eq!(fixture.sessions().last().unwrap(), expected, "{from}");
    }
    // Even a mail that bears the root's own id does not take the thread from its participants.
    fixture.inbox.forget_notes(&kinds);
    fixture.take("eve@example.org", "Message-ID: <1@x>\r\nSubject: Mine\r\n", "Hello").await.unwrap();
    let made = fixture.sessions().pop().unwrap();
    assert!(made.ends_with("@daoyou.invalid>"), "{made}");
    fixture.take(ANN, "Message-ID: <5@x>\r\nReferences: <1@x>\r\n", "Hello").await.unwrap();
    assert_eq!(fixture.sessions().last().unwrap(), "email:<1@x>");
}

/// Returns a report of failed delivery that contains the mail of the message `outbox`.
fn report(number: u32, outbox: Uuid) -> String {
    let id = message_id(outbox, Some("<root@x>"), "here.test");
    format!(
        "Return-Path: <>\r\nFrom: MAILER-DAEMON@mx.test\r\nMessage-ID: <{number}@mx.test>\r\nContent-Type: multipart/report; \
         report-type=delivery-status; boundary=b\r\n\r\n--b\r\n\r\nSorry.\r\n\r\n--b\r\nContent-Type: \
         message/delivery-status\r\n\r\nReporting-MTA: dns; mx.test\r\n\r\nFinal-Recipient: rfc822; bob@example.org\r\n\
         Action: failed\r\nDiagnostic-Code: smtp; 550 no `such` user\r\n\r\n--b\r\nContent-Type: \
         text/rfc822-headers\r\n\r\nMessage-ID: {id}\r\n\r\n--b--\r\n"
    )
}

#[tokio::test]
async fn the_owner_is_notified_once_of_each_bounced_mail() {
    let fixture = IntakeFixture::new(|_| {});
    let [unsent, notice, elsewhere] = [1, 2, 3].map(|n| Uuid::from_u128(OUTBOX.as_u128() + n));
    let sent = |is_notice| SentMessage { is_notice, chat_id: "<root@x>".to_owned() };
    fixture.inbox.mark_sent("email", OUTBOX, sent(false));
    fixture.inbox.mark_sent("email", notice, sent(true));
    fixture.inbox.mark_sent("webhook:in", elsewhere, sent(false));
    for (number, outbox, notices) in [(1, unsent, 0), (2, notice, 0), (3, elsewhere, 0), (4, OUTBOX, 1), (5, OUTBOX, 1)]
    {
        assert_eq!(fixture.take_raw(&report(number, outbox)).await, Ok(IntakeOutcome::Skipped), "{number}");
        assert_eq!(fixture.inbox.notices().len(), notices, "{number}");
    }
    let notice = &fixture.inbox.notices()[0];
    for words in ["`bob@example.org`", "`550 no 'such' user`", &OUTBOX.to_string()] {
        assert!(notice.contains(words), "{notice}");
    }
    assert!(fixture.inbox.accepted().is_empty(), "it begins no turn");
    assert_eq!(fixture.inbox.skipped().len(), 5);
}
