//! Searches memories and messages, by words and by vectors.

use std::collections::{HashMap, HashSet};

use super::entry::entry_text;
use super::message_text::spoken_text;
use super::query::{HitLocation, RecallHit, RecallQuery};
use super::term_query::{TermQuery, TermScore};
use super::vectors::nearest;
use super::word_index::{extra_indexed_text, found_or_damaged, scope};
use super::{MemoryKind, MemoryOwner};
use crate::store::memories::{self, MemoryRow};
use crate::store::search_index::{self, IndexedMessage, SearchCorpus};
use crate::store::{Connection, StoreError};

/// The rank of the neighbour whose similarity counts as the baseline: the level that any text reaches for this query.
const BASELINE_RANK: usize = 100;

/// The weight of recency, which puts the newer of two equal hits first, and the offset of the reciprocal rank.
const RECENCY_WEIGHT: f64 = 0.02;
const RANK_OFFSET: f64 = 60.0;

/// The maximum number of hits by vectors.
const MAX_BY_VECTOR: usize = 50;

/// The weights of the signals of relevance. The defaults were chosen on one half of the LoCoMo conversations (`cargo xtask
/// bench memory --choose`); `docs/benchmarks.md` has the results on the other half.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecallWeights {
    /// The share of a neighbour's word score that counts for the messages directly before and after it: a question helps to
    /// find its answer.
    pub neighbour_words: f64,
    /// The share of a neighbour's vector score that counts for the messages directly before and after it.
    pub neighbour_likeness: f64,
    /// The weight of vector similarity, relative to words.
    pub likeness: f64,
}

impl Default for RecallWeights {
    fn default() -> Self {
        Self { neighbour_words: 0.7, neighbour_likeness: 0.9, likeness: 1.5 }
    }
}

/// The number of best hits whose neighbours are read.
const MAX_WITH_NEIGHBOURS: usize = 30;

/// The maximum number of hits of one answer.
const MAX_HITS: usize = 200;

/// Returns the hits of a query, the best first. `vector` is the embedding of its text, if there is one. A damaged word index
/// finds nothing until it is rebuilt.
///
/// # Errors
/// The store cannot be read.
pub fn recall(
    connection: &Connection,
    query: &RecallQuery,
    vector: Option<&[f32]>,
) -> Result<Vec<RecallHit>, StoreError> {
    recall_weighted(connection, query, vector, &RecallWeights::default())
}

/// Returns the hits of a query as [`recall`] does, with other weights, for benchmarks.
///
/// # Errors
/// The store cannot be read.
pub fn recall_weighted(
    connection: &Connection,
    query: &RecallQuery,
    vector: Option<&[f32]>,
    weights: &RecallWeights,
) -> Result<Vec<RecallHit>, StoreError> {
    let mut search = RecallSearch { connection, query, weights: *weights, entries: HashMap::new() };
    if query.owners.is_empty() || (query.kinds.is_empty() && !query.messages) {
        return Ok(Vec::new());
    }
    // A hit by vector may hold few of the words.
    let least = if vector.is_some() { 0.0 } else { query.least };
    let by_words = found_or_damaged(search.by_words(least))?;
    let by_vector = match vector {
        Some(vector) => search.by_vector(vector)?,
        None => Vec::new(),
    };
    Ok(search.merge(by_words, by_vector))
}

struct RecallSearch<'a> {
    connection: &'a Connection,
    query: &'a RecallQuery,
    weights: RecallWeights,
    entries: HashMap<HitLocation, RecallCandidate>,
}

/// A memory or message that passed the filters.
#[derive(Clone, Debug)]
struct RecallCandidate {
    kind: Option<MemoryKind>,
    text: String,
    /// Further indexed text, which hits do not show.
    extra_text: String,
    at: i64,
    similarity: f64,
}

