//! What of memory fits a message: the terms of what is known, held in memory, so that each message costs a look at its own words
//! and nothing is read or cut into terms but what is attached.
//!
//! The index of words in the store serves whoever searches. It costs too much for every turn: each of its words is a query over
//! all segments of the index, and each candidate a text that is cut into terms again.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::bm25::TermWeights;
use super::entry::entry_text;
use super::query::{HitLocation, RecallHit, RecallQuery, RelevanceQuery};
use super::vectors::standing_out;
use super::word_index::beside;
use super::{MemoryKind, Owner};
use crate::store::memories::{self, MemoryRow};
use crate::store::search_index::SearchCorpus;
use crate::store::vectors::newest;
use crate::store::{Connection, StoreError, forgetting};
use crate::text::{query_terms, sentences, visit_terms};

/// What is attached to messages.
pub(super) const ATTACHED_KINDS: [MemoryKind; 4] =
    [MemoryKind::Fact, MemoryKind::Preference, MemoryKind::Case, MemoryKind::Summary];

/// The least share of a message's weight that a memory holds, and that a passage of a summary holds: a summary tells of many
/// things, and a word or two are in one of them by chance.
const LEAST: f64 = 0.3;
const LEAST_OF_SUMMARY: f64 = 0.6;

/// PassageIndexes that are held: of an owner that has more, facts, preferences and cases first, of each the newest, and of all
/// owners together, but for those who are just asked about.
const HELD: usize = 20_000;

/// New passages beyond [`HELD`] before the index is made anew of the newest.
const SPARE: usize = 2_000;

/// An index with so many passages of memories that are gone, and more of them than of others, is made anew.
const GONE: usize = 2_000;

/// New memories, of anybody, and of these the owner's, that are read on the way of a message; where there are more, the index is
/// made anew, on another thread.
const BEHIND: i64 = 500;
const AT_ONCE: usize = 50;

/// The longest passage of a summary, in characters, where it has sentences.
const PASSAGE_CHARS: usize = 160;

/// Occurrences of a term that are told apart.
const OCCURRENCES: u32 = 15;

/// The indexes of those who talked last.
#[derive(Default)]
pub(super) struct PassageIndexes {
    /// The one that was used last comes last. Held only for what takes no time: turns ask for it on the runtime.
    indexes: Mutex<Vec<PassageIndex>>,
    /// Held by who makes indexes; the others wait for it without a reader of the store.
    pub(super) making: tokio::sync::Mutex<()>,
    /// How often memories may have got other owners, or become known again.
    changes: AtomicU64,
}

/// The terms of what is known of one owner.
struct PassageIndex {
    owner: Owner,
    /// The state of the store that it holds.
    state: StoreState,
    passages: Vec<Passage>,
    /// By the hash of a term: the passage, and how often it holds the term.
    terms: HashMap<u64, Vec<u32>>,
    /// The first passage of each memory, and how many it has.
    memories: HashMap<i64, (usize, usize)>,
    /// PassageIndexes of memories that are gone.
    gone: usize,
    /// MemorySettings of all passages.
    length: usize,
}

/// By what it is seen that memories were added, forgotten or given away.
#[derive(Clone, Copy)]
struct StoreState {
    /// The newest memory of anybody.
    newest: i64,
    /// How often something was forgotten.
    forgets: i64,
    /// [`PassageIndexes::changes`].
    changes: u64,
}

impl StoreState {
    fn read(connection: &Connection, changes: &AtomicU64) -> Result<Self, StoreError> {
        let changes = changes.load(Ordering::Relaxed);
        Ok(Self {
            newest: newest(connection, SearchCorpus::Memories)?,
            forgets: forgetting::count(connection)?,
            changes,
        })
    }
}

struct Passage {
    memory: i64,
    /// Its place among the memory's passages.
    place: usize,
    /// In terms.
    length: usize,
    kind: MemoryKind,
    is_gone: bool,
}

/// How well a memory fits.
#[derive(Clone, Copy, Default)]
struct PassageScore {
    place: usize,
    similarity: f64,
    score: f64,
}

