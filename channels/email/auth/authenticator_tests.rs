//! Tests of the decision about whole mails.

use super::authenticator::{SenderAuthenticator, SenderDecision};
use super::verifier::DnsVerifier;
use crate::email::address::EmailAddress;
use crate::email::config::{EmailConfig, TrustMethod, UnlistedSenderPolicy};
use crate::email::mail::ParsedMail;
use crate::email::parse::{ParseLimits, parse_mail};
use crate::message::Trust;
use crate::trust::{AllowList, SenderLists, TrustLists};

const PROVEN: &str = "Authentication-Results: mx.here; dmarc=pass header.from=example.org\r\n";

/// The `Received` that the receiving server writes below its results.
const RECEIVED: &str =
    "Received: from mail.example.org ([192.0.2.1]) by mx.here with ESMTP; Mon, 2 Nov 2026 10:00:00 +0000\r\n";

fn list(entries: &[&str]) -> AllowList {
    AllowList::new(entries.iter().copied())
}

fn config(trust: TrustMethod) -> EmailConfig {
    EmailConfig {
        address: "dao@here.test".to_owned(),
        allow_from: list(&["ann@example.org", "bob@example.org", "@friends.test"]),
        trusted_from: list(&["ann@example.org"]),
        trust,
        authserv_id: "MX.here, mx2.here".to_owned(),
        ..EmailConfig::default()
    }
}

fn authenticator_of(config: &EmailConfig, owners: &[&str]) -> SenderAuthenticator {
    let owners = owners.iter().map(|owner| (*owner).to_owned()).collect();
    let lists = SenderLists { owners, trusted: config.trusted_from.clone() };
    SenderAuthenticator::new(config, TrustLists::of_one("email", lists))
}

fn mail(header: &str) -> (Vec<u8>, ParsedMail) {
    let raw = format!(
        "{header}{RECEIVED}To: dao@here.test\r\nSubject: Hello\r\nMessage-ID: <1@example.org>\r\n\r\nHello\r\n"
    )
    .into_bytes();
    let parsed = parse_mail(&raw, &ParseLimits::default());
    (raw, parsed)
}

/// Returns the decision in one word; for an accepted sender, the level of trust.
async fn decision_name(authenticator: &SenderAuthenticator, header: &str) -> &'static str {
    let (raw, parsed) = mail(header);
    match authenticator.authenticate(&raw, &parsed).await {
        SenderDecision::Accept { trust } => trust.as_str(),
        SenderDecision::Ignore { .. } => "ignored",
        SenderDecision::Refuse { .. } => "refused",
        SenderDecision::Defer { .. } => "later",
    }
}

#[tokio::test]
async fn the_header_decides_whether_a_sender_is_accepted() {
    let authenticator = authenticator_of(&config(TrustMethod::Authserv), &["owner@friends.test"]);
    let friend = "Authentication-Results: mx2.here; dkim=pass header.d=friends.test\r\n";
    let table: &[(&str, &str, &str)] = &[
        ("trusted", &format!("{PROVEN}From: Ann <Ann@Example.org>\r\n"), "known"),
        ("allowed", &format!("{PROVEN}From: bob@example.org\r\n"), "untrusted"),
        ("a domain", &format!("{friend}From: eve@friends.test\r\n"), "untrusted"),
        ("the owner", &format!("{friend}From: Owner@friends.test\r\n"), "owner"),
        ("below the domain", &format!("{friend}From: eve@sub.friends.test\r\n"), "ignored"),
        ("not allowed", &format!("{PROVEN}From: carol@example.org\r\n"), "ignored"),
        ("spoofed", "From: ann@example.org\r\n", "ignored"),
        (
            "a spoofer's word",
            "Authentication-Results: mx.evil; dmarc=pass header.from=example.org\r\nFrom: ann@example.org\r\n",
            "ignored",
        ),
        (
            "failed",
            "Authentication-Results: mx.here; dmarc=fail header.from=example.org\r\nFrom: ann@example.org\r\n",
            "ignored",
        ),
        ("two in From", &format!("{PROVEN}From: ann@example.org, bob@example.org\r\n"), "ignored"),
        ("two From", &format!("{PROVEN}From: ann@example.org\r\nFrom: ann@example.org\r\n"), "ignored"),
        ("two subjects", &format!("{friend}Subject: Pay\r\nFrom: owner@friends.test\r\n"), "untrusted"),
        ("no From", PROVEN, "ignored"),
        (
            "a name that looks like an address",
            &format!("{PROVEN}From: \"ann@example.org\" <x@evil.test>\r\n"),
            "ignored",
        ),
        ("a list", &format!("{PROVEN}From: ann@example.org\r\nList-Id: <l.example.org>\r\n"), "ignored"),
        (
            "a vacation",
            &format!("{PROVEN}From: ann@example.org\r\nAuto-Submitted: auto-replied (vacation)\r\n"),
            "ignored",
        ),
        ("a bounce", &format!("Return-Path: <>\r\n{PROVEN}From: ann@example.org\r\n"), "ignored"),
        (
            "ourselves",
            "Authentication-Results: mx.here; dmarc=pass header.from=here.test\r\nFrom: dao+x@here.test\r\n",
            "ignored",
        ),
        (
            "a daoyou",
            &format!(
                "{PROVEN}From: ann@example.org\r\nMessage-ID: <daoyou.0192f0c1-2345-7abc-8def-0123456789ab.0123456789abcdef@example.org>\r\n"
            ),
            "ignored",
        ),
        ("spam", &format!("{PROVEN}From: ann@example.org\r\nX-Spam-Flag: YES\r\n"), "ignored"),
    ];
    for (what, header, expected) in table {
        // A mail that brings its own Message-ID must not get a second one.
        let header = header.to_string();
        let found = if header.contains("Message-ID") {
            let raw = format!("{header}{RECEIVED}\r\nHello").into_bytes();
            let parsed = parse_mail(&raw, &ParseLimits::default());
            match authenticator.authenticate(&raw, &parsed).await {
                SenderDecision::Ignore { .. } => "ignored",
                _ => "accepted",
            }
        } else {
            decision_name(&authenticator, &header).await
        };
        assert_eq!(found, *expected, "{what}");
    }
}

