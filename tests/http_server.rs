//! The HTTP server under attack, and its service to other clients at the same time.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::{Certificate, RequestBuilder};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::gateway::{HttpAnswer, Message};
use crate::support::invariants::Witness;
use crate::support::processes::allow_sockets;
use crate::support::{Gateway, Hook, Setup, deadline};

fn with_crlf(text: &str) -> Vec<u8> {
    text.replace('\n', "\r\n").into_bytes()
}

/// Returns status and error code of the last answer in `text`.
fn outcome(text: &str) -> (u16, String) {
    let is_status = |at: &usize| text.get(at + 9..at + 12).is_some_and(|status| status.parse::<u16>().is_ok());
    let last = text.match_indices("HTTP/1.1 ").map(|(at, _)| at).filter(is_status).last().map_or("", |at| &text[at..]);
    let status = last.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = last.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    assert!(status < 400 || body["error"]["message"].is_string(), "an error in JSON: {text}");
    (status, body["error"]["code"].as_str().unwrap_or_default().to_owned())
}

/// A description, the request, the status and the error code.
type Case = (&'static str, Vec<u8>, u16, &'static str);

/// Returns requests that have invalid heads or ask for something forbidden.
fn hostile_heads(host: &str, hook: &str) -> Vec<Case> {
    let get = |target: &str, more: &str| with_crlf(&format!("GET {target} HTTP/1.1\n{host}{more}\n"));
    let post = |more: &str| with_crlf(&format!("{hook}{more}"));
    let behind_a_good_one =
        [get("/healthz", ""), post("Transfer-Encoding: chunked\nContent-Length: 4\n\n0\n\n")].concat();
    let bad = |name, bytes| (name, bytes, 400, "bad_request");
    vec![
        bad("no Host", with_crlf("GET /healthz HTTP/1.1\n\n")),
        bad("two Hosts", get("/healthz", host)),
        ("foreign Host", with_crlf("GET /healthz HTTP/1.1\nHost: evil.example\n\n"), 403, "forbidden"),
        ("foreign target", get("http://evil.example/healthz", ""), 403, "forbidden"),
        ("foreign Origin", get("/readyz", "Origin: https://evil.example\n"), 403, "forbidden"),
        bad("CL and TE", post("Content-Length: 4\nTransfer-Encoding: chunked\n\n0\n\nGET /x")),
        bad("CL and TE behind a good request", behind_a_good_one),
        bad("two lengths", post("Content-Length: 2\nContent-Length: 2\n\n{}")),
        bad("TE that is not chunked", post("Transfer-Encoding: gzip\n\n")),
        bad("garbage", b"\x16\x03\x01\x00\xff\xfe\r\n\r\n".to_vec()),
        bad("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()),
        bad("bad UTF-8 in the target", [b"GET /\xff\xfe HTTP/1.1\r\n", &*with_crlf(host), b"\r\n"].concat()),
        ("many headers", get("/", &"X: y\n".repeat(200)), 431, "headers_too_large"),
        ("large header", get("/", &format!("X: {}\n", "y".repeat(40_000))), 431, "headers_too_large"),
        ("nowhere", get("/nowhere", "Connection: close\n"), 404, "not_found"),
        (
            "wrong method",
            with_crlf(&format!("PUT /webhook/in HTTP/1.1\n{host}Connection: close\n\n")),
            405,
            "method_not_allowed",
        ),
        ("API without token", get("/api/status", "Connection: close\n"), 401, "unauthorized"),
    ]
}

/// Returns messages to a webhook with invalid bodies.
fn hostile_bodies(host: &str, hook: &str) -> Vec<Case> {
    let chunked = |body: &str| with_crlf(&format!("{hook}Transfer-Encoding: chunked\n\n{body}"));
    let sized = |body: &[u8]| [&*with_crlf(&format!("{hook}Content-Length: {}\n\n", body.len())), body].concat();
    let unproven = format!("POST /webhook/in HTTP/1.1\n{host}Connection: close\nContent-Length: 2\n\n{{}}");
    let deep = format!("{{\"content\":{}", "[".repeat(200));
    vec![
        ("broken chunks", chunked("xyz\n"), 400, "bad_request"),
        ("announced 25 MB", with_crlf(&format!("{hook}Content-Length: 26214400\n\n")), 413, "too_large"),
        ("sent 3 MB in chunks", chunked(&format!("300000\n{}", "x".repeat(0x30_0000))), 413, "too_large"),
        ("no proof", with_crlf(&unproven), 401, "unauthorized"),
        ("bad JSON", sized(b"{\"content\":"), 400, "bad_request"),
        ("deep JSON", sized(deep.as_bytes()), 400, "bad_request"),
        ("bad UTF-8", sized(b"{\"content\":\"\xff\"}"), 400, "bad_request"),
        ("no content", sized(b"{}"), 422, "invalid"),
    ]
}

/// Each hostile request gets one clear answer, nothing is accepted, and the gateway continues.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_requests_get_one_clear_answer() {
    let gateway = Gateway::start(Setup::new().hook(Hook::bearer("in"))).await;
    let host = format!("Host: {}\n", gateway.address());
    let hook = format!("POST /webhook/in HTTP/1.1\n{host}Authorization: Bearer the-bearer-secret\nConnection: close\n");
    for (name, text, status, code) in [hostile_heads(&host, &hook), hostile_bodies(&host, &hook)].concat() {
        let got = gateway.exchange(&text).await;
        println!("{name:32} {status} {}", got.lines().last().unwrap_or_default());
        assert_eq!(outcome(&got), (status, code.to_owned()), "{name}: {got}");
    }
    let json = gateway.client.post(gateway.url("/api/messages")).bearer_auth(gateway.token()).body("{}");
    let unlabelled = Gateway::try_send(json).await.unwrap();
    assert_eq!((unlabelled.status, unlabelled.body["error"]["code"].as_str()), (415, Some("unsupported_media_type")));
    gateway.ask("in", "c", "still there?").await;
    assert_eq!(gateway.check_settled(&Witness::default()).await.inbox.len(), 1);
}

