//! Removes text from the log for good. The turns stay, without their text, so that the order of messages and the pairs of calls and
//! results stay valid.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};
use serde_json::{Value, json};

use super::inbox::OPEN;
use super::sql::{execute, select, select_optional, select_value};
use super::{StoreError, log_purge, messages, meta};

/// The replacement for a removed text.
pub const FORGOTTEN: &str = "[forgotten]";

/// Counts a forgotten memory: text that was derived from an earlier state must not be stored any more.
pub fn record(connection: &Connection) -> Result<(), StoreError> {
    log_purge::request();
    meta::set(connection, meta::FORGET_COUNT, &(count(connection)? + 1).to_string())
}

/// Returns the turns whose output files must be removed.
pub fn marked_outputs(connection: &Connection) -> Result<Vec<String>, StoreError> {
    select(connection, "SELECT turn FROM forgotten_outputs", [], |row| row.get(0))
}

/// Marks the output files of a turn for removal.
pub fn mark_output(connection: &Connection, turn: &str) -> Result<(), StoreError> {
    let sql = "INSERT OR IGNORE INTO forgotten_outputs (turn) VALUES (?)";
    execute(connection, sql, [turn]).map(drop)
}

/// Records that the output files of these turns are removed.
pub fn outputs_removed(connection: &Connection, removed: &[String]) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached("DELETE FROM forgotten_outputs WHERE turn = ?")?;
    removed.iter().try_for_each(|turn| statement.execute([turn]).map(drop))?;
    Ok(())
}

/// Returns the count of forgotten memories.
pub fn count(connection: &Connection) -> Result<i64, StoreError> {
    Ok(meta::get(connection, meta::FORGET_COUNT)?.and_then(|count| count.parse().ok()).unwrap_or(0))
}

/// Removes the text of a finished turn from the session's log, the inbox and the delivered messages, and deletes the turn's steps.
/// Returns false for a turn that is still running: it is left alone, because it needs its earlier steps.
pub fn forget_turn(connection: &Connection, session: &str, turn: &str) -> Result<bool, StoreError> {
    if !is_finished(connection, turn)? {
        return Ok(false);
    }
    for (seq, body) in messages_of_turn(connection, session, turn)? {
        replace_body(connection, session, seq, &without_words(&body))?;
    }
    forget_steps(connection, turn)?;
    replace_inbox_text(connection, turn, FORGOTTEN)?;
    forget_delivered(connection, turn)?;
    Ok(true)
}

/// A message of a log that may quote memories which a turn has read.
pub struct ExposedMessage {
    pub session: String,
    pub turn: String,
    pub seq: i64,
    /// JSON.
    pub body: String,
}

/// Calls `visit` with messages that may quote a memory, in order: the messages written since `since` (UTC milliseconds) in the
/// conversations of `owner`, in shared ones and in those without an owner; and the user messages of `turns`, including their copies.
/// If `owner` is `everyone`, all conversations count, since all may quote shared memories.
pub fn visit_exposed(
    connection: &Connection,
    (owner, since): (&str, i64),
    turns: &[&str],
    mut visit: impl FnMut(ExposedMessage),
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT m.session, m.turn, m.seq, m.body FROM sessions s CROSS JOIN messages m ON m.session = s.session
         WHERE (s.owner = ?1 OR s.owner IS NULL OR s.is_shared OR ?1 = 'everyone')
             AND (m.at >= ?2 OR (m.role = 'user' AND m.turn IN (SELECT value FROM json_each(?3))))
         ORDER BY m.session, m.seq",
    )?;
    let turns = serde_json::to_string(turns)?;
    let rows = statement.query_map(params![owner, since, turns], |row| {
        Ok(ExposedMessage { session: row.get(0)?, turn: row.get(1)?, seq: row.get(2)?, body: row.get(3)? })
    })?;
    for row in rows {
        visit(row?);
    }
    Ok(())
}

