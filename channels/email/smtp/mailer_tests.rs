//! Tests of the outcome of a mail for each behaviour of its server.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::NamedTempFile;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::compose_tests::{answering, message};
use super::connect::SmtpTimeouts;
use super::mailer::Mailer;
use super::pool::RecipientPolicy;
use super::script_tests::SmtpReaction::{Drop, Hang, Reply};
use super::script_tests::{ScriptedServer, SmtpEncryption, SmtpScript, authority};
use crate::channel::{Channel, Receipt, SendError};
use crate::conformance::{self, ScriptedAnswer, ScriptedInbox};
use crate::email::account::Account;
use crate::email::channel::{EmailChannel, EmailSetup};
use crate::email::config::{EmailConfig, Tls};
use crate::email::texts::MailTexts;
use crate::finding::Severity;
use crate::message::{Attachment, OutboundMessage};
use crate::outgoing::OutgoingFiles;
use crate::settings::Secret;
use crate::text::Language;

const ROOT: &str = "<root@example.org>";
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(1);
const PATIENT: SmtpTimeouts = SmtpTimeouts { connect: LONG, command: LONG, login: LONG, reply: LONG, idle: LONG };

fn config(server: &ScriptedServer, change: impl FnOnce(&mut EmailConfig)) -> EmailConfig {
    let mut config = EmailConfig {
        address: "assistant@example.net".to_owned(),
        imap_host: "localhost".to_owned(),
        imap_password: Some(Secret::new("canary")),
        smtp_host: "127.0.0.1".to_owned(),
        smtp_port: Some(server.port),
        smtp_tls: Tls::None,
        ..EmailConfig::default()
    };
    change(&mut config);
    config
}

fn mailer(server: &ScriptedServer, limits: SmtpTimeouts, change: impl FnOnce(&mut EmailConfig)) -> Mailer {
    let config = config(server, change);
    let account = Arc::new(Account::new(&config).unwrap());
    // The path gives the size of the file.
    let load = |file: &Attachment, limit: u64| -> io::Result<Vec<u8>> {
        Ok(vec![b'x'; file.path.parse::<usize>().unwrap().min(usize::try_from(limit).unwrap())])
    };
    Mailer::with_parts(account, &config, MailTexts::of(Language::En), Arc::new(load), limits).unwrap()
}

async fn plain(scripts: Vec<SmtpScript>) -> ScriptedServer {
    ScriptedServer::start(scripts, SmtpEncryption::None).await
}

fn reply(number: u128) -> OutboundMessage {
    OutboundMessage { id: Uuid::from_u128(number), ..message(ROOT, "At noon.") }
}

fn with_file(size: u64) -> OutboundMessage {
    let media_type = "application/octet-stream".to_owned();
    let file =
        Attachment { name: "big.bin".to_owned(), path: size.to_string(), media_type, size, digest: String::new() };
    OutboundMessage { attachments: vec![file], ..reply(1) }
}

async fn send(mailer: &Mailer, message: &OutboundMessage) -> Result<Receipt, SendError> {
    mailer.send(message, Some(answering()), RecipientPolicy::All).await.map(|sent| sent.receipt)
}

fn outcome_name<T>(done: &Result<T, SendError>) -> &'static str {
    match done {
        Ok(_) => "sent",
        Err(SendError::Retry { .. }) => "retry",
        Err(SendError::Permanent { .. }) => "permanent",
        Err(SendError::Unknown { .. }) => "unknown",
        Err(SendError::RecipientAbsent) => "away",
        Err(SendError::Held { .. }) => "held",
    }
}

