//! Tests of the DNS check against a scripted name server.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use mail_auth::MessageAuthenticator;
use mail_auth::common::crypto::Ed25519Key;
use mail_auth::common::headers::HeaderWriter;
use mail_auth::dkim::DkimSigner;
use mail_auth::hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts};
use mail_auth::hickory_resolver::proto::op::{Message, MessageType, ResponseCode};
use mail_auth::hickory_resolver::proto::rr::rdata::TXT;
use mail_auth::hickory_resolver::proto::rr::{RData, Record, RecordType};
use tokio::net::UdpSocket;

use super::authenticator::{SenderAuthenticator, SenderDecision};
use super::unproven_content::ProofMethod;
use super::verifier::{DnsVerifier, SenderProof};
use crate::email::address::EmailAddress;
use crate::email::config::{EmailConfig, TrustMethod};
use crate::email::parse::{ParseLimits, parse_mail};
use crate::message::Trust;
use crate::trust::{AllowList, SenderLists, TrustLists};

/// RFC 8032, section 7.1, test 1.
const SEED: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
const PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
const KEY: &str = "v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
const TEST_KEY: &str = "v=DKIM1; t=s:y; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
const BROKEN: &str = "SERVFAIL";

/// The case, the mail, the records of the name server, and the expected result.
type Row<'a> = (&'a str, &'a [u8], &'a [(&'a str, &'a str)], &'a str);

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// Starts a name server that answers TXT queries from `records` and all others with NXDOMAIN. A `BROKEN` record fails.
async fn name_server(records: HashMap<String, String>) -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let port = socket.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut buffer = [0; 2_048];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
            let mut message = Message::from_vec(&buffer[..length]).unwrap();
            let query = message.queries[0].clone();
            let name = query.name().to_lowercase().to_ascii();
            message.metadata.message_type = MessageType::Response;
            message.metadata.recursion_available = true;
            match records.get(name.trim_end_matches('.')).map(String::as_str) {
                Some(BROKEN) => message.metadata.response_code = ResponseCode::ServFail,
                Some(text) if query.query_type() == RecordType::TXT => {
                    let data = RData::TXT(TXT::new(vec![text.to_owned()]));
                    message.add_answer(Record::from_rdata(query.name().clone(), 60, data));
                }
                _ => message.metadata.response_code = ResponseCode::NXDomain,
            }
            socket.send_to(&message.to_vec().unwrap(), peer).await.unwrap();
        }
    });
    port
}

async fn verifier(records: &[(&str, &str)]) -> DnsVerifier {
    let records = records.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    let port = name_server(records.collect()).await;
    let mut connection = ConnectionConfig::udp();
    connection.port = port;
    let server = NameServerConfig::new(IpAddr::V4(Ipv4Addr::LOCALHOST), true, vec![connection]);
    let mut options = ResolverOpts::default();
    options.attempts = 1;
    options.timeout = std::time::Duration::from_secs(5);
    let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
    DnsVerifier::with(MessageAuthenticator::new(config, options).unwrap(), vec!["mx.here".to_owned()])
}

/// Returns an authenticator whose DNS lookups fail.
pub async fn with_failing_dns(config: &EmailConfig) -> SenderAuthenticator {
    let verifier = verifier(&[("_dmarc.example.org", BROKEN)]).await;
    SenderAuthenticator::new(config, TrustLists::default()).verified_by(verifier)
}

fn signed(mail: &str, domain: &str) -> Vec<u8> {
    signed_fields(mail, domain, &["From", "To", "Subject"])
}

fn signed_fields(mail: &str, domain: &str, fields: &'static [&'static str]) -> Vec<u8> {
    let key = Ed25519Key::from_seed_and_public_key(&bytes(SEED), &bytes(PUBLIC)).unwrap();
    let signer = DkimSigner::from_key(key).domain(domain).selector("s").headers(fields.iter().copied());
    let signature = signer.sign(mail.as_bytes()).unwrap();
    format!("{}{mail}", signature.to_header()).into_bytes()
}

