//! Finds the memories that fit a message, with an index of terms held in memory: a message costs a look-up of its own terms,
//! and only the memories that are attached are read.
//!
//! The word index in the store serves searches. It is too slow for every turn: each term is a query over all segments of the
//! index, and each candidate is a text that must be split into terms again.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::bm25::TermWeights;
use super::entry::entry_text;
use super::query::{HitLocation, RecallHit, RecallQuery, RelevanceQuery};
use super::vectors::clearly_similar;
use super::word_index::extra_indexed_text;
use super::{MemoryKind, MemoryOwner};
use crate::store::memories::{self, MemoryRow};
use crate::store::search_index::{SearchCorpus, highest_id};
use crate::store::{Connection, StoreError, forgetting};
use crate::text::{query_terms, sentences, visit_terms};

/// The kinds of memories that are attached to messages.
pub(super) const ATTACHED_KINDS: [MemoryKind; 4] =
    [MemoryKind::Fact, MemoryKind::Preference, MemoryKind::Case, MemoryKind::Summary];

/// The minimum share of a message's weight that a memory must hold, and the minimum share for a passage of a summary. A
/// summary has many subjects, so one of its passages holds a word or two by chance.
const MIN_SHARE: f64 = 0.3;
const MIN_SUMMARY_SHARE: f64 = 0.6;

/// The maximum number of passages that are held in memory, over all owners. If an owner has more, facts, preferences
/// and cases take precedence, the newest of each kind first. The indexes of a running query always stay.
const MAX_PASSAGES: usize = 20_000;

/// The maximum number of new passages that an index holds beyond [`MAX_PASSAGES`]. With more, the index is rebuilt from
/// the newest memories.
const MAX_SURPLUS: usize = 2_000;

/// The maximum number of passages of removed memories in an index. With more, the index is rebuilt if they outnumber
/// the other passages.
const MAX_REMOVED: usize = 2_000;

/// The maximum number of new memories that are read while a message waits: of all owners, and of the index's owner.
/// With more, another thread rebuilds the index.
const MAX_PENDING: i64 = 500;
const MAX_NEW: usize = 50;

/// The longest passage of a summary, in characters, if its line has several sentences.
const PASSAGE_CHARS: usize = 160;

/// The largest count of a term in a passage that the index can store.
const MAX_COUNT: u32 = 15;

/// The passage indexes of the owners that were active last.
#[derive(Default)]
pub(super) struct PassageIndexes {
    /// The most recently used index comes last. The lock is held for short work only, since turns take it on threads of the
    /// async runtime.
    indexes: Mutex<Vec<PassageIndex>>,
    /// Serializes the building of indexes. A waiting caller holds no reader of the store.
    pub(super) building: tokio::sync::Mutex<()>,
    /// The number of changes that may have moved or restored memories.
    changes: AtomicU64,
}

/// The terms of the memories of one owner.
struct PassageIndex {
    owner: MemoryOwner,
    /// The state of the store that the index reflects.
    state: StoreState,
    passages: Vec<Passage>,
    /// The passages that hold a term, each with its count, by the hash of the term.
    terms: HashMap<u64, Vec<u32>>,
    /// The first passage of each memory, and the number of its passages.
    memories: HashMap<i64, (usize, usize)>,
    /// The number of passages whose memory was removed.
    removed: usize,
    /// The number of terms of all passages.
    length: usize,
}

/// The state of the store by which an index detects added, forgotten and moved memories.
#[derive(Clone, Copy)]
struct StoreState {
    /// The id of the newest memory of all owners.
    newest: i64,
    /// The number of forgettings.
    forget_count: i64,
    /// [`PassageIndexes::changes`].
    changes: u64,
}

impl StoreState {
    fn read(connection: &Connection, changes: &AtomicU64) -> Result<Self, StoreError> {
        let changes = changes.load(Ordering::Relaxed);
        Ok(Self {
            newest: highest_id(connection, SearchCorpus::Memories)?,
            forget_count: forgetting::count(connection)?,
            changes,
        })
    }
}

