//! `/api/sessions/{key}/live`: the current activity of a session, in addition to its history.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};
use daoyou_channels::{HttpError, TurnEvent};
use serde_json::{Value, json};
use uuid::Uuid;

use super::live_turns::JournaledCalls;
use crate::chat::without_notes;
use crate::http::state::{AppState, SharedState};
use crate::llm::ChatResponse;
use crate::memory::written;
use crate::query::sessions::inbound_files;
use crate::store::inbox::{self, InboxRow, InboxState};
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
        let found = state.page.live_turns(&since, &ids, |live| {
            let view = |turn: &OpenTurn| {
                let journal = turn.journaled();
                let mut events = turn.events();
                events.extend(live.beyond(turn.id, &journal));
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
    steps: Vec<JournalStep>,
}

/// A step of a journal that the page shows.
enum JournalStep {
    Started,
    Response(Box<ChatResponse>),
    Result { call: String, name: String, result: Box<ToolResult> },
}

/// Reads the unfinished turns of a session, in order.
fn open_turns(connection: &Connection, session: &str) -> Result<Vec<OpenTurn>, StoreError> {
    let mut turns: Vec<OpenTurn> = Vec::new();
    for row in inbox::open_of_session(connection, session, MAX_MESSAGES)? {
        match turns.iter_mut().find(|turn| turn.id == row.turn) {
            Some(turn) => turn.messages.push(row),
            None => {
                let steps = match row.state {
                    InboxState::Queued => Vec::new(),
                    _ => turn_steps::of_turn(connection, row.turn)?.iter().filter_map(read_step).collect(),
                };
                turns.push(OpenTurn { id: row.turn, messages: vec![row], files: Vec::new(), steps });
            }
        }
    }
    for turn in &mut turns {
        for row in &turn.messages {
            turn.files.extend(inbound_files(row)?);
        }
    }
    Ok(turns)
}

/// Parses a step; `None` if the page does not show it, or this program cannot read it.
fn read_step(row: &TurnStepRow) -> Option<JournalStep> {
    let mut body: Value = serde_json::from_str(&row.body).ok()?;
    match row.kind.as_str() {
        "context" => Some(JournalStep::Started),
        "response" => Some(JournalStep::Response(serde_json::from_value(body["response"].take()).ok()?)),
        "tool_result" => Some(JournalStep::Result {
            call: body["call_id"].as_str()?.to_owned(),
            name: body["name"].as_str()?.to_owned(),
            result: serde_json::from_value(body["result"].take()).ok()?,
        }),
        _ => None,
    }
}

impl OpenTurn {
    /// Returns the state of the turn: the most advanced state of its messages.
    fn state(&self) -> InboxState {
        let has = |state| self.messages.iter().any(|row| row.state == state);
        [InboxState::Running, InboxState::Waiting].into_iter().find(|state| has(*state)).unwrap_or(InboxState::Queued)
    }

    /// Returns the events that correspond to the journal.
    fn events(&self) -> Vec<TurnEvent> {
        let mut events = Vec::new();
        for step in &self.steps {
            match step {
                // A second context step is a compacted context.
                JournalStep::Started if events.is_empty() => events.push(TurnEvent::Started),
                JournalStep::Started => {}
                JournalStep::Response(response) => add_response(response, &mut events),
                JournalStep::Result { call, name, result } => events.push(TurnEvent::ToolResult {
                    id: call.clone(),
                    name: name.clone(),
                    content: without_notes(&result.render()).to_owned(),
                    success: result.success,
                    duration_ms: result.duration_ms,
                }),
            }
        }
        events
    }

    fn journaled(&self) -> JournaledCalls<'_> {
        let mut journaled = JournaledCalls::default();
        for step in &self.steps {
            match step {
                JournalStep::Started => {}
                JournalStep::Response(response) => {
                    journaled.called.extend(response.tool_calls.iter().map(|call| call.id.as_str()));
                    journaled.has_answer = response.tool_calls.is_empty();
                }
                JournalStep::Result { call, .. } => journaled.answered.push(call),
            }
        }
        journaled
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
