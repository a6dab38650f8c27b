//! What a turn's end adds to the memory of whom it ran for: the task that it was, and what he said of himself.

use std::sync::Arc;

use uuid::Uuid;

use crate::chat::ChatMessage;
use crate::memory::learned::{FinishedTurn, as_preferences, task_of};
use crate::memory::{MemoryService, MemorySource, Owner, is_by_person, remember};
use crate::store::inbox::InboxRow;
use crate::store::{Connection, StoreError};

/// For whom a turn ran, and what was asked.
#[derive(Clone, Debug)]
pub struct Learning {
    desk: Arc<MemoryService>,
    owner: Owner,
    asked: String,
    /// Somebody wrote it himself.
    is_written: bool,
}

/// How a turn went.
#[derive(Clone, Copy, Debug)]
pub struct Went<'a> {
    pub session: &'a str,
    pub turn: Uuid,
    /// All that it added to its session.
    pub said: &'a [ChatMessage],
    pub reply: &'a str,
    pub success: bool,
    /// `PROVIDER/MODEL`.
    pub model: &'a str,
}

impl Learning {
    /// `None` where nothing is to be remembered by itself, or of nobody.
    pub fn of(desk: &Arc<MemoryService>, rows: &[InboxRow]) -> Option<Self> {
        let terms = desk.settings.get();
        let last = rows.last().filter(|_| terms.config.enabled)?;
        let owner = terms.identities.owner_of_row(last)?;
        let asked = rows.iter().map(|row| row.content.as_str()).collect::<Vec<_>>().join("\n\n");
        Some(Self { desk: desk.clone(), owner, asked, is_written: is_by_person(last) })
    }

    /// Writes it in the commit of the end; answers whether there was anything.
    pub fn write(&self, connection: &Connection, went: Went<'_>) -> Result<bool, StoreError> {
        let source = MemorySource { session: went.session.to_owned(), seq: None, turn: Some(went.turn.to_string()) };
        let done = FinishedTurn { input: &self.asked, result: went.reply, success: went.success, agent: went.model };
        let mut all = Vec::new();
        if self.is_written && went.success {
            all.extend(as_preferences(&self.asked, &self.owner, &source));
        }
        all.extend(task_of(done, tools_of(went.said), &self.owner, &source));
        if all.is_empty() {
            return Ok(false);
        }
        let config = &self.desk.settings.get().config;
        for mut new in all {
            self.desk.redact_secrets(&mut new);
            match remember(connection, &new, config) {
                // Words that cannot be remembered are no reason to hold an end up.
                Err(StoreError::Row(error)) => {
                    tracing::warn!(turn = %went.turn, error, "a turn's end was not remembered");
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