#[tokio::test]
async fn the_server_reply_decides_the_outcome_of_a_mail() {
    let hasty = SmtpTimeouts { command: SHORT, login: SHORT, ..PATIENT };
    let no_reply = SmtpTimeouts { reply: SHORT, ..PATIENT };
    let table: &[(&str, _, SmtpTimeouts, &str, &str)] = &[
        ("nothing", Reply(""), PATIENT, "sent", ""),
        ("greeting", Reply("554 no service for you"), PATIENT, "retry", "554 no service for you"),
        ("greeting", Reply("421 busy"), PATIENT, "retry", "421 busy"),
        ("greeting", Drop, PATIENT, "retry", "no session"),
        ("greeting", Hang, hasty, "retry", "nothing came for 1 s"),
        ("greeting", Reply("HTTP/1.1 400 Bad Request"), PATIENT, "retry", "no session"),
        ("AUTH", Reply("535 5.7.8 wrong password"), PATIENT, "held", "login refused: 535 5.7.8 wrong password"),
        (
            "AUTH",
            Reply("500 unknown: AUTH PLAIN AGFzc2lzdGFudEBleGFtcGxlLm5ldABjYW5hcnk="),
            PATIENT,
            "held",
            "login refused: 500 unknown: AUTH PLAIN (hidden)",
        ),
        ("AUTH", Hang, hasty, "held", "the server does not answer the login: nothing came for 1 s"),
        ("AUTH", Reply("454 4.7.0 later"), PATIENT, "retry", "454 4.7.0 later"),
        ("MAIL", Reply("451 later"), PATIENT, "retry", "sender refused: 451 later"),
        ("MAIL", Reply("553 5.7.1 not yours"), PATIENT, "permanent", "sender refused: 553 5.7.1 not yours"),
        ("MAIL", Reply("530 5.7.0 log in first"), PATIENT, "retry", "530 5.7.0 log in first"),
        ("MAIL", Drop, PATIENT, "retry", "sender refused"),
        ("RCPT", Reply("450 4.2.0 greylisted"), PATIENT, "retry", "recipient refused: 450 4.2.0 greylisted"),
        ("RCPT", Reply("452 4.2.2 full"), PATIENT, "retry", "452"),
        ("RCPT", Reply("550-5.1.1 no such\r\n550 5.1.1 user"), PATIENT, "permanent", "550 5.1.1 no such user"),
        ("RCPT", Hang, hasty, "retry", "nothing came for 1 s"),
        ("DATA", Reply("421 leaving"), PATIENT, "retry", "421 leaving"),
        ("DATA", Reply("554 5.5.1 no valid recipients"), PATIENT, "permanent", "554"),
        ("DATA", Reply("250 what"), PATIENT, "retry", "250 in reply to DATA"),
        ("DATA", Drop, PATIENT, "retry", "mail refused"),
        ("end", Reply("451 4.3.0 scanner down"), PATIENT, "retry", "mail refused: 451 4.3.0 scanner down"),
        ("end", Reply("550 5.7.1 spam"), PATIENT, "permanent", "mail refused: 550 5.7.1 spam"),
        ("end", Drop, PATIENT, "unknown", "the connection was closed"),
        ("end", Hang, no_reply, "unknown", "nothing came for 1 s"),
    ];
    for (at, act, limits, expected, words) in table {
        let server = plain(vec![vec![(*at, *act)]]).await;
        let mailer = mailer(&server, *limits, |_| {});
        let done = send(&mailer, &reply(1)).await;
        assert_eq!(outcome_name(&done), *expected, "{at} {act:?}: {done:?}");
        let error = done.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(
            error.contains(words) && !error.contains("canary") && error.lines().count() < 2,
            "{at} {act:?}: {error}"
        );
    }
    // No server listens there.
    let gone = plain(Vec::new()).await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mailer = mailer(&gone, PATIENT, |config| config.smtp_port = Some(closed));
    let done = send(&mailer, &reply(1)).await;
    assert_eq!(outcome_name(&done), "retry", "{done:?}");
    assert!(done.unwrap_err().to_string().starts_with(&format!("SMTP server 127.0.0.1:{closed}: cannot connect")));
}

#[tokio::test]
async fn a_mail_that_was_cut_off_in_the_middle_is_surely_not_delivered() {
    // The mail is larger than all socket buffers, so part of it cannot have been written.
    let server = plain(vec![vec![("EHLO", Reply("250-scripted\r\n250 AUTH PLAIN")), ("body", Drop)]]).await;
    let done = send(&mailer(&server, PATIENT, |_| {}), &with_file(15_000_000)).await;
    assert_eq!(outcome_name(&done), "retry", "{done:?}");
}

