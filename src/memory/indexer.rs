//! Indexes messages in the background, in small writes. Each write continues where the last one ended.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::Trust;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::message_text::spoken_text;
use super::service::MemoryService;
use super::{Identities, sender_of, word_index};
use crate::crash;
use crate::live::LivePart;
use crate::origin::TurnOrigin;
use crate::store::search_index::{self, NewIndexedMessage};
use crate::store::{Connection, Durability, Store, StoreError, inbox, log_purge, meta, now_ms, ownership};

/// The pause between two writes.
const WRITE_PAUSE: Duration = Duration::from_millis(20);

/// The delay before messages are indexed, so that one pass indexes all that arrive in it.
const SETTLE: Duration = Duration::from_millis(300);

/// The interval between checks of all sessions. The passes in between check recently used sessions only.
const FULL_PASS_INTERVAL: Duration = Duration::from_secs(600);

/// The tolerance for a clock that was set back, in milliseconds: a pass also checks sessions that were used up to this long
/// before the last pass.
const CLOCK_TOLERANCE_MS: i64 = 60_000;

/// The state in `meta` while removed terms are deleted from the file.
const PURGING: &str = "purging";

/// Keeps the word index up to date with the messages of all sessions.
pub struct MessageIndexer {
    live: LivePart<MemoryService>,
    /// The service of the current pass.
    service: Arc<MemoryService>,
    /// The start of the last pass that left nothing to index, UTC milliseconds.
    last_pass: i64,
    last_full_pass: Instant,
}

impl MessageIndexer {
    pub fn new(live: LivePart<MemoryService>) -> Self {
        Self { service: live.get(), live, last_pass: 0, last_full_pass: Instant::now() }
    }

    /// Runs after each [`MemoryService::notify_messages`], until `stop` or until the store is closed.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut messages = self.service.subscribe_to_messages();
        loop {
            let outcome = tokio::select! {
                () = stop.cancelled() => return,
                outcome = self.catch_up() => outcome,
            };
            match outcome {
                Ok(()) => {}
                Err(StoreError::Closed) => return,
                Err(error) => tracing::warn!(%error, "messages could not be indexed; retrying later"),
            }
            tokio::select! {
                () = stop.cancelled() => return,
                _ = timeout_at(self.last_full_pass + FULL_PASS_INTERVAL, messages.changed()) => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(SETTLE) => {}
            }
            messages.mark_unchanged();
            if self.last_full_pass.elapsed() >= FULL_PASS_INTERVAL {
                (self.last_pass, self.last_full_pass) = (0, Instant::now());
            }
        }
    }

    /// Indexes all messages that are not indexed yet. Rebuilds a damaged index at once.
    ///
    /// # Errors
    /// The store cannot be read or written; the messages indexed so far stay indexed.
    pub async fn catch_up(&mut self) -> Result<(), StoreError> {
        self.run_pass().await?;
        if !self.service.store.read_here(word_index::is_trusted)? {
            self.last_pass = 0;
            self.run_pass().await?;
        }
        Ok(())
    }

    async fn run_pass(&mut self) -> Result<(), StoreError> {
        self.service = self.live.get();
        let store = self.service.store.clone();
        let identities = self.service.settings.identities.clone();
        self.reset_if_invalid(&store, &identities).await?;
        self.put_memories(&store).await?;
        self.sweep(&store).await?;
        let started = now_ms();
        // A clock that was set back must not hide messages.
        let since = if started < self.last_pass { 0 } else { self.last_pass - CLOCK_TOLERANCE_MS };
        let mut has_new = false;
        loop {
            let of_reader = identities.clone();
            let batches = store.read(move |connection| next_batches(connection, &of_reader, since)).await?;
            if batches.is_empty() {
                break;
            }
            has_new = true;
            for batches in group_into_writes(batches) {
                let put = move |connection: &Connection| batches.iter().try_for_each(|batch| batch.put(connection));
                store.write(Durability::Logged, put).await?;
                crash::point("messages_indexed", "");
                sleep(WRITE_PAUSE).await;
            }
        }
        if has_new {
            self.service.indexed.notify_one();
        }
        self.last_pass = started;
        Ok(())
    }

    /// Clears an index that is damaged, or that another version or other identities have built.
    async fn reset_if_invalid(&mut self, store: &Store, identities: &Identities) -> Result<(), StoreError> {
        let expected = word_index::expected_version(identities);
        let mut is_valid = store.read_here(|connection| meta::get(connection, meta::INDEX_VERSION))? == Some(expected);
        if is_valid && word_index::was_damage_reported() {
            let faults = store.read(word_index::check).await?;
            if !faults.is_empty() {
                tracing::warn!(?faults, "the word index is damaged and is rebuilt");
            }
            is_valid = faults.is_empty();
        }
        if !is_valid {
            self.last_pass = 0;
            let identities = identities.clone();
            store.write(Durability::Logged, move |connection| word_index::reset_index(connection, &identities)).await?;
        }
        Ok(())
    }

    /// Continues to add memories to an index that is being rebuilt.
    async fn put_memories(&self, store: &Store) -> Result<(), StoreError> {
        let next = store.read_here(|connection| meta::get(connection, meta::INDEX_NEXT_MEMORY))?;
        if next.is_some_and(|next| !next.is_empty()) {
            while store.write(Durability::Logged, word_index::put_memories).await? {
                sleep(WRITE_PAUSE).await;
            }
        }
        Ok(())
    }

    /// Removes the terms of deleted messages from the index and from its file.
    async fn sweep(&self, store: &Store) -> Result<(), StoreError> {
        const ROWS: usize = 200;
        while store.read_here(search_index::has_removed)? {
            if !store.write(Durability::Logged, |connection| word_index::sweep(connection, ROWS)).await? {
                return Ok(());
            }
            sleep(WRITE_PAUSE).await;
        }
        let removed = store.read_here(|connection| meta::get(connection, meta::INDEX_PURGE))?;
        if removed.is_none_or(|removed| removed.is_empty()) {
            return Ok(());
        }
        // A removal during this loop sets the state again, and the next pass handles it.
        store.write(Durability::Logged, |connection| meta::set(connection, meta::INDEX_PURGE, PURGING)).await?;
        let mut begins = true;
        while store.write(Durability::Logged, move |connection| word_index::purge(connection, begins)).await? {
            begins = false;
            sleep(WRITE_PAUSE).await;
        }
        let done = |connection: &Connection| {
            // The write-ahead log still has the pages from which the terms were deleted.
            log_purge::request();
            match meta::get(connection, meta::INDEX_PURGE)?.as_deref() {
                Some(PURGING) => meta::set(connection, meta::INDEX_PURGE, ""),
                _ => Ok(()),
            }
        };
        store.write(Durability::Logged, done).await
    }
}

