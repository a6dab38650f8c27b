//! Ranks entries by the terms of a query: an index look-up selects a few candidates, which are then read and scored.

use std::collections::HashMap;

use super::bm25::TermWeights;
use crate::store::search_index::{SearchCorpus, find, highest_id};
use crate::store::{Connection, StoreError};
use crate::text::{SearchTerm, TermPrefixes, query_terms, visit_terms};

/// The number of hits from which a term is common. For a common term, only the newest hits are listed.
const COMMON: usize = 400;

/// The minimum and the maximum number of candidates that are scored in each corpus. Within these limits, the number is
/// twice that of the requested hits.
const CANDIDATES: (usize, usize) = (40, 100);

/// The maximum number of candidates that are read. Some of those with the terms are of other owners, kinds or times
/// than the query's.
const MAX_READ: usize = 1_000;

/// The maximum number of common terms of a query that are combined with other terms.
const MAX_COMBINED: usize = 2;

/// The maximum number of entries that are read for two terms together.
const MAX_OF_PAIR: usize = 300;

/// The share of a corpus within the scope from which entries out of scope are skipped only when they are read: that costs less
/// than a restriction of every list.
const SCOPE_SHARE: f64 = 0.5;

/// The terms of a query, with their rarity in the searched corpora.
pub struct TermQuery {
    terms: Vec<SearchTerm>,
    /// The position of each term in `terms`.
    positions: HashMap<String, usize>,
    prefixes: TermPrefixes,
    weights: TermWeights,
    corpora: Vec<PostingLists>,
}

/// The index entries of each term in one corpus.
struct PostingLists {
    corpus: SearchCorpus,
    scope: Option<String>,
    lists: Vec<Vec<i64>>,
    counts: Vec<f64>,
    /// The number of candidates to score.
    wanted: usize,
}

/// The score of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TermScore {
    /// The BM25 score; comparable within one query only.
    pub score: f64,
    /// The share of the query's weight that the entry holds, 0 to 1.
    pub similarity: f64,
}

impl TermQuery {
    /// Looks up the terms of a text in corpora, to find `hits` entries. Each corpus comes with the expression that all its hits
    /// must match.
    ///
    /// # Errors
    /// The index cannot be read from the store.
    pub fn search(
        connection: &Connection,
        text: &str,
        corpora: Vec<(SearchCorpus, Option<String>)>,
        hits: usize,
    ) -> Result<Self, StoreError> {
        let wanted = hits.saturating_mul(2).clamp(CANDIDATES.0, CANDIDATES.1);
        let terms = query_terms(text);
        let mut total = 0.0;
        let mut lists = Vec::with_capacity(corpora.len());
        for (corpus, scope) in corpora {
            let highest = highest_id(connection, corpus)?;
            let within = match &scope {
                Some(scope) => estimate_count(&find(connection, corpus, scope, COMMON)?, highest),
                None => highest as f64,
            };
            total += within;
            let holds_most = within >= SCOPE_SHARE * highest as f64;
            let (scope, narrow) = if holds_most { (None, scope) } else { (scope, None) };
            let narrow = narrow.as_deref();
            lists.push(PostingLists::look_up(connection, (corpus, scope, narrow), &terms, highest, wanted)?);
        }
        let counts = (0..terms.len()).map(|term| lists.iter().map(|lists| lists.counts[term]).sum::<f64>());
        let counts: Vec<f64> = counts.collect();
        Ok(Self {
            weights: TermWeights::new(&terms, &counts, total),
            positions: terms.iter().enumerate().map(|(at, term)| (term.text.clone(), at)).collect(),
            prefixes: TermPrefixes::of(&terms),
            terms,
            corpora: lists,
        })
    }

    pub fn terms(&self) -> &[SearchTerm] {
        &self.terms
    }

    /// Returns the score of a text of average length that holds every term once.
    pub fn whole(&self) -> f64 {
        self.weights.whole()
    }

    /// Returns the number of candidates to score in each corpus.
    pub fn wanted(&self) -> usize {
        self.corpora.first().map_or(0, |lists| lists.wanted)
    }

    /// Returns the ids in a corpus that may have at least this similarity (see [`TermScore::similarity`]), the most likely
    /// first. They are not read yet, so they may belong to any owner.
    ///
    /// # Errors
    /// The index cannot be read from the store.
    pub fn candidates(
        &self,
        connection: &Connection,
        corpus: SearchCorpus,
        least: f64,
    ) -> Result<Vec<i64>, StoreError> {
        let Some(lists) = self.corpora.iter().find(|lists| lists.corpus == corpus) else { return Ok(Vec::new()) };
        let mut held = lists.rare_hits();
        lists.add_common_hits(connection, &self.terms, &mut held)?;
        // The list of a common term is incomplete, so every entry counts as holding the term.
        let common = (0..self.terms.len()).filter(|term| lists.is_common(*term)).fold(0, |all, term| all | 1 << term);
        held.retain(|_, held| self.weights.sums(*held | common).1 >= least);
        let mut best: Vec<(f64, i64)> = held.into_iter().map(|(id, held)| (self.weights.sums(held).0, id)).collect();
        best.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
        Ok(best.into_iter().take(MAX_READ).map(|(_, id)| id).collect())
    }

