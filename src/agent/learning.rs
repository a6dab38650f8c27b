//! Automatic memories at the end of a turn: the task, and the preferences that the person stated.

use std::sync::Arc;

use uuid::Uuid;

use crate::chat::ChatMessage;
use crate::memory::learned::{FinishedTurn, as_preferences, task_of};
use crate::memory::{MemoryService, MemorySource, Owner, is_by_person, remember};
use crate::store::inbox::InboxRow;
use crate::store::{Connection, StoreError};
use crate::turn::context::conversation_context::AgentMemory;

/// The person for whom a turn runs, and the question of that person.
#[derive(Clone, Debug)]
pub struct TurnLearning {
    service: Arc<MemoryService>,
    owner: Owner,
    asked: String,
    /// A person wrote the message directly.
    is_written: bool,
}

/// A finished turn.
#[derive(Clone, Copy, Debug)]
pub struct TurnRecord<'a> {
    pub session: &'a str,
    pub turn: Uuid,
    /// The messages that the turn added to its session.
    pub said: &'a [ChatMessage],
    pub reply: &'a str,
    pub success: bool,
    /// The model, as `PROVIDER/MODEL`.
    pub model: &'a str,
}

impl TurnLearning {
    /// Returns the learning of a turn; `None` if automatic memories are off, or the sender or the agent has no memory.
    pub fn of(service: &Arc<MemoryService>, rows: &[InboxRow], memory: AgentMemory<'_>) -> Option<Self> {
        let settings = service.settings.clone();
        let last = rows.last().filter(|_| settings.config.enabled)?;
        let owner = memory.owner(settings.identities.owner_of_row(last)?)?;
        let asked = rows.iter().map(|row| row.content.as_str()).collect::<Vec<_>>().join("\n\n");
        Some(Self { service: service.clone(), owner, asked, is_written: is_by_person(last) })
    }

    /// Writes the memories in the commit of the turn's end; returns true if there were any.
    pub fn write(&self, connection: &Connection, finished: TurnRecord<'_>) -> Result<bool, StoreError> {
        let source =
            MemorySource { session: finished.session.to_owned(), seq: None, turn: Some(finished.turn.to_string()) };
        let done = FinishedTurn {
            input: &self.asked,
            result: finished.reply,
            success: finished.success,
            agent: finished.model,
        };
        let mut all = Vec::new();
        if self.is_written && finished.success {
            all.extend(as_preferences(&self.asked, &self.owner, &source));
        }
        all.extend(task_of(done, tools_of(finished.said), &self.owner, &source));
        if all.is_empty() {
            return Ok(false);
        }
        let config = &self.service.settings.config;
        for mut new in all {
            self.service.redact_secrets(&mut new);
            match remember(connection, &new, config) {
                // An invalid memory text does not fail the end of the turn.
                Err(StoreError::Row(error)) => {
                    tracing::warn!(turn = %finished.turn, error, "a task could not be remembered");
                }
                other => drop(other?),
            }
        }
        Ok(true)
    }
}

fn tools_of(said: &[ChatMessage]) -> impl Iterator<Item = &str> {
    let calls = said.iter().flat_map(|message| match message {
        ChatMessage::Assistant { tool_calls, .. } => tool_calls.as_slice(),
        _ => &[],
    });
    calls.map(|call| call.name.as_str())
}
