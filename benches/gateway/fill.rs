//! Fills a store with history: sessions with many messages, as a real use would leave them.

use std::fs::File;
use std::path::Path;

use daoyou::memory::{Identities, rebuild_index};
use daoyou::store::StoreError;
use rusqlite::{Connection, params};
use serde_json::json;
use uuid::Uuid;

use super::sentences::SentenceGenerator;

/// The time of the first message in milliseconds: 2026-01-01 UTC. Each further message is one second later.
const BEGIN: i64 = 1_767_225_600_000;

/// The number of a session's newest messages that no summary covers.
const UNSUMMARISED: usize = 30;

/// Writes `sessions` sessions of `each` messages into the store at `database`, which a stopped gateway has created. Session
/// `n` belongs to the chat `past-n` on the webhook `in`. Two messages, an inbox row and an outbox row form one turn.
///
/// All but the newest messages are summarised and indexed, so that no background work remains while turns are measured.
///
/// This function depends on the store's tables and must change with them.
pub fn fill(database: &Path, sessions: usize, each: usize) -> Result<(), StoreError> {
    let store = Connection::open(database)?;
    store.execute_batch("PRAGMA synchronous = OFF; BEGIN")?;
    let mut sentences = SentenceGenerator::default();
    for session in 0..sessions {
        insert_session(&store, session, each / 2, &mut sentences)?;
    }
    rebuild_index(&store, &Identities::default())?;
    store.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")?;
    // Otherwise the commits that are measured wait for these pages to reach the disk.
    File::open(database).and_then(|file| file.sync_all()).expect("the store can be synced");
    Ok(())
}

fn insert_session(
    store: &Connection,
    number: usize,
    turns: usize,
    sentences: &mut SentenceGenerator,
) -> Result<(), StoreError> {
    let (chat, session) = (format!("past-{number}"), format!("webhook:in:past-{number}"));
    let whole = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let at = |turn: usize| BEGIN + whole(number * turns + turn) * 1_000;
    store
        .prepare_cached(
            "INSERT INTO sessions (session, epoch, first_seq, next_seq, created_at, updated_at) VALUES (?1, 0, 0, ?2, ?3, ?4)",
        )?
        .execute(params![session, whole(turns * 2), BEGIN, at(turns)])?;
    for turn in 0..turns {
        let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{number} {turn}").as_bytes()).to_string();
        let sentence = sentences.sentence();
        for (offset, role, text) in [(0, "user", sentence.as_str()), (1, "assistant", "It is noted.")] {
            let body = json!({"role": role, "content": text}).to_string();
            store
                .prepare_cached(
                    "INSERT INTO messages (session, epoch, seq, role, body, turn, at) VALUES (?1, 0, ?2, ?3, ?4, ?5, ?6)",
                )?
                .execute(params![session, whole(turn * 2) + offset, role, body, id, at(turn)])?;
        }
        store
            .prepare_cached(
                "INSERT INTO inbox (id, channel, external_id, session, chat_id, sender, trust, content, attachments, metadata,
                    received_at, turn, state)
                 VALUES (?1, 'webhook:in', ?1, ?2, ?3, '', 'known', ?4, '[]', '{}', ?5, ?1, 'done')",
            )?
            .execute(params![id, session, chat, sentence, at(turn)])?;
        store
            .prepare_cached(
                "INSERT INTO outbox (id, turn, slot, attempt, channel, chat_id, body, state, tries, created_at)
                 VALUES (?1, ?1, 'reply', 0, 'webhook:in', ?2, '{}', 'sent', 1, ?3)",
            )?
            .execute(params![id, chat, at(turn)])?;
    }
    store
        .prepare_cached(
            "INSERT OR IGNORE INTO session_memory (session, epoch, cursor, updated_at) VALUES (?1, 0, ?2, ?3)",
        )?
        .execute(params![session, whole((turns * 2).saturating_sub(UNSUMMARISED)), at(turns)])?;
    Ok(())
}
