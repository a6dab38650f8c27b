//! What the store holds, in the form that the API and the commands show it.

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{points, said};
use crate::bus::{Errand, OutboundBody};
use crate::control::{Change, Outcome, Query};
use crate::llm::costs_in_words;
use crate::memory::{self, Owner};
use crate::store::inbox::{InboxRow, State};
use crate::store::losses::Loss;
use crate::store::outbox::OutboxRow;
use crate::store::points::PointError;
use crate::store::usage::{self, Costs, Scope, Spent, Tokens};
use crate::store::{Connection, StoreError, inbox, losses, messages, outbox, ownership, turn_steps};

/// The most rows a list shows.
pub(super) const LIST_LIMIT: u32 = 200;

/// Answers a query; `None` when there is no such thing.
pub fn look(connection: &Connection, query: &Query) -> Result<Option<Value>, PointError> {
    Ok(match query {
        Query::Sessions => Some(sessions(connection)?),
        Query::Session(key) => session(connection, key)?,
        Query::Transcript(key) => said::transcript(connection, key)?,
        Query::Turns { session, limit } => Some(points::list(connection, session.as_deref(), *limit)?),
        Query::Turn(id) => Some(points::show(connection, id)?),
        Query::Queue => Some(queue(connection)?),
        Query::QueueEntry(id) => queue_entry(connection, *id)?,
    })
}

/// A change that was made, and what a running gateway has to do about it.
pub struct Changed {
    pub answer: Value,
    pub then: Then,
}

/// What follows from a change.
pub enum Then {
    Nothing,
    /// A delivery of this channel is pending again.
    Deliver {
        channel: String,
    },
    /// So many messages of this session are queued again.
    Run {
        session: String,
        messages: usize,
    },
    /// Deliveries of this channel that waited for their next try are due.
    Hasten {
        channel: String,
    },
    /// A pending delivery of this channel is gone.
    Forget {
        channel: String,
    },
    /// The model services are asked again at once.
    AskAgain,
    All(Vec<Then>),
}

/// Makes a change; `None` when there is nothing to change.
pub fn change(connection: &Connection, change: &Change) -> Result<Option<Changed>, PointError> {
    Ok(match change {
        Change::ClearSession(key) => {
            let is_there = messages::session(connection, key)?.next_seq > 0;
            if is_there {
                messages::new_epoch(connection, key)?;
            }
            Some(Changed { answer: cleared(key, is_there), then: Then::Nothing })
        }
        Change::Restore(id) => {
            let answer = points::restore(connection, id)?;
            Some(Changed { answer, then: Then::Nothing })
        }
        Change::Fork { turn, session } => {
            let answer = points::fork(connection, turn, session.as_deref())?;
            Some(Changed { answer, then: Then::Nothing })
        }
        Change::Retry(id) => retry(connection, *id)?,
        Change::RetryAll(outcomes) => Some(retry_all(connection, outcomes)?),
        Change::Drop(id) => drop_entry(connection, *id)?,
        Change::Acknowledge => {
            let answer = json!({ "acknowledged": losses::acknowledge(connection)? });
            Some(Changed { answer, then: Then::Nothing })
        }
    })
}

/// Answers that a session was cleared, or that there was none to clear.
pub fn cleared(session: &str, cleared: bool) -> Value {
    json!({ "session": session, "cleared": cleared })
}

/// What is lost and not acknowledged.
pub fn losses(losses: &[Loss]) -> Value {
    let views = losses.iter().map(|loss| {
        json!({
            "at": time(loss.at),
            "kind": loss.kind,
            "messages": loss.messages,
            "seqs": loss.seqs,
            "what": loss.what,
            "whole": loss.whole,
            "aside": loss.aside,
        })
    });
    views.collect()
}

/// The most messages or deliveries of one outcome that are tried again in one go.
const RETRY_LIMIT: u32 = 10_000;

