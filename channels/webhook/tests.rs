//! Tests of the webhook over loopback, with a real client and a scripted receiver.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::verify::{HEADER_ID, HEADER_SIGNATURE, HEADER_TIMESTAMP, SigningKey};
use super::*;
use crate::channel::{Channel, ChannelContext, SendError};
use crate::conformance::{self, ChannelSubject, PeerBehaviour, ScriptedAnswer, ScriptedInbox, WriteOutcome};
use crate::inbox::{Refusal, Reply};
use crate::message::{ErrorInfo, OutboundMessage};
use crate::settings::{ByteSize, Secret};
use crate::trust::AllowList;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// The `X-Hub-Signature-256` of `{"content":"hi"}` with the secret `s3cret`.
const GITHUB_SIGNATURE_OF_HI: &str = "sha256=2287e2ceadd6af6f21be2e35d89182b555a7dc0340a442880a4717a48111c893";

fn client() -> Client {
    // A second call finds the provider that the first call installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().build().unwrap()
}

fn webhook(config: WebhookConfig) -> Arc<Webhook> {
    client();
    Arc::new(Webhook::new("ci", config, true, crate::trust::TrustLists::default()).unwrap())
}

fn bearer() -> WebhookConfig {
    WebhookConfig { verify: Verify::Bearer, secret: Some(Secret::new("s3cret")), ..WebhookConfig::default() }
}

/// Serves the webhook and returns its URL.
async fn serve(webhook: &Webhook, context: &ChannelContext) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/webhook/ci", listener.local_addr().unwrap());
    let app = webhook.routes(context).unwrap().into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

async fn answer(request: RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    (status, response.json().await.unwrap())
}

/// The head of a request in lower case, and the body.
type Seen = (String, Vec<u8>);

/// A receiver of callbacks that stores each request's head and body, and answers with `mode`.
#[derive(Clone, Default)]
struct Sink {
    seen: Arc<Mutex<Vec<Seen>>>,
    /// The status line and headers of the answer; if empty, the receiver hangs up.
    mode: Arc<Mutex<String>>,
}

