//! Tests of the intake with an inbox in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;

use super::MailIntake;
use crate::attachment_folder::AttachmentFolder;
use crate::conformance::{ScriptedAnswer, ScriptedInbox};
use crate::email::auth::SenderAuthenticator;
use crate::email::auth::verifier_tests::with_failing_dns;
use crate::email::config::{ATTACHMENTS, EmailConfig, TrustMethod, UnlistedSenderPolicy};
use crate::email::mail::{FetchedContent, FetchedMail, Intake, IntakeOutcome, ReplyContext};
use crate::email::message_id::message_id;
use crate::email::texts::NoticeTexts;
use crate::inbox::{Cursor, Inbox, Refusal, SentMessage};
use crate::message::{InboundMessage, Trust};
use crate::text::Language;
use crate::trust::{AllowList, TrustLists};

// The number of seconds by which the clock of these tests is ahead; each test has its own.
thread_local!(static AHEAD: AtomicI64 = const { AtomicI64::new(0) });

fn clock() -> Timestamp {
    let ahead = AHEAD.with(|ahead| ahead.load(Ordering::Relaxed));
    Timestamp::from_second(Timestamp::now().as_second() + ahead).unwrap()
}

fn later(seconds: i64) {
    AHEAD.with(|ahead| ahead.fetch_add(seconds, Ordering::Relaxed));
}

/// Returns the header fields by which the receiving server proves a sender of `domain`.
fn proven(domain: &str) -> String {
    format!(
        "Authentication-Results: mx.here; dmarc=pass header.from={domain}\r\nReceived: by mx.here with ESMTP; x\r\n"
    )
}

pub(super) struct IntakeFixture {
    pub inbox: Arc<ScriptedInbox>,
    intake: MailIntake,
    pub workspace: tempfile::TempDir,
    uid: AtomicI64,
}

impl IntakeFixture {
    pub fn new(change: impl FnOnce(&mut EmailConfig)) -> Self {
        Self::with_inbox(change, ScriptedInbox::new(|_| ScriptedAnswer::Hold))
    }

    fn with_inbox(change: impl FnOnce(&mut EmailConfig), inbox: Arc<ScriptedInbox>) -> Self {
        let mut config = EmailConfig {
            address: "dao@here.test".to_owned(),
            allow_from: AllowList::new(["@example.org"]),
            authserv_id: "mx.here".to_owned(),
            ..EmailConfig::default()
        };
        change(&mut config);
        let workspace = tempfile::tempdir().unwrap();
        let files = Arc::new(AttachmentFolder::open(workspace.path(), ATTACHMENTS).unwrap());
        let intake =
            MailIntake::new(&config, TrustLists::default(), inbox.clone(), files, NoticeTexts::of(Language::En));
        let intake = intake.with(SenderAuthenticator::new(&config, TrustLists::default()), clock);
        Self { inbox, intake, workspace, uid: AtomicI64::new(1) }
    }

    /// Hands over a mail whose address is proven, with further header lines and a text.
    pub async fn take(&self, from: &str, lines: &str, text: &str) -> Result<IntakeOutcome, Refusal> {
        let proven = proven(from.rsplit_once('@').unwrap().1);
        self.take_raw(&format!("{proven}From: {from}\r\nTo: dao@here.test\r\n{lines}\r\n{text}\r\n")).await
    }

    pub async fn take_raw(&self, raw: &str) -> Result<IntakeOutcome, Refusal> {
        self.offer(FetchedContent::Whole(raw.as_bytes().to_vec())).await
    }

    async fn offer(&self, content: FetchedContent) -> Result<IntakeOutcome, Refusal> {
        let position = format!("1:{}", self.uid.fetch_add(1, Ordering::Relaxed));
        let cursor = Cursor { channel: "email".to_owned(), source: "INBOX".to_owned(), position };
        self.intake.take(FetchedMail { cursor, received_at: clock(), content }).await
    }

