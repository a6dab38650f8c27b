use daoyou_channels::settings::HumanDuration;
use serde_json::json;

use super::*;
use crate::chat::{ChatMessage, ImageRef, ToolSpec};
use crate::llm::provider::DeltaRecorder;
use crate::llm::remote::fake_service::{FakeService, Seen, Step, Then, broken_stream, status, stream};
use crate::llm::{Image, NoDeltas};

const KEY: &str = "sk-canary-0123456789";
const HELLO: &[&str] = &[r#"{"choices":[{"delta":{"content":"Hello"},"finish_reason":"stop"}]}"#, "[DONE]"];
const HALF: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\n";

/// Returns a provider for `url` without waits between tries, and with short deadlines if `change` sets them.
fn provider(url: &str, change: impl FnOnce(&mut ProviderConfig)) -> RemoteProvider {
    let mut config =
        ProviderConfig { base_url: Some(url.to_owned()), api_key: Some(Secret::new(KEY)), ..ProviderConfig::default() };
    change(&mut config);
    let mut provider = RemoteProvider::new("acme", &config, Arc::default()).unwrap();
    provider.retry.first_wait = Duration::ZERO;
    provider
}

fn request() -> ChatRequest {
    ChatRequest { model: "m".to_owned(), messages: vec![ChatMessage::user("hi").into()], ..ChatRequest::default() }
}

async fn ask(script: impl IntoIterator<Item = Step>) -> (Result<ChatResponse, LlmError>, Vec<String>, Vec<Seen>) {
    let mut service = FakeService::start(script).await;
    let notes = DeltaRecorder::default();
    let result = provider(&service.url, |_| {}).chat(&request(), &notes).await;
    (result, notes.0.into_inner(), service.seen_so_far())
}

fn requests(seen: &[Seen]) -> usize {
    // Requests for lists of models do not count.
    seen.iter().filter(|seen| matches!(seen, Seen::Request(request) if request.starts_with("POST "))).count()
}

#[tokio::test]
async fn an_answer_is_streamed_and_the_connection_used_again() {
    let mut service = FakeService::start([stream(HELLO), stream(HELLO), stream(HELLO)]).await;
    let provider = provider(&service.url, |config| {
        config.headers.insert("x-title".to_owned(), Secret::new("daoyou"));
    });
    for _ in 0..3 {
        assert_eq!(provider.chat(&request(), &NoDeltas).await.unwrap().text, "Hello");
    }
    let seen = service.seen_so_far();
    assert_eq!(seen.iter().filter(|seen| **seen == Seen::Connection).count(), 1);
    let Seen::Request(request) = &seen[1] else { panic!("{seen:?}") };
    assert!(request.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{request}");
    assert!(request.contains(&format!("authorization: Bearer {KEY}\r\n")), "{request}");
    assert!(request.contains("x-title: daoyou\r\n"), "{request}");
    assert!(request.ends_with(r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}"#));
}

#[tokio::test]
async fn an_answer_that_is_none_is_reported_with_its_first_characters() {
    for (body, expected) in [
        ("Internal error happened", "unreadable answer: Internal error happened"),
        ("null", "unreadable answer: null"),
        ("[]", "unreadable answer: []"),
        ("\u{feff}null", "unreadable answer: null"),
        ("", "the answer is empty"),
        ("\n\u{feff} \n", "the answer is empty"),
    ] {
        let service = FakeService::start([status(200, "", body)]).await;
        let answered = provider(&service.url, |config| config.retries = 0).chat(&request(), &NoDeltas).await;
        let error = answered.unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (LlmErrorKind::Parse, expected), "{body:?}");
        assert!(!error.to_public().contains("Internal error"), "{error:?}");
    }
    // A stream that ends before its first event began well.
    for body in [": ping\n\n", "event: x\n", "data: {"] {
        let service = FakeService::start([status(200, "", body)]).await;
        let answered = provider(&service.url, |config| config.retries = 0).chat(&request(), &NoDeltas).await;
        assert_eq!(answered.unwrap_err().kind, LlmErrorKind::Connection, "{body:?}");
    }
}

#[tokio::test]
async fn an_answer_may_begin_with_a_byte_order_mark_and_split_surrogate_pairs() {
    let whole = r#"{"choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}]}"#;
    let (result, ..) = ask([status(200, "", &format!("\u{feff}{whole}"))]).await;
    assert_eq!(result.unwrap().text, "Hello");
    let halves = [
        r#"{"choices":[{"delta":{"content":"ab\ud83d"}}]}"#,
        r#"{"choices":[{"delta":{"content":"\ude00cd \ude00"}}]}"#,
        r#"{"choices":[{"delta":{"content":""},"finish_reason":"stop"}]}"#,
    ];
    let (result, shown, _) = ask([stream(&halves)]).await;
    assert_eq!((result.unwrap().text.as_str(), shown.concat().as_str()), ("ab😀cd \u{fffd}", "ab😀cd \u{fffd}"));
}

#[tokio::test]
async fn a_hundred_calls_go_over_one_connection() {
    let mut service = FakeService::start((0..100).map(|_| stream(HELLO))).await;
    let provider = provider(&service.url, |_| {});
    for _ in 0..100 {
        provider.chat(&request(), &NoDeltas).await.unwrap();
    }
    let seen = service.seen_so_far();
    assert_eq!((requests(&seen), seen.iter().filter(|seen| **seen == Seen::Connection).count()), (100, 1));
}

/// After a refusal that names a part of the request, the call is repeated at once without that part, even with no retries left,
/// and so are later calls.
#[tokio::test]
async fn parameters_that_a_service_refuses_are_left_out() {
    let refusal = |words: &str| status(400, "", &json!({"error": {"message": words}}).to_string());
    let script = [
        refusal("Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."),
        refusal("Unsupported value: 'temperature' does not support 0.5 with this model."),
        refusal("Unrecognized request argument supplied: tools"),
        stream(HELLO),
        stream(HELLO),
        stream(HELLO),
    ];
    let mut service = FakeService::start(script).await;
    let provider = provider(&service.url, |config| config.retries = 0);
    let mut request = request();
    (request.temperature, request.max_tokens) = (Some(0.5), Some(9));
    let spec = ToolSpec { name: "f".to_owned(), description: String::new(), parameters: json!({"type": "object"}) };
    request.tools = Arc::new([spec]);
    for model in ["m", "m", "other"] {
        request.model = model.to_owned();
        assert_eq!(provider.chat(&request, &NoDeltas).await.unwrap().text, "Hello");
    }
    let keys = |request: &str| {
        let body: Value = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
        let names = ["max_tokens", "max_completion_tokens", "temperature", "tools", "functions"];
        names.into_iter().filter(|name| body.get(name).is_some()).collect::<Vec<_>>().join(" ")
    };
    for expected in [
        "max_tokens temperature tools",
        "max_completion_tokens temperature tools",
        "max_completion_tokens tools",
        "max_completion_tokens functions",
        "max_completion_tokens functions",
        "max_tokens temperature tools",
    ] {
        assert_eq!(keys(&service.next_request().await), expected);
    }
}

/// If a model accepts no images, later requests have none; if a service rejects particular images, only this request goes
/// without them. A model without known image support gets none.
#[tokio::test]
async fn refused_pictures_are_left_out() {
    let refusal = |code: u16, words: &str| status(code, "", &json!({"error": {"message": words}}).to_string());
    let script = [
        stream(HELLO),
        refusal(400, "Could not process image"),
        stream(HELLO),
        refusal(500, "image input is not supported - hint: you may need to provide the mmproj"),
        stream(HELLO),
        stream(HELLO),
        stream(HELLO),
    ];
    let mut service = FakeService::start(script).await;
    let seeing = provider(&service.url, |config| (config.retries, config.images) = (0, Some(true)));
    let unknown = provider(&service.url, |_| {});
    let image = ImageRef { path: "a.gif".to_owned(), media_type: "image/gif".to_owned() };
    let mut request = request();
    request.messages = vec![ChatMessage::User { content: "look".to_owned(), images: vec![image] }.into()];
    request.images = Images::from_iter([("a.gif".to_owned(), Image::of(b"GIF89a").unwrap())]);
    for (provider, model) in [(&seeing, "m"), (&seeing, "m"), (&seeing, "m"), (&seeing, "m"), (&unknown, "m")] {
        request.model = model.to_owned();
        assert_eq!(provider.chat(&request, &NoDeltas).await.unwrap().text, "Hello");
    }
    let mut shown = Vec::new();
    for _ in 0..7 {
        shown.push(service.next_request().await.contains("R0lGODlh"));
    }
    assert_eq!(shown, [true, true, false, true, false, false, false]);
    assert!(
        !seeing.takes_images("m")
            && seeing.takes_images("other")
            && !unknown.takes_images("m")
            && unknown.takes_images("gpt-5")
    );
}

/// The number of changed requests is limited if a service refuses each of them; a refusal that no change can solve ends the
/// call.
#[tokio::test]
async fn refusals_without_end_end() {
    let refusal = |words: &str| status(400, "", &json!({"error": {"message": words}}).to_string());
    let back_and_forth = (0..20).map(|n| match n % 2 {
        0 => refusal("Missing `reasoning_content` field in the assistant message."),
        _ => refusal("property 'reasoning_content' is unsupported"),
    });
    let mut service = FakeService::start(back_and_forth).await;
    let mut request = request();
    let call = crate::chat::ToolCall { id: "a".to_owned(), name: "f".to_owned(), arguments: "{}".to_owned() };
    let calls = ChatMessage::Assistant { content: String::new(), reasoning: None, tool_calls: vec![call] };
    request.messages = [ChatMessage::user("hi"), calls, ChatMessage::tool("a", "f", "done")].map(Arc::new).into();
    let error = provider(&service.url, |_| {}).chat(&request, &NoDeltas).await.unwrap_err();
    assert_eq!(error.kind, LlmErrorKind::BadRequest);
    let asked = requests(&service.seen_so_far());
    assert!((3..=7).contains(&asked), "{asked}");
}

#[tokio::test]
async fn whole_answers_are_read_whether_asked_for_or_not() {
    let whole = || {
        let body = json!({"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}).to_string();
        status(200, "content-type: text/plain\r\n", &format!("\n\n {body}"))
    };
    for (stream_asked, script) in [(true, whole()), (false, whole()), (false, stream(HELLO))] {
        let mut service = FakeService::start([script]).await;
        let provider = provider(&service.url, |config| config.stream = stream_asked);
        assert_eq!(provider.chat(&request(), &NoDeltas).await.unwrap().text, "Hello");
        assert_eq!(service.next_request().await.contains("\"stream\":true"), stream_asked);
    }
}

#[tokio::test]
async fn passing_failures_are_retried_and_streamed_pieces_are_voided() {
    let table: Vec<(Step, bool)> = vec![
        (status(429, "retry-after: 0\r\n", "{}"), false),
        (status(500, "", "oops"), false),
        (status(502, "", "<html>"), false),
        (status(200, "content-type: text/html\r\n", "<html>"), false),
        (stream(&["not json"]), false),
        (stream(&[r#"{"error":{"message":"overloaded"}}"#]), false),
        (stream(&[]), false),
        (Step { bytes: Vec::new(), then: Then::Close }, false),
        (broken_stream("", Then::Close), false),
        (broken_stream(HALF, Then::Close), true),
        (stream(&[&HALF[6..HALF.len() - 2]]), true),
    ];
    for (index, (step, restarts)) in table.into_iter().enumerate() {
        let (result, notes, seen) = ask([step, stream(HELLO)]).await;
        assert_eq!(result.unwrap().text, "Hello", "row {index}");
        let deltas = if restarts { &["Hel", "<restart>", "Hello"][..] } else { &["Hello"] };
        assert_eq!(notes, deltas, "row {index}");
        assert_eq!(requests(&seen), 2, "row {index}");
    }
}

#[tokio::test]
async fn permanent_failures_are_not_retried() {
    use LlmErrorKind::*;
    for (step, kind, words) in [
        (status(400, "", r#"{"error":{"message":"bad"}}"#), BadRequest, "acme: HTTP 400: bad"),
        (status(400, "", r#"{"error":{"code":"context_length_exceeded"}}"#), ContextTooLong, "acme: HTTP 400"),
        (status(401, "", &format!(r#"{{"error":"no {KEY}"}}"#)), Auth, "acme: HTTP 401: no (hidden)"),
        (status(404, "", ""), BadRequest, "acme: HTTP 404"),
        (status(422, "", ""), BadRequest, "acme: HTTP 422"),
        (
            status(307, "location: http://else/\r\n", ""),
            BadRequest,
            "acme: HTTP 307: moved to http://else/; base_url must name that place",
        ),
        (status(429, "retry-after: 3600\r\n", ""), RateLimit, "acme: HTTP 429 (the service asks to wait for 3600 s)"),
    ] {
        let (result, _, seen) = ask([step]).await;
        let error = result.unwrap_err();
        assert_eq!((error.kind, error.to_string().as_str(), requests(&seen)), (kind, words, 1));
        let asked = error.for_owner.strip_prefix("asked http://127.0.0.1:");
        assert!(asked.is_some_and(|asked| asked.contains("/v1/chat/completions")), "{words}: {}", error.for_owner);
    }
}

#[tokio::test]
async fn attempts_are_counted_and_the_last_error_is_reported() {
    let (result, _, seen) = ask((0..9).map(|_| status(503, "", "{\"error\":\"busy\"}"))).await;
    assert_eq!(
        (result.unwrap_err().to_string().as_str(), requests(&seen)),
        ("acme: HTTP 503: busy (after 4 tries)", 4)
    );
}

#[tokio::test]
async fn deadlines_end_each_kind_of_silence() {
    let short = HumanDuration::from_millis(60);
    let drip = "data: {\"choices\":[{\"delta\":{\"content\":\".\"}}]}\n\n";
    let drip_chunk: &'static [u8] = format!("{:x}\r\n{drip}\r\n", drip.len()).leak().as_bytes();
    let table: Vec<(Step, bool, &str)> = vec![
        (Step { bytes: Vec::new(), then: Then::Hang }, true, "no data for 60ms (idle_timeout)"),
        (broken_stream("", Then::Hang), true, "no data for 60ms (idle_timeout)"),
        (broken_stream(HALF, Then::Hang), true, "no data for 60ms (idle_timeout)"),
        (broken_stream(HALF, Then::Repeat(b"8\r\n: ping\n\n\r\n")), true, "no data for 60ms (idle_timeout)"),
        (broken_stream("", Then::Repeat(b"1\r\n\n\r\n")), true, "no data for 60ms (idle_timeout)"),
        (broken_stream("", Then::Repeat(drip_chunk)), false, "not complete within 60ms (timeout)"),
    ];
    for (index, (step, idle, words)) in table.into_iter().enumerate() {
        let service = FakeService::start([step]).await;
        let provider = provider(&service.url, |config| {
            *(if idle { &mut config.idle_timeout } else { &mut config.timeout }) = short;
            config.retries = 0;
        });
        let error = provider.chat(&request(), &NoDeltas).await.unwrap_err();
        assert!(error.kind == LlmErrorKind::Timeout && !error.is_outage(), "row {index}: {error}");
        assert!(error.message.contains(words), "row {index}: {error}");
    }
}

#[tokio::test]
async fn without_streaming_the_total_deadline_alone_counts() {
    let service = FakeService::start([Step { bytes: Vec::new(), then: Then::Hang }]).await;
    let provider = provider(&service.url, |config| {
        (config.stream, config.retries) = (false, 0);
        (config.idle_timeout, config.timeout) = (HumanDuration::from_millis(1), HumanDuration::from_millis(60));
    });
    let error = provider.chat(&request(), &NoDeltas).await.unwrap_err();
    assert_eq!(error.to_string(), "acme: the answer was not complete within 60ms (timeout)");
}

#[tokio::test]
async fn a_handshake_that_never_ends_meets_the_connect_deadline() {
    // The kernel accepts the connections, and no server answers the TLS handshake.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/v1", listener.local_addr().unwrap());
    let provider = provider(&url, |config| {
        config.connect_timeout = HumanDuration::from_millis(60);
        config.retries = 0;
    });
    let error = provider.chat(&request(), &NoDeltas).await.unwrap_err();
    assert!(error.kind == LlmErrorKind::Timeout && error.is_outage(), "{error}");
    assert!(error.message.ends_with("within 60ms (connect_timeout)"), "{error}");
}

#[tokio::test]
async fn an_unreachable_service_is_reported_in_plain_words() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let provider = provider(&format!("http://{address}/v1"), |config| config.retries = 0);
    let error = provider.chat(&request(), &NoDeltas).await.unwrap_err();
    assert!(error.kind == LlmErrorKind::Connection && error.is_outage(), "{error}");
    assert!(error.message.starts_with(&format!("cannot connect to {address}: ")), "{error}");
    assert_eq!(error.for_owner, format!("asked http://{address}/v1/chat/completions"));
    let listing = provider.models(Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(listing.for_owner, format!("asked http://{address}/v1/models"));
}

#[tokio::test]
async fn an_answer_that_ends_without_its_count_is_an_answer() {
    for then in [Then::Close, Then::Hang] {
        let service = FakeService::start([broken_stream(&format!("data: {}\n\n", HELLO[0]), then)]).await;
        let provider = provider(&service.url, |config| config.idle_timeout = HumanDuration::from_millis(500));
        assert_eq!(provider.chat(&request(), &NoDeltas).await.unwrap().text, "Hello");
    }
}

#[tokio::test]
async fn dropping_the_call_closes_the_connection() {
    for step in [Step { bytes: Vec::new(), then: Then::Hang }, broken_stream(HALF, Then::Hang)] {
        let mut service = FakeService::start([step]).await;
        let provider = provider(&service.url, |_| {});
        let request = request();
        tokio::select! {
            result = provider.chat(&request, &NoDeltas) => panic!("{result:?}"),
            _ = service.next_request() => {}
        }
        assert_eq!(service.seen.recv().await, Some(Seen::Closed));
    }
}

#[tokio::test]
async fn tools_go_by_clean_names_and_come_back_under_their_own() {
    let call = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"mail_send","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#;
    let mut service = FakeService::start([stream(&[call, "[DONE]"])]).await;
    let notes = DeltaRecorder::default();
    let mut request = request();
    let tool =
        ToolSpec { name: "mail.send".to_owned(), description: String::new(), parameters: json!({"type": "object"}) };
    request.tools = Arc::new([tool]);
    let response = provider(&service.url, |_| {}).chat(&request, &notes).await.unwrap();
    assert_eq!(response.tool_calls[0].name, "mail.send");
    assert_eq!(notes.0.into_inner(), ["<mail.send a>"]);
    assert!(service.next_request().await.contains(r#""name":"mail_send""#));
}

#[tokio::test]
async fn models_are_listed() {
    let script =
        [status(200, "", r#"{"data":[{"id":"a"},{"id":"b/c"},{}]}"#), status(401, "", "{}"), status(200, "", "[]")];
    let mut service = FakeService::start(script).await;
    let provider = provider(&service.url, |_| {});
    let second = Duration::from_secs(1);
    assert_eq!(provider.models(second).await.unwrap(), ["a", "b/c"]);
    assert!(service.next_request().await.starts_with("GET /v1/models HTTP/1.1\r\n"));
    assert_eq!(provider.models(second).await.unwrap_err().kind, LlmErrorKind::Auth);
    assert_eq!(provider.models(second).await.unwrap_err().kind, LlmErrorKind::Parse);
}

#[test]
fn addresses_and_keys_that_cannot_be_used_are_named() {
    let wrong = |change: &dyn Fn(&mut ProviderConfig)| {
        let mut config =
            ProviderConfig { base_url: Some("https://a.example/v1".to_owned()), ..ProviderConfig::default() };
        change(&mut config);
        RemoteProvider::new("acme", &config, Arc::default()).err().unwrap_or_default()
    };
    assert_eq!(wrong(&|_| {}), "");
    assert_eq!(
        wrong(&|config| config.api_key = Some(Secret::new("a\nb"))),
        "api_key: holds characters that no header may hold"
    );
    assert_eq!(
        wrong(&|config| drop(config.headers.insert("a b".to_owned(), Secret::new("c")))),
        "headers.\"a b\": is not the name of a header"
    );
    for url in ["", "nonsense", "ftp://a.example/v1"] {
        assert!(wrong(&|config| config.base_url = Some(url.to_owned())).starts_with("base_url: "), "{url}");
    }
}

#[tokio::test]
async fn impossible_token_counts_count_as_none() {
    for (usage, expected) in [
        (r#"{"prompt_tokens":10,"completion_tokens":2}"#, 10),
        (r#"{"prompt_tokens":10.0,"completion_tokens":2}"#, 10),
        (r#"{"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":40}}"#, 10),
        (r#"{"prompt_tokens":1000000000000000,"completion_tokens":2}"#, 0),
        (r#"{"prompt_tokens":1e15,"completion_tokens":2}"#, 0),
        (r#"{"prompt_tokens":10,"completion_tokens":1000000000000000}"#, 0),
        (r#"{"prompt_tokens":-1,"completion_tokens":2}"#, 0),
        (r#"{"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":-1}}"#, 0),
    ] {
        let piece = format!(r#"{{"choices":[],"usage":{usage}}}"#);
        let (result, ..) = ask([stream(&[HELLO[0], piece.as_str(), HELLO[1]])]).await;
        let used = result.unwrap().usage;
        assert_eq!((used.input_tokens, used == Usage::default()), (expected, expected == 0), "{usage}");
        assert!(used.cached_tokens <= used.input_tokens, "{usage}");
    }
}