/// Returns the 99th percentile latency of `count` requests, or of as many as are answered in 4 s, each on a separate connection.
async fn p99_latency(gateway: &Gateway, count: usize) -> Duration {
    let request = with_crlf(&format!("GET /healthz HTTP/1.1\nHost: {}\nConnection: close\n\n", gateway.address()));
    let (mut times, begun) = (Vec::new(), Instant::now());
    while times.len() < count && (times.is_empty() || begun.elapsed() < Duration::from_secs(4)) {
        let start = Instant::now();
        let got = gateway.exchange(&request).await;
        times.push(start.elapsed());
        assert_eq!(outcome(&got).0, 200, "{got}");
    }
    times.sort();
    times[times.len() * 99 / 100]
}

/// A thousand connections send nothing, half a head, or half a body. Other clients are not delayed, and the thousand
/// connections get an answer and are closed in time.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_slow_connections_delay_nobody() {
    allow_sockets(4_096);
    let gateway = Gateway::start(Setup::new().hook(Hook::bearer("in"))).await;
    let alone = p99_latency(&gateway, 1_000).await;
    let host = gateway.address();
    let start = Instant::now();
    let mut slow = Vec::new();
    for n in 0..1_000 {
        let text = match n % 3 {
            0 => String::new(),
            1 => format!("GET /healthz HTTP/1.1\nHost: {host}\nX-"),
            _ => format!(
                "POST /webhook/in HTTP/1.1\nHost: {host}\nAuthorization: Bearer the-bearer-secret\nContent-Length: 9\n\n{{"
            ),
        };
        let mut stream = TcpStream::connect(&host).await.unwrap();
        stream.write_all(&with_crlf(&text)).await.unwrap();
        slow.push((n, stream));
    }
    let beside = p99_latency(&gateway, 300).await;
    println!("p99 of a healthy client: {alone:?} alone, {beside:?} beside 1,000 slow sockets");
    // The limit is generous, since other tests may keep this machine busy. A delay by slow connections would take seconds.
    assert!(beside < alone * 10 + Duration::from_secs(1), "{alone:?} alone, {beside:?} beside slow ones");
    gateway.ask("in", "c", "how are you?").await;
    assert!(start.elapsed() < Duration::from_secs(10), "measured while they were there: {:?}", start.elapsed());

    let heads = slow.into_iter().filter(|(n, _)| n % 3 != 2).map(async |(n, mut stream)| {
        let mut got = String::new();
        deadline("a slow socket to be closed", stream.read_to_string(&mut got)).await.unwrap();
        if n % 3 == 0 {
            assert_eq!(got, "");
        } else {
            assert_eq!(outcome(&got), (408, "timeout".to_owned()), "{got}");
        }
    });
    join_all(heads).await;
    let closed = start.elapsed();
    println!("and alone again: {:?}", p99_latency(&gateway, 1_000).await);
    assert!(closed > Duration::from_secs(9) && closed < Duration::from_secs(40), "closed after {closed:?}");
}

