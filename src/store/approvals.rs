//! Calls that wait for the owner's approval, the tools that the owner approved for a conversation, and the taint of a conversation:
//! the names of the foreign content (content from anyone but the owner) that it has read.

use std::collections::BTreeSet;

use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use super::sql::{execute, find_row, find_rows, read_uuid, select, select_one, select_value, stored_row};
use super::{StoreError, messages, now_ms};

/// The maximum number of sources that are stored for one conversation.
const MAX_SOURCES: usize = 50;
/// The number of characters in the code that people type.
const CODE_LENGTH: usize = 10;

/// The state of an approval request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ApprovalState {
    Pending,
    Approved,
    Denied,
    /// Nobody answered in time.
    Expired,
    /// The turn ended before an answer.
    Cancelled,
}

impl ApprovalState {
    /// Returns the word in the store.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A request to approve a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewApproval {
    pub turn: Uuid,
    pub call_id: String,
    pub session: String,
    pub tool: String,
    /// The exact arguments, as the model wrote them.
    pub arguments: String,
    /// The names of the sources that the turn has read.
    pub taint: BTreeSet<String>,
    /// UTC milliseconds, like all times here.
    pub expires_at: i64,
}

/// A stored approval request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalRow {
    pub id: Uuid,
    pub code: String,
    pub turn: Uuid,
    pub session: String,
    pub epoch: i64,
    pub tool: String,
    pub arguments: String,
    pub taint: BTreeSet<String>,
    pub state: ApprovalState,
    pub reason: String,
    pub created_at: i64,
    pub expires_at: i64,
}

stored_row! {
    ApprovalRow: id by read_uuid, code, turn by read_uuid, session, epoch, tool, arguments, taint by read_taint,
        state by read_state, reason, created_at, expires_at
}

/// Returns the id of a call's approval request. The same call always gives the same id.
pub fn id_of(turn: Uuid, call_id: &str) -> Uuid {
    Uuid::new_v5(&turn, format!("approval:{call_id}").as_bytes())
}

/// Returns the code that people type to answer a request.
pub fn code_of(id: Uuid) -> String {
    id.simple().to_string().chars().take(CODE_LENGTH).collect()
}

/// Inserts a pending approval; returns whether it is new.
pub fn insert(connection: &Connection, new: &NewApproval) -> Result<bool, StoreError> {
    let NewApproval { turn, call_id, session, tool, arguments, taint, expires_at } = new;
    let id = id_of(*turn, call_id);
    let epoch = messages::session(connection, session)?.epoch;
    let sql = "INSERT OR IGNORE INTO approvals
                   (id, code, turn, call_id, session, epoch, tool, arguments, taint, state, created_at, expires_at)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending', ?, ?)";
    let (code, id, turn) = (code_of(id), id.to_string(), turn.to_string());
    let (taint, now) = (serde_json::to_string(taint)?, now_ms());
    let values = params![id, code, turn, call_id, session, epoch, tool, arguments, taint, now, expires_at];
    Ok(execute(connection, sql, values)? == 1)
}

pub fn find(connection: &Connection, id: Uuid) -> Result<Option<ApprovalRow>, StoreError> {
    find_row(connection, "approvals WHERE id = ?", [id.to_string()])
}

/// Finds a request by the code that people type.
pub fn find_code(connection: &Connection, code: &str) -> Result<Option<ApprovalRow>, StoreError> {
    find_row(connection, "approvals WHERE code = ?", [code.trim().to_ascii_lowercase()])
}

/// Returns the pending requests, the oldest first.
pub fn pending(connection: &Connection, limit: u32) -> Result<Vec<ApprovalRow>, StoreError> {
    find_rows(connection, "approvals WHERE state = 'pending' ORDER BY created_at, id LIMIT ?", [limit])
}

