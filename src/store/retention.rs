//! `[store]`. Deletes finished rows when their retention time is over, in small batches, so that other writes need not wait.
//!
//! Rows of `inbox` are never deleted, only emptied: their `(channel, external_id)` identifies a message that is sent again, and senders
//! retry for days (Stripe for three, others for a week).

use std::collections::BTreeSet;

use daoyou_channels::settings::{ByteSize, HumanDuration};
use rusqlite::{Connection, Statement, params};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::sql::{execute, select};
use super::{StoreError, messages};

/// How the store keeps what it holds.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    pub retain: RetainConfig,
    /// Free disk space below which no new message is accepted, so that those accepted can still be answered.
    #[default(ByteSize(100_000_000))]
    pub reserve: ByteSize,
    /// How often what was deleted is given back to the disk; "0s" is never.
    #[default(HumanDuration::from_secs(7 * 86_400))]
    pub vacuum: HumanDuration,
}

/// How long finished things are kept; absent is for ever.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetainConfig {
    /// Messages of a session that has not been used for so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<HumanDuration>,
    /// The steps of finished turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[default(Some(HumanDuration::from_secs(90 * 86_400)))]
    pub turns: Option<HumanDuration>,
    /// Delivered and dead outbound messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outbox: Option<HumanDuration>,
}

/// The maximum number of rows that one batch deletes.
pub const BATCH: u32 = 500;

/// Deletes steps of finished turns that were accepted before `before_ms`; returns their number.
pub fn prune_turn_steps(connection: &Connection, before_ms: i64) -> Result<usize, StoreError> {
    // Turn ids are UUIDv7, so the old ones are a range of the primary key. Deletion starts at the end of a turn, so that the rest of
    // it between two batches is a valid beginning of its chain.
    let bound = first_uuid_of(before_ms);
    let sql = "DELETE FROM turn_steps WHERE (turn, seq) IN (
                SELECT s.turn, s.seq FROM turn_steps s
                WHERE s.turn < ?1 AND NOT EXISTS (
                    SELECT 1 FROM inbox i WHERE i.turn = s.turn AND i.state IN ('queued', 'running', 'waiting', 'dead'))
                ORDER BY s.turn DESC, s.seq DESC LIMIT ?2)";
    execute(connection, sql, params![bound, BATCH])
}

/// Deletes delivered and given-up outbound messages older than `before_ms`.
pub fn prune_outbox(connection: &Connection, before_ms: i64) -> Result<usize, StoreError> {
    // The oldest rows come first, so a few batches of them suffice, and the search is bounded. Pending rows do not count: a
    // disconnected channel may accumulate many of them.
    const OLD: &str = "SELECT seq FROM (
            SELECT seq, created_at FROM outbox WHERE state IN ('sent', 'unknown', 'dead') ORDER BY seq LIMIT 8 * ?2)
        WHERE created_at < ?1 LIMIT ?2";
    // The history of a job keeps the outcome of its deliveries.
    let keep = format!(
        "UPDATE job_runs SET delivery = o.state FROM outbox o
         WHERE o.seq IN ({OLD}) AND o.slot = 'reply' AND job_runs.turn = o.turn"
    );
    execute(connection, &keep, params![before_ms, BATCH])?;
    let delete = format!("DELETE FROM outbox WHERE seq IN ({OLD})");
    execute(connection, &delete, params![before_ms, BATCH])
}

/// Returns the deleted jobs with runs before `before_ms`. A run is as old as its start, which may be long after its slot.
/// For each deleted job, the query reads at most the runs that are kept; still, it belongs on a reader, not on the writer.
pub fn gone_jobs(connection: &Connection, before_ms: i64) -> Result<Vec<String>, StoreError> {
    let sql = "WITH RECURSIVE job(id) AS (
             SELECT min(job) FROM job_runs
             UNION ALL SELECT (SELECT min(r.job) FROM job_runs r WHERE r.job > job.id) FROM job WHERE job.id IS NOT NULL)
         SELECT id FROM job WHERE id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = job.id)
             AND EXISTS (SELECT 1 FROM job_runs r WHERE r.job = job.id AND r.at < ?1 AND r.outcome <> 'started')";
    select(connection, sql, [before_ms], |row| row.get(0))
}

