//! The ranking function Okapi BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009).

use crate::text::SearchTerm;

/// The usual values of the saturation of repeated terms, and of the effect of a text's length.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// The number of imaginary texts without any term that [`TermWeights::share`] adds to a collection. Without them, every term of
/// a small collection would seem common.
const SMOOTHING_TEXTS: f64 = 1_000.0;

/// The weights of the terms of a query in a collection of texts.
pub struct TermWeights {
    rarity: Vec<f64>,
    share: Vec<f64>,
}

impl TermWeights {
    /// Creates the weights of `terms`; `counts` says how many of the `total` texts hold each term.
    pub fn new(terms: &[SearchTerm], counts: &[f64], total: f64) -> Self {
        let rarity = |total: f64| -> Vec<f64> {
            let rare = |count: f64| (1.0 + (total - count + 0.5).max(0.5) / (count + 0.5)).ln();
            terms.iter().zip(counts).map(|(term, count)| term.weight * rare(*count)).collect()
        };
        let shares = rarity(total + SMOOTHING_TEXTS);
        let whole = sum(&shares);
        Self { rarity: rarity(total), share: shares.iter().map(|share| share / whole).collect() }
    }

    /// Returns the contribution of a term to the score of a text that holds the term `count` times. `length` is relative to the
    /// average text.
    pub fn score(&self, term: usize, count: f64, length: f64) -> f64 {
        self.rarity[term] * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length))
    }

    /// Returns the score of a text of average length that holds every term once.
    pub fn whole(&self) -> f64 {
        sum(&self.rarity)
    }

    /// Returns the share of a term in the weight of the query, 0 to 1.
    pub fn share(&self, term: usize) -> f64 {
        self.share[term]
    }

    /// Returns the sum of the scores, and that of the shares, of the terms in the bit set `terms`.
    pub fn sums(&self, terms: u64) -> (f64, f64) {
        let held = (0..self.rarity.len()).filter(|term| terms & (1 << term) != 0);
        held.fold((0.0, 0.0), |(score, share), term| (score + self.rarity[term], share + self.share[term]))
    }
}

fn sum(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>().max(f64::MIN_POSITIVE)
}
