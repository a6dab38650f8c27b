//! Checks that the test servers themselves work as intended.

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::support::deadline;
use crate::support::mail::{ASSISTANT, Dovecot, Draft, PASSWORD, Postfix, Proxy, Smtp, SmtpAnswer};
use crate::support::signing::base64;

/// A client that sends lines and reads until an expected line.
struct Lines(BufReader<TcpStream>);

impl Lines {
    async fn connect(port: u16) -> Self {
        Self(BufReader::new(TcpStream::connect(("127.0.0.1", port)).await.unwrap()))
    }

    async fn say(&mut self, line: &str) -> &mut Self {
        self.0.write_all(format!("{line}\r\n").as_bytes()).await.unwrap();
        self
    }

    /// Returns the first line that contains `wanted`, or all text if the connection ends before.
    async fn hear(&mut self, wanted: &str) -> String {
        let mut heard = String::new();
        let found = async {
            loop {
                let mut line = String::new();
                if self.0.read_line(&mut line).await.unwrap_or(0) == 0 {
                    return format!("the end, after {heard}");
                }
                if line.contains(wanted) {
                    return line;
                }
                heard.push_str(&line);
            }
        };
        deadline(&format!("{wanted:?}"), found).await
    }

    /// Logs in and enters IDLE.
    async fn idle(port: u16) -> Self {
        let mut lines = Self::connect(port).await;
        lines.say(&format!("a LOGIN {ASSISTANT} {PASSWORD}")).await.hear("a OK").await;
        lines.say("b SELECT INBOX").await.hear("b OK").await;
        lines.say("c IDLE").await.hear("+ idling").await;
        lines
    }
}

/// A mail submitted to Postfix arrives in Dovecot's mailbox, with the envelope sender on top.
#[tokio::test(flavor = "multi_thread")]
async fn a_mail_travels_from_postfix_to_dovecot() {
    let Some(dovecot) = Dovecot::start().await else { return };
    let Some(postfix) = Postfix::start(&dovecot).await else { return };
    postfix.transfer("ada@example.test", &[ASSISTANT], &Draft::new("ada@example.test", "On foot", "slowly")).await;
    let mail = dovecot.wait_mail(ASSISTANT, "the mail", |mail| mail.subject() == "On foot").await;
    assert_eq!((mail.from().as_str(), mail.text().trim()), ("ada@example.test", "slowly"));
    assert_eq!(mail.headers("authentication-results"), ["mx.example.test; spf=pass smtp.mailfrom=ada@example.test"]);
    let raw = String::from_utf8_lossy(&mail.raw).into_owned();
    let received = raw.find("with ESMTP id").expect("Postfix's own Received");
    assert!(raw.find("Authentication-Results").is_some_and(|at| at < received), "{raw}");
    let mut lines = Lines::connect(postfix.submission_port()).await;
    let _ = lines.hear("220").await;
    lines.say("EHLO x").await.hear("250-STARTTLS").await;
    assert!(lines.hear("250 ").await.starts_with("250 "));
    assert!(lines.say("MAIL FROM:<x@example.test>").await.hear("530").await.starts_with("530"), "not without TLS");
}