struct Passage {
    memory: i64,
    /// The position among the passages of the memory.
    place: usize,
    /// The number of terms.
    length: usize,
    kind: MemoryKind,
    is_removed: bool,
}

/// The score of a memory, with its best passage.
#[derive(Clone, Copy, Default)]
struct PassageScore {
    place: usize,
    similarity: f64,
    score: f64,
}

/// Returns memories with similar vectors. Summaries are left out, since their vectors do not show which passage fits.
pub(super) fn similar_by_vector(
    connection: &Connection,
    query: &RelevanceQuery,
    (vector, written): (&[f32], &str),
) -> Result<Vec<(i64, f64)>, StoreError> {
    let vector_query = RecallQuery {
        owners: query.owners.clone(),
        kinds: ATTACHED_KINDS.into_iter().filter(|kind| *kind != MemoryKind::Summary).collect(),
        least: MIN_SHARE,
        limit: query.limit,
        ..RecallQuery::default()
    };
    let found = clearly_similar(connection, &vector_query, vector, written)?.into_iter();
    let memories = found.filter_map(|(found, similarity)| match found {
        HitLocation::Memory(id) => Some((id, f64::from(similarity))),
        HitLocation::Message { .. } => None,
    });
    Ok(memories.collect())
}

impl PassageIndexes {
    /// Records that memories may have moved or been restored.
    pub(super) fn note_changes(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn are_empty(&self, owners: &[MemoryOwner]) -> bool {
        let indexes = self.indexes.lock();
        owners.iter().filter_map(|owner| index_of(&indexes, owner)).all(|index| index.memories.is_empty())
    }

    /// Returns true if each of these owners has an up-to-date index.
    pub(super) fn are_ready(&self, connection: &Connection, owners: &[MemoryOwner]) -> Result<bool, StoreError> {
        let (mut indexes, state) = (self.indexes.lock(), StoreState::read(connection, &self.changes)?);
        for owner in owners {
            let Some(at) = indexes.iter().position(|index| index.owner == *owner) else { return Ok(false) };
            if !indexes[at].catch_up(connection, state)? {
                return Ok(false);
            }
            indexes[at..].rotate_left(1);
        }
        Ok(true)
    }

    /// Builds the indexes of these owners that are missing or outdated. Drops the least recently used indexes of others
    /// until at most [`MAX_PASSAGES`] passages are left.
    pub(super) fn make_ready(&self, connection: &Connection, owners: &[MemoryOwner]) -> Result<(), StoreError> {
        for owner in owners {
            let state = StoreState::read(connection, &self.changes)?;
            if !self.are_ready(connection, std::slice::from_ref(owner))? {
                let index = PassageIndex::build(connection, owner, state)?;
                let mut indexes = self.indexes.lock();
                indexes.retain(|old| old.owner != *owner);
                indexes.push(index);
            }
        }
        let mut indexes = self.indexes.lock();
        let mut count: usize = indexes.iter().map(|index| index.passages.len()).sum();
        indexes.retain(|index| {
            let stays = count <= MAX_PASSAGES || owners.contains(&index.owner);
            count -= if stays { 0 } else { index.passages.len() };
            stays
        });
        Ok(())
    }

    /// Returns the best memories by their terms or by `similar` vectors.
    pub(super) fn search(
        &self,
        connection: &Connection,
        query: &RelevanceQuery,
        kinds: &[MemoryKind],
        similar: Vec<(i64, f64)>,
    ) -> Result<Vec<RecallHit>, StoreError> {
        let mut fits = score_by_terms(&self.indexes.lock(), query, kinds);
        for (id, similarity) in similar {
            let fit = fits.entry(id).or_default();
            fit.score += similarity;
            fit.similarity = fit.similarity.max(similarity);
        }
        let mut best: Vec<(i64, PassageScore)> = fits.into_iter().collect();
        best.sort_by(|(a, first), (b, second)| second.score.total_cmp(&first.score).then(b.cmp(a)));
        let mut hits = Vec::new();
        for (id, fit) in best {
            if hits.len() >= query.limit {
                break;
            }
            let row = memories::find(connection, id)?;
            // Changes that added no row are detected here.
            match row
                .filter(|row| row.replaced_by.is_none() && query.owners.iter().any(|owner| owner.as_str() == row.owner))
            {
                Some(row) => hits.extend(hit(&row, fit)),
                None => self.indexes.lock().iter_mut().for_each(|index| index.remove(id)),
            }
        }
        Ok(hits)
    }
}

fn index_of<'a>(indexes: &'a [PassageIndex], owner: &MemoryOwner) -> Option<&'a PassageIndex> {
    indexes.iter().find(|index| index.owner == *owner)
}