impl RecallSearch<'_> {
    /// Returns the candidates that hold the words, each with its share of the query's weight. Memories with less than
    /// `least` are left out.
    fn by_words(&mut self, least: f64) -> Result<Vec<(HitLocation, f64)>, StoreError> {
        let mut corpora = Vec::new();
        for (corpus, is_selected) in
            [(SearchCorpus::Memories, !self.query.kinds.is_empty()), (SearchCorpus::Messages, self.query.messages)]
        {
            if is_selected {
                corpora.push((corpus, self.scope(corpus)?));
            }
        }
        let term_query = TermQuery::search(self.connection, &self.query.text, corpora, self.query.limit)?;
        let mut order = Vec::new();
        for id in term_query.candidates(self.connection, SearchCorpus::Memories, least)? {
            if order.len() >= term_query.wanted() {
                break;
            }
            if let Some(entry) = memories::find(self.connection, id)?.and_then(|row| self.memory_candidate(&row)) {
                order.push(HitLocation::Memory(id));
                self.entries.insert(HitLocation::Memory(id), entry);
            }
        }
        let memory_count = order.len();
        for id in term_query.candidates(self.connection, SearchCorpus::Messages, 0.0)? {
            if order.len() - memory_count >= term_query.wanted() {
                break;
            }
            let Some((found, entry)) =
                search_index::find_message(self.connection, id)?.and_then(|message| self.message_candidate(message))
            else {
                continue;
            };
            order.push(found.clone());
            self.entries.insert(found, entry);
        }
        let mut scored = self.score(&term_query, order);
        let fit = |entry: &RecallCandidate| {
            let scores = term_query.scores([(entry.text.as_str(), entry.extra_text.as_str())].into_iter());
            scores.first().copied().unwrap_or_default()
        };
        self.add_neighbours(&mut scored, self.weights.neighbour_words, fit)?;
        let whole = term_query.whole();
        Ok(scored.into_iter().map(|(found, score)| (found, score / whole)).collect())
    }

    fn score(&mut self, term_query: &TermQuery, order: Vec<HitLocation>) -> Vec<(HitLocation, f64)> {
        let texts = order.iter().map(|found| {
            let entry = &self.entries[found];
            (entry.text.as_str(), entry.extra_text.as_str())
        });
        let scores = term_query.scores(texts);
        let mut scored = Vec::with_capacity(order.len());
        for (found, TermScore { score, similarity }) in order.into_iter().zip(scores) {
            if let Some(entry) = self.entries.get_mut(&found) {
                entry.similarity = similarity;
            }
            scored.push((found, score));
        }
        scored
    }

    /// Adds a `share` of the neighbours' scores to the best messages, and a `share` of the best messages' scores to their
    /// neighbours. `fit` returns the score of a neighbour that the search did not find.
    fn add_neighbours(
        &mut self,
        scored: &mut Vec<(HitLocation, f64)>,
        share: f64,
        fit: impl Fn(&RecallCandidate) -> TermScore,
    ) -> Result<(), StoreError> {
        let mut best = scored.clone();
        best.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let mut own: HashMap<HitLocation, f64> = scored.drain(..).collect();
        let mut near: HashMap<HitLocation, f64> = HashMap::new();
        for (found, score) in best.into_iter().take(MAX_WITH_NEIGHBOURS) {
            let HitLocation::Message { session, seq } = &found else { continue };
            for neighbour in search_index::neighbors(self.connection, session, *seq)?.into_iter().flatten() {
                let Some((next, mut entry)) = self.message_candidate(neighbour) else { continue };
                if !own.contains_key(&next) {
                    let TermScore { score, similarity } = fit(&entry);
                    own.insert(next.clone(), score);
                    entry.similarity = similarity;
                    self.entries.entry(next.clone()).or_insert(entry);
                }
                let of_next = own.get(&next).copied().unwrap_or(0.0);
                let here = near.entry(found.clone()).or_default();
                *here = here.max(of_next);
                let there = near.entry(next).or_default();
                *there = there.max(score);
            }
        }
        for (found, score) in own {
            let score_beside = near.get(&found).copied().unwrap_or(0.0);
            scored.push((found, score + share * score_beside));
        }
        Ok(())
    }

    /// Returns the candidates with similar vectors. The score is the similarity times its margin over the level of unrelated
    /// texts.
    fn by_vector(&mut self, vector: &[f32]) -> Result<Vec<(HitLocation, f64)>, StoreError> {
        let near = nearest(self.connection, self.query, vector, BASELINE_RANK)?;
        let baseline = near.get(BASELINE_RANK - 1).map_or(0.0, |(_, likeness)| f64::from(*likeness));
        let mut scored = Vec::new();
        for (found, likeness) in near.into_iter().take(MAX_BY_VECTOR) {
            let likeness = f64::from(likeness).clamp(0.0, 1.0);
            if !self.entries.contains_key(&found) {
                let entry = match &found {
                    HitLocation::Memory(id) => {
                        memories::find(self.connection, *id)?.and_then(|row| self.memory_candidate(&row))
                    }
                    HitLocation::Message { session, seq } => search_index::message_at(self.connection, session, *seq)?
                        .and_then(|message| self.message_candidate(message))
                        .map(|(_, entry)| entry),
                };
                let Some(entry) = entry else { continue };
                self.entries.insert(found.clone(), entry);
            }
            if let Some(entry) = self.entries.get_mut(&found) {
                entry.similarity = entry.similarity.max(likeness);
                scored.push((found, self.weights.likeness * likeness * (likeness - baseline)));
            }
        }
        self.add_neighbours(&mut scored, self.weights.neighbour_likeness, |_| TermScore::default())?;
        Ok(scored)
    }

    /// Merges all candidates into one list, the best first, by the sum of two measures from 0 to about 1: the share of the
    /// query's weight that a hit holds in words, and its weighted vector similarity. A sum of reciprocal ranks would let
    /// weak vectors displace good word matches.
    fn merge(mut self, by_words: Vec<(HitLocation, f64)>, by_vector: Vec<(HitLocation, f64)>) -> Vec<RecallHit> {
        let mut by_time: Vec<HitLocation> = self.entries.keys().cloned().collect();
        by_time.sort_by(|a, b| self.entries[b].at.cmp(&self.entries[a].at).then_with(|| b.cmp(a)));
        let mut scores: HashMap<HitLocation, f64> = by_words.into_iter().collect();
        for (found, likeness) in by_vector {
            *scores.entry(found).or_default() += likeness;
        }
        for (place, found) in (1_u32..).zip(by_time) {
            *scores.entry(found).or_default() += RECENCY_WEIGHT / (RANK_OFFSET + f64::from(place));
        }
        let mut order: Vec<(HitLocation, f64)> = scores.into_iter().collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let mut seen = HashSet::new();
        let mut hits = Vec::new();
        for (found, score) in order {
            let Some(entry) = self.entries.remove(&found) else { continue };
            // A conversation that was reset to a checkpoint contains the same text twice.
            if entry.similarity >= self.query.least && seen.insert(entry.text.clone()) {
                let RecallCandidate { kind, text, at, similarity, .. } = entry;
                hits.push(RecallHit { found, kind, text, at, similarity, score });
            }
            if hits.len() >= self.query.limit.min(MAX_HITS) {
                break;
            }
        }
        hits
    }

    fn scope(&self, corpus: SearchCorpus) -> Result<Option<String>, StoreError> {
        let owners: Vec<&str> = self.query.owners.iter().map(MemoryOwner::as_str).collect();
        let has_others = search_index::has_others(self.connection, corpus, &owners)?;
        let owners = has_others.then_some(self.query.owners.as_slice());
        Ok(scope(owners, self.query.session.as_deref()))
    }

    fn is_in_time(&self, at: i64) -> bool {
        self.query.since.is_none_or(|since| at >= since) && self.query.until.is_none_or(|until| at < until)
    }

    fn is_selected_owner(&self, owner: &str) -> bool {
        self.query.owners.iter().any(|selected| selected.as_str() == owner)
    }

    fn memory_candidate(&self, row: &MemoryRow) -> Option<RecallCandidate> {
        let kind: MemoryKind = row.kind.parse().ok()?;
        let is_selected = self.query.kinds.contains(&kind)
            && row.replaced_by.is_none()
            && self.is_selected_owner(&row.owner)
            && self.query.session.as_deref().is_none_or(|session| row.session.as_deref() == Some(session))
            && self.is_in_time(row.created_at);
        if !is_selected {
            return None;
        }
        let extra_text = extra_indexed_text(row);
        let text = entry_text(Some(kind), &row.name, &row.text);
        Some(RecallCandidate { kind: Some(kind), text, extra_text, at: row.created_at, similarity: 0.0 })
    }

    fn message_candidate(&self, row: IndexedMessage) -> Option<(HitLocation, RecallCandidate)> {
        let is_selected = self.is_selected_owner(&row.owner)
            && self.query.session.as_ref().is_none_or(|session| row.session == *session)
            && self.is_in_time(row.at);
        let text = is_selected.then(|| spoken_text(&row.body)).flatten()?;
        let found = HitLocation::Message { session: row.session, seq: row.seq };
        Some((found, RecallCandidate { kind: None, text, extra_text: row.speaker, at: row.at, similarity: 0.0 }))
    }
}

#[cfg(test)]
#[path = "recall_tests.rs"]
mod tests;
