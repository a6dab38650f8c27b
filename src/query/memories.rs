//! Memories, and searches of memories and conversations.

use std::sync::Arc;

use daoyou_channels::json::fault_of_line;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::rows::timestamp;
use super::sessions::{self, MAX_LISTED_FAULTS, check_search_text, import_faults};
use crate::memory::{
    self, EntryRequest, ExportedMemory, HitLocation, MemoryEntry, MemoryError, MemoryKind, MemoryOrigin,
    MemorySelection, MemoryService, MemorySettings, NewMemoryEntry, RecallHit, RecallQuery, RememberOutcome,
};
use crate::store::{Connection, Durability, StoreError, memories, memory_queries, notes, now_ms, vectors};

/// The maximum number of memories in a list, and the default number.
const LIST_LIMIT: u32 = 1_000;
const LIST_DEFAULT: u32 = 200;
/// The maximum number of hits of a search, and the default number.
const HITS_LIMIT: u32 = 100;
const HITS_DEFAULT: u32 = 10;
/// The minimum similarity of a hit. It excludes messages that match only through neighbouring messages.
const LEAST_SIMILARITY: f64 = 0.01;
/// The number of memories that an export reads at a time, and the maximum that it contains.
const PAGE: u32 = 1_000;
const EXPORT_LIMIT: usize = 1_000_000;
/// The maximum number of memories that one request forgets.
const FORGET_LIMIT: usize = 1_000;
/// The maximum number of memories of one import.
const IMPORT_LIMIT: usize = 100_000;

/// A query about memories.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryQuery {
    /// A list of memories, the newest first.
    List {
        selection: MemorySelection,
        limit: Option<u32>,
    },
    /// One memory, and the memories that it replaced.
    Show(i64),
    Search {
        text: String,
        selection: MemorySelection,
        /// A duration before now, a date, or a time.
        since: Option<String>,
        limit: Option<u32>,
    },
    Export(MemorySelection),
    Stats,
    /// Searches the messages of all sessions, or of one.
    SearchMessages {
        text: String,
        session: Option<String>,
        since: Option<String>,
        limit: Option<u32>,
    },
}

/// A change of memories.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum MemoryChange {
    /// JSON with the fields of [`EntryRequest`].
    Add(Value),
    /// Replaces the text of a memory; the former text stays as its history.
    Edit {
        id: i64,
        text: String,
    },
    Forget(Vec<i64>),
    /// The lines of an export.
    Import(String),
    /// Imports the file of a conversation as a new session.
    ImportSession {
        text: String,
        session: Option<String>,
        owner: Option<String>,
    },
}

/// Answers a query.
///
/// # Errors
/// The memory does not exist, the query is invalid, or the store cannot be read.
pub async fn read(service: &MemoryService, query: MemoryQuery) -> Result<Value, MemoryError> {
    let (settings, now) = (service.settings.clone(), Timestamp::now());
    if settings.workspace.is_dir() {
        service.import_by_hand().await;
    }
    let read =
        move |connection: &Connection| MemoryError::separate_store_errors(answer(connection, &query, &settings, now));
    match service.store.read(read).await?? {
        MemoryAnswer::Complete(answer) => Ok(answer),
        MemoryAnswer::Search(query) => Ok(service.find(query).await?.iter().map(hit).collect()),
    }
}

/// Makes a change in one synced commit, then updates files, index and vectors.
///
/// # Errors
/// The memory does not exist or the change is invalid, and nothing was written; or the store cannot be written.
pub async fn apply(service: &Arc<MemoryService>, change: MemoryChange) -> Result<Value, MemoryError> {
    if service.settings.workspace.is_dir() {
        service.import_by_hand().await;
    }
    let written = service.clone();
    let work = move |connection: &Connection| MemoryError::separate_store_errors(write(connection, &change, &written));
    let answer = service.store.write(Durability::Synced, work).await??;
    service.notify_changes();
    Ok(answer)
}

/// The store's part of a result.
enum MemoryAnswer {
    Complete(Value),
    /// The result is that of this search.
    Search(RecallQuery),
}

