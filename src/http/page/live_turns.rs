//! What the running turns have sent since a page was open, with the pieces of each text joined.

use std::collections::HashMap;

use daoyou_channels::{SessionEvent, TurnEvent};
use uuid::Uuid;

/// The most turns, and the most bytes of one; what is beyond is in the journal when its step is complete.
const MAX_TURNS: usize = 1_000;
const MAX_BYTES: usize = 4 << 20;

/// The events of running turns.
#[derive(Debug, Default)]
pub struct LiveTurns(HashMap<Uuid, LiveTurn>);

/// The events of one turn.
#[derive(Debug, Default)]
pub struct LiveTurn {
    /// The responses of the model, each with the results of its calls, in order; the last one may be incomplete.
    responses: Vec<Vec<TurnEvent>>,
    bytes: usize,
    is_complete: bool,
}

/// The calls and the answer that the journal of a turn has.
#[derive(Debug, Default)]
pub struct JournaledCalls<'a> {
    pub called: Vec<&'a str>,
    pub answered: Vec<&'a str>,
    /// The last response has no calls: it is the answer.
    pub has_answer: bool,
}

impl LiveTurns {
    /// Records an event; returns true if the turn has ended with it.
    pub fn take(&mut self, event: &SessionEvent) -> bool {
        if matches!(event.event, TurnEvent::Done { .. } | TurnEvent::Error { .. }) {
            self.0.remove(&event.turn);
            return true;
        }
        if self.0.len() < MAX_TURNS || self.0.contains_key(&event.turn) {
            self.0.entry(event.turn).or_default().take(&event.event);
        }
        false
    }

    /// Returns the events of a turn that its journal does not have yet.
    pub fn beyond(&self, turn: Uuid, journal: &JournaledCalls<'_>) -> Vec<TurnEvent> {
        self.0.get(&turn).map(|turn| turn.beyond(journal)).unwrap_or_default()
    }
}

impl LiveTurn {
    fn take(&mut self, event: &TurnEvent) {
        if matches!(event, TurnEvent::Started) {
            return;
        }
        if self.bytes > MAX_BYTES {
            return;
        }
        // A response is complete with its usage. Calls with their arguments, and results, still belong to it.
        let is_next = match event {
            TurnEvent::Text { .. } | TurnEvent::Thinking { .. } | TurnEvent::Usage { .. } => self.is_complete,
            TurnEvent::ToolCall { args_complete, .. } => self.is_complete && !args_complete,
            _ => false,
        };
        if is_next || self.responses.is_empty() {
            self.responses.push(Vec::new());
            self.is_complete = false;
        }
        let Some(response) = self.responses.last_mut() else { return };
        match (response.last_mut(), event) {
            (_, TurnEvent::Restart) => {
                if !self.is_complete {
                    response.clear();
                }
            }
            (Some(TurnEvent::Text { delta: before }), TurnEvent::Text { delta })
            | (Some(TurnEvent::Thinking { delta: before }), TurnEvent::Thinking { delta }) => {
                before.push_str(delta);
                self.bytes += delta.len();
            }
            (_, TurnEvent::ToolCall { id, .. }) => {
                let known =
                    response.iter().position(|old| matches!(old, TurnEvent::ToolCall { id: old, .. } if old == id));
                match known {
                    Some(at) => response[at] = event.clone(),
                    None => response.push(event.clone()),
                }
            }
            _ => {
                if let TurnEvent::Text { delta } | TurnEvent::Thinking { delta } = event {
                    self.bytes += delta.len();
                }
                if let TurnEvent::ToolResult { content, .. } = event {
                    self.bytes += content.len();
                }
                self.is_complete |= matches!(event, TurnEvent::Usage { .. });
                response.push(event.clone());
            }
        }
    }

    fn beyond(&self, journal: &JournaledCalls<'_>) -> Vec<TurnEvent> {
        let mut beyond = Vec::new();
        for response in &self.responses {
            let calls: Vec<_> = response.iter().filter_map(called).collect();
            let is_journaled = match calls.is_empty() {
                true => journal.has_answer,
                false => calls.iter().any(|id| journal.called.contains(id)),
            };
            let new = response.iter().filter(|event| match event {
                TurnEvent::ToolResult { id, .. } => !journal.answered.contains(&id.as_str()),
                TurnEvent::ToolCall { id, .. } => !journal.called.contains(&id.as_str()),
                _ => !is_journaled,
            });
            beyond.extend(new.cloned());
        }
        beyond
    }
}

/// Returns the id of a call, or of the call of a result.
fn called(event: &TurnEvent) -> Option<&str> {
    match event {
        TurnEvent::ToolCall { id, .. } | TurnEvent::ToolResult { id, .. } => Some(id),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(delta: &str) -> TurnEvent {
        TurnEvent::Text { delta: delta.to_owned() }
    }

    fn call(id: &str, args_complete: bool) -> TurnEvent {
        TurnEvent::ToolCall { id: id.to_owned(), name: "f".to_owned(), arguments: None, args_complete }
    }

    fn result(id: &str) -> TurnEvent {
        TurnEvent::ToolResult {
            id: id.to_owned(),
            name: "f".to_owned(),
            content: "r".to_owned(),
            success: true,
            duration_ms: 1,
        }
    }

    const USAGE: TurnEvent = TurnEvent::Usage { input_tokens: 1, output_tokens: 1, cached_tokens: 0 };

    fn turn(events: &[TurnEvent]) -> LiveTurn {
        let mut turn = LiveTurn::default();
        events.iter().for_each(|event| turn.take(event));
        turn
    }

    #[test]
    fn the_journal_and_the_events_join_without_loss_or_doubling() {
        let events = [
            text("Let "),
            text("me"),
            call("1", false),
            call("1", true),
            USAGE,
            call("1", true),
            result("1"),
            text("Now"),
        ];
        let turn = turn(&events);
        let journal = |called: &[&'static str], answered: &[&'static str], has_answer| JournaledCalls {
            called: called.to_vec(),
            answered: answered.to_vec(),
            has_answer,
        };
        let all = vec![text("Let me"), call("1", true), USAGE, result("1"), text("Now")];
        assert_eq!(turn.beyond(&journal(&[], &[], false)), all, "nothing is in the journal");
        assert_eq!(turn.beyond(&journal(&["1"], &[], false)), [result("1"), text("Now")]);
        assert_eq!(turn.beyond(&journal(&["1"], &["1"], false)), [text("Now")]);
        assert_eq!(turn.beyond(&journal(&["1"], &["1"], true)), [], "the answer is in the journal, too");
    }

    #[test]
    fn a_restart_voids_the_response_alone() {
        let events = [
            text("a"),
            call("1", false),
            USAGE,
            result("1"),
            text("b"),
            call("2", false),
            TurnEvent::Restart,
            text("c"),
        ];
        let beyond = turn(&events).beyond(&JournaledCalls::default());
        assert_eq!(beyond, [text("a"), call("1", false), USAGE, result("1"), text("c")]);
    }
}