/// Above the connection limit, every honest request is still answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_connections_locks_nobody_out() {
    let gateway = Gateway::start(Setup::new().set("gateway.max_connections", 32)).await;
    let mut flood = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost").await.unwrap();
        flood.push(stream);
        assert!(flood.len() % 20 > 0 || p99_latency(&gateway, 100).await < Duration::from_secs(5));
    }
    assert_eq!(gateway.json(&["status"]).await["gateway"], "up");
}

async fn status(request: RequestBuilder) -> HttpAnswer {
    Gateway::try_send(request).await.expect("an answer")
}

/// Wrong tokens are counted for each client. Forged client addresses change nothing, unless a trusted proxy sends them. The
/// correct token never waits.
#[tokio::test(flavor = "multi_thread")]
async fn token_guessing_is_rate_limited_by_client() {
    for trusted in [false, true] {
        let proxies: Vec<&str> = if trusted { vec!["127.0.0.0/8"] } else { vec![] };
        let gateway = Gateway::start(Setup::new().set("gateway.trusted_proxies", proxies)).await;
        let token = gateway.token();
        let ask = |token: &str, from: &str| {
            let request = gateway.client.get(gateway.url("/api/status")).bearer_auth(token);
            status(request.header("x-forwarded-for", from))
        };
        assert_eq!(ask(&token, "192.0.2.1").await.body["gateway"], "up");
        let mut refused = Vec::new();
        for n in 0..12 {
            // An address before the one that the proxy added may be forged by the client.
            refused.push(ask(&format!("wrong{n}"), &format!("198.51.100.{n}, 192.0.2.7")).await);
        }
        let statuses: Vec<u16> = refused.iter().map(|answered| answered.status).collect();
        assert_eq!(statuses, [[401; 10].as_slice(), &[429, 429]].concat());
        assert!(refused[11].retry_after.as_ref().is_some_and(|wait| (1..=60).contains(&wait.parse().unwrap_or(0))));
        assert_eq!(ask("wrong", "192.0.2.1").await.status, if trusted { 401 } else { 429 });
        assert_eq!(ask(&token, "192.0.2.7").await.status, 200, "the right one does not wait");
        // The owner's own access is counted separately.
        assert_eq!(gateway.json(&["status"]).await["gateway"], "up");
    }
}

