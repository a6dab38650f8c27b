//! The receiver of webhook callbacks: a separate small HTTP server that can misbehave, e.g. hang, cut a connection, or be unreachable.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::config::callback_secret;
use super::{deadline, signing};

/// The sink's reaction to one post after reading it.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Answers with a status and a value of Retry-After.
    Status(u16, Option<&'static str>),
    /// Never answers.
    Hang,
    /// Closes the connection, so that the sender cannot know whether the post arrived.
    Cut,
}

/// One received post.
#[derive(Clone, Debug)]
pub struct Post {
    /// The headers, with names in lower case.
    pub headers: BTreeMap<String, String>,
    pub raw: Vec<u8>,
    pub body: Value,
    /// The status of the answer; `None` if there was no answer.
    pub status: Option<u16>,
    /// Violations of the Standard Webhooks form; empty if valid.
    pub faults: Vec<String>,
    /// The time when the post was read.
    pub at: std::time::Instant,
}

impl Post {
    /// Returns the value of `webhook-id`.
    pub fn id(&self) -> &str {
        self.headers.get("webhook-id").map_or("", String::as_str)
    }

    /// Returns a string field of `data`; empty if it is missing.
    pub fn data(&self, key: &str) -> &str {
        self.body["data"][key].as_str().unwrap_or_default()
    }

    /// Returns the message that this post answers; empty for a question, a notice, and a message that answers none.
    pub fn answered_id(&self) -> &str {
        let data = &self.body["data"];
        if data["question"] == true || data["notice"].is_string() { "" } else { self.data("in_reply_to") }
    }
}

/// A rule that returns the answer to a post if it applies.
type Rule = Box<dyn Fn(&Post) -> Option<Answer> + Send>;

#[derive(Default)]
struct Record {
    posts: Vec<Post>,
    script: VecDeque<Answer>,
    rule: Option<Rule>,
    always: Option<Answer>,
}

impl Record {
    fn answer(&mut self, post: &Post) -> Answer {
        let scripted = self.script.pop_front().or_else(|| self.rule.as_ref()?(post));
        scripted.or_else(|| self.always.clone()).unwrap_or(Answer::Status(200, None))
    }
}

struct Shared {
    secret: Option<String>,
    record: Mutex<Record>,
    count: watch::Sender<usize>,
}

/// The running sink; it stops when dropped.
pub struct Sink {
    shared: Arc<Shared>,
    port: u16,
    up: Mutex<Option<CancellationToken>>,
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.down();
    }
}

impl Sink {
    /// Starts a sink that checks signatures with [`callback_secret`].
    pub async fn signed() -> Self {
        Self::start(Some(&callback_secret())).await
    }

    /// Starts a sink that answers 200. With a `secret` (`whsec_…`) it checks every signature.
    pub async fn start(secret: Option<&str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port on loopback");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let shared = Arc::new(Shared {
            secret: secret.map(str::to_owned),
            record: Mutex::default(),
            count: watch::Sender::new(0),
        });
        let sink = Self { shared, port, up: Mutex::new(None) };
        sink.serve(listener);
        sink
    }

    /// Returns the value for `callback_url`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/callback", self.port)
    }

    fn serve(&self, listener: TcpListener) {
        let token = CancellationToken::new();
        *self.up.lock() = Some(token.clone());
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            while let Some(Ok((stream, _))) = token.run_until_cancelled(listener.accept()).await {
                let (shared, token) = (Arc::clone(&shared), token.clone());
                // A broken connection concerns only the client.
                tokio::spawn(async move { token.run_until_cancelled(connection(stream, &shared)).await });
            }
        });
    }

    /// Closes the port and every connection.
    pub fn down(&self) {
        if let Some(token) = self.up.lock().take() {
            token.cancel();
        }
    }

    /// Listens on the same port again.
    pub async fn up(&self) {
        let address = ("127.0.0.1", self.port);
        let bound = async {
            loop {
                match TcpListener::bind(address).await {
                    Ok(listener) => break listener,
                    // The task of the old listener is ending, but may not have closed the port yet.
                    Err(_) => tokio::time::sleep(super::POLL).await,
                }
            }
        };
        self.serve(deadline("the sink's old port", bound).await);
    }

    /// Sets the answers to the next posts, one each; later posts get 200.
    pub fn then(&self, answers: impl IntoIterator<Item = Answer>) {
        self.shared.record.lock().script.extend(answers);
    }

    /// Answers the posts to which `rule` applies with the rule's result.
    pub fn when(&self, rule: impl Fn(&Post) -> Option<Answer> + Send + 'static) {
        self.shared.record.lock().rule = Some(Box::new(rule));
    }

    /// Sets the answer to every post without another script; `None` restores 200.
    pub fn always(&self, answer: Option<Answer>) {
        self.shared.record.lock().always = answer;
    }

    /// Returns every post that was read.
    pub fn posts(&self) -> Vec<Post> {
        self.shared.record.lock().posts.clone()
    }

    /// Returns the posts that answer the message `id`.
    pub fn replies_to(&self, id: &str) -> Vec<Post> {
        self.posts().into_iter().filter(|post| post.answered_id() == id).collect()
    }

    /// Returns a counter of posts, for tests that wait for many.
    pub fn counter(&self) -> watch::Receiver<usize> {
        self.shared.count.subscribe()
    }

    /// Waits until `count` posts have been read.
    pub async fn wait_posts(&self, count: usize) -> Vec<Post> {
        let mut seen = self.shared.count.subscribe();
        deadline(&format!("{count} callbacks"), seen.wait_for(|n| *n >= count)).await.expect("the sink lives");
        self.posts()
    }

    /// Returns the first post that answers the message `id`.
    pub async fn wait_reply(&self, id: &str) -> Post {
        let mut seen = self.shared.count.subscribe();
        let found = async {
            loop {
                if let Some(post) = self.replies_to(id).into_iter().next() {
                    return post;
                }
                seen.changed().await.expect("the sink lives");
            }
        };
        deadline(&format!("the callback for {id}"), found).await
    }
}

