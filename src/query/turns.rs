//! Turns: their steps and usage, and the restore and fork of sessions.

use daoyou_channels::text::truncate;
use serde_json::{Value, json};
use uuid::Uuid;

use super::rows::{self, LIST_LIMIT, inbound, outbound, timestamp};
use super::sessions;
use crate::llm::costs_in_words;
use crate::store::checkpoints::{self, CheckpointError};
use crate::store::usage::{self, UsageScope};
use crate::store::{Connection, StoreError, inbox, messages, outbox, spawns, turn_steps};

/// The longest text of a message in a list, in characters.
const MAX_CONTENT: usize = 200;
/// The number of random keys that are tried for a fork.
const KEY_TRIES: usize = 8;

/// Lists the turns of one session or of all, the newest first, with the beginnings of their messages; `None` if the session does not
/// exist.
pub(super) fn list(
    connection: &Connection,
    session: Option<&str>,
    limit: Option<u32>,
) -> Result<Option<Value>, StoreError> {
    let limit = limit.unwrap_or(LIST_LIMIT).min(LIST_LIMIT);
    let rows = match session {
        Some(session) => inbox::newest_of_session(connection, session, limit)?,
        None => inbox::newest(connection, limit)?,
    };
    if let Some(session) = session
        && rows.is_empty()
        && !sessions::is_known(connection, session)?
    {
        return Ok(None);
    }
    rows.iter()
        .map(|row| {
            let spent = usage::total(connection, UsageScope::Turn(row.turn))?;
            let models: Vec<_> = spent.models.iter().map(|model| model.model.as_str()).collect();
            let mut view = inbound(row);
            view["content"] = json!(truncate(&row.content, MAX_CONTENT));
            view["model"] = if models.is_empty() { Value::Null } else { json!(models.join(", ")) };
            view["tokens"] = json!(spent.tokens.input + spent.tokens.output);
            view["input_tokens"] = json!(spent.tokens.input);
            view["output_tokens"] = json!(spent.tokens.output);
            view["cached_tokens"] = json!(spent.tokens.cached);
            view["cost"] = json!(costs_in_words(&spent.costs));
            view["duration_ms"] = active_ms(connection, row.turn)?;
            view["sub_agent"] = sub_agent(connection, row.turn)?;
            Ok(view)
        })
        .collect::<Result<_, _>>()
        .map(Some)
}

/// Returns the active time of a turn up to its last response, without waits; null if its steps are deleted.
fn active_ms(connection: &Connection, turn: Uuid) -> Result<Value, StoreError> {
    let last = turn_steps::last_of_kind(connection, &turn.to_string(), "response")?;
    let body: Value = last.map(|body| serde_json::from_str(&body)).transpose()?.unwrap_or_default();
    Ok(body["active_ms"].clone())
}

/// Returns a turn with its messages, steps, usage and deliveries, and whether its session can be restored to it.
pub(super) fn show(connection: &Connection, id: &str) -> Result<Value, CheckpointError> {
    let turn = checkpoints::find_turn(connection, id)?;
    let rows = inbox::of_turn(connection, turn)?;
    let steps = turn_steps::of_turn(connection, turn)?;
    let intact = turn_steps::chain_holds(&steps);
    let steps = steps
        .into_iter()
        .map(|step| {
            let body: Value = serde_json::from_str(&step.body).unwrap_or(Value::String(step.body));
            json!({ "seq": step.seq, "kind": step.kind, "at": timestamp(step.at), "hash": step.hash, "body": body })
        })
        .collect::<Vec<_>>();
    let sent = outbox::of_turn(connection, turn)?;
    let checkpoint = match checkpoints::of_turn(connection, turn) {
        Ok(_) => json!({ "restorable": true, "code": null, "reason": null }),
        Err(CheckpointError::Store(error)) => return Err(error.into()),
        Err(error) => json!({ "restorable": false, "code": error.code(), "reason": error.to_string() }),
    };
    Ok(json!({
        "turn": turn,
        "session": rows.first().map(|row| &row.session),
        "sub_agent": sub_agent(connection, turn)?,
        "messages": rows.iter().map(inbound).collect::<Vec<_>>(),
        "steps": steps,
        "intact": intact,
        "checkpoint": checkpoint,
        "used": rows::usage(&usage::total(connection, UsageScope::Turn(turn))?),
        "outbox": sent.iter().map(outbound).collect::<Vec<_>>(),
    }))
}