/// A request through a trusted proxy counts as one of this machine only if the proxy says so.
#[tokio::test(flavor = "multi_thread")]
async fn an_unverified_webhook_takes_nothing_from_a_proxy_that_names_no_client() {
    let setup = Setup::new().hook(Hook::open("no")).set("gateway.trusted_proxies", vec!["127.0.0.1"]);
    let gateway = Gateway::start(setup).await;
    for (header, value, expected) in [
        ("accept", "*/*", 401),
        ("x-real-ip", "127.0.0.1", 401),
        ("forwarded", "for=127.0.0.1", 401),
        ("x-forwarded-for", "", 401),
        ("x-forwarded-for", "junk", 401),
        ("x-forwarded-for", "8.8.8.8", 401),
        ("x-forwarded-for", "127.0.0.1", 401),
        ("x-forwarded-for", "::1", 401),
    ] {
        let request = gateway.client.post(gateway.url("/webhook/no")).json(&serde_json::json!({"content": "hi"}));
        let answered = status(request.header(header, value)).await;
        assert_eq!(answered.status, expected, "{header}: {value}: {answered:?}");
    }
}

/// Different spellings of an address count as one, and concurrent attempts are counted before any of them is answered.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_token_guesses_are_counted_before_they_are_answered() {
    const ONE: [&str; 5] =
        ["192.0.2.7", "::ffff:192.0.2.7", "::FFFF:c000:0207", "192.0.2.7:4711", "[::ffff:192.0.2.7]:99"];
    let gateway = Gateway::start(Setup::new().set("gateway.trusted_proxies", vec!["127.0.0.0/8"])).await;
    let ask = |token: &str, from: &str| {
        let request = gateway.client.get(gateway.url("/api/status")).bearer_auth(token);
        status(request.header("x-forwarded-for", from))
    };
    let tries = (0..100).map(|n| ask(&format!("wrong{n}"), ONE[n % ONE.len()]));
    let statuses: Vec<u16> =
        futures_util::future::join_all(tries).await.iter().map(|answered| answered.status).collect();
    let refused = statuses.iter().filter(|status| **status == 401).count();
    // One more attempt may pass while the others arrive.
    assert!((10..=11).contains(&refused) && statuses.iter().all(|status| [401, 429].contains(status)), "{statuses:?}");
    assert_eq!(ask("wrong", "192.0.2.8").await.status, 401, "another address is another one");
    assert_eq!(ask(&gateway.token(), ONE[1]).await.status, 200, "the right one does not wait");
}

/// A new token in the file replaces the old one at once and opens the whole API.
#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_token_takes_effect_at_once() {
    let gateway = Gateway::start(Setup::new().hook(Hook::bearer("in"))).await;
    let id = gateway.accept("in", &Message::new("hello").chat("c")).await;
    gateway.wait_done("in", &id).await;
    let old = gateway.token();
    let ask = |token: &str, path: &str| status(gateway.client.get(gateway.url(path)).bearer_auth(token));
    for path in ["/api/status", "/api/sessions", "/api/turns", "/api/queue", &format!("/api/turns/{id}")] {
        assert_eq!(ask(&old, path).await.status, 200, "{path}");
        assert_eq!(status(gateway.client.get(gateway.url(path))).await.status, 401, "{path}");
    }
    let events = gateway.client.get(gateway.url("/api/events")).bearer_auth(&old).send().await;
    let mut events = events.unwrap().error_for_status().unwrap();
    std::fs::write(gateway.home().join("token"), "a new token of my own\n").unwrap();
    assert_eq!(ask(&old, "/api/status").await.status, 401);
    let end = async { while events.chunk().await.is_ok_and(|chunk| chunk.is_some()) {} };
    // Streams check everything every 15 s.
    tokio::time::timeout(Duration::from_secs(8), end).await.expect("the open stream ends at once");
    assert_eq!(ask("a new token of my own", "/api/status").await.status, 200);
    std::fs::remove_file(gateway.home().join("token")).unwrap();
    assert_eq!(ask("a new token of my own", "/api/status").await.status, 401);
    assert_eq!(gateway.json(&["status"]).await["gateway"], "up");
}

