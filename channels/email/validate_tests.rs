//! Tests of settings and the faults found in them.

use std::path::PathBuf;

use super::*;
use crate::email::Mailboxes;
use crate::settings::Secret;

/// Returns valid settings.
fn good() -> EmailConfig {
    EmailConfig {
        enabled: true,
        consent_granted: true,
        address: "assistant@example.org".to_owned(),
        imap_host: "imap.example.org".to_owned(),
        imap_password: Some(Secret::new("canary")),
        smtp_host: "smtp.example.org".to_owned(),
        authserv_id: "mx.example.org".to_owned(),
        allow_from: list(&["ann@example.org", "@example.net"]),
        ..EmailConfig::default()
    }
}

fn list(entries: &[&str]) -> AllowList {
    AllowList::new(entries.iter().copied())
}

type Change = fn(&mut EmailConfig);

#[test]
fn unusable_settings_are_named() {
    let table: &[(Change, &[(&str, &str)])] = &[
        (|_| {}, &[]),
        (|c| *c = EmailConfig::default(), &[]),
        (|c| c.address = "Assistant <a@b.c>".into(), &[("address", "is not an address")]),
        (|c| (c.address, c.imap_host) = ("a@b.c".into(), String::new()), &[("imap_host", "\"b.c\" are not known")]),
        (|c| (c.address, c.imap_host, c.smtp_host) = ("a@qq.com".into(), String::new(), String::new()), &[]),
        (|c| c.imap_host = "imaps://x:993".into(), &[("imap_host", "not the name of a server")]),
        (|c| c.smtp_port = Some(0), &[("smtp_port", "not a port")]),
        (|c| c.imap_tls = Tls::None, &[("imap_tls", "in plain to imap.example.org")]),
        (|c| (c.smtp_tls, c.smtp_host) = (Tls::None, "127.0.0.1".into()), &[]),
        (|c| (c.smtp_tls, c.smtp_host) = (Tls::None, "[::1]".into()), &[]),
        (|c| (c.smtp_tls, c.smtp_host) = (Tls::None, "localhost.example.org".into()), &[("smtp_tls", "in plain")]),
        (|c| c.imap_password = None, &[("imap_password", "neither it nor token_command")]),
        (|c| (c.imap_password, c.token_command) = (None, Some(vec!["oauth".into()])), &[]),
        (|c| c.token_command = Some(vec![]), &[("token_command", "no program")]),
        (|c| c.mailbox = Mailboxes::Many(vec![]), &[("mailbox", "without a name")]),
        (|c| c.mailbox = Mailboxes::One(" ".into()), &[("mailbox", "without a name")]),
        (|c| c.mailbox = Mailboxes::Many(vec!["INBOX".into(), "Inbox".into()]), &[("mailbox", "twice")]),
        (|c| c.mailbox = Mailboxes::Many(vec!["Work".into(), "work".into()]), &[]),
        (|c| c.done = DoneAction::Move, &[("move_to", "is not set")]),
        (|c| (c.done, c.move_to) = (DoneAction::Move, "inbox".into()), &[("move_to", "that are read")]),
        (|c| (c.done, c.move_to) = (DoneAction::Move, "Answered".into()), &[]),
        (|c| c.sent_mailbox = "INBOX".into(), &[("sent_mailbox", "that are read")]),
        (|c| c.ca_file = Some(PathBuf::from("/nowhere/ca.pem")), &[("ca_file", "cannot be read")]),
        (|c| c.ca_file = Some(PathBuf::from("/")), &[("ca_file", "not a file of certificates")]),
        (|c| c.ca_file = Some(PathBuf::from("/dev/null")), &[("ca_file", "not a file of certificates")]),
        (|c| c.allow_from = list(&["ann", "@", "a@b.c", "*"]), &[("allow_from", "entry 1"), ("allow_from", "entry 2")]),
        (|c| c.allow_from = list(&["*@example.org"]), &[("allow_from", "entry 1 is \"*@example.org\"")]),
        (|c| c.trusted_from = list(&["*"]), &[("trusted_from", "entry 1 is \"*\"")]),
        (|c| c.authserv_id = String::new(), &[("authserv_id", "is not set")]),
        (|c| c.authserv_id = "mx.google.com; spf=pass".into(), &[("authserv_id", "not such a name")]),
        (|c| c.authserv_id = " mx1.example.org, mx2.example.org\t".into(), &[]),
        (|c| c.authserv_id = " , ".into(), &[("authserv_id", "not such a name")]),
        (|c| (c.authserv_id, c.trust) = (String::new(), TrustMethod::Verify), &[]),
        (|c| (c.trust, c.allow_from) = (TrustMethod::None, list(&["*"])), &[("allow_from", "everybody")]),
        (
            |c| (c.trust, c.trusted_from) = (TrustMethod::None, list(&["a@b.c"])),
            &[("trusted_from", "nobody can be trusted")],
        ),
        (|c| c.poll_interval = HumanDuration::from_secs(0), &[("poll_interval", "0s")]),
        (|c| c.max_size = ByteSize(1 << 30), &[("max_size", "1GiB")]),
        (|c| c.retry = vec![HumanDuration::from_secs(1); 51], &[("retry", "too many")]),
        (
            |c| *c = EmailConfig { enabled: true, ..EmailConfig::default() },
            &[("address", "is not set"), ("imap_password", "neither"), ("authserv_id", "is not set")],
        ),
    ];
    for (number, (change, expected)) in table.iter().enumerate() {
        let mut config = good();
        change(&mut config);
        let faults = config.faults();
        let got: Vec<_> = faults.iter().map(|fault| (fault.key(), fault.wrong.as_str())).collect();
        let right = got.iter().zip(*expected).all(|(got, expected)| got.0 == expected.0 && got.1.contains(expected.1));
        assert!(right && got.len() == expected.len(), "case {number}: expected {expected:?}, got {got:?}");
        assert!(faults.iter().all(|fault| !fault.allowed.is_empty() && !format!("{fault:?}").contains("canary")));
    }
}