/// Reads posts from one connection and answers them, until it closes.
async fn connection(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some((headers, raw)) = read_post(&mut stream).await? {
        let answer = {
            let mut record = shared.record.lock();
            let body = serde_json::from_slice(&raw).unwrap_or(Value::Null);
            let faults = faults(shared.secret.as_deref(), &headers, &raw, &body);
            let mut post = Post { headers, raw, body, status: None, faults, at: std::time::Instant::now() };
            let answer = record.answer(&post);
            post.status = if let Answer::Status(status, _) = answer { Some(status) } else { None };
            record.posts.push(post);
            answer
        };
        shared.count.send_modify(|count| *count += 1);
        match answer {
            Answer::Status(status, retry_after) => {
                let retry_after = retry_after.map(|value| format!("Retry-After: {value}\r\n")).unwrap_or_default();
                let head = format!("HTTP/1.1 {status} Scripted\r\n{retry_after}Content-Length: 0\r\n\r\n");
                stream.write_all(head.as_bytes()).await?;
                stream.flush().await?;
            }
            Answer::Hang => std::future::pending().await,
            Answer::Cut => return Ok(()),
        }
    }
    Ok(())
}

type Raw = (BTreeMap<String, String>, Vec<u8>);

/// Reads one request with a Content-Length; returns `None` if the client has closed the connection.
async fn read_post(stream: &mut BufReader<TcpStream>) -> std::io::Result<Option<Raw>> {
    let mut headers = BTreeMap::new();
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    headers.insert(":request".to_owned(), line.trim_end().to_owned());
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 || line.trim_end().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    let length = headers.get("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
    let mut raw = vec![0; length];
    stream.read_exact(&mut raw).await?;
    Ok(Some((headers, raw)))
}

/// Returns the violations of a callback's format: the headers, the signature, and the structure of the body.
fn faults(secret: Option<&str>, headers: &BTreeMap<String, String>, raw: &[u8], body: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let header = |name: &str| headers.get(name).map_or("", String::as_str);
    let mut demand = |holds: bool, what: &str| {
        if !holds {
            faults.push(what.to_owned());
        }
    };
    demand(header(":request").starts_with("POST "), "the method is POST");
    demand(header("content-type").starts_with("application/json"), "the content type is application/json");
    demand(!header("webhook-id").is_empty(), "webhook-id is set");
    let stamp = header("webhook-timestamp").parse::<i64>().unwrap_or(0);
    let now = jiff::Timestamp::now().as_second();
    demand((stamp - now).abs() <= 300, "webhook-timestamp is within five minutes");
    if let Some(secret) = secret {
        let signed = signing::verify(secret, header("webhook-id"), stamp, raw, header("webhook-signature"));
        demand(signed, "webhook-signature covers id.timestamp.body");
    }
    demand(body["type"] == "message.reply", "type is message.reply");
    let timestamp = body["timestamp"].as_str().unwrap_or_default();
    demand(timestamp.parse::<jiff::Timestamp>().is_ok(), "timestamp is RFC 3339");
    for key in ["id", "session", "chat_id", "content"] {
        demand(body["data"][key].is_string(), &format!("data.{key} is a string"));
    }
    // A message from a tool does not answer any message.
    let answers = body["data"].get("in_reply_to");
    demand(answers.is_some_and(|id| id.is_string() || id.is_null()), "data.in_reply_to is a string or null");
    faults
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::support::gateway::http_client;

    #[tokio::test]
    async fn records_checks_and_follows_its_script() {
        let secret = signing::secret(b"0123456789abcdef01234567");
        let sink = Sink::start(Some(&secret)).await;
        let client = http_client();
        let now = jiff::Timestamp::now();
        let data = json!({"id": "o1", "in_reply_to": "m1", "session": "s", "chat_id": "c", "content": "hi"});
        let body = json!({"type": "message.reply", "timestamp": now.to_string(), "data": data}).to_string();
        let post = async |key: &str| {
            let signature = signing::sign(key, "o1", now.as_second(), body.as_bytes());
            let request = client.post(sink.url()).header("content-type", "application/json");
            let request = request.header("webhook-id", "o1").header("webhook-timestamp", now.as_second());
            let answer = request.header("webhook-signature", signature).body(body.clone()).send().await;
            answer.map(|answer| answer.status().as_u16()).ok()
        };
        sink.then([Answer::Status(503, Some("1")), Answer::Cut]);
        assert_eq!([post(&secret).await, post(&secret).await, post(&secret).await], [Some(503), None, Some(200)]);
        assert_eq!(post(&signing::secret(b"another key of 24 bytes.")).await, Some(200));
        let posts = sink.wait_posts(4).await;
        let faults: Vec<_> = posts.iter().map(|post| post.faults.len()).collect();
        assert_eq!(faults, [0, 0, 0, 1], "{posts:?}");
        sink.down();
        assert_eq!(post(&secret).await, None);
        sink.up().await;
        assert_eq!(post(&secret).await, Some(200));
        assert_eq!(sink.replies_to("m1").len(), 5);
    }
}
