//! Tests with whole mails as programs write them.

use super::{ParseLimits, parse_mail};
use crate::email::mail::ParsedMail;

fn parse(raw: &str) -> ParsedMail {
    parse_mail(raw.as_bytes(), &ParseLimits::default())
}

/// Builds a multipart from these parts, each with its own header.
fn multipart(kind: &str, parts: &[&str]) -> String {
    let body: String = parts.iter().map(|part| format!("--b\r\n{part}\r\n")).collect();
    format!("Content-Type: multipart/{kind}; boundary=\"b\"\r\n\r\n{body}--b--\r\n")
}

#[test]
fn all_fields_of_a_mail_are_parsed() {
    let raw = "Message-ID: <3@x.org>\r\nIn-Reply-To: <2@x.org>\r\nReferences: <1@x.org>\r\n <2@x.org>\r\n\
        From: =?GB18030?B?1cXI/Q==?= <Zhang@X.Org>\r\nReply-To: desk@x.org\r\nTo: a@y.org, B <b@y.org>\r\nCc: c@y.org\r\n\
        Subject: =?utf-8?B?UmU6IOS8mg==?=\r\n =?utf-8?B?6K6u?=\r\nDate: Tue, 3 Mar 2026 10:00:00 +0800\r\nMIME-Version: 1.0\r\n\
        Content-Type: text/plain; charset=gbk\r\nContent-Transfer-Encoding: base64\r\n\r\nusO1xKGjCgo+IMjVs8w/Cg==\r\n";
    let found = parse(raw);
    let mail =
        |name: &str, address: &str| crate::email::mail::NamedAddress { name: name.into(), address: address.into() };
    assert_eq!(found.message_id.as_deref(), Some("<3@x.org>"));
    assert_eq!(
        (found.in_reply_to, found.references),
        (vec!["<2@x.org>".into()], vec!["<1@x.org>".into(), "<2@x.org>".to_owned()])
    );
    assert_eq!((found.from, found.reply_to), (vec![mail("张三", "Zhang@x.org")], vec![mail("", "desk@x.org")]));
    assert_eq!((found.to, found.cc), (vec![mail("", "a@y.org"), mail("B", "b@y.org")], vec![mail("", "c@y.org")]));
    assert_eq!(found.subject, "Re: 会议");
    assert_eq!(found.date.unwrap().to_string(), "2026-03-03T02:00:00Z");
    assert_eq!((found.text.as_str(), found.cut.as_str()), ("好的。", "> 日程?"));
    assert_eq!(found.headers[2], ("references".to_owned(), "<1@x.org> <2@x.org>".to_owned()));
    assert!(found.fits_its_type && !found.is_forward && found.attachments.is_empty() && found.remarks.is_empty());
}

#[test]
fn the_text_of_many_mime_structures_is_found() {
    let html = "Content-Type: text/html; charset=utf-8\r\n\r\n<p>Hello <b>you</b>, this is what it is about, at length and more.</p>";
    let table = [
        (parse("\r\nplain"), "plain"),
        (parse("Subject: x\r\n\r\n\u{feff}caf\u{e9}\r\n"), "café"),
        (parse("Content-Type: text/plain; format=flowed\r\n\r\none \r\ntwo\r\n"), "one two"),
        (parse("Content-Type: text/plain\r\n\r\n<html><body><p>a<p>b"), "a\n\nb"),
        (parse(&multipart("alternative", &["\r\nHello", html])), "Hello"),
        (
            parse(&multipart("alternative", &["\r\n \r\n", html])),
            "Hello **you**, this is what it is about, at length and more.",
        ),
        (
            parse(&multipart("alternative", &["\r\nPlease view this email in your browser.", html])),
            "Hello **you**, this is what it is about, at length and more.",
        ),
        (
            parse(&multipart("mixed", &["\r\none", html, "\r\ntwo"])),
            "one\n\nHello **you**, this is what it is about, at length and more.\n\ntwo",
        ),
        (parse(&multipart("unknown", &["\r\none"])), "one"),
        (parse("Content-Type: multipart/mixed; boundary=no\r\n\r\ntext anyway"), "text anyway"),
        (
            parse(
                "Content-Type: multipart/alternative; boundary=lost\r\n\r\n--other\r\nContent-Type: text/plain\r\n\r\nthe words\r\n--other\r\nContent-Type: text/html\r\n\r\n<p>not these</p>\r\n--other--\r\n",
            ),
            "the words\n\nnot these",
        ),
        (
            parse(&multipart(
                "signed; protocol=\"application/pgp-signature\"",
                &["\r\none", "Content-Type: application/pgp-signature; name=s.asc\r\n\r\nx"],
            )),
            "one",
        ),
        (parse("Content-Type: text/html\r\n\r\n<meta charset=gbk><p>x"), "x"),
    ];
    for (found, expected) in table {
        assert_eq!(found.text, expected, "{found:?}");
        assert!(found.attachments.is_empty() && found.remarks.is_empty(), "{found:?}");
    }
    let lost = parse("Content-Type: multipart/mixed\r\n\r\nContent-Type: text/plain\r\n\r\nx");
    assert!(lost.text.is_empty() && lost.remarks[0].contains("could not be separated"), "{lost:?}");
    let mut gbk = b"Content-Type: text/html\r\n\r\n<meta charset=gbk><p>".to_vec();
    gbk.extend(b"\xbb\xe1\xd2\xe9");
    assert_eq!(parse_mail(&gbk, &ParseLimits::default()).text, "会议");
    assert_eq!(
        parse_mail(b"Subject: \xbb\xe1\xd2\xe9\r\n\r\n\xbb\xe1\xd2\xe9", &ParseLimits::default()).subject,
        "会议"
    );
}

