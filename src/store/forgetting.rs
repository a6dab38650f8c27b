//! Takes words out of the log for good. What was said there stays as a turn, so that the order and the pairs of calls and
//! results hold; its words are gone.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::{Value, json};

use super::inbox::OPEN;
use super::{StoreError, messages, meta};

/// What stands in the place of words that are gone.
pub const FORGOTTEN: &str = "[forgotten]";

/// Notes that something was forgotten: who has read it before keeps nothing of it.
pub fn note(connection: &Connection) -> Result<(), StoreError> {
    meta::set(connection, meta::FORGETS, &(count(connection)? + 1).to_string())
}

/// Turns whose long outputs, which lie in files, are to be removed.
pub fn outputs(connection: &Connection) -> Result<Vec<String>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT turn FROM forgotten_outputs")?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Has the outputs of a turn removed.
pub fn note_output(connection: &Connection, turn: &str) -> Result<(), StoreError> {
    connection.prepare_cached("INSERT OR IGNORE INTO forgotten_outputs (turn) VALUES (?)")?.execute([turn])?;
    Ok(())
}

/// The outputs of these turns are removed.
pub fn outputs_removed(connection: &Connection, removed: &[String]) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached("DELETE FROM forgotten_outputs WHERE turn = ?")?;
    removed.iter().try_for_each(|turn| statement.execute([turn]).map(drop))?;
    Ok(())
}

/// How often something was forgotten.
pub fn count(connection: &Connection) -> Result<i64, StoreError> {
    Ok(meta::get(connection, meta::FORGETS)?.and_then(|count| count.parse().ok()).unwrap_or(0))
}

/// Takes the words of a finished turn out of the session's log and the inbox, and out of what was delivered, and deletes its
/// steps; answers whether it was done. A turn that still runs is left alone: it needs what it has written.
pub fn forget_turn(connection: &Connection, session: &str, turn: &str) -> Result<bool, StoreError> {
    if !is_finished(connection, turn)? {
        return Ok(false);
    }
    for (seq, body) in of_turn(connection, session, turn)? {
        rewrite(connection, session, seq, &wordless(&body))?;
    }
    forget_steps(connection, turn)?;
    connection.prepare_cached("UPDATE inbox SET content = ?2 WHERE turn = ?1")?.execute([turn, FORGOTTEN])?;
    forget_delivered(connection, turn)?;
    Ok(true)
}

/// A message of a log that may hold what a turn was given of memories.
pub struct Carrier {
    pub session: String,
    pub turn: String,
    pub seq: i64,
    /// JSON.
    pub body: String,
}

/// Has `look` look, in their order, at the messages written since `since`, in UTC milliseconds, in the conversations of `owner`, those that
/// others share, and those that are nobody's, and at those of `turns`, wherever they are copied to. What everyone knows may
/// stand in all of them.
pub fn carriers(
    connection: &Connection,
    (owner, since): (&str, i64),
    turns: &[&str],
    mut look: impl FnMut(Carrier),
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT m.session, m.turn, m.seq, m.body FROM sessions s CROSS JOIN messages m ON m.session = s.session
         WHERE (s.owner = ?1 OR s.owner IS NULL OR s.is_shared OR ?1 = 'everyone')
             AND (m.at >= ?2 OR (m.role = 'user' AND m.turn IN (SELECT value FROM json_each(?3))))
         ORDER BY m.session, m.seq",
    )?;
    let turns = serde_json::to_string(turns)?;
    let rows = statement.query_map(params![owner, since, turns], |row| {
        Ok(Carrier { session: row.get(0)?, turn: row.get(1)?, seq: row.get(2)?, body: row.get(3)? })
    })?;
    for row in rows {
        look(row?);
    }
    Ok(())
}

/// Turns that were begun and have not ended, in conversations of `owner`, those that others share, and those that are nobody's.
pub fn running(connection: &Connection, owner: &str) -> Result<BTreeSet<String>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT DISTINCT turn FROM inbox INDEXED BY inbox_open
         WHERE {OPEN} AND state IN ('running', 'waiting') AND {OF_OWNER}"
    ))?;
    let rows = statement.query_map([owner], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Has `look` look at the steps of turns that were given up or are queued again, in the same conversations: they go on from there
/// when they are tried once more.
pub fn resting_steps(
    connection: &Connection,
    owner: &str,
    mut look: impl FnMut(String, String),
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT turn, body FROM turn_steps WHERE turn IN (
             SELECT turn FROM inbox INDEXED BY inbox_open WHERE {OPEN} AND state = 'queued' AND {OF_OWNER}
             UNION SELECT turn FROM inbox INDEXED BY inbox_dead WHERE state = 'dead' AND {OF_OWNER})"
    ))?;
    let mut rows = statement.query([owner])?;
    while let Some(row) = rows.next()? {
        look(row.get(0)?, row.get(1)?);
    }
    Ok(())
}

/// Tools that only look, by their names in a step: a turn that called no others may call them again.
const LOOKS: &str = "'recall', 'search_history', 'read_file', 'list_dir'";

/// Has a turn that is tried once more begin anew. One that has done more than look, or was broken for that before, ends with an
/// error instead, or it would do that again.
pub fn begin_anew(connection: &Connection, turn: &str) -> Result<(), StoreError> {
    let has_acted = format!(
        "SELECT EXISTS (SELECT 1 FROM turn_steps WHERE turn = ? AND (kind = 'tool_started' OR hash = ''
             OR (kind = 'tool_result' AND (NOT json_valid(body) OR ifnull(json_extract(body, '$.name'), '') NOT IN ({LOOKS})))))"
    );
    let has_acted: bool = connection.prepare_cached(&has_acted)?.query_row([turn], |row| row.get(0))?;
    connection.prepare_cached("DELETE FROM turn_steps WHERE turn = ?")?.execute([turn])?;
    if has_acted {
        super::turn_steps::append_break(connection, turn, "what this turn had read and done was forgotten")?;
    }
    note_output(connection, turn)
}

