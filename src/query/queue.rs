//! The queue: messages that wait, failed or were given up, and deliveries that are not sent.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::rows::{LIST_LIMIT, inbound, outbound};
use crate::bus::{OutboundBody, mark_cancelled};
use crate::origin::TurnOrigin;
use crate::store::inbox::MessageStatus;
use crate::store::turn_steps::TurnStepRow;
use crate::store::{Connection, StoreError, inbox, outbox, turn_steps};

/// The maximum number of messages or deliveries of one class that one request retries.
const RETRY_LIMIT: u32 = 10_000;

/// Entries of the queue that can be retried, by their state.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, strum::EnumString, strum::IntoStaticStr, Serialize, Deserialize,
)]
#[strum(serialize_all = "snake_case")]
pub enum RetryClass {
    /// A delivery or a message that was given up.
    Dead,
    /// A message that was answered with an error.
    Failed,
    /// A message that waits for a model service.
    Waiting,
    /// A delivery that may or may not have arrived.
    Unknown,
}

impl RetryClass {
    pub const ALL: [Self; 4] = [Self::Dead, Self::Failed, Self::Waiting, Self::Unknown];

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Parses names separated by commas; `None` if one is unknown.
    pub fn parse_list(text: &str) -> Option<Vec<Self>> {
        text.split(',').map(|name| name.parse().ok()).collect()
    }
}

/// A committed change.
pub struct AppliedChange {
    pub answer: Value,
    pub after: AfterCommit,
}

/// The action of a running gateway after the commit of a change.
pub enum AfterCommit {
    Nothing,
    /// A delivery of this channel is pending again.
    Deliver {
        channel: String,
    },
    /// Messages of this session are queued again.
    Run {
        session: String,
        messages: usize,
    },
    /// Deliveries of this channel that waited for their next attempt are due.
    MakeDue {
        channel: String,
    },
    /// A pending delivery of this channel was removed.
    Forget {
        channel: String,
    },
    /// The approval or answer that this turn of the session waited for has arrived.
    Resume {
        turn: Uuid,
        session: String,
    },
    /// These turns, with their sessions, are marked for cancellation.
    Stop(Vec<(Uuid, String)>),
    /// The model services must be tried again at once.
    RetryServices,
    All(Vec<AfterCommit>),
}

/// Lists undelivered rows of the outbox, and messages that wait or were given up.
pub(super) fn list(connection: &Connection) -> Result<Value, StoreError> {
    let mut all: Vec<Value> = outbox::undelivered(connection, LIST_LIMIT)?.iter().map(outbound).collect();
    // Without a running gateway, a dropped message ends at the next start.
    all.extend(inbox::all_waiting(connection, LIST_LIMIT)?.iter().filter(|row| !row.cancel).map(inbound));
    all.extend(inbox::dead(connection, LIST_LIMIT)?.iter().map(inbound));
    Ok(Value::Array(all))
}

pub(super) fn show(connection: &Connection, id: Uuid) -> Result<Option<Value>, StoreError> {
    if let Some(row) = outbox::find(connection, id)? {
        return Ok(Some(outbound(&row)));
    }
    Ok(inbox::find(connection, id)?.as_ref().map(inbound))
}

/// Retries all entries of these classes, the oldest first.
pub(super) fn retry_all(connection: &Connection, classes: &[RetryClass]) -> Result<AppliedChange, StoreError> {
    let (mut after, mut deliveries, mut waiting) = (Vec::new(), 0, 0);
    let run = |(session, messages)| AfterCommit::Run { session, messages };
    for class in classes {
        if matches!(class, RetryClass::Dead | RetryClass::Unknown) {
            for id in outbox::ids_in_state(connection, class.as_str(), RETRY_LIMIT)? {
                after.extend(outbox::retry(connection, id)?.map(|row| AfterCommit::Deliver { channel: row.channel }));
                deliveries += 1;
            }
        }
        match class {
            RetryClass::Dead => {
                for row in inbox::dead(connection, RETRY_LIMIT)?.iter().rev() {
                    after.extend(inbox::revive(connection, row.id)?.map(run));
                }
            }
            RetryClass::Failed => {
                for turn in inbox::failed_turns(connection, RETRY_LIMIT)? {
                    after.extend(revive_failed(connection, turn)?.map(run));
                }
            }
            RetryClass::Waiting => {
                waiting = inbox::count_waiting_for_model(connection)?;
                after.push(AfterCommit::RetryServices);
                for id in outbox::waiting_for_retry(connection, RETRY_LIMIT)? {
                    after.extend(outbox::make_due(connection, id)?.map(|channel| AfterCommit::MakeDue { channel }));
                    deliveries += 1;
                }
            }
            RetryClass::Unknown => {}
        }
    }
    let revived = |one: &AfterCommit| if let AfterCommit::Run { messages, .. } = one { *messages } else { 0 };
    let messages: usize = after.iter().map(revived).sum();
    let answer = json!({ "deliveries": deliveries, "messages": messages, "waiting": waiting });
    Ok(AppliedChange { answer, after: AfterCommit::All(after) })
}