/// A wrong id or parameter of the API gets one error that names the route, what is wrong, and what is allowed.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_ids_and_parameters_of_the_api_are_named() {
    let gateway = Gateway::start(Setup::new()).await;
    let is_no_id = "\"nope\" is not an id; ids look like 0";
    for (path, expected) in [
        ("/api/queue/nope", is_no_id),
        ("/api/messages/nope?wait=1", is_no_id),
        ("/api/messages/nope?wait=soon", "/api/messages/{id}: wait is \"soon\"; allowed: a whole number"),
        ("/api/logs?lines=-1", "/api/logs: lines is \"-1\"; allowed: a whole number from 1 to 4294967295"),
        ("/api/turns?limit=0", "/api/turns: limit is \"0\"; allowed: a whole number from 1"),
        ("/api/turns?limit=99999999999", "allowed: a whole number from 1"),
        ("/api/turns?limit=1&limit=2", "limit stands in the address more than once"),
        ("/api/search?q=x&limit=0", "/api/search: limit is \"0\""),
        ("/api/search", "/api/search: q is missing"),
    ] {
        let answer = status(gateway.client.get(gateway.url(path)).bearer_auth(gateway.token())).await;
        let message = answer.body["error"]["message"].as_str().unwrap_or_default();
        assert!(answer.status == 400 && message.contains(expected), "{path}: {answer:?}");
    }
    let url = gateway.url("/api/queue/retry");
    let answer = status(gateway.client.post(url).bearer_auth(gateway.token())).await;
    assert_eq!(answer.body["error"]["message"], "/api/queue/retry: outcomes is missing", "{answer:?}");
}

struct Certified {
    cert: String,
    key: String,
}

fn new_certificate(name: &str) -> Certified {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned(), "127.0.0.1".to_owned()]).unwrap();
    Certified { cert: made.cert.pem(), key: made.signing_key.serialize_pem() }
}

/// HTTPS with certificate files, which are reloaded when they change. Errors in the files name file and key.
#[tokio::test(flavor = "multi_thread")]
async fn tls_certificates_are_read_and_reloaded_from_files() {
    let mut gateway = Gateway::new(Setup::new().hook(Hook::bearer("in")).set("gateway.hosts", vec!["gateway.test"]));
    let folder = gateway.home().parent().unwrap().to_owned();
    let path = |name: &str| folder.join(name).display().to_string();
    let (first, second) = (new_certificate("gateway.test"), new_certificate("gateway.test"));
    let write = |name: &str, text: &str| std::fs::write(path(name), text).unwrap();
    write("cert.pem", &first.cert);
    write("key.pem", &first.key);
    write("other.pem", &second.key);
    write("empty.pem", "");
    for (cert, key, fault) in [
        (path("cert.pem"), path("none.pem"), "gateway.tls.key: "),
        (path("none.pem"), path("key.pem"), "gateway.tls.cert: "),
        (path("empty.pem"), path("key.pem"), "gateway.tls.cert: "),
        (path("cert.pem"), path("cert.pem"), "gateway.tls.key: "),
        (path("cert.pem"), path("other.pem"), "gateway.tls.key: "),
        ("cert.pem".to_owned(), path("key.pem"), "gateway.tls.cert: "),
    ] {
        let setup = gateway.setup();
        *setup = setup.clone().set("gateway.tls.cert", cert.as_str()).set("gateway.tls.key", key.as_str());
        for args in [&["config", "check"][..], &["gateway"]] {
            let ran = gateway.run(args).await;
            assert_eq!(ran.code, Some(78), "{args:?} {ran:?}");
            let named = ran.stderr.lines().filter(|line| line.contains(fault) && line.contains("config.toml:")).count();
            assert_eq!(named, 1, "{args:?} {cert} {key} {ran:?}");
            println!("{}", ran.stderr.trim().replace(&format!("{}/", folder.display()), ""));
        }
    }
    let setup = gateway.setup();
    *setup = setup.clone().set("gateway.tls.cert", path("cert.pem")).set("gateway.tls.key", path("key.pem"));
    gateway.spawn();
    let ask = async |known: &Certified| {
        let builder = reqwest::Client::builder().no_proxy().resolve("gateway.test", gateway.address().parse().unwrap());
        let client = builder.tls_certs_only([Certificate::from_pem(known.cert.as_bytes()).unwrap()]).build().unwrap();
        let url = format!("https://gateway.test:{}/healthz", gateway.address().rsplit(':').next().unwrap());
        client.get(url).send().await.ok().map(|response| response.status().as_u16())
    };
    crate::support::until("HTTPS", async || ask(&first).await.filter(|status| *status == 200)).await;
    assert_eq!(ask(&second).await, None, "another certificate");
    let test = gateway.json(&["channels", "test", "in"]).await;
    let route = test["checks"].as_array().unwrap().iter().find(|check| check["name"] == "route");
    assert_eq!(route.map(|check| &check["state"]), Some(&"ok".into()), "{test}");
    let plain = gateway.exchange(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(!plain.contains("200"), "{plain}");
    // During the renewal the two files do not match for a moment, and the old pair stays in use.
    write("cert.pem", &second.cert);
    assert_eq!(ask(&first).await, Some(200));
    write("key.pem", &second.key);
    assert_eq!((ask(&second).await, ask(&first).await), (Some(200), None));
    gateway.stop().await;
}

/// Listening beyond loopback requires a sufficiently long token, and only configured host names are answered.
#[tokio::test(flavor = "multi_thread")]
async fn listening_beyond_loopback_requires_a_strong_token() {
    let gateway = Gateway::new(Setup::new());
    for (env, fault) in [
        (vec![("DAOYOU_GATEWAY__LISTEN", "0.0.0.0:1")], Some("gateway.token is not set")),
        (vec![("DAOYOU_GATEWAY__LISTEN", "[::]:1"), ("DAOYOU_GATEWAY__TOKEN", "short")], Some("can be guessed")),
        (vec![("DAOYOU_GATEWAY__LISTEN", "0.0.0.0:1"), ("DAOYOU_GATEWAY__TOKEN", "long-enough-to-hold")], None),
    ] {
        let mut command = gateway.command(&["config", "check"]);
        let output = deadline("config check", command.envs(env.clone()).output()).await.unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(if fault.is_some() { 78 } else { 0 }), "{env:?} {errors}");
        assert!(errors.contains(fault.unwrap_or_default()) && !errors.contains("short\""), "{env:?} {errors}");
    }
}

