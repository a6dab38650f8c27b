//! Measures how long a recall among many entries takes.

use std::time::{Duration, Instant};

use anyhow::Result;
use daoyou::chat::ChatMessage;
use daoyou::memory::vectors::nearest;
use daoyou::memory::{HitLocation, Identities, MemoryOwner, RecallQuery, rebuild_index, recall};
use daoyou::store::memories::{self, NewMemory};
use daoyou::store::search_index::{self, SearchCorpus};
use daoyou::store::vectors::{self, NewVector};
use daoyou::store::{Connection, StoreError, messages};
use uuid::Uuid;

use super::support::spelled;
use super::{BenchStore, as_f64, ask};

/// The size of the vocabulary. Word frequencies follow Zipf's law, as in any language.
const WORDS: usize = 30_000;
const SESSIONS: usize = 200;
/// One in this many entries is a fact.
const FACTS: usize = 20;
const QUESTIONS: usize = 400;
/// The kinds of questions, and the range of words that each draws from.
const KINDS: [(&str, usize, usize); 3] =
    [("six words as they come", 1, WORDS), ("six common words", 1, 60), ("six rare words", 2_000, WORDS)];

/// The dimensions of the vectors.
const SIZES: [usize; 2] = [256, 1_536];
/// The number of vectors written at once.
const PIECE: i64 = 1_000;
/// The share of noise in a question's vector, relative to a message's vector. Their cosine is 0.5.
const NOISE: f64 = 1.732;

/// A generator that gives the same numbers each time.
struct RandomNumbers(u64);

impl RandomNumbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(end).unwrap_or(1)).unwrap_or(0)
    }

    /// Returns a vector of length 1 in a random direction.
    fn vector(&mut self, size: usize) -> Vec<f32> {
        let number = |random: &mut Self| as_f64(random.below(1 << 20)) / as_f64(1 << 19) - 1.0;
        scaled((0..size).map(|_| number(self)).collect())
    }

    /// Returns a word. Lower numbers are more frequent.
    fn word(&mut self) -> usize {
        let part = as_f64(self.below(1 << 30)) / as_f64(1 << 30);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 1 and the number of words"
        )]
        let word = as_f64(WORDS).powf(part) as usize;
        word
    }

    /// Returns six words with numbers between `least` and `most`.
    fn question(&mut self, least: usize, most: usize) -> String {
        let mut words = Vec::new();
        while words.len() < 6 {
            words.extend(Some(self.word()).filter(|word| (least..most).contains(word)).map(spelled));
        }
        words.join(" ")
    }

    fn sentence(&mut self) -> String {
        let length = 6 + self.below(40);
        (0..length).map(|_| spelled(self.word())).collect::<Vec<_>>().join(" ")
    }
}

/// Returns the table: p50 and p99 for questions of each kind.
pub async fn measure(entries: usize) -> Result<String> {
    let bench_store = BenchStore::new()?;
    let begun = Instant::now();
    bench_store.fill(move |connection| fill(connection, entries)).await?;
    let filled = begun.elapsed();
    let begun = Instant::now();
    bench_store.fill(|connection| rebuild_index(connection, &Identities::default())).await?;
    let indexed = begun.elapsed();
    let mut table = format!(
        "**Speed** among {entries} entries (messages of {SESSIONS} sessions, one in {FACTS} a fact), ten hits; {:.0} µs an entry to \
         write it, {:.0} µs to index it.\n\n| questions | p50 | p99 | goal |\n|---|---|---|---|\n",
        filled.as_secs_f64() * 1e6 / as_f64(entries),
        indexed.as_secs_f64() * 1e6 / as_f64(entries)
    );
    let mut random = RandomNumbers(7);
    for (what, least, most) in KINDS {
        let mut times = Vec::with_capacity(QUESTIONS);
        for _ in 0..QUESTIONS {
            times.push(timed(&bench_store, &ask(&random.question(least, most), owners(), 10), None)?);
        }
        table += &row(what, times, "");
    }
    for size in SIZES {
        table += &with_vectors(&bench_store, size).await?;
    }
    Ok(table)
}

