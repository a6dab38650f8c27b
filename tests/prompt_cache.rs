//! Cache hits at a service: each request of a session begins with nearly all of the previous one.

use std::fmt::Write;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::{Gateway, Model, Reply, Setup, until};

/// The share of an earlier request's bytes that must recur.
const SHARED: f64 = 0.98;

/// Returns the part of a request that a service caches: tools, system prompt and messages.
fn cache_prefix(request: &Value) -> String {
    format!("{}{}", request["tools"], request["messages"])
}

/// Returns the share of `before` that `after` begins with.
fn shared_prefix_share(before: &str, after: &str) -> f64 {
    let same = before.bytes().zip(after.bytes()).take_while(|(a, b)| a == b).count();
    same as f64 / before.len() as f64
}

#[tokio::test(flavor = "multi_thread")]
async fn consecutive_requests_share_their_prefix() {
    let model = Model::start().await;
    model.on("look", [Reply::tool("list_dir", &json!({"path": "."})), Reply::text("I looked.")]);
    model.on(
        "keep",
        [Reply::tool("remember", &json!({"content": "Ann's lucky number is 7"})), Reply::text("I keep it in mind.")],
    );
    let mut gateway = Gateway::start(Setup::scripted(&model)).await;
    for n in 0..30 {
        let word = if n % 7 == 3 { "keep" } else { "look" };
        gateway.ask("in", "c", &format!("{word} at number {n}")).await;
        if n == 15 {
            gateway.restart().await;
        }
    }
    let requests = model.requests();
    let systems: Vec<_> = requests.iter().map(|request| &request["messages"][0]).collect();
    let mut compactions = 0;
    for (n, pair) in requests.windows(2).enumerate() {
        let share = shared_prefix_share(&cache_prefix(&pair[0]), &cache_prefix(&pair[1]));
        if systems[n] != systems[n + 1] {
            compactions += 1;
            assert!(systems[n + 1]["content"].as_str().unwrap().contains("# Earlier"), "{}", systems[n + 1]);
        } else {
            assert!(share >= SHARED, "request {n} shares {share:.3} of the one before");
        }
    }
    // 120 messages: at 50, and every 25 after that.
    assert!((1..=4).contains(&compactions), "{compactions} of {} requests", requests.len());
    assert_eq!((requests.len(), model.refused()), (60, Vec::new()));
}

/// The share of consecutive requests that must reach [`SHARED`].
const OFTEN: f64 = 0.9;

/// Waits until no summary is due, since people write more slowly than tests.
async fn wait_summaries(gateway: &Gateway) {
    let due = || -> i64 {
        let store = Connection::open(gateway.database()).unwrap();
        store
            .query_row("SELECT count(*) FROM session_memory WHERE due_reason IS NOT NULL", [], |row| row.get(0))
            .unwrap()
    };
    until("no summary is due", async || (due() == 0).then_some(())).await;
}

/// Returns twelve words, different for each `n`.
fn twelve_words(n: usize) -> String {
    const WORDS: [&str; 11] =
        ["river", "table", "music", "winter", "garden", "letter", "window", "engine", "paper", "island", "copper"];
    let words = (0..10).map(|k| WORDS[(n * 7 + k * k + 3 * k) % WORDS.len()]);
    format!("number {n} {}", words.collect::<Vec<_>>().join(" "))
}

/// Returns the share of consecutive requests that keep [`SHARED`] of the previous one.
fn share_of_cached_requests(model: &Model) -> f64 {
    let requests: Vec<String> = model.requests().iter().map(cache_prefix).collect();
    let pairs = requests.windows(2);
    let count = pairs.len();
    let keep = pairs.filter(|pair| shared_prefix_share(&pair[0], &pair[1]) >= SHARED).count();
    keep as f64 / count as f64
}

/// Windows limited by tokens: small contexts, and turns that read much.
#[tokio::test(flavor = "multi_thread")]
async fn consecutive_requests_share_their_prefix_in_small_windows() {
    let mut table = String::new();
    let mut worst: f64 = 1.0;
    for (what, context, turns, pages) in
        [("6k context", 6_000, 80, 0), ("16k context", 16_000, 120, 0), ("8 file pages a turn", 1_000_000, 16, 8)]
    {
        let model = Model::start().await;
        model.script(move |asked| {
            let answer = || Reply::text(format!("an answer to {}", asked.user));
            let read =
                || Reply::tool("read_file", &json!({"path": "book.txt", "offset": asked.n * 100 + 1, "limit": 100}));
            Some(if asked.step < pages { read() } else { answer() })
        });
        let setup = Setup::scripted(&model);
        let gateway = Gateway::start(setup.set("providers.scripted.context_tokens", context)).await;
        let book: String = (0..20_000).fold(String::new(), |book, n| book + &twelve_words(n) + "\n");
        std::fs::write(gateway.workspace().join("book.txt"), book).unwrap();
        for n in 0..turns {
            gateway.ask("in", "c", &twelve_words(n)).await;
            wait_summaries(&gateway).await;
        }
        assert_eq!(model.refused(), Vec::<String>::new());
        let share = share_of_cached_requests(&model);
        worst = worst.min(share);
        writeln!(table, "{what}: {:.0} % of {} requests keep 98 %", share * 100.0, model.count()).unwrap();
    }
    println!("{table}");
    assert!(worst >= OFTEN, "{table}");
}

/// The context size in a service's refusal is stored and shown, and survives a restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_context_limit_named_in_a_refusal_is_remembered() {
    const HOLDS: usize = 60_000;
    let model = Model::start().await;
    model.script(|asked| {
        let words = "This model's maximum context length is 16000 tokens. Please reduce the length of the messages.";
        let is_long = asked.body["messages"].to_string().len() > HOLDS;
        is_long.then(|| Reply::status(400).saying(words))
    });
    let mut gateway = Gateway::start(Setup::scripted(&model)).await;
    let refusals =
        |model: &Model| model.requests().iter().filter(|request| request["messages"].to_string().len() > HOLDS).count();
    for n in 0..40 {
        let long = (0..30).map(|k| twelve_words(n * 30 + k)).collect::<Vec<_>>().join(", ");
        let reply = gateway.ask("in", "c", &long).await;
        assert!(reply.starts_with("echo: "), "{reply}");
        wait_summaries(&gateway).await;
        if n == 25 {
            gateway.restart().await;
        }
    }
    assert_eq!(refusals(&model), 1, "refused once, and then known");
    let found = gateway.json(&["models"]).await;
    assert_eq!(found["stated_contexts"], json!({"scripted/scripted": 16_000}));
    let shown = gateway.run(&["models"]).await.stdout;
    assert!(shown.contains("scripted/scripted holds 16000 tokens"), "{shown}");
}
