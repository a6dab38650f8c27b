//! Tests with hostile mail: any input gives a mail within the limits, in a short time.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{ParseLimits, parse_mail};
use crate::email::mail::ParsedMail;

/// Returns small limits that even small mails reach.
fn limits() -> ParseLimits {
    ParseLimits {
        text: 500,
        text_parts: 3_000,
        files: 3,
        file_size: 200,
        files_size: 300,
        parts: 12,
        depth: 4,
        mails: 2,
        fields: 20,
        field_size: 300,
        addresses: 4,
        references: 4,
    }
}

/// Asserts that a parsed mail is within the limits and contains no control characters.
fn check(mail: &ParsedMail, limits: &ParseLimits) {
    let plain = |text: &str| assert!(!text.contains(char::is_control), "{text:?}");
    let lines = |text: &str| assert!(!text.contains(|c: char| c.is_control() && c != '\n' && c != '\t'), "{text:?}");
    lines(&mail.text);
    lines(&mail.cut);
    assert!(mail.text.len() <= limits.text && mail.cut.len() <= limits.text);
    assert!(mail.attachments.len() <= limits.files && mail.remarks.len() <= 40);
    assert!(mail.attachments.iter().all(|file| file.bytes.len() <= limits.file_size));
    assert!(mail.attachments.iter().map(|file| file.bytes.len()).sum::<usize>() <= limits.files_size);
    assert!(mail.headers.len() <= limits.fields + 20);
    assert!(mail.references.len() <= limits.references && mail.in_reply_to.len() <= limits.references);
    mail.headers.iter().for_each(|(name, value)| {
        plain(name);
        plain(value);
    });
    let lists = [&mail.from, &mail.reply_to, &mail.to, &mail.cc];
    for list in lists {
        assert!(list.len() <= limits.addresses);
        for mailbox in list {
            plain(&mailbox.name);
            plain(&mailbox.address);
            assert!(mailbox.address.contains('@') && mailbox.address.len() <= 320);
        }
    }
    mail.message_id.iter().chain(&mail.references).chain(&mail.in_reply_to).for_each(|id| {
        plain(id);
        assert!(id.starts_with('<') && id.ends_with('>') && id.matches(['<', '>']).count() == 2, "{id}");
    });
    plain(&mail.subject);
    mail.attachments.iter().for_each(|file| {
        plain(&file.name);
        plain(&file.media_type);
        assert!(!file.name.is_empty());
    });
    mail.remarks.iter().for_each(|remark| plain(remark));
}

/// Mails with many features, which the tests mutate.
const VALID: &[&str] = &[
    "From: =?utf-8?B?5byg5LiJ?= <a@x.org>\r\nTo: G: b@x.org, \"C, D\" <c@x.org>;\r\nSubject: =?gbk?Q?=BB=E1=D2=E9?=\r\nDate: Tue, 3 Mar 2026 10:00:00 +0800\r\n\
     Message-ID: <1@x>\r\nReferences: <a@x> <b@x>\r\nContent-Type: multipart/mixed; boundary=\"o\"\r\n\r\n--o\r\nContent-Type: multipart/alternative; boundary=i\r\n\r\n\
     --i\r\nContent-Type: text/plain; charset=gb18030; format=flowed; delsp=yes\r\nContent-Transfer-Encoding: base64\r\n\r\nu+HS6Q==\r\n--i\r\n\
     Content-Type: text/html\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n<div class=3Dgmail_quote><table><tr><td>a<td>b<tr><td>c<td>d</table>\
     <ul><li>x<li>y</ul><a href=3D'https://x.org'>z</a><img src=3Dcid:1 alt=3Dq></div>\r\n--i--\r\n--o\r\nContent-Type: application/pdf; name*0*=utf-8''%E4; name*1=b.pdf\r\n\
     Content-Disposition: attachment\r\nContent-Transfer-Encoding: base64\r\n\r\nJVBERi0xLjQK\r\n--o\r\nContent-Type: message/rfc822\r\n\r\nSubject: in\r\n\r\nOn 3 Mar 2026 A <a@x> wrote:\r\n> q\r\n--o--\r\n",
    "From: a@x\r\nContent-Type: text/calendar; method=REQUEST\r\n\r\nBEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nDTSTART;TZID=Asia/Shanghai:20260303T100000\r\n\
     DTEND:20260303T110000Z\r\nRRULE:FREQ=WEEKLY;BYDAY=1MO;UNTIL=20260601\r\nATTENDEE;CN=\"A\":mailto:a@x\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n",
    "Subject: x\r\n\r\nyes\r\n\r\n-----Original Message-----\r\nFrom: a\r\nSent: b\r\nTo: c\r\nSubject: d\r\n\r\n> old\r\n-- \r\nsig\r\n-----BEGIN PGP MESSAGE-----\r\nx\r\n",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_parsed(raw in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        check(&parse_mail(&raw, &limits()), &limits());
        check(&parse_mail(&raw, &ParseLimits::default()), &ParseLimits::default());
    }

    #[test]
    fn mutated_mails_are_parsed(
        which in 0..VALID.len(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..5), 1..12),
        end in any::<prop::sample::Index>(),
    ) {
        let mut raw = VALID[which].as_bytes().to_vec();
        for (at, byte, kind) in changes {
            let at = at.index(raw.len());
            match kind {
                0 => raw[at] = byte,
                1 => raw.insert(at, byte),
                2 => drop(raw.drain(at..(at + usize::from(byte)).min(raw.len() - 1).max(at))),
                3 => {
                    let piece = raw[at..(at + usize::from(byte)).min(raw.len())].to_vec();
                    raw.splice(at..at, piece);
                }
                _ => raw[at] = b"<>\"'();:,=?-\r\n@%&\0"[usize::from(byte) % 18],
            }
        }
        check(&parse_mail(&raw, &limits()), &limits());
        check(&parse_mail(&raw[..end.index(raw.len() + 1)], &ParseLimits::default()), &ParseLimits::default());
    }

    #[test]
    fn any_html_is_converted(html in "(<[/!]?(a|b|p|li|ul|td|tr|table|div|blockquote|pre|img|br|x)( (class=gmail_quote|id=appendonsend|href=https:é|style='font-size:0'|src=\"))?>?|[a-zé&;<> \n]{0,8}|&#x?[0-9]{1,4};?){0,40}") {
        check(&parse_mail(format!("Content-Type: text/html\n\n{html}").as_bytes(), &limits()), &limits());
    }
}