#[tokio::test]
async fn a_mail_arrives_as_composed_and_a_repetition_is_identical() {
    let server = plain(vec![vec![("end", Drop)], vec![]]).await;
    let mailer = mailer(&server, PATIENT, |_| {});
    let message = OutboundMessage { content: ".\n..\nFrom a dot.".to_owned(), ..reply(7) };
    assert_eq!(outcome_name(&send(&mailer, &message).await), "unknown");
    let receipt = send(&mailer, &message).await.unwrap();
    let (first, second) = server.inspect(|seen| (seen.mails[0].clone(), seen.mails[1].clone()));
    assert_eq!(first, second);
    assert!(second.contains(&format!("Message-ID: {}\r\n", receipt.provider_id.unwrap())), "{second}");
    assert!(second.contains("\r\n.\r\n..\r\n From a dot.\r\n"), "{second}");
    server.inspect(|seen| {
        assert!(seen.lines.iter().any(|(_, line)| line.starts_with("MAIL FROM:<assistant@example.net> SIZE=")));
        assert!(seen.lines.iter().any(|(_, line)| line == "RCPT TO:<ann@example.org>"));
        assert!(!seen.lines.iter().any(|(_, line)| line.contains("SMTPUTF8")));
    });
}

#[tokio::test]
async fn connections_are_reused_and_a_dead_one_loses_no_mail() {
    for (second, connections) in
        [(vec![], 1), (vec![("NOOP", Drop)], 2), (vec![("NOOP", Reply("421 idle for too long"))], 2)]
    {
        let server = plain(vec![second, vec![]]).await;
        let mailer = mailer(&server, PATIENT, |_| {});
        for number in 1..=2 {
            assert_eq!(outcome_name(&send(&mailer, &reply(number)).await), "sent");
        }
        let last = server.inspect(|seen| seen.lines.last().unwrap().0);
        assert_eq!(last + 1, connections);
    }
    // The server closes the connection just after the check.
    let server = ScriptedServer::start(vec![vec![]], SmtpEncryption::None).await;
    let mailer = mailer(&server, SmtpTimeouts { idle: SHORT, ..PATIENT }, |_| {});
    assert_eq!(outcome_name(&send(&mailer, &reply(1)).await), "sent");
    wait_for(|| server.has("QUIT")).await;
}

async fn wait_for(state: impl Fn() -> bool) {
    let waiting = async {
        while !state() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, waiting).await.unwrap();
}

#[tokio::test]
async fn login_uses_an_offered_mechanism_and_renews_a_refused_token() {
    let server = plain(vec![vec![]]).await;
    assert_eq!(outcome_name(&send(&mailer(&server, PATIENT, |_| {}), &reply(1)).await), "sent");
    // "\0assistant@example.net\0canary"
    assert!(server.has("AUTH PLAIN AGFzc2lzdGFudEBleGFtcGxlLm5ldABjYW5hcnk="));

    let ehlo = Reply("250-scripted\r\n250 AUTH LOGIN");
    let server = plain(vec![vec![
        ("EHLO", ehlo),
        ("AUTH LOGIN", Reply("334 VXNlcm5hbWU6")),
        ("YXNz", Reply("334 UGFzc3dvcmQ6")),
        ("Y2Fu", Reply("235 in")),
    ]])
    .await;
    assert_eq!(outcome_name(&send(&mailer(&server, PATIENT, |_| {}), &reply(1)).await), "sent");

    let server = plain(vec![vec![("EHLO", Reply("250 scripted"))]]).await;
    let done = send(&mailer(&server, PATIENT, |_| {}), &reply(1)).await;
    assert!(done.unwrap_err().to_string().contains("does not offer the login PLAIN or LOGIN"));

    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    let command = format!("echo x >> {0}; echo token$(wc -l < {0})", count.display());
    let refusal = vec![("AUTH XOAUTH2", Reply("334 eyJzdGF0dXMiOiI0MDAifQ==")), ("", Reply("535 5.7.8 token expired"))];
    for (scripts, expected, tokens) in [(vec![refusal.clone(), vec![]], "sent", 2), (vec![refusal], "held", 4)] {
        let refusing: Vec<SmtpScript> =
            scripts.into_iter().map(|script| if script.is_empty() { script } else { with_ehlo(script) }).collect();
        let server = plain(refusing).await;
        let command = vec!["sh".to_owned(), "-c".to_owned(), command.clone()];
        let mailer = mailer(&server, PATIENT, |config| config.token_command = Some(command));
        let done = send(&mailer, &reply(1)).await;
        assert_eq!(outcome_name(&done), expected, "{done:?}");
        if let Err(error) = done {
            assert!(error.to_string().contains("login refused: 535 5.7.8 token expired"), "{error}");
        }
        assert_eq!(std::fs::read_to_string(&count).unwrap().lines().count(), tokens);
    }
}

