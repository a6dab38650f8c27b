//! Tests that parse composed mails.

use std::io;

use mail_parser::{Message, MessageParser, MimeHeaders};
use uuid::Uuid;

use super::compose::{ComposedMail, MAX_MAIL, MailComposer};
use super::flowed::unflow;
use crate::email::mail::{ReplyContext, ReplyQuote};
use crate::email::message_id;
use crate::email::subject::reply_subject;
use crate::email::texts::MailTexts;
use crate::message::{Attachment, OutboundMessage};
use crate::text::Language;

const ROOT: &str = "<root@example.org>";

pub fn message(chat_id: &str, content: &str) -> OutboundMessage {
    OutboundMessage {
        id: Uuid::from_u128(0x0192_f0c1_2345_7abc_8def_0123_4567_89ab),
        created_at: "2026-11-20T10:00:00.123Z".parse().unwrap(),
        ..OutboundMessage::text("email", chat_id, content)
    }
}

pub fn answering() -> ReplyContext {
    ReplyContext {
        message_id: "<2@example.org>".to_owned(),
        references: vec![ROOT.to_owned(), "<1@example.org>".to_owned()],
        subject: "Re: Lunch?".to_owned(),
        to: vec!["Ann <ann@example.org>".to_owned()],
        cc: vec!["bob@example.org".to_owned(), "ASSISTANT@example.net".to_owned(), "Ann <ANN@example.org>".to_owned()],
        quote: None,
    }
}

fn composer() -> MailComposer {
    MailComposer::new("assistant@example.net", "Dào Yǒu", false, MailTexts::of(Language::En)).unwrap()
}

fn no_files(_: &Attachment, _: u64) -> io::Result<Vec<u8>> {
    Err(io::ErrorKind::NotFound.into())
}

fn made(message: &OutboundMessage, answering: Option<&ReplyContext>) -> ComposedMail {
    let mail = composer().compose(message, answering, &no_files, MAX_MAIL).unwrap();
    assert_well_formed(&mail.bytes);
    mail
}

fn parsed(mail: &ComposedMail) -> Message<'_> {
    MessageParser::default().parse(&mail.bytes).unwrap()
}

/// Asserts that a mail is ASCII with CRLF everywhere, no line over 998 octets, and no empty line within the header.
fn assert_well_formed(bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).unwrap();
    assert!(text.is_ascii());
    assert_eq!(text.matches('\n').count(), text.matches("\r\n").count());
    assert_eq!(text.matches('\r').count(), text.matches("\r\n").count());
    assert!(text.split("\r\n").all(|line| line.len() <= 998));
    assert!(text.ends_with("\r\n"));
}

fn header(mail: &ComposedMail, name: &str) -> Option<String> {
    let text = String::from_utf8(mail.bytes.clone()).unwrap();
    let head = text.split("\r\n\r\n").next().unwrap().replace("\r\n ", " ");
    let found: Vec<&str> = head.lines().filter_map(|line| line.strip_prefix(&format!("{name}: "))).collect();
    assert!(found.len() < 2, "{name} stands there {} times", found.len());
    found.first().map(|value| (*value).to_owned())
}

#[test]
fn a_reply_has_the_headers_of_its_thread() {
    let message = message(ROOT, "At **noon**.");
    let mail = made(&message, Some(&answering()));
    for (name, expected) in [
        ("Date", Some("Fri, 20 Nov 2026 10:00:00 +0000".to_owned())),
        ("From", Some("=?utf-8?b?RMOgbyBZx5J1?= <assistant@example.net>".to_owned())),
        ("To", Some("Ann <ann@example.org>".to_owned())),
        ("Cc", None),
        ("Subject", Some("Re: Lunch?".to_owned())),
        ("Message-ID", Some(message_id::message_id(message.id, Some(ROOT), "example.net"))),
        ("In-Reply-To", Some("<2@example.org>".to_owned())),
        ("References", Some(format!("{ROOT} <1@example.org> <2@example.org>"))),
        ("Auto-Submitted", Some("auto-replied".to_owned())),
        ("X-Auto-Response-Suppress", Some("All".to_owned())),
        ("List-Unsubscribe", Some("<mailto:assistant@example.net?subject=unsubscribe>".to_owned())),
        ("MIME-Version", Some("1.0".to_owned())),
    ] {
        assert_eq!(header(&mail, name), expected, "{name}");
    }
    let parsed = parsed(&mail);
    assert_eq!(parsed.body_text(0).unwrap().trim_end(), "At noon.");
    assert!(parsed.body_html(0).unwrap().contains("<p>At <strong>noon</strong>.</p>"));
    assert_eq!(parsed.parts.len(), 3);
    assert_eq!((mail.to.len(), mail.cc.len()), (1, 0));
    // Composing the message again gives the same mail.
    assert_eq!(made(&message, Some(&answering())).bytes, mail.bytes);
}

