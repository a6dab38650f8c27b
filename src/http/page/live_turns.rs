//! The events that running turns have sent since a page was opened, with the pieces of each text joined.

use std::collections::{HashMap, VecDeque};

use daoyou_channels::{SessionEvent, TurnEvent};
use uuid::Uuid;

use crate::query::open_turns::JournaledCalls;

/// The maximum size, in bytes, of one turn; anything beyond is in the journal once its step is complete.
const MAX_BYTES: usize = 4 << 20;
/// The maximum number of turns, and the maximum size, in bytes, of all turns. The turn that was silent the longest is
/// removed first: it may have ended unnoticed.
const MAX_TURNS: usize = 1_000;
const MAX_TOTAL: usize = 64 << 20;
/// The maximum number of turns that are kept after their end: an end is in the store a little later than its event.
const MAX_ENDED: usize = 32;
/// The approximate size of an event without its texts, in bytes.
const EVENT_BYTES: usize = 128;

/// The events of running turns.
#[derive(Debug, Default)]
pub struct LiveTurns {
    turns: HashMap<Uuid, LiveTurn>,
    ended: VecDeque<Uuid>,
    bytes: usize,
    /// The number of recorded events.
    count: u64,
}

/// The events of one turn.
#[derive(Debug, Default)]
pub struct LiveTurn {
    /// The responses of the model, each with the results of its calls, in order; the last one may be incomplete.
    responses: Vec<Vec<TurnEvent>>,
    bytes: usize,
    is_complete: bool,
    /// The number of the turn's last event.
    last: u64,
}

impl LiveTurns {
    /// Records an event; returns true if the event ends the turn.
    pub fn take(&mut self, event: &SessionEvent) -> bool {
        if matches!(event.event, TurnEvent::Done { .. } | TurnEvent::Error { .. }) {
            self.ended.retain(|ended| *ended != event.turn);
            self.ended.push_back(event.turn);
            if self.ended.len() > MAX_ENDED
                && let Some(oldest) = self.ended.pop_front()
            {
                self.remove(oldest);
            }
            return true;
        }
        if matches!(event.event, TurnEvent::Started) && self.ended.contains(&event.turn) {
            self.ended.retain(|ended| *ended != event.turn);
            self.remove(event.turn);
        }
        self.count += 1;
        let turn = self.turns.entry(event.turn).or_default();
        let before = turn.bytes;
        turn.last = self.count;
        turn.take(&event.event);
        self.bytes = self.bytes + turn.bytes - before;
        while self.turns.len() > MAX_TURNS || self.bytes > MAX_TOTAL {
            let Some(silent) = self.turns.iter().min_by_key(|(_, turn)| turn.last).map(|(id, _)| *id) else { break };
            self.remove(silent);
        }
        false
    }

    fn remove(&mut self, turn: Uuid) {
        self.bytes -= self.turns.remove(&turn).map_or(0, |turn| turn.bytes);
    }

    /// Returns the events of a turn that its journal does not contain yet.
    pub fn beyond(&self, turn: Uuid, journal: &JournaledCalls) -> Vec<TurnEvent> {
        self.turns.get(&turn).map(|turn| turn.beyond(journal)).unwrap_or_default()
    }
}

impl LiveTurn {
    fn take(&mut self, event: &TurnEvent) {
        if matches!(event, TurnEvent::Started) {
            return;
        }
        if matches!(event, TurnEvent::Restart) {
            if !self.is_complete
                && let Some(response) = self.responses.last_mut()
            {
                self.bytes -= response.drain(..).map(|event| size(&event)).sum::<usize>();
            }
            return;
        }
        if self.bytes > MAX_BYTES {
            return;
        }
        // The usage completes a response. Calls with their arguments, and results, still belong to it.
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
        if let (Some(TurnEvent::Text { delta: before }), TurnEvent::Text { delta })
        | (Some(TurnEvent::Thinking { delta: before }), TurnEvent::Thinking { delta }) = (response.last_mut(), event)
        {
            before.push_str(delta);
            self.bytes += delta.len();
            return;
        }
        self.is_complete |= matches!(event, TurnEvent::Usage { .. });
        self.bytes += size(event);
        let known = match event {
            TurnEvent::ToolCall { id, .. } => {
                response.iter_mut().find(|old| matches!(old, TurnEvent::ToolCall { id: old, .. } if old == id))
            }
            _ => None,
        };
        match known {
            Some(known) => {
                self.bytes -= size(known);
                *known = event.clone();
            }
            None => response.push(event.clone()),
        }
    }