/// Of `inbox`: what everyone knows may stand in all conversations.
const OF_OWNER: &str = "(?1 = 'everyone' OR NOT EXISTS (SELECT 1 FROM sessions
    WHERE sessions.session = inbox.session AND owner IS NOT NULL AND owner <> ?1 AND NOT is_shared))";

/// The messages of a turn in a session's log: seq and body.
pub fn of_turn(connection: &Connection, session: &str, turn: &str) -> Result<Vec<(i64, String)>, StoreError> {
    let mut said =
        connection.prepare_cached("SELECT seq, body FROM messages WHERE session = ? AND turn = ? ORDER BY seq")?;
    let rows = said.query_map([session, turn], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Writes another body in a message's place.
pub fn rewrite(connection: &Connection, session: &str, seq: i64, body: &str) -> Result<(), StoreError> {
    let role: Option<String> = connection
        .prepare_cached("SELECT role FROM messages WHERE session = ? AND seq = ?")?
        .query_row(params![session, seq], |row| row.get(0))
        .optional()?;
    let digest = role.map(|role| messages::digest(&role, body));
    connection
        .prepare_cached("UPDATE messages SET body = ?3, digest = ?4 WHERE session = ?1 AND seq = ?2")?
        .execute(params![session, seq, body, digest])?;
    Ok(())
}

/// Deletes the steps of a turn, and has the outputs of its tools removed, where it has ended; a turn that still runs needs what it
/// has written.
pub fn forget_steps(connection: &Connection, turn: &str) -> Result<(), StoreError> {
    if !is_finished(connection, turn)? {
        return Ok(());
    }
    let steps = connection.prepare_cached("DELETE FROM turn_steps WHERE turn = ?")?.execute([turn])?;
    // A turn that called no tool has no more than what it was given, and what was answered.
    if steps > 2 { note_output(connection, turn) } else { Ok(()) }
}

/// Takes the words out of what a turn delivered, and out of what else is noted of it: what it ran, what it gave to sub-agents, and
/// what the job came to that it was. What is still to be delivered loses them when that is done.
pub fn forget_delivered(connection: &Connection, turn: &str) -> Result<(), StoreError> {
    for sql in [
        "UPDATE outbox SET body = iif(state IN ('sent', 'dead', 'unknown'), json_set(body, '$.content', ?2),
                json_set(body, '$.forget', json('true')))
         WHERE turn = ?1 AND json_valid(body)",
        "UPDATE spawns SET label = ?2, result = iif(result IS NULL, NULL, ?2) WHERE turn = ?1 OR id = ?1",
        "UPDATE processes SET label = NULL, command = ?2 WHERE turn = ?1 AND ended_at IS NOT NULL",
        "UPDATE jobs SET result = ?2
         WHERE result IS NOT NULL AND id IN (SELECT job FROM job_runs WHERE turn = ?1)",
    ] {
        connection.prepare_cached(sql)?.execute([turn, FORGOTTEN])?;
    }
    Ok(())
}

/// Writes other words into the inbox rows of a turn.
pub fn forget_command(connection: &Connection, turn: &str, content: &str) -> Result<(), StoreError> {
    connection.prepare_cached("UPDATE inbox SET content = ?2 WHERE turn = ?1")?.execute([turn, content])?;
    Ok(())
}

/// Removes every snapshot: what was known to everyone stood in all of them.
pub fn drop_all_snapshots(connection: &Connection) -> Result<(), StoreError> {
    connection.prepare_cached("UPDATE session_memory SET snapshot = NULL WHERE snapshot IS NOT NULL")?.execute([])?;
    connection.prepare_cached("DELETE FROM snapshots")?.execute([])?;
    Ok(())
}

/// A summary that is gone is no session's any more.
pub fn drop_summary(connection: &Connection, id: i64) -> Result<(), StoreError> {
    connection.prepare_cached("UPDATE session_memory SET summary = NULL WHERE summary = ?")?.execute([id])?;
    Ok(())
}

/// What was noted of a turn beside: its task, and what was concluded from its words.
pub fn beside(connection: &Connection, session: &str, turn: &str) -> Result<Vec<i64>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT id FROM memories WHERE session = ? AND turn = ? AND kind = 'task'")?;
    let rows = statement.query_map([session, turn], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn is_finished(connection: &Connection, turn: &str) -> Result<bool, StoreError> {
    let mut open = connection
        .prepare_cached("SELECT 1 FROM inbox WHERE turn = ? AND state IN ('queued', 'running', 'waiting') LIMIT 1")?;
    Ok(!open.exists([turn])?)
}

/// A message as JSON, without its words.
pub fn wordless(body: &str) -> String {
    let Ok(mut message) = serde_json::from_str::<Value>(body) else {
        return json!({"role": "user", "content": FORGOTTEN}).to_string();
    };
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
    // Some services want to have back that there were thoughts; sealed blocks cannot be changed, only left out.
    if let Some(thoughts) = fields.get_mut("reasoning").and_then(Value::as_object_mut) {
        thoughts.insert("text".to_owned(), json!(FORGOTTEN));
        thoughts.remove("blocks");
    }
    message.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_without_its_words() {
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
            assert_eq!(read(&wordless(body)), read(expected), "{body}");
        }
    }
}
