//! Sub-agents: the turn that gave each its task, and its result. The inbox row has the state of the sub-agent's work.

use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use super::inbox::{self, MessageStatus};
use super::sql::{execute, read_uuid, select_optional_parsed, select_parsed};
use super::{StoreError, now_ms};

/// The maximum number of sub-agents that one query returns.
const MAX_FOUND: u32 = 1_000;

/// A sub-agent to insert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSpawn {
    pub id: Uuid,
    pub session: String,
    pub turn: Uuid,
    pub label: String,
    pub depth: u32,
    pub waits: bool,
}

/// A sub-agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpawnRow {
    pub id: Uuid,
    /// The session that gave the task.
    pub session: String,
    pub turn: String,
    pub label: String,
    pub depth: u32,
    pub waits: bool,
    /// The state of its inbox row, if the row exists.
    pub state: Option<MessageStatus>,
    /// The result; present once the sub-agent has ended.
    pub end: Option<SpawnEnd>,
}

/// The result of a sub-agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpawnEnd {
    /// The stable code of the error if it failed.
    pub error: Option<String>,
    pub result: String,
}

impl SpawnRow {
    /// Returns true if the sub-agent has ended and continues only if it is revived.
    pub fn is_over(&self) -> bool {
        self.end.is_some() || self.state.is_none_or(|state| matches!(state, MessageStatus::Done | MessageStatus::Dead))
    }
}

/// Returns the session of a sub-agent.
pub fn session_of(id: Uuid) -> String {
    format!("spawn:{id}")
}

/// Inserts a sub-agent; returns whether it is new.
pub fn insert(connection: &Connection, spawn: &NewSpawn) -> Result<bool, StoreError> {
    let NewSpawn { id, session, turn, label, depth, waits } = spawn;
    let sql = "INSERT OR IGNORE INTO spawns (id, session, turn, label, depth, waits, created_at)
             VALUES (?, ?, ?, ?, ?, ?, ?)";
    let added =
        execute(connection, sql, params![id.to_string(), session, turn.to_string(), label, depth, waits, now_ms()])?;
    Ok(added == 1)
}

pub fn find(connection: &Connection, id: Uuid) -> Result<Option<SpawnRow>, StoreError> {
    let sql = "SELECT s.id, s.session, s.turn, s.label, s.depth, s.waits, i.state, s.ended_at, s.error, s.result
         FROM spawns s LEFT JOIN inbox i ON i.id = s.id WHERE s.id = ?";
    select_optional_parsed(connection, sql, [id.to_string()], read)
}

/// Records the result of a sub-agent; returns whether it is the first one.
pub fn end(connection: &Connection, id: Uuid, error: Option<&str>, result: &str) -> Result<bool, StoreError> {
    let is_first = find(connection, id)?.is_none_or(|spawn| spawn.end.is_none());
    let sql = "UPDATE spawns SET ended_at = ?, error = ?, result = ? WHERE id = ?";
    execute(connection, sql, params![now_ms(), error, result, id.to_string()])?;
    Ok(is_first)
}

/// Returns true if a sub-agent has ended or does not exist.
pub fn is_over(connection: &Connection, id: Uuid) -> Result<bool, StoreError> {
    Ok(find(connection, id)?.is_none_or(|spawn| spawn.is_over()))
}

/// Returns the unfinished sub-agents of a session.
pub fn unfinished(connection: &Connection, session: &str) -> Result<Vec<Uuid>, StoreError> {
    let sql = "SELECT s.id FROM spawns s JOIN inbox i ON i.id = s.id
         WHERE s.session = ? AND i.state NOT IN ('done', 'dead')";
    select_parsed(connection, sql, [session], |row| read_uuid(row, 0))
}

/// Returns the labels of a session's unfinished sub-agents, at all depths.
pub fn unfinished_labels(connection: &Connection, session: &str) -> Result<Vec<String>, StoreError> {
    Ok(below(connection, session)?.into_iter().map(|(_, label)| label).collect())
}