/// What is alike by its vector. Of a summary the vector says nothing about which of its passages is meant.
pub(super) fn similar_by_vector(
    connection: &Connection,
    fitting: &RelevanceQuery,
    (vector, written): (&[f32], &str),
) -> Result<Vec<(i64, f64)>, StoreError> {
    let ask = RecallQuery {
        text: String::new(),
        owners: fitting.owners.clone(),
        kinds: ATTACHED_KINDS.into_iter().filter(|kind| *kind != MemoryKind::Summary).collect(),
        messages: false,
        session: None,
        since: None,
        until: None,
        least: LEAST,
        limit: fitting.limit,
    };
    let found = standing_out(connection, &ask, vector, written)?.into_iter();
    let memories = found.filter_map(|(found, likeness)| match found {
        HitLocation::Memory(id) => Some((id, f64::from(likeness))),
        HitLocation::Message { .. } => None,
    });
    Ok(memories.collect())
}

impl PassageIndexes {
    /// Memories may have got other owners, or be known again.
    pub(super) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    fn indexes(&self) -> MutexGuard<'_, Vec<PassageIndex>> {
        self.indexes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn are_empty(&self, owners: &[Owner]) -> bool {
        let indexes = self.indexes();
        owners.iter().filter_map(|owner| of(&indexes, owner)).all(|index| index.memories.is_empty())
    }

    /// Whether there is an index of each of these owners, with all that is known by now.
    pub(super) fn are_ready(&self, connection: &Connection, owners: &[Owner]) -> Result<bool, StoreError> {
        let (mut indexes, state) = (self.indexes(), StoreState::read(connection, &self.changes)?);
        for owner in owners {
            let Some(at) = indexes.iter().position(|index| index.owner == *owner) else { return Ok(false) };
            if !indexes[at].catch_up(connection, state)? {
                return Ok(false);
            }
            indexes[at..].rotate_left(1);
        }
        Ok(true)
    }

    /// Makes the indexes of these owners that are not there or too far behind. Of others those go that were used longest ago,
    /// until no more than [`HELD`] passages are left, or these alone.
    pub(super) fn make_ready(&self, connection: &Connection, owners: &[Owner]) -> Result<(), StoreError> {
        for owner in owners {
            let state = StoreState::read(connection, &self.changes)?;
            if !self.are_ready(connection, std::slice::from_ref(owner))? {
                let index = PassageIndex::build(connection, owner, state)?;
                let mut indexes = self.indexes();
                indexes.retain(|old| old.owner != *owner);
                indexes.push(index);
            }
        }
        let mut indexes = self.indexes();
        let mut held: usize = indexes.iter().map(|index| index.passages.len()).sum();
        indexes.retain(|index| {
            let stays = held <= HELD || owners.contains(&index.owner);
            held -= if stays { 0 } else { index.passages.len() };
            stays
        });
        Ok(())
    }

    /// The best of what fits by its words, or is `alike`.
    pub(super) fn search(
        &self,
        connection: &Connection,
        fitting: &RelevanceQuery,
        kinds: &[MemoryKind],
        alike: Vec<(i64, f64)>,
    ) -> Result<Vec<RecallHit>, StoreError> {
        let mut fits = by_words(&self.indexes(), fitting, kinds);
        for (id, likeness) in alike {
            let fit = fits.entry(id).or_default();
            fit.score += likeness;
            fit.similarity = fit.similarity.max(likeness);
        }
        let mut best: Vec<(i64, PassageScore)> = fits.into_iter().collect();
        best.sort_by(|(a, first), (b, second)| second.score.total_cmp(&first.score).then(b.cmp(a)));
        let mut hits = Vec::new();
        for (id, fit) in best {
            if hits.len() >= fitting.limit {
                break;
            }
            let row = memories::find(connection, id)?;
            // What went in another way than by a new row is seen here.
            match row.filter(|row| {
                row.replaced_by.is_none() && fitting.owners.iter().any(|owner| owner.as_str() == row.owner)
            }) {
                Some(row) => hits.extend(hit(&row, fit)),
                None => self.indexes().iter_mut().for_each(|index| index.remove(id)),
            }
        }
        Ok(hits)
    }
}

fn of<'a>(indexes: &'a [PassageIndex], owner: &Owner) -> Option<&'a PassageIndex> {
    indexes.iter().find(|index| index.owner == *owner)
}

