use std::time::Duration;

use indexmap::IndexMap;

use super::*;
use crate::chat::ChatMessage;
use crate::llm::provider::DeltaRecorder;
use crate::llm::remote::fake_service::{FakeService, Step, Then, broken_stream, status, stream};
use crate::llm::{LlmErrorKind, NoDeltas, ProviderConfig};

const HALF: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\n";

fn hello() -> Step {
    stream(&[r#"{"choices":[{"delta":{"content":"Hello"},"finish_reason":"stop"}]}"#, "[DONE]"])
}

fn request() -> ChatRequest {
    ChatRequest { messages: vec![ChatMessage::user("hi").into()], ..ChatRequest::default() }
}

fn models(urls: &[(&str, &str)]) -> Arc<Models> {
    let config = |url: &str| ProviderConfig { base_url: Some(url.to_owned()), retries: 0, ..ProviderConfig::default() };
    let configs: IndexMap<_, _> = urls.iter().map(|(name, url)| ((*name).to_owned(), config(url))).collect();
    Arc::new(Models::build(&configs, |_| None).unwrap())
}

async fn chain(models: &Arc<Models>, fallback: &[&str], answered: &str) -> FallbackChain {
    let fallback: Vec<_> = fallback.iter().map(|name| (*name).to_owned()).collect();
    FallbackChain::new(models.clone(), "one/m1", &fallback, answered, Box::new(|_, _| {})).await.unwrap()
}

/// The first member's answer, whether the second member is asked, and the result.
#[tokio::test]
async fn the_next_is_asked_unless_the_request_itself_is_at_fault() {
    let too_long = r#"{"error":{"code":"context_length_exceeded"}}"#;
    for (first, second, asked, expected) in [
        (status(401, "", ""), hello(), 1, "two Hello"),
        (status(404, "", ""), hello(), 1, "two Hello"),
        (status(429, "retry-after: 86400\r\n", ""), hello(), 1, "two Hello"),
        (status(500, "", ""), hello(), 1, "two Hello"),
        (status(503, "", ""), hello(), 1, "two Hello"),
        (Step { bytes: Vec::new(), then: Then::Close }, hello(), 1, "two Hello"),
        (status(400, "", ""), hello(), 0, "llm_bad_request, outage false: one: HTTP 400"),
        (status(400, "", too_long), hello(), 0, "llm_context_too_long, outage false: one: HTTP 400"),
        (status(503, "", ""), status(400, "", ""), 1, "llm_bad_request, outage false: two: HTTP 400"),
        (status(503, "", ""), status(500, "", ""), 1, "llm_server_error, outage true: one: HTTP 503; two: HTTP 500"),
        (status(401, "", ""), status(404, "", ""), 1, "llm_auth, outage true: one: HTTP 401; two: HTTP 404"),
        (status(503, "", ""), status(502, "", ""), 1, "llm_server_error, outage true: one: HTTP 503; two: HTTP 502"),
    ] {
        let (one, mut two) = (FakeService::start([first]).await, FakeService::start([second]).await);
        let models = models(&[("one", &one.url), ("two", &two.url)]);
        let chain = chain(&models, &["one/m1", "two/m2"], "").await;
        let outcome = match chain.chat(&mut request(), &NoDeltas).await {
            Ok(response) => format!("{} {}", chain.current().provider.name(), response.text),
            Err(error) => format!("{}, outage {}: {error}", error.code(), error.is_outage()),
        };
        assert_eq!(outcome, expected);
        assert_eq!(chain.failure().is_some(), expected.starts_with("llm"), "{expected}");
        let requests =
            two.seen_so_far().into_iter().filter(|seen| format!("{seen:?}").contains("\\\"model\\\":\\\"m2\\\""));
        assert_eq!(requests.count(), asked, "{expected}");
    }
}

#[tokio::test]
async fn a_turn_stays_with_what_answered_and_what_was_shown_is_taken_back() {
    let one = FakeService::start([broken_stream(HALF, Then::Close), hello()]).await;
    let two = FakeService::start([hello(), hello(), status(500, "", "")]).await;
    let models = models(&[("one", &one.url), ("two", &two.url)]);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let tell = heard.clone();
    let on_answer = Box::new(move |asked: &[ModelChoice], failures: &[LlmError]| {
        assert_eq!(asked.len(), failures.len() + 1);
        assert!(failures.iter().zip(asked).all(|(failure, model)| failure.provider == model.provider.name()));
        tell.lock().push(asked.iter().map(ToString::to_string).collect::<Vec<_>>().join(">"));
    });
    let chain = FallbackChain::new(models.clone(), "one/m1", &["two/m2".to_owned()], "", on_answer).await.unwrap();
    let notes = DeltaRecorder::default();
    for expected in ["two/m2", "two/m2", "one/m1"] {
        chain.chat(&mut request(), &notes).await.unwrap();
        assert_eq!(chain.current().to_string(), expected);
    }
    assert_eq!(notes.0.into_inner(), ["Hel", "<restart>", "Hello", "Hello", "Hello"]);
    assert_eq!(*heard.lock(), ["one/m1>two/m2", "two/m2", "two/m2>one/m1"]);
    assert_eq!(chain.providers(), ["one", "two"]);

    for (answered, expected) in [("two", "two/m2"), ("one", "one/m1"), ("gone", "one/m1"), ("", "one/m1")] {
        assert_eq!(self::chain(&models, &["two/m2"], answered).await.current().to_string(), expected, "{answered}");
    }
}

/// A stalled member may answer the next time, whatever waits the others have; and a name without a model does not keep the
/// chain from asking other members.
#[tokio::test]
async fn a_refused_key_of_one_does_not_make_the_others_wait() {
    let one = FakeService::start([broken_stream(HALF, Then::Close)]).await;
    let two = FakeService::start([status(401, "", "")]).await;
    let models = models(&[("one", &one.url), ("two", &two.url)]);
    let chain = chain(&models, &["two/m2"], "").await;
    let error = chain.chat(&mut request(), &NoDeltas).await.unwrap_err();
    assert!(error.kind == LlmErrorKind::Auth && error.is_service_condition(), "{error}");
    assert_eq!((error.retry_after, chain.asked_last()), (None, "two/m2".to_owned()));

    let empty = FakeService::start([status(200, "", r#"{"object":"list","data":null}"#)]).await;
    let models = self::models(&[("ollama", &empty.url), ("two", &two.url)]);
    let chain = FallbackChain::new(models, "ollama", &["two/m2".to_owned()], "", Box::new(|_, _| {})).await.unwrap();
    assert_eq!(chain.current().to_string(), "two/m2");
}

/// No server listens, so each call fails at once. After five consecutive failures, the provider is not even asked.
#[tokio::test]
async fn members_with_an_open_breaker_are_skipped_and_say_when_they_may_be_asked() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let models = models(&[("one", &dead), ("two", &dead)]);
    let chain = chain(&models, &["two/m2", "nobody/x"], "").await;
    for number in 0..7 {
        let error = chain.chat(&mut request(), &NoDeltas).await.unwrap_err();
        assert!(error.is_outage() && error.kind == LlmErrorKind::Connection, "{error}");
        let wait = error.retry_after.map(|wait| wait.as_secs());
        assert_eq!(wait.is_some_and(|secs| (8..=10).contains(&secs)), number >= 5, "{number}: {wait:?}");
        assert!(error.message.contains("; two: ") && error.retry_after <= Some(Duration::from_secs(10)), "{error}");
    }
    for (_, provider) in models.services().filter(|(name, _)| ["one", "two"].contains(name)) {
        assert_eq!((provider.circuit().0.as_str(), provider.circuit().1), ("open", 1));
    }
}
