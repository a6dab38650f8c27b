//! `/api/sessions/{key}/live`: the current activity of a session, in addition to its history.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};
use daoyou_channels::{HttpError, TurnEvent};
use serde_json::{Value, json};
use uuid::Uuid;

use super::channel::PAGE_CHANNEL;
use super::live_turns::JournaledCalls;
use crate::chat::without_notes;
use crate::http::state::{AppState, SharedState};
use crate::llm::ChatResponse;
use crate::memory::written;
use crate::origin::TurnOrigin;
use crate::query::sessions::inbound_files;
use crate::store::inbox::{self, InboxRow, MessageStatus};
use crate::store::turn_steps::{self, TurnStepRow};
use crate::store::{Connection, StoreError};
use crate::text::think;
use crate::tools::ToolResult;

/// The most unfinished messages that are returned.
const MAX_MESSAGES: u32 = 100;
/// The most attempts to read the state, since a turn may end meanwhile.
const TRIES: usize = 8;

pub fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/api/sessions/{key}/live", get(live))
}

async fn live(State(state): SharedState, Path(key): Path<String>) -> Result<Json<Value>, HttpError> {
    for _ in 0..TRIES {
        // Recording begins before the store is read, so that no event is missed in between.
        let since = state.page.activate();
        let session = key.clone();
        let turns = state.bus.store().read(move |connection| open_turns(connection, &session)).await?;
        let ids: Vec<_> = turns.iter().map(|turn| turn.id).collect();
        let found = state.page.live_turns(&since, &key, &ids, |live| {
            let view = |turn: &OpenTurn| {
                let mut events = turn.events.clone();
                events.extend(live.beyond(turn.id, &turn.journaled));
                let content: Vec<_> = turn.messages.iter().map(|row| written(&row.content)).collect();
                json!({
                    "turn": turn.id,
                    "state": turn.state().as_str(),
                    "content": content.join("\n\n"),
                    "at": crate::query::timestamp(turn.messages.first().map_or(0, |row| row.received_at)),
                    "attachments": turn.files,
                    "events": events,
                })
            };
            turns.iter().map(view).collect::<Vec<_>>()
        });
        if let Some((turns, cursor)) = found {
            return Ok(Json(json!({ "turns": turns, "event": cursor.to_string() })));
        }
    }
    let message = "the session changes too fast to be read; try again";
    Err(HttpError::new(axum::http::StatusCode::SERVICE_UNAVAILABLE, "busy", message))
}

/// An unfinished turn with its journal.
struct OpenTurn {
    id: Uuid,
    messages: Vec<InboxRow>,
    files: Vec<Value>,
    /// The events that correspond to the journal.
    events: Vec<TurnEvent>,
    journaled: JournaledCalls,
}

/// Reads the unfinished turns of a session, in order, without the commands of the page itself: it shows neither them nor their replies.
fn open_turns(connection: &Connection, session: &str) -> Result<Vec<OpenTurn>, StoreError> {
    let mut turns: Vec<OpenTurn> = Vec::new();
    for row in inbox::open_of_session(connection, session, MAX_MESSAGES)? {
        if row.channel == PAGE_CHANNEL && TurnOrigin::parse(&row.origin).reply.is_picked_up {
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
                        // The page shows nothing of a step that this program cannot read.
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
    fn state(&self) -> MessageStatus {
        let has = |state| self.messages.iter().any(|row| row.state == state);
        [MessageStatus::Running, MessageStatus::Waiting]
            .into_iter()
            .find(|state| has(*state))
            .unwrap_or(MessageStatus::Queued)
    }

    /// Adds what the page shows of a step; `None` if this program cannot read the step.
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
    async fn commands_of_the_page_itself_are_not_shown() {
        let (_folder, store) = Store::temporary();
        let mut hidden = TurnOrigin::default();
        hidden.reply.is_picked_up = true;
        let columns = [hidden.to_column(), TurnOrigin::default().to_column()];
        let read = move |connection: &Connection| {
            let mut ids = Vec::new();
            for origin in columns.clone() {
                let (id, channel) = (Uuid::now_v7(), PAGE_CHANNEL.to_owned());
                inbox::insert(connection, &NewInboxRow { channel, origin, ..NewInboxRow::sample(id, "page:a") })?;
                ids.push(id);
            }
            Ok((ids, open_turns(connection, "page:a")?))
        };
        let (ids, turns) = store.write(Durability::Logged, read).await.unwrap();
        assert_eq!(turns.iter().map(|turn| turn.id).collect::<Vec<_>>(), ids[1..]);
    }
}