/// Counts the requests by state.
pub fn count_by_state(connection: &Connection) -> Result<Vec<(String, u64)>, StoreError> {
    let sql = "SELECT state, count(*) FROM approvals GROUP BY state ORDER BY state";
    select(connection, sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Numbers of pending requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingCounts {
    pub all: usize,
    /// Of turns that untrusted senders started.
    pub of_untrusted: usize,
    /// Of these, of one channel, or of one sender there.
    pub of_untrusted_sender: usize,
}

/// Counts the pending requests; `sender` is `None` for all untrusted senders of the channel.
pub fn count_pending_by(
    connection: &Connection,
    channel: &str,
    sender: Option<&str>,
) -> Result<PendingCounts, StoreError> {
    let sql = "SELECT count(*),
                   count(CASE WHEN EXISTS (SELECT 1 FROM inbox i WHERE i.turn = a.turn AND i.trust = 'untrusted') THEN 1 END),
                   count(CASE WHEN EXISTS (SELECT 1 FROM inbox i WHERE i.turn = a.turn AND i.trust = 'untrusted'
                       AND i.channel = ?1 AND i.sender = ifnull(?2, i.sender)) THEN 1 END)
               FROM approvals a WHERE a.state = 'pending'";
    select_one(connection, sql, params![channel, sender], |row| {
        Ok(PendingCounts { all: row.get(0)?, of_untrusted: row.get(1)?, of_untrusted_sender: row.get(2)? })
    })
}

/// Returns the number of pending requests.
pub fn count_pending(connection: &Connection) -> Result<usize, StoreError> {
    select_value(connection, "SELECT count(*) FROM approvals WHERE state = 'pending'", [])
}

/// Answers a pending request; returns false if it was answered before.
pub fn answer(connection: &Connection, id: Uuid, state: ApprovalState, reason: &str) -> Result<bool, StoreError> {
    let sql = "UPDATE approvals SET state = ?, reason = ?, ended_at = ? WHERE id = ? AND state = 'pending'";
    Ok(execute(connection, sql, params![state.as_str(), reason, now_ms(), id.to_string()])? == 1)
}

/// Marks pending requests that expired by `now`; returns the turns and sessions that continue.
pub fn expire(connection: &Connection, now: i64) -> Result<Vec<(Uuid, String)>, StoreError> {
    let rows: Vec<ApprovalRow> = find_rows(connection, "approvals WHERE state = 'pending' AND expires_at <= ?", [now])?;
    for row in &rows {
        answer(connection, row.id, ApprovalState::Expired, "")?;
    }
    Ok(rows.into_iter().map(|row| (row.turn, row.session)).collect())
}

/// Cancels the pending requests of a turn that has ended.
pub fn cancel_of_turn(connection: &Connection, turn: Uuid) -> Result<(), StoreError> {
    let sql = "UPDATE approvals SET state = 'cancelled', ended_at = ? WHERE turn = ? AND state = 'pending'";
    execute(connection, sql, params![now_ms(), turn.to_string()]).map(drop)
}

/// Approves a tool for the rest of the conversation that requested it.
pub fn grant(connection: &Connection, row: &ApprovalRow) -> Result<(), StoreError> {
    let sql = "UPDATE approvals SET for_session = 1 WHERE id = ?";
    execute(connection, sql, [row.id.to_string()]).map(drop)
}

/// Returns true if the owner approved this tool for the current conversation of a session; for an untrusted sender only if the approved
/// call was one of `of_sender` (channel and sender). The request of a plan names several tools.
pub fn is_granted(
    connection: &Connection,
    session: &str,
    tool: &str,
    of_sender: Option<(&str, &str)>,
) -> Result<bool, StoreError> {
    let epoch = messages::session(connection, session)?.epoch;
    let sql =
        "SELECT EXISTS (SELECT 1 FROM approvals a WHERE session = ?1 AND epoch = ?2 AND for_session AND state = 'approved'
                   AND instr(', ' || tool || ', ', ', ' || ?3 || ', ')
                   AND (?4 IS NULL OR EXISTS (SELECT 1 FROM inbox i WHERE i.turn = a.turn AND i.channel = ?4 AND i.sender = ?5
                                              AND i.trust = 'untrusted')))";
    let (channel, sender) = of_sender.unzip();
    select_value(connection, sql, params![session, epoch, tool, channel, sender])
}

/// Returns the sources of the current conversation of a session that are not the owner's.
pub fn taint_of_session(connection: &Connection, session: &str) -> Result<BTreeSet<String>, StoreError> {
    taint_of_epoch(connection, session, messages::session(connection, session)?.epoch)
}

/// Returns the sources of one conversation of a session that are not the owner's.
pub fn taint_of_epoch(connection: &Connection, session: &str, epoch: i64) -> Result<BTreeSet<String>, StoreError> {
    let sql = "SELECT source FROM session_taints WHERE session = ? AND epoch = ?";
    select(connection, sql, params![session, epoch], |row| row.get(0))
}

/// Returns the sources of the conversation of a message that are not the owner's; those of all conversations of the session if the
/// message is not known, or no longer.
pub fn taint_of_message(
    connection: &Connection,
    session: &str,
    seq: Option<i64>,
) -> Result<BTreeSet<String>, StoreError> {
    let sql = "SELECT source FROM session_taints WHERE session = ?1
               AND epoch = ifnull((SELECT epoch FROM messages WHERE session = ?1 AND seq = ?2), epoch)";
    select(connection, sql, params![session, seq], |row| row.get(0))
}

/// Adds sources to a conversation of a session. Beyond [`MAX_SOURCES`], further sources are ignored: the conversation
/// stays tainted.
pub fn add_taint(
    connection: &Connection,
    session: &str,
    epoch: i64,
    sources: &BTreeSet<String>,
) -> Result<(), StoreError> {
    if sources.is_empty() {
        return Ok(());
    }
    let known = taint_of_epoch(connection, session, epoch)?;
    let room = MAX_SOURCES.saturating_sub(known.len());
    for source in sources.difference(&known).take(room) {
        let sql = "INSERT OR IGNORE INTO session_taints (session, epoch, source) VALUES (?, ?, ?)";
        execute(connection, sql, params![session, epoch, source])?;
    }
    Ok(())
}

fn read_taint(row: &Row<'_>, at: usize) -> Result<BTreeSet<String>, StoreError> {
    Ok(serde_json::from_str(&row.get::<_, String>(at)?)?)
}

/// Reads a state. This program writes no other word; an unknown one approves nothing.
fn read_state(row: &Row<'_>, at: usize) -> Result<ApprovalState, StoreError> {
    Ok(row.get::<_, String>(at)?.parse().unwrap_or(ApprovalState::Cancelled))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Durability, Store, retention};

    fn new(call: &str, expires_at: i64) -> NewApproval {
        NewApproval {
            turn: Uuid::from_u128(7),
            call_id: call.to_owned(),
            session: "cli:direct".to_owned(),
            tool: "exec".to_owned(),
            arguments: r#"{"command":"ls"}"#.to_owned(),
            taint: BTreeSet::from(["web:https://example.org/".to_owned()]),
            expires_at,
        }
    }

    #[tokio::test]
    async fn an_approval_is_answered_once() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| {
            let later = now_ms() + 60_000;
            assert!(insert(connection, &new("a", later))? && !insert(connection, &new("a", later))?);
            insert(connection, &new("b", now_ms() - 1))?;
            insert(connection, &new("c", later))?;
            assert_eq!(count_pending(connection)?, 3);
            let [a, b, c] = ["a", "b", "c"].map(|call| id_of(Uuid::from_u128(7), call));
            assert_eq!(expire(connection, now_ms())?, [(Uuid::from_u128(7), "cli:direct".to_owned())]);
            assert!(answer(connection, a, ApprovalState::Approved, "")?);
            assert!(!answer(connection, a, ApprovalState::Denied, "late")?);
            assert!(!answer(connection, b, ApprovalState::Approved, "")?, "it has expired");
            cancel_of_turn(connection, Uuid::from_u128(7))?;
            let states = [a, b, c].map(|id| find(connection, id).unwrap().unwrap().state);
            assert_eq!(states, [ApprovalState::Approved, ApprovalState::Expired, ApprovalState::Cancelled]);
            let found = find_code(connection, &code_of(a).to_uppercase())?.unwrap();
            assert_eq!((found.id, &found.taint), (a, &new("a", 0).taint));
            assert!(find_code(connection, "nothing")?.is_none());
            grant(connection, &found)?;
            insert(connection, &new("d", later))?;
            assert_eq!(retention::prune_approvals(connection, now_ms() - 1_000)?, 0, "they are young");
            // The query returns neither the pending request nor the approval for the rest of the conversation.
            assert_eq!(retention::prune_approvals(connection, now_ms() + 1_000)?, 2);
            assert_eq!([a, b, c].map(|id| find(connection, id).unwrap().is_some()), [true, false, false]);
            assert_eq!(count_pending(connection)?, 1);
            Ok(())
        };
        store.write(Durability::Logged, work).await.unwrap();
    }

    #[tokio::test]
    async fn grants_and_sources_end_with_the_conversation() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| {
            insert(connection, &new("a", 1))?;
            let row = find(connection, id_of(Uuid::from_u128(7), "a"))?.unwrap();
            answer(connection, row.id, ApprovalState::Approved, "")?;
            grant(connection, &row)?;
            add_taint(connection, "cli:direct", 0, &row.taint)?;
            assert!(
                is_granted(connection, "cli:direct", "exec", None)?
                    && !is_granted(connection, "cli:direct", "cron", None)?
            );
            insert(connection, &NewApproval { tool: "web_fetch, message".to_owned(), ..new("plan", 1) })?;
            let plan = find(connection, id_of(Uuid::from_u128(7), "plan"))?.unwrap();
            answer(connection, plan.id, ApprovalState::Approved, "")?;
            grant(connection, &plan)?;
            let granted =
                ["web_fetch", "message", "fetch", "exec"].map(|tool| is_granted(connection, "cli:direct", tool, None));
            assert_eq!(granted.map(Result::unwrap), [true, true, false, true], "each tool of a plan");
            assert_eq!(taint_of_session(connection, "cli:direct")?, row.taint);
            let many = (0..60).map(|number| format!("web:{number:02}")).collect();
            add_taint(connection, "cli:direct", 0, &many)?;
            assert_eq!(taint_of_session(connection, "cli:direct")?.len(), MAX_SOURCES);
            messages::new_epoch(connection, "cli:direct")?;
            assert!(!is_granted(connection, "cli:direct", "exec", None)?);
            assert!(taint_of_session(connection, "cli:direct")?.is_empty());
            Ok(())
        };
        store.write(Durability::Logged, work).await.unwrap();
    }
}
