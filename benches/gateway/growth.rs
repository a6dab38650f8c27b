//! Measures how the cost of a turn and the size of the gateway's data grow as one owner's messages accumulate.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use daoyou::memory::found_in_memory;
use tokio::task::JoinSet;

use super::Bench;
use super::load::{Client, cpu_time};
use super::sentences::{SentenceGenerator, VOCABULARY, WORDS};
use super::support::processes::resident_bytes;
use super::support::{Reply, Setup};

const CONVERSATIONS: usize = 200;
const IN_FLIGHT: usize = 20;
/// The message count of the first checkpoint; each further checkpoint multiplies the count by this number.
const FIRST: usize = 1_000;
const STEP: usize = 6;
/// The maximum number of turns before a checkpoint that its figures cover.
const WINDOW: usize = 3_000;
/// The time without a callback after which the gateway counts as stopped.
const SILENCE: Duration = Duration::from_secs(60);

/// The text that memory attached to messages, as the model server sees it.
#[derive(Default)]
struct RecalledText {
    messages: AtomicUsize,
    with_any: AtomicUsize,
    characters: AtomicUsize,
}

impl RecalledText {
    fn take(&self) -> (f64, f64) {
        let [messages, with_any, characters] =
            [&self.messages, &self.with_any, &self.characters].map(|count| count.swap(0, Ordering::SeqCst) as f64);
        (with_any / messages.max(1.0), characters / 4.0 / with_any.max(1.0))
    }
}

/// Prints a Markdown section with a line for each checkpoint up to `messages`.
#[expect(clippy::print_stdout, reason = "the bench's output")]
pub async fn growth(messages: usize) {
    let bench = Bench::start(Duration::ZERO, as_owner).await;
    let recalled = Arc::new(RecalledText::default());
    let seen = Arc::clone(&recalled);
    bench.model.script(move |asked| {
        let sent = asked.body["messages"].as_array()?.last()?["content"].as_str()?;
        let found = found_in_memory(sent);
        seen.messages.fetch_add(1, Ordering::SeqCst);
        seen.with_any.fetch_add(usize::from(!found.is_empty()), Ordering::SeqCst);
        seen.characters.fetch_add(found.chars().count(), Ordering::SeqCst);
        Some(Reply::text("It is noted."))
    });
    println!(
        "One owner, {CONVERSATIONS} conversations, {IN_FLIGHT} messages in flight, each of {WORDS} words (Zipf over {VOCABULARY}), a model \
         that answers at once, summaries by extract. Each line is of the last turns before it, {WINDOW} at most.\n\n\
         | messages | CPU a turn | turns/s | resident | database a turn | log | given something | tokens of it |\n\
         |---|---|---|---|---|---|---|---|"
    );
    let mut sent_messages = OwnerMessages::new(&bench);
    let mut checkpoint = FIRST;
    while checkpoint <= messages {
        let window = WINDOW.min(checkpoint / 2);
        sent_messages.send_until(&bench, checkpoint - window).await;
        recalled.take();
        let (cpu, begun, before) = (cpu_time(bench.gateway.pid()), Instant::now(), stored(&bench));
        sent_messages.send_until(&bench, checkpoint).await;
        let wall = begun.elapsed().as_secs_f64();
        let used = cpu_time(bench.gateway.pid()).saturating_sub(cpu).as_secs_f64();
        let (share, tokens) = recalled.take();
        let turns = window as f64;
        let grown = stored(&bench).saturating_sub(before) as f64;
        let log = std::fs::metadata(bench.gateway.database().with_extension("db-wal")).map_or(0, |file| file.len());
        println!(
            "| {checkpoint} | {:.2} ms | {:.0} | {:.1} MB | {:.1} KB | {:.1} MB | {:.1} % | {tokens:.0} |",
            used * 1e3 / turns,
            turns / wall,
            resident_bytes(bench.gateway.pid()) as f64 / 1e6,
            grown / 1e3 / turns,
            log as f64 / 1e6,
            share * 100.0,
        );
        checkpoint *= STEP;
    }
}

fn as_owner(setup: Setup) -> Setup {
    setup.set("owner.identities", vec!["webhook:in:me"]).set("memory.model", "offline/offline")
}

/// Returns the size of the database in bytes, including its WAL.
fn stored(bench: &Bench) -> u64 {
    let pages = rusqlite::Connection::open(bench.gateway.database())
        .and_then(|store| store.query_row("PRAGMA page_count", [], |row| row.get::<_, u64>(0)));
    pages.expect("the store can be read") * 4_096
}

/// Sends messages with a fixed number unanswered at any time.
struct OwnerMessages {
    client: Arc<Client>,
    replies: tokio::sync::watch::Receiver<usize>,
    sentences: SentenceGenerator,
    next: usize,
    posts: JoinSet<u16>,
}

impl OwnerMessages {
    fn new(bench: &Bench) -> Self {
        Self {
            client: Arc::new(Client::new(bench.gateway.address())),
            replies: bench.sink.counter(),
            sentences: SentenceGenerator::default(),
            next: 0,
            posts: JoinSet::new(),
        }
    }

    /// Returns when the gateway has answered `messages` messages.
    async fn send_until(&mut self, bench: &Bench, messages: usize) {
        while self.next < messages {
            self.wait_answered(bench, (self.next + 1).saturating_sub(IN_FLIGHT)).await;
            let (client, n) = (Arc::clone(&self.client), self.next);
            let body = format!(
                r#"{{"content":"{}","chat_id":"chat-{}","sender":"me","id":"growth-{n}"}}"#,
                self.sentences.sentence(),
                n % CONVERSATIONS
            );
            self.posts.spawn(async move {
                // The connection may have been closed since; the gateway accepts the same id only once.
                match client.post(&body).await {
                    0 => client.post(&body).await,
                    status => status,
                }
            });
            while let Some(status) = self.posts.try_join_next() {
                let status = status.expect("a post does not panic");
                assert!(matches!(status, 200 | 202), "the gateway takes every message: {status}");
            }
            self.next += 1;
        }
        self.wait_answered(bench, messages).await;
    }

    async fn wait_answered(&mut self, bench: &Bench, count: usize) {
        let seen = tokio::time::timeout(SILENCE, self.replies.wait_for(|seen| *seen >= count)).await;
        assert!(seen.is_ok(), "{count} messages were not answered: {}", bench.gateway.logs());
    }
}
