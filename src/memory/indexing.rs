//! Has what was said found: behind the conversation, in small writes, from where the last one ended.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::Trust;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::written::said;
use super::{Desk, Identities, words as terms};
use crate::bus::{Errand, Told};
use crate::crash;
use crate::store::words::{self, NewSaid};
use crate::store::{Commit, Connection, Store, StoreError, inbox, meta, now_ms};

/// Messages of one write: some milliseconds of the writer's time at most.
const PIECE: i64 = 32;

/// The rest between two writes.
const BREATH: Duration = Duration::from_millis(20);

/// What is said meanwhile is taken along.
const SETTLE: Duration = Duration::from_millis(300);

/// How often all sessions are looked through, and not only those that were used of late.
const ROUND: Duration = Duration::from_secs(600);

/// How far the clock may be set back before those are missed until the next round, in milliseconds.
const SLACK: i64 = 60_000;

/// Sessions of one look.
const SESSIONS: usize = 32;

/// Keeps the index of words up with what was said.
pub struct Indexer {
    desk: Arc<Desk>,
    /// Of the last look that found nothing left, UTC milliseconds.
    looked_at: i64,
    round: Instant,
}

impl Indexer {
    pub fn new(desk: Arc<Desk>) -> Self {
        Self { desk, looked_at: 0, round: Instant::now() }
    }

    /// Works whenever [`Desk::changed`] says that there may be something, until `stop` or until the store is closed.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut changes = self.desk.changes();
        loop {
            let done = tokio::select! {
                () = stop.cancelled() => return,
                done = self.catch_up() => done,
            };
            match done {
                Ok(()) => {}
                Err(StoreError::Closed) => return,
                Err(error) => tracing::warn!(%error, "what was said could not be indexed; it is tried again later"),
            }
            tokio::select! {
                () = stop.cancelled() => return,
                _ = timeout_at(self.round + ROUND, changes.changed()) => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(SETTLE) => {}
            }
            changes.mark_unchanged();
            if self.round.elapsed() >= ROUND {
                (self.looked_at, self.round) = (0, Instant::now());
            }
        }
    }

    /// Indexes all that is not indexed yet.
    ///
    /// # Errors
    /// The store cannot be read or written; what was done stays.
    pub async fn catch_up(&mut self) -> Result<(), StoreError> {
        let store = self.desk.store.clone();
        let identities = self.desk.terms.get().identities.clone();
        self.make_sound(&store, &identities).await?;
        while store.write(Commit::Logged, terms::put_memories).await? {
            sleep(BREATH).await;
        }
        self.sweep(&store).await?;
        let begun = now_ms();
        // A clock that was set back must not hide anything.
        let since = if begun < self.looked_at { 0 } else { self.looked_at - SLACK };
        loop {
            let of_reader = identities.clone();
            let pieces = store.read(move |connection| read_some(connection, &of_reader, since)).await?;
            if pieces.is_empty() {
                break;
            }
            for pieces in in_writes(pieces) {
                let put = move |connection: &Connection| pieces.iter().try_for_each(|piece| piece.put(connection));
                store.write(Commit::Logged, put).await?;
                crash::point("messages_indexed", "");
                sleep(BREATH).await;
            }
        }
        self.looked_at = begun;
        Ok(())
    }

    /// Empties an index that is damaged, or was made by another program or for other identities.
    async fn make_sound(&self, store: &Store, identities: &Identities) -> Result<(), StoreError> {
        let expected = terms::made_by(identities);
        let mut is_sound = store.read_here(|connection| meta::get(connection, meta::WORDS))? == Some(expected);
        if is_sound && terms::was_suspected() {
            let faults = store.read(terms::check).await?;
            if !faults.is_empty() {
                tracing::warn!(?faults, "the index of words is damaged, and is made anew");
            }
            is_sound = faults.is_empty();
        }
        if !is_sound {
            let identities = identities.clone();
            store.write(Commit::Logged, move |connection| terms::begin_anew(connection, &identities)).await?;
        }
        Ok(())
    }

    /// Takes out of the file what belongs to messages that are gone.
    async fn sweep(&self, store: &Store) -> Result<(), StoreError> {
        const ROWS: usize = 200;
        let sweep = |connection: &Connection| words::sweep(connection, ROWS);
        while store.write(Commit::Logged, sweep).await? > 0 {
            sleep(BREATH).await;
        }
        let removed = store.read_here(|connection| meta::get(connection, meta::WORDS_REMOVED))?;
        if removed.as_deref() != Some("yes") {
            return Ok(());
        }
        let mut begins = true;
        while store.write(Commit::Logged, move |connection| words::purge_said(connection, begins)).await? {
            begins = false;
            sleep(BREATH).await;
        }
        store.write(Commit::Logged, |connection| meta::set(connection, meta::WORDS_REMOVED, "")).await
    }
}