    /// Returns the sessions of the accepted mails, in order.
    pub fn sessions(&self) -> Vec<String> {
        self.inbox.accepted().iter().map(|m| m.session_key().to_string()).collect()
    }

    fn replies(&self) -> Vec<String> {
        let outbound = self.inbox.outbound();
        std::iter::from_fn(|| outbound.try_recv().ok()).map(|reply| reply.content).collect()
    }

    async fn cursor(&self) -> String {
        self.inbox.cursor("email", "INBOX").await.unwrap().map(|cursor| cursor.position).unwrap_or_default()
    }
}

#[tokio::test]
async fn three_turns_are_one_thread() {
    let fixture = IntakeFixture::new(|_| {});
    let ann = "ann@example.org";
    let first = "Message-ID: <1@example.org>\r\nSubject: Lunch\r\n";
    assert_eq!(fixture.take(ann, first, "Hello").await, Ok(IntakeOutcome::Accepted));
    let reply = message_id(uuid::Uuid::now_v7(), Some("<1@example.org>"), "here.test");
    let second = format!(
        "Message-ID: <2@example.org>\r\nSubject: Re: Lunch\r\nIn-Reply-To: {reply}\r\nReferences: <1@example.org> {reply}\r\n"
    );
    assert_eq!(fixture.take(ann, &second, "When?").await, Ok(IntakeOutcome::Accepted));
    // The References are gone and the subject differs, but our own id identifies the thread.
    let third = format!("Message-ID: <3@example.org>\r\nSubject: Dinner\r\nIn-Reply-To: {reply}\r\n");
    assert_eq!(fixture.take(ann, &third, "Or so?").await, Ok(IntakeOutcome::Accepted));
    // Without any ids, the subject identifies the thread.
    let fourth = "Message-ID: <4@example.org>\r\nSubject: AW: Dinner\r\n";
    assert_eq!(fixture.take(ann, fourth, "And now?").await, Ok(IntakeOutcome::Accepted));
    assert_eq!(fixture.sessions(), vec!["email:<1@example.org>"; 4]);
    let messages: Vec<_> =
        fixture.inbox.accepted().into_iter().map(|m| (m.content.clone(), about(&m).join("|"))).collect();
    let expected = [
        ("Hello", "From: <ann@example.org>|Subject: Lunch"),
        ("When?", ""),
        ("Or so?", "Subject: Dinner"),
        ("And now?", ""),
    ];
    assert_eq!(messages, expected.map(|(text, about)| (text.to_owned(), about.to_owned())));

    let message = &fixture.inbox.accepted()[1];
    assert_eq!(message.external_id.as_deref(), Some("<2@example.org> ann@example.org"));
    assert_eq!((message.chat_id.as_str(), message.sender.as_str()), ("<1@example.org>", ann));
    let answering = ReplyContext::of(&message.metadata).unwrap();
    assert_eq!((answering.message_id.as_str(), &answering.to[..]), ("<2@example.org>", &[ann.to_owned()][..]));
    assert_eq!(answering.references, ["<1@example.org>", &reply]);
    let noted = fixture.inbox.note("email", "thread", "<1@example.org>").await.unwrap().unwrap();
    assert!(noted.value.contains("<4@example.org>"), "{}", noted.value);
    assert_eq!(fixture.cursor().await, "1:4");

    // The subject does not count: too old, not a reply, another sender.
    later(31 * 24 * 3_600);
    for (from, lines) in [
        (ann, "Message-ID: <5@example.org>\r\nSubject: Re: Dinner\r\n"),
        (ann, "Message-ID: <6@example.org>\r\nSubject: Dinner\r\n"),
        ("bob@example.org", "Message-ID: <7@example.org>\r\nSubject: Re: Dinner\r\n"),
    ] {
        fixture.take(from, lines, "Hello").await.unwrap();
    }
    assert_eq!(fixture.sessions()[4..], ["email:<5@example.org>", "email:<6@example.org>", "email:<7@example.org>"]);
}

