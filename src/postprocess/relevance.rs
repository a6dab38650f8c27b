//! Rates how well the parts of a text fit the keywords of a question.

use std::collections::HashMap;

use super::question::{Keyword, subwords};
use crate::text::{is_han, stem};

/// The share of the parts from which a keyword is too common to distinguish them.
const COMMON_SHARE: f64 = 0.5;
/// The number of parts from which a text can have common keywords.
const COMMON_FROM: usize = 6;
/// The maximum number of parts of a text that is rated.
const MAX_PARTS: usize = 50_000;
/// The longest word that is compared, in bytes.
const LONGEST_WORD: usize = 80;

/// A search for keywords in texts.
pub struct KeywordMatcher {
    /// The words in lower case and stemmed, each with its keywords and weights.
    words: HashMap<String, Vec<(usize, f64)>>,
    /// True for the first bytes of the words. Most words of a text have another first byte, and need not be stemmed.
    firsts: [bool; 256],
    texts: Vec<(String, usize, f64)>,
    count: usize,
}

impl KeywordMatcher {
    pub fn new(keywords: &[Keyword]) -> Self {
        let mut words: HashMap<String, Vec<(usize, f64)>> = HashMap::new();
        let (mut firsts, mut texts) = ([false; 256], Vec::new());
        for (at, keyword) in keywords.iter().enumerate() {
            for (word, weight) in &keyword.words {
                firsts[usize::from(word.bytes().next().unwrap_or_default())] = true;
                words.entry(word.clone()).or_default().push((at, *weight));
            }
            texts.extend(keyword.texts.iter().map(|(text, weight)| (text.clone(), at, *weight)));
        }
        Self { words, firsts, texts, count: keywords.len() }
    }

    /// Returns, for each keyword, the share of it that a text holds, 0 to 1.
    pub fn find(&self, text: &str) -> Vec<f64> {
        let mut found = vec![0.0_f64; self.count];
        let lower = text.to_lowercase();
        for (part, at, weight) in &self.texts {
            if found[*at] < *weight && contains(&lower, part) {
                found[*at] = found[*at].max(*weight);
            }
        }
        for word in words(text) {
            self.add(&word.to_lowercase(), &mut found);
            let mixed = word.contains('_') || word.bytes().skip(1).any(|byte| byte.is_ascii_uppercase());
            if mixed {
                subwords(word).iter().for_each(|part| self.add(part, &mut found));
            }
        }
        found
    }

    fn add(&self, word: &str, found: &mut [f64]) {
        if word.len() > LONGEST_WORD || !self.firsts[usize::from(word.bytes().next().unwrap_or_default())] {
            return;
        }
        for (keyword, weight) in self.words.get(stem(word).as_str()).into_iter().flatten() {
            found[*keyword] = found[*keyword].max(*weight);
        }
    }
}

/// Returns true if a text contains a part. A number matches only as a whole: `2013/4/1` is not in `2013/4/10`.
fn contains(text: &str, part: &str) -> bool {
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let (bytes, of_part) = (text.as_bytes(), part.as_bytes());
    let (begins, ends) = (is_digit(of_part.first()), is_digit(of_part.last()));
    text.match_indices(part).any(|(at, _)| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        let continues_before = begins && is_digit(before);
        let continues_after = ends && is_digit(bytes.get(at + part.len()));
        !continues_before && !continues_after
    })
}

/// Returns the words of a text: letters, digits and underscores. Chinese characters end a word, since Chinese keywords are
/// searched as texts.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| is_han(c) || !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// The relevance of each part of a text.
#[derive(Debug, Default)]
pub struct Relevance {
    /// For each part, the share of the question that it holds, 0 to 1. Rare keywords have a higher weight.
    pub scores: Vec<f64>,
    /// For each keyword, true if it is in some parts but not in most.
    pub distinctive: Vec<bool>,
    /// The share of the question that the best part holds, with the same weights.
    pub best: f64,
    /// The number of keywords that the best part holds.
    pub best_keywords: usize,
}