/// Adds entries for the greeting and EHLO before the script, whose last entry fits any command.
fn with_ehlo(mut script: SmtpScript) -> SmtpScript {
    script.insert(0, ("EHLO", Reply("250-scripted\r\n250 AUTH XOAUTH2")));
    script.insert(0, ("greeting", Reply("220 scripted")));
    script
}

#[tokio::test]
async fn no_command_is_sent_in_plain_text_if_tls_is_required() {
    let (_, acceptor) = authority("localhost");
    let starttls = |config: &mut EmailConfig| config.smtp_tls = Tls::Starttls;
    let server = plain(vec![vec![]]).await;
    let done = send(&mailer(&server, PATIENT, starttls), &reply(1)).await;
    assert_eq!(outcome_name(&done), "retry");
    assert!(done.unwrap_err().to_string().contains("offers no STARTTLS"));
    assert!(!server.has("AUTH") && !server.has("MAIL"));

    // An attacker adds text after the reply, for the client to read it as the server's within TLS.
    for words in [Reply("220 go on\r\n250 AUTH PLAIN"), Reply("454 not now")] {
        let server =
            ScriptedServer::start(vec![vec![("STARTTLS", words)]], SmtpEncryption::Starttls(acceptor.clone())).await;
        let done = send(&mailer(&server, PATIENT, starttls), &reply(1)).await;
        assert_eq!(outcome_name(&done), "retry");
        assert!(done.unwrap_err().to_string().contains("(TLS)"));
        assert!(!server.has("AUTH"));
    }
}