/// Returns the memories that hold enough of the query's terms, each with its best passage.
fn score_by_terms(
    indexes: &[PassageIndex],
    query: &RelevanceQuery,
    kinds: &[MemoryKind],
) -> HashMap<i64, PassageScore> {
    let indexes: Vec<&PassageIndex> = query.owners.iter().filter_map(|owner| index_of(indexes, owner)).collect();
    let terms = query_terms(&query.text);
    let lists: Vec<Vec<&[u32]>> = terms
        .iter()
        .map(|term| {
            indexes.iter().map(|index| index.terms.get(&hash_term(&term.text)).map_or(&[][..], Vec::as_slice)).collect()
        })
        .collect();
    let total = indexes.iter().map(|index| index.passages.len()).sum::<usize>();
    let length = indexes.iter().map(|index| index.length).sum::<usize>() as f64 / total.max(1) as f64;
    let counts: Vec<f64> =
        lists.iter().map(|lists| lists.iter().map(|list| list.len()).sum::<usize>() as f64).collect();
    let weights = TermWeights::new(&terms, &counts, total as f64);
    let whole = weights.whole();
    // Rare terms come first: they weigh most, and few passages hold them.
    let mut order: Vec<usize> = (0..terms.len()).collect();
    order.sort_by_key(|term| lists[*term].iter().map(|list| list.len()).sum::<usize>());
    let mut best: HashMap<i64, PassageScore> = HashMap::new();
    for (place, index) in indexes.iter().enumerate() {
        let mut sums = ScoreSums::new(index);
        let mut left = 1.0;
        for term in &order {
            let add = |(similarity, score): &mut (f64, f64), passage: usize, count: f64| {
                let length = index.passages[passage].length as f64 / length.max(1.0);
                *similarity += weights.share(*term);
                *score += weights.score(*term, count, length) / whole;
            };
            sums.count(lists[*term][place], left, add);
            left -= weights.share(*term);
        }
        for (passage, similarity, score) in sums.matching(kinds) {
            let fit = best.entry(passage.memory).or_default();
            if score > fit.score {
                *fit = PassageScore { place: passage.place, similarity: similarity.min(1.0), score };
            }
        }
    }
    best
}

/// The scores of an index's passages for a query, summed term by term.
struct ScoreSums<'a> {
    index: &'a PassageIndex,
    /// For each passage, the share of the query's weight, and the score.
    of: Vec<(f64, f64)>,
    /// Passages that hold one of the terms so far, and can still reach their least share.
    candidates: Vec<usize>,
    /// Passages whose sums must be reset.
    touched: Vec<usize>,
}

thread_local! {
    /// A buffer of zeros that searches reuse, since allocating a new one costs more than a search.
    static SCORE_BUFFER: Cell<Vec<(f64, f64)>> = const { Cell::new(Vec::new()) };
}

impl<'a> ScoreSums<'a> {
    fn new(index: &'a PassageIndex) -> Self {
        let mut of = SCORE_BUFFER.take();
        of.resize(index.passages.len().max(of.len()), (0.0, 0.0));
        Self { index, of, candidates: Vec::new(), touched: Vec::new() }
    }