#[test]
fn a_missing_setting_gets_the_advice_of_the_provider() {
    let mut config =
        EmailConfig { address: "me@gmail.com".into(), imap_host: String::new(), imap_password: None, ..good() };
    config.authserv_id = String::new();
    let faults = config.faults();
    let of = |key: &str| &faults.iter().find(|fault| fault.key() == key).unwrap().allowed;
    assert!(of("imap_password").contains("myaccount.google.com/apppasswords"), "{faults:?}");
    assert!(of("authserv_id").contains("\"mx.google.com\" at this provider"), "{faults:?}");
}

#[test]
fn probable_mistakes_give_warnings() {
    let of = |config: &EmailConfig, owners: &[&str]| -> Vec<&'static str> {
        config.warnings(owners).iter().map(|(key, _)| *key).collect()
    };
    assert_eq!(of(&good(), &["Ann@Example.org", "me@EXAMPLE.net"]), [""; 0]);
    assert_eq!(of(&good(), &["bob@example.org"]), ["allow_from"]);
    assert_eq!(of(&EmailConfig { allow_from: list(&[]), ..good() }, &["ann@example.org"]), ["allow_from"]);
    assert_eq!(of(&EmailConfig { trusted_from: list(&["@example.org"]), ..good() }, &[]), ["trusted_from"]);
    assert_eq!(of(&EmailConfig { trust: TrustMethod::None, ..good() }, &[]), ["trust"]);
    let inactive = EmailConfig { consent_granted: false, ..good() };
    assert_eq!((of(&inactive, &[]), inactive.inactive_reason().is_some()), (vec!["consent_granted"], true));
    assert!(EmailConfig { enabled: false, ..inactive }.inactive_reason().is_none());
}
