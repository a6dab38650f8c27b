//! Measures the page: its size, the time until it can be used, what open pages cost the turns, and 500 streams of events.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Bench;
use super::skills::{print_turn_costs, spread};
use super::support::Gateway;
use super::support::gateway::Message;
use super::support::processes::resident_bytes;

/// The number of open browsers under load. Each has one stream for all its tabs.
const BROWSERS: usize = 3;
const STREAMS: usize = 500;
const ALONE: usize = 100;
/// How long an event may take to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// Prints a section of Markdown.
#[expect(clippy::print_stdout, reason = "the bench's output")]
pub async fn page() {
    println!("| what | |\n|---|---|");
    let bench = Bench::start(Duration::ZERO, |setup| setup).await;
    match in_browser(&bench.gateway) {
        Ok(figures) => print!("{figures}"),
        Err(why) => println!("| in a browser | not measured: {why} |"),
    }
    println!("\n| what | no page | {BROWSERS} browsers |\n|---|---|---|");
    let pair = [Bench::start(Duration::ZERO, |setup| setup).await, Bench::start(Duration::ZERO, |setup| setup).await];
    let streams = EventStreams::open(&pair[1].gateway, BROWSERS).await;
    print_turn_costs(&pair).await;
    drop((streams, pair));
    many_streams(&bench).await;
}

/// Measures many streams that all follow turns which run one at a time.
#[expect(clippy::print_stdout, reason = "the bench's output")]
async fn many_streams(bench: &Bench) {
    println!("\n| what | 1 stream | {STREAMS} streams |\n|---|---|---|");
    let mut residents = Vec::new();
    let mut latencies = Vec::new();
    for count in [1, STREAMS] {
        let mut streams = EventStreams::open(&bench.gateway, count).await;
        residents.push(resident_bytes(bench.gateway.pid()) as f64 / 1e6);
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for turn in 0..ALONE {
            let posted = Instant::now();
            bench.gateway.accept("in", &Message::new(&format!("turn {turn} of {count}")).chat("alone")).await;
            let seen = streams.wait_ends(turn + 1).await;
            let ms = |at: Option<&Instant>| at.map_or(0.0, |at| at.duration_since(posted).as_secs_f64() * 1e3);
            first.push(ms(seen.iter().min()));
            last.push(ms(seen.iter().max()));
        }
        latencies.push([spread(&mut first), spread(&mut last)]);
    }
    println!("| resident, the streams idle | {:.1} MB | {:.1} MB |", residents[0], residents[1]);
    for (at, what) in ["first", "last"].iter().enumerate() {
        let [one, many] = [0, 1].map(|streams: usize| latencies[streams][at].as_str());
        println!("| from the message to the end of its turn at the {what} stream | {one} ms | {many} ms |");
    }
}

/// The streams of `/api/events`, which are read until they are dropped.
struct EventStreams {
    /// The times at which ends of turns arrived, by stream.
    ends: Arc<Mutex<Vec<Vec<Instant>>>>,
    seen: watch::Receiver<u64>,
    _readers: JoinSet<()>,
}

impl EventStreams {
    /// Opens streams. On return, each stream has received its greeting.
    async fn open(gateway: &Gateway, count: usize) -> Self {
        let ends = Arc::new(Mutex::new(vec![Vec::new(); count]));
        let (sender, seen) = watch::channel(0);
        let mut readers = JoinSet::new();
        for number in 0..count {
            let mut stream = TcpStream::connect(gateway.address()).await.expect("a connection");
            let (host, token) = (gateway.address(), gateway.token());
            let head = format!("GET /api/events HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.expect("a request");
            let mut reader = BufReader::new(stream);
            let mut line = String::new();
            while !line.starts_with("event: hello") {
                line.clear();
                let read = tokio::time::timeout(PATIENCE, reader.read_line(&mut line)).await.expect("a greeting");
                assert!(read.expect("text") > 0, "the stream ended before its greeting");
            }
            let (ends, sender) = (ends.clone(), sender.clone());
            readers.spawn(async move {
                while reader.read_line(&mut line).await.is_ok_and(|read| read > 0) {
                    if line.starts_with("data:") && line.contains(r#""type":"done""#) {
                        ends.lock()[number].push(Instant::now());
                        sender.send_modify(|seen| *seen += 1);
                    }
                    line.clear();
                }
            });
        }
        Self { ends, seen, _readers: readers }
    }

    /// Waits until each stream has received this many ends, and returns when each received the last one.
    async fn wait_ends(&mut self, count: usize) -> Vec<Instant> {
        let streams = self.ends.lock().len();
        let wanted = (streams * count) as u64;
        let all = tokio::time::timeout(PATIENCE, self.seen.wait_for(|seen| *seen >= wanted)).await;
        all.expect("the end of a turn at each stream").expect("readers");
        self.ends.lock().iter().filter_map(|ends| ends.get(count - 1).copied()).collect()
    }
}

/// Measures the page in Chromium. Returns rows, or the reason why it cannot be measured.
fn in_browser(gateway: &Gateway) -> Result<String, String> {
    let npm = Command::new("npm").args(["root", "--global"]).output().map_err(|error| format!("npm: {error}"))?;
    let packages = PathBuf::from(String::from_utf8_lossy(&npm.stdout).trim());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/gateway/page.mjs");
    let mut node = Command::new("node");
    node.arg(script).env("NODE_PATH", packages).env("DAOYOU_PAGE_URL", gateway.url(""));
    let ran = node.env("DAOYOU_PAGE_TOKEN", gateway.token()).output().map_err(|error| format!("node: {error}"))?;
    let printed: Value = serde_json::from_slice(&ran.stdout)
        .map_err(|_| String::from_utf8_lossy(&ran.stderr).lines().next().unwrap_or_default().to_owned())?;
    let row = |what: &str, key: &str, unit: &str| {
        let [middle, least, most] = [0, 1, 2].map(|at: usize| printed[key][at].as_u64().unwrap_or_default());
        format!("| {what} | {middle} ({least}–{most}) {unit} |\n")
    };
    Ok(row("everything that a first visit loads, compressed", "bytes", "bytes")
        + &row("first paint in Chromium, nothing cached", "paint", "ms")
        + &row("until the composer takes a letter", "interactive", "ms"))
}
