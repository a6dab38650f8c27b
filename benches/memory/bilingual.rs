//! Measures recall on the project's own data set: facts in English and Chinese, and questions that people would ask about them.

use anyhow::{Context, Result};
use daoyou::memory::{HitLocation, Identities, MemoryOwner, rebuild_index, recall};
use daoyou::store::memories::{self, NewMemory};
use daoyou::store::{Connection, StoreError};
use serde::Deserialize;

use super::{BenchStore, as_f64, ask};

#[derive(Deserialize)]
struct QuestionSet {
    /// The name and the sentence of each fact.
    facts: Vec<(String, String)>,
    /// Each question, and the name of the fact that answers it.
    questions: Vec<(String, String)>,
}

/// Returns the table: how often the fact is the first hit, and how often it is among the first five.
pub async fn measure() -> Result<String> {
    let set: QuestionSet = serde_json::from_str(include_str!("bilingual.json")).context("bilingual.json")?;
    let bench_store = BenchStore::new()?;
    let sentences: Vec<String> = set.facts.iter().map(|(_, sentence)| sentence.clone()).collect();
    let ids = bench_store.fill(move |connection| remember(connection, &sentences)).await?;
    let mut table = format!(
        "**Own set**, {} facts in English and Chinese (`benches/memory/bilingual.json`): how often the fact that answers is the \
         first hit, and among the first five.\n\n| questions | first | of the first five |\n|---|---|---|\n",
        set.facts.len()
    );
    for (language, is_asked) in [("English", true), ("Chinese", false)] {
        let (mut count, mut first, mut five) = (0, 0, 0);
        for (question, name) in set.questions.iter().filter(|(question, _)| question.is_ascii() == is_asked) {
            let fact = set.facts.iter().position(|(fact, _)| fact == name).context("a question without a fact")?;
            let ask = ask(question, vec![MemoryOwner::gateway()], 5);
            let hits = bench_store.store.read(move |connection| recall(connection, &ask, None)).await?;
            let place = hits.iter().position(|hit| hit.found == HitLocation::Memory(ids[fact]));
            count += 1;
            first += usize::from(place == Some(0));
            five += usize::from(place.is_some());
        }
        let share = |found: usize| as_f64(found) / as_f64(count);
        table += &format!("| {language}, {count} | {:.3} | {:.3} |\n", share(first), share(five));
    }
    Ok(table)
}

fn remember(connection: &Connection, sentences: &[String]) -> Result<Vec<i64>, StoreError> {
    let mut ids = Vec::new();
    for text in sentences {
        let new = NewMemory {
            owner: "owner",
            kind: "fact",
            name: "",
            text,
            detail: "{}",
            origin: "told",
            session: None,
            seq: None,
            turn: None,
            confidence: 1.0,
        };
        ids.push(memories::insert(connection, &new)?);
    }
    rebuild_index(connection, &Identities::default())?;
    Ok(ids)
}