/// A delivered mail wakes an idling client. A kick, a stop and a new UIDVALIDITY are observable.
#[tokio::test(flavor = "multi_thread")]
async fn idle_and_mailbox_changes_are_observable() {
    let Some(mut dovecot) = Dovecot::start().await else { return };
    let mut lines = Lines::idle(dovecot.imap_port()).await;
    let draft = Draft::new("ada@example.test", "one", "1").attach("a.bin", "application/octet-stream", &[0, 255, 7]);
    dovecot.deliver(ASSISTANT, &draft);
    assert!(lines.hear("EXISTS").await.starts_with("* 1 EXISTS"));
    let mails = dovecot.mails(ASSISTANT, "INBOX");
    assert_eq!((mails[0].is_seen(), mails[0].attachments()), (false, vec![("a.bin".to_owned(), vec![0, 255, 7])]));
    assert_eq!(mails[0].headers("authentication-results"), ["mx.example.test; dmarc=pass header.from=example.test"]);
    lines.say("DONE").await.hear("c OK").await;
    lines.say("d STORE 1 +FLAGS (\\Seen)").await.hear("d OK").await;
    dovecot.wait_seen(ASSISTANT, "INBOX", 1).await;
    lines.say("e IDLE").await.hear("+ idling").await;
    dovecot.kick(ASSISTANT);
    assert!(lines.hear("nothing").await.starts_with("the end"));
    dovecot.set_uidvalidity(ASSISTANT, "INBOX", 4_711);
    assert_eq!(dovecot.status(ASSISTANT, "INBOX", "uidvalidity"), "4711");
    let mut lines = Lines::idle(dovecot.imap_port()).await;
    dovecot.down().await;
    assert!(lines.hear("nothing").await.starts_with("the end"));
    dovecot.deliver(ASSISTANT, &Draft::new("ada@example.test", "two", "2"));
    dovecot.up().await;
    assert_eq!(dovecot.status(ASSISTANT, "INBOX", "messages"), "2");
    let reply = Draft::reply("ada@example.test", &mails[0], "again");
    assert_eq!([reply.get("subject"), reply.get("references")], ["Re: one", draft.message_id()]);
}

/// Data sent through a frozen connection does not arrive, and nothing closes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_proxy_forwards_nothing_and_stays_open() {
    let smtp = Smtp::start().await;
    let proxy = Proxy::start(smtp.port()).await;
    let mut lines = Lines::connect(proxy.port()).await;
    assert!(lines.hear("220").await.starts_with("220"));
    proxy.freeze();
    lines.say("NOOP").await;
    let mut later = Lines::connect(proxy.port()).await;
    assert!(later.hear("220").await.starts_with("220"));
    assert!(later.say("NOOP").await.hear("250").await.starts_with("250"));
    let mut byte = String::new();
    let silence = lines.0.read_line(&mut byte);
    assert!(tokio::time::timeout(std::time::Duration::from_millis(50), silence).await.is_err(), "it spoke: {byte}");
    assert_eq!(proxy.connections(), 2);
}

/// The scripted server follows its script and records what it received.
#[tokio::test(flavor = "multi_thread")]
async fn the_scripted_smtp_server_follows_its_script() {
    let smtp = Smtp::start().await;
    smtp.then([SmtpAnswer::Recipient("450 4.2.0 later"), SmtpAnswer::Data("550 5.7.1 no"), SmtpAnswer::Drop]);
    let mut lines = Lines::connect(smtp.port()).await;
    lines.say("EHLO x").await.hear("AUTH").await;
    let login = |password: &str| format!("AUTH PLAIN {}", base64(format!("\0{ASSISTANT}\0{password}").as_bytes()));
    for (password, answer) in [("wrong", "535"), (PASSWORD, "235")] {
        assert!(lines.say(&login(password)).await.hear(answer).await.starts_with(answer));
    }
    for (recipient, end) in [("450", ""), ("250", "550"), ("250", "the end"), ("250", "250")] {
        if recipient == "250" && end == "250" {
            lines = Lines::connect(smtp.port()).await;
        }
        lines.say("MAIL FROM:<a@example.test>").await.hear("250 2.1.0").await;
        let answer = lines.say("RCPT TO:<b@example.test>").await.hear("2.").await;
        assert!(answer.starts_with(recipient), "{answer}");
        if recipient == "250" {
            lines.say("DATA").await.hear("354").await;
            let answer = lines.say("Subject: x\r\n\r\n..dotted\r\n.").await.hear("0 ").await;
            assert!(answer.starts_with(end), "{answer}");
        }
    }
    let taken = smtp.wait_taken(3).await;
    let how: Vec<_> = taken.iter().map(|taken| taken.how).collect();
    assert_eq!((how, smtp.asked()), (vec![SmtpAnswer::Data("550 5.7.1 no"), SmtpAnswer::Drop, SmtpAnswer::Well], 4));
    assert_eq!((taken[2].mail.text().trim(), taken[2].to.as_slice()), (".dotted", &["b@example.test".to_owned()][..]));
}
