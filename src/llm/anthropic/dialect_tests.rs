//! Tests of the dialect through a provider, with a fake service on this machine.

use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::settings::{HumanDuration, Secret};
use serde_json::json;

use super::*;
use crate::chat::ChatMessage;
use crate::llm::remote::RemoteProvider;
use crate::llm::remote::fake_service::{FakeService, Then, broken_stream, status, stream};
use crate::llm::{ChatResponse, LlmError, LlmErrorKind, Models, NoDeltas, Provider, ProviderConfig, ProviderKind};

const KEY: &str = "sk-canary-0123456789";
const HELLO: &[&str] = &[
    r#"{"type":"message_start","message":{"model":"claude-x","usage":{"input_tokens":3}}}"#,
    r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}"#,
    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}"#,
    r#"{"type":"message_stop"}"#,
];

fn provider(url: &str, change: impl FnOnce(&mut ProviderConfig)) -> RemoteProvider {
    let mut config = ProviderConfig {
        kind: Some(ProviderKind::Anthropic),
        base_url: Some(url.to_owned()),
        api_key: Some(Secret::new(KEY)),
        retries: 0,
        ..ProviderConfig::default()
    };
    change(&mut config);
    RemoteProvider::new("acme", &config, Arc::default()).unwrap()
}

async fn ask(provider: &RemoteProvider) -> Result<ChatResponse, LlmError> {
    let request = ChatRequest {
        model: "m".to_owned(),
        messages: vec![ChatMessage::user("hi").into()],
        temperature: Some(0.5),
        ..ChatRequest::default()
    };
    provider.chat(&request, &NoDeltas).await
}

#[tokio::test]
async fn a_request_has_the_heads_and_the_body_of_the_protocol() {
    let mut service = FakeService::start([stream(HELLO)]).await;
    let response = ask(&provider(&service.url, |_| {})).await.unwrap();
    assert_eq!((response.text.as_str(), response.usage.input_tokens), ("Hello", 3));
    let request = service.next_request().await;
    assert!(request.starts_with("POST /v1/messages HTTP/1.1\r\n"), "{request}");
    for header in [format!("x-api-key: {KEY}\r\n"), "anthropic-version: 2023-06-01\r\n".to_owned()] {
        assert!(request.contains(&header), "{request}");
    }
    assert!(!request.contains("authorization"), "{request}");
    let body = r#"{"model":"m","max_tokens":8192,"messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]}],"temperature":0.5,"stream":true}"#;
    assert!(request.ends_with(body), "{request}");
}

#[tokio::test]
async fn parameters_that_a_model_refuses_are_left_out_from_then_on() {
    let refuse = |words: &str| {
        status(
            400,
            "",
            &json!({"type": "error", "error": {"type": "invalid_request_error", "message": words}}).to_string(),
        )
    };
    let mut service = FakeService::start([
        refuse("\"thinking.type.enabled\" is not supported for this model. Use \"thinking.type.adaptive\"."),
        stream(HELLO),
        stream(HELLO),
        refuse("this model does not support thinking"),
        refuse("`temperature` is deprecated for this model."),
        stream(HELLO),
        refuse("messages: something else is not supported"),
    ])
    .await;
    let provider = provider(&service.url, |config| config.thinking = 1_024);
    for _ in 0..3 {
        assert_eq!(ask(&provider).await.unwrap().text, "Hello");
    }
    assert_eq!(ask(&provider).await.unwrap_err().kind, LlmErrorKind::BadRequest);
    let mut asked = Vec::new();
    for _ in 0..7 {
        let request = service.next_request().await;
        let has = |text: &str| request.contains(text);
        asked.push((has("\"enabled\""), has("\"adaptive\""), has("\"temperature\"")));
    }
    let (enabled, adaptive, warm, bare) =
        ((true, false, false), (false, true, false), (false, false, true), (false, false, false));
    assert_eq!(asked, [enabled, adaptive, adaptive, adaptive, warm, bare, bare]);
}

#[tokio::test]
async fn pings_alone_do_not_keep_it_waiting() {
    let ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n";
    let chunk: &'static [u8] = format!("{:x}\r\n{ping}\r\n", ping.len()).leak().as_bytes();
    let service = FakeService::start([broken_stream("", Then::Repeat(chunk))]).await;
    let provider = provider(&service.url, |config| config.idle_timeout = HumanDuration::from_millis(80));
    let error = ask(&provider).await.unwrap_err();
    assert_eq!(error.to_string(), "acme: the service sent no data for 80ms (idle_timeout)");
}

#[tokio::test]
async fn models_are_listed_page_by_page() {
    let mut service = FakeService::start([
        status(200, "", r#"{"data":[{"id":"a"},{"id":"b"}],"has_more":true,"first_id":"a","last_id":"b&x"}"#),
        status(200, "", r#"{"data":[{"id":"c"}],"has_more":false,"first_id":"c","last_id":"c"}"#),
    ])
    .await;
    let models = provider(&service.url, |_| {}).models(Duration::from_secs(5)).await.unwrap();
    assert_eq!(models, ["a", "b", "c"]);
    assert!(service.next_request().await.starts_with("GET /v1/models HTTP/1.1\r\n"));
    assert!(service.next_request().await.starts_with("GET /v1/models?after_id=b%26x HTTP/1.1\r\n"));
}

/// `[providers.anthropic]` needs no `kind`, and accepts another one for a proxy with another protocol.
#[tokio::test]
async fn the_known_service_speaks_it_by_its_name() {
    for (kind, header) in [(None, "x-api-key: "), (Some(ProviderKind::Openai), "authorization: Bearer ")] {
        let mut service = FakeService::start([status(200, "", r#"{"data":[]}"#)]).await;
        let (base_url, api_key) = (Some(service.url.clone()), Some(Secret::new(KEY)));
        let config = ProviderConfig { kind, base_url, api_key, ..ProviderConfig::default() };
        let configs = [("anthropic".to_owned(), config)].into();
        let models = Models::build(&configs, |_| None).unwrap();
        let (_, provider) = models.services().find(|(name, _)| *name == "anthropic").unwrap();
        provider.models(Duration::from_secs(5)).await.unwrap();
        assert!(service.next_request().await.contains(&format!("{header}{KEY}\r\n")), "{kind:?}");
    }
}

#[test]
fn a_budget_for_thinking_that_no_service_takes_is_named() {
    let made = |kind, thinking| {
        let base_url = Some("http://localhost/v1".to_owned());
        let config = ProviderConfig { kind, thinking, base_url, ..ProviderConfig::default() };
        RemoteProvider::new("acme", &config, Arc::default()).err().unwrap_or_default()
    };
    let anthropic = Some(ProviderKind::Anthropic);
    for (kind, thinking, fault) in [
        (anthropic, 0, ""),
        (anthropic, 1_024, ""),
        (anthropic, 1_023, "thinking: must be 0 (off) or at least 1024 tokens"),
        (None, 1_024, "thinking: is a setting of kind = \"anthropic\""),
    ] {
        assert_eq!(made(kind, thinking), fault, "{kind:?} {thinking}");
    }
}