    /// Adds the scores of a term to the passages of `list`, which hold it. This term and all later ones have the share
    /// `left` of the weight. A passage without a term so far is skipped if it can no longer reach its minimum share.
    /// Once that is true of all passages, the list is searched for the candidates only ("MaxScore", Turtle and Flood,
    /// 1995), since the last terms are in most passages.
    fn count(&mut self, list: &[u32], left: f64, mut add: impl FnMut(&mut (f64, f64), usize, f64)) {
        let Self { index, of, candidates, touched } = self;
        if left >= MIN_SHARE {
            for (passage, count) in list.iter().map(|entry| unpack(*entry)) {
                if of[passage].1 <= 0.0 {
                    if left < index.passages[passage].least() {
                        continue;
                    }
                    candidates.push(passage);
                    touched.push(passage);
                }
                add(&mut of[passage], passage, count);
            }
            return;
        }
        candidates.retain(|passage| of[*passage].0 + left >= index.passages[*passage].least());
        for passage in candidates {
            if let Ok(at) = list.binary_search_by_key(passage, |entry| unpack(*entry).0) {
                add(&mut of[*passage], *passage, unpack(list[at]).1);
            }
        }
    }

    fn matching(&self, kinds: &[MemoryKind]) -> impl Iterator<Item = (&Passage, f64, f64)> {
        self.candidates.iter().filter_map(|at| {
            let (passage, (similarity, score)) = (&self.index.passages[*at], self.of[*at]);
            let is_selected = !passage.is_removed && kinds.contains(&passage.kind);
            (is_selected && similarity >= passage.least()).then_some((passage, similarity, score))
        })
    }
}

impl Drop for ScoreSums<'_> {
    fn drop(&mut self) {
        self.touched.iter().for_each(|passage| self.of[*passage] = (0.0, 0.0));
        SCORE_BUFFER.set(std::mem::take(&mut self.of));
    }
}

impl Passage {
    /// Returns the minimum share of a query's weight that the passage must hold.
    fn least(&self) -> f64 {
        if self.kind == MemoryKind::Summary { MIN_SUMMARY_SHARE } else { MIN_SHARE }
    }
}

impl PassageIndex {
    fn build(connection: &Connection, owner: &MemoryOwner, state: StoreState) -> Result<Self, StoreError> {
        let mut index = Self {
            owner: owner.clone(),
            state,
            passages: Vec::new(),
            terms: HashMap::new(),
            memories: HashMap::new(),
            removed: 0,
            length: 0,
        };
        for kind in ATTACHED_KINDS {
            memories::visit_current(connection, owner.as_str(), kind.as_str(), |row| {
                index.add(&row, kind);
                index.passages.len() < MAX_PASSAGES
            })?;
        }
        index.terms.shrink_to_fit();
        Ok(index)
    }

    /// Adds new memories, unless there are so many that the index must be rebuilt. Returns true if the index is up to date.
    fn catch_up(&mut self, connection: &Connection, now: StoreState) -> Result<bool, StoreError> {
        let has_many_removed = self.removed > MAX_REMOVED && self.removed * 2 > self.passages.len();
        let is_full = self.passages.len() > MAX_PASSAGES + MAX_SURPLUS;
        let more = now.newest - self.state.newest;
        if has_many_removed
            || is_full
            || !(0..=MAX_PENDING).contains(&more)
            || now.forget_count != self.state.forget_count
        {
            return Ok(false);
        }
        if more > 0 {
            let rows = memories::added_after(connection, self.state.newest, self.owner.as_str())?;
            if rows.len() > MAX_NEW {
                return Ok(false);
            }
            for row in rows {
                for old in memories::replaced_ids(connection, row.id)? {
                    self.remove(old);
                }
                let kind = ATTACHED_KINDS.into_iter().find(|kind| kind.as_str() == row.kind);
                if let Some(kind) = kind.filter(|_| row.replaced_by.is_none()) {
                    self.add(&row, kind);
                }
            }
            self.state.newest = now.newest;
        }
        if self.state.changes != now.changes && self.lacks_any(connection)? {
            return Ok(false);
        }
        self.state.changes = now.changes;
        Ok(true)
    }