/// Deletes runs before `before_ms` of these jobs, which a query found to be deleted.
pub fn prune_job_runs(connection: &Connection, jobs: &[String], before_ms: i64) -> Result<usize, StoreError> {
    // An import may have created the job again under the same id.
    let mut statement = connection.prepare_cached(
        "DELETE FROM job_runs WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE id = ?1) AND seq IN (
            SELECT seq FROM job_runs WHERE job = ?1 AND at < ?2 AND outcome <> 'started' LIMIT ?3)",
    )?;
    execute_for_each(&mut statement, jobs, before_ms)
}

/// Executes a statement for one key after another, until it has changed [`BATCH`] rows; its parameters are the key, the time, and the
/// number of rows that are left. Returns the number of changed rows.
fn execute_for_each(statement: &mut Statement<'_>, keys: &[String], before_ms: i64) -> Result<usize, StoreError> {
    let limit = usize::try_from(BATCH).unwrap_or(usize::MAX);
    let mut changed = 0;
    for key in keys {
        if changed >= limit {
            break;
        }
        changed += statement.execute(params![key, before_ms, limit - changed])?;
    }
    Ok(changed)
}

/// Deletes messages of sessions that were not used since `before_ms`.
pub fn prune_sessions(connection: &Connection, before_ms: i64) -> Result<usize, StoreError> {
    let sql = "DELETE FROM messages WHERE (session, seq) IN (
                SELECT m.session, m.seq FROM sessions s JOIN messages m ON m.session = s.session
                WHERE s.updated_at < ?1 LIMIT ?2) RETURNING session";
    let pruned: Vec<String> = select(connection, sql, params![before_ms, BATCH], |row| row.get(0))?;
    for session in pruned.iter().collect::<BTreeSet<_>>() {
        messages::count_edit(connection, session)?;
    }
    Ok(pruned.len())
}

/// The condition for an ended row of the inbox that has content.
const HAS_CONTENT: &str = "state = 'done' AND (content <> '' OR attachments <> '[]' OR metadata <> '{}')";

/// Returns the sessions that were not used since `before_ms` and have ended inbox rows with content. It reads all rows of unused
/// sessions, so it belongs on a reader, not on the writer.
pub fn sessions_with_content(connection: &Connection, before_ms: i64) -> Result<Vec<String>, StoreError> {
    const NEWEST: &str =
        "FROM inbox n WHERE n.session = known.session AND n.state = 'done' ORDER BY n.seq DESC LIMIT 1";
    let sql = format!(
        "WITH RECURSIVE known(session) AS (
             SELECT min(session) FROM inbox
             UNION ALL SELECT (SELECT min(i.session) FROM inbox i WHERE i.session > known.session)
             FROM known WHERE known.session IS NOT NULL)
         SELECT session FROM known WHERE session IS NOT NULL AND ?1 > ifnull(
             (SELECT s.updated_at FROM sessions s WHERE s.session = known.session), (SELECT n.received_at {NEWEST}))
             AND EXISTS (SELECT 1 FROM inbox n WHERE n.session = known.session AND {HAS_CONTENT})"
    );
    select(connection, &sql, [before_ms], |row| row.get(0))
}

/// Empties the ended inbox rows of those of the `sessions` that were not used since `before_ms`.
pub fn empty_inbox_rows(connection: &Connection, sessions: &[String], before_ms: i64) -> Result<usize, StoreError> {
    // The origin of a note holds its texts.
    let mut statement = connection.prepare_cached(&format!(
        "UPDATE inbox SET content = '', attachments = '[]', metadata = '{{}}',
             origin = iif(json_extract(origin, '$.cause.kind') = 'note', '{{}}', origin)
         WHERE seq IN (SELECT seq FROM inbox INDEXED BY inbox_session WHERE session = ?1 AND {HAS_CONTENT} LIMIT ?3)
             AND NOT EXISTS (SELECT 1 FROM sessions WHERE session = ?1 AND updated_at >= ?2)"
    ))?;
    execute_for_each(&mut statement, sessions, before_ms)
}