#[test]
fn a_mail_that_is_no_reply_begins_a_thread() {
    let mut message = message("Wáng <wang@example.org>", "# The *weekly* report\n\nAll is well.");
    let mail = made(&message, Some(&answering()));
    for (name, expected) in [
        ("Subject", Some("The weekly report".to_owned())),
        ("Message-ID", Some(message_id::message_id(message.id, None, "example.net"))),
        ("In-Reply-To", None),
        ("References", None),
        ("Auto-Submitted", Some("auto-generated".to_owned())),
    ] {
        assert_eq!(header(&mail, name), expected, "{name}");
    }
    assert_eq!(mail.to[0].as_ref() as &str, "wang@example.org");
    message.context.subject = Some("每周报告\r\nBcc: eve@example.org".to_owned());
    assert_eq!(parsed(&made(&message, None)).subject(), Some("每周报告 Bcc: eve@example.org"));
    message.context.subject = None;
    message.content = "***".to_owned();
    assert_eq!(parsed(&made(&message, None)).subject(), Some("A message"));
}

#[test]
fn cc_is_kept_only_if_configured_and_never_contains_our_address() {
    let composer = MailComposer::new("assistant@example.net", "", true, MailTexts::of(Language::Zh)).unwrap();
    let mail = composer.compose(&message(ROOT, "x"), Some(&answering()), &no_files, MAX_MAIL).unwrap();
    assert_eq!(header(&mail, "Cc").as_deref(), Some("bob@example.org"));
    assert_eq!(header(&mail, "From").as_deref(), Some("assistant@example.net"));
    let unsubscribe = "<mailto:assistant@example.net?subject=unsubscribe>";
    assert_eq!(header(&mail, "List-Unsubscribe").as_deref(), Some(unsubscribe));
}

#[test]
fn hostile_names_and_subjects_do_not_break_the_header() {
    for subject in [
        "会议".repeat(120),
        "a long subject of many words ".repeat(12),
        "x".repeat(600),
        "Grüße \u{1F600} aus München, ".repeat(10),
        "x\r\n\r\n<script>".to_owned(),
        "=?utf-8?b?".to_owned(),
        "tab\tand \u{0} nul \u{85} nel".to_owned(),
    ] {
        let name = format!("{} <ann@example.org>", subject.replace(['<', '>'], ""));
        let answering = ReplyContext { subject: subject.clone(), to: vec![name], ..answering() };
        let mail = made(&message(ROOT, "x"), Some(&answering));
        let parsed = parsed(&mail);
        let expected = reply_subject(&subject, "");
        assert_eq!(parsed.subject().unwrap(), expected);
        assert_eq!(parsed.to().unwrap().first().unwrap().address(), Some("ann@example.org"));
        assert_eq!(parsed.parts.len(), 3, "{subject}");
        assert_eq!(header(&mail, "Bcc"), None);
    }
    let long: Vec<String> = (0..100).map(|n| format!("<{n}.{}@example.org>", "x".repeat(60))).collect();
    let mail = made(&message(ROOT, "x"), Some(&ReplyContext { references: long.clone(), ..answering() }));
    let text = String::from_utf8(mail.bytes.clone()).unwrap();
    let head = text.split("\r\n\r\n").next().unwrap();
    assert!(head.split("\r\n").all(|line| line.len() <= 100), "{head}");
    let parsed = parsed(&mail);
    let references = parsed.references().as_text_list().unwrap().to_vec();
    assert_eq!((references.len(), references[0].as_ref()), (101, long[0].trim_matches(['<', '>'])));
}

#[test]
fn text_arrives_as_it_was_written() {
    for content in [
        "天地玄黄，宇宙洪荒。".repeat(60),
        "The quick brown fox jumps over the lazy dog. ".repeat(60),
        format!("see https://example.org/{} here", "x".repeat(1_500)),
        ".\n..\n. dots\n\nFrom here\n> not".replace("> not", "end"),
        "Grüße, \u{1F469}\u{200D}\u{1F680}!".to_owned(),
    ] {
        let mail = made(&message(ROOT, &content), Some(&answering()));
        let parsed = parsed(&mail);
        let text = unflow(&parsed.body_text(0).unwrap().replace("\r\n", "\n").replace('\n', "\r\n"));
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(&text), words(&content));
    }
    let endless = made(&message(ROOT, &"长长的一行。\n".repeat(80_000)), Some(&answering()));
    assert!(parsed(&endless).body_text(0).unwrap().contains("[The text was too long for a mail and ends here.]"));
    assert!(endless.bytes.len() < 8 << 20);
    let controls = made(&message(ROOT, "a\u{0}b\u{1b}[31mc\rd"), Some(&answering()));
    assert_eq!(parsed(&controls).body_text(0).unwrap().trim_end(), "ab[31mc\r\nd");
}