/// Each GET route that needs no name answers with the kind of JSON that the description says, and knows no other parameters.
#[tokio::test(flavor = "multi_thread")]
async fn the_description_of_the_routes_names_the_kinds_of_their_answers() {
    let gateway = Gateway::start(Setup::new().hook(Hook::bearer("in"))).await;
    let get = async |path: &str| {
        Gateway::try_send(gateway.client.get(gateway.url(path)).bearer_auth(gateway.token())).await.expect("an answer")
    };
    let described = get("/api/openapi.json").await.body;
    let mut compared = 0;
    for (path, methods) in described["paths"].as_object().unwrap() {
        let route = &methods["get"];
        let kind = &route["responses"]["200"]["content"]["application/json"]["schema"]["type"];
        let mut path = path.replace("/api/channels/{name}", "/api/channels/webhook:in");
        if path.contains('{') || !kind.is_string() {
            continue;
        }
        let parameters = route["parameters"].as_array().into_iter().flatten();
        let needed = parameters.filter(|parameter| parameter["in"] == "query" && parameter["required"] == true);
        path.extend(needed.enumerate().map(|(at, parameter)| {
            format!("{}{}=x", if at == 0 { "?" } else { "&" }, parameter["name"].as_str().unwrap())
        }));
        let answer = get(&path).await;
        let found = if answer.body.is_array() { "array" } else { "object" };
        assert_eq!((answer.status, found), (200, kind.as_str().unwrap()), "{path}: {answer:?}");
        compared += 1;
        if path.starts_with("/api/") {
            let unknown = get(&format!("{path}{}nothing=1", if path.contains('?') { "&" } else { "?" })).await;
            assert_eq!(unknown.status, 400, "{path}: {unknown:?}");
        }
    }
    assert!(compared > 25, "{compared}");
}