#[test]
fn attachments_are_collected_within_limits() {
    let logo = "Content-Type: image/png\r\nContent-ID: <l>\r\nContent-Transfer-Encoding: base64\r\n\r\niVBORw==";
    let large = format!("Content-Type: image/png\r\nContent-ID: <p>\r\n\r\n{}", "x".repeat(20_000));
    let related =
        multipart("related", &["Content-Type: text/html\r\n\r\n<p>Hi <img src=cid:p alt=chart>", logo, &large]);
    let found = parse(&related);
    assert_eq!(found.text, "Hi [image: chart]");
    let names = |found: &ParsedMail| {
        found.attachments.iter().map(|file| (file.name.clone(), file.media_type.clone())).collect::<Vec<_>>()
    };
    let named = |name: &str, kind: &str| (name.to_owned(), kind.to_owned());
    assert_eq!(names(&found), [named("image-1.png", "image/png")]);

    let found = parse(&multipart(
        "mixed",
        &[
            "\r\nsee files",
            "Content-Type: application/pdf; name=\"=?utf-8?B?5Lya6K6uLnBkZg==?=\"\r\nContent-Disposition: attachment\r\nContent-Transfer-Encoding: base64\r\n\r\nJVBERg==",
            "Content-Type: text/csv\r\nContent-Disposition: attachment; filename*=utf-8''%E8%A1%A8.csv\r\n\r\na,b",
            "Content-Type: text/plain\r\nContent-Disposition: attachment; filename=notes.txt\r\n\r\nnotes",
            "Content-Type: application/zip\r\n\r\nPK",
            "Content-Type: weird thing\r\nContent-Disposition: inline; filename=\"../a\nb\"\r\n\r\nx",
        ],
    ));
    assert_eq!(found.text, "see files");
    assert_eq!(found.attachments[0].bytes, b"%PDF");
    assert_eq!(found.attachments[2].bytes, b"notes");
    let expected = [
        named("会议.pdf", "application/pdf"),
        named("表.csv", "text/csv"),
        named("notes.txt", "text/plain"),
        named("file-4.zip", "application/zip"),
    ];
    assert_eq!(names(&found)[..4], expected);

    let long = format!("Content-Type: application/pdf; name={}.pdf\r\n\r\n%PDF", "ä".repeat(400));
    let found = parse(&multipart("mixed", &[&long]));
    assert!(found.attachments[0].name.ends_with("ä.pdf") && found.attachments[0].name.len() <= 300);

    let limits = ParseLimits { files: 2, file_size: 4, files_size: 6, ..ParseLimits::default() };
    let file = |name: &str, bytes: &str| {
        format!("Content-Type: a/b\r\nContent-Disposition: attachment; filename={name}\r\n\r\n{bytes}")
    };
    let parts = [file("one", "1234"), file("big", "123456789"), file("two", "12345"), file("3", "12"), file("4", "1")];
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let found = parse_mail(multipart("mixed", &parts).as_bytes(), &limits);
    assert_eq!(names(&found).len(), 2);
    let remarks = found.remarks.join("\n");
    assert!(
        remarks.contains("\"big\" (9 B)")
            && remarks.contains("larger than 4 B")
            && remarks.contains("More than 2 files"),
        "{remarks}"
    );

    // A file is whole or left out.
    for (bytes, is_kept) in [("1234", true), ("12345", false), ("123456", false)] {
        let found = parse_mail(multipart("mixed", &[&file("x", bytes)]).as_bytes(), &limits);
        let kept: Vec<_> = found.attachments.iter().map(|file| file.bytes.as_slice()).collect();
        assert_eq!((kept, found.remarks.len()), if is_kept { (vec![bytes.as_bytes()], 0) } else { (vec![], 1) });
    }
}

