//! Filters matches of a search: keeps the most relevant ones, each once, by file, with the lines around them.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;

use super::filter::{FilterOutput, FilterQuery, FilterSettings, MIN_EVIDENCE_OF_SEARCHES, RawResult};
use super::intent::Intent;
use super::relevance::Relevance;
use super::sections::is_definition;
use crate::text::pattern;

/// Access to the lines of a file around a match.
#[async_trait]
pub trait FileLines: Send + Sync {
    /// Returns the lines `first` to `last` of a file, both included and counted from 1; `None` if this turn may not read it.
    async fn lines(&self, path: &str, first: usize, last: usize) -> Option<Vec<String>>;
}

/// The maximum number of matches whose surrounding lines are read.
const MAX_SURROUNDINGS: usize = 40;
/// The maximum number of places of repeats that are shown for each text.
const MAX_REPEATS: usize = 5;
/// The longest line around a match, in characters.
const MAX_LINE_CHARS: usize = 200;

pattern!(MATCH, r"^(.+?):(\d+): ?(.*)$");

/// A match of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchMatch<'a> {
    pub path: &'a str,
    pub line: usize,
    pub text: &'a str,
    /// The whole line of the result.
    pub whole: &'a str,
    /// The paths and lines of other matches with the same text, the most relevant first.
    pub repeats: Vec<(&'a str, usize)>,
}

impl SearchMatch<'_> {
    /// Returns a note with the other places of the same text; empty if there are none.
    fn repeats_note(&self) -> String {
        let places = self.repeats.iter().take(MAX_REPEATS).map(|(path, line)| format!("{path}:{line}"));
        let places = places.collect::<Vec<_>>().join(", ");
        match self.repeats.len() {
            0 => String::new(),
            count if count > MAX_REPEATS => format!(" [also at {places} and {} more]", count - MAX_REPEATS),
            _ => format!(" [also at {places}]"),
        }
    }
}

/// Returns the matches of a result, and the number of its other lines.
fn parse(body: &str) -> (Vec<SearchMatch<'_>>, usize) {
    let (mut matches, mut others) = (Vec::new(), 0);
    for line in body.lines() {
        match MATCH.captures(line).and_then(|found| {
            let (_, [path, number, text]) = found.extract();
            Some(SearchMatch { path, line: number.parse().ok()?, text, whole: line, repeats: Vec::new() })
        }) {
            Some(found) => matches.push(found),
            None => others += 1,
        }
    }
    (matches, others)
}

/// Filters the matches of a search. Returns `None` if the result holds too few, or is not a list of matches. `files`
/// are read for the lines around the matches.
pub async fn filter(
    raw: &RawResult<'_>,
    query: &FilterQuery,
    settings: &FilterSettings,
    files: Option<&dyn FileLines>,
) -> Option<FilterOutput> {
    let (body, remarks) = raw.body_and_remarks();
    let (mut matches, others) = parse(body);
    let original = matches.len();
    if original <= settings.max_results || others > original / 4 {
        return None;
    }
    if settings.deduplicate {
        let ranked = rate(&matches, query).ranked();
        matches = without_repeats(&matches, &ranked);
    }
    let relevance = rate(&matches, query);
    if !query.distinguishes(&relevance, MIN_EVIDENCE_OF_SEARCHES) {
        return None;
    }
    let mut order: Vec<usize> = (0..matches.len()).collect();
    let score = |at: usize| {
        let bonus = match (query.intent, is_definition(matches[at].text)) {
            (Intent::FindUsage, false) => 0.2,
            (Intent::FindDefinition | Intent::UnderstandStructure, true) => 0.6,
            (Intent::DebugError | Intent::General, true) => 0.15,
            _ => 0.0,
        };
        relevance.scores[at] + bonus
    };
    order.sort_by(|a, b| score(*b).total_cmp(&score(*a)).then(a.cmp(b)));
    let has_enough = |at: &usize| relevance.scores[*at] >= query.threshold * relevance.best;
    order.retain(has_enough);
    order.truncate(settings.max_results);
    order.sort_unstable();
    let kept: Vec<SearchMatch<'_>> = order.into_iter().map(|at| matches[at].clone()).collect();
    let text = render(&kept, settings.add_context_lines, files).await;
    let places = kept.iter().map(|found| 1 + found.repeats.len().min(MAX_REPEATS)).sum();
    Some(FilterOutput::new(text, "matches", original, places).with_remarks(&remarks))
}