/// Returns rows of the table. The newest messages have random vectors, and each question has a vector similar to a message's.
async fn with_vectors(bench_store: &BenchStore, size: usize) -> Result<String> {
    let model = format!("chance@{size}");
    let newest =
        bench_store.store.read(|connection| search_index::highest_id(connection, SearchCorpus::Messages)).await?;
    let name = model.clone();
    bench_store.fill(move |connection| vectors::set_model(connection, &name)).await?;
    let begun = Instant::now();
    let mut after = 0;
    while after < newest {
        let (name, until) = (model.clone(), newest.min(after + PIECE));
        let new: Vec<NewVector> = (after + 1..=until)
            .map(|id| NewVector { hash: vectors::hash(&id.to_string()), vector: of_message(id, size), ids: vec![id] })
            .collect();
        bench_store
            .fill(move |connection| vectors::put_messages(connection, &name, (&after.to_string(), until), &new))
            .await?;
        after = until;
    }
    let filled = begun.elapsed().as_secs_f64() * 1e6 / as_f64(usize::try_from(newest)?);
    // Only the newest messages keep their vectors.
    let gone = (newest - vectors::KEPT_MESSAGES).max(0);
    let mut random = RandomNumbers(11);
    let (mut times, mut found) = (Vec::new(), 0);
    for _ in 0..QUESTIONS {
        let id = gone + 1 + i64::try_from(random.below(usize::try_from(newest - gone)?))?;
        let beside = random.vector(size);
        let alike = of_message(id, size).into_iter().zip(beside);
        let vector =
            scaled(alike.map(|(of_message, beside)| f64::from(of_message) + NOISE * f64::from(beside)).collect());
        let ask = ask(&random.question(1, WORDS), owners(), 10);
        times.push(timed(bench_store, &ask, Some(&vector))?);
        let nearest = bench_store.store.read_here(|connection| {
            let place = search_index::find_message(connection, id)?
                .map(|message| HitLocation::Message { session: message.session, seq: message.seq });
            Ok(nearest(connection, &ask, &vector, 1)?.first().map(|near| &near.0) == place.as_ref())
        })?;
        found += usize::from(nearest);
    }
    let what = format!("as they come, with vectors of {size} numbers, of the newest {} messages", newest - gone);
    let found = format!("; {found} of {QUESTIONS} nearest found; {filled:.0} µs to write a vector");
    Ok(row(&what, times, &found))
}

fn of_message(id: i64, size: usize) -> Vec<f32> {
    // Consecutive seeds would give similar first numbers.
    let mut random = RandomNumbers(u64::try_from(id).unwrap_or(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    random.below(2);
    random.vector(size)
}

#[expect(clippy::cast_possible_truncation, reason = "numbers of a vector")]
fn scaled(vector: Vec<f64>) -> Vec<f32> {
    let length = vector.iter().map(|number| number * number).sum::<f64>().sqrt();
    vector.into_iter().map(|number| (number / length) as f32).collect()
}

fn owners() -> Vec<MemoryOwner> {
    vec![MemoryOwner::gateway(), MemoryOwner::everyone()]
}

fn timed(bench_store: &BenchStore, ask: &RecallQuery, vector: Option<&[f32]>) -> Result<Duration> {
    let begun = Instant::now();
    let hits = bench_store.store.read_here(|connection| recall(connection, ask, vector))?;
    let time = begun.elapsed();
    assert!(!hits.is_empty(), "every word is in some entry");
    Ok(time)
}

fn row(what: &str, mut times: Vec<Duration>, more: &str) -> String {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1e3;
    format!("| {what} | {:.2} ms | {:.2} ms | p50 < 10 ms{more} |\n", at(50), at(99))
}

fn fill(connection: &Connection, entries: usize) -> Result<(), StoreError> {
    let mut random = RandomNumbers(42);
    for number in 0..entries / FACTS {
        let text = random.sentence();
        let new = NewMemory {
            owner: "owner",
            kind: "fact",
            name: "",
            text: &text,
            detail: "{}",
            origin: "told",
            session: None,
            seq: None,
            turn: None,
            confidence: 1.0,
        };
        memories::insert(connection, &new)?;
        for turn in 0..(FACTS - 1) / 2 {
            let exchange = [ChatMessage::user(random.sentence()), ChatMessage::assistant(random.sentence())];
            let bodies = exchange.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
            let session = format!("cli:{}", (number * FACTS + turn) % SESSIONS);
            messages::append(connection, &session, Uuid::now_v7(), exchange.iter().map(ChatMessage::role).zip(bodies))?;
        }
    }
    connection.execute("UPDATE sessions SET owner = 'owner'", [])?;
    Ok(())
}