impl Sink {
    async fn open(self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/replies", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let sink = self.clone();
                tokio::spawn(async move { sink.serve(stream).await });
            }
        });
        url
    }

    async fn serve(&self, mut stream: TcpStream) {
        let mut bytes = Vec::new();
        loop {
            if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return;
            }
            let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&bytes[..at]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
            if bytes.len() < at + 4 + length {
                continue;
            }
            self.seen.lock().unwrap().push((head, bytes[at + 4..].to_vec()));
            bytes.clear();
            let mode = self.mode.lock().unwrap().clone();
            if mode.is_empty() || stream.write_all(format!("HTTP/1.1 {mode}\r\n\r\n").as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

struct WebhookSubject {
    webhook: Arc<Webhook>,
    url: tokio::sync::OnceCell<String>,
    client: Client,
    sink: Sink,
}

impl WebhookSubject {
    async fn post(&self, body: Value) -> WriteOutcome {
        let request = self.client.post(self.url.get().unwrap()).bearer_auth("s3cret").body(body.to_string());
        match request.send().await.map(|response| response.status()) {
            Ok(StatusCode::ACCEPTED) => WriteOutcome::Taken,
            Ok(_) => WriteOutcome::Refused,
            Err(_) => WriteOutcome::Nothing,
        }
    }
}

#[async_trait]
impl ChannelSubject for WebhookSubject {
    fn channel(&self) -> Arc<dyn Channel> {
        Arc::clone(&self.webhook) as _
    }

    async fn open(&self, context: &ChannelContext, _inbox: &Arc<ScriptedInbox>) {
        self.url.set(serve(&self.webhook, context).await).unwrap();
    }

    async fn write(&self, text: &str, id: Option<&str>) -> WriteOutcome {
        self.post(json!({"content": text, "id": id, "sender": "ann"})).await
    }

    async fn write_as_unlisted_sender(&self, text: &str) -> Option<WriteOutcome> {
        Some(self.post(json!({"content": text, "sender": "mallory"})).await)
    }

    fn has_ids(&self) -> bool {
        true
    }

    async fn set_peer_behaviour(&self, side: PeerBehaviour) -> Option<String> {
        let mode = match side {
            PeerBehaviour::Takes => "204 No Content",
            PeerBehaviour::RefusesForNow => "503 Busy\r\ncontent-length: 0",
            PeerBehaviour::RefusesForGood => "410 Gone\r\ncontent-length: 0",
            PeerBehaviour::BreaksOff => "",
            PeerBehaviour::Away => return None,
        };
        *self.sink.mode.lock().unwrap() = mode.to_owned();
        Some("default".into())
    }

    async fn received(&self) -> Vec<String> {
        let seen = self.sink.seen.lock().unwrap();
        seen.iter().map(|(_, body)| String::from_utf8_lossy(body).into_owned()).collect()
    }
}

#[tokio::test]
async fn the_webhook_passes_the_suite() {
    let sink = Sink::default();
    *sink.mode.lock().unwrap() = "204 No Content".into();
    let config = WebhookConfig {
        allow_from: Some(AllowList::new(["ann"])),
        callback_url: Some(sink.clone().open().await),
        ..bearer()
    };
    let subject =
        WebhookSubject { webhook: webhook(config), url: tokio::sync::OnceCell::new(), client: client(), sink };
    conformance::run(&subject).await;
}

#[tokio::test]
async fn a_caller_waits_for_the_reply_or_comes_back_for_it() {
    let inbox = ScriptedInbox::new(|message| match message.content.as_str() {
        "hold" => ScriptedAnswer::Hold,
        "fail" => ScriptedAnswer::Fail(ErrorInfo { code: "llm_timeout".into() }, "No answer.".into()),
        text => ScriptedAnswer::Reply(format!("re: {text}")),
    });
    let (context, _) = conformance::started(&inbox);
    let url = serve(&webhook(bearer()), &context).await;
    let http = client();
    let post = |query: &str, body: Value| http.post(format!("{url}{query}")).bearer_auth("s3cret").json(&body);

    let (status, body) = answer(post("?wait=30", json!({"content": "hi", "chat_id": "c", "id": "1"}))).await;
    let id = inbox.id(0).unwrap().to_string();
    assert_eq!((status, body), (200, json!({"id": id, "session": "webhook:ci:c", "reply": "re: hi"})));
    let (status, body) = answer(post("", json!({"content": "hi", "chat_id": "c", "id": "1"}))).await;
    assert_eq!((status, body), (202, json!({"id": id, "session": "webhook:ci:c", "status": "duplicate"})));
    let (status, body) = answer(post("?wait=30", json!({"content": "other", "id": "1"}))).await;
    assert_eq!((status, body["reply"].as_str()), (200, Some("re: hi")));

    let (status, body) = answer(post("?wait=30", json!({"content": "fail"}))).await;
    assert_eq!((status, &body["reply"], &body["error"]), (200, &json!("No answer."), &json!({"code": "llm_timeout"})));

    let (status, body) = answer(post("?wait=1", json!({"content": "hold", "session": "s"}))).await;
    let id = inbox.id(2).unwrap();
    let accepted = json!({"id": id, "session": "webhook:ci:s", "status": "accepted"});
    assert_eq!((status, body), (202, accepted));
    let state = || http.get(format!("{url}/messages/{id}")).bearer_auth("s3cret");
    assert_eq!(answer(state()).await.1, json!({"id": id, "session": "webhook:ci:s", "status": "queued"}));
    inbox.finish(id, Reply { content: "done".into(), error: None });
    let (status, body) = answer(state()).await;
    assert_eq!((status, &body["status"], &body["reply"]), (200, &json!("done"), &json!("done")));

    let (status, _) = answer(http.get(format!("{url}/messages/{id}"))).await;
    assert_eq!(status, 401);
    let (status, body) = answer(http.get(format!("{url}/messages/nobody")).bearer_auth("s3cret")).await;
    assert_eq!((status, &body["error"]["code"]), (404, &json!("not_found")));
    let (status, _) = answer(post("?wait=soon", json!({"content": "hi"}))).await;
    assert_eq!((status, inbox.accepted().len()), (422, 3));
}

/// The id of a delivery is found in the form in which GitHub sent it, and in its canonical form.
#[tokio::test]
async fn a_github_delivery_is_found_by_the_id_that_was_sent() {
    let inbox = ScriptedInbox::new(|_| ScriptedAnswer::Reply("ok".into()));
    let (context, _) = conformance::started(&inbox);
    let url = serve(&webhook(WebhookConfig { verify: Verify::Github, ..bearer() }), &context).await;
    let http = client();
    let sent = "72D3162E-CC78-11E3-81AB-4C9367DC0958";
    let body = br#"{"content":"hi"}"#;
    let signature = GITHUB_SIGNATURE_OF_HI;
    let request = http.post(&url).header("x-github-delivery", sent).header("x-hub-signature-256", signature);
    assert_eq!(answer(request.body(&body[..])).await.0, 202);
    for (id, expected) in [(sent, 200), (&sent.to_lowercase(), 200), ("72D3162E-CC78-11E3-81AB-4C9367DC0959", 404)] {
        let state = http.get(format!("{url}/messages/{id}")).bearer_auth("s3cret");
        assert_eq!(answer(state).await.0, expected, "{id}");
    }
}

#[tokio::test]
async fn requests_are_refused_before_they_cost_anything() {
    let inbox = ScriptedInbox::new(|message| match message.chat_id.as_str() {
        "full" => {
            let retry_after = Duration::from_secs(7);
            ScriptedAnswer::Refuse(Refusal::SessionFull { session: message.session_key(), waiting: 20, retry_after })
        }
        _ => ScriptedAnswer::Reply("ok".into()),
    });
    let (context, _) = conformance::started(&inbox);
    let url = serve(&webhook(bearer()), &context).await;
    let http = client();
    let post = |body: Vec<u8>| http.post(&url).bearer_auth("s3cret").body(body);

    let response = post(br#"{"content":"hi","chat_id":"full"}"#.to_vec()).send().await.unwrap();
    assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (429, &"7".parse().unwrap()));

    // A body of 25 MB is neither kept nor parsed, whether its length is announced or not, and the client gets the answer.
    let large = vec![b'x'; 25_000_000];
    let chunked = reqwest::Body::wrap_stream(futures_util::stream::iter(
        large.chunks(100_000).map(|chunk| Ok::<_, std::io::Error>(chunk.to_vec())).collect::<Vec<_>>(),
    ));
    let table = [
        (http.post(&url).body("not even JSON"), 401, "unauthorized"),
        (http.post(&url).bearer_auth("wrong").body(large.clone()), 413, "too_large"),
        (http.post(&url).bearer_auth("s3cret").body(chunked), 413, "too_large"),
        (post(large), 413, "too_large"),
        (post(b"{".to_vec()), 400, "bad_request"),
        (post(br#"{"content":""}"#.to_vec()), 422, "invalid"),
        (post(br#"{"content":"hi","session":"cli:direct"}"#.to_vec()), 403, "forbidden"),
        (post(br#"{"content":"hi"}"#.to_vec()).header("idempotency-key", "k".repeat(300)), 422, "invalid"),
    ];
    for (request, expected, code) in table {
        let (status, body) = answer(request).await;
        assert_eq!((status, body["error"]["code"].as_str()), (expected, Some(code)), "{body}");
    }
    assert!(inbox.accepted().is_empty());

    context.shutdown.cancel();
    let response = post(br#"{"content":"hi"}"#.to_vec()).send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.headers().contains_key("retry-after")), (503, true));
}

/// Returns the answer to a connection that sends `head` and no body.
async fn response_without_body(url: &str, head: &str) -> String {
    let address = url.trim_start_matches("http://").split('/').next().unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("POST /webhook/ci HTTP/1.1\r\nhost: x\r\n{head}\r\n\r\n").as_bytes()).await.unwrap();
    let mut response = Vec::new();
    while !response.windows(2).any(|two| two == b"}}") {
        assert_ne!(stream.read_buf(&mut response).await.unwrap(), 0, "{}", String::from_utf8_lossy(&response));
    }
    String::from_utf8(response).unwrap()
}

#[tokio::test]
async fn a_refusal_does_not_wait_for_the_body() {
    let inbox = ScriptedInbox::new(|_| ScriptedAnswer::Reply("ok".into()));
    let (context, _) = conformance::started(&inbox);
    let config = WebhookConfig { max_body: ByteSize(100), rate_limit: Some("1/h".parse().unwrap()), ..bearer() };
    let url = serve(&webhook(config), &context).await;
    let http = client();
    assert_eq!(answer(http.post(&url).bearer_auth("s3cret").body(r#"{"content":"hi"}"#)).await.0, 202);
    let table = [
        ("content-length: 25000000\r\nauthorization: Bearer s3cret", "413 Payload Too Large", "larger than 100B"),
        ("content-length: 50", "401 Unauthorized", "authorization is missing"),
        ("content-length: 50\r\nauthorization: Bearer wrong", "401 Unauthorized", "secret is wrong"),
        ("content-length: 50\r\nauthorization: Bearer s3cret", "429 Too Many Requests", "takes 1/h"),
    ];
    let begun = std::time::Instant::now();
    for (head, status, words) in table {
        let response = response_without_body(&url, head).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")) && response.contains(words), "{head}: {response}");
        assert_eq!(response.contains("retry-after: 3"), status.starts_with("429"), "{response}");
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!(inbox.accepted().len(), 1);

    for (method, path, allowed) in
        [("GET", "", "POST"), ("HEAD", "", "POST"), ("PUT", "", "POST"), ("POST", "/messages/1", "GET, HEAD")]
    {
        let request = http.request(method.parse().unwrap(), format!("{url}{path}")).bearer_auth("s3cret");
        let response = request.send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), response.headers()["allow"].to_str().unwrap()),
            (405, allowed),
            "{method}"
        );
    }
}

/// Sends 700 failing requests: 600 get the reason, and then the caller has to wait.
async fn fail_too_often(request: impl Fn() -> RequestBuilder) {
    let mut statuses = Vec::new();
    for _ in 0..700 {
        let (status, body) = answer(request()).await;
        statuses.push(status);
        assert!(body["error"]["code"] == "unauthorized" || body["error"]["code"] == "rate_limited", "{body}");
    }
    assert_eq!((statuses[..600].iter().all(|status| *status == 401), statuses[600..].contains(&429)), (true, true));
}

/// Requests without proof get the reason, and later only the time to wait. They use nothing of the rate. Requests from the
/// same address with the right secret are accepted at once.
#[tokio::test]
async fn a_flood_of_bad_requests_takes_nothing_from_the_good_ones() {
    let inbox = ScriptedInbox::new(|_| ScriptedAnswer::Reply("ok".into()));
    let (context, _) = conformance::started(&inbox);
    let config = WebhookConfig { rate_limit: Some("2/h".parse().unwrap()), ..bearer() };
    let url = serve(&webhook(config), &context).await;
    let http = client();
    fail_too_often(|| http.post(&url).bearer_auth("guess").body("{}")).await;
    assert_eq!(answer(http.get(format!("{url}/messages/1")).bearer_auth("s3cret")).await.0, 404);
    assert_eq!(answer(http.post(&url).body(r#"{"content":"hi"}"#).bearer_auth("s3cret")).await.0, 202);
    assert_eq!(inbox.accepted().len(), 1);

    // A guess in a GET request counts too. A wrong signature uses nothing of the rate.
    let url = serve(&webhook(bearer()), &context).await;
    fail_too_often(|| http.get(format!("{url}/messages/1")).bearer_auth("guess")).await;
    let signed = WebhookConfig { verify: Verify::Github, rate_limit: Some("2/h".parse().unwrap()), ..bearer() };
    let url = serve(&webhook(signed), &context).await;
    let signature = format!("sha256={}", "0".repeat(64));
    fail_too_often(|| http.post(&url).header("x-hub-signature-256", &signature).body("{}")).await;
}

#[tokio::test]
async fn a_signed_message_is_taken_once_and_its_reply_is_signed_too() {
    let sink = Sink::default();
    *sink.mode.lock().unwrap() = "200 OK\r\ncontent-length: 0".into();
    let config = WebhookConfig {
        secret: Some(Secret::new(SECRET)),
        callback_url: Some(sink.clone().open().await),
        ..WebhookConfig::default()
    };
    let webhook = webhook(config);
    let inbox = ScriptedInbox::new(|_| ScriptedAnswer::Reply("pong".into()));
    let (context, _) = conformance::started(&inbox);
    let url = serve(&webhook, &context).await;
    let key = SigningKey::standard(&Secret::new(SECRET)).unwrap();
    let http = client();
    let signed = |body: &'static str, signed_body: &str| {
        let now = Timestamp::now().as_second().to_string();
        http.post(&url)
            .header(HEADER_ID, "msg_1")
            .header(HEADER_SIGNATURE, key.sign("msg_1", &now, signed_body.as_bytes()))
            .header(HEADER_TIMESTAMP, now)
            .body(body)
    };
    let body = r#"{"content":"ping","id":"ignored"}"#;
    assert_eq!(answer(signed(body, "{}")).await.0, 401);
    let copies = futures_util::future::join_all((0..100).map(|_| answer(signed(body, body)))).await;
    assert!(copies.iter().all(|(status, body)| *status == 202 && body["id"] == copies[0].1["id"]), "{copies:?}");
    assert_eq!(inbox.accepted().len(), 1);
    let id = copies[0].1["id"].as_str().unwrap();
    assert_eq!(answer(http.get(format!("{url}/messages/{id}")).bearer_auth(SECRET)).await.0, 200);

    let reply: OutboundMessage = inbox.outbound().recv().await.unwrap();
    webhook.send(&reply).await.unwrap();
    webhook.send(&reply).await.unwrap();
    let seen = sink.seen.lock().unwrap().clone();
    let [(head, sent), (again, _)] = seen.as_slice() else { panic!("{seen:?}") };
    let header = |head: &str, name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.map(str::to_owned).unwrap_or_default()
    };
    assert_eq!(header(head, HEADER_ID), reply.id.to_string());
    assert_eq!(header(again, HEADER_ID), reply.id.to_string(), "the same id each time");
    let expected = key.sign(&reply.id.to_string(), &header(head, HEADER_TIMESTAMP), sent);
    assert_eq!(header(head, HEADER_SIGNATURE), expected.to_lowercase(), "the head was put into lower case");
    let sent: Value = serde_json::from_slice(sent).unwrap();
    let data = json!({
        "id": reply.id, "in_reply_to": id, "external_id": "msg_1", "session": "webhook:ci:default",
        "chat_id": "default", "content": "pong",
    });
    assert_eq!((&sent["type"], &sent["data"]), (&json!("message.reply"), &data));
    assert!(sent["timestamp"].as_str().unwrap().parse::<Timestamp>().is_ok());
}

#[tokio::test]
async fn without_a_callback_a_reply_is_picked_up_and_a_closed_port_is_tried_again() {
    let message = OutboundMessage::text("webhook:ci", "default", "hi");
    let reply = OutboundMessage { in_reply_to: Some(message.turn), ..message.clone() };
    let mut waiting = message.clone();
    waiting.context.notice = Some("waiting".to_owned());
    for (message, is_kept) in [(&reply, true), (&waiting, true), (&message, false)] {
        let sent = webhook(bearer()).send(message).await;
        let is_refused = matches!(&sent, Err(SendError::Permanent { reason }) if reason.contains("callback_url"));
        assert_eq!((sent.is_ok(), is_refused), (is_kept, !is_kept), "{sent:?}");
    }
    // The port was bound and released, so nothing listens on it.
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let config = WebhookConfig { callback_url: Some(format!("http://{free}/?token=hush")), ..bearer() };
    let error = webhook(config).send(&message).await.unwrap_err();
    assert!(matches!(error, SendError::Retry { after: None, .. }), "{error:?}");
    assert!(!error.to_string().contains("hush"), "{error}");
}