    fn beyond(&self, journal: &JournaledCalls) -> Vec<TurnEvent> {
        let mut beyond = Vec::new();
        for response in &self.responses {
            let is_journaled = response.iter().filter_map(called).any(|id| journal.called.contains(id));
            let new = response.iter().filter(|event| match event {
                TurnEvent::ToolResult { id, .. } => !journal.answered.contains(id),
                TurnEvent::ToolCall { id, .. } => !journal.called.contains(id),
                _ => !is_journaled,
            });
            beyond.extend(new.cloned());
        }
        beyond
    }
}

/// Returns the approximate size of an event, in bytes.
fn size(event: &TurnEvent) -> usize {
    let text = match event {
        TurnEvent::Text { delta } | TurnEvent::Thinking { delta } => delta.len(),
        TurnEvent::ToolResult { content, .. } => content.len(),
        TurnEvent::ToolCall { arguments: Some(arguments), .. } => arguments.to_string().len(),
        _ => 0,
    };
    EVENT_BYTES + text
}

/// Returns the id of a call, or of the call that a result belongs to.
fn called(event: &TurnEvent) -> Option<&str> {
    match event {
        TurnEvent::ToolCall { id, .. } | TurnEvent::ToolResult { id, .. } => Some(id),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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

    fn session_event(turn: Uuid, event: TurnEvent) -> SessionEvent {
        let (channel, chat_id) = ("page".to_owned(), "a".to_owned());
        SessionEvent { session: "page:a".into(), turn, channel, chat_id, event }
    }

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
        let journal = |called: &[&'static str], answered: &[&'static str]| JournaledCalls {
            called: called.iter().map(|id| (*id).to_owned()).collect(),
            answered: answered.iter().map(|id| (*id).to_owned()).collect(),
        };
        let all = vec![text("Let me"), call("1", true), USAGE, result("1"), text("Now")];
        assert_eq!(turn.beyond(&journal(&[], &[])), all, "nothing is in the journal");
        assert_eq!(turn.beyond(&journal(&["1"], &[])), [result("1"), text("Now")]);
        assert_eq!(turn.beyond(&journal(&["1"], &["1"])), [text("Now")]);
    }

    #[test]
    fn an_ended_turn_is_known_until_many_others_have_ended() {
        let mut live = LiveTurns::default();
        let end = || TurnEvent::Error { message: "x".to_owned() };
        let [one, two] = [1, 2].map(Uuid::from_u128);
        let beyond = |live: &LiveTurns, turn| live.beyond(turn, &JournaledCalls::default());
        for turn in [one, two] {
            assert!(!live.take(&session_event(turn, text("a"))) && live.take(&session_event(turn, end())));
            assert_eq!(beyond(&live, turn), [text("a")], "its end may not be in the store yet");
        }
        live.take(&session_event(two, TurnEvent::Started));
        assert_eq!(beyond(&live, two), [], "it begins again");
        live.take(&session_event(two, text("b")));
        for turn in 3..3 + MAX_ENDED as u128 {
            live.take(&session_event(Uuid::from_u128(turn), end()));
        }
        assert_eq!((beyond(&live, one), beyond(&live, two)), (vec![], vec![text("b")]));
        assert_eq!(live.turns.len(), 1);
    }

    #[test]
    fn silent_turns_go_when_there_are_too_many_bytes() {
        let mut live = LiveTurns::default();
        let arguments = || Some(json!({ "text": "x".repeat(MAX_BYTES) }));
        let large = || TurnEvent::ToolCall {
            id: "1".to_owned(),
            name: "f".to_owned(),
            arguments: arguments(),
            args_complete: true,
        };
        let turns: Vec<Uuid> = (0..2 * MAX_TOTAL / MAX_BYTES).map(|n| Uuid::from_u128(n as u128)).collect();
        for turn in &turns {
            live.take(&session_event(*turn, large()));
            live.take(&session_event(turns[0], text("a")));
            assert!(live.bytes <= MAX_TOTAL, "{}", live.bytes);
        }
        let kept: Vec<_> = turns.iter().filter(|turn| live.turns.contains_key(turn)).collect();
        assert!(kept.len() < MAX_TOTAL / MAX_BYTES && kept.contains(&&turns[0]) && !kept.contains(&&turns[1]));
        live.take(&session_event(turns[0], TurnEvent::Restart));
        for turn in &turns {
            live.remove(*turn);
        }
        assert_eq!(live.bytes, 0);
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