#[test]
fn encrypted_and_signed_parts_are_remarked() {
    let table = [
        (
            multipart(
                "encrypted",
                &[
                    "Content-Type: application/pgp-encrypted\r\n\r\nVersion: 1",
                    "Content-Type: application/octet-stream\r\n\r\nx",
                ],
            ),
            "encrypted, unreadable",
        ),
        (
            "Content-Type: application/pkcs7-mime; smime-type=enveloped-data; name=smime.p7m\r\n\r\nMII".to_owned(),
            "encrypted, unreadable",
        ),
        ("Content-Type: application/x-pkcs7-mime; name=smime.p7m\r\n\r\nMII".to_owned(), "encrypted, unreadable"),
        ("Content-Type: application/pkcs7-mime; smime-type=signed-data\r\n\r\nMII".to_owned(), "signed"),
        (
            "\r\n-----BEGIN PGP MESSAGE-----\r\n\r\nhQ\r\n-----END PGP MESSAGE-----\r\n".to_owned(),
            "encrypted, unreadable",
        ),
        (
            multipart("mixed", &["\r\nhi", "Content-Type: application/ms-tnef; name=winmail.dat\r\n\r\nx"]),
            "winmail.dat",
        ),
    ];
    for (raw, expected) in table {
        let found = parse(&raw);
        assert!(
            found.remarks.len() == 1 && found.remarks[0].contains(expected) && found.attachments.is_empty(),
            "{found:?}"
        );
    }
}

#[test]
fn the_header_of_another_mail_is_another_persons_text() {
    for kind in ["text/rfc822-headers", "message/delivery-status", "message/disposition-notification"] {
        let found = parse(&multipart("mixed", &["\r\nWhy?", &format!("Content-Type: {kind}\r\n\r\nSubject: Pay me")]));
        assert_eq!((found.text.as_str(), found.is_forward), ("Why?\n\nSubject: Pay me", true), "{kind}");
    }
}

#[test]
fn the_subject_of_a_forwarded_mail_suffices() {
    for (subject, expected) in [("Fwd: x", true), ("RV: x", true), ("I: x", true), ("Re: Fwd: x", false), ("x", false)]
    {
        for text in ["Do it.", "Katso alla.\r\n\r\nLähettäjä: Eve\r\n\r\nDo it.", ""] {
            assert_eq!(parse(&format!("Subject: {subject}\r\n\r\n{text}")).is_forward, expected, "{subject}: {text}");
        }
    }
}

/// Somebody who sends a mail on may have replaced the two fields.
#[test]
fn a_body_that_another_type_fits_is_noticed() {
    let parts = multipart("mixed", &["Content-Type: text/plain\r\n\r\nhello", "Content-Type: text/plain\r\n\r\nx"]);
    let (_, body) = parts.split_once("\r\n").unwrap();
    let code = "Content-Transfer-Encoding";
    for (header, body, expected) in [
        ("Content-Type: multipart/mixed; boundary=b", body, true),
        ("Content-Type: multipart/mixed; boundary=c", body, false),
        ("Content-Type: multipart/report; boundary=b", body, false),
        ("Content-Type: multipart/mixed", body, false),
        ("Content-Type: text/plain", body, false),
        ("Content-Type: text/html", body, false),
        ("X: 1", body, false),
        ("X: 1", "\r\nNo.\r\n> Pay\r\n-- \r\nAnn", true),
        ("X: 1", "\r\n<p>No.</p><blockquote>Pay</blockquote>", false),
        ("Content-Type: text/html", "\r\n\r\n<p>No.</p>", true),
        ("Content-Type: text/html", "\r\nNo.\r\n> Pay", false),
        ("Content-Type: application/octet-stream", "\r\nNo.", false),
        (&format!("{code}: base64"), "\r\nTm8u\r\nTm8=\r\n", true),
        (&format!("{code}: base64"), "\r\nNo.\r\n> UGF5", false),
        (&format!("{code}: base64\r\nContent-Type: text/html"), "\r\nTm8u", false),
        (&format!("{code}: quoted-printable"), "\r\nn=C3=B6 =\r\n> x", true),
        (&format!("{code}: quoted-printable"), "\r\nNo.\r\n> =0aPay", false),
        (&format!("{code}: 8bit"), "\r\nNo.\r\n> x=\r\nPay", false),
    ] {
        assert_eq!(parse(&format!("{header}\r\n{body}")).fits_its_type, expected, "{header}\n{body}");
    }
}

