use super::*;
use crate::webhook::{Verify, WebhookConfig};

// The published test vector of Standard Webhooks.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
const TIME: i64 = 1_614_265_330;
const BODY: &[u8] = br#"{"test": 2432232314}"#;
const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

// The published test vector of GitHub, and the example of Slack's documentation.
const GITHUB_SECRET: &str = "It's a Secret to Everybody";
const GITHUB_BODY: &[u8] = b"Hello, World!";
const GITHUB_VECTOR: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
const SLACK_SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";
const SLACK_TIME: i64 = 1_531_420_618;
const SLACK_BODY: &[u8] =
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V\
    &channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=\
    &response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN\
    &trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
const SLACK_VECTOR: &str = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";

type Pairs<'a> = &'a [(&'static str, &'a str)];

fn headers(pairs: Pairs<'_>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, value.parse().unwrap());
    }
    headers
}

fn verifier(verify: Verify, secret: &str) -> Verifier {
    let secret = Some(Secret::new(secret));
    WebhookConfig { verify, secret, ..WebhookConfig::default() }.verifier(true).unwrap()
}

/// Performs both halves of the check.
fn check_request(verifier: &Verifier, pairs: Pairs<'_>, body: &[u8], now: i64) -> Result<(), String> {
    let headers = headers(pairs);
    // The body arrives in pieces of any size.
    for size in [1, 7, body.len().max(1)] {
        let mut check = verifier.before_body(&headers, None, now)?.expect("these are signed");
        body.chunks(size).for_each(|chunk| check.update(chunk));
        check.finish()?;
    }
    Ok(())
}

/// Asserts that a request passes if `words` is empty, and otherwise that the refusal contains `words`.
fn assert_outcome(verifier: &Verifier, pairs: Pairs<'_>, body: &[u8], now: i64, words: &str) {
    let outcome = check_request(verifier, pairs, body, now);
    let is_expected = match &outcome {
        Ok(()) => words.is_empty(),
        Err(error) => !words.is_empty() && error.contains(words),
    };
    assert!(is_expected, "{pairs:?} {outcome:?} {words}");
}

#[test]
fn the_published_vector_is_signed_as_published() {
    let key = SigningKey::standard(&Secret::new(SECRET)).unwrap();
    assert_eq!(key.sign(ID, &TIME.to_string(), BODY), SIGNATURE);
}

#[test]
fn a_standard_signature_holds_for_its_body_and_time_alone() {
    let two = format!("v1a,xyz {SIGNATURE}");
    let other = "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let table: &[(&str, i64, &[u8], bool)] = &[
        (SIGNATURE, 0, BODY, true),
        (&two, 0, BODY, true),
        (SIGNATURE, 299, BODY, true),
        (SIGNATURE, -299, BODY, true),
        (SIGNATURE, 301, BODY, false),
        (SIGNATURE, -301, BODY, false),
        (SIGNATURE, 0, b"{}", false),
        (other, 0, BODY, false),
        ("v1,", 0, BODY, false),
        ("v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", 0, BODY, false),
    ];
    let standard = verifier(Verify::Standard, SECRET);
    let time = TIME.to_string();
    for (signature, later, body, expected) in table {
        let pairs = [(HEADER_ID, ID), (HEADER_TIMESTAMP, &time), (HEADER_SIGNATURE, signature)];
        let outcome = check_request(&standard, &pairs, body, TIME + later);
        assert_eq!(outcome.is_ok(), *expected, "{signature} {later} {outcome:?}");
    }
    for missing in [HEADER_ID, HEADER_TIMESTAMP, HEADER_SIGNATURE] {
        let all = [(HEADER_ID, ID), (HEADER_TIMESTAMP, &time), (HEADER_SIGNATURE, SIGNATURE)];
        let some: Vec<_> = all.iter().filter(|(name, _)| *name != missing).copied().collect();
        let message = check_request(&standard, &some, BODY, TIME).unwrap_err();
        assert!(message.contains(missing) && message.contains("missing"), "{message}");
        let twice: Vec<_> = all.iter().chain(all.iter().filter(|(name, _)| *name == missing)).copied().collect();
        let message = check_request(&standard, &twice, BODY, TIME).unwrap_err();
        assert!(message.contains(missing) && message.contains("more than once"), "{message}");
    }
}

