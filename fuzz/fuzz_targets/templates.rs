//! Templates of a webhook: any text is compiled or refused, and templates of owners render any JSON.
#![no_main]

use std::sync::LazyLock;

use axum::http::{HeaderMap, Uri};
use daoyou_channels::settings::Secret;
use daoyou_channels::webhook::{ParsedRequest, RequestParser, Verify, WebhookConfig};
use libfuzzer_sys::fuzz_target;

static PARSER: LazyLock<RequestParser> = LazyLock::new(|| {
    let some = |text: &str| Some(text.to_owned());
    let config = WebhookConfig {
        verify: Verify::Bearer,
        secret: Some(Secret::new("s")),
        content: some(
            "{{ body.a | default(body) }} {% for x in body.list | default([]) %}{{ loop.index }}{{ x | upper }}\
             {% endfor %}{{ body | tojson }}{{ headers.x_y | default('') }}{{ body.n | default(1) | int + 1 }}",
        ),
        chat_id: some("{{ body.chat | default('c') | replace('a', 'b') | trim }}"),
        sender: some("{{ body.by.name | default('') | lower }}"),
        id: some("{{ body.id | default(none) }}"),
        session: some("{{ body.s[0:3] if body.s is string else 's' }}"),
        ..WebhookConfig::default()
    };
    RequestParser::new("n", &config, true).expect("these templates are right")
});

fuzz_target!(|data: &[u8]| {
    let Some((which, rest)) = data.split_first() else { return };
    if which % 2 == 0 {
        let content = String::from_utf8_lossy(rest).into_owned();
        let config = WebhookConfig { content: Some(content), ..WebhookConfig::default() };
        assert!(config.faults("n").iter().all(|fault| fault.key == "content" && !fault.wrong.is_empty()));
        return;
    }
    match PARSER.read(&HeaderMap::new(), &Uri::from_static("/webhook/n"), rest) {
        Ok(ParsedRequest::Message(message)) => {
            assert!(!message.content.trim().is_empty() && message.content.len() <= 1 << 20);
            assert!(message.session_key().as_str().starts_with("webhook:n:"));
        }
        Ok(ParsedRequest::Answer(answer)) => panic!("{answer}"),
        Err(error) => assert!(matches!(error.status.as_u16(), 400 | 403 | 422), "{error:?}"),
    }
});