/// Rates the paths and texts of matches by the question.
fn rate(matches: &[SearchMatch<'_>], query: &FilterQuery) -> Relevance {
    query.rate(matches.iter().map(|found| format!("{} {}", found.path, found.text)))
}

/// Joins matches of the same text. The best one stays, and lists the places of the others, the best first.
fn without_repeats<'a>(matches: &[SearchMatch<'a>], ranked: &[usize]) -> Vec<SearchMatch<'a>> {
    let mut best: HashMap<&str, usize> = HashMap::new();
    let mut joined: BTreeMap<usize, SearchMatch<'a>> = BTreeMap::new();
    for at in ranked {
        let found = &matches[*at];
        let first = *best.entry(found.text.trim()).or_insert(*at);
        let kept = joined.entry(first).or_insert_with(|| found.clone());
        if first != *at {
            kept.repeats.push((found.path, found.line));
        }
    }
    joined.into_values().collect()
}

/// Formats matches in their original order, each among `around` lines before and after it.
async fn render(kept: &[SearchMatch<'_>], around: usize, files: Option<&dyn FileLines>) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut shown: Option<(&str, usize)> = None;
    for (at, found) in kept.iter().enumerate() {
        let after = shown.filter(|(path, _)| *path == found.path).map_or(0, |(_, line)| line);
        let first = found.line.saturating_sub(around).max(after.saturating_add(1));
        let next = kept.get(at + 1).filter(|next| next.path == found.path).map_or(usize::MAX, |next| next.line);
        let last = found.line.saturating_add(around).min(next.saturating_sub(1)).max(found.line);
        let text = match files {
            Some(files) if around > 0 && at < MAX_SURROUNDINGS => files.lines(found.path, first, last).await,
            _ => None,
        };
        show(found, first, text.as_deref(), &mut lines);
        shown = Some((found.path, if text.is_some() { last } else { found.line }));
    }
    lines.join("\n")
}

/// Formats a match with the lines around it, if these could be read and the file has not changed since the search.
fn show(found: &SearchMatch<'_>, first: usize, around: Option<&[String]>, lines: &mut Vec<String>) {
    let own = format!("{}{}", found.whole, found.repeats_note());
    let is_same = |text: &&[String]| {
        let line = found.line.checked_sub(first).and_then(|at| text.get(at));
        line.is_some_and(|line| {
            line.trim().starts_with(found.text.trim().trim_end_matches('…').trim_end_matches("..."))
        })
    };
    for (at, line) in around.filter(is_same).unwrap_or_default().iter().enumerate() {
        let number = first.saturating_add(at);
        if number == found.line {
            lines.push(own.clone());
        } else if !line.trim().is_empty() {
            let line: String = line.chars().take(MAX_LINE_CHARS).collect();
            lines.push(format!("  {number}- {}", line.trim_end()));
        }
    }
    if around.filter(is_same).is_none() {
        lines.push(own);
    }
}

/// Filters the hits of a web search, which are blocks of lines: keeps the most relevant ones, each address once.
pub fn filter_hits(raw: &RawResult<'_>, query: &FilterQuery, settings: &FilterSettings) -> Option<FilterOutput> {
    let (body, remarks) = raw.body_and_remarks();
    let mut blocks: Vec<&str> = body.split("\n\n").filter(|block| !block.trim().is_empty()).collect();
    let original = blocks.len();
    if settings.deduplicate {
        let mut seen = std::collections::HashSet::new();
        let address = |block: &str| {
            block.split_whitespace().find(|word| word.contains("://")).map(|word| word.trim_end_matches('/').to_owned())
        };
        blocks.retain(|block| address(block).is_none_or(|address| seen.insert(address)));
    }
    let relevance = query.rate(&blocks);
    let mut order = if relevance.is_distinctive() { relevance.ranked() } else { (0..blocks.len()).collect() };
    order.truncate(settings.max_results);
    order.sort_unstable();
    if order.len() == original {
        return None;
    }
    let kept: Vec<&str> = order.iter().map(|at| blocks[*at]).collect();
    Some(FilterOutput::new(kept.join("\n\n"), "hits", original, kept.len()).with_remarks(&remarks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_largest_line_number_is_a_line_number() {
        let body = format!("a.txt:{0}: one\na.txt:{0}: two", usize::MAX);
        let (kept, _) = parse(&body);
        assert_eq!(render(&kept, 1, None).await, body);
    }
}