/// Some messages of a session that come next.
struct Piece {
    session: String,
    range: (i64, i64),
    messages: Vec<NewSaid>,
}

impl Piece {
    fn put(&self, connection: &Connection) -> Result<(), StoreError> {
        match words::put_said(connection, &self.session, self.range, &self.messages) {
            Err(error) if error.is_of_index() => terms::distrust(connection),
            other => other.map(drop),
        }
    }
}

/// Pieces of several sessions go into one write as long as they are small.
fn in_writes(pieces: Vec<Piece>) -> Vec<Vec<Piece>> {
    let mut writes: Vec<Vec<Piece>> = Vec::new();
    let mut count = 0;
    for piece in pieces {
        count += piece.messages.len();
        match writes.last_mut() {
            Some(last) if count <= usize::try_from(PIECE).unwrap_or(usize::MAX) => last.push(piece),
            _ => {
                count = piece.messages.len();
                writes.push(vec![piece]);
            }
        }
    }
    writes
}

/// Indexes some of what is not indexed yet; answers whether there was anything.
pub(super) fn index_here(connection: &Connection, identities: &Identities) -> Result<bool, StoreError> {
    let pieces = read_some(connection, identities, 0)?;
    pieces.iter().try_for_each(|piece| piece.put(connection))?;
    Ok(!pieces.is_empty())
}

fn read_some(connection: &Connection, identities: &Identities, since: i64) -> Result<Vec<Piece>, StoreError> {
    let behind = words::behind(connection, since, SESSIONS)?;
    behind.into_iter().map(|(session, from, end)| read_piece(connection, identities, session, from, end)).collect()
}

fn read_piece(
    connection: &Connection,
    identities: &Identities,
    session: String,
    from: i64,
    end: i64,
) -> Result<Piece, StoreError> {
    let to = end.min(from + PIECE);
    let mut speakers = HashMap::new();
    let mut messages = Vec::new();
    for unread in words::unread(connection, &session, from, to)? {
        let Some(text) = said(&unread.body) else { continue };
        let Speaker { owner, name } = match speakers.get(&unread.turn) {
            Some(known) => known,
            None => {
                let speaker = speaker_of(connection, identities, &session, &unread.turn)?;
                speakers.entry(unread.turn.clone()).or_insert(speaker)
            }
        };
        let speaker = if unread.role == "user" { name.clone() } else { String::new() };
        let words = terms::said_words(&text, &session, owner, &speaker);
        messages.push(NewSaid { seq: unread.seq, body: unread.body, owner: owner.clone(), speaker, words });
    }
    Ok(Piece { session, range: (from, to), messages })
}

/// Who was spoken with.
struct Speaker {
    /// Empty is nobody.
    owner: String,
    /// Among others, by which name; the gateway's owner has none.
    name: String,
}

fn speaker_of(
    connection: &Connection,
    identities: &Identities,
    session: &str,
    turn: &str,
) -> Result<Speaker, StoreError> {
    let rows = match turn.parse::<Uuid>() {
        Ok(turn) => inbox::of_turn(connection, turn)?,
        Err(_) => Vec::new(),
    };
    // What jobs and sub-agents write, and what was imported, is of whoever the session belongs to.
    let is_told = |row: &inbox::InboxRow| Told::of(&row.metadata).is_some();
    let is_errand = |row: &inbox::InboxRow| row.trust != Trust::Owner.as_str() && Errand::of(&row.metadata).is_some();
    let least = rows.iter().min_by_key(|row| Trust::parse(&row.trust).rank());
    let Some(row) = least.filter(|row| !is_told(row) && !is_errand(row)) else {
        let owner = words::session_owner(connection, session)?.unwrap_or_default();
        return Ok(Speaker { owner, name: String::new() });
    };
    let trust = Trust::parse(&row.trust);
    let owner = identities.owner_of(&row.channel, &row.sender, trust);
    let name = match (trust, owner.as_ref().and_then(|owner| owner.as_str().strip_prefix("name:"))) {
        (Trust::Owner, _) => String::new(),
        (_, Some(name)) => format!("{name} {}", row.sender),
        (_, None) => row.sender.clone(),
    };
    Ok(Speaker { owner: owner.map_or(String::new(), |owner| owner.as_str().to_owned()), name })
}
