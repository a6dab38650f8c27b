//! Which entries hold most of what is asked for: few are looked up by their words, and those are read and scored.

use std::collections::HashMap;

use super::bm25::TermWeights;
use crate::store::search_index::{SearchCorpus, find, size};
use crate::store::{Connection, StoreError};
use crate::text::{SearchTerm, TermPrefixes, query_terms, visit_terms};

/// Of a term that is as common as this only the newest are looked at by themselves.
const COMMON: usize = 400;

/// Candidates that are scored, of each shelf: twice as many as are wanted, within these.
const CANDIDATES: (usize, usize) = (40, 100);

/// Candidates that are read to find them: not all that holds the words is of the owners, kinds and times that are asked for.
pub const READ: usize = 1_000;

/// Common terms of a question that are looked at together with others.
const TOGETHER: usize = 2;

/// Entries that are taken of two terms together.
const OF_TWO: usize = 300;

/// Where so much of everything is within the scope, what is out of it is left out when it is read: that costs less than to
/// have every list cut down.
const MOST: f64 = 0.5;

/// What is asked for, and how rare it is in what is looked through.
pub struct TermQuery {
    terms: Vec<SearchTerm>,
    /// Where each term stands among them.
    places: HashMap<String, usize>,
    beginnings: TermPrefixes,
    weights: TermWeights,
    shelves: Vec<PostingLists>,
}

/// What one shelf has of each term.
struct PostingLists {
    shelf: SearchCorpus,
    scope: Option<String>,
    lists: Vec<Vec<i64>>,
    counts: Vec<f64>,
    /// How many are to be scored.
    wanted: usize,
}

/// How well something fits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TermScore {
    /// By BM25; comparable within one question.
    pub score: f64,
    /// How much of the question it holds, 0 to 1.
    pub similarity: f64,
}

impl TermQuery {
    /// Looks the terms of a text up on shelves, each with the expression that all of its hits must fit, for so many hits.
    pub fn ask(
        connection: &Connection,
        text: &str,
        shelves: Vec<(SearchCorpus, Option<String>)>,
        hits: usize,
    ) -> Result<Self, StoreError> {
        let wanted = hits.saturating_mul(2).clamp(CANDIDATES.0, CANDIDATES.1);
        let terms = query_terms(text);
        let mut total = 0.0;
        let mut lists = Vec::with_capacity(shelves.len());
        for (shelf, scope) in shelves {
            let highest = size(connection, shelf)?;
            let within = match &scope {
                Some(scope) => count(&find(connection, shelf, scope, COMMON)?, highest),
                None => as_f64(highest),
            };
            total += within;
            let holds_most = within >= MOST * as_f64(highest);
            let (scope, narrow) = if holds_most { (None, scope) } else { (scope, None) };
            let narrow = narrow.as_deref();
            lists.push(PostingLists::probe(connection, (shelf, scope, narrow), &terms, highest, wanted)?);
        }
        let counts = (0..terms.len()).map(|term| lists.iter().map(|lists| lists.counts[term]).sum::<f64>());
        let counts: Vec<f64> = counts.collect();
        Ok(Self {
            weights: TermWeights::new(&terms, &counts, total),
            places: terms.iter().enumerate().map(|(at, term)| (term.text.clone(), at)).collect(),
            beginnings: TermPrefixes::of(&terms),
            terms,
            shelves: lists,
        })
    }

    pub fn terms(&self) -> &[SearchTerm] {
        &self.terms
    }

    /// Returns the score of a text of average length that holds every term once.
    pub fn whole(&self) -> f64 {
        self.weights.whole()
    }

    /// How many candidates of a shelf are to be scored.
    pub fn wanted(&self) -> usize {
        self.shelves.first().map_or(0, |lists| lists.wanted)
    }

    /// The ids on a shelf that may fit at least so well (see [`TermScore::similarity`]), the likeliest first, without having read
    /// them: they may be anybody's.
    pub fn candidates(&self, connection: &Connection, shelf: SearchCorpus, least: f64) -> Result<Vec<i64>, StoreError> {
        let Some(lists) = self.shelves.iter().find(|lists| lists.shelf == shelf) else { return Ok(Vec::new()) };
        let mut held = lists.rare();
        lists.look_together(connection, &self.terms, &mut held)?;
        // Of a common term it is not known who does not hold it.
        let common = (0..self.terms.len()).filter(|term| lists.is_common(*term)).fold(0, |all, term| all | 1 << term);
        held.retain(|_, held| self.weights.sums(*held | common).1 >= least);
        let mut best: Vec<(f64, i64)> = held.into_iter().map(|(id, held)| (self.weights.sums(held).0, id)).collect();
        best.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
        Ok(best.into_iter().take(READ).map(|(_, id)| id).collect())
    }