fn answer(
    connection: &Connection,
    query: &MemoryQuery,
    settings: &MemorySettings,
    now: Timestamp,
) -> Result<MemoryAnswer, MemoryError> {
    let parse_since =
        |since: Option<&str>| since.map(|since| memory::parse_since(since, now, &settings.zone)).transpose();
    Ok(MemoryAnswer::Complete(match query {
        MemoryQuery::List { selection, limit } => {
            let limit = limit.unwrap_or(LIST_DEFAULT).min(LIST_LIMIT);
            page(connection, selection, settings, None, limit)?.iter().map(view).collect()
        }
        MemoryQuery::Show(id) => show(connection, *id)?,
        MemoryQuery::Search { text, selection, since, limit } => {
            let kind = selection.kind()?;
            let owners = match selection.owner(&settings.identities)? {
                Some(owner) => vec![owner],
                None => memory::all_owners(connection)?,
            };
            check_search_text(text)?;
            return Ok(MemoryAnswer::Search(RecallQuery {
                text: text.trim().to_owned(),
                owners,
                kinds: kind.map_or_else(|| MemoryKind::ALL.to_vec(), |kind| vec![kind]),
                messages: kind.is_none(),
                since: parse_since(since.as_deref())?,
                least: LEAST_SIMILARITY,
                limit: hit_count(*limit)?,
                ..RecallQuery::default()
            }));
        }
        MemoryQuery::SearchMessages { text, session, since, limit } => {
            let since = parse_since(since.as_deref())?;
            sessions::search(connection, text, session.as_deref(), since, hit_count(*limit)?)?
        }
        MemoryQuery::Export(selection) => export(connection, selection, settings)?,
        MemoryQuery::Stats => stats(connection, settings, now)?,
    }))
}

fn write(connection: &Connection, change: &MemoryChange, service: &MemoryService) -> Result<Value, MemoryError> {
    let settings = service.settings.clone();
    match change {
        MemoryChange::Add(fields) => {
            let request: EntryRequest = serde_json::from_value(fields.clone())
                .map_err(|error| MemoryError::Wrong(format!("this is not a memory: {error}")))?;
            let mut new = request.plan(&settings)?;
            service.redact_secrets(&mut new);
            remembered(connection, memory::remember(connection, &new, &settings.config)?)
        }
        MemoryChange::Edit { id, text } => {
            let mut new = edited(&entry(connection, *id)?, text)?;
            service.redact_secrets(&mut new);
            remembered(connection, memory::remember_replacing(connection, &new, *id, &settings.config)?)
        }
        MemoryChange::Forget(ids) => forget(connection, ids),
        MemoryChange::Import(text) => import(connection, text, service),
        MemoryChange::ImportSession { text, session, owner } => {
            sessions::import(connection, text, session.as_deref(), owner.as_deref(), &settings)
        }
    }
}

/// Returns the memory that results from editing an old one.
fn edited(old: &MemoryEntry, text: &str) -> Result<NewMemoryEntry, MemoryError> {
    if let Some(newer) = old.replaced_by {
        return Err(MemoryError::Wrong(format!("memory {} was replaced by {newer}; edit that one", old.id)));
    }
    if !matches!(old.kind, MemoryKind::Fact | MemoryKind::Preference) {
        let wrong = format!("{} is nothing that is edited by hand; allowed: fact, preference", old.kind.as_str());
        return Err(MemoryError::Wrong(wrong));
    }
    let new = NewMemoryEntry::new(old.owner.clone(), old.kind, text, MemoryOrigin::Command);
    Ok(memory::validate_entry(&NewMemoryEntry { name: old.name.clone(), ..new })?)
}

fn remembered(connection: &Connection, outcome: RememberOutcome) -> Result<Value, MemoryError> {
    let (word, old) = match outcome {
        RememberOutcome::New(_) => ("new", None),
        RememberOutcome::Known(_) => ("known", None),
        RememberOutcome::Replaced { old, .. } => ("replaced", Some(old)),
    };
    let mut answer = view(&entry(connection, outcome.id())?);
    answer["remembered"] = json!(word);
    answer["replaced"] = json!(old);
    Ok(answer)
}

fn page(
    connection: &Connection,
    selection: &MemorySelection,
    settings: &MemorySettings,
    before: Option<i64>,
    limit: u32,
) -> Result<Vec<MemoryEntry>, MemoryError> {
    let kind = selection.kind()?.map(MemoryKind::as_str);
    let owner = selection.owner(&settings.identities)?;
    let rows = memory_queries::page(connection, owner.as_ref().map(memory::MemoryOwner::as_str), kind, before, limit)?;
    Ok(rows.into_iter().filter_map(MemoryEntry::from_row).collect())
}