/// Describes the sub-agent of this turn; null if the turn belongs to none.
fn sub_agent(connection: &Connection, turn: Uuid) -> Result<Value, StoreError> {
    let found = spawns::find(connection, turn)?;
    Ok(found.map_or(Value::Null, |spawn| {
        json!({
            "label": spawn.label,
            "session": spawn.session,
            "turn": spawn.turn,
            "depth": spawn.depth,
            "waited_for": spawn.waits,
        })
    }))
}

/// Restores the session of a turn to the end of that turn, in a home without a running gateway. In a running gateway, only the
/// session's lane writes to the session.
pub(super) fn restore(connection: &Connection, id: &str) -> Result<Value, CheckpointError> {
    let point = checkpoints::of_turn(connection, checkpoints::find_turn(connection, id)?)?;
    if checkpoints::is_busy(connection, &point.session)? {
        return Err(CheckpointError::Busy(point.session));
    }
    checkpoints::restore(connection, &point)?;
    Ok(restored(connection, point.turn, &point.session)?)
}

/// Returns the response to a completed restore.
///
/// # Errors
/// The session cannot be read from the store.
pub fn restored(connection: &Connection, turn: Uuid, session: &str) -> Result<Value, StoreError> {
    let head = messages::session(connection, session)?;
    let messages = head.next_seq - head.first_seq;
    Ok(json!({ "turn": turn, "session": session, "restored": true, "epoch": head.epoch, "messages": messages }))
}

/// Copies the session of a turn, up to the end of that turn, to a new session; without `session`, under a random key.
pub(super) fn fork(connection: &Connection, id: &str, session: Option<&str>) -> Result<Value, CheckpointError> {
    let point = checkpoints::of_turn(connection, checkpoints::find_turn(connection, id)?)?;
    let copied = match session {
        // Nobody could write to such a session.
        Some(session) if !sessions::is_chat_key(session) => Err(CheckpointError::NoChat(session.to_owned())),
        Some(session) => checkpoints::fork(connection, &point, session).map(|copied| (session.to_owned(), copied)),
        None => fork_with_random_key(connection, &point),
    };
    let (session, copied) = copied?;
    Ok(json!({ "session": session, "turn": point.turn, "forked_from": point.session, "messages": copied }))
}

/// Forks under a random key whose prefix no channel uses, so that no later chat gets this history.
fn fork_with_random_key(
    connection: &Connection,
    point: &checkpoints::Checkpoint,
) -> Result<(String, usize), CheckpointError> {
    let mut tried = 0;
    loop {
        // The last bytes of an id are random.
        let session = format!("fork:{}", &daoyou_channels::new_id().simple().to_string()[24..]);
        tried += 1;
        match checkpoints::fork(connection, point, &session) {
            Err(CheckpointError::Exists(_)) if tried < KEY_TRIES => {}
            forked => return Ok((session, forked?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::inbox::NewInboxRow;
    use crate::store::{Durability, Store};

    #[tokio::test]
    async fn a_list_has_the_beginnings_of_the_messages() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| {
            let turn = Uuid::from_u128(1);
            inbox::insert(connection, &NewInboxRow { content: "x".repeat(100_000), ..NewInboxRow::sample(turn, "s") })?;
            Ok((list(connection, None, None)?, show(connection, &turn.to_string()).unwrap()))
        };
        let (listed, shown) = store.write(Durability::Logged, work).await.unwrap();
        let length = |view: &Value| view["content"].as_str().unwrap().chars().count();
        assert_eq!((length(&listed.unwrap()[0]), length(&shown["messages"][0])), (MAX_CONTENT, 100_000));
    }
}