/// Calls `visit` with the turn and the text of each reply to a slash command since `since` (UTC milliseconds), in the same
/// conversations as [`running_turns`]. Such replies are in the outbox alone.
pub fn visit_command_replies(
    connection: &Connection,
    (owner, since): (&str, i64),
    mut visit: impl FnMut(String, String),
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT inbox.turn, ifnull(json_extract(outbox.body, '$.content'), '')
         FROM inbox CROSS JOIN outbox ON outbox.turn = inbox.turn AND json_valid(outbox.body)
         WHERE inbox.received_at >= ?2 AND substr(ltrim(inbox.content, ' ' || char(9, 10, 13)), 1, 1) = '/' AND {OF_OWNER}"
    ))?;
    let mut rows = statement.query(params![owner, since])?;
    while let Some(row) = rows.next()? {
        visit(row.get(0)?, row.get(1)?);
    }
    Ok(())
}

/// Returns the turns that were started and have not ended, in the conversations of `owner`, in shared ones and in those without
/// an owner.
pub fn running_turns(connection: &Connection, owner: &str) -> Result<BTreeSet<String>, StoreError> {
    let sql = format!(
        "SELECT DISTINCT turn FROM inbox INDEXED BY inbox_open
         WHERE {OPEN} AND state IN ('running', 'waiting') AND {OF_OWNER}"
    );
    select(connection, &sql, [owner], |row| row.get(0))
}

/// Returns the texts of a parked turn, which continues from them: its steps, as JSON, and its messages. `None` for a turn that runs,
/// whose process may know more than its steps.
pub fn texts_of_parked_turn(connection: &Connection, turn: &str) -> Result<Option<Vec<String>>, StoreError> {
    let mut running = connection.prepare_cached("SELECT 1 FROM inbox WHERE turn = ? AND state = 'running' LIMIT 1")?;
    if running.exists([turn])? {
        return Ok(None);
    }
    let sql = "SELECT body FROM turn_steps WHERE turn = ?1 UNION ALL SELECT content FROM inbox WHERE turn = ?1";
    select(connection, sql, [turn], |row| row.get(0)).map(Some)
}

/// Calls `visit` with the turn and body of each step of turns that are dead or queued again, in the same conversations as
/// [`running_turns`]. A retry continues from these steps.
pub fn visit_resting_steps(
    connection: &Connection,
    owner: &str,
    mut visit: impl FnMut(String, String),
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT turn, body FROM turn_steps WHERE turn IN (
             SELECT turn FROM inbox INDEXED BY inbox_open WHERE {OPEN} AND state = 'queued' AND {OF_OWNER}
             UNION SELECT turn FROM inbox INDEXED BY inbox_dead WHERE state = 'dead' AND {OF_OWNER})"
    ))?;
    let mut rows = statement.query([owner])?;
    while let Some(row) = rows.next()? {
        visit(row.get(0)?, row.get(1)?);
    }
    Ok(())
}

/// Read-only tools, by their names in a step. A turn that called no other tools may call these again.
const READ_ONLY_TOOLS: &str = "'recall', 'search_history', 'read_file', 'list_dir'";

/// Makes a turn that will be retried start over. If the turn called other tools, or its chain was broken before, it ends with an
/// error instead, because it would repeat the effects of its calls.
pub fn restart_turn(connection: &Connection, turn: &str) -> Result<(), StoreError> {
    let has_acted = format!(
        "SELECT EXISTS (SELECT 1 FROM turn_steps WHERE turn = ? AND (kind = 'tool_started' OR hash = ''
             OR (kind = 'tool_result' AND (NOT json_valid(body) OR ifnull(json_extract(body, '$.name'), '') NOT IN ({READ_ONLY_TOOLS})))))"
    );
    let has_acted: bool = select_value(connection, &has_acted, [turn])?;
    execute(connection, "DELETE FROM turn_steps WHERE turn = ?", [turn])?;
    if has_acted {
        super::turn_steps::append_break(connection, turn, "what this turn had read and done was forgotten")?;
    }
    mark_output(connection, turn)
}

/// A condition on `inbox`: rows that may quote a memory of the owner `?1`. All conversations may quote the memories of `everyone`.
const OF_OWNER: &str = "(?1 = 'everyone' OR NOT EXISTS (SELECT 1 FROM sessions
    WHERE sessions.session = inbox.session AND owner IS NOT NULL AND owner <> ?1 AND NOT is_shared))";