impl Relevance {
    /// Rates the parts of a text. `keywords` are the candidates in their order; the first `max_keywords` that occur count.
    pub fn of(keywords: &[Keyword], max_keywords: usize, parts: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let matcher = KeywordMatcher::new(keywords);
        let parts: Vec<_> = parts.into_iter().collect();
        if parts.len() > MAX_PARTS {
            return Self {
                scores: vec![0.0; parts.len()],
                distinctive: vec![false; keywords.len()],
                ..Self::default()
            };
        }
        let found: Vec<Vec<f64>> = parts.iter().map(|part| matcher.find(part.as_ref())).collect();
        let total = found.len() as f64;
        // If a keyword itself occurs, matches of its parts and translations do not make it common.
        let fullest = |keyword: usize| found.iter().map(|part| part[keyword]).fold(0.0, f64::max);
        let count = |keyword: usize| {
            let fullest = fullest(keyword);
            found.iter().filter(|part| part[keyword] > 0.0 && part[keyword] >= fullest).count()
        };
        let counts: Vec<usize> = (0..keywords.len()).map(count).collect();
        // Keywords that do not occur cannot select parts. They still count as missing, because the question asks for them.
        let mut order: Vec<usize> = (0..keywords.len()).collect();
        order.sort_by_key(|keyword| counts[*keyword] == 0);
        order.truncate(max_keywords);
        let weight = |keyword: usize| {
            let holding = counts[keyword] as f64;
            let rarity = (1.0 + (total - holding + 0.5) / (holding + 0.5)).ln().max(0.05);
            if keywords[keyword].is_identifier { rarity * 1.5 } else { rarity }
        };
        let is_common = |keyword: usize| found.len() >= COMMON_FROM && counts[keyword] as f64 > total * COMMON_SHARE;
        let absent = (1.0 + (total + 0.5) / 0.5).ln();
        let weights: Vec<f64> = (0..keywords.len())
            .map(|keyword| match order.contains(&keyword) {
                false => 0.0,
                // A keyword that occurs nowhere has half the weight, since it is often a word of another language.
                true if counts[keyword] == 0 => absent / 2.0,
                true => weight(keyword),
            })
            .collect();
        let whole: f64 = weights.iter().sum();
        let score = |part: &Vec<f64>| {
            let sum: f64 = part.iter().zip(&weights).map(|(found, weight)| found * weight).sum();
            if whole > 0.0 { sum / whole } else { 0.0 }
        };
        let scores: Vec<f64> = found.iter().map(score).collect();
        let distinctive = (0..keywords.len()).map(|keyword| counts[keyword] > 0 && !is_common(keyword)).collect();
        let best_part = (0..scores.len()).max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
        let best = best_part.map_or(0.0, |part| scores[part]);
        let best_keywords = best_part.map_or(0, |part| found[part].iter().filter(|found| **found > 0.0).count());
        Self { scores, distinctive, best, best_keywords }
    }

    /// Returns all parts, the best first.
    pub fn ranked(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.scores.len()).collect();
        order.sort_by(|a, b| self.scores[*b].total_cmp(&self.scores[*a]).then(a.cmp(b)));
        order
    }

    /// Returns the parts that hold any of the question and have at least this share of the best score, the best first.
    pub fn relevant(&self, share: f64) -> Vec<usize> {
        let mut order = self.ranked();
        order.retain(|at| self.scores[*at] > 0.0 && self.scores[*at] >= share * self.best);
        order
    }

    /// Returns true if the question can distinguish the parts.
    pub fn is_distinctive(&self) -> bool {
        self.best > 0.0 && self.distinctive.iter().any(|is_distinctive| *is_distinctive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postprocess::question::Question;

    #[test]
    fn names_and_numbers_are_found_within_chinese_text_and_numbers_only_as_a_whole() {
        for (question, text, expected) in [
            ("parse_config", "函数parse_config在哪里定义", 1.0),
            ("8080", "端口8080被占用", 1.0),
            ("8080", "端口18080被占用", 0.0),
            ("8080", "端口80801被占用", 0.0),
            ("config", "函数parse_config在", 1.0),
            ("127.0.0.1", "来自127.0.0.1的请求", 1.0),
            ("127.0.0.1", "from 127.0.0.10", 0.6),
            ("127.0.0.1", "from 127.0.0.10 and 127.0.0.1", 1.0),
            ("on 1 April 2013", "2013/4/1,5", 1.0),
            ("on 1 April 2013", "2013/4/10,5", 0.0),
            ("on 1 April 2013", "12013/4/1,5", 0.0),
            ("in April 2013", "2013-04-10T08:00", 1.0),
            ("in April 2013", "2013/4/10,5", 1.0),
            ("端口", "端口8080", 1.0),
        ] {
            let found = KeywordMatcher::new(&Question::new(question).candidates()[..1]).find(text);
            assert_eq!(found, [expected], "{question}: {text}");
        }
    }
}
