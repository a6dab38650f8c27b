//! The request parser of a webhook: headers and a body as anyone may send them. Nothing unauthenticated passes, and
//! an authenticated request is a message within its limits, an answer, or an error.
#![no_main]

use std::sync::LazyLock;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use daoyou_channels::settings::Secret;
use daoyou_channels::webhook::{ParsedRequest, RequestParser, Verify, WebhookConfig};
use libfuzzer_sys::fuzz_target;

const NAMES: [&str; 11] = [
    "authorization", "content-type", "idempotency-key", "stripe-signature", "webhook-id", "webhook-signature",
    "webhook-timestamp", "x-github-delivery", "x-hub-signature-256", "x-slack-request-timestamp", "x-slack-signature",
];

static PARSERS: LazyLock<Vec<RequestParser>> = LazyLock::new(|| {
    [Verify::Standard, Verify::Github, Verify::Stripe, Verify::Slack, Verify::Bearer]
        .into_iter()
        .map(|verify| {
            let secret = Some(Secret::new("whsec_c2VjcmV0IHRoYXQgbm9ib2R5IGd1ZXNzZXM"));
            let config = WebhookConfig { verify, secret, ..WebhookConfig::default() };
            RequestParser::new("n", &config, true).expect("these settings are right")
        })
        .collect()
});

/// Parses lines of a header's number and its value, an empty line, and the body.
fn parse(data: &[u8]) -> (HeaderMap, &[u8]) {
    let mut headers = HeaderMap::new();
    let mut rest = data;
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = &rest[..end];
        rest = &rest[end + 1..];
        let Some((number, value)) = line.split_first() else { break };
        if let Ok(value) = HeaderValue::from_bytes(value) {
            let name = NAMES[usize::from(*number) % NAMES.len()];
            headers.append(HeaderName::from_static(name), value);
        }
    }
    (headers, rest)
}

fuzz_target!(|data: &[u8]| {
    let (headers, body) = parse(data);
    let uri = Uri::from_static("/webhook/n?wait=1");
    for parser in PARSERS.iter() {
        assert!(parser.take(&headers, &uri, body, None, 1_700_000_000).is_err(), "nobody knows the secret");
        match parser.read(&headers, &uri, body) {
            Ok(ParsedRequest::Message(message)) => {
                assert!(!message.content.trim().is_empty());
                assert!(message.chat_id.chars().count() <= 256 && message.sender.chars().count() <= 256);
                assert!(message.external_id.is_none_or(|id| !id.is_empty() && id.chars().count() <= 256));
                assert!(message.session.is_none_or(|key| key.as_str().starts_with("webhook:n:")));
                assert!(message.metadata.keys().all(|key| key == "external_id"));
            }
            Ok(ParsedRequest::Answer(answer)) => assert!(answer.is_object()),
            Err(error) => assert!(matches!(error.status.as_u16(), 400 | 422), "{error:?}"),
        }
    }
});