/// Rebuilds the whole index in one write, for a store that no gateway uses.
///
/// # Errors
/// The store cannot be written.
pub fn rebuild_index(connection: &Connection, identities: &Identities) -> Result<(), StoreError> {
    word_index::reset_index(connection, identities)?;
    while word_index::put_memories(connection)? {}
    loop {
        let batches = next_batches(connection, identities, 0)?;
        if batches.is_empty() {
            return Ok(());
        }
        batches.iter().try_for_each(|batch| batch.put(connection))?;
    }
}

/// The maximum number of messages in one write, which takes the writer a few milliseconds.
const BATCH: usize = 32;

/// The maximum number of sessions that are read at once.
const SESSIONS: usize = 32;

/// The next messages of a session to index.
struct MessageBatch {
    session: String,
    range: (i64, i64),
    messages: Vec<NewIndexedMessage>,
}

impl MessageBatch {
    fn put(&self, connection: &Connection) -> Result<(), StoreError> {
        match search_index::index_messages(connection, &self.session, self.range, &self.messages) {
            Err(error) if error.is_index_fault() => word_index::mark_damaged(connection),
            other => other.map(drop),
        }
    }
}

/// Groups small batches of several sessions into one write.
fn group_into_writes(batches: Vec<MessageBatch>) -> Vec<Vec<MessageBatch>> {
    let mut writes: Vec<Vec<MessageBatch>> = Vec::new();
    let mut count = 0;
    for batch in batches {
        count += batch.messages.len();
        match writes.last_mut() {
            Some(last) if count <= BATCH => last.push(batch),
            _ => {
                count = batch.messages.len();
                writes.push(vec![batch]);
            }
        }
    }
    writes
}

fn next_batches(connection: &Connection, identities: &Identities, since: i64) -> Result<Vec<MessageBatch>, StoreError> {
    let behind = search_index::unindexed_sessions(connection, since, SESSIONS)?;
    behind.into_iter().map(|(session, from, end)| read_batch(connection, identities, session, from, end)).collect()
}

fn read_batch(
    connection: &Connection,
    identities: &Identities,
    session: String,
    from: i64,
    end: i64,
) -> Result<MessageBatch, StoreError> {
    let unread = search_index::unindexed_messages(connection, &session, (from, end), BATCH)?;
    let to = unread.last().filter(|_| unread.len() >= BATCH).map_or(end, |last| last.seq + 1);
    let mut speakers = HashMap::new();
    let mut messages = Vec::new();
    for unread in unread {
        let Some(text) = spoken_text(&unread.body) else { continue };
        let MessageSpeaker { owner, name } = match speakers.get(&unread.turn) {
            Some(known) => known,
            None => {
                let speaker = speaker_of(connection, identities, &session, &unread.turn)?;
                speakers.entry(unread.turn.clone()).or_insert(speaker)
            }
        };
        let speaker = if unread.role == "user" { name.clone() } else { String::new() };
        let words = word_index::message_terms(&text, &session, owner, &speaker);
        messages.push(NewIndexedMessage { seq: unread.seq, body: unread.body, owner: owner.clone(), speaker, words });
    }
    Ok(MessageBatch { session, range: (from, to), messages })
}

/// The person whose message a turn answers.
struct MessageSpeaker {
    /// The owner; empty if the person owns no memory.
    owner: String,
    /// The name among others; empty for the gateway's owner.
    name: String,
}

fn speaker_of(
    connection: &Connection,
    identities: &Identities,
    session: &str,
    turn: &str,
) -> Result<MessageSpeaker, StoreError> {
    let rows = match turn.parse::<Uuid>() {
        Ok(turn) => inbox::of_turn(connection, turn)?,
        Err(_) => Vec::new(),
    };
    let least = rows.iter().min_by_key(|row| Trust::parse(&row.trust));
    // Notes to a session and imported messages belong to the session's owner.
    let Some(row) = least.filter(|row| TurnOrigin::parse(&row.origin).note().is_none()) else {
        let owner = ownership::of_session(connection, session)?.owner.unwrap_or_default();
        return Ok(MessageSpeaker { owner, name: String::new() });
    };
    let owner = identities.owner_of_row(row);
    let name = match (Trust::parse(&row.trust), owner.as_ref().and_then(|owner| owner.as_str().strip_prefix("name:"))) {
        (Trust::Owner, _) => String::new(),
        (_, Some(name)) => format!("{name} {}", sender_of(row)),
        (_, None) => sender_of(row),
    };
    Ok(MessageSpeaker { owner: owner.map_or(String::new(), |owner| owner.as_str().to_owned()), name })
}
