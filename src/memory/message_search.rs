//! Searches the messages of all owners, with excerpts around the matches: for the command line and the API (the owner, and tokens
//! with the scope `read`), never for the model.

use super::message_text::spoken_text;
use super::term_query::TermQuery;
use super::word_index::{found_or_damaged, scope};
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
const EXCERPT_CHARS: usize = 160;
const CHARS_BEFORE: usize = 50;

/// The maximum number of hits of one answer.
const MAX_HITS: usize = 200;

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
    found_or_damaged(search(connection, text, session, since, limit))
}

fn search(
    connection: &Connection,
    text: &str,
    session: Option<&str>,
    since: Option<i64>,
    limit: usize,
) -> Result<Vec<HistoryHit>, StoreError> {
    let is_selected = |row: &IndexedMessage| {
        session.is_none_or(|session| row.session == session) && since.is_none_or(|since| row.at >= since)
    };
    let term_query = TermQuery::search(connection, text, vec![(SearchCorpus::Messages, scope(None, session))], limit)?;
    let mut rows: Vec<(IndexedMessage, String)> = Vec::new();
    for id in term_query.candidates(connection, SearchCorpus::Messages, 0.0)? {
        if rows.len() >= term_query.wanted().max(limit.min(MAX_HITS)) {
            break;
        }
        let row = search_index::find_message(connection, id)?.filter(is_selected);
        if let Some((row, text)) = row.and_then(|row| spoken_text(&row.body).map(|text| (row, text))) {
            rows.push((row, text));
        }
    }
    let scores = term_query.scores(rows.iter().map(|(row, text)| (text.as_str(), row.speaker.as_str())));
    let mut hits: Vec<(f64, HistoryHit)> = Vec::with_capacity(rows.len());
    for ((row, text), score) in rows.into_iter().zip(scores).filter(|(_, score)| score.score > 0.0) {
        let at = first_match(&text, term_query.terms()).unwrap_or(0);
        let IndexedMessage { session, seq, role, owner, at: when, .. } = row;
        let excerpt = excerpt(&text, at);
        let similarity = score.similarity;
        hits.push((score.score, HistoryHit { session, seq, role, owner, at: when, excerpt, similarity }));
    }
    hits.sort_by(|(a, first), (b, second)| b.total_cmp(a).then(second.at.cmp(&first.at)));
    hits.truncate(limit.min(MAX_HITS));
    Ok(hits.into_iter().map(|(_, hit)| hit).collect())
}

/// Returns a line of a text around an offset.
fn excerpt(text: &str, at: usize) -> String {
    let before = text[..at].chars().count();
    let from = before.saturating_sub(CHARS_BEFORE);
    let piece: String = text.chars().skip(from).take(EXCERPT_CHARS).collect();
    let is_cut = text.chars().nth(from + EXCERPT_CHARS).is_some();
    let line = one_line(&piece);
    format!("{}{line}{}", if from > 0 { "…" } else { "" }, if is_cut { "…" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_surround_the_match() {
        let long = format!("{} the needle is here {}", "hay ".repeat(30), "hay ".repeat(60));
        let at = long.find("needle").unwrap();
        let line = excerpt(&long, at);
        assert!(line.starts_with('…') && line.ends_with('…') && line.contains("the needle is here"), "{line}");
        assert!(line.chars().count() <= EXCERPT_CHARS + 2);
        assert_eq!(excerpt("short\n text", 0), "short text");
        assert_eq!(excerpt("", 0), "");
    }
}