/// Deletes notes of `kind` that `channel` has not written since `before_ms`.
pub fn prune_notes(connection: &Connection, channel: &str, kind: &str, before_ms: i64) -> Result<usize, StoreError> {
    let sql = "DELETE FROM notes WHERE (channel, kind, key) IN (
                SELECT channel, kind, key FROM notes INDEXED BY notes_age
                WHERE channel = ?1 AND kind = ?2 AND updated_at < ?3 LIMIT ?4)";
    execute(connection, sql, params![channel, kind, before_ms, BATCH])
}

/// Deletes records of positions that channels skipped before `before_ms`.
pub fn prune_skipped(connection: &Connection, before_ms: i64) -> Result<usize, StoreError> {
    let sql = "DELETE FROM skipped_messages WHERE (channel, source, position) IN (
                SELECT channel, source, position FROM skipped_messages INDEXED BY skipped_messages_at WHERE at < ?1 LIMIT ?2)";
    execute(connection, sql, params![before_ms, BATCH])
}

/// Deletes ended sub-agents of turns before `before_ms`.
pub fn prune_spawns(connection: &Connection, before_ms: i64) -> Result<usize, StoreError> {
    // The id is as old as the sub-agent's first turn.
    let sql = "DELETE FROM spawns WHERE id IN (SELECT id FROM spawns WHERE id < ?1 AND ended_at IS NOT NULL LIMIT ?2)";
    execute(connection, sql, params![first_uuid_of(before_ms), BATCH])
}

/// Deletes approval requests that were answered or expired before `before_ms`. An approval for the rest of a conversation stays
/// until the conversation ends.
pub fn prune_approvals(connection: &Connection, before_ms: i64) -> Result<usize, StoreError> {
    let sql = "DELETE FROM approvals WHERE id IN (
                SELECT a.id FROM approvals a WHERE a.ended_at < ?1 AND a.state <> 'pending'
                    AND NOT (a.for_session AND NOT EXISTS (
                        SELECT 1 FROM sessions s WHERE s.session = a.session AND s.epoch > a.epoch))
                    AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.turn = a.turn AND i.state IN ('queued', 'running', 'waiting'))
                LIMIT ?2)";
    execute(connection, sql, params![before_ms, BATCH])
}

/// Deletes questions of finished turns that were answered, or ended otherwise, before `before_ms`.
pub fn prune_questions(connection: &Connection, before_ms: i64) -> Result<usize, StoreError> {
    let sql = "DELETE FROM questions WHERE id IN (
                SELECT q.id FROM questions q WHERE q.ended_at < ?1 AND q.state <> 'pending'
                    AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.turn = q.turn AND i.state IN ('queued', 'running', 'waiting'))
                LIMIT ?2)";
    execute(connection, sql, params![before_ms, BATCH])
}