#[tokio::test]
async fn a_forwarded_mail_is_not_the_senders_own_text() {
    let authenticator = authenticator_of(&config(TrustMethod::Authserv), &[]);
    let (raw, mut parsed) = mail(&format!("{PROVEN}From: ann@example.org\r\n"));
    parsed.is_forward = true;
    let decision = authenticator.authenticate(&raw, &parsed).await;
    assert_eq!(decision, SenderDecision::Accept { trust: Trust::Untrusted });
    assert_eq!(SenderAuthenticator::sender(&parsed), EmailAddress::parse("ann@example.org"));
}

#[tokio::test]
async fn an_address_without_a_reply_is_named() {
    let authenticator = authenticator_of(&config(TrustMethod::Authserv), &[]);
    for (from, expected) in [
        ("\"a b\"@example.org", "its address \"\\\"a b\\\"@example.org\" is one that"),
        ("a..b@example.org", "its address \"a..b@example.org\" is one that"),
        ("ann@example.org, bob@example.org", "not exactly one From"),
    ] {
        let (raw, parsed) = mail(&format!("{PROVEN}From: {from}\r\n"));
        let decision = authenticator.authenticate(&raw, &parsed).await;
        let SenderDecision::Ignore { reason } = decision else { panic!("{decision:?}") };
        assert!(reason.contains(expected), "{reason}");
    }
}

#[test]
fn replies_go_to_addresses_that_owner_or_sender_domain_vouch_for() {
    let proving = authenticator_of(&config(TrustMethod::Authserv), &[]);
    let believing = authenticator_of(&config(TrustMethod::None), &[]);
    for (sender, other, proven, believed) in [
        ("ann@example.org", "bob@example.org", true, true),
        ("ann@example.org", "carl@friends.test", true, true),
        ("ann@example.org", "desk@example.org", true, false),
        ("ann@example.org", "desk@sub.example.org", false, false),
        ("ann@example.org", "eve@evil.test", false, false),
        ("ann@gmail.com", "eve@gmail.com", false, false),
        ("ann@gmail.com", "bob@example.org", true, true),
    ] {
        let [sender, other] = [sender, other].map(|address| EmailAddress::parse(address).unwrap());
        let may = [&proving, &believing].map(|authenticator| authenticator.may_answer_to(&sender, &other));
        assert_eq!(may, [proven, believed], "{sender} {other}");
    }
}

#[tokio::test]
async fn no_sender_is_allowed_by_default() {
    let closed = EmailConfig { allow_from: AllowList::default(), ..config(TrustMethod::Authserv) };
    let no_id = EmailConfig { authserv_id: String::new(), ..config(TrustMethod::Authserv) };
    let believing = config(TrustMethod::None);
    let refusing = |trust| EmailConfig { strangers: UnlistedSenderPolicy::Refuse, ..config(trust) };
    let owner = ["ann@example.org"];
    let ann = format!("{PROVEN}From: ann@example.org\r\n");
    let carol = format!("{PROVEN}From: carol@example.org\r\n");
    for (what, config, header, expected) in [
        ("closed", &closed, &ann, "ignored"),
        ("without an id", &no_id, &ann, "ignored"),
        ("From alone", &believing, &ann, "untrusted"),
        ("From alone, a stranger", &believing, &carol, "ignored"),
        ("a stranger is refused", &refusing(TrustMethod::Authserv), &carol, "refused"),
        ("a forged one is not", &refusing(TrustMethod::Authserv), &"From: carol@example.org\r\n".to_owned(), "ignored"),
        ("nor one that is believed", &refusing(TrustMethod::None), &carol, "ignored"),
        ("nor a machine", &refusing(TrustMethod::Authserv), &format!("{carol}Precedence: bulk\r\n"), "ignored"),
    ] {
        assert_eq!(decision_name(&authenticator_of(config, &owner), header).await, expected, "{what}");
    }
}

#[test]
fn a_header_alone_is_verified_only_by_the_server() {
    let (_, parsed) = mail(&format!("{PROVEN}From: ann@example.org\r\n"));
    let (_, stranger) = mail(&format!("{PROVEN}From: carol@example.org\r\n"));
    for (trust, expected) in
        [(TrustMethod::Authserv, "accepted"), (TrustMethod::Verify, "later"), (TrustMethod::None, "later")]
    {
        let authenticator = authenticator_of(&config(trust), &[]).verified_by(DnsVerifier::default());
        let found = match authenticator.authenticate_header(&parsed) {
            SenderDecision::Accept { .. } => "accepted",
            SenderDecision::Defer { .. } => "later",
            _ => "else",
        };
        assert_eq!(found, expected, "{trust:?}");
        assert!(matches!(authenticator.authenticate_header(&stranger), SenderDecision::Ignore { .. }), "{trust:?}");
    }
}