#[tokio::test]
async fn a_domain_vouches_for_its_mail() {
    const MAIL: &str = "From: ann@example.org\r\nTo: dao@here.test\r\nSubject: Hello\r\n\r\nHello\r\n";
    const WAY: &str = "Return-Path: <ann@example.org>\r\nReceived: from a ([192.0.2.7]) by mx.here with ESMTP\r\n";
    const STRICT: (&str, &str) = ("_dmarc.example.org", "v=DMARC1; p=reject");
    let good = signed(MAIL, "example.org");
    let changed = String::from_utf8(good.clone()).unwrap().replace("\r\n\r\nHello", "\r\n\r\nPay").into_bytes();
    let by_way = format!("{WAY}{MAIL}").into_bytes();
    let signed_by_way = [WAY.as_bytes(), &good].concat();
    let two = [&b"From: ann@evil.test\r\n"[..], &good].concat();
    // The line without a colon ends the header for one program, the empty line below the first paragraph for another.
    let paragraphs = signed(&MAIL.replace("\r\n\r\nHello", "\r\n\r\nDo not:\r\n\r\nPay"), "example.org");
    let early_end = String::from_utf8(paragraphs).unwrap().replacen("\r\n\r\n", "\r\nx\r\n", 1).into_bytes();
    let key = ("s._domainkey.example.org", KEY);
    let spf = ("example.org", "v=spf1 ip4:192.0.2.7 -all");
    let table: &[Row<'_>] = &[
        ("signed", &good, &[key, STRICT], "proven"),
        ("signed, no DMARC", &good, &[key], "proven"),
        ("changed", &changed, &[key, STRICT], "not"),
        ("not signed", MAIL.as_bytes(), &[key, STRICT], "not"),
        ("no key", &good, &[STRICT], "not"),
        ("signed by another", &signed(MAIL, "evil.test"), &[("s._domainkey.evil.test", KEY), STRICT], "not"),
        ("another cannot be asked", &signed(MAIL, "evil.test"), &[("s._domainkey.evil.test", BROKEN)], "not"),
        ("signed below", &signed(MAIL, "mail.example.org"), &[("s._domainkey.mail.example.org", KEY)], "proven"),
        (
            "signed below, strictly",
            &signed(MAIL, "mail.example.org"),
            &[("s._domainkey.mail.example.org", KEY), ("_dmarc.example.org", "v=DMARC1; p=none; adkim=s")],
            "not",
        ),
        ("sent by its server", &by_way, &[spf, STRICT], "sent"),
        ("sent by its server, no DMARC", &by_way, &[spf], "sent"),
        ("sent by its server, signed", &signed_by_way, &[spf, key, STRICT], "sent"),
        ("sent by another", &by_way, &[("example.org", "v=spf1 ip4:192.0.2.8 -all"), STRICT], "not"),
        ("the way is not known", MAIL.as_bytes(), &[spf, STRICT], "not"),
        ("the key cannot be asked for", &good, &[("s._domainkey.example.org", BROKEN), STRICT], "unknown"),
        ("the policy cannot be asked for", &good, &[key, ("_dmarc.example.org", BROKEN)], "unknown"),
        ("the servers cannot be asked for", &by_way, &[("example.org", BROKEN)], "unknown"),
        ("two From", &two, &[key], "not"),
        ("a key that is being tested", &good, &[("s._domainkey.example.org", TEST_KEY), STRICT], "not"),
        ("a key that is being tested, no DMARC", &good, &[("s._domainkey.example.org", TEST_KEY)], "not"),
        ("a field in two readings", &[&b"Subject : Pay\r\n"[..], &good].concat(), &[key], "not"),
        ("an end of the header in two readings", &early_end, &[key], "not"),
    ];
    let from = EmailAddress::parse("ann@example.org").unwrap();
    for (what, raw, records, expected) in table {
        let mail = parse_mail(raw, &ParseLimits::default());
        let proof = verifier(records).await.verify(raw, &mail, &from).await;
        let found = match &proof {
            SenderProof::Proven(ProofMethod::Signature) => "proven",
            SenderProof::Proven(ProofMethod::Server) => "sent",
            SenderProof::Unproven(_) => "not",
            SenderProof::Unknown(_) => "unknown",
        };
        assert_eq!(found, *expected, "{what}: {proof:?}");
    }
}

/// Somebody who got a signed mail of the owner sends it to the account with other fields.
#[tokio::test]
async fn fields_that_others_add_to_a_signed_mail_do_not_give_orders() {
    const MAIL: &str = "From: ann@example.org\r\nTo: bob@example.net\r\nSubject: Hello\r\nMessage-ID: <1@x>\r\n\
                        Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nHello\r\n--b--\r\n";
    let config = EmailConfig {
        trust: TrustMethod::Verify,
        allow_from: AllowList::new(["ann@example.org"]),
        ..EmailConfig::default()
    };
    let lists = SenderLists { owners: vec!["ann@example.org".to_owned()], ..SenderLists::default() };
    let dns = [("s._domainkey.example.org", KEY), ("_dmarc.example.org", "v=DMARC1; p=reject")];
    let authenticator =
        SenderAuthenticator::new(&config, TrustLists::of_one("email", lists)).verified_by(verifier(&dns).await);
    let good = String::from_utf8(signed(MAIL, "example.org")).unwrap();
    let weak = String::from_utf8(signed_fields(MAIL, "example.org", &["From", "Date"])).unwrap();
    let retyped = good.replace("multipart/mixed; boundary=b", "text/plain");
    for (what, mail, expected) in [
        ("as it was written", good.clone(), Trust::Owner),
        ("a second subject", format!("Subject: Pay\r\n{good}"), Trust::Untrusted),
        ("a second id", format!("Message-ID: <2@x>\r\n{good}"), Trust::Untrusted),
        ("a second type", format!("Content-Type: text/plain\r\n{good}"), Trust::Untrusted),
        ("another type", retyped, Trust::Untrusted),
        ("an unsigned subject", weak.replace("Hello\r\nMessage", "Pay\r\nMessage"), Trust::Untrusted),
        ("sent on by another", format!("Resent-From: eve@evil.test\r\n{good}"), Trust::Untrusted),
    ] {
        let parsed = parse_mail(mail.as_bytes(), &ParseLimits::default());
        let decision = authenticator.authenticate(mail.as_bytes(), &parsed).await;
        assert_eq!(decision, SenderDecision::Accept { trust: expected }, "{what}");
    }
}