/// Returns the lowest UUIDv7 of a moment (RFC 9562, section 5.7), as text.
fn first_uuid_of(ms: i64) -> String {
    let ms = ms.max(0);
    format!("{:08x}-{:04x}-7000-8000-000000000000", ms >> 16, ms & 0xffff)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::store::inbox::{self, MessageStatus, NewInboxRow};
    use crate::store::job_runs::{self, JobRunOutcome, NewJobRun};
    use crate::store::outbox::NewOutbound;
    use crate::store::{Durability, Store, cursors, jobs, messages, notes, now_ms, outbox, turn_steps};

    fn message(id: Uuid) -> NewInboxRow {
        NewInboxRow { external_id: "one".to_owned(), ..NewInboxRow::sample(id, "s") }
    }

    #[tokio::test]
    async fn only_old_finished_rows_are_deleted() {
        let (_folder, store) = Store::temporary();
        let left = store
            .write(Durability::Logged, |connection| {
                let turn = Uuid::now_v7();
                assert!(inbox::insert(connection, &message(turn))?);
                inbox::finish(connection, turn, MessageStatus::Done)?;
                turn_steps::append(connection, turn, "note", "{}")?;
                messages::append(connection, "s", turn, [("user", "{}".to_owned())].into_iter())?;
                for slot in ["reply", "tool:1"] {
                    let (slot, text) = (slot.to_owned(), String::new());
                    let (channel, chat_id, body) = (text.clone(), text.clone(), text);
                    outbox::insert(connection, &NewOutbound { turn, slot, channel, chat_id, body })?;
                }
                let sent = outbox::id_of(turn, 0, "reply");
                outbox::claim(connection, sent, "again")?;
                outbox::mark_sent(connection, sent, None)?;
                let prune = |before: i64| -> Result<_, StoreError> {
                    Ok([
                        prune_turn_steps(connection, before)?,
                        prune_outbox(connection, before)?,
                        prune_sessions(connection, before)?,
                    ])
                };
                let left = (prune(now_ms() - 60_000)?, prune(now_ms() + 60_000)?);
                let again = message(Uuid::now_v7());
                assert!(!inbox::insert(connection, &again)?, "ids outlive what is pruned");
                let known = inbox::find_external(connection, &again.channel, &again.external_id)?.unwrap();
                assert_eq!((known.id, known.session.as_str()), (turn, "s"));
                let listed = messages::list(connection, 9)?.into_iter().map(|row| row.messages).collect::<Vec<_>>();
                assert_eq!(listed, [0], "what was deleted is not counted");
                Ok(left)
            })
            .await
            .unwrap();
        assert_eq!(left, ([0, 0, 0], [1, 1, 1]), "too young, then old enough; what is pending stays");
    }

    /// What detects a message that is sent again stays, and so does what has not ended.
    #[tokio::test]
    async fn ended_messages_of_unused_sessions_are_emptied() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &crate::store::Connection| -> Result<_, StoreError> {
            let note = r#"{"cause":{"kind":"note","note":"n","reply":"secret"}}"#;
            for (session, state) in [
                ("unused", MessageStatus::Done),
                ("unused", MessageStatus::Dead),
                ("unused", MessageStatus::Done),
                ("used", MessageStatus::Done),
                ("new", MessageStatus::Queued),
                ("no history", MessageStatus::Done),
            ] {
                let id = Uuid::now_v7();
                let (attachments, origin) = (r#"["a.pdf"]"#.to_owned(), note.to_owned());
                inbox::insert(
                    connection,
                    &NewInboxRow { attachments, origin, state, ..NewInboxRow::sample(id, session) },
                )?;
                if ["unused", "used"].contains(&session) {
                    messages::append(connection, session, id, [("user", "{}".to_owned())].into_iter())?;
                }
            }
            connection.execute("UPDATE sessions SET updated_at = 5 WHERE session = 'unused'", [])?;
            let found = sessions_with_content(connection, 9)?;
            assert_eq!(empty_inbox_rows(connection, &["used".to_owned()], 9)?, 0, "it was used meanwhile");
            let emptied = empty_inbox_rows(connection, &found, 9)?;
            let rows = inbox::newest(connection, 9)?;
            let full: Vec<_> = rows.iter().rev().map(|row| row.content == "hi" && row.origin == note).collect();
            assert!(rows.iter().all(|row| (row.attachments == "[]") == row.content.is_empty()));
            assert_eq!(inbox::requeue_done(connection, rows[5].turn)?, 0, "a message without its text is not repeated");
            assert!(!inbox::insert(connection, &NewInboxRow::sample(rows[5].id, "unused"))?);
            Ok((found, emptied, full, sessions_with_content(connection, 9)?.len()))
        };
        let (found, emptied, full, left) = store.write(Durability::Logged, work).await.unwrap();
        assert_eq!((found.join(", ").as_str(), emptied, left), ("no history, unused", 3, 0));
        assert_eq!(full, [false, true, false, true, true, false]);
    }

    #[tokio::test]
    async fn notes_and_skipped_positions_are_deleted_by_age() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &crate::store::Connection| -> Result<_, StoreError> {
            for (kind, key) in [("rate", "ann"), ("rate", "bob"), ("since", "INBOX")] {
                notes::set(connection, "email", kind, key, "1")?;
            }
            notes::set(connection, "other", "rate", "ann", "1")?;
            connection.execute("UPDATE notes SET updated_at = updated_at - 100000 WHERE key = 'ann'", [])?;
            let minute_ago = now_ms() - 60_000;
            let gone = [
                prune_notes(connection, "email", "rate", minute_ago)?,
                prune_notes(connection, "email", "since", minute_ago)?,
            ];
            let known = |channel, key| Ok::<_, StoreError>(notes::get(connection, channel, "rate", key)?.is_some());
            let left = [known("email", "ann")?, known("email", "bob")?, known("other", "ann")?];
            for position in ["1:1", "1:2", "1:3"] {
                cursors::skip(connection, "email", "INBOX", position, "a list's mail")?;
            }
            connection.execute("UPDATE skipped_messages SET at = at - 100000 WHERE position = '1:1'", [])?;
            let passed = cursors::skipped(connection, "email", 1)?;
            let skipped = prune_skipped(connection, minute_ago)?;
            let (count, last) = cursors::skipped(connection, "email", 9)?;
            assert_eq!((last.len(), last[0].reason.as_str()), (2, "a list's mail"));
            Ok((gone, left, passed.0, passed.1.len(), skipped, count))
        };
        let found = store.write(Durability::Logged, work).await.unwrap();
        assert_eq!(found, ([1, 0], [false, true, true], 3, 1, 1, 2));
    }

    #[tokio::test]
    async fn old_runs_of_deleted_jobs_are_deleted_in_batches() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &crate::store::Connection| {
            jobs::insert(connection, "here", "n", "{}", true, None)?;
            let run = |job: &str, due: i64, outcome: JobRunOutcome| -> Result<(), StoreError> {
                job_runs::insert(connection, &NewJobRun { job, name: "n", due, turn: None, outcome, reason: None })?;
                let at = if job == "late" { 10_000 } else { due };
                connection.execute("UPDATE job_runs SET at = ?3 WHERE job = ?1 AND due = ?2", params![job, due, at])?;
                Ok(())
            };
            for due in 0..i64::from(BATCH) + 7 {
                run("gone", due, JobRunOutcome::Ok)?;
            }
            for (job, due, outcome) in [
                ("another", 5, JobRunOutcome::Ok),
                ("here", 5, JobRunOutcome::Ok),
                ("running", 5, JobRunOutcome::Started),
                ("young", 10_000, JobRunOutcome::Ok),
                ("late", 5, JobRunOutcome::Ok),
            ] {
                run(job, due, outcome)?;
            }
            let gone = gone_jobs(connection, 9_000)?;
            let mut batches = Vec::new();
            for _ in 0..3 {
                batches.push(prune_job_runs(connection, &gone, 9_000)?);
            }
            let back = prune_job_runs(connection, &["here".to_owned(), "late".to_owned()], 9_000)?;
            Ok((gone, batches, back, gone_jobs(connection, 9_000)?))
        };
        let (gone, batches, back, left) = store.write(Durability::Logged, work).await.unwrap();
        let batch = usize::try_from(BATCH).unwrap();
        assert_eq!((gone.join(" ").as_str(), batches, back), ("another gone", vec![batch, 8, 0], 0));
        assert!(left.is_empty(), "{left:?}");
    }

    #[tokio::test]
    async fn the_rest_of_a_turn_between_two_batches_is_a_valid_chain() {
        let (_folder, store) = Store::temporary();
        let steps = store
            .write(Durability::Logged, |connection| {
                let turn = Uuid::now_v7();
                for number in 0..BATCH + 7 {
                    turn_steps::append(connection, turn, "note", &format!("{number}"))?;
                }
                prune_turn_steps(connection, now_ms() + 60_000)?;
                turn_steps::of_turn(connection, turn)
            })
            .await
            .unwrap();
        assert!(steps.len() == 7 && turn_steps::chain_holds(&steps));
    }
}
