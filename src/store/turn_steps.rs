//! The journal of turns, append-only. Each step's hash covers its body and the previous hash, so that damage of a journal is
//! detected.

use daoyou_channels::text::hex;
use rusqlite::{Connection, params};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::sql::{StoredRow, execute, select_optional, select_parsed, stored_row};
use super::{StoreError, now_ms};

/// The format version of the bodies that this program writes.
pub const VERSION: i64 = 1;

/// A step of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnStepRow {
    pub seq: i64,
    /// `context`, `response`, `tool_started`, `tool_result` or `note`.
    pub kind: String,
    pub version: i64,
    /// JSON.
    pub body: String,
    pub hash: String,
    /// UTC milliseconds.
    pub at: i64,
}

stored_row! { TurnStepRow: seq, kind, version, body, hash, at }

/// Appends a step; returns its seq.
pub fn append(connection: &Connection, turn: Uuid, kind: &str, body: &str) -> Result<i64, StoreError> {
    append_all(connection, turn, [(kind, body)])
}

/// Appends steps as `(kind, body)`; returns the seq of the last one.
pub fn append_all<'a>(
    connection: &Connection,
    turn: Uuid,
    steps: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<i64, StoreError> {
    let sql = "SELECT seq, hash FROM turn_steps WHERE turn = ? ORDER BY seq DESC LIMIT 1";
    let last = select_optional(connection, sql, [turn.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    append_after(connection, turn, last, steps)
}

/// Appends steps as `(kind, body)` after the `last` one, given as its seq and hash; returns the seq of the last one.
pub fn append_after<'a>(
    connection: &Connection,
    turn: Uuid,
    last: Option<(i64, String)>,
    steps: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<i64, StoreError> {
    let turn = turn.to_string();
    let (mut seq, mut hash) = last.unwrap_or((-1, String::new()));
    for (kind, body) in steps {
        (seq, hash) = (seq + 1, chain_hash(&hash, body));
        let sql = "INSERT INTO turn_steps (turn, seq, kind, v, body, hash, at) VALUES (?, ?, ?, ?, ?, ?, ?)";
        execute(connection, sql, params![turn, seq, kind, VERSION, body, hash, now_ms()])?;
    }
    Ok(seq)
}

/// Appends a note that breaks the hash chain: the turn then ends with an error to its sender and repeats nothing. `text` describes
/// the missing steps.
pub fn append_break(connection: &Connection, turn: &str, text: &str) -> Result<(), StoreError> {
    let body = serde_json::json!({ "step": "note", "text": text }).to_string();
    let sql = "INSERT INTO turn_steps (turn, seq, kind, v, body, hash, at)
             SELECT ?1, ifnull(max(seq) + 1, 0), 'note', ?2, ?3, '', ?4 FROM turn_steps WHERE turn = ?1";
    execute(connection, sql, params![turn, VERSION, body, now_ms()]).map(drop)
}

/// The body of the note that makes a failed turn continue.
pub const RETRIED: &str = r#"{"step":"retried"}"#;

/// Returns the steps of a turn, in order.
pub fn of_turn(connection: &Connection, turn: Uuid) -> Result<Vec<TurnStepRow>, StoreError> {
    let sql = "SELECT seq, kind, v, body, hash, at FROM turn_steps WHERE turn = ? ORDER BY seq";
    select_parsed(connection, sql, [turn.to_string()], TurnStepRow::read)
}

/// Returns the body of the last step of this kind.
pub fn last_of_kind(connection: &Connection, turn: &str, kind: &str) -> Result<Option<String>, StoreError> {
    let sql = "SELECT body FROM turn_steps WHERE turn = ? AND kind = ? ORDER BY seq DESC LIMIT 1";
    select_optional(connection, sql, [turn, kind], |row| row.get(0))
}

/// Returns true if every hash matches its body and the previous hash.
pub fn chain_holds(steps: &[TurnStepRow]) -> bool {
    let mut before = "";
    steps.iter().zip(0..).all(|(step, seq)| {
        let holds = step.seq == seq && chain_hash(before, &step.body) == step.hash;
        before = &step.hash;
        holds
    })
}

/// Returns the SHA-256 of the previous hash and the body, in hexadecimal.
pub fn chain_hash(before: &str, body: &str) -> String {
    let digest = Sha256::new().chain_update(before.as_bytes()).chain_update(body.as_bytes()).finalize();
    hex(&digest)
}