    /// Reads texts and says how well each fits; `beside` is what each is found by besides.
    pub fn fits<'a>(&self, texts: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<TermScore> {
        let read: Vec<(Vec<u32>, usize)> = texts
            .map(|(text, beside)| {
                let mut counts = vec![0_u32; self.terms.len()];
                let mut take = |term: &str| {
                    if let Some(at) = self.places.get(term) {
                        counts[*at] += 1;
                    }
                };
                let length = visit_terms(text, |word| self.beginnings.may_match(word), &mut take);
                visit_terms(beside, |word| self.beginnings.may_match(word), &mut take);
                (counts, length)
            })
            .collect();
        let length = |length: usize| as_f64(i64::try_from(length).unwrap_or(i64::MAX));
        let average = read.iter().map(|(_, terms)| length(*terms)).sum::<f64>() / length(read.len().max(1));
        read.iter().map(|(counts, terms)| self.fit(counts, length(*terms) / average.max(1.0))).collect()
    }

    /// `length` is that of the text beside the usual one.
    fn fit(&self, counts: &[u32], length: f64) -> TermScore {
        let mut fit = TermScore::default();
        for (at, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = f64::from(*count);
            fit.score += self.weights.score(at, count, length);
            fit.similarity += self.weights.share(at);
        }
        fit.similarity = fit.similarity.clamp(0.0, 1.0);
        fit
    }
}

impl PostingLists {
    /// `narrow` is the scope where most of the shelf is within it, so that it is not worth asking for each time.
    fn probe(
        connection: &Connection,
        (shelf, scope, narrow): (SearchCorpus, Option<String>, Option<&str>),
        terms: &[SearchTerm],
        highest: i64,
        wanted: usize,
    ) -> Result<Self, StoreError> {
        let mut probed = Self { shelf, scope, lists: Vec::new(), counts: Vec::new(), wanted };
        for term in terms {
            let mut list = find(connection, shelf, &probed.within(&quoted(term)), COMMON)?;
            probed.counts.push(count(&list, highest));
            // Of so many only the newest stand there, and these may all be somebody else's.
            if let Some(scope) = narrow.filter(|_| list.len() >= COMMON) {
                list = find(connection, shelf, &format!("{scope} AND {}", quoted(term)), COMMON)?;
            }
            probed.lists.push(list);
        }
        Ok(probed)
    }

    fn within(&self, ask: &str) -> String {
        match &self.scope {
            Some(scope) => format!("{scope} AND {ask}"),
            None => ask.to_owned(),
        }
    }

    fn is_common(&self, term: usize) -> bool {
        self.lists[term].len() >= COMMON
    }

    /// What holds rare terms, each with which of them.
    fn rare(&self) -> HashMap<i64, u64> {
        let mut held = HashMap::new();
        for term in (0..self.lists.len()).filter(|term| !self.is_common(*term)) {
            for id in &self.lists[term] {
                *held.entry(*id).or_default() |= 1 << term;
            }
        }
        held
    }

    /// Adds what holds common terms: where rare ones are in too many, which of these hold common ones, too; where they are in
    /// few, what holds several common ones.
    fn look_together(
        &self,
        connection: &Connection,
        terms: &[SearchTerm],
        held: &mut HashMap<i64, u64>,
    ) -> Result<(), StoreError> {
        let mut common: Vec<usize> = (0..terms.len()).filter(|term| self.is_common(*term)).collect();
        common.sort_by(|a, b| self.counts[*a].total_cmp(&self.counts[*b]));
        common.truncate(TOGETHER);
        let has_too_many = held.len() > self.wanted;
        let mut add = |ids: &[i64], terms: u64| {
            for id in ids {
                *held.entry(*id).or_default() |= terms;
            }
        };
        if has_too_many {
            let rare = (0..terms.len()).filter(|term| !self.is_common(*term)).map(|term| quoted(&terms[term]));
            let rare = rare.collect::<Vec<_>>().join(" OR ");
            for term in &common {
                let ask = self.within(&format!("({rare}) AND {}", quoted(&terms[*term])));
                add(&find(connection, self.shelf, &ask, OF_TWO)?, 1 << term);
            }
            return Ok(());
        }
        for (at, first) in common.iter().enumerate() {
            add(&self.lists[*first], 1 << first);
            for second in &common[at + 1..] {
                let ask = self.within(&format!("{} AND {}", quoted(&terms[*first]), quoted(&terms[*second])));
                add(&find(connection, self.shelf, &ask, OF_TWO)?, 1 << first | 1 << second);
            }
        }
        Ok(())
    }
}

/// No term of ours holds a quote.
fn quoted(term: &SearchTerm) -> String {
    format!("\"{}\"", term.text)
}

/// How many there are of what these are the newest of, as far as the newest tell.
fn count(newest: &[i64], highest: i64) -> f64 {
    let length = as_f64(i64::try_from(newest.len()).unwrap_or(i64::MAX));
    match newest.last() {
        Some(last) if newest.len() >= COMMON => length * as_f64(highest) / as_f64((highest - last + 1).max(1)),
        _ => length,
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of rows, used as weights")]
fn as_f64(count: i64) -> f64 {
    count as f64
}
