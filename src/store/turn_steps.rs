//! The journal of turns, append only. Each step's hash covers its body and the hash before it, so that a damaged
//! journal is noticed and never believed.

use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{StoreError, now_ms};

/// The format of the bodies that this program writes.
pub const VERSION: i64 = 1;

/// One step of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRow {
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

/// Adds a step after the last one; answers its seq.
pub fn append(connection: &Connection, turn: Uuid, kind: &str, body: &str) -> Result<i64, StoreError> {
    let turn = turn.to_string();
    let last: Option<(i64, String)> = connection
        .prepare_cached("SELECT seq, hash FROM turn_steps WHERE turn = ? ORDER BY seq DESC LIMIT 1")?
        .query_row([&turn], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let (seq, before) = last.map_or((0, String::new()), |(seq, hash)| (seq + 1, hash));
    connection
        .prepare_cached("INSERT INTO turn_steps (turn, seq, kind, v, body, hash, at) VALUES (?, ?, ?, ?, ?, ?, ?)")?
        .execute(params![turn, seq, kind, VERSION, body, chain_hash(&before, body), now_ms()])?;
    Ok(seq)
}

/// Adds a note that breaks the chain: the turn ends with an error that its sender is told, and does nothing again. `text` is plain,
/// and stands for what is missing.
pub fn append_break(connection: &Connection, turn: &str, text: &str) -> Result<(), StoreError> {
    let body = serde_json::json!({ "step": "note", "text": text }).to_string();
    connection
        .prepare_cached(
            "INSERT INTO turn_steps (turn, seq, kind, v, body, hash, at)
             SELECT ?1, ifnull(max(seq) + 1, 0), 'note', ?2, ?3, '', ?4 FROM turn_steps WHERE turn = ?1",
        )?
        .execute(params![turn, VERSION, body, now_ms()])?;
    Ok(())
}

/// The body of the note that has a failed turn go on.
pub const RETRIED: &str = r#"{"step":"retried"}"#;

/// The steps of a turn, in order.
pub fn of_turn(connection: &Connection, turn: Uuid) -> Result<Vec<StepRow>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT seq, kind, v, body, hash, at FROM turn_steps WHERE turn = ? ORDER BY seq")?;
    let rows = statement.query_map([turn.to_string()], |row| {
        Ok(StepRow {
            seq: row.get(0)?,
            kind: row.get(1)?,
            version: row.get(2)?,
            body: row.get(3)?,
            hash: row.get(4)?,
            at: row.get(5)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The body of the last step of this kind.
pub fn last_of_kind(connection: &Connection, turn: &str, kind: &str) -> Result<Option<String>, StoreError> {
    let mut statement = connection
        .prepare_cached("SELECT body FROM turn_steps WHERE turn = ? AND kind = ? ORDER BY seq DESC LIMIT 1")?;
    Ok(statement.query_row([turn, kind], |row| row.get(0)).optional()?)
}

/// Whether the turn has a step at all.
pub fn has_any(connection: &Connection, turn: Uuid) -> Result<bool, StoreError> {
    let mut statement = connection.prepare_cached("SELECT 1 FROM turn_steps WHERE turn = ? LIMIT 1")?;
    Ok(statement.exists([turn.to_string()])?)
}

/// Whether every hash is what its body and the one before say.
pub fn chain_holds(steps: &[StepRow]) -> bool {
    let mut before = "";
    steps.iter().zip(0..).all(|(step, seq)| {
        let holds = step.seq == seq && chain_hash(before, &step.body) == step.hash;
        before = &step.hash;
        holds
    })
}

/// SHA-256 over the hash before and the body, in hexadecimal.
pub fn chain_hash(before: &str, body: &str) -> String {
    let digest = Sha256::new().chain_update(before.as_bytes()).chain_update(body.as_bytes()).finalize();
    hex(&digest)
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]])
        .map(char::from)
        .collect()
}