#[tokio::test]
async fn threads_are_open_to_the_people_who_got_their_replies() {
    const ANN: &str = "ann@example.org";
    const BOB: &str = "bob@example.org";
    for reply_all in [false, true] {
        let fixture = IntakeFixture::new(|config| config.reply_all = reply_all);
        let (joins, alone) = if reply_all { ("email:<1@x>", "email:<6@x>") } else { ("email:<2@x>", "email:<2@x>") };
        for (from, id, cc, references, expected) in [
            (ANN, "<1@x>", BOB, "", "email:<1@x>"),
            (BOB, "<2@x>", ANN, "<1@x>", joins),
            ("eve@example.org", "<3@x>", ANN, "<1@x>", "email:<3@x>"),
            // Bob cannot talk alone in Ann's thread.
            (BOB, "<4@x>", "", "<1@x>", "email:<4@x>"),
            // Bob does not get the reply to this mail.
            (ANN, "<5@x>", "", "<1@x>", "email:<1@x>"),
            (BOB, "<6@x>", ANN, "<1@x> <2@x>", alone),
        ] {
            let lines = format!("Cc: {cc}\r\nMessage-ID: {id}\r\nReferences: {references}\r\nSubject: Re: Lunch\r\n");
            fixture.take(from, &lines, "Hello").await.unwrap();
            assert_eq!(fixture.sessions().last().unwrap(), expected, "{id} {reply_all}");
            let is_read_by_others = fixture.inbox.accepted().pop().unwrap().settings.is_read_by_others;
            assert_eq!(is_read_by_others, reply_all && !cc.is_empty(), "{id} {reply_all}");
        }
        let about_bob = about(&fixture.inbox.accepted()[1]);
        assert_eq!(about_bob[0], "From: <bob@example.org>");
        assert_eq!(about_bob.len(), if reply_all { 1 } else { 2 }, "the subject is shown in a new conversation");
        // A mail with another person's id takes nothing from that person.
        fixture.take("eve@example.org", "Message-ID: <1@x>\r\nSubject: Mine\r\n", "Hello").await.unwrap();
        let made = fixture.sessions().pop().unwrap();
        assert!(made.ends_with("@daoyou.invalid>"), "{made}");
        fixture.take(ANN, "Message-ID: <7@x>\r\nReferences: <1@x>\r\n", "Hello").await.unwrap();
        assert_eq!(fixture.sessions().last().unwrap(), "email:<1@x>");
    }
}

#[tokio::test]
async fn a_reply_to_a_mail_that_the_gateway_began_belongs_to_its_chat() {
    let fixture = IntakeFixture::new(|_| {});
    let (outbox, chat_id) = (uuid::Uuid::now_v7(), "Ann <ann@example.org>".to_owned());
    fixture.inbox.mark_sent("email", outbox, SentMessage { is_notice: false, chat_id });
    let begun = message_id(outbox, None, "here.test");
    let reply = message_id(uuid::Uuid::now_v7(), Some(&begun), "here.test");
    let kinds: Vec<_> = super::NOTE_AGES.iter().map(|(kind, _)| *kind).collect();
    for (from, id, references, session, chat) in [
        ("eve@example.org", "<1@x>", begun.clone(), "email:<1@x>", "<1@x>"),
        ("ann@example.org", "<2@x>", begun.clone(), "email:Ann <ann@example.org>", begun.as_str()),
        ("ann@example.org", "<3@x>", reply.clone(), "email:Ann <ann@example.org>", &begun),
        ("ann@example.org", "<4@x>", format!("{begun} {reply}"), "email:Ann <ann@example.org>", &begun),
    ] {
        let lines = format!("Message-ID: {id}\r\nReferences: {references}\r\nSubject: Re: News\r\n");
        fixture.take(from, &lines, "Hello").await.unwrap();
        let message = fixture.inbox.accepted().pop().unwrap();
        assert_eq!((message.session_key().as_str(), message.chat_id.as_str()), (session, chat), "{id}");
        if id == "<3@x>" {
            fixture.inbox.forget_notes(&kinds);
        }
    }
}