#[tokio::test]
async fn only_a_server_with_the_right_certificate_gets_the_mail() {
    let (own, acceptor) = authority("localhost");
    let (_, stranger) = authority("localhost");
    let (other, misnamed) = authority("mail.example.org");
    let ca_file = |pem: &str| {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(pem.as_bytes()).unwrap();
        file
    };
    for (pem, acceptor, is_right) in
        [(own.as_str(), acceptor, true), (own.as_str(), stranger, false), (other.as_str(), misnamed, false)]
    {
        let file = ca_file(pem);
        let encryptions = [
            (Tls::Implicit, SmtpEncryption::Implicit(acceptor.clone())),
            (Tls::Starttls, SmtpEncryption::Starttls(acceptor)),
        ];
        for (tls, encryption) in encryptions {
            let server = ScriptedServer::start(vec![vec![]], encryption).await;
            let mailer = mailer(&server, PATIENT, |config| {
                config.smtp_host = "localhost".to_owned();
                config.smtp_tls = tls;
                config.ca_file = Some(file.path().to_owned());
            });
            let done = send(&mailer, &reply(1)).await;
            assert_eq!(outcome_name(&done), if is_right { "sent" } else { "retry" }, "{done:?}");
            assert_eq!((server.has("AUTH"), server.has("MAIL")), (is_right, is_right));
            if let Err(error) = done {
                assert!(
                    error.to_string().contains("no private connection (TLS): the server's certificate is"),
                    "{error}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_mail_is_sent_to_the_accepted_recipients() {
    let full = Reply("452 4.2.2 mailbox full");
    let gone = Reply("550 5.1.1 no such user");
    // The outcome, and the outcome of the last attempt.
    for (script, expected, at_last, left_out) in [
        (vec![], "sent", "sent", 0),
        (vec![("RCPT TO:<bob", gone)], "sent", "sent", 1),
        // Greylisting: the mail is sent only once, so all recipients wait.
        (vec![("RCPT TO:<bob", full)], "retry", "sent", 1),
        (vec![("RCPT TO:<ann", gone)], "permanent", "permanent", 0),
        (vec![("RCPT TO:<ann", full)], "retry", "retry", 0),
        (vec![("RCPT TO:<bob", Reply("421 enough"))], "retry", "retry", 0),
    ] {
        for (which, expected) in [(RecipientPolicy::All, expected), (RecipientPolicy::AcceptedOnly, at_last)] {
            let server = plain(vec![script.clone()]).await;
            let mailer = mailer(&server, PATIENT, |config| config.reply_all = true);
            let done = mailer.send(&reply(1), Some(answering()), which).await;
            assert_eq!(outcome_name(&done), expected, "{script:?} {which:?}");
            assert_eq!(server.inspect(|seen| seen.mails.len()), usize::from(expected == "sent"));
            let refused = done.map(|sent| sent.refused).unwrap_or_default();
            assert_eq!(refused.len(), if expected == "sent" { left_out } else { 0 }, "{refused:?}");
            assert!(refused.iter().all(|refused| refused.starts_with("bob@example.org: ")), "{refused:?}");
        }
    }
}

#[tokio::test]
async fn the_final_attempt_reports_rejected_recipients_to_the_owner() {
    let full = Reply("452 4.2.2 mailbox `full`");
    let server = plain(vec![vec![("RCPT TO:<bob", full)]]).await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = config(&server, |config| {
        config.reply_all = true;
        (config.imap_host, config.imap_port, config.imap_tls) = ("127.0.0.1".to_owned(), Some(closed), Tls::None);
    });
    let workspace = tempfile::tempdir().unwrap();
    let setup = EmailSetup {
        workspace: workspace.path(),
        outgoing: OutgoingFiles::of_home(workspace.path()),
        lists: crate::trust::TrustLists::default(),
        language: Language::En,
    };
    let channel = EmailChannel::new(config, setup).unwrap();
    let inbox = ScriptedInbox::new(|_| ScriptedAnswer::Hold);
    let (context, _) = conformance::started(&inbox);
    // No mailbox can be read, but from here on the channel knows the inbox.
    channel.start(context).await.unwrap_err();
    let mut message = reply(1);
    answering().put(&mut message.metadata);
    assert_eq!(outcome_name(&channel.send(&message).await), "retry");
    assert_eq!((server.inspect(|seen| seen.mails.len()), inbox.notices().len()), (0, 0));
    assert_eq!(outcome_name(&channel.send_finally(&message).await), "sent");
    let notices = inbox.notices();
    let expected = [message.id.to_string(), "`bob@example.org: ".to_owned(), "452 4.2.2 mailbox 'full'`".to_owned()];
    assert!(notices.len() == 1 && expected.iter().all(|words| notices[0].contains(words)), "{notices:?}");
    assert_eq!(server.inspect(|seen| seen.mails.len()), 1);
}

#[tokio::test]
async fn files_too_large_for_the_server_are_left_out_and_the_text_is_sent() {
    let message = with_file(90_000);
    let file_refused = vec![("EHLO", Reply("250-scripted\r\n250 AUTH PLAIN")), ("end", Reply("552 5.3.4 too large"))];
    for scripts in [vec![vec![]], vec![file_refused, vec![]]] {
        let server = plain(scripts).await;
        assert_eq!(outcome_name(&send(&mailer(&server, PATIENT, |_| {}), &message).await), "sent");
        let mail = server.inspect(|seen| seen.mails.last().unwrap().clone());
        assert!(mail.contains("[big.bin is not attached: with 90.0 KB it is too large for a mail.]"), "{mail}");
        assert!(mail.contains("At noon."));
    }
}

#[tokio::test]
async fn a_non_ascii_address_requires_smtputf8() {
    for (script, expected) in [(vec![], "sent"), (vec![("EHLO", Reply("250-scripted\r\n250 AUTH PLAIN"))], "permanent")]
    {
        let server = plain(vec![script]).await;
        let message = message("用户@例子.测试", "Hello");
        let done = mailer(&server, PATIENT, |_| {}).send(&message, None, RecipientPolicy::All).await;
        assert_eq!(outcome_name(&done), expected, "{done:?}");
        let is_asked =
            server.inspect(|seen| seen.lines.iter().any(|(_, line)| line.contains(" SMTPUTF8 BODY=8BITMIME")));
        assert_eq!(is_asked, expected == "sent");
    }
}

#[tokio::test]
async fn sent_mails_are_copied_and_notices_are_not_sent() {
    let server = plain(vec![vec![("RCPT TO:<eve", Reply("550 no"))]]).await;
    let copies = Arc::new(Mutex::new(Vec::<Vec<u8>>::new()));
    let stored = Arc::clone(&copies);
    let mailer = mailer(&server, PATIENT, |_| {}).storing_copies(Arc::new(move |mail| {
        stored.lock().unwrap().push(mail);
        Box::pin(async { Err("no such folder".to_owned()) })
    }));
    assert_eq!(outcome_name(&send(&mailer, &reply(1)).await), "sent");
    wait_for(|| !copies.lock().unwrap().is_empty()).await;
    assert_eq!(copies.lock().unwrap()[0], server.inspect(|seen| seen.mails[0].clone().into_bytes()));

    let mut notice = reply(2);
    notice.context.notice = Some("waiting".to_owned());
    assert_eq!(send(&mailer, &notice).await, Ok(Receipt::default()));
    assert_eq!(
        outcome_name(&mailer.send(&message("eve@example.org", "x"), None, RecipientPolicy::All).await),
        "permanent"
    );
    assert_eq!((server.inspect(|seen| seen.mails.len()), copies.lock().unwrap().len()), (1, 1));
}

/// A sender may wait for the owner's approval for a day, and must know it.
#[tokio::test]
async fn the_notice_of_an_approval_is_a_mail() {
    let server = plain(vec![vec![]]).await;
    let mut notice = reply(1);
    notice.context.notice = Some("approval".to_owned());
    let sent = send(&mailer(&server, PATIENT, |_| {}), &notice).await;
    assert!(sent.is_ok_and(|receipt| receipt.provider_id.is_some()));
    assert!(server.inspect(|seen| seen.mails.len() == 1 && seen.mails[0].contains("At noon.")));
}

#[tokio::test]
async fn the_copies_of_many_mails_wait_for_each_other() {
    const MAILS: usize = 12;
    let server = plain(vec![vec![]]).await;
    // Copies are stored only as far as the test permits.
    let copies = Arc::new((Semaphore::new(0), AtomicUsize::new(0)));
    let held = Arc::clone(&copies);
    let mailer = mailer(&server, PATIENT, |_| {}).storing_copies(Arc::new(move |_| {
        let held = Arc::clone(&held);
        Box::pin(async move {
            held.0.acquire().await.unwrap().forget();
            held.1.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
    }));
    for number in 0..MAILS {
        assert_eq!(outcome_name(&send(&mailer, &reply(number as u128 + 1)).await), "sent");
    }
    copies.0.add_permits(MAILS);
    wait_for(|| copies.1.load(Ordering::SeqCst) == MAILS).await;
}

#[tokio::test]
async fn the_probe_reports_its_findings_and_sends_no_mail() {
    for (script, state, words) in [
        (
            vec![],
            Severity::Ok,
            "(not encrypted, on this machine), logged in as assistant@example.net; mails up to 0 MB",
        ),
        (vec![("AUTH", Reply("535 5.7.8 no"))], Severity::Fail, "login refused: 535 5.7.8 no"),
        (vec![("greeting", Reply("554 no"))], Severity::Fail, "no session: 554 no"),
    ] {
        let server = plain(vec![script]).await;
        let findings = mailer(&server, PATIENT, |_| {}).probe().await;
        assert_eq!((findings.len(), findings[0].name.as_str(), findings[0].state), (1, "smtp", state), "{findings:?}");
        assert!(findings[0].message.ends_with(words), "{findings:?}");
        assert_eq!(findings[0].mend.is_some(), state == Severity::Fail);
        assert!(!server.has("MAIL"));
    }
}
