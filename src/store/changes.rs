//! The areas of the store that have changed since an earlier moment, for pages that show them. SQLite's update hook does not serve:
//! it skips tables without rowids.

use rusqlite::{Connection, Row, params};

use super::StoreError;
use super::inbox::OPEN;
use super::sql::{select, select_one};

/// The maximum number of sessions that one call returns.
const MAX_SESSIONS: u32 = 50;

/// Numbers for each area that change when the area changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreFingerprint {
    /// The last use of any session, and their number.
    pub sessions: (i64, i64),
    /// The last delivery.
    pub outbox: i64,
    /// Unfinished messages: their number, the last one, and the number that are not running.
    pub inbound: (i64, i64, i64),
    /// Numbers of waiting and dead deliveries and messages.
    pub queue: (i64, i64, i64),
    pub approvals: (i64, i64),
    pub jobs: (i64, i64, i64),
    pub runs: (i64, i64),
    pub memories: (i64, i64),
}

impl StoreFingerprint {
    /// Reads the numbers. It takes a millisecond or less.
    pub fn read(connection: &Connection) -> Result<Self, StoreError> {
        let three = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let two = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let inbound = format!(
            "SELECT count(*), ifnull(max(seq), 0), ifnull(sum(state <> 'running'), 0) FROM inbox INDEXED BY inbox_open
             WHERE {OPEN}"
        );
        Ok(Self {
            sessions: select_one(connection, "SELECT ifnull(max(updated_at), 0), count(*) FROM sessions", [], two)?,
            outbox: select_one(connection, "SELECT ifnull(max(seq), 0) FROM outbox", [], |row| row.get(0))?,
            inbound: select_one(connection, &inbound, [], three)?,
            queue: select_one(
                connection,
                "SELECT (SELECT count(*) FROM outbox WHERE state IN ('pending', 'sending')),
                        (SELECT count(*) FROM outbox WHERE state IN ('unknown', 'dead')),
                        (SELECT count(*) FROM inbox WHERE state = 'dead')",
                [],
                three,
            )?,
            approvals: select_one(
                connection,
                "SELECT (SELECT count(*) FROM approvals WHERE state = 'pending'),
                        (SELECT ifnull(max(created_at), 0) FROM approvals WHERE state = 'pending')
                        + (SELECT count(*) FROM questions WHERE state = 'pending')",
                [],
                two,
            )?,
            jobs: select_one(
                connection,
                "SELECT count(*), ifnull(max(updated_at), 0), ifnull(sum(enabled), 0) FROM jobs",
                [],
                three,
            )?,
            runs: select_one(
                connection,
                "SELECT ifnull(max(seq), 0), ifnull(max(ended_at), 0)
                 FROM (SELECT seq, ended_at FROM job_runs ORDER BY seq DESC LIMIT 50)",
                [],
                two,
            )?,
            memories: select_one(connection, "SELECT ifnull(max(id), 0), count(*) FROM memories", [], two)?,
        })
    }

    /// Returns the areas that differ, by their names in the API.
    pub fn changed_areas(&self, before: &Self) -> Vec<&'static str> {
        let areas = [
            ("sessions", self.sessions != before.sessions || self.inbound != before.inbound),
            ("turns", self.inbound != before.inbound),
            ("queue", self.queue != before.queue),
            ("approvals", self.approvals != before.approvals),
            ("cron", self.jobs != before.jobs || self.runs != before.runs),
            ("memory", self.memories != before.memories),
        ];
        areas.into_iter().filter(|(_, is_changed)| *is_changed).map(|(area, _)| area).collect()
    }

    /// Returns the sessions that were used since `before`, and the chats of the page that got a message since then.
    pub fn changed_sessions(
        &self,
        connection: &Connection,
        before: &Self,
    ) -> Result<(Vec<String>, Vec<String>), StoreError> {
        let used = if self.sessions == before.sessions {
            Vec::new()
        } else {
            let sql = "SELECT session FROM sessions WHERE updated_at >= ? ORDER BY updated_at DESC LIMIT ?";
            select(connection, sql, params![before.sessions.0, MAX_SESSIONS], |row| row.get(0))?
        };
        let chats = if self.outbox == before.outbox {
            Vec::new()
        } else {
            let sql = "SELECT DISTINCT chat_id FROM outbox WHERE seq > ? AND +channel = 'page' LIMIT ?";
            select(connection, sql, params![before.outbox, MAX_SESSIONS], |row| row.get(0))?
        };
        Ok((used, chats))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Durability, Store, messages};

    #[tokio::test]
    async fn a_change_is_seen_in_its_area_alone() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| {
            let mut before = StoreFingerprint::read(connection)?;
            for (sql, expected) in [
                (
                    "INSERT INTO jobs (id, name, body, created_at, updated_at) VALUES ('j', 'j', '{}', 1, 1)",
                    &["cron"][..],
                ),
                (
                    "INSERT INTO memories (owner, kind, text, origin, confidence, created_at)
                     VALUES ('owner', 'fact', 'x', 'told', 1, 1)",
                    &["memory"],
                ),
                (
                    "INSERT INTO outbox (id, turn, slot, attempt, channel, chat_id, body, state, created_at)
                     VALUES ('o', 't', 'reply', 0, 'page', 'c', '{}', 'dead', 1)",
                    &["queue"],
                ),
                ("INSERT INTO meta VALUES ('x', 'y')", &[]),
            ] {
                connection.execute(sql, [])?;
                let now = StoreFingerprint::read(connection)?;
                assert_eq!(now.changed_areas(&before), expected, "{sql}");
                before = now;
            }
            messages::set_model(connection, "cli:direct", None)?;
            let now = StoreFingerprint::read(connection)?;
            let start = StoreFingerprint::default();
            let (used, chats) = now.changed_sessions(connection, &start)?;
            assert_eq!(
                (now.changed_areas(&before), used, chats),
                (vec!["sessions"], vec!["cli:direct".to_owned()], vec!["c".to_owned()])
            );
            Ok(())
        };
        store.write(Durability::Logged, work).await.unwrap();
    }
}