#[test]
fn github_signs_the_body() {
    let github = verifier(Verify::Github, GITHUB_SECRET);
    let upper = format!("sha256={}", GITHUB_VECTOR["sha256=".len()..].to_uppercase());
    let table: &[(Pairs<'_>, &[u8], &str)] = &[
        (&[(GITHUB_SIGNATURE, GITHUB_VECTOR)], GITHUB_BODY, ""),
        (&[(GITHUB_SIGNATURE, &upper)], GITHUB_BODY, ""),
        (&[(GITHUB_SIGNATURE, GITHUB_VECTOR)], b"Hello, World?", "is wrong"),
        (&[(GITHUB_SIGNATURE, GITHUB_VECTOR)], b"", "is wrong"),
        (&[(GITHUB_SIGNATURE, &GITHUB_VECTOR[..70])], GITHUB_BODY, "64 hexadecimal digits"),
        (&[(GITHUB_SIGNATURE, &GITHUB_VECTOR["sha256=".len()..])], GITHUB_BODY, "64 hexadecimal digits"),
        (&[("x-hub-signature", GITHUB_VECTOR)], GITHUB_BODY, "x-hub-signature-256 is missing"),
        (&[(GITHUB_SIGNATURE, GITHUB_VECTOR), (GITHUB_SIGNATURE, GITHUB_VECTOR)], GITHUB_BODY, "more than once"),
    ];
    for (pairs, body, words) in table {
        assert_outcome(&github, pairs, body, TIME, words);
    }
    let other = verifier(Verify::Github, "another secret");
    assert!(check_request(&other, &[(GITHUB_SIGNATURE, GITHUB_VECTOR)], GITHUB_BODY, TIME).is_err());
}

#[test]
fn slack_signs_time_and_body() {
    let slack = verifier(Verify::Slack, SLACK_SECRET);
    let (time, later) = (SLACK_TIME.to_string(), (SLACK_TIME + 1).to_string());
    let signed = (SLACK_SIGNATURE, SLACK_VECTOR);
    let table: &[(Pairs<'_>, &[u8], i64, &str)] = &[
        (&[signed, (SLACK_TIMESTAMP, &time)], SLACK_BODY, 0, ""),
        (&[signed, (SLACK_TIMESTAMP, &time)], SLACK_BODY, 299, ""),
        (&[signed, (SLACK_TIMESTAMP, &time)], SLACK_BODY, -299, ""),
        (&[signed, (SLACK_TIMESTAMP, &time)], SLACK_BODY, 301, "seconds off"),
        (&[signed, (SLACK_TIMESTAMP, &time)], SLACK_BODY, -301, "seconds off"),
        (&[signed, (SLACK_TIMESTAMP, &later)], SLACK_BODY, 0, "is wrong"),
        (&[signed, (SLACK_TIMESTAMP, &time)], &SLACK_BODY[1..], 0, "is wrong"),
        (&[signed, (SLACK_TIMESTAMP, "soon")], SLACK_BODY, 0, "no Unix time"),
        (&[signed, (SLACK_TIMESTAMP, "99999999999999999999")], SLACK_BODY, 0, "no Unix time"),
        (&[signed], SLACK_BODY, 0, "is missing"),
        (&[(SLACK_TIMESTAMP, &time)], SLACK_BODY, 0, "is missing"),
    ];
    for (pairs, body, later, words) in table {
        assert_outcome(&slack, pairs, body, SLACK_TIME + later, words);
    }
}

#[test]
fn stripe_signs_time_and_body_with_one_key_or_two() {
    // Signed with openssl: printf '1614265330.{"test": 2432232314}' | openssl dgst -sha256 -hmac whsec_stripe
    const RIGHT: &str = "7c697075eead9e1bfb28aecfba2711369b5f864b61e25df78f4201f6f1e42151";
    let other = "00".repeat(32);
    let stripe = verifier(Verify::Stripe, "whsec_stripe");
    let table = [
        (format!("t={TIME},v1={RIGHT}"), 0, ""),
        (format!("t={TIME},v1={RIGHT},v0={other}"), 299, ""),
        (format!("t={TIME}, v1={other}, v1={RIGHT}"), -299, ""),
        (format!("v1={RIGHT},t={TIME}"), 0, ""),
        (format!("t={TIME},v1={RIGHT}"), 301, "seconds off"),
        (format!("t={TIME},v1={RIGHT}"), -301, "seconds off"),
        (format!("t={TIME},v1={other}"), 0, "is wrong"),
        (format!("t={TIME},v0={RIGHT}"), 0, "is not \"t=TIME"),
        (format!("v1={RIGHT}"), 0, "is not \"t=TIME"),
        (format!("t={},t={TIME},v1={RIGHT}", TIME + 1), 0, "more than one time"),
        (format!("t={TIME}{},v1={RIGHT}", format!(",v1={other}").repeat(100)), 0, "is wrong"),
        ("t=,v1=".to_owned(), 0, "is not \"t=TIME"),
        (",,,===".to_owned(), 0, "is not \"t=TIME"),
    ];
    for (header, later, words) in table {
        assert_outcome(&stripe, &[(STRIPE_SIGNATURE, &header)], BODY, TIME + later, words);
    }
    assert!(check_request(&stripe, &[(STRIPE_SIGNATURE, &format!("t={TIME},v1={RIGHT}"))], b"{}", TIME).is_err());
}

#[test]
fn bearer_and_loopback() {
    let bearer = verifier(Verify::Bearer, "s3cret");
    for (value, expected) in [
        ("Bearer s3cret", true),
        ("bearer s3cret", true),
        ("Bearer s3cre", false),
        ("s3cret", false),
        ("Basic s3cret", false),
    ] {
        let headers = headers(&[("authorization", value)]);
        assert_eq!(bearer.without_body(&headers, None).is_ok(), expected, "{value}");
        // Every webhook accepts the bearer secret for lookups, whatever its signature scheme.
        let slack = verifier(Verify::Slack, "s3cret");
        assert_eq!(slack.without_body(&headers, None).is_ok(), expected, "{value}");
    }
    assert!(bearer.without_body(&HeaderMap::new(), None).is_err());
    let secret = "geheimnis-öäü-密钥";
    for (value, expected) in [(format!("Bearer {secret} "), true), (format!("Bearer {secret}x"), false)] {
        let value = axum::http::HeaderValue::from_bytes(value.as_bytes()).unwrap();
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
        assert_eq!(verifier(Verify::Bearer, secret).without_body(&headers, None).is_ok(), expected);
    }
    let table =
        [(None, false), (Some("127.0.0.1"), true), (Some("::ffff:127.0.0.1"), true), (Some("192.0.2.1"), false)];
    let table = table.map(|(client, expected)| (client.map(|ip| ClientAddr(ip.parse().unwrap())), expected));
    for (client, expected) in table.into_iter().chain([(Some(ClientAddr::UNKNOWN), false)]) {
        let outcome = Verifier::Loopback.before_body(&HeaderMap::new(), client, 0);
        assert_eq!(outcome.is_ok(), expected, "{client:?}");
    }
}

#[test]
fn secrets_are_read_as_each_scheme_writes_them() {
    let signed = |key: Result<SigningKey, String>| key.map(|key| key.sign("i", "1", b"{}"));
    let secret = |text: &str| Secret::new(text);
    let standard = signed(SigningKey::standard(&secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")));
    assert_eq!(standard, signed(SigningKey::standard(&secret("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))));
    assert_eq!(standard, signed(SigningKey::of_any(&secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))));
    assert_ne!(standard, signed(SigningKey::of_text(&secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))));
    assert!(SigningKey::standard(&secret("whsec_not base64!")).is_err());
    assert!(SigningKey::of_any(&secret("")).is_err());
}

#[test]
fn a_key_that_can_be_guessed_is_weak() {
    let key = |bytes: &str| STANDARD.encode(bytes);
    for (text, expected) in [
        ("abc".to_owned(), true),
        (format!("whsec_{}", key("secret")), true),
        (format!("whsec_{}", key("23 bytes are too little")), true),
        (format!("whsec_{}", key("24 bytes are just enough")), false),
        (key("24 bytes are just enough"), false),
        // This has an error of its own.
        ("whsec_?".to_owned(), false),
    ] {
        assert_eq!(is_weak_standard(&Secret::new(text.as_str())), expected, "{text}");
    }
}

#[test]
fn hexadecimal_is_64_digits() {
    let good = "00ff".repeat(16);
    assert_eq!(unhex(&good), Some([0, 255].repeat(16).try_into().unwrap()));
    assert_eq!(unhex(&good.to_uppercase()), unhex(&good));
    for wrong in ["", "00", &good[1..], &"zz".repeat(32), &format!("{good}0"), &"é".repeat(32)] {
        assert_eq!(unhex(wrong), None, "{wrong}");
    }
}