/// Queues the messages of a failed turn again, so that the turn continues from its last step; returns their session and number.
/// Turns of jobs and sub-agents are not retried: their failure was reported, and the job or the agent decides about another try. The
/// turn of a workflow is not retried either, because it would stop at the same step: its message must be sent again.
fn revive_failed(connection: &Connection, turn: Uuid) -> Result<Option<(String, usize)>, StoreError> {
    let reply =
        outbox::reply(connection, turn)?.map(|row| serde_json::from_str::<OutboundBody>(&row.body)).transpose()?;
    let rows = inbox::of_turn(connection, turn)?;
    let is_failed = reply.is_some_and(|body| body.error.is_some());
    let Some(row) = rows.first().filter(|row| is_failed && !TurnOrigin::parse(&row.origin).runs_for_job_or_agent())
    else {
        return Ok(None);
    };
    let is_workflow = |step: &TurnStepRow| {
        let body: Value = serde_json::from_str(&step.body).unwrap_or_default();
        step.kind == "context" && body["workflow"].is_string()
    };
    if turn_steps::of_turn(connection, turn)?.iter().any(is_workflow) {
        return Ok(None);
    }
    let messages = inbox::requeue_done(connection, turn)?;
    if messages > 0 {
        turn_steps::append(connection, turn, "note", turn_steps::RETRIED)?;
    }
    Ok((messages > 0).then(|| (row.session.clone(), messages)))
}

/// Retries a delivery that is dead, unknown or postponed, or a message that waits, failed or was given up.
pub(super) fn retry(connection: &Connection, id: Uuid) -> Result<Option<AppliedChange>, StoreError> {
    if let Some(row) = outbox::retry(connection, id)? {
        let answer = json!({ "id": row.id, "state": "pending" });
        return Ok(Some(AppliedChange { answer, after: AfterCommit::Deliver { channel: row.channel } }));
    }
    if let Some(channel) = outbox::make_due(connection, id)? {
        let answer = json!({ "id": id, "state": "pending", "tried_again": true });
        return Ok(Some(AppliedChange { answer, after: AfterCommit::MakeDue { channel } }));
    }
    if inbox::find(connection, id)?.is_some_and(|row| row.state == MessageStatus::Waiting) {
        // A turn that waits for sub-agents or a person continues when they answer.
        let asked_again = inbox::waits_for_model(connection, id)?;
        let answer = json!({ "id": id, "state": "waiting", "asked_again": asked_again });
        let after = if asked_again { AfterCommit::RetryServices } else { AfterCommit::Nothing };
        return Ok(Some(AppliedChange { answer, after }));
    }
    let revived = match inbox::revive(connection, id)? {
        None => match inbox::find(connection, id)? {
            Some(row) => revive_failed(connection, row.turn)?,
            None => None,
        },
        revived => revived,
    };
    let answer = json!({ "id": id, "state": "queued" });
    Ok(revived.map(|(session, messages)| AppliedChange { answer, after: AfterCommit::Run { session, messages } }))
}

/// Removes an undelivered row or a dead message. The turn of a message that has not ended is stopped, as `/stop` does.
pub(super) fn remove(connection: &Connection, id: Uuid) -> Result<Option<AppliedChange>, StoreError> {
    let answer = json!({ "id": id, "dropped": true });
    if let Some(row) = outbox::find(connection, id)? {
        let was_pending = row.state == "pending";
        let after = if was_pending { AfterCommit::Forget { channel: row.channel } } else { AfterCommit::Nothing };
        return Ok(outbox::remove(connection, id)?.then_some(AppliedChange { answer, after }));
    }
    if inbox::drop_dead(connection, id)? {
        return Ok(Some(AppliedChange { answer, after: AfterCommit::Nothing }));
    }
    let stopped = mark_cancelled(connection, id)?;
    Ok((!stopped.is_empty()).then_some(AppliedChange { answer, after: AfterCommit::Stop(stopped) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::inbox::NewInboxRow;
    use crate::store::{Durability, Store};

    /// A message that waits for an approval is not a message that waits for a model.
    #[tokio::test]
    async fn only_messages_that_wait_for_a_model_are_asked_again() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| {
            let [approval, model] = [1, 2].map(Uuid::from_u128);
            for (seq, id) in [(1, approval), (2, model)] {
                inbox::insert(connection, &NewInboxRow::sample(id, &id.to_string()))?;
                inbox::mark_running(connection, seq)?;
                inbox::mark_waiting(connection, id)?;
            }
            // The first one waited for a model before, and the answer asks for the approval.
            for (turn, kind, body) in [
                (approval, "note", r#"{"step":"waiting","since":7}"#),
                (approval, "response", "{}"),
                (model, "response", "{}"),
                (model, "note", r#"{"step":"waiting","since":7}"#),
            ] {
                turn_steps::append(connection, turn, kind, body)?;
            }
            let all = retry_all(connection, &[RetryClass::Waiting])?.answer;
            let mut answers = vec![all["waiting"].clone()];
            for id in [approval, model] {
                answers.extend(retry(connection, id)?.map(|applied| applied.answer["asked_again"].clone()));
            }
            Ok(answers)
        };
        let answers = store.write(Durability::Logged, work).await.unwrap();
        assert_eq!(answers, [json!(1), json!(false), json!(true)]);
    }
}