/// Returns the messages of a turn in a session's log: seq and body.
pub fn messages_of_turn(connection: &Connection, session: &str, turn: &str) -> Result<Vec<(i64, String)>, StoreError> {
    let sql = "SELECT seq, body FROM messages WHERE session = ? AND turn = ? ORDER BY seq";
    select(connection, sql, [session, turn], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Replaces the body of a message.
pub fn replace_body(connection: &Connection, session: &str, seq: i64, body: &str) -> Result<(), StoreError> {
    let sql = "SELECT role FROM messages WHERE session = ? AND seq = ?";
    let role: Option<String> = select_optional(connection, sql, params![session, seq], |row| row.get(0))?;
    let digest = role.map(|role| messages::digest(&role, body));
    let sql = "UPDATE messages SET body = ?3, digest = ?4 WHERE session = ?1 AND seq = ?2";
    execute(connection, sql, params![session, seq, body, digest])?;
    messages::count_edit(connection, session)
}

/// Deletes the steps of a turn that has ended, and marks its output files for removal. A turn that is still running needs its steps.
pub fn forget_steps(connection: &Connection, turn: &str) -> Result<(), StoreError> {
    if !is_finished(connection, turn)? {
        return Ok(());
    }
    let steps = execute(connection, "DELETE FROM turn_steps WHERE turn = ?", [turn])?;
    log_purge::request();
    // A turn without tool calls has only two steps, its context and its answer, and no output files.
    if steps > 2 { mark_output(connection, turn) } else { Ok(()) }
}

/// Removes the text from everything that a turn delivered or left in other tables: background commands, the tasks of sub-agents,
/// the result of its job, decided approvals. Pending deliveries lose the text when they end. A turn that runs again still needs its
/// approvals.
pub fn forget_delivered(connection: &Connection, turn: &str) -> Result<(), StoreError> {
    for sql in [
        "UPDATE outbox SET body = iif(state IN ('sent', 'dead', 'unknown'),
                json_remove(json_set(body, '$.content', ?2), '$.context.subject'), json_set(body, '$.forget', json('true')))
         WHERE turn = ?1 AND json_valid(body)",
        "UPDATE spawns SET label = ?2, result = iif(result IS NULL, NULL, ?2) WHERE turn = ?1 OR id = ?1",
        "UPDATE processes SET label = NULL, command = ?2 WHERE turn = ?1 AND ended_at IS NOT NULL",
        "UPDATE jobs SET result = ?2
         WHERE result IS NOT NULL AND id IN (SELECT job FROM job_runs WHERE turn = ?1)",
        "UPDATE approvals SET arguments = ?2, reason = iif(reason = '', '', ?2) WHERE turn = ?1 AND state <> 'pending'
             AND NOT EXISTS (SELECT 1 FROM inbox WHERE turn = ?1 AND state IN ('queued', 'running', 'waiting'))",
    ] {
        execute(connection, sql, [turn, FORGOTTEN])?;
    }
    log_purge::request();
    Ok(())
}

/// Replaces the text of the inbox rows of a turn, and removes the texts that came with it: facts such as the subject of a mail, and
/// the earlier conversation and the instructions that the sender's program sent.
pub fn replace_inbox_text(connection: &Connection, turn: &str, content: &str) -> Result<(), StoreError> {
    let sql = "UPDATE inbox SET content = ?2, origin = iif(json_valid(origin), json_remove(origin, '$.settings.about',
                   '$.settings.history', '$.settings.sender_prompt', '$.reply.subject'), origin)
               WHERE turn = ?1";
    execute(connection, sql, [turn, content]).map(drop)
}

/// Removes every snapshot, since each contains the memories of `everyone`.
pub fn drop_all_snapshots(connection: &Connection) -> Result<(), StoreError> {
    let sql = "UPDATE session_memory SET snapshot = NULL WHERE snapshot IS NOT NULL";
    execute(connection, sql, [])?;
    execute(connection, "DELETE FROM snapshots", []).map(drop)
}

/// Detaches a removed summary from all sessions.
pub fn detach_summary(connection: &Connection, id: i64) -> Result<(), StoreError> {
    let sql = "UPDATE session_memory SET summary = NULL WHERE summary = ?";
    execute(connection, sql, [id]).map(drop)
}