/// Tries again all of these outcomes, the oldest first.
fn retry_all(connection: &Connection, outcomes: &[Outcome]) -> Result<Changed, StoreError> {
    let (mut then, mut deliveries, mut messages, mut waiting) = (Vec::new(), 0, 0, 0);
    for outcome in outcomes {
        match outcome {
            Outcome::Dead | Outcome::Unknown => {
                for id in outbox::in_state(connection, outcome.as_str(), RETRY_LIMIT)? {
                    then.extend(outbox::retry(connection, id)?.map(|row| Then::Deliver { channel: row.channel }));
                    deliveries += 1;
                }
            }
            Outcome::Failed | Outcome::Waiting => {}
        }
        match outcome {
            Outcome::Dead => {
                for row in inbox::dead(connection, RETRY_LIMIT)?.iter().rev() {
                    let revived = inbox::revive(connection, row.id)?;
                    messages += revived.as_ref().map_or(0, |(_, messages)| *messages);
                    then.extend(revived.map(|(session, messages)| Then::Run { session, messages }));
                }
            }
            Outcome::Failed => {
                for turn in inbox::failed_turns(connection, RETRY_LIMIT)? {
                    let revived = revive_failed(connection, turn)?;
                    messages += revived.as_ref().map_or(0, |(_, messages)| *messages);
                    then.extend(revived.map(|(session, messages)| Then::Run { session, messages }));
                }
            }
            Outcome::Waiting => {
                waiting = inbox::waiting(connection)?;
                then.push(Then::AskAgain);
                for id in outbox::put_off(connection, RETRY_LIMIT)? {
                    then.extend(outbox::hasten(connection, id)?.map(|channel| Then::Hasten { channel }));
                    deliveries += 1;
                }
            }
            Outcome::Unknown => {}
        }
    }
    let answer = json!({ "deliveries": deliveries, "messages": messages, "waiting": waiting });
    Ok(Changed { answer, then: Then::All(then) })
}

/// A message that was answered with an error is answered anew, from where its turn came to; answers its session and how many
/// messages there are. What a job or a sub-agent asked for has been accounted for, and is asked anew by whoever asked.
fn revive_failed(connection: &Connection, turn: Uuid) -> Result<Option<(String, usize)>, StoreError> {
    let reply =
        outbox::reply(connection, turn)?.map(|row| serde_json::from_str::<OutboundBody>(&row.body)).transpose()?;
    let rows = inbox::of_turn(connection, turn)?;
    let is_failed = reply.is_some_and(|body| body.error.is_some());
    let Some(row) = rows.first().filter(|row| is_failed && Errand::of(&row.metadata).is_none()) else {
        return Ok(None);
    };
    let messages = inbox::revive_done(connection, turn)?;
    if messages > 0 {
        turn_steps::append(connection, turn, "note", turn_steps::RETRIED)?;
    }
    Ok((messages > 0).then(|| (row.session.clone(), messages)))
}

/// Sends a dead or unknown delivery again, or runs a message again that was given up or failed.
fn retry(connection: &Connection, id: Uuid) -> Result<Option<Changed>, StoreError> {
    if let Some(row) = outbox::retry(connection, id)? {
        let answer = json!({ "id": row.id, "state": "pending" });
        return Ok(Some(Changed { answer, then: Then::Deliver { channel: row.channel } }));
    }
    if let Some(channel) = outbox::hasten(connection, id)? {
        let answer = json!({ "id": id, "state": "pending", "tried_again": true });
        return Ok(Some(Changed { answer, then: Then::Hasten { channel } }));
    }
    if inbox::find(connection, id)?.is_some_and(|row| row.state == State::Waiting) {
        let answer = json!({ "id": id, "state": "waiting", "asked_again": true });
        return Ok(Some(Changed { answer, then: Then::AskAgain }));
    }
    let revived = match inbox::revive(connection, id)? {
        None => match inbox::find(connection, id)? {
            Some(row) => revive_failed(connection, row.turn)?,
            None => None,
        },
        revived => revived,
    };
    let answer = json!({ "id": id, "state": "queued" });
    Ok(revived.map(|(session, messages)| Changed { answer, then: Then::Run { session, messages } }))
}

