//! How long a recall takes among many entries.

use std::time::{Duration, Instant};

use anyhow::Result;
use daoyou::llm::ChatMessage;
use daoyou::memory::{Identities, Owner, recall, words};
use daoyou::store::memories::{self, NewMemory};
use daoyou::store::{Connection, StoreError, messages};
use uuid::Uuid;

use super::{World, as_f64, ask};

/// Words that there are; how often each comes follows Zipf's law, as in any language.
const WORDS: usize = 30_000;
const SESSIONS: usize = 200;
/// Of the entries, one in so many is a fact.
const FACTS: usize = 20;
const QUESTIONS: usize = 400;

/// The same numbers each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(end).unwrap_or(1)).unwrap_or(0)
    }

    /// A word; the one of the least number comes most often.
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

    fn sentence(&mut self) -> String {
        let length = 6 + self.below(40);
        (0..length).map(|_| spelled(self.word())).collect::<Vec<_>>().join(" ")
    }
}

/// A word as one could say it.
fn spelled(mut number: usize) -> String {
    const SYLLABLES: [&str; 16] =
        ["ba", "do", "ki", "lu", "me", "na", "po", "ra", "su", "ti", "vo", "wa", "xe", "zo", "fu", "ga"];
    let mut word = String::from("k");
    while number > 0 {
        word += SYLLABLES[number % SYLLABLES.len()];
        number /= SYLLABLES.len();
    }
    word + "x"
}

/// The table: p50 and p99 of questions of different kinds.
pub async fn measure(entries: usize) -> Result<String> {
    let world = World::new()?;
    let begun = Instant::now();
    world.fill(move |connection| fill(connection, entries)).await?;
    let filled = begun.elapsed();
    let begun = Instant::now();
    world.fill(|connection| words::rebuild(connection, &Identities::default())).await?;
    let indexed = begun.elapsed();
    let mut table = format!(
        "**Speed** among {entries} entries (messages of {SESSIONS} sessions, one in {FACTS} a fact), ten hits; {:.0} µs an entry to \
         write it, {:.0} µs to index it.\n\n| questions | p50 | p99 | goal |\n|---|---|---|---|\n",
        filled.as_secs_f64() * 1e6 / as_f64(entries),
        indexed.as_secs_f64() * 1e6 / as_f64(entries)
    );
    let mut dice = Dice(7);
    for (what, least, most) in
        [("six words as they come", 1, WORDS), ("six common words", 1, 60), ("six rare words", 2_000, WORDS)]
    {
        let mut times = Vec::with_capacity(QUESTIONS);
        for _ in 0..QUESTIONS {
            let mut words = Vec::new();
            while words.len() < 6 {
                words.extend(Some(dice.word()).filter(|word| (least..most).contains(word)).map(spelled));
            }
            let ask = ask(&words.join(" "), vec![Owner::gateway(), Owner::everyone()], 10);
            let begun = Instant::now();
            let hits = world.store.read_here(|connection| recall(connection, &ask, None))?;
            times.push(begun.elapsed());
            assert!(!hits.is_empty(), "every word is in some entry");
        }
        times.sort_unstable();
        let at = |part: usize| milliseconds(times[(times.len() - 1) * part / 100]);
        table += &format!("| {what} | {:.2} ms | {:.2} ms | p50 < 10 ms |\n", at(50), at(99));
    }
    Ok(table)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn fill(connection: &Connection, entries: usize) -> Result<(), StoreError> {
    let mut dice = Dice(42);
    for number in 0..entries / FACTS {
        let text = dice.sentence();
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
            let said = [ChatMessage::user(dice.sentence()), ChatMessage::assistant(dice.sentence())];
            let bodies = said.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
            let session = format!("cli:{}", (number * FACTS + turn) % SESSIONS);
            messages::append(connection, &session, Uuid::now_v7(), said.iter().map(ChatMessage::role).zip(bodies))?;
        }
    }
    connection.execute("UPDATE sessions SET owner = 'owner'", [])?;
    Ok(())
}