/// The memories that hold enough of the words, each with its best passage.
fn by_words(indexes: &[PassageIndex], fitting: &RelevanceQuery, kinds: &[MemoryKind]) -> HashMap<i64, PassageScore> {
    let indexes: Vec<&PassageIndex> = fitting.owners.iter().filter_map(|owner| of(indexes, owner)).collect();
    let terms = query_terms(&fitting.text);
    let lists: Vec<Vec<&[u32]>> = terms
        .iter()
        .map(|term| {
            indexes.iter().map(|index| index.terms.get(&hashed(&term.text)).map_or(&[][..], Vec::as_slice)).collect()
        })
        .collect();
    let total = indexes.iter().map(|index| index.passages.len()).sum::<usize>();
    let length = as_f64(indexes.iter().map(|index| index.length).sum::<usize>()) / as_f64(total.max(1));
    let counts: Vec<f64> =
        lists.iter().map(|lists| as_f64(lists.iter().map(|list| list.len()).sum::<usize>())).collect();
    let weights = TermWeights::new(&terms, &counts, as_f64(total));
    let whole = weights.whole();
    // Rare words first: they weigh most, and few passages hold them.
    let mut order: Vec<usize> = (0..terms.len()).collect();
    order.sort_by_key(|term| lists[*term].iter().map(|list| list.len()).sum::<usize>());
    let mut best: HashMap<i64, PassageScore> = HashMap::new();
    for (at, index) in indexes.iter().enumerate() {
        let mut sums = ScoreSums::of(index);
        let mut left = 1.0;
        for term in &order {
            let add = |(similarity, score): &mut (f64, f64), passage: usize, count: f64| {
                let length = as_f64(index.passages[passage].length) / length.max(1.0);
                *similarity += weights.share(*term);
                *score += weights.score(*term, count, length) / whole;
            };
            sums.count(lists[*term][at], left, add);
            left -= weights.share(*term);
        }
        for (passage, similarity, score) in sums.enough(kinds) {
            let fit = best.entry(passage.memory).or_default();
            if score > fit.score {
                *fit = PassageScore { place: passage.place, similarity: similarity.min(1.0), score };
            }
        }
    }
    best
}

/// What the passages of an index hold of a question, counted up word by word.
struct ScoreSums<'a> {
    index: &'a PassageIndex,
    /// Share of the question's weight and score, of each passage.
    of: Vec<(f64, f64)>,
    /// Those that hold any of the words so far and can still hold enough of them.
    candidates: Vec<usize>,
    /// Those that anything was counted for.
    touched: Vec<usize>,
}

thread_local! {
    /// Kept from one look to the next, as zeros: new memory for each has the system find pages for it, which costs more than the look.
    static ZEROS: Cell<Vec<(f64, f64)>> = const { Cell::new(Vec::new()) };
}

impl<'a> ScoreSums<'a> {
    fn of(index: &'a PassageIndex) -> Self {
        let mut of = ZEROS.take();
        of.resize(index.passages.len().max(of.len()), (0.0, 0.0));
        Self { index, of, candidates: Vec::new(), touched: Vec::new() }
    }

    /// Counts a word that is in the passages of `list`; it and all words after it have the share `left` of the weight. A
    /// passage without any word so far that could not come up to its least any more is passed over, and once that is true of
    /// all of them, the list is merely looked up for each candidate (the "MaxScore" of Turtle and Flood, 1995): the words
    /// that come last are in most passages.
    fn count(&mut self, list: &[u32], left: f64, mut add: impl FnMut(&mut (f64, f64), usize, f64)) {
        let Self { index, of, candidates, touched } = self;
        if left >= LEAST {
            for (passage, count) in list.iter().map(|entry| unpacked(*entry)) {
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
            if let Ok(at) = list.binary_search_by_key(passage, |entry| unpacked(*entry).0) {
                add(&mut of[*passage], *passage, unpacked(list[at]).1);
            }
        }
    }

    fn enough(&self, kinds: &[MemoryKind]) -> impl Iterator<Item = (&Passage, f64, f64)> {
        self.candidates.iter().filter_map(|at| {
            let (passage, (similarity, score)) = (&self.index.passages[*at], self.of[*at]);
            let is_asked = !passage.is_gone && kinds.contains(&passage.kind);
            (is_asked && similarity >= passage.least()).then_some((passage, similarity, score))
        })
    }
}

impl Drop for ScoreSums<'_> {
    fn drop(&mut self) {
        self.touched.iter().for_each(|passage| self.of[*passage] = (0.0, 0.0));
        ZEROS.set(std::mem::take(&mut self.of));
    }
}

impl Passage {
    /// The least share of a question's weight that it must hold.
    fn least(&self) -> f64 {
        if self.kind == MemoryKind::Summary { LEAST_OF_SUMMARY } else { LEAST }
    }
}