/// Gives up an undelivered row or a dead message.
fn drop_entry(connection: &Connection, id: Uuid) -> Result<Option<Changed>, StoreError> {
    let answer = json!({ "id": id, "dropped": true });
    if let Some(row) = outbox::find(connection, id)? {
        let was_pending = row.state == "pending";
        let then = if was_pending { Then::Forget { channel: row.channel } } else { Then::Nothing };
        return Ok(outbox::remove(connection, id)?.then_some(Changed { answer, then }));
    }
    Ok(inbox::drop_dead(connection, id)?.then_some(Changed { answer, then: Then::Nothing }))
}

/// Sessions, the last used first.
fn sessions(connection: &Connection) -> Result<Value, StoreError> {
    let rows = messages::list(connection, LIST_LIMIT)?;
    rows.into_iter()
        .map(|row| {
            let spent = usage::spent(connection, Scope::Session(&row.session))?;
            Ok(json!({
                "session": row.session,
                "messages": row.messages,
                "epoch": row.epoch,
                "model": row.model,
                "created_at": time(row.created_at),
                "updated_at": time(row.updated_at),
                "tokens": spent.tokens.input + spent.tokens.output,
                "cost": costs_in_words(&spent.costs),
            }))
        })
        .collect()
}

/// What was said in a session since its last `/new`; `None` when there is no such session.
pub(super) fn session(connection: &Connection, key: &str) -> Result<Option<Value>, StoreError> {
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
    let spent = spent(&usage::spent(connection, Scope::Session(key))?);
    let ownership = ownership::of(connection, key)?;
    Ok(Some(json!({
        "session": key,
        "owner": ownership.owner.map(|owner| memory::called(&Owner::from_stored(&owner)).to_owned()),
        "shared": ownership.is_shared,
        "epoch": head.epoch,
        "model": head.model,
        "messages": said,
        "used": spent,
    })))
}

/// What is not delivered, and messages that wait or were given up.
fn queue(connection: &Connection) -> Result<Value, StoreError> {
    let mut all: Vec<Value> = outbox::undelivered(connection, LIST_LIMIT)?.iter().map(outbound).collect();
    all.extend(inbox::all_waiting(connection, LIST_LIMIT)?.iter().map(inbound));
    all.extend(inbox::dead(connection, LIST_LIMIT)?.iter().map(inbound));
    Ok(Value::Array(all))
}

/// One entry of the queue.
fn queue_entry(connection: &Connection, id: Uuid) -> Result<Option<Value>, StoreError> {
    if let Some(row) = outbox::find(connection, id)? {
        return Ok(Some(outbound(&row)));
    }
    Ok(inbox::find(connection, id)?.as_ref().map(inbound))
}

/// What was used and what it cost, together and by model.
pub fn spent(spent: &Spent) -> Value {
    let mut view = used(spent.tokens, &spent.costs);
    let models = spent.models.iter().map(|one| {
        let mut view = used(one.tokens, &one.costs);
        view["model"] = json!(one.model);
        view["provider"] = json!(one.provider);
        view
    });
    view["by_model"] = models.collect();
    view
}

fn used(tokens: Tokens, costs: &Costs) -> Value {
    let amount = |(currency, micros): (&String, &u64)| json!({ "currency": currency, "micros": micros });
    json!({
        "turns": tokens.turns,
        "input": tokens.input,
        "output": tokens.output,
        "cached": tokens.cached,
        // Null where no price is known.
        "cost": costs_in_words(costs),
        "costs": costs.iter().map(amount).collect::<Vec<_>>(),
    })
}

pub(super) fn inbound(row: &InboxRow) -> Value {
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

pub(super) fn outbound(row: &OutboxRow) -> Value {
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

pub(super) fn time(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map(|at| at.to_string()).unwrap_or_default()
}
