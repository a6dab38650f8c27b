//! Tests the server from outside, with short deadlines: what a client sends and what it receives.

use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::Request;
use axum::response::sse::{Event, Sse};
use axum::routing::{get, post};
use daoyou_channels::settings::ByteSize;
use daoyou_channels::{BodyShare, limit_body};
use futures_util::{StreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

struct Running {
    address: SocketAddr,
    connections: Arc<Connections>,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

fn short() -> ServerLimits {
    let (brief, long) = (Duration::from_millis(300), PATIENCE);
    ServerLimits {
        header: brief,
        body: brief,
        idle: brief,
        write: brief,
        handshake: brief,
        linger: long,
        ..ServerLimits::default()
    }
}

fn long() -> ServerLimits {
    let long = PATIENCE * 2;
    ServerLimits { header: long, body: long, idle: long, write: long, handshake: long, ..ServerLimits::default() }
}

/// The number of answers of `/slow` that may be sent.
static RELEASED: Semaphore = Semaphore::const_new(0);

async fn start(limits: ServerLimits, connections: usize) -> Running {
    let routes = Router::new()
        .route("/", get(async || "hello"))
        .route("/panic", get(async || -> &'static str { panic!("canary") }))
        .route("/take", post(async |body: Bytes| body.len().to_string()))
        .route("/limited", limit_body(post(async |body: Bytes| body.len().to_string()), 1_000))
        .route(
            "/proven",
            post(async |Extension(share): Extension<BodyShare>, request: Request| {
                share.mark_authenticated();
                axum::body::to_bytes(request.into_body(), 1 << 20)
                    .await
                    .map(|body| body.len().to_string())
                    .unwrap_or_default()
            }),
        )
        .route("/ignore", post(async || "ignored"))
        .route(
            "/slow",
            get(async || {
                RELEASED.acquire().await.expect("never closed").forget();
                "late"
            }),
        )
        .route("/never", get(future::pending::<&'static str>))
        .route("/v1/never", get(future::pending::<&'static str>))
        .route("/endless", get(async || Bytes::from(vec![b'x'; 64 << 20])))
        .route("/stream", get(async || Sse::new(stream::pending::<Result<Event, Infallible>>().boxed())));
    let settings = ServerSettings {
        listen: ([127, 0, 0, 1], 0).into(),
        hosts: AllowedHosts::default(),
        proxies: TrustedProxies::default(),
        tls: None,
        connections,
        limits,
    };
    let server = BoundListener::bind(settings).await.unwrap().serve(routes, Arc::default());
    let (address, connections) = (server.address().unwrap(), server.shared.connections.clone());
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(server.run(shutdown.clone(), PATIENCE));
    Running { address, connections, shutdown, task }
}

impl Running {
    async fn open(&self, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(text.replace('\n', "\r\n").as_bytes()).await.unwrap();
        stream
    }

    /// Sends `text`, and reads until the server closes.
    async fn exchange(&self, text: &str) -> String {
        rest(&mut self.open(text).await).await
    }

    async fn wait_count(&self, count: usize) {
        let waiting = async {
            while self.connections.count() != count {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("this number of connections");
    }
}

async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("the server closes").unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Reads until `end` has arrived.
async fn until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(end) {
        let byte = tokio::time::timeout(PATIENCE, stream.read_u8()).await.expect(end).expect(end);
        text.push(char::from(byte));
    }
    text
}

#[tokio::test]
async fn slow_clients_get_408_and_are_closed() {
    let server = start(short(), 100).await;
    let chunked = "POST /take HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n";
    for (text, expected) in [
        ("", ""),
        ("\n\n\n", ""),
        ("GET / HT", "HTTP/1.1 408"),
        ("GET / HTTP/1.1\nHost: localhost\n", "HTTP/1.1 408"),
        ("POST /take HTTP/1.1\nHost: localhost\nContent-Length: 9\n\nhalf", "HTTP/1.1 408"),
        (&format!("{chunked}4\nhalf\n"), "HTTP/1.1 408"),
        (&format!("{chunked}4\nha"), "HTTP/1.1 408"),
        // Idle after a response, and after an empty line.
        ("GET / HTTP/1.1\nHost: localhost\n\n", "HTTP/1.1 200"),
        ("GET / HTTP/1.1\nHost: localhost\n\n\n", "HTTP/1.1 200"),
        ("POST /ignore HTTP/1.1\nHost: localhost\nContent-Length: 9\n\nhalf", "HTTP/1.1 200"),
    ] {
        let got = server.exchange(text).await;
        assert!(got.starts_with(expected) && (got.is_empty() == expected.is_empty()), "{text:?}: {got}");
        let is_late = expected.ends_with("408");
        assert_eq!(got.contains("{\"error\":{\"code\":\"timeout\""), is_late, "{got}");
    }
    // What has arrived of the body of an authenticated client earns time for the rest.
    let half = "x".repeat(16 << 10);
    let got =
        server.exchange(&format!("POST /proven HTTP/1.1\nHost: localhost\nContent-Length: 99999\n\n{half}")).await;
    assert!(got.starts_with("HTTP/1.1 408") && got.contains("the body did not arrive within 1.3s"), "{got}");
    // The second request of a connection has its own deadline, which begins with its first byte.
    let mut second = server.open("GET / HTTP/1.1\nHost: localhost\n\n").await;
    until(&mut second, "hello").await;
    second.write_all(b"GET").await.unwrap();
    assert!(rest(&mut second).await.starts_with("HTTP/1.1 408"));
    drop(second);
    server.wait_count(0).await;
}

#[tokio::test]
async fn a_client_that_stops_reading_is_closed_and_an_idle_stream_is_not() {
    let server = start(short(), 100).await;
    let mut waiting = server.open("GET /stream HTTP/1.1\nHost: localhost\n\n").await;
    until(&mut waiting, "\r\n\r\n").await;
    let mut stalled = server.open("GET /endless HTTP/1.1\nHost: localhost\n\n").await;
    // Otherwise the connection might not be counted yet.
    until(&mut stalled, "\r\n\r\n").await;
    server.wait_count(1).await;
    let mut received = Vec::new();
    drop(stalled.read_to_end(&mut received).await);
    assert!(received.len() < 64 << 20, "cut off in the middle");
    // The stream is still open long after all deadlines.
    let more = tokio::time::timeout(Duration::from_secs(1), waiting.read_u8()).await;
    assert!(more.is_err(), "{more:?}");
}

#[tokio::test]
async fn a_client_that_only_stops_sending_gets_its_answer() {
    let half_closed = async |limits: ServerLimits, text: &str| {
        let server = start(limits, 100).await;
        let mut stream = server.open(text).await;
        stream.shutdown().await.unwrap();
        RELEASED.add_permits(text.matches("/slow HTTP").count());
        let got = rest(&mut stream).await;
        server.wait_count(0).await;
        got
    };
    let slow = "GET /slow HTTP/1.1\nHost: localhost\n\n";
    let take = "POST /take HTTP/1.1\nHost: localhost\nContent-Length: 5\n\nabcde";
    // Longer than the patience of this test, so that only the end of the response ends the connection.
    let patient = ServerLimits { half_close: PATIENCE * 2, ..long() };
    for (text, ends) in [(slow.to_owned(), "late"), (take.to_owned(), "5"), (format!("{slow}{take}{slow}"), "late")] {
        let got = half_closed(patient, &text).await;
        assert_eq!(got.matches("HTTP/1.1 200").count(), text.matches("HTTP/1.1").count(), "{text:?}: {got}");
        assert!(got.ends_with(ends), "{got}");
    }
    let large = half_closed(patient, "GET /endless HTTP/1.1\nHost: localhost\n\n").await;
    assert!(large.len() > 64 << 20, "{} bytes", large.len());
    // The end of a stream's client counts at once, and that of every other client after a while.
    let streamed = half_closed(patient, "GET /stream HTTP/1.1\nHost: localhost\n\n").await;
    assert!(streamed.starts_with("HTTP/1.1 200"), "{streamed}");
    let brief = ServerLimits { half_close: Duration::from_millis(100), ..long() };
    assert_eq!(half_closed(brief, "GET /never HTTP/1.1\nHost: localhost\n\n").await, "");
    assert_eq!(half_closed(patient, "GET /v1/never HTTP/1.1\nHost: localhost\n\n").await, "", "it left");
    for incomplete in ["GET /slow HTT", "POST /take HTTP/1.1\nHost: localhost\nContent-Length: 9\n\nhalf"] {
        let got = half_closed(patient, incomplete).await;
        assert!(!got.contains(" 200"), "{incomplete:?}: {got}");
    }
}

#[tokio::test]
async fn a_panic_is_a_500_and_the_connection_survives() {
    let server = start(long(), 100).await;
    let mut stream = server.open("GET /panic HTTP/1.1\nHost: localhost\n\n").await;
    let got = until(&mut stream, "}}").await;
    assert!(got.starts_with("HTTP/1.1 500") && got.contains("\"internal\"") && !got.contains("canary"), "{got}");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert!(until(&mut stream, "hello").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn requests_are_separated_however_they_are_packed() {
    let server = start(long(), 100).await;
    let get = "GET / HTTP/1.1\nHost: localhost\n\n";
    let chunked = "POST /take HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n3;x=y\nabc\n1\nd\n0\nT: 1\n\n";
    let sized = "POST /take HTTP/1.1\nHost: localhost\nContent-Length: 5\n\nabcde";
    let smuggled = "POST /take HTTP/1.1\nHost: localhost\nContent-Length: 33\nTransfer-Encoding: chunked\n\n0\n\n";
    let all = format!("{get}{chunked}\n{sized}{get}{smuggled}{get}");
    let text = all.replace('\n', "\r\n");
    for step in [1, 7, 64, text.len()] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let (mut reads, mut writes) = stream.split();
        let writing = async {
            for part in text.as_bytes().chunks(step) {
                // The server may close before the client has written everything.
                if writes.write_all(part).await.is_err() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        let mut got = String::new();
        let ((), read) = tokio::join!(writing, reads.read_to_string(&mut got));
        read.unwrap();
        let statuses: Vec<&str> = got.match_indices("HTTP/1.1 ").map(|(at, _)| &got[at + 9..at + 12]).collect();
        assert_eq!(statuses, ["200", "200", "200", "200", "400"], "{step} at a time: {got}");
        assert!(got.contains("\r\n\r\n4HTTP") && got.contains("\r\n\r\n5HTTP"), "{got}");
        assert!(got.contains("both Content-Length and Transfer-Encoding"), "{got}");
    }
    let broken = "POST /take HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n3\nabcd\n0\n\n";
    for broken in [broken, &broken.replace("abcd", "ab"), &broken.replace("3\nabcd", "x")] {
        let got = server.exchange(&format!("{broken}{get}")).await;
        assert!(got.starts_with("HTTP/1.1 400") && got.contains("chunks"), "{broken:?}: {got}");
        assert_eq!(got.matches("HTTP/1.1").count(), 1, "{got}");
    }
}

#[tokio::test]
async fn a_client_that_keeps_writing_still_reads_the_refusal() {
    let server = start(long(), 100).await;
    let body = "x".repeat(20 << 20);
    for head in [
        format!("POST /take HTTP/1.1\nHost: localhost\nContent-Length: {}\n\n", body.len()),
        format!("POST /take HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n{:x}\n", body.len()),
        "POST /take HTTP/1.1\nHost: localhost\nHost: localhost\n\n".to_owned(),
        "POST /take HTTP/1.1\nHost: evil.example\nContent-Length: 20971520\n\n".to_owned(),
    ] {
        let got = server.exchange(&format!("{head}{body}")).await;
        assert!(got.starts_with("HTTP/1.1 4") && got.contains("connection: close"), "{head:?}: {got}");
    }
    // A response before the end of its request must announce that the connection closes; otherwise a client would send its next
    // request there.
    let body = &body[..1 << 20];
    let head = format!("POST /ignore HTTP/1.1\nHost: localhost\nContent-Length: {}\n\n", body.len());
    let got = server.exchange(&format!("{head}{body}")).await;
    assert!(got.starts_with("HTTP/1.1 200") && got.contains("connection: close"), "{got}");
    // A complete request gets its normal response, whatever follows it.
    let mut stream = server
        .open("GET / HTTP/1.1\nHost: localhost\n\nPOST /take HTTP/1.1\nHost: localhost\nContent-Length: 5\n\nab")
        .await;
    let first = until(&mut stream, "hello").await;
    assert!(!first.contains("connection: close"), "{first}");
    stream.write_all(b"cde").await.unwrap();
    until(&mut stream, "\r\n\r\n5").await;
    drop(stream);
    server.wait_count(0).await;
}

#[tokio::test]
async fn a_body_that_is_too_large_is_answered_with_the_limit_that_it_exceeds() {
    let server = start(ServerLimits { body_budget: ByteSize(1_000_000), ..long() }, 100).await;
    let body = "x".repeat(1_100_000);
    for (path, length, limit) in [
        ("/limited", "Content-Length: 1100000", "gateway.body_budget (1MB)"),
        ("/limited", "Content-Length: 1001", "the body is larger than 1KB"),
        ("/take", "Content-Length: 1100000", "gateway.body_budget (1MB)"),
        ("/take", "Transfer-Encoding: chunked\n\n10c8e0", "gateway.body_budget (1MB)"),
    ] {
        let gap = if length.starts_with('C') { "\n\n" } else { "\n" };
        let got = server.exchange(&format!("POST {path} HTTP/1.1\nHost: localhost\n{length}{gap}{body}")).await;
        let is_right = got.starts_with("HTTP/1.1 413") && got.contains(limit) && !got.contains("retry-after");
        assert!(is_right && got.contains("connection: close"), "{path} {length}: {got}");
    }
    // More than the server's limit, which is no limit of a route.
    let server = start(long(), 100).await;
    let body = "x".repeat(3_000_000);
    let head = format!("POST /limited HTTP/1.1\nHost: localhost\nContent-Length: {}\n\n", body.len());
    let got = server.exchange(&format!("{head}{body}")).await;
    assert!(got.starts_with("HTTP/1.1 413") && got.contains("the body is larger than 1KB"), "{got}");
}

#[tokio::test]
async fn idle_sockets_keep_nobody_out() {
    let server = start(long(), 8).await;
    let mut slow = Vec::new();
    for n in 0..40 {
        slow.push(server.open(if n % 2 == 0 { "GET / HTTP/1.1\nHost" } else { "" }).await);
        let got = server.exchange("GET / HTTP/1.1\nHost: localhost\nConnection: close\n\n").await;
        assert!(got.ends_with("hello"), "{n}: {got}");
    }
    assert!(server.connections.count() <= 8);
    drop(slow);
    // Busy connections stay open, and a client beyond the limit gets 503.
    let mut working = Vec::new();
    for _ in 0..8 {
        let mut stream = server.open("GET /stream HTTP/1.1\nHost: localhost\n\n").await;
        until(&mut stream, "\r\n\r\n").await;
        working.push(stream);
    }
    let mut refused = TcpStream::connect(server.address).await.unwrap();
    let got = rest(&mut refused).await;
    assert!(got.starts_with("HTTP/1.1 503") && got.ends_with("}}"), "{got}");
}

#[tokio::test]
async fn shutdown_waits_only_for_answers() {
    let server = start(long(), 100).await;
    let mut idle = server.open("GET / HTTP/1.1\nHost: localhost\n\n").await;
    until(&mut idle, "hello").await;
    let mut slow = server.open("GET / HTT").await;
    let mut taking = server.open("POST /take HTTP/1.1\nHost: localhost\nContent-Length: 5\n\nab").await;
    // This response shows that the three earlier connections were accepted.
    server.exchange("GET / HTTP/1.1\nHost: localhost\nConnection: close\n\n").await;
    tokio::task::yield_now().await;
    server.shutdown.cancel();
    assert_eq!(rest(&mut idle).await, "");
    assert_eq!(rest(&mut slow).await, "");
    taking.write_all(b"cde").await.unwrap();
    let got = rest(&mut taking).await;
    assert!(got.starts_with("HTTP/1.1 200") && got.ends_with('5'), "{got}");
    tokio::time::timeout(PATIENCE, server.task).await.expect("the server ends").unwrap();
}