    /// Returns true if the store has a current memory that the index lacks.
    fn lacks_any(&self, connection: &Connection) -> Result<bool, StoreError> {
        let mut known = 0;
        for kind in ATTACHED_KINDS {
            known += memories::count_current(connection, self.owner.as_str(), kind.as_str())?;
        }
        Ok(self.passages.len() < MAX_PASSAGES && usize::try_from(known).is_ok_and(|known| known > self.memories.len()))
    }

    fn add(&mut self, row: &MemoryRow, kind: MemoryKind) {
        let first = self.passages.len();
        let (text, more) = (entry_text(Some(kind), &row.name, &row.text), extra_indexed_text(row));
        let passages = if kind == MemoryKind::Summary { split_into_passages(&text) } else { vec![text.as_str()] };
        for (place, passage_text) in passages.iter().enumerate() {
            let mut counts: HashMap<u64, u32> = HashMap::new();
            let length = visit_terms(passage_text, |_| true, |term| *counts.entry(hash_term(term)).or_default() += 1);
            visit_terms(&more, |_| true, |term| *counts.entry(hash_term(term)).or_default() += 1);
            let passage = self.passages.len();
            for (term, count) in counts {
                self.terms.entry(term).or_default().push(pack(passage, count));
            }
            self.length += length;
            self.passages.push(Passage { memory: row.id, place, length, kind, is_removed: false });
        }
        self.memories.insert(row.id, (first, passages.len()));
    }

    fn remove(&mut self, memory: i64) {
        if let Some((first, count)) = self.memories.remove(&memory) {
            for passage in &mut self.passages[first..first + count] {
                passage.is_removed = true;
            }
            self.removed += count;
        }
    }
}

fn hit(row: &MemoryRow, fit: PassageScore) -> Option<RecallHit> {
    let kind: MemoryKind = row.kind.parse().ok()?;
    let text = match (kind, entry_text(Some(kind), &row.name, &row.text)) {
        (MemoryKind::Summary, text) => split_into_passages(&text).get(fit.place)?.trim().to_owned(),
        (_, text) => text,
    };
    let PassageScore { similarity, score, .. } = fit;
    Some(RecallHit {
        found: HitLocation::Memory(row.id),
        kind: Some(kind),
        text,
        at: row.created_at,
        similarity,
        score,
    })
}

/// Splits a summary into passages: its lines, with long lines split between sentences.
fn split_into_passages(text: &str) -> Vec<&str> {
    let mut passages = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (mut from, mut end, mut chars) = (0, 0, 0);
        for sentence in sentences(line) {
            end += sentence.len();
            chars += sentence.chars().count();
            if chars * 2 >= PASSAGE_CHARS {
                passages.push(&line[from..end]);
                (from, chars) = (end, 0);
            }
        }
        if !line[from..].trim().is_empty() {
            passages.push(&line[from..]);
        }
    }
    passages
}

fn hash_term(term: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    term.hash(&mut hasher);
    hasher.finish()
}

/// Packs a passage and a count into one number, to save memory: there are very many pairs.
fn pack(passage: usize, count: u32) -> u32 {
    u32::try_from(passage).unwrap_or(u32::MAX >> 4) << 4 | count.min(MAX_COUNT)
}

fn unpack(entry: u32) -> (usize, f64) {
    (usize::try_from(entry >> 4).unwrap_or(usize::MAX), f64::from(entry & MAX_COUNT))
}

#[cfg(test)]
#[path = "passage_index_tests.rs"]
mod tests;
