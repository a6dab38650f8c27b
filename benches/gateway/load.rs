//! The load driver: sends messages at a fixed rate or with a fixed number in flight, and records when each reply arrives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::support::processes::resident_bytes;
use crate::support::{Gateway, Sink};

/// How long the driver waits for the last reply before missing replies count as lost.
const LAST_REPLY: Duration = Duration::from_secs(30);

/// The result of one run.
pub struct Measured {
    pub accepted: usize,
    pub refused: usize,
    pub lost: usize,
    pub duplicate: usize,
    /// The time between the first post and the last reply.
    pub wall: Duration,
    /// The times between the due time of a message and the arrival of its callback, without the model's time; sorted.
    pub overheads: Vec<Duration>,
    /// The CPU time of the daemon, for all threads.
    pub cpu: Duration,
}

impl Measured {
    /// Returns the overhead that `percent` of the turns do not exceed.
    pub fn percentile(&self, percent: usize) -> Duration {
        let last = self.overheads.len().saturating_sub(1);
        self.overheads.get((self.overheads.len() * percent / 100).min(last)).copied().unwrap_or_default()
    }

    pub fn cpu_ms_a_turn(&self) -> f64 {
        self.cpu.as_secs_f64() * 1_000.0 / self.accepted.max(1) as f64
    }

    pub fn turns_a_second(&self) -> f64 {
        self.accepted as f64 / self.wall.as_secs_f64().max(1e-9)
    }
}

/// The pattern in which messages are sent.
#[derive(Clone, Copy)]
pub enum Offer {
    /// A fixed number of unanswered messages.
    InFlight(usize),
    /// A fixed number per second, whether or not earlier messages are answered.
    Rate(usize),
}

/// One gateway under load.
pub struct Load<'a> {
    pub gateway: &'a Gateway,
    pub sink: &'a Sink,
    pub model_latency: Duration,
    /// Returns the `chat_id` of message `n` of `sessions`.
    pub chat: &'a dyn Fn(usize) -> String,
}

/// Numbers all messages of this process, so that replies of different runs differ.
static NEXT: AtomicUsize = AtomicUsize::new(0);

impl Load<'_> {
    /// Sends `turns` messages to `sessions` chats and waits for the replies.
    pub async fn run(&self, turns: usize, sessions: usize, offer: Offer) -> Measured {
        let base = NEXT.fetch_add(turns, Ordering::SeqCst);
        let posts_before = self.sink.posts().len();
        let cpu_before = cpu_time(self.gateway.pid());
        let client = Arc::new(Client::new(self.gateway.address()));
        let begun = Instant::now();
        let mut due = Vec::with_capacity(turns);
        let mut posts = JoinSet::new();
        let refused = Arc::new(AtomicUsize::new(0));
        let mut replies = self.sink.counter();
        for i in 0..turns {
            match offer {
                Offer::InFlight(n) => {
                    // A message is answered when its callback arrives, not when the message is accepted.
                    let answered = posts_before + (i + 1).saturating_sub(n);
                    if !wait_for_capacity(&mut replies, answered, &refused).await {
                        break;
                    }
                    due.push(Instant::now());
                }
                Offer::Rate(rate) => {
                    let at = begun + Duration::from_secs_f64(i as f64 / rate as f64);
                    tokio::time::sleep_until(at.into()).await;
                    due.push(at);
                }
            }
            let (client, chat, refused) = (Arc::clone(&client), (self.chat)(i % sessions), Arc::clone(&refused));
            posts.spawn(async move {
                let n = base + i;
                let body = format!(r#"{{"content":"message {n}","chat_id":"{chat}","id":"bench-{n}"}}"#);
                let status = client.post(&body).await;
                if status != 202 {
                    refused.fetch_add(1, Ordering::SeqCst);
                }
                status
            });
        }
        let statuses: Vec<u16> = posts.join_all().await;
        let accepted = statuses.iter().filter(|status| **status == 202).count();
        let all = replies.wait_for(|count| *count >= posts_before + accepted);
        let complete = tokio::time::timeout(LAST_REPLY, all).await.is_ok();
        let wall = begun.elapsed();
        let cpu = cpu_time(self.gateway.pid()).saturating_sub(cpu_before);
        // Panics if the gateway has died under the load.
        resident_bytes(self.gateway.pid());
        if complete {
            // A duplicate would arrive later. This is the only place that waits for nothing to happen.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.match_replies(
            base,
            &due,
            posts_before,
            Measured {
                accepted,
                refused: statuses.len() - accepted,
                lost: 0,
                duplicate: 0,
                wall,
                overheads: Vec::new(),
                cpu,
            },
        )
    }

    fn match_replies(&self, base: usize, due: &[Instant], posts_before: usize, mut measured: Measured) -> Measured {
        let posts = self.sink.posts();
        let mut ids = BTreeSet::new();
        let mut answered: BTreeMap<usize, Instant> = BTreeMap::new();
        for post in &posts[posts_before..] {
            let number = post.data("content").rsplit(' ').next().and_then(|word| word.parse::<usize>().ok());
            let Some(i) = number.and_then(|n| n.checked_sub(base)).filter(|i| *i < due.len()) else { continue };
            if !ids.insert(post.id()) || answered.contains_key(&i) {
                measured.duplicate += 1;
                continue;
            }
            answered.insert(i, post.at);
            let whole = post.at.saturating_duration_since(due[i]);
            measured.overheads.push(whole.saturating_sub(self.model_latency));
        }
        measured.overheads.sort();
        measured.lost = measured.accepted.saturating_sub(answered.len());
        measured
    }
}