impl PassageIndex {
    fn build(connection: &Connection, owner: &Owner, state: StoreState) -> Result<Self, StoreError> {
        let mut index = Self {
            owner: owner.clone(),
            state,
            passages: Vec::new(),
            terms: HashMap::new(),
            memories: HashMap::new(),
            gone: 0,
            length: 0,
        };
        for kind in ATTACHED_KINDS {
            memories::visit_current(connection, owner.as_str(), kind.as_str(), |row| {
                index.add(&row, kind);
                index.passages.len() < HELD
            })?;
        }
        index.terms.shrink_to_fit();
        Ok(index)
    }

    /// Takes up what is new, unless that is so much that the index is made anew; answers whether it knows all now.
    fn catch_up(&mut self, connection: &Connection, now: StoreState) -> Result<bool, StoreError> {
        let is_worn = self.gone > GONE && self.gone * 2 > self.passages.len();
        let is_full = self.passages.len() > HELD + SPARE;
        let more = now.newest - self.state.newest;
        if is_worn || is_full || !(0..=BEHIND).contains(&more) || now.forgets != self.state.forgets {
            return Ok(false);
        }
        if more > 0 {
            let rows = memories::added_after(connection, self.state.newest, self.owner.as_str())?;
            if rows.len() > AT_ONCE {
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

    /// Whether something is known that is not here.
    fn lacks_any(&self, connection: &Connection) -> Result<bool, StoreError> {
        let mut known = 0;
        for kind in ATTACHED_KINDS {
            known += memories::count_current(connection, self.owner.as_str(), kind.as_str())?;
        }
        Ok(self.passages.len() < HELD && usize::try_from(known).is_ok_and(|known| known > self.memories.len()))
    }

    fn add(&mut self, row: &MemoryRow, kind: MemoryKind) {
        let first = self.passages.len();
        let (text, more) = (entry_text(Some(kind), &row.name, &row.text), beside(row));
        let pieces = if kind == MemoryKind::Summary { pieces(&text) } else { vec![text.as_str()] };
        for (place, piece) in pieces.iter().enumerate() {
            let mut counts: HashMap<u64, u32> = HashMap::new();
            let length = visit_terms(piece, |_| true, |term| *counts.entry(hashed(term)).or_default() += 1);
            visit_terms(&more, |_| true, |term| *counts.entry(hashed(term)).or_default() += 1);
            let passage = self.passages.len();
            for (term, count) in counts {
                self.terms.entry(term).or_default().push(packed(passage, count));
            }
            self.length += length;
            self.passages.push(Passage { memory: row.id, place, length, kind, is_gone: false });
        }
        self.memories.insert(row.id, (first, pieces.len()));
    }

    fn remove(&mut self, memory: i64) {
        if let Some((first, count)) = self.memories.remove(&memory) {
            for passage in &mut self.passages[first..first + count] {
                passage.is_gone = true;
            }
            self.gone += count;
        }
    }
}

fn hit(row: &MemoryRow, fit: PassageScore) -> Option<RecallHit> {
    let kind = MemoryKind::parse(&row.kind)?;
    let text = match (kind, entry_text(Some(kind), &row.name, &row.text)) {
        (MemoryKind::Summary, text) => pieces(&text).get(fit.place)?.trim().to_owned(),
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

/// The passages of a summary: its lines, and of long lines some sentences each.
fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (mut from, mut end, mut chars) = (0, 0, 0);
        for sentence in sentences(line) {
            end += sentence.len();
            chars += sentence.chars().count();
            if chars * 2 >= PASSAGE_CHARS {
                pieces.push(&line[from..end]);
                (from, chars) = (end, 0);
            }
        }
        if !line[from..].trim().is_empty() {
            pieces.push(&line[from..]);
        }
    }
    pieces
}

fn hashed(term: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    term.hash(&mut hasher);
    hasher.finish()
}

/// A passage and a count in one number: there are very many of them.
fn packed(passage: usize, count: u32) -> u32 {
    u32::try_from(passage).unwrap_or(u32::MAX >> 4) << 4 | count.min(OCCURRENCES)
}

fn unpacked(entry: u32) -> (usize, f64) {
    (usize::try_from(entry >> 4).unwrap_or(usize::MAX), f64::from(entry & OCCURRENCES))
}

#[expect(clippy::cast_precision_loss, reason = "counts of terms, used as weights")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
#[path = "passage_index_tests.rs"]
mod tests;