fn entry(connection: &Connection, id: i64) -> Result<MemoryEntry, MemoryError> {
    memories::find(connection, id)?.and_then(MemoryEntry::from_row).ok_or(MemoryError::NotFound(id))
}

/// Returns one memory and the memories that it replaced, the newest first.
fn show(connection: &Connection, id: i64) -> Result<Value, MemoryError> {
    let mut shown = view(&entry(connection, id)?);
    let before = memories::replaced_memories(connection, id)?;
    shown["before"] = before.into_iter().filter_map(MemoryEntry::from_row).map(|entry| view(&entry)).collect();
    Ok(shown)
}

/// Returns the maximum number of hits of a search, by default [`HITS_DEFAULT`].
fn hit_count(limit: Option<u32>) -> Result<usize, MemoryError> {
    let limit = limit.unwrap_or(HITS_DEFAULT);
    if !(1..=HITS_LIMIT).contains(&limit) {
        return Err(MemoryError::Wrong(format!("limit: {limit} is not allowed; use 1 to {HITS_LIMIT}")));
    }
    Ok(limit as usize)
}

fn hit(hit: &RecallHit) -> Value {
    let (id, session, seq) = match &hit.found {
        HitLocation::Memory(id) => (Some(id), None, None),
        HitLocation::Message { session, seq } => (None, Some(session), Some(seq)),
    };
    json!({
        "similarity": (hit.similarity * 1_000.0).round() / 1_000.0,
        "id": id,
        "kind": hit.kind.map_or("message", MemoryKind::as_str),
        "session": session,
        "seq": seq,
        "at": timestamp(hit.at),
        "text": hit.text,
    })
}

fn export(
    connection: &Connection,
    selection: &MemorySelection,
    settings: &MemorySettings,
) -> Result<Value, MemoryError> {
    let (mut lines, mut before) = (Vec::new(), None);
    loop {
        let entries = page(connection, selection, settings, before, PAGE)?;
        let Some(last) = entries.last() else { break };
        before = Some(last.id);
        lines.extend(entries.iter().map(line));
        if lines.len() > EXPORT_LIMIT {
            let many = format!("there are more than {EXPORT_LIMIT} memories; export them by --owner or --kind");
            return Err(MemoryError::Wrong(many));
        }
    }
    // The oldest first, so that an import creates them in order.
    lines.reverse();
    Ok(json!(lines))
}

fn line(entry: &MemoryEntry) -> ExportedMemory {
    ExportedMemory {
        owner: memory::owner_label(&entry.owner).to_owned(),
        kind: entry.kind.as_str().to_owned(),
        name: entry.name.clone(),
        text: entry.text.clone(),
        detail: entry.detail.clone(),
        origin: entry.origin.as_str().to_owned(),
        confidence: entry.confidence,
        created_at: Timestamp::from_millisecond(entry.created_at).ok(),
    }
}

/// Imports all lines or none. Summaries are skipped: they belong to their conversations.
fn import(connection: &Connection, text: &str, service: &MemoryService) -> Result<Value, MemoryError> {
    let settings = service.settings.clone();
    let (mut new, mut summaries, mut faults, mut fault_count) = (Vec::new(), 0, Vec::new(), 0);
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let now = now_ms();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let read = daoyou_channels::json::from_str::<ExportedMemory>(line)
            .map_err(|error| MemoryError::Wrong(format!("this is not a memory: {}", fault_of_line(&error))))
            .and_then(|line| Ok((line.plan(&settings.identities)?, line.created_at)));
        match read {
            Ok((entry, _)) if entry.kind == MemoryKind::Summary => summaries += 1,
            // A time in the future would hide the memory from a later `forget`, which reads the messages since then.
            Ok((entry, at)) => new.push((entry, at.map_or(now, Timestamp::as_millisecond).min(now))),
            Err(error) => {
                fault_count += 1;
                if faults.len() < MAX_LISTED_FAULTS {
                    faults.push(format!("line {number}: {error}"));
                }
            }
        }
        if new.len() > IMPORT_LIMIT {
            let many = format!("there are more than {IMPORT_LIMIT} memories in it; import it in parts");
            return Err(MemoryError::Wrong(many));
        }
    }
    if !faults.is_empty() {
        return Err(MemoryError::Wrong(import_faults(&faults, fault_count)));
    }
    let (mut written, mut known) = (Vec::new(), 0);
    for (entry, at) in &mut new {
        service.redact_secrets(entry);
        // Compared as in the file. This also finds tasks, which `remember` would write each time, and replaced memories.
        let (owner, kind) = (entry.owner.as_str(), entry.kind.as_str());
        if memories::contains(connection, owner, kind, &entry.name, &entry.text)? {
            known += 1;
            continue;
        }
        match memory::remember(connection, entry, &settings.config)? {
            RememberOutcome::New(id) | RememberOutcome::Replaced { id, .. } => {
                written.push((id, *at));
            }
            RememberOutcome::Known(_) => known += 1,
        }
    }
    // Old times come last: while they are written, the imported memories are the newest, and none of them makes room for the next.
    for (id, at) in &written {
        memories::set_created_at(connection, *id, *at)?;
    }
    Ok(json!({ "imported": written.len(), "known": known, "summaries": summaries }))
}

