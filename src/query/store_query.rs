//! Requests that need only the store: about sessions, turns and the queue.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::approvals::{self, ApprovalAnswer};
use super::queue::{self, AfterCommit, AppliedChange, RetryClass};
use super::{sessions, turns};
use crate::store::checkpoints::{CheckpointError, separate_store_errors};
use crate::store::{Connection, Durability, Store, losses};

/// A query of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreQuery {
    Sessions,
    /// The messages of a session as they are stored.
    Session(String),
    /// A session as text for people.
    Transcript(String),
    /// The turns of one session or of all, at most `limit`.
    Turns {
        session: Option<String>,
        limit: Option<u32>,
    },
    /// One turn, by its id or the beginning of its id.
    Turn(String),
    Queue,
    QueueEntry(Uuid),
    /// The calls that wait for the owner's approval.
    Approvals,
}

/// A change of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreChange {
    ClearSession(String),
    /// Restores the session of a turn to the end of that turn.
    Restore(String),
    /// Starts a new session as a copy of the turn's session at the end of that turn.
    Fork {
        turn: String,
        session: Option<String>,
    },
    Retry(Uuid),
    /// Retries all entries of these classes.
    RetryAll(Vec<RetryClass>),
    Drop(Uuid),
    /// Answers the approval request with this id.
    AnswerApproval {
        id: String,
        answer: ApprovalAnswer,
    },
    /// Marks all losses as acknowledged.
    Acknowledge,
}

impl StoreQuery {
    /// Names the subject that does not exist if there is no answer.
    pub fn subject(&self) -> String {
        match self {
            Self::Sessions | Self::Turns { session: None, .. } | Self::Queue | Self::Approvals => "list".to_owned(),
            Self::Session(key) | Self::Transcript(key) | Self::Turns { session: Some(key), .. } => {
                format!("session {key}")
            }
            Self::Turn(id) => format!("turn {id}"),
            Self::QueueEntry(id) => format!("{id} in the queue"),
        }
    }
}

impl StoreChange {
    /// Names the subject that does not exist if nothing can be changed.
    pub fn subject(&self) -> String {
        match self {
            Self::ClearSession(key) => format!("session {key}"),
            Self::Restore(turn) | Self::Fork { turn, .. } => format!("turn {turn}"),
            Self::Retry(id) | Self::Drop(id) => format!("undelivered message {id}"),
            Self::AnswerApproval { id, .. } => format!("open approval {id}"),
            Self::RetryAll(_) => "message".to_owned(),
            Self::Acknowledge => "loss".to_owned(),
        }
    }
}

/// Answers a query; `None` if its subject does not exist.
///
/// # Errors
/// The store cannot be read, or the id of the turn is ambiguous or invalid.
pub async fn read(store: &Store, query: StoreQuery) -> Result<Option<Value>, CheckpointError> {
    store.read(move |connection| separate_store_errors(answer(connection, &query))).await?
}

/// Makes a change in one synced commit; `None` if its subject does not exist.
///
/// # Errors
/// The store cannot be written, or the turn cannot be restored or forked.
pub async fn apply(store: &Store, change: StoreChange) -> Result<Option<AppliedChange>, CheckpointError> {
    store.write(Durability::Synced, move |connection| separate_store_errors(write(connection, &change))).await?
}

fn answer(connection: &Connection, query: &StoreQuery) -> Result<Option<Value>, CheckpointError> {
    Ok(match query {
        StoreQuery::Sessions => Some(sessions::list(connection, "")?),
        StoreQuery::Session(key) => sessions::show(connection, key)?,
        StoreQuery::Transcript(key) => sessions::transcript(connection, key)?,
        StoreQuery::Turns { session, limit } => turns::list(connection, session.as_deref(), *limit)?,
        StoreQuery::Turn(id) => Some(turns::show(connection, id)?),
        StoreQuery::Queue => Some(queue::list(connection)?),
        StoreQuery::Approvals => Some(approvals::list(connection)?),
        StoreQuery::QueueEntry(id) => queue::show(connection, *id)?,
    })
}

fn write(connection: &Connection, change: &StoreChange) -> Result<Option<AppliedChange>, CheckpointError> {
    let done = |answer: Value| Some(AppliedChange { answer, after: AfterCommit::Nothing });
    Ok(match change {
        StoreChange::ClearSession(key) => sessions::clear(connection, key)?.and_then(done),
        StoreChange::Restore(id) => done(turns::restore(connection, id)?),
        StoreChange::Fork { turn, session } => done(turns::fork(connection, turn, session.as_deref())?),
        StoreChange::Retry(id) => queue::retry(connection, *id)?,
        StoreChange::RetryAll(classes) => Some(queue::retry_all(connection, classes)?),
        StoreChange::Drop(id) => queue::remove(connection, *id)?,
        StoreChange::AnswerApproval { id, answer } => approvals::answer(connection, id, answer)?,
        StoreChange::Acknowledge => done(json!({ "acknowledged": losses::acknowledge(connection)? })),
    })
}
