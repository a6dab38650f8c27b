//! A service on this machine for tests: it answers each request with the next step of its script.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// One step of a script: the bytes to write, and what happens after them.
pub(in crate::llm) struct Step {
    pub bytes: Vec<u8>,
    pub then: Then,
}

pub(in crate::llm) enum Then {
    /// The next request may come on the same connection.
    KeepOpen,
    Close,
    /// Nothing more is written until the client closes the connection.
    Hang,
    /// These bytes are repeated every few milliseconds until the client closes the connection.
    Repeat(&'static [u8]),
}

#[derive(Debug, PartialEq)]
pub(in crate::llm) enum Seen {
    Connection,
    /// A request: its head and body.
    Request(String),
    /// The client closed a connection.
    Closed,
}

pub(in crate::llm) struct FakeService {
    /// `http://127.0.0.1:PORT/v1`
    pub url: String,
    pub seen: mpsc::UnboundedReceiver<Seen>,
    /// The tasks, which end when the service is dropped.
    _tasks: JoinSet<()>,
}

impl FakeService {
    pub(in crate::llm) async fn start(script: impl IntoIterator<Item = Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let script: Arc<Mutex<VecDeque<Step>>> = Arc::new(Mutex::new(script.into_iter().collect()));
        let (tell, seen) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                tell.send(Seen::Connection).unwrap();
                connections.spawn(serve(stream, script.clone(), tell.clone()));
            }
        });
        Self { url, seen, _tasks: tasks }
    }

    pub(in crate::llm) async fn next_request(&mut self) -> String {
        loop {
            if let Seen::Request(request) = self.seen.recv().await.unwrap() {
                return request;
            }
        }
    }

    /// Returns everything that the service has seen since the last call.
    pub(in crate::llm) fn seen_so_far(&mut self) -> Vec<Seen> {
        std::iter::from_fn(|| self.seen.try_recv().ok()).collect()
    }
}

/// A stream of events, each with this data, whole.
pub(in crate::llm) fn stream(events: &[&str]) -> Step {
    let body: String = events.iter().map(|data| format!("data: {data}\n\n")).collect();
    Step { bytes: [STREAM_HEAD, chunk(&body).as_bytes(), b"0\r\n\r\n"].concat(), then: Then::KeepOpen }
}

/// A stream that stops after these bytes.
pub(in crate::llm) fn broken_stream(body: &str, then: Then) -> Step {
    Step { bytes: [STREAM_HEAD, chunk(body).as_bytes()].concat(), then }
}

pub(in crate::llm) fn status(status: u16, headers: &str, body: &str) -> Step {
    let length = body.len();
    let bytes = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n{headers}\r\n{body}").into_bytes();
    Step { bytes, then: Then::KeepOpen }
}

const STREAM_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

fn chunk(body: &str) -> String {
    if body.is_empty() { String::new() } else { format!("{:x}\r\n{body}\r\n", body.len()) }
}

async fn serve(mut stream: TcpStream, script: Arc<Mutex<VecDeque<Step>>>, tell: mpsc::UnboundedSender<Seen>) {
    while let Some(request) = read_request(&mut stream).await {
        drop(tell.send(Seen::Request(request)));
        let step = script.lock().unwrap().pop_front();
        let Some(step) = step else { return };
        if stream.write_all(&step.bytes).await.is_err() {
            break;
        }
        match step.then {
            Then::KeepOpen => {}
            Then::Close => return,
            Then::Hang => {
                let _ = stream.read(&mut [0]).await;
                break;
            }
            Then::Repeat(bytes) => {
                let mut timer = tokio::time::interval(std::time::Duration::from_millis(5));
                while stream.write_all(bytes).await.is_ok() {
                    timer.tick().await;
                }
                break;
            }
        }
    }
    drop(tell.send(Seen::Closed));
}

async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
            if body.len() >= length {
                return Some(text.into_owned());
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}