/// Forgets all of these memories or none.
fn forget(connection: &Connection, ids: &[i64]) -> Result<Value, MemoryError> {
    if ids.is_empty() || ids.len() > FORGET_LIMIT {
        return Err(MemoryError::Wrong(format!("name 1 to {FORGET_LIMIT} memories by their ids, not {}", ids.len())));
    }
    for id in ids {
        entry(connection, *id)?;
    }
    let forgotten = memory::forget(connection, ids)?;
    let entries: Value = forgotten.entries.iter().map(view).collect();
    Ok(json!({ "forgotten": entries, "turns": forgotten.turns }))
}

fn stats(connection: &Connection, settings: &MemorySettings, now: Timestamp) -> Result<Value, StoreError> {
    let counts = memory_queries::counts(connection)?;
    let entries = counts.iter().map(|count| {
        let owner = memory::MemoryOwner::from_stored(&count.owner);
        let owner = memory::owner_label(&owner);
        json!({ "owner": owner, "kind": count.kind, "known": count.current, "replaced": count.replaced })
    });
    let index = memory_queries::search_index_state(connection)?;
    let vectors = vectors::count(connection)?;
    let (text_bytes, snapshot_bytes) = memory_queries::sizes(connection)?;
    Ok(json!({
        "entries": entries.collect::<Vec<_>>(),
        "known": counts.iter().map(|count| count.current).sum::<u64>(),
        "replaced": counts.iter().map(|count| count.replaced).sum::<u64>(),
        "summary_tokens_today": summary_tokens(connection, settings, now)?,
        "index": { "messages": index.messages, "behind": index.behind, "made_anew": index.needs_rebuild },
        "vectors": { "memories": vectors.memories, "messages": vectors.messages, "model": vectors.model },
        "bytes": { "texts": text_bytes, "snapshots": snapshot_bytes },
    }))
}

/// Returns the tokens that summaries used today, from the note that consolidation stores.
fn summary_tokens(connection: &Connection, settings: &MemorySettings, now: Timestamp) -> Result<u64, StoreError> {
    let Some((spent, _)) = notes::get(connection, "memory", "spent", "day")? else { return Ok(0) };
    let spent: Value = serde_json::from_str(&spent)?;
    let today = now.to_zoned(settings.zone.clone()).date().to_string();
    Ok(spent["tokens"].as_u64().filter(|_| spent["day"] == today.as_str()).unwrap_or(0))
}

fn view(entry: &MemoryEntry) -> Value {
    let source = entry.source.as_ref();
    json!({
        "id": entry.id,
        "owner": memory::owner_label(&entry.owner),
        "kind": entry.kind.as_str(),
        "name": entry.name,
        "text": entry.text,
        "detail": entry.detail,
        "origin": entry.origin.as_str(),
        "source": source.map(|source| json!({ "session": source.session, "seq": source.seq, "turn": source.turn })),
        "confidence": entry.confidence,
        "created_at": timestamp(entry.created_at),
        "used_at": entry.used_at.map(timestamp),
        "uses": entry.uses,
        "replaced_by": entry.replaced_by,
    })
}