#[test]
fn the_answered_mail_is_quoted_briefly() {
    let quote = ReplyQuote {
        from: "Ann <ann@example.org>".to_owned(),
        date: "2026-11-20T09:30:00Z".to_owned(),
        text: "Lunch?\n<b>Today</b>".to_owned(),
    };
    let mail = made(&message(ROOT, "Yes."), Some(&ReplyContext { quote: Some(quote), ..answering() }));
    let parsed = parsed(&mail);
    let text = parsed.body_text(0).unwrap().replace("\r\n", "\n");
    let expected = "Yes.\n\nOn 2026-11-20 09:30 UTC, Ann <ann@example.org> wrote:\n> Lunch?\n> <b>Today</b>\n";
    assert_eq!(text.trim_end(), expected.trim_end());
    assert!(parsed.body_html(0).unwrap().contains(">Lunch?<br>\r\n&lt;b&gt;Today&lt;/b&gt;</blockquote>"));
}

#[test]
fn attachments_are_sent_and_missing_ones_are_named() {
    let file = |name: &str, path: &str, media_type: &str, size: u64| Attachment {
        name: name.to_owned(),
        path: path.to_owned(),
        media_type: media_type.to_owned(),
        size,
        digest: String::new(),
    };
    let mut message = message(ROOT, "Here.");
    message.attachments = vec![
        file("报告 2026.pdf", "a", "application/pdf", 6),
        file("../e\u{202E}vil\r\n.sh", "a", "message/rfc822", 6),
        file("lost.txt", "lost", "text/plain", 6),
        file("huge.bin", "a", "nonsense", 40_000_000),
        file("locked.bin", "locked", "nonsense; x=\"", 6),
    ];
    let load = |file: &Attachment, limit: u64| {
        assert!(limit > 1_000_000);
        match file.path.as_str() {
            "a" => Ok(b"\x00a\nb\r\n".to_vec()),
            "lost" => Err(io::ErrorKind::NotFound.into()),
            _ => Err(io::ErrorKind::PermissionDenied.into()),
        }
    };
    let mail = composer().compose(&message, Some(&answering()), &load, MAX_MAIL).unwrap();
    assert_well_formed(&mail.bytes);
    let parsed = parsed(&mail);
    let files: Vec<_> = parsed.attachments().collect();
    let names: Vec<_> = files.iter().map(|part| part.attachment_name().unwrap()).collect();
    assert_eq!(names, ["报告 2026.pdf", ".._evil .sh"]);
    assert!(files.iter().all(|part| part.contents() == b"\x00a\nb\r\n"));
    assert_eq!(files[0].content_type().unwrap().subtype(), Some("pdf"));
    assert_eq!(files[1].content_type().unwrap().subtype(), Some("octet-stream"));
    for text in [parsed.body_text(0).unwrap(), parsed.body_html(0).unwrap()] {
        for said in ["lost.txt is not attached", "huge.bin is not attached: with 40.0 MB", "locked.bin is not attached"]
        {
            assert!(text.replace(" \r\n", "").contains(said), "{text}");
        }
    }
    // Without room the mail has no files, but it has the text.
    let short = composer().compose(&message, Some(&answering()), &load, 1_000).unwrap();
    assert!(!short.has_files && short.bytes.len() < 20_000);
}

#[test]
fn a_message_without_a_recipient_is_an_error() {
    let nobody = ReplyContext { to: vec!["nonsense".to_owned()], ..answering() };
    for (chat_id, answering, words) in [
        (ROOT, None, "nothing is known of the thread"),
        (ROOT, Some(&ReplyContext::default()), "names nobody"),
        (ROOT, Some(&nobody), "is not an e-mail address"),
        ("nonsense", None, "is not an e-mail address"),
    ] {
        let fault = composer().compose(&message(chat_id, "x"), answering, &no_files, MAX_MAIL).unwrap_err();
        assert!(fault.contains(words), "{fault}");
    }
    assert!(MailComposer::new("nonsense", "", false, MailTexts::of(Language::En)).is_err());
}
