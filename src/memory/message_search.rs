//! Searches the messages of all owners for the owner's command line, with excerpts around the matches.

use super::HitLocation;
use super::message_text::spoken_text;
use super::term_query::TermQuery;
use super::word_index::{scope, suspect};
use crate::store::search_index::{self, IndexedMessage, SearchCorpus};
use crate::store::{Connection, StoreError};
use crate::text::{first_match, one_line};

/// A message that was found.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct HistoryHit {
    pub session: String,
    pub seq: i64,
    /// `user` or `assistant`.
    pub role: String,
    /// The owner of the conversation; empty if there is none, as with an untrusted sender.
    pub owner: String,
    /// UTC milliseconds.
    pub at: i64,
    /// The text around the first match, on one line.
    pub excerpt: String,
    /// The share of the query that the message holds, 0 to 1.
    pub similarity: f64,
}

/// The length of an excerpt, and of its part before the match, in characters.
const EXCERPT: usize = 160;
const BEFORE: usize = 50;

/// The most hits of one answer.
const LIMIT: usize = 200;

impl HistoryHit {
    pub fn found(&self) -> HitLocation {
        HitLocation::Message { session: self.session.clone(), seq: self.seq }
    }
}

/// Returns the messages of any owner that fit `text`, the best first, in one session or in all. A damaged index finds
/// nothing until it is rebuilt.
///
/// # Errors
/// The store cannot be read.
pub fn search_messages(
    connection: &Connection,
    text: &str,
    session: Option<&str>,
    since: Option<i64>,
    limit: usize,
) -> Result<Vec<HistoryHit>, StoreError> {
    match found(connection, text, session, since, limit) {
        Err(error) if error.is_index_fault() => {
            suspect(&error);
            Ok(Vec::new())
        }
        other => other,
    }
}

fn found(
    connection: &Connection,
    text: &str,
    session: Option<&str>,
    since: Option<i64>,
    limit: usize,
) -> Result<Vec<HistoryHit>, StoreError> {
    let is_asked = |row: &IndexedMessage| {
        session.is_none_or(|session| row.session == session) && since.is_none_or(|since| row.at >= since)
    };
    let question = TermQuery::ask(connection, text, vec![(SearchCorpus::Messages, scope(None, session))], limit)?;
    let mut rows: Vec<(IndexedMessage, String)> = Vec::new();
    for id in question.candidates(connection, SearchCorpus::Messages, 0.0)? {
        if rows.len() >= question.wanted().max(limit.min(LIMIT)) {
            break;
        }
        let row = search_index::find_message(connection, id)?.filter(is_asked);
        if let Some((row, text)) = row.and_then(|row| spoken_text(&row.body).map(|text| (row, text))) {
            rows.push((row, text));
        }
    }
    let fits = question.fits(rows.iter().map(|(row, text)| (text.as_str(), row.speaker.as_str())));
    let mut lines: Vec<(f64, HistoryHit)> = Vec::with_capacity(rows.len());
    for ((row, text), fit) in rows.into_iter().zip(fits).filter(|(_, fit)| fit.score > 0.0) {
        let at = first_match(&text, question.terms()).unwrap_or(0);
        let IndexedMessage { session, seq, role, owner, at: when, .. } = row;
        let excerpt = excerpt(&text, at);
        let similarity = fit.similarity;
        lines.push((fit.score, HistoryHit { session, seq, role, owner, at: when, excerpt, similarity }));
    }
    lines.sort_by(|(a, first), (b, second)| b.total_cmp(a).then(second.at.cmp(&first.at)));
    lines.truncate(limit.min(LIMIT));
    Ok(lines.into_iter().map(|(_, line)| line).collect())
}

/// Returns a line of a text around an offset.
fn excerpt(text: &str, at: usize) -> String {
    let before = text[..at].chars().count();
    let from = before.saturating_sub(BEFORE);
    let piece: String = text.chars().skip(from).take(EXCERPT).collect();
    let is_cut = text.chars().nth(from + EXCERPT).is_some();
    let line = one_line(&piece);
    format!("{}{line}{}", if from > 0 { "…" } else { "" }, if is_cut { "…" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_stands_around_the_word() {
        let long = format!("{} the needle is here {}", "hay ".repeat(30), "hay ".repeat(60));
        let at = long.find("needle").unwrap();
        let line = excerpt(&long, at);
        assert!(line.starts_with('…') && line.ends_with('…') && line.contains("the needle is here"), "{line}");
        assert!(line.chars().count() <= EXCERPT + 2);
        assert_eq!(excerpt("short\n text", 0), "short text");
        assert_eq!(excerpt("", 0), "");
    }
}