/// Waits until `answered` callbacks have arrived, not counting `refused` messages. Returns false if they do not arrive.
async fn wait_for_capacity(replies: &mut watch::Receiver<usize>, answered: usize, refused: &AtomicUsize) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < LAST_REPLY {
        // Checked every second, because a message may be refused meanwhile, and then has no callback.
        let wanted = answered.saturating_sub(refused.load(Ordering::SeqCst));
        let seen = replies.wait_for(|count| *count >= wanted);
        if tokio::time::timeout(Duration::from_secs(1), seen).await.is_ok() {
            return true;
        }
    }
    false
}

/// Returns the CPU time of all threads of a process.
pub fn cpu_time(pid: u32) -> Duration {
    // In nanoseconds, by thread. `/proc/PID/stat` counts ticks of 10 ms, which is too coarse for a few short turns.
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let spent = threads.filter_map(|thread| {
        let schedstat = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        schedstat.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(spent.sum())
}

/// A minimal HTTP client, so that the driver leaves the processor to the measured program.
pub struct Client {
    address: String,
    idle: Mutex<Vec<TcpStream>>,
}

impl Client {
    pub fn new(address: String) -> Self {
        Self { address, idle: Mutex::default() }
    }

    /// Posts a message as JSON and returns the status.
    pub async fn post(&self, body: &str) -> u16 {
        let request = format!(
            "POST /webhook/in HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer the-bearer-secret\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        self.exchange(request.as_bytes()).await.unwrap_or(0)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn exchange(&self, request: &[u8]) -> std::io::Result<u16> {
        let connection = self.idle().pop();
        let mut stream = match connection {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(&self.address).await?;
                stream.set_nodelay(true)?;
                stream
            }
        };
        stream.write_all(request).await?;
        let mut read = Vec::with_capacity(512);
        let (head, length) = loop {
            if stream.read_buf(&mut read).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
                let length = length.and_then(|value| value.trim().parse::<usize>().ok()).unwrap_or(0);
                break (head, end + 4 + length);
            }
        };
        while read.len() < length {
            if stream.read_buf(&mut read).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        self.idle().push(stream);
        Ok(head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0))
    }
}