/// Marks the unfinished sub-agents of a session, at all depths, for cancellation; returns their turns and sessions.
pub fn cancel_below(connection: &Connection, session: &str) -> Result<Vec<(Uuid, String)>, StoreError> {
    let mut cancelled = Vec::new();
    for (id, _) in below(connection, session)? {
        execute(connection, "UPDATE inbox SET cancel = 1 WHERE id = ?", [id.to_string()])?;
        if let Some(row) = inbox::find(connection, id)? {
            cancelled.push((row.turn, row.session));
        }
    }
    Ok(cancelled)
}

/// Returns the unfinished sub-agents of a session, at all depths, with their labels.
fn below(connection: &Connection, session: &str) -> Result<Vec<(Uuid, String)>, StoreError> {
    let sql = "WITH RECURSIVE below(id, label) AS (
             SELECT id, label FROM spawns WHERE session = ?1
             UNION SELECT s.id, s.label FROM below b JOIN spawns s ON s.session = 'spawn:' || b.id)
         SELECT b.id, b.label FROM below b JOIN inbox i ON i.id = b.id
         WHERE i.state NOT IN ('done', 'dead') ORDER BY i.seq LIMIT ?2";
    select_parsed(connection, sql, params![session, MAX_FOUND], |row| Ok((read_uuid(row, 0)?, row.get(1)?)))
}

fn read(row: &Row<'_>) -> Result<SpawnRow, StoreError> {
    let ended: Option<i64> = row.get(7)?;
    let state: Option<String> = row.get(6)?;
    Ok(SpawnRow {
        id: read_uuid(row, 0)?,
        session: row.get(1)?,
        turn: row.get(2)?,
        label: row.get(3)?,
        depth: row.get(4)?,
        waits: row.get(5)?,
        state: state.as_deref().map(inbox::parse_state).transpose()?,
        end: match ended {
            Some(_) => {
                Some(SpawnEnd { error: row.get(8)?, result: row.get::<_, Option<String>>(9)?.unwrap_or_default() })
            }
            None => None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::inbox::NewInboxRow;
    use crate::store::{Durability, Store, retention};

    #[tokio::test]
    async fn sub_agents_are_found_at_all_depths() {
        let (_folder, store) = Store::temporary();
        let [child, grandchild, over, other] = [1, 2, 3, 4].map(Uuid::from_u128);
        let found = store
            .write(Durability::Logged, move |connection| {
                for (id, session, label, state) in [
                    (child, "cli:direct".to_owned(), "child", MessageStatus::Queued),
                    (grandchild, session_of(child), "grandchild", MessageStatus::Queued),
                    (over, "cli:direct".to_owned(), "over", MessageStatus::Done),
                    (other, "cli:other".to_owned(), "other", MessageStatus::Queued),
                ] {
                    let turn = Uuid::nil();
                    let spawn = NewSpawn { id, session, turn, label: label.to_owned(), depth: 1, waits: true };
                    assert!(insert(connection, &spawn)? && !insert(connection, &spawn)?);
                    inbox::insert(connection, &NewInboxRow { state, ..NewInboxRow::sample(id, &session_of(id)) })?;
                }
                let at_work = unfinished_labels(connection, "cli:direct")?;
                assert_eq!(
                    (at_work.join(" ").as_str(), unfinished(connection, "cli:direct")?.len()),
                    ("child grandchild", 1)
                );
                assert!(!is_over(connection, child)? && !is_over(connection, other)? && is_over(connection, over)?);
                assert!(is_over(connection, Uuid::from_u128(9))?, "what is not there will not end");
                let cancelled = cancel_below(connection, "cli:direct")?;
                assert_eq!(cancelled, [(child, session_of(child)), (grandchild, session_of(grandchild))]);
                assert_eq!(inbox::cancelled(connection)?.len(), 2);
                assert!(end(connection, child, Some("stopped"), "x")? && !end(connection, child, None, "y")?);
                let found = find(connection, child)?;
                Ok((found, retention::prune_spawns(connection, now_ms())?))
            })
            .await
            .unwrap();
        let end = found.0.and_then(|spawn| spawn.end);
        assert_eq!(end, Some(SpawnEnd { error: None, result: "y".to_owned() }));
        assert_eq!(found.1, 1, "what has not ended stays");
    }
}