/// Returns the memories of kind `task` that were derived from a turn.
pub fn task_memories(connection: &Connection, session: &str, turn: &str) -> Result<Vec<i64>, StoreError> {
    let sql = "SELECT id FROM memories WHERE session = ? AND turn = ? AND kind = 'task'";
    select(connection, sql, [session, turn], |row| row.get(0))
}

fn is_finished(connection: &Connection, turn: &str) -> Result<bool, StoreError> {
    let mut open = connection
        .prepare_cached("SELECT 1 FROM inbox WHERE turn = ? AND state IN ('queued', 'running', 'waiting') LIMIT 1")?;
    Ok(!open.exists([turn])?)
}

/// Returns a message's JSON without its text.
pub fn without_words(body: &str) -> String {
    let mut message: Value = serde_json::from_str(body).unwrap_or_default();
    let Some(fields) = message.as_object_mut() else {
        return json!({"role": "user", "content": FORGOTTEN}).to_string();
    };
    let is_silent = fields.get("content").and_then(Value::as_str).is_some_and(str::is_empty);
    if !is_silent {
        fields.insert("content".to_owned(), json!(FORGOTTEN));
    }
    fields.remove("images");
    for call in fields.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        call["arguments"] = json!("{}");
    }
    // Some services require that reasoning is sent back; sealed blocks cannot be changed, only removed.
    if let Some(thoughts) = fields.get_mut("reasoning").and_then(Value::as_object_mut) {
        thoughts.insert("text".to_owned(), json!(FORGOTTEN));
        thoughts.remove("blocks");
    }
    message.to_string()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::store::approvals::{self, NewApproval};
    use crate::store::inbox::{self, MessageStatus, NewInboxRow};
    use crate::store::{Durability, Store};

    #[test]
    fn words_are_removed_from_messages() {
        for (body, expected) in [
            (
                r#"{"role":"user","content":"my pin","images":[{"path":"a"}]}"#,
                r#"{"role":"user","content":"[forgotten]"}"#,
            ),
            (
                r#"{"role":"assistant","content":"","reasoning":{"field":"r","text":"pin","blocks":[1]},"tool_calls":[{"id":"1","name":"x","arguments":"{\"a\":\"pin\"}"}]}"#,
                r#"{"role":"assistant","content":"","reasoning":{"field":"r","text":"[forgotten]"},"tool_calls":[{"id":"1","name":"x","arguments":"{}"}]}"#,
            ),
            (
                r#"{"role":"tool","call_id":"1","name":"x","content":"pin"}"#,
                r#"{"role":"tool","call_id":"1","name":"x","content":"[forgotten]"}"#,
            ),
            ("pin", r#"{"role":"user","content":"[forgotten]"}"#),
        ] {
            let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            assert_eq!(read(&without_words(body)), read(expected), "{body}");
        }
    }

    #[tokio::test]
    async fn the_texts_that_came_with_a_message_are_removed_too() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| {
            let turn = Uuid::now_v7();
            let origin =
                r#"{"follow_ups":1,"settings":{"about":["Subject: my pin"],"history":"my pin","agent":"coder"}}"#;
            let row =
                NewInboxRow { origin: origin.to_owned(), state: MessageStatus::Done, ..NewInboxRow::sample(turn, "s") };
            inbox::insert(connection, &row)?;
            let arguments = r#"{"command":"echo my pin"}"#.to_owned();
            let (session, tool, taint) = ("s".to_owned(), "exec".to_owned(), BTreeSet::new());
            let call = NewApproval { turn, call_id: "a".to_owned(), session, tool, arguments, taint, expires_at: 0 };
            approvals::insert(connection, &call)?;
            approvals::expire(connection, 1)?;
            assert!(forget_turn(connection, "s", &turn.to_string())?);
            let row = inbox::of_turn(connection, turn)?.remove(0);
            let approval = approvals::find(connection, approvals::id_of(turn, "a"))?;
            Ok((row.content, row.origin, approval.map(|row| row.arguments)))
        };
        let (content, origin, arguments) = store.write(Durability::Logged, work).await.unwrap();
        assert_eq!((content.as_str(), arguments.as_deref()), (FORGOTTEN, Some(FORGOTTEN)));
        assert_eq!(origin, r#"{"follow_ups":1,"settings":{"agent":"coder"}}"#);
    }
}
