//! Hostile network input: stalled bodies, heads and JSON that two programs interpret differently, guessed tokens, wrong
//! clocks, and a start right after a kill.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;

use crate::support::clock::{faketime, start_at_time};
use crate::support::config::SERVICE_SECRET;
use crate::support::gateway::Message;
use crate::support::invariants::Witness;
use crate::support::processes::{allow_sockets, peak_bytes, resident_bytes};
use crate::support::{Gateway, Hook, Model, Setup, Sink, deadline, signing, until};

const MB: u64 = 1_000_000;

/// Returns status and error message of the only answer in `text`.
fn outcome(text: &str) -> (u16, String) {
    assert_eq!(text.lines().filter(|line| line.starts_with("HTTP/1.1 ")).count(), 1, "one answer: {text}");
    let status = text.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    (status, body["error"]["message"].as_str().unwrap_or_default().to_owned())
}

/// Returns the head of a post to the hook "in" (`verify = "standard"`) with a wrong signature, which only the body can reveal.
fn unproven_head(gateway: &Gateway, length: u64) -> String {
    let (host, now) = (gateway.address(), jiff::Timestamp::now().as_second());
    let signature = signing::base64(&[7; 32]);
    format!(
        "POST /webhook/in HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\nwebhook-id: m\r\n\
        webhook-timestamp: {now}\r\nwebhook-signature: v1,{signature}\r\n\r\n"
    )
}