#[tokio::test]
async fn the_same_mail_is_one_message() {
    let fixture = IntakeFixture::new(|_| {});
    let lines = "Message-ID: <1@x>\r\nSubject: Lunch\r\n";
    for _ in 0..3 {
        assert_eq!(fixture.take("ann@example.org", lines, "Hello").await, Ok(IntakeOutcome::Accepted));
    }
    assert_eq!(
        fixture.take("ann@example.org", "Date: Mon, 2 Nov 2026 10:00:00 +0000\r\n", "No id").await,
        Ok(IntakeOutcome::Accepted)
    );
    assert_eq!((fixture.inbox.accepted().len(), fixture.cursor().await), (2, "1:4".to_owned()));
    assert_eq!(fixture.take("eve@evil.test", lines, "Hello").await, Ok(IntakeOutcome::Skipped));
    let of_stranger = format!("{}From: eve@evil.test\r\nTo: dao@here.test\r\n{lines}", proven("evil.test"));
    let proven = proven("example.org");
    let header = |lines: &str, end: &str| format!("{proven}From: ann@example.org\r\nTo: dao@here.test\r\n{lines}{end}");
    for (header, known) in [
        (of_stranger, Some(IntakeOutcome::Skipped)),
        (header(lines, "\r\n"), Some(IntakeOutcome::Accepted)),
        (header(lines, ""), Some(IntakeOutcome::Accepted)),
        (header("Date: Mon, 2 Nov 2026 10:00:00 +0000\r\n", "\r\n"), Some(IntakeOutcome::Accepted)),
        (header("Message-ID: <2@x>\r\n", "\r\n"), None),
        (String::new(), None),
    ] {
        assert_eq!(fixture.intake.known(header.as_bytes()).await, Ok(known), "{header}");
    }
}

#[tokio::test]
async fn automatic_and_unlisted_mail_is_skipped() {
    let fixture = IntakeFixture::new(|_| {});
    let automatic = "From: ann@example.org\r\nAuto-Submitted: auto-replied\r\n\r\nI am on holiday";
    for raw in [
        "From: ann@example.org\r\nMessage-ID: <1@x>\r\n\r\nspoofed".to_owned(),
        proven("example.org") + automatic,
        proven("evil.test") + "From: eve@evil.test\r\n\r\nHello",
        String::new(),
    ] {
        assert_eq!(fixture.take_raw(&raw).await, Ok(IntakeOutcome::Skipped), "{raw}");
    }
    assert!(fixture.inbox.accepted().is_empty() && fixture.replies().is_empty() && fixture.inbox.notices().is_empty());
    assert_eq!((fixture.inbox.skipped().len(), fixture.cursor().await), (4, "1:4".to_owned()));
}

