//! The events of a running turn.

use std::sync::Arc;

use daoyou_channels::{SessionEvent, SessionKey, TurnEvent};
use parking_lot::Mutex;
use serde_json::Value;
use uuid::Uuid;

use crate::bus::EventHub;
use crate::chat::{ToolCall, Usage};
use crate::llm::{Delta, DeltaSink};
use crate::text::think::{self, ThinkFilter, ThinkPiece};

/// Emits the events of one turn, and keeps the text of the current response in case the turn is stopped.
pub struct EventEmitter {
    hub: Arc<EventHub>,
    session: SessionKey,
    turn: Uuid,
    channel: String,
    chat_id: String,
    stream: Mutex<ResponseStream>,
}

#[derive(Default)]
struct ResponseStream {
    filter: ThinkFilter,
    text: String,
    /// The length of `text` at the first think block.
    block_at: Option<usize>,
    /// The number of the hub's sink that has received the text.
    sink: u64,
}

impl EventEmitter {
    pub fn new(hub: Arc<EventHub>, session: SessionKey, turn: Uuid, channel: &str, chat_id: &str) -> Self {
        let (channel, chat_id) = (channel.to_owned(), chat_id.to_owned());
        Self { hub, session, turn, channel, chat_id, stream: Mutex::default() }
    }

    /// Emits an event; without listeners it is not even built.
    pub fn emit(&self, event: impl FnOnce() -> TurnEvent) {
        if self.hub.is_watched() {
            self.hub.emit(&self.event(event()));
        }
    }

    fn event(&self, event: TurnEvent) -> SessionEvent {
        SessionEvent {
            session: self.session.clone(),
            turn: self.turn,
            channel: self.channel.clone(),
            chat_id: self.chat_id.clone(),
            event,
        }
    }

    /// Ends a response: emits the held-back text and clears the state of the response.
    pub fn end_response(&self) {
        let pieces = {
            let mut stream = self.stream.lock();
            stream.text.clear();
            stream.block_at = None;
            stream.filter.finish()
        };
        self.show(pieces);
    }

    /// Emits the calls that are complete and run next.
    pub fn calls<'a>(&self, calls: impl Iterator<Item = &'a ToolCall>) {
        for call in calls {
            self.emit(|| TurnEvent::ToolCall {
                id: call.id.clone(),
                name: call.name.clone(),
                arguments: Some(shown_arguments(&call.arguments)),
                args_complete: true,
            });
        }
    }

    /// Emits the usage of a model call.
    pub fn used(&self, usage: Usage) {
        let Usage { input_tokens, output_tokens, cached_tokens, .. } = usage;
        self.emit(|| TurnEvent::Usage { input_tokens, output_tokens, cached_tokens });
    }

    /// Takes the text of the current response so far, without thinking.
    pub fn partial_text(&self) -> String {
        let (text, block_at) = {
            let mut stream = self.stream.lock();
            (std::mem::take(&mut stream.text), stream.block_at.take())
        };
        // The text lacks the opening tags of think blocks: a closing tag after a block is a mention.
        let before_block = block_at.unwrap_or(text.len());
        match think::after_unopened_block(&text).filter(|rest| text.len() - rest.len() <= before_block) {
            Some(rest) => rest.trim_start().to_owned(),
            None => text,
        }
    }

    fn show(&self, pieces: Vec<ThinkPiece>) {
        for piece in pieces {
            self.emit(|| match piece {
                ThinkPiece::Text(delta) => TurnEvent::Text { delta },
                ThinkPiece::Thought(delta) => TurnEvent::Thinking { delta },
            });
        }
    }
}

impl DeltaSink for EventEmitter {
    fn delta(&self, delta: Delta<'_>) {
        match delta {
            Delta::Text(text) => {
                let pieces = {
                    let mut stream = self.stream.lock();
                    let sink = self.hub.sink_number();
                    if sink != std::mem::replace(&mut stream.sink, sink) && sink > 0 && !stream.text.is_empty() {
                        // The sink connected after the response began. It may have received the last piece already.
                        self.hub.catch_up(&self.event(TurnEvent::Restart));
                        self.hub.catch_up(&self.event(TurnEvent::Text { delta: stream.text.clone() }));
                    }
                    let pieces = stream.filter.push(text);
                    for piece in &pieces {
                        match piece {
                            ThinkPiece::Text(text) => stream.text.push_str(text),
                            ThinkPiece::Thought(_) => {
                                let length = stream.text.len();
                                stream.block_at.get_or_insert(length);
                            }
                        }
                    }
                    pieces
                };
                self.show(pieces);
            }
            Delta::Reasoning(text) => self.emit(|| TurnEvent::Thinking { delta: text.to_owned() }),
            Delta::ToolCall { id, name } => self.emit(|| TurnEvent::ToolCall {
                id: id.to_owned(),
                name: name.to_owned(),
                arguments: None,
                args_complete: false,
            }),
            Delta::Restart => {
                *self.stream.lock() = ResponseStream::default();
                self.emit(|| TurnEvent::Restart);
            }
        }
    }
}

/// Returns arguments as JSON for listeners; invalid JSON stays the text that the model wrote, so that the error is visible.
fn shown_arguments(written: &str) -> Value {
    if written.trim().is_empty() {
        return Value::Object(serde_json::Map::new());
    }
    serde_json::from_str(written).unwrap_or_else(|_| Value::from(written))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_of_a_stopped_response_is_without_thinking() {
        let emitter = EventEmitter::new(Arc::default(), "s".into(), Uuid::nil(), "c", "c");
        for (text, expected) in [
            ("Hel", "Hel"),
            ("hm\n</think>\n\nHel", "Hel"),
            ("<think>hm</think>\nIt ends with\n</think>\nHel", "It ends with\n</think>\nHel"),
            ("hm\n</think>\n<think>more</think>\nHel", "Hel"),
        ] {
            emitter.delta(Delta::Text(text));
            assert_eq!(emitter.partial_text(), expected);
            emitter.end_response();
        }
    }

    #[test]
    fn invalid_arguments_are_shown_as_written() {
        for (written, shown) in [
            ("", json!({})),
            (" \n", json!({})),
            ("{\"path\":\"a\"}", json!({"path": "a"})),
            ("{\"path\":", json!("{\"path\":")),
            ("ls -la", json!("ls -la")),
        ] {
            assert_eq!(shown_arguments(written), shown, "{written:?}");
        }
    }
}
