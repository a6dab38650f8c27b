//! Forgetting: what is forgotten is gone for good, wherever it stood.

use std::collections::BTreeSet;

use super::book::{also_said, remove, replaced_before};
use super::learned::GUESS;
use super::wording::{is_ideograph, normal};
use super::{Entry, Kind, Owner, vectors, words};
use crate::store::forgetting::{self, FORGOTTEN};
use crate::store::memory_lines::{self, SummaryRow};
use crate::store::{Connection, StoreError, memories, meta, remembering, session_memory};

/// What was removed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forgotten {
    /// The entries, and what they had replaced.
    pub entries: Vec<Entry>,
    /// Turns whose words are gone from the log, because the entries came from there.
    pub turns: usize,
}

/// Summaries that stand otherwise in HISTORY.md, as JSON, session and time of each: the keeper of the files tells these anew.
pub(super) const RETOLD: &str = "memory_retold";
/// A summary's session, and when it was made.
type Place = (String, i64);
/// How many of them are noted at most; more than a file holds.
const MOST_RETOLD: usize = 10_000;

/// Of the words of a memory, as many must stand in a sentence for it to tell that memory.
const TELLS: f64 = 0.7;

/// Forgets entries in the caller's write, for good: the rows, what they had replaced, the words and vectors that they were
/// found by, the snapshots and summaries that tell them, and the words of the turns that they came from. What is not there is
/// passed over.
///
/// # Errors
/// The store cannot be written.
pub fn forget(connection: &Connection, ids: &[i64]) -> Result<Forgotten, StoreError> {
    let mut entries: Vec<Entry> = Vec::new();
    for id in ids {
        let Some(row) = memories::get(connection, *id)? else { continue };
        let older = replaced_before(connection, *id)?;
        entries.extend(std::iter::once(row).chain(older).filter_map(Entry::of));
        remove(connection, *id)?;
        forgetting::drop_summary(connection, *id)?;
    }
    let owners: BTreeSet<&Owner> = entries.iter().map(|entry| &entry.owner).collect();
    for owner in &owners {
        drop_prompts(connection, owner)?;
    }
    let mut turns = 0;
    let sources = sources(connection, &entries)?;
    for (session, turn) in &sources {
        for task in forgetting::beside(connection, session, turn)? {
            remove(connection, task)?;
        }
        // First what the words are found by, which may need the words.
        words::remove_turn(connection, session, turn)?;
        turns += usize::from(forgetting::forget_turn(connection, session, turn)?);
    }
    let summaries = entries.iter().filter(|entry| entry.kind == Kind::Summary);
    let mut retold: Vec<Place> = summaries.map(|entry| (entry.name.clone(), entry.created_at)).collect();
    for owner in &owners {
        let telling = telling(entries.iter().filter(|entry| entry.owner == **owner));
        retold.extend(retell(connection, memory_lines::summaries_of(connection, owner.as_str())?, &telling)?);
    }
    // Also of conversations in which others write, whose summaries are nobody's own.
    for session in sources.iter().map(|(session, _)| session).collect::<BTreeSet<_>>() {
        retold.extend(retell(
            connection,
            memory_lines::summaries_of_session(connection, session)?,
            &telling(entries.iter()),
        )?);
    }
    note_retold(connection, retold)?;
    Ok(Forgotten { entries, turns })
}

/// Takes an owner's memory out of all prompts: the next turn of each session is given what is known then.
///
/// # Errors
/// The store cannot be written.
pub fn drop_prompts(connection: &Connection, owner: &Owner) -> Result<(), StoreError> {
    if *owner == Owner::everyone() {
        return forgetting::drop_all_snapshots(connection);
    }
    session_memory::drop_snapshots(connection, owner.as_str())
}

/// The turns in which entries were said.
fn sources(connection: &Connection, entries: &[Entry]) -> Result<BTreeSet<(String, String)>, StoreError> {
    let mut turns = BTreeSet::new();
    // A summary comes from all that it tells; that stays.
    // What was only guessed at from a word was not said there.
    let is_said = |entry: &&Entry| entry.kind != Kind::Summary && entry.detail[GUESS] != true;
    for entry in entries.iter().filter(is_said) {
        turns.extend(also_said(&entry.detail));
        let Some(source) = &entry.source else { continue };
        let turn = match (&source.turn, source.seq) {
            (Some(turn), _) => Some(turn.clone()),
            (None, Some(seq)) => remembering::turn_of(connection, &source.session, seq)?,
            (None, None) => None,
        };
        turns.extend(turn.map(|turn| (source.session.clone(), turn)));
    }
    Ok(turns)
}

fn telling<'a>(entries: impl Iterator<Item = &'a Entry>) -> Vec<Telling> {
    entries.filter(|entry| entry.kind != Kind::Summary).map(Telling::of).collect()
}