#[tokio::test]
async fn unsubscribed_senders_get_no_mail_until_they_subscribe() {
    let fixture = IntakeFixture::new(|_| {});
    let ann = "ann@example.org";
    let &NoticeTexts { unsubscribed, subscribed, .. } = NoticeTexts::of(Language::En);
    let mut id = 0;
    for (from, subject, text, taken, reply) in [
        (ann, "Lunch", "Hello", IntakeOutcome::Accepted, None),
        (ann, "unsubscribe", "", IntakeOutcome::Skipped, Some(unsubscribed)),
        (ann, "unsubscribe", "", IntakeOutcome::Skipped, None),
        (ann, "Re: Lunch", "And?", IntakeOutcome::Skipped, None),
        ("bob@example.org", "Lunch", "Hello", IntakeOutcome::Accepted, None),
        (ann, "subscribe", "", IntakeOutcome::Skipped, Some(subscribed)),
        (ann, "Re: Lunch", "And?", IntakeOutcome::Accepted, None),
        // Nothing to resume: an ordinary mail.
        (ann, "subscribe", "", IntakeOutcome::Accepted, None),
    ] {
        id += 1;
        let lines = format!("Message-ID: <{id}@example.org>\r\nSubject: {subject}\r\n");
        assert_eq!(fixture.take(from, &lines, text).await, Ok(taken), "{subject} {text}");
        assert_eq!(fixture.replies(), reply.map(str::to_owned).into_iter().collect::<Vec<_>>(), "{subject} {text}");
        if taken == IntakeOutcome::Accepted || reply.is_some() {
            // The mail keeps its outcome.
            let header = format!("From: {from}\r\nTo: dao@here.test\r\n{lines}\r\n");
            assert_eq!(fixture.intake.known(header.as_bytes()).await, Ok(Some(taken)), "{subject} {text}");
        }
    }
}

#[tokio::test]
async fn strangers_are_refused_once_a_day() {
    let fixture = IntakeFixture::new(|config| config.strangers = UnlistedSenderPolicy::Refuse);
    let refused = NoticeTexts::of(Language::En).refused.to_owned();
    fixture
        .take("eve@evil.test", "Message-ID: <1@x>\r\nReferences: <0@x>\r\nSubject: Hello\r\n", "secret")
        .await
        .unwrap();
    assert_eq!(fixture.replies(), std::slice::from_ref(&refused));
    assert_eq!(fixture.take("eve@evil.test", "Message-ID: <2@x>\r\n", "Hello").await, Ok(IntakeOutcome::Skipped));
    fixture.take("list@evil.test", "Message-ID: <3@x>\r\nPrecedence: list\r\n", "Hello").await.unwrap();
    fixture.take_raw("From: forged@evil.test\r\nMessage-ID: <4@x>\r\n\r\nHello").await.unwrap();
    assert!(fixture.replies().is_empty());
    later(25 * 3_600);
    fixture.take("eve@evil.test", "Message-ID: <5@x>\r\n", "Hello").await.unwrap();
    assert_eq!(fixture.replies(), [refused]);
    let kept = &fixture.inbox.accepted()[0];
    assert_eq!(
        (kept.content.as_str(), kept.trust, kept.chat_id.as_str()),
        ("Subject: Hello", Trust::Untrusted, "<1@x>")
    );
    // Refusals to all senders together are limited to 100 a day.
    for n in 0..150 {
        fixture.take(&format!("p{n}@evil.test"), &format!("Message-ID: <p{n}@x>\r\n"), "Hello").await.unwrap();
    }
    assert_eq!(fixture.replies().len(), 99);
}

#[tokio::test]
async fn a_flood_ends_in_silence() {
    let fixture = IntakeFixture::new(|config| (config.hourly_limit, config.reply_all) = (2, true));
    let take = async |from: &str, n: usize, thread: &str| {
        let lines =
            format!("Message-ID: <{n}@x>\r\nReferences: <{thread}@x>\r\nCc: ann@example.org, bob@example.org\r\n");
        fixture.take(from, &lines, "Hello").await.unwrap()
    };
    for (from, n, thread, expected, replies) in [
        ("ann@example.org", 1, "a", IntakeOutcome::Accepted, 0),
        ("ann@example.org", 2, "b", IntakeOutcome::Accepted, 0),
        // The limit of the sender.
        ("ann@example.org", 3, "c", IntakeOutcome::Skipped, 1),
        ("ann@example.org", 4, "d", IntakeOutcome::Skipped, 0),
        // The limit does not affect other senders until the thread reaches its own.
        ("bob@example.org", 5, "a", IntakeOutcome::Accepted, 0),
        ("bob@example.org", 6, "a", IntakeOutcome::Skipped, 1),
    ] {
        assert_eq!(take(from, n, thread).await, expected, "{n}");
        assert_eq!(fixture.replies().len(), replies, "{n}");
    }
    assert_eq!(fixture.inbox.notices().len(), 2);
    later(3_601);
    assert_eq!(take("ann@example.org", 7, "e").await, IntakeOutcome::Accepted);
}