#[test]
fn huge_mails_are_parsed_in_time() {
    let nested = |count: usize| -> String {
        (0..count)
            .map(|n| format!("Content-Type: multipart/mixed; boundary=b{n}\r\n\r\n--b{n}\r\n"))
            .collect::<String>()
            + "\r\ntext"
    };
    let mails = [
        ("many fields", "A: b\r\n".repeat(200_000)),
        ("a long field", format!("References: {}\r\n\r\n", "<a@b> ".repeat(200_000))),
        ("many addresses", format!("To: {}\r\n\r\n", "a@b.c, ".repeat(100_000))),
        ("unterminated words", format!("To: {}\r\n", "=?a?q? ".repeat(9_000)).repeat(200)),
        (
            "unterminated words in many parts",
            format!(
                "Content-Type: multipart/mixed; boundary=b\r\n\r\n{}",
                format!("--b\r\nContent-Type: a/b; x={}\r\n\r\nx\r\n", "=?a?q? ".repeat(9_000)).repeat(200)
            ),
        ),
        ("nested parts", nested(1_000)),
        ("very nested parts", nested(20_000)),
        ("nested mails", "Content-Type: message/rfc822\r\n\r\n".repeat(50_000)),
        (
            "many parts",
            format!("Content-Type: multipart/mixed; boundary=b\r\n\r\n{}", "--b\r\n\r\nx\r\n".repeat(100_000)),
        ),
        (
            "no boundaries",
            format!(
                "Content-Type: multipart/mixed; boundary=b\r\n\r\n{}",
                "--b\r\nContent-Type: multipart/mixed; boundary=never\r\n\r\nx\r\n".repeat(50_000)
            ),
        ),
        (
            "no boundaries in each other",
            "Content-Type: multipart/mixed\r\n\r\n".to_owned()
                + &(0..400).map(|n| format!("--b{n}\r\nContent-Type: multipart/mixed\r\n\r\n")).collect::<String>()
                + &"x".repeat(1_000_000),
        ),
        ("dashes", format!("Content-Type: multipart/mixed; boundary=b\r\n\r\n{}", "--\r\n".repeat(500_000))),
        ("deep html", format!("Content-Type: text/html\r\n\r\n{}", "<div>".repeat(100_000))),
        (
            "html in many parts",
            format!(
                "Content-Type: multipart/mixed; boundary=b\r\n\r\n{}",
                format!("--b\r\nContent-Type: text/html\r\n\r\n{}\r\n", "<p>x".repeat(2_000)).repeat(200)
            ),
        ),
        (
            "alternatives",
            format!(
                "Content-Type: multipart/alternative; boundary=b\r\n\r\n{}",
                format!("--b\r\nContent-Type: text/html\r\n\r\n{}\r\n", "<p>x".repeat(2_000)).repeat(200)
            ),
        ),
        ("quotes", format!("\r\n{}", "> a\r\nb\r\n".repeat(100_000))),
        ("introductions", format!("\r\n{}", "On 1 Mar 2026 a@b\r\n".repeat(100_000))),
        ("fields of Outlook", format!("\r\n{}", "From: a\r\n".repeat(100_000))),
        ("a long line", format!("\r\n{}", "On 1:00 @ ".repeat(300_000))),
        ("armour", format!("\r\n{}", "-----BEGIN PGP MESSAGE-----\r\n".repeat(100_000))),
    ];
    for (name, raw) in mails {
        let started = Instant::now();
        check(&parse_mail(raw.as_bytes(), &ParseLimits::default()), &ParseLimits::default());
        let took = started.elapsed();
        assert!(took < Duration::from_secs(30), "{name}: {took:?}");
    }
}

#[test]
fn references_keep_the_first_and_the_last() {
    let ids: String = (0..300).map(|n| format!("<{n}@x> ")).collect();
    let found = parse_mail(format!("References: {ids}\r\n\r\n").as_bytes(), &ParseLimits::default());
    assert_eq!(found.references.len(), 100);
    assert_eq!((found.references[0].as_str(), found.references[49].as_str()), ("<0@x>", "<49@x>"));
    assert_eq!((found.references[50].as_str(), found.references[99].as_str()), ("<250@x>", "<299@x>"));
}