/// Takes what tells out of summaries; answers which have changed.
fn retell(connection: &Connection, summaries: Vec<SummaryRow>, telling: &[Telling]) -> Result<Vec<Place>, StoreError> {
    let mut changed = Vec::new();
    for SummaryRow { id, session, text, at, .. } in summaries {
        let Some(left) = without(&text, telling) else { continue };
        let left = if left.is_empty() { FORGOTTEN.to_owned() } else { left };
        remembering::retell(connection, id, &left)?;
        words::remove(connection, id)?;
        vectors::remove(connection, id)?;
        words::put(connection, id)?;
        changed.push((session, at));
    }
    Ok(changed)
}

fn note_retold(connection: &Connection, changed: Vec<Place>) -> Result<(), StoreError> {
    if changed.is_empty() {
        return Ok(());
    }
    let noted = meta::get(connection, RETOLD)?.and_then(|text| serde_json::from_str::<BTreeSet<Place>>(&text).ok());
    let all: BTreeSet<Place> = noted.unwrap_or_default().into_iter().chain(changed).collect();
    let newest: Vec<Place> = all.into_iter().rev().take(MOST_RETOLD).collect();
    meta::set(connection, RETOLD, &serde_json::to_string(&newest)?)
}

/// By what a sentence that tells a memory is known.
struct Telling {
    whole: String,
    words: BTreeSet<String>,
}

impl Telling {
    fn of(entry: &Entry) -> Self {
        let text = match entry.kind {
            Kind::Preference => format!("{} {}", entry.name.replace(['_', '-'], " "), entry.text),
            _ => entry.text.clone(),
        };
        // One word of a value ("python") stands in sentences that tell something else; key and value together tell it.
        let whole = normal(&entry.text);
        let is_word = entry.kind == Kind::Preference && !whole.contains(' ') && !whole.chars().any(is_ideograph);
        Self { whole: if is_word { String::new() } else { whole }, words: distinctive(&text) }
    }

    fn is_in(&self, sentence: &str) -> bool {
        let normal = normal(sentence);
        if self.whole.chars().count() >= 4 && normal.contains(&self.whole) {
            return true;
        }
        let said = distinctive(sentence);
        let common = self.words.intersection(&said).count();
        #[expect(clippy::cast_precision_loss, reason = "a sentence has a handful of words")]
        let share = common as f64 / self.words.len().max(1) as f64;
        common > 0 && share >= TELLS
    }
}

/// Words that say what a sentence is about: those of three letters and more or with a capital or a digit, and pairs of
/// ideographs. What all sentences are made of does not count.
fn distinctive(text: &str) -> BTreeSet<String> {
    const PLAIN: [&str; 54] = [
        "my", "me", "he", "we", "it", "is", "in", "on", "at", "to", "of", "an", "as", "if", "the", "and", "for", "are",
        "was", "has", "had", "his", "her", "its", "you", "your", "not", "but", "all", "can", "our", "she", "who",
        "why", "how", "user", "user's", "that", "this", "with", "have", "they", "their", "called", "named", "said",
        "says", "told", "lives", "live", "from", "about", "what", "when",
    ];
    let mut found = BTreeSet::new();
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '\'' | '+' | '#' | '-' | '@' | '.');
    for run in text.split(|c: char| !is_part(c)) {
        let mut latin = String::new();
        let mut before: Option<char> = None;
        for c in run.chars() {
            if is_ideograph(c) {
                found.extend(before.map(|before| format!("{before}{c}")));
                before = Some(c);
            } else {
                before = None;
                latin.push(c);
            }
        }
        let word = latin.trim_matches(|c: char| !c.is_alphanumeric());
        let counts = word.chars().count() >= 3 || word.chars().any(|c| c.is_uppercase() || c.is_ascii_digit());
        let word = word.to_lowercase();
        if counts && word.chars().count() > 1 && !PLAIN.contains(&word.as_str()) {
            found.insert(word);
        }
    }
    found
}

/// A text without the sentences that tell; `None` when there is none.
fn without(text: &str, telling: &[Telling]) -> Option<String> {
    let mut left = String::with_capacity(text.len());
    let mut is_changed = false;
    for line in text.split_inclusive('\n') {
        let kept: String =
            sentences(line).into_iter().filter(|one| !telling.iter().any(|telling| telling.is_in(one))).collect();
        if kept.len() == line.len() {
            left.push_str(line);
            continue;
        }
        is_changed = true;
        let bare = kept.trim_matches(|c: char| c.is_whitespace() || matches!(c, '-' | '*' | '+'));
        if !bare.is_empty() {
            left.push_str(kept.trim_end());
            left.push('\n');
        }
    }
    is_changed.then(|| left.trim().to_owned())
}