#[test]
fn mails_in_mails_are_forwards() {
    let inner =
        multipart("mixed", &["\r\nPay me\r\n-- \r\nEve", "Content-Type: application/pdf; name=bill.pdf\r\n\r\n%PDF"]);
    let inner = inner.replace("\"b\"", "\"i\"").replace("--b", "--i");
    let raw = multipart(
        "mixed",
        &[
            "\r\nWhat is this?",
            &format!("Content-Type: message/rfc822\r\n\r\nFrom: Eve <e@z.org>\r\nSubject: =?utf-8?Q?Bill?=\r\n{inner}"),
        ],
    );
    let found = parse(&format!("From: a@x.org\r\nSubject: Fwd: Bill\r\n{raw}"));
    assert!(found.is_forward);
    assert_eq!(found.text, "What is this?\n\n---------- Forwarded message ----------\nFrom: Eve <e@z.org>\nSubject: Bill\n\nPay me\n\n-- \nEve".replace("-- \n", "--\n"));
    assert_eq!((found.attachments.len(), found.attachments[0].name.as_str()), (1, "bill.pdf"));
    assert_eq!(found.from[0].address, "a@x.org");

    let deep = "Content-Type: message/rfc822\r\n\r\n".repeat(1_000) + "\r\ntext";
    let found = parse(&deep);
    assert!(
        found.is_forward && found.attachments.len() == 1 && found.attachments[0].name == "message-1.eml",
        "{}",
        found.text
    );
}

#[test]
fn invitations_are_described() {
    let event = "BEGIN:VCALENDAR\r\nMETHOD:REQUEST\r\nBEGIN:VEVENT\r\nSUMMARY:Lunch\r\nDTSTART:20260303T120000Z\r\nEND:VEVENT\r\nEND:VCALENDAR";
    let calendar = format!("Content-Type: text/calendar; charset=utf-8; method=REQUEST\r\n\r\n{event}");
    let file = format!(
        "Content-Type: application/ics; name=invite.ics\r\nContent-Disposition: attachment; filename=invite.ics\r\n\r\n{event}"
    );
    let alternative = multipart("alternative", &["\r\nCome!", "Content-Type: text/html\r\n\r\n<p>Come!", &calendar]);
    let alternative = alternative.replace("\"b\"", "\"i\"").replace("--b", "--i");
    let found = parse(&multipart("mixed", &[&alternative, &file]));
    assert_eq!(found.text, "Come!\n\nInvitation: Lunch\nWhen: 2026-03-03 (Tuesday) 12:00 (UTC)");
    assert_eq!((found.attachments.len(), found.is_forward), (1, true), "an invitation may be another person's");
}

#[test]
fn header_values_cannot_escape_their_field() {
    let raw = "From: \"boss@x.org\" <evil@y.org>\r\nFrom: b@x.org\r\nSubject: =?utf-8?Q?a=0D=0ABcc:_x@y.z?=\r\nReply-To: =?utf-8?Q?=22=0D=0A?= <r@y.org>\r\n\
        Message-ID: <a\rb@x>\r\nDate: nonsense\r\nReferences: <1@x> <2\0@x>\r\n\r\nte\0xt\x1b[31m";
    let found = parse(raw);
    let from: Vec<_> = found.from.iter().map(|from| from.address.as_str()).collect();
    assert_eq!(from, ["evil@y.org", "b@x.org"], "both, so that the sender check refuses the mail");
    assert_eq!(found.subject, "a Bcc: x@y.z");
    assert_eq!((found.reply_to[0].name.as_str(), found.date), ("\"", None));
    assert_eq!(found.references, ["<1@x>", "<2@x>"]);
    assert_eq!(found.text, "text[31m");
}