    /// Scores texts, each with its extra indexed text.
    pub fn scores<'a>(&self, texts: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<TermScore> {
        let read: Vec<(Vec<u32>, usize)> = texts
            .map(|(text, extra_text)| {
                let mut counts = vec![0_u32; self.terms.len()];
                let mut take = |term: &str| {
                    if let Some(at) = self.positions.get(term) {
                        counts[*at] += 1;
                    }
                };
                let length = visit_terms(text, |word| self.prefixes.may_match(word), &mut take);
                visit_terms(extra_text, |word| self.prefixes.may_match(word), &mut take);
                (counts, length)
            })
            .collect();
        let average = read.iter().map(|(_, length)| *length as f64).sum::<f64>() / read.len().max(1) as f64;
        read.iter().map(|(counts, length)| self.score(counts, *length as f64 / average.max(1.0))).collect()
    }

    /// Computes a score. `length` is relative to the average text.
    fn score(&self, counts: &[u32], length: f64) -> TermScore {
        let mut score = TermScore::default();
        for (at, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = f64::from(*count);
            score.score += self.weights.score(at, count, length);
            score.similarity += self.weights.share(at);
        }
        score.similarity = score.similarity.clamp(0.0, 1.0);
        score
    }
}

impl PostingLists {
    /// Looks up terms. If most of the corpus is within the scope, `narrow` is the scope, which then restricts common terms
    /// only.
    fn look_up(
        connection: &Connection,
        (corpus, scope, narrow): (SearchCorpus, Option<String>, Option<&str>),
        terms: &[SearchTerm],
        highest: i64,
        wanted: usize,
    ) -> Result<Self, StoreError> {
        let mut lists = Self { corpus, scope, lists: Vec::new(), counts: Vec::new(), wanted };
        for term in terms {
            let mut list = find(connection, corpus, &lists.within(&quote(term)), COMMON)?;
            lists.counts.push(estimate_count(&list, highest));
            // Only the newest entries of a common term are listed, and all of them may be out of scope.
            if let Some(scope) = narrow.filter(|_| list.len() >= COMMON) {
                list = find(connection, corpus, &format!("{scope} AND {}", quote(term)), COMMON)?;
            }
            lists.lists.push(list);
        }
        Ok(lists)
    }

    fn within(&self, expression: &str) -> String {
        match &self.scope {
            Some(scope) => format!("{scope} AND {expression}"),
            None => expression.to_owned(),
        }
    }

    fn is_common(&self, term: usize) -> bool {
        self.lists[term].len() >= COMMON
    }

    /// Returns the entries that hold rare terms, each with the bit set of these terms.
    fn rare_hits(&self) -> HashMap<i64, u64> {
        let mut held = HashMap::new();
        for term in (0..self.lists.len()).filter(|term| !self.is_common(*term)) {
            for id in &self.lists[term] {
                *held.entry(*id).or_default() |= 1 << term;
            }
        }
        held
    }

    /// Adds the entries that hold common terms. If the rare terms have too many hits, these hits are checked for common terms.
    /// Otherwise, the hits of each common term and of each pair of terms are added.
    fn add_common_hits(
        &self,
        connection: &Connection,
        terms: &[SearchTerm],
        held: &mut HashMap<i64, u64>,
    ) -> Result<(), StoreError> {
        let mut common: Vec<usize> = (0..terms.len()).filter(|term| self.is_common(*term)).collect();
        common.sort_by(|a, b| self.counts[*a].total_cmp(&self.counts[*b]));
        common.truncate(MAX_COMBINED);
        let has_too_many = held.len() > self.wanted;
        let mut add = |ids: &[i64], terms: u64| {
            for id in ids {
                *held.entry(*id).or_default() |= terms;
            }
        };
        if has_too_many {
            let rare = (0..terms.len()).filter(|term| !self.is_common(*term)).map(|term| quote(&terms[term]));
            let rare = rare.collect::<Vec<_>>().join(" OR ");
            for term in &common {
                let expression = self.within(&format!("({rare}) AND {}", quote(&terms[*term])));
                add(&find(connection, self.corpus, &expression, MAX_OF_PAIR)?, 1 << term);
            }
            return Ok(());
        }
        for (at, first) in common.iter().enumerate() {
            add(&self.lists[*first], 1 << first);
            for second in &common[at + 1..] {
                let expression = self.within(&format!("{} AND {}", quote(&terms[*first]), quote(&terms[*second])));
                add(&find(connection, self.corpus, &expression, MAX_OF_PAIR)?, 1 << first | 1 << second);
            }
        }
        Ok(())
    }
}

/// Quotes a term for an index expression; terms never contain quotes.
fn quote(term: &SearchTerm) -> String {
    format!("\"{}\"", term.text)
}

/// Estimates the number of hits from the newest ones.
fn estimate_count(newest: &[i64], highest: i64) -> f64 {
    let length = newest.len() as f64;
    match newest.last() {
        Some(last) if newest.len() >= COMMON => length * highest as f64 / (highest - last + 1).max(1) as f64,
        _ => length,
    }
}
