//! Has what was said found: behind the conversation, in small writes, from where the last one ended.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::reading::{in_writes, read_some};
use super::{Desk, Identities, words as terms};
use crate::crash;
use crate::store::words;
use crate::store::{Commit, Connection, Store, StoreError, meta, now_ms};

/// The rest between two writes.
const BREATH: Duration = Duration::from_millis(20);

/// What is said meanwhile is taken along.
const SETTLE: Duration = Duration::from_millis(300);

/// How often all sessions are looked through, and not only those that were used of late.
const ROUND: Duration = Duration::from_secs(600);

/// How far the clock may be set back before those are missed until the next round, in milliseconds.
const SLACK: i64 = 60_000;

/// What stands in `meta` for words that are removed but in the file, while they are taken out of it.
const PURGING: &str = "purging";

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

    /// Works whenever [`Desk::said`] says that there may be something, until `stop` or until the store is closed.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut sayings = self.desk.sayings();
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
                _ = timeout_at(self.round + ROUND, sayings.changed()) => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(SETTLE) => {}
            }
            sayings.mark_unchanged();
            if self.round.elapsed() >= ROUND {
                (self.looked_at, self.round) = (0, Instant::now());
            }
        }
    }

    /// Indexes all that is not indexed yet. An index that turns out to be damaged is made anew at once.
    ///
    /// # Errors
    /// The store cannot be read or written; what was done stays.
    pub async fn catch_up(&mut self) -> Result<(), StoreError> {
        self.go_through().await?;
        if !self.desk.store.read_here(terms::is_trusted)? {
            self.looked_at = 0;
            self.go_through().await?;
        }
        Ok(())
    }

    async fn go_through(&mut self) -> Result<(), StoreError> {
        let store = self.desk.store.clone();
        let identities = self.desk.terms.get().identities.clone();
        self.make_sound(&store, &identities).await?;
        self.put_memories(&store).await?;
        self.sweep(&store).await?;
        let begun = now_ms();
        // A clock that was set back must not hide anything.
        let since = if begun < self.looked_at { 0 } else { self.looked_at - SLACK };
        let mut has_news = false;
        loop {
            let of_reader = identities.clone();
            let pieces = store.read(move |connection| read_some(connection, &of_reader, since)).await?;
            if pieces.is_empty() {
                break;
            }
            has_news = true;
            for pieces in in_writes(pieces) {
                let put = move |connection: &Connection| pieces.iter().try_for_each(|piece| piece.put(connection));
                store.write(Commit::Logged, put).await?;
                crash::point("messages_indexed", "");
                sleep(BREATH).await;
            }
        }
        if has_news {
            self.desk.vectors.said();
        }
        self.looked_at = begun;
        Ok(())
    }

    /// Empties an index that is damaged, or was made by another program or for other identities.
    async fn make_sound(&mut self, store: &Store, identities: &Identities) -> Result<(), StoreError> {
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
            self.looked_at = 0;
            let identities = identities.clone();
            store.write(Commit::Logged, move |connection| terms::begin_anew(connection, &identities)).await?;
        }
        Ok(())
    }

    /// Goes on with an index that is made anew.
    async fn put_memories(&self, store: &Store) -> Result<(), StoreError> {
        let next = store.read_here(|connection| meta::get(connection, meta::WORDS_MEMORIES))?;
        if next.is_some_and(|next| !next.is_empty()) {
            while store.write(Commit::Logged, terms::put_memories).await? {
                sleep(BREATH).await;
            }
        }
        Ok(())
    }

    /// Takes out of the file what belongs to messages that are gone.
    async fn sweep(&self, store: &Store) -> Result<(), StoreError> {
        const ROWS: usize = 200;
        while store.read_here(words::has_unsaid)? {
            if !store.write(Commit::Logged, |connection| terms::sweep(connection, ROWS)).await? {
                return Ok(());
            }
            sleep(BREATH).await;
        }
        let removed = store.read_here(|connection| meta::get(connection, meta::WORDS_REMOVED))?;
        if removed.is_none_or(|removed| removed.is_empty()) {
            return Ok(());
        }
        // What is removed while this goes on says so again, and is left for the next time.
        store.write(Commit::Logged, |connection| meta::set(connection, meta::WORDS_REMOVED, PURGING)).await?;
        let mut begins = true;
        while store.write(Commit::Logged, move |connection| terms::purge(connection, begins)).await? {
            begins = false;
            sleep(BREATH).await;
        }
        let done = |connection: &Connection| match meta::get(connection, meta::WORDS_REMOVED)?.as_deref() {
            Some(PURGING) => meta::set(connection, meta::WORDS_REMOVED, ""),
            _ => Ok(()),
        };
        store.write(Commit::Logged, done).await
    }
}
