//! The unfinished turns of a session, and the events that correspond to their journals.

use std::collections::HashSet;

use daoyou_channels::TurnEvent;
use serde_json::{Value, json};
use uuid::Uuid;

use super::sessions::inbound_files;
use crate::chat::without_notes;
use crate::llm::ChatResponse;
use crate::origin::TurnOrigin;
use crate::store::inbox::{self, InboxRow, MessageStatus};
use crate::store::turn_steps::{self, TurnStepRow};
use crate::store::{Connection, StoreError};
use crate::text::think;
use crate::tools::ToolResult;

/// The maximum number of unfinished messages that are returned.
const MAX_MESSAGES: u32 = 100;

/// An unfinished turn with its journal.
pub struct OpenTurn {
    pub id: Uuid,
    pub messages: Vec<InboxRow>,
    /// The files that came with the messages, as the API shows them.
    pub files: Vec<Value>,
    /// The events that correspond to the journal.
    pub events: Vec<TurnEvent>,
    pub journaled: JournaledCalls,
}

/// The calls in the journal of a running turn. Its answer gets there with its end.
#[derive(Debug, Default)]
pub struct JournaledCalls {
    pub called: HashSet<String>,
    pub answered: HashSet<String>,
}

/// Reads the unfinished turns of a session, in order, without the commands of the channel `asking` itself: it shows neither them nor
/// their replies.
///
/// # Errors
/// The store cannot be read, or the attachments of a message.
pub fn open_turns(connection: &Connection, session: &str, asking: &str) -> Result<Vec<OpenTurn>, StoreError> {
    let mut turns: Vec<OpenTurn> = Vec::new();
    for row in inbox::open_of_session(connection, session, MAX_MESSAGES)? {
        if row.channel == asking && TurnOrigin::parse(&row.origin).reply.is_picked_up {
            continue;
        }
        let files = inbound_files(&row)?;
        match turns.iter_mut().find(|turn| turn.id == row.turn) {
            Some(turn) => {
                turn.files.extend(files);
                turn.messages.push(row);
            }
            None => {
                let (id, has_started) = (row.turn, row.state != MessageStatus::Queued);
                let (events, journaled) = (Vec::new(), JournaledCalls::default());
                let mut turn = OpenTurn { id, messages: vec![row], files, events, journaled };
                if has_started {
                    for step in turn_steps::of_turn(connection, id)? {
                        // Nothing is shown of a step that this program cannot read.
                        let _ = turn.add_step(&step);
                    }
                }
                turns.push(turn);
            }
        }
    }
    Ok(turns)
}

impl OpenTurn {
    /// Returns the state of the turn: the most advanced state of its messages.
    pub fn state(&self) -> MessageStatus {
        let has = |state| self.messages.iter().any(|row| row.state == state);
        [MessageStatus::Running, MessageStatus::Waiting]
            .into_iter()
            .find(|state| has(*state))
            .unwrap_or(MessageStatus::Queued)
    }

    /// Adds what is shown of a step; `None` if this program cannot read the step.
    fn add_step(&mut self, row: &TurnStepRow) -> Option<()> {
        let mut body: Value = serde_json::from_str(&row.body).ok()?;
        match row.kind.as_str() {
            // A second context step is a compacted context.
            "context" if self.events.is_empty() => self.events.push(TurnEvent::Started),
            "response" => {
                let response: ChatResponse = serde_json::from_value(body["response"].take()).ok()?;
                self.journaled.called.extend(response.tool_calls.iter().map(|call| call.id.clone()));
                add_response(&response, &mut self.events);
            }
            "tool_result" => {
                let (id, name) = (body["call_id"].as_str()?.to_owned(), body["name"].as_str()?.to_owned());
                let result: ToolResult = serde_json::from_value(body["result"].take()).ok()?;
                self.journaled.answered.insert(id.clone());
                self.events.push(TurnEvent::ToolResult {
                    id,
                    name,
                    content: without_notes(&result.render()).to_owned(),
                    success: result.success,
                    duration_ms: result.duration_ms,
                });
            }
            _ => {}
        }
        Some(())
    }
}

fn add_response(response: &ChatResponse, events: &mut Vec<TurnEvent>) {
    let thought = response.reasoning.as_ref().map(|reasoning| reasoning.text.clone()).unwrap_or_default();
    if !thought.is_empty() {
        events.push(TurnEvent::Thinking { delta: thought });
    }
    let text = think::strip(&response.text);
    if !text.is_empty() {
        events.push(TurnEvent::Text { delta: text });
    }
    events.extend(response.tool_calls.iter().map(|call| TurnEvent::ToolCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: Some(match call.arguments.trim() {
            "" => json!({}),
            written => serde_json::from_str(written).unwrap_or_else(|_| Value::from(written)),
        }),
        args_complete: true,
    }));
    let usage = response.usage;
    events.push(TurnEvent::Usage {
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        cached_tokens: usage.cached_tokens,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::inbox::NewInboxRow;
    use crate::store::{Durability, Store};

    #[tokio::test]
    async fn commands_of_the_asking_channel_are_not_shown() {
        let (_folder, store) = Store::temporary();
        let mut hidden = TurnOrigin::default();
        hidden.reply.is_picked_up = true;
        let columns = [hidden.to_column(), TurnOrigin::default().to_column()];
        let read = move |connection: &Connection| {
            let mut ids = Vec::new();
            for origin in columns.clone() {
                let (id, channel) = (Uuid::now_v7(), "page".to_owned());
                inbox::insert(connection, &NewInboxRow { channel, origin, ..NewInboxRow::sample(id, "page:a") })?;
                ids.push(id);
            }
            Ok((ids, open_turns(connection, "page:a", "page")?))
        };
        let (ids, turns) = store.write(Durability::Logged, read).await.unwrap();
        assert_eq!(turns.iter().map(|turn| turn.id).collect::<Vec<_>>(), ids[1..]);
    }
}