#[tokio::test]
async fn a_mail_that_fails_three_times_is_skipped() {
    let inbox = ScriptedInbox::new(|message| match message.content.contains("broken") {
        true => ScriptedAnswer::Refuse(Refusal::Invalid("cannot be kept".to_owned())),
        false => ScriptedAnswer::Hold,
    });
    let fixture = IntakeFixture::with_inbox(|_| {}, inbox);
    let lines = "Message-ID: <1@x>\r\nSubject: `Bad`\r\n";
    for _ in 0..2 {
        assert!(matches!(fixture.take("ann@example.org", lines, "broken").await, Err(Refusal::Invalid(_))));
    }
    assert_eq!((fixture.cursor().await, fixture.inbox.notices().len()), (String::new(), 0));
    assert_eq!(fixture.take("ann@example.org", lines, "broken").await, Ok(IntakeOutcome::Skipped));
    assert_eq!(fixture.cursor().await, "1:3");
    let notices = fixture.inbox.notices();
    assert!(
        notices[0].contains("`ann@example.org` with the subject `'Bad'`") && notices[0].contains("cannot be kept"),
        "{notices:?}"
    );
    assert_eq!(fixture.take("ann@example.org", "Message-ID: <2@x>\r\n", "good").await, Ok(IntakeOutcome::Accepted));
}

/// Returns the facts that the model gets besides the text.
fn about(message: &InboundMessage) -> Vec<String> {
    message.settings.about.clone()
}

#[tokio::test]
async fn attachments_are_saved_before_the_message_is_accepted() {
    const MIXED: &str = "Content-Type: multipart/mixed; boundary=b\r\n";
    const PARTS: &str = "--b\r\n\r\nSee there\r\n--b\r\nContent-Type: text/csv\r\nContent-Disposition: attachment; \
                         filename=\"../a.csv\"\r\n\r\n1,2\r\n--b--";
    let fixture = IntakeFixture::new(|_| {});
    let in_the_way = fixture.workspace.path().join("mail");
    std::fs::write(&in_the_way, "").unwrap();
    let lines = format!("Message-ID: <1@x>\r\nSubject: Table\r\n{MIXED}");
    for _ in 0..4 {
        assert!(matches!(fixture.take("ann@example.org", &lines, PARTS).await, Err(Refusal::Store { .. })));
    }
    assert!(fixture.inbox.skipped().is_empty(), "that counts as no failure of the mail");
    std::fs::remove_file(&in_the_way).unwrap();
    let taken = fixture.take("ann@example.org", &lines, PARTS).await;
    assert_eq!(taken, Ok(IntakeOutcome::Accepted), "{:?}", fixture.inbox.skipped());
    let message = &fixture.inbox.accepted()[0];
    let [file] = &message.attachments[..] else { panic!("{:?}", message.attachments) };
    assert_eq!(std::fs::read_to_string(fixture.workspace.path().join(&file.path)).unwrap().trim(), "1,2");
    assert_eq!((message.content.as_str(), about(message)[1].as_str()), ("See there", "Subject: Table"));
}

