//! What the store holds, in the form that the API and the commands show it.

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::store::inbox::InboxRow;
use crate::store::outbox::OutboxRow;
use crate::store::{Connection, StoreError, inbox, messages, outbox, turn_steps};

/// The most rows a list shows.
pub const LIST_LIMIT: u32 = 200;

/// Sessions, the last used first.
pub fn sessions(connection: &Connection) -> Result<Value, StoreError> {
    let rows = messages::list(connection, LIST_LIMIT)?;
    Ok(rows
        .into_iter()
        .map(|row| {
            json!({
                "session": row.session,
                "messages": row.messages,
                "epoch": row.epoch,
                "model": row.model,
                "created_at": time(row.created_at),
                "updated_at": time(row.updated_at),
            })
        })
        .collect())
}

/// What was said in a session since its last `/new`; `None` when there is no such session.
pub fn session(connection: &Connection, key: &str) -> Result<Option<Value>, StoreError> {
    let head = messages::session(connection, key)?;
    if head.next_seq == 0 {
        return Ok(None);
    }
    let rows = messages::range(connection, key, head.first_seq, head.next_seq)?;
    let said = rows
        .into_iter()
        .map(|row| {
            let message: Value = serde_json::from_str(&row.body)?;
            Ok(json!({ "seq": row.seq, "at": time(row.at), "turn": row.turn, "role": row.role, "message": message }))
        })
        .collect::<Result<Vec<_>, StoreError>>()?;
    Ok(Some(json!({ "session": key, "epoch": head.epoch, "model": head.model, "messages": said })))
}

/// Turns, the newest first.
pub fn turns(connection: &Connection) -> Result<Value, StoreError> {
    Ok(inbox::newest(connection, LIST_LIMIT)?.into_iter().map(|row| inbound(&row)).collect())
}

/// One turn: its messages, each of its steps, and what it sent.
pub fn turn(connection: &Connection, id: Uuid) -> Result<Option<Value>, StoreError> {
    let mut rows = inbox::of_turn(connection, id)?;
    if rows.is_empty() {
        // A message that was joined into another's turn is found by its own id, too.
        let Some(row) = inbox::find(connection, id)? else { return Ok(None) };
        rows = inbox::of_turn(connection, row.turn)?;
    }
    let Some(turn) = rows.first().map(|row| row.turn) else { return Ok(None) };
    let steps = turn_steps::of_turn(connection, turn)?;
    let intact = turn_steps::chain_holds(&steps);
    let steps = steps
        .into_iter()
        .map(|step| {
            let body: Value = serde_json::from_str(&step.body).unwrap_or(Value::String(step.body));
            json!({ "seq": step.seq, "kind": step.kind, "at": time(step.at), "body": body })
        })
        .collect::<Vec<_>>();
    let sent = outbox::of_turn(connection, turn)?;
    Ok(Some(json!({
        "turn": turn,
        "messages": rows.iter().map(inbound).collect::<Vec<_>>(),
        "steps": steps,
        "intact": intact,
        "outbox": sent.iter().map(outbound).collect::<Vec<_>>(),
    })))
}

/// What is not delivered, and messages that were given up.
pub fn queue(connection: &Connection) -> Result<Value, StoreError> {
    let mut all: Vec<Value> = outbox::undelivered(connection, LIST_LIMIT)?.iter().map(outbound).collect();
    all.extend(inbox::dead(connection, LIST_LIMIT)?.iter().map(inbound));
    Ok(Value::Array(all))
}

/// One entry of the queue.
pub fn queue_entry(connection: &Connection, id: Uuid) -> Result<Option<Value>, StoreError> {
    if let Some(row) = outbox::find(connection, id)? {
        return Ok(Some(outbound(&row)));
    }
    Ok(inbox::find(connection, id)?.as_ref().map(inbound))
}

/// What reviving an entry of the queue did.
pub enum Revived {
    /// An outbox row of this channel is pending again, under this id.
    Outbound { id: Uuid, channel: String },
    /// A message of this session is queued again.
    Inbound { session: String },
}

/// Sends a dead or unknown delivery again, or runs a dead message again; `None` when the id is neither.
pub fn revive(connection: &Connection, id: Uuid) -> Result<Option<Revived>, StoreError> {
    if let Some(row) = outbox::retry(connection, id)? {
        return Ok(Some(Revived::Outbound { id: row.id, channel: row.channel }));
    }
    Ok(inbox::revive(connection, id)?.map(|session| Revived::Inbound { session }))
}

/// An entry of the queue that was given up by hand.
pub struct Dropped {
    /// The channel of an outbox row that was still to be delivered.
    pub was_pending_on: Option<String>,
}

/// Gives up an undelivered row or a dead message; `None` when the id is neither.
pub fn drop_entry(connection: &Connection, id: Uuid) -> Result<Option<Dropped>, StoreError> {
    if let Some(row) = outbox::find(connection, id)? {
        let was_pending_on = (row.state == "pending").then_some(row.channel);
        return Ok(outbox::remove(connection, id)?.then_some(Dropped { was_pending_on }));
    }
    Ok(inbox::drop_dead(connection, id)?.then_some(Dropped { was_pending_on: None }))
}

fn inbound(row: &InboxRow) -> Value {
    json!({
        "kind": "inbound",
        "id": row.id,
        "turn": row.turn,
        "state": row.state.as_str(),
        "session": row.session,
        "channel": row.channel,
        "chat_id": row.chat_id,
        "sender": row.sender,
        "external_id": row.external_id,
        "content": row.content,
        "received_at": time(row.received_at),
    })
}

fn outbound(row: &OutboxRow) -> Value {
    let body: Value = serde_json::from_str(&row.body).unwrap_or(Value::Null);
    json!({
        "kind": "outbound",
        "id": row.id,
        "turn": row.turn,
        "slot": row.slot,
        "attempt": row.attempt,
        "state": row.state,
        "channel": row.channel,
        "chat_id": row.chat_id,
        "tries": row.tries,
        "next_at": if row.state == "pending" && row.next_at > 0 { Some(time(row.next_at)) } else { None },
        "last_error": row.last_error,
        "content": body.get("content"),
        "created_at": time(row.created_at),
    })
}

fn time(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map(|at| at.to_string()).unwrap_or_default()
}