/// Sends almost all of a large body, then waits. Returns the server's answer up to then.
async fn stall(
    address: String,
    head: String,
    sent: &'static [u8],
    mut release: tokio::sync::watch::Receiver<bool>,
) -> String {
    let Ok(mut stream) = TcpStream::connect(address).await else { return String::new() };
    let mut answer = Vec::new();
    let attack = async {
        // A server that refuses further data closes the connection, as intended.
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(sent).await?;
        stream.read_to_end(&mut answer).await
    };
    tokio::select! {
        _ = attack => {}
        _ = release.wait_for(|released| *released) => {}
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// Hundreds of unauthenticated 2 MB bodies are sent up to their last bytes and held open. Memory stays within the budget,
/// valid posts are answered at the same time, and the memory is released.
#[tokio::test(flavor = "multi_thread")]
async fn stalled_request_bodies_stay_within_their_memory_budget() {
    static BODY: [u8; 1_900_000] = [b' '; 1_900_000];
    allow_sockets(8_192);
    for count in [400_u64, 1_600] {
        let gateway = Gateway::start(Setup::new().hook(Hook::standard("in"))).await;
        gateway.ask("in", "c", "warm up").await;
        let before = resident_bytes(gateway.pid());
        let (release, released) = tokio::sync::watch::channel(false);
        let mut attackers = JoinSet::new();
        for _ in 0..count {
            let head = unproven_head(&gateway, 2 * MB);
            attackers.spawn(stall(gateway.address(), head, &BODY, released.clone()));
        }
        let mut slowest = Duration::ZERO;
        let mut honest = async || {
            let start = Instant::now();
            gateway.accept("in", &Message::new(&"honest ".repeat(140)).chat("c")).await;
            slowest = slowest.max(start.elapsed());
        };
        // Continues until most bodies are refused, while the rest is held open.
        let mut refused = 0;
        while refused < count * 3 / 4 {
            let answer = deadline("a body to be ended", attackers.join_next()).await.unwrap().unwrap();
            assert!(
                answer.is_empty() || answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after"),
                "{answer}"
            );
            refused += 1;
            if refused % 20 == 0 {
                honest().await;
            }
        }
        for _ in 0..10 {
            honest().await;
        }
        let peak = peak_bytes(gateway.pid());
        release.send(true).unwrap();
        attackers.join_all().await;
        println!(
            "{count} stalled bodies: {} MB before, {} MB at most; honest posts took {slowest:?} at most",
            before / MB,
            peak / MB
        );
        // In addition to the budget, each connection has its own buffers.
        let connections = count * 64 * 1024;
        let most = before + 64 * MB + connections + 32 * MB;
        assert!(peak < most, "{count} stalled bodies took {} MB of {}", peak / MB, most / MB);
        assert!(slowest < Duration::from_secs(10), "an honest post took {slowest:?}");
        let sockets = format!("/proc/{}/fd", gateway.pid());
        until("the connections to be closed", async || {
            (std::fs::read_dir(&sockets).unwrap().count() < 100).then_some(())
        })
        .await;
        let after = until("the memory to be given back", async || {
            let now = resident_bytes(gateway.pid());
            (now < before + connections + 16 * MB).then_some(now)
        });
        println!("{} MB after", after.await / MB);
    }
}

/// A wrong bearer secret or signature is detected from the head, before the body arrives.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_are_refused_before_the_body_is_read() {
    let gateway = Gateway::start(Setup::new().hook(Hook::bearer("in")).hook(Hook::service("hub", "github"))).await;
    let host = gateway.address();
    for (hook, proof) in [
        ("in", "Authorization: Bearer guess"),
        ("in", "X-None: 1"),
        ("hub", "X-Hub-Signature-256: sha256=00"),
        ("hub", "X-None: 1"),
    ] {
        let mut stream = TcpStream::connect(&host).await.unwrap();
        let head =
            format!("POST /webhook/{hook} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1900000\r\n{proof}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut status_line = [0; 12];
        deadline("the refusal", stream.read_exact(&mut status_line)).await.unwrap();
        assert_eq!(status_line.as_slice(), b"HTTP/1.1 401", "{proof}");
    }
    assert!(!gateway.ask("in", "c", "hello").await.is_empty());
}

/// Returns for each case a description, the head, and the text of the refusal. `host` is the value of `Host`.
fn ambiguous_heads(host: &str) -> Vec<(&'static str, String, &'static str)> {
    let line = |fields: &str| {
        format!("POST /webhook/in HTTP/1.1\r\n{host}\r\nAuthorization: Bearer the-bearer-secret\r\n{fields}\r\n")
    };
    vec![
        (
            "request line",
            format!("GET /healthz HTTP/1.1\n{host}\r\n\r\n"),
            "line 1 of the request's head ends with a bare LF",
        ),
        ("all lines", format!("GET /healthz HTTP/1.1\n{host}\n\n"), "line 1 of the request's head ends with a bare LF"),
        (
            "field",
            format!("GET /healthz HTTP/1.1\r\n{host}\nX: y\r\n\r\n"),
            "line 2 of the request's head ends with a bare LF",
        ),
        ("end", format!("GET /healthz HTTP/1.1\r\n{host}\r\n\n"), "line 3 of the request's head ends with a bare LF"),
        (
            "leading LF",
            format!("\nGET /healthz HTTP/1.1\r\n{host}\r\n\r\n"),
            "line 1 of the request's head ends with a bare LF",
        ),
        (
            "bare CR",
            format!("GET /healthz HTTP/1.1\r\n{host}\r\nX: a\rContent-Length: 5\r\n\r\n"),
            "invalid header value",
        ),
        ("CR CR LF", format!("GET /healthz HTTP/1.1\r\n{host}\r\r\n\r\n"), "invalid header value"),
        ("NUL", format!("GET /healthz HTTP/1.1\r\n{host}\r\nX: a\0b\r\n\r\n"), "invalid header value"),
        ("fold", format!("GET /healthz HTTP/1.1\r\n{host}\r\nX: a\r\n b\r\n\r\n"), "invalid header name"),
        ("folded length", line("Content-Length: 0\r\n\t18\r\n"), "invalid header name"),
        ("space before the colon", line("Content-Length : 18\r\n"), "invalid header name"),
        ("tab before the colon", line("Transfer-Encoding\t: chunked\r\n"), "invalid header name"),
        (
            "CL and TE",
            line("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
            "both Content-Length and Transfer-Encoding",
        ),
        (
            "TE and CL",
            line("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
            "both Content-Length and Transfer-Encoding",
        ),
        ("two lengths", line("Content-Length: 0\r\nContent-Length: 18\r\n"), "more than one Content-Length"),
        ("the same length twice", line("Content-Length: 18\r\ncontent-length: 18\r\n"), "more than one Content-Length"),
        ("a list of lengths", line("Content-Length: 18, 18\r\n"), "Content-Length is not a number"),
        ("a signed length", line("Content-Length: +18\r\n"), "Content-Length is not a number"),
        ("a hexadecimal length", line("Content-Length: 0x12\r\n"), "Content-Length is not a number"),
        (
            "two codings",
            line("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"),
            "more than one Transfer-Encoding",
        ),
        ("a list of codings", line("Transfer-Encoding: identity, chunked\r\n"), "chunked"),
        ("a hidden coding", line("Transfer-Encoding: \x0bchunked\r\n"), "HTTP/1.1"),
        ("a misspelt coding", line("Transfer-Encoding: xchunked\r\n"), "chunked"),
    ]
}

/// Heads that a proxy in front may interpret differently: each is refused with the reason and the position, and nothing
/// after it counts as a request.
#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_request_heads_are_refused() {
    let gateway = Gateway::start(Setup::new().hook(Hook::bearer("in"))).await;
    let host = format!("Host: {}", gateway.address());
    let smuggled = format!(
        "POST /webhook/in HTTP/1.1\r\n{host}\r\nAuthorization: Bearer the-bearer-secret\r\nContent-Length: 18\r\n\r\n\
        {{\"content\":\"evil\"}}"
    );
    for (name, head, words) in ambiguous_heads(&host) {
        let answer = gateway.exchange([head.as_bytes(), smuggled.as_bytes()].concat().as_slice()).await;
        let (status, message) = outcome(&answer);
        assert!(status == 400 && message.contains(words), "{name}: {answer}");
    }
    // Empty lines after a body are valid, however they arrive.
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    for part in ["\r\n", "\r", "\n", &format!("GET /healthz HTTP/1.1\r\n{host}\r\nConnection: close\r\n\r\n")] {
        stream.write_all(part.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
    }
    let mut answer = String::new();
    deadline("an answer", stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    gateway.ask("in", "c", "hello").await;
    assert_eq!(gateway.check_settled(&Witness::default()).await.inbox.len(), 1, "nothing was smuggled in");
}

/// Posts `body` to a hook with valid credentials.
async fn post_raw(gateway: &Gateway, hook: &str, body: &str) -> (u16, String) {
    let now = jiff::Timestamp::now().as_second();
    let request = gateway.client.post(gateway.url(&format!("/webhook/{hook}")));
    let request = match hook {
        "hub" => {
            let signature = signing::hex(&signing::hmac_sha256(SERVICE_SECRET.as_bytes(), body.as_bytes()));
            request.header("x-github-event", "ping").header("x-hub-signature-256", format!("sha256={signature}"))
        }
        "std" => {
            let signature = signing::sign(&signing::secret(b"a signing key of 24 byte"), "m", now, body.as_bytes());
            request.header("webhook-id", "m").header("webhook-timestamp", now).header("webhook-signature", signature)
        }
        _ => request.bearer_auth("the-bearer-secret"),
    };
    let answered = Gateway::try_send(request.body(body.to_owned())).await.unwrap();
    (answered.status, answered.body["error"]["message"].as_str().unwrap_or_default().to_owned())
}

/// Sends one request to the control socket.
async fn ask_socket(home: &Path, path: &str, body: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(home.join("daoyou.sock")).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all([head.as_bytes(), body.as_bytes()].concat().as_slice()).await.unwrap();
    let mut text = String::new();
    deadline("an answer of the control socket", stream.read_to_string(&mut text)).await.unwrap();
    outcome(&text)
}

/// JSON with a duplicate key in one object is refused everywhere, even if it is signed. The error names the key and its position.
#[tokio::test(flavor = "multi_thread")]
async fn duplicate_json_keys_are_refused() {
    let template = Hook::bearer("tpl").set("content", "{{ body.text }}");
    let setup = Setup::new().hook(Hook::bearer("in")).hook(Hook::standard("std")).hook(Hook::service("hub", "github"));
    let gateway = Gateway::start(setup.hook(template)).await;
    let bodies = [
        (
            r#"{"content":"good","text":"good","content":"evil"}"#,
            r#"the key "content" stands twice in the object at $ at line 1"#,
        ),
        (r#"{"content":"good","text":"good","\u0063ontent":"evil"}"#, r#"the key "content" stands twice"#),
        (
            r#"{"content":"x","text":"x","metadata":{"a":[{},{"b":1,"b":1}]}}"#,
            r#"the key "b" stands twice in the object at $["metadata"]["a"][1]"#,
        ),
    ];
    for (body, words) in bodies {
        for hook in ["in", "std", "hub", "tpl"] {
            let (status, message) = post_raw(&gateway, hook, body).await;
            assert!(status == 400 && message.contains(words), "{hook}: {status} {message}");
        }
    }
    let message = json!({
        "channel": "cli", "chat_id": "direct", "sender": "owner", "trust": "owner", "content": "hello",
        "attachments": [], "metadata": {}, "received_at": "2026-01-01T00:00:00Z",
    });
    let twice = message.to_string().replace(r#""metadata":{}"#, r#""metadata":{"k":1,"k":2}"#);
    for (path, body) in [
        ("/api/messages", twice.as_str()),
        ("/api/cron", r#"{"prompt":"good","every":"1h","prompt":"evil"}"#),
        ("/api/cron/import", r#"[{"name":"a","name":"b"}]"#),
        ("/api/memory", r#"{"text":"good","text":"evil"}"#),
        ("/api/memory/forget", r#"{"ids":[1],"ids":[2]}"#),
        ("/api/memory/import", r#"{"text":"good","text":"evil"}"#),
        ("/api/sessions", r#"{"at":"2026-01-01T00:00:00Z","turn":"x","turn":"y","message":{}}"#),
    ] {
        let request = gateway.client.post(gateway.url(path)).bearer_auth(gateway.token());
        let request = request.header("content-type", "application/json").body(body.to_owned());
        let answered = Gateway::try_send(request).await.unwrap();
        let (status, message) = (answered.status, answered.body["error"]["message"].as_str().unwrap_or_default());
        assert!([400, 422].contains(&status) && message.contains("stands twice"), "{path}: {answered:?}");
        let (status, message) = ask_socket(&gateway.home(), path, body).await;
        assert!([400, 422].contains(&status) && message.contains("stands twice"), "{path}: {status} {message}");
    }
    assert_eq!(gateway.check_settled(&Witness::default()).await.inbox.len(), 0, "nothing was accepted");
    assert_eq!(gateway.json(&["cron", "list"]).await, json!([]));
    assert_eq!(ask_socket(&gateway.home(), "/api/messages", &message.to_string()).await.0, 202);
}

/// Many wrong tokens of every kind, even from the owner's address. The correct token is accepted at once, between and after
/// them, while the wrong ones must wait.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_tokens_do_not_lock_out_the_correct_token() {
    let gateway = Gateway::start(Setup::new()).await;
    let token = gateway.token();
    let ask = async |token: &str| {
        let request = gateway.client.get(gateway.url("/api/status")).bearer_auth(token);
        Gateway::try_send(request).await.expect("an answer").status
    };
    // The owner's token with a typing error at its end, several times.
    let mistyped = format!("{}x", &token[..token.len() - 1]);
    let mut statuses = Vec::new();
    for _ in 0..15 {
        statuses.push(ask(&mistyped).await);
        assert_eq!(ask(&token).await, 200, "{statuses:?}");
    }
    assert_eq!(statuses, [[401; 10].as_slice(), &[429; 5]].concat());
    let mut statuses = Vec::new();
    for n in 0..100 {
        statuses.push(ask(&format!("{n:04}-{token}")).await);
    }
    let listened = statuses.iter().take_while(|status| **status == 401).count();
    assert!((20..40).contains(&listened) && statuses[listened..].iter().all(|status| *status == 429), "{statuses:?}");
    let start = Instant::now();
    assert_eq!(ask(&token).await, 200);
    assert!(start.elapsed() < Duration::from_secs(5), "at once");
}

/// With a clock before 1970, the gateway starts, answers, runs jobs and serves commands without a panic.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_before_1970_breaks_nothing() {
    let Some(library) = faketime() else { return };
    let model = Model::start().await;
    let sink = Sink::signed().await;
    let mut gateway = Gateway::new(
        Setup::new().model(&model).hook(Hook::bearer("in").callback(&sink)).set("cron.min_interval", "1s"),
    );
    for time in ["1960-01-01 00:00:00", "1969-12-31 23:59:58"] {
        start_at_time(&mut gateway, &library, time);
        gateway.up().await;
        assert_eq!(gateway.ask("in", "c", "hello").await, "echo: hello", "{time}");
        let first = gateway.accept("in", &Message::new("called back").chat("c")).await;
        gateway.wait_done("in", &first).await;
        assert_eq!(gateway.json(&["status"]).await["gateway"], "up", "{time}");
        let to = ["--channel", "webhook:in", "--chat", "c"];
        let add = [&["cron", "add", "--prompt", "good morning", "--every", "1s"], &to[..]].concat();
        let job = gateway.json(&add).await["id"].as_str().unwrap().to_owned();
        until("the job to run", async || {
            let runs = gateway.json(&["cron", "history", &job]).await;
            runs.as_array()?.iter().any(|run| run["outcome"] == "ok").then_some(())
        })
        .await;
        for command in [&["sessions", "list"][..], &["turns", "list"], &["queue", "list"], &["memory", "stats"]] {
            gateway.json(command).await;
        }
        let doctor = gateway.run(&["doctor"]).await;
        assert!(!doctor.stderr.contains("panicked"), "{doctor:?}");
        gateway.run(&["cron", "remove", &job]).await;
        gateway.stop().await;
        let logs = gateway.logs();
        assert!(!logs.contains("panicked") && !logs.contains("handler panicked"), "{logs}");
    }
}

/// A start right after a kill takes over the home, several times in a row. A start next to a running gateway soon exits
/// with 75 and names the pid.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_right_after_a_kill_acquires_the_lock() {
    let mut gateway = Gateway::start(Setup::new().hook(Hook::open("in"))).await;
    for _ in 0..20 {
        let old = i32::try_from(gateway.pid()).unwrap();
        let mut next = gateway.command(&["gateway", "--no-cli"]);
        next.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // The old process may still be ending when the new one starts.
        rustix::process::kill_process(rustix::process::Pid::from_raw(old).unwrap(), rustix::process::Signal::KILL)
            .unwrap();
        let mut next = next.spawn().unwrap();
        gateway.wait_exit().await;
        let home = gateway.home();
        let pid = next.id().unwrap().to_string();
        let held = until("the new gateway to hold the home", async || {
            if let Some(status) = next.try_wait().unwrap() {
                return Some(Err(status));
            }
            let text = std::fs::read_to_string(home.join("daoyou.lock")).unwrap();
            (text.trim() == pid).then_some(Ok(()))
        });
        assert!(held.await.is_ok(), "the new gateway ended");
        next.kill().await.unwrap();
        gateway.up().await;
    }
    let start = Instant::now();
    let second = gateway.run(&["gateway", "--no-cli"]).await;
    let took = start.elapsed();
    assert_eq!(second.code, Some(75), "{second:?}");
    assert!(second.stderr.contains(&format!("(pid {})", gateway.pid())), "{second:?}");
    assert!(took > Duration::from_millis(1_900) && took < Duration::from_secs(20), "after {took:?}");
    gateway.ask("in", "c", "still there?").await;
}