#[tokio::test]
async fn a_temporary_authentication_failure_is_retried_for_a_limited_time() {
    let verifying = |config: &mut EmailConfig| config.trust = TrustMethod::Verify;
    let mut fixture = IntakeFixture::new(verifying);
    let mut config = EmailConfig { allow_from: AllowList::new(["*"]), ..EmailConfig::default() };
    verifying(&mut config);
    fixture.intake = fixture.intake.with(with_failing_dns(&config).await, clock);
    let lines = "Message-ID: <1@x>\r\n";
    for _ in 0..4 {
        assert!(matches!(fixture.take("ann@example.org", lines, "Hello").await, Err(Refusal::Store { .. })));
    }
    assert_eq!((fixture.cursor().await, fixture.inbox.notices().len()), (String::new(), 0));
    later(16 * 60);
    assert_eq!(fixture.take("ann@example.org", lines, "Hello").await, Ok(IntakeOutcome::Skipped));
    assert!(fixture.inbox.notices()[0].contains("ann@example.org") && fixture.inbox.accepted().is_empty());
}

#[tokio::test]
async fn a_temporary_refusal_does_not_count_as_a_failure() {
    let retry_after = std::time::Duration::from_secs(1);
    let full = Refusal::InboxFull { waiting: 9, retry_after };
    let refusal = full.clone();
    let fixture =
        IntakeFixture::with_inbox(|_| {}, ScriptedInbox::new(move |_| ScriptedAnswer::Refuse(refusal.clone())));
    for _ in 0..5 {
        assert_eq!(fixture.take("ann@example.org", "Message-ID: <1@x>\r\n", "Hello").await, Err(full.clone()));
    }
    assert!(fixture.inbox.notices().is_empty() && fixture.inbox.skipped().is_empty());
}

#[tokio::test]
async fn an_oversized_mail_is_refused_to_an_authenticated_sender() {
    let header = proven("example.org") + "From: ann@example.org\r\nSubject: Big\r\nMessage-ID: <1@x>\r\n\r\n";
    let large = || FetchedContent::TooLarge { size: 50_000_000, header: header.as_bytes().to_vec() };
    let another = FetchedContent::TooLarge { size: 50_000_000, header: header.replace("<1@x>", "<2@x>").into_bytes() };
    let fixture = IntakeFixture::new(|config| config.hourly_limit = 1);
    for replies in [1, 0] {
        assert_eq!(fixture.offer(large()).await, Ok(IntakeOutcome::Skipped));
        assert_eq!(fixture.replies().len(), replies);
    }
    assert!(fixture.inbox.notices().is_empty());
    fixture.offer(another).await.unwrap();
    assert!(fixture.replies()[0].contains("more mails than the 1"), "these are counted, too");
    for trust in [TrustMethod::Verify, TrustMethod::None] {
        let fixture = IntakeFixture::new(|config| config.trust = trust);
        assert_eq!(fixture.offer(large()).await, Ok(IntakeOutcome::Skipped));
        let notices = fixture.inbox.notices();
        assert!(
            fixture.replies().is_empty() && notices[0].contains("50.0 MB") && notices[0].contains("35.0 MB"),
            "{notices:?}"
        );
    }
}

#[tokio::test]
async fn an_oversized_mail_of_an_unsubscribed_sender_gets_no_answer() {
    let fixture = IntakeFixture::new(|_| {});
    fixture.take("ann@example.org", "Message-ID: <1@x>\r\nSubject: unsubscribe\r\n", "").await.unwrap();
    assert_eq!(fixture.replies().len(), 1);
    let header = proven("example.org") + "From: ann@example.org\r\nMessage-ID: <2@x>\r\n\r\n";
    let large = FetchedContent::TooLarge { size: 50_000_000, header: header.into_bytes() };
    assert_eq!(fixture.offer(large).await, Ok(IntakeOutcome::Skipped));
    assert!(fixture.replies().is_empty() && fixture.inbox.notices().is_empty());
}

#[tokio::test]
async fn a_slash_command_is_the_first_line() {
    let fixture = IntakeFixture::new(|_| {});
    fixture
        .take("ann@example.org", "Message-ID: <1@x>\r\nSubject: Lunch\r\n", "/status now\r\n\r\nBest, Ann")
        .await
        .unwrap();
    assert_eq!(fixture.inbox.accepted()[0].content, "/status now\n\nBest, Ann");
}