/// A line in sentences, each with what stands behind it.
fn sentences(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut chars = line.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next_is_gap = chars.peek().is_none_or(|(_, next)| next.is_whitespace());
        if matches!(c, '。' | '！' | '？' | '；') || (matches!(c, '.' | '!' | '?' | ';') && next_is_gap) {
            let mut end = at + c.len_utf8();
            while let Some((at, gap)) = chars.next_if(|(_, next)| next.is_whitespace()) {
                end = at + gap.len_utf8();
            }
            found.push(&line[start..end]);
            start = end;
        }
    }
    if start < line.len() {
        found.push(&line[start..]);
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::memory::{MemoryConfig, NewEntry, Origin, Remembered, Source, remember};
    use crate::store::{Commit, Store, messages};

    #[test]
    fn the_sentences_that_tell_go_and_the_others_stay() {
        let telling = |text: &str| Telling { whole: normal(text), words: distinctive(text) };
        for (memory, summary, expected) in [
            (
                "The user's cat is called Momo",
                "- The user has a cat. They said that the cat is called Momo. They want a plan.\n- Rust is used.",
                Some("- The user has a cat. They want a plan.\n- Rust is used."),
            ),
            ("The user's cat is called Momo", "- The dog is called Rex.", None),
            ("The user's cat is called Momo", "- Cat: Momo, called so since May\n- Other", Some("- Other")),
            ("我的猫叫莫莫", "用户的猫叫莫莫。用户住在北京。", Some("用户住在北京。")),
            ("我的猫叫莫莫", "用户养猫。", None),
            ("PIN is 4711", "The PIN, 4711, was told.", Some("")),
            ("I like tea", "They talked of coffee.", None),
        ] {
            assert_eq!(without(summary, &[telling(memory)]).as_deref(), expected, "{memory} in {summary}");
        }
    }

    #[tokio::test]
    async fn nothing_is_left_of_what_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let left = store.write(Commit::Logged, |connection| {
            let config = MemoryConfig::default();
            let new = |kind, name: &str, text: &str, turn: &str| NewEntry {
                owner: Owner::gateway(),
                kind,
                name: name.to_owned(),
                text: text.to_owned(),
                detail: json!({}),
                origin: Origin::Told,
                source: Some(Source { session: "s".to_owned(), seq: None, turn: Some(turn.to_owned()) }),
                confidence: 0.5,
            };
            let said = |connection: &Connection, turn: Uuid, text: &str| {
                let body = json!({"role": "user", "content": text}).to_string();
                messages::append(connection, "s", turn, std::iter::once(("user", body)))
            };
            let turns = [Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7()];
            for (turn, text) in turns.iter().zip(["my cat is Momo", "her name is Nini now", "something else"]) {
                said(connection, *turn, text)?;
            }
            let [one, two, three] = turns.map(|turn| turn.to_string());
            let old = remember(connection, &new(Kind::Fact, "", "My cat is called Momo", &one), &config)?;
            let now = remember(connection, &new(Kind::Fact, "", "My cat is called Nini", &two), &config)?;
            assert_eq!(now, Remembered::Replaced { id: now.id(), old: old.id() });
            remember(connection, &new(Kind::Task, "", "look for the cat Nini", &two), &config)?;
            let other = remember(connection, &new(Kind::Fact, "", "Rex is a dog", &three), &config)?.id();
            let told = new(Kind::Summary, "s", "- The cat is called Momo, later Nini.\n- Rex is a dog.", &three);
            let summary = remember(connection, &told, &config)?.id();
            session_memory::keep_snapshot(connection, "h", "owner", "- My cat is called Nini")?;
            let forgotten = forget(connection, &[now.id()])?;
            assert_eq!((forgotten.entries.len(), forgotten.turns), (2, 2));
            let mut left = vec![session_memory::snapshot(connection, "h")?.unwrap_or_default()];
            for id in 1..=summary {
                left.extend(memories::get(connection, id)?.map(|row| row.text));
            }
            left.extend(messages::range(connection, "s", 0, 10)?.into_iter().map(|row| row.body));
            assert!(memories::get(connection, other)?.is_some());
            assert!(meta::get(connection, RETOLD)?.is_some_and(|noted| noted.starts_with("[[\"s\",")));
            assert_eq!(forget(connection, &[now.id(), 99])?, Forgotten::default());
            Ok(left)
        });
        let left = left.await.unwrap();
        let gone = r#"{"content":"[forgotten]","role":"user"}"#;
        let kept = r#"{"content":"something else","role":"user"}"#;
        assert_eq!(left, ["", "Rex is a dog", "- Rex is a dog.", gone, gone, kept]);
    }
}
