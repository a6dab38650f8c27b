//! Measures daoyou's own processing of a model's requests and answers, without a network: `cargo bench --bench llm`.
//! Comparable numbers need an otherwise idle machine. No benchmark here is a test.

use std::sync::Arc;

use daoyou::chat::{ChatMessage, ToolCall, ToolSpec};
use daoyou::llm::{ChatRequest, ChatResponse, Images, MeasuredDialect, NoDeltas};
use daoyou::sse::SseReader;
use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use serde_json::{Value, json};

/// The size of one read from a socket.
const READ: usize = 16 * 1024;
const EVENT_LIMIT: usize = 16 * 1024 * 1024;
const STREAM: usize = 4 * 1024 * 1024;

fn main() {
    divan::main();
}

/// Returns the data of an event with this delta.
fn delta(delta: &Value) -> String {
    let choices = json!([{"index": 0, "delta": delta, "finish_reason": null}]);
    json!({"id": "chatcmpl-0123456789", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "measured",
           "choices": choices, "usage": null})
    .to_string()
}

fn finish(reason: &str) -> String {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}).to_string()
}

fn dialect() -> MeasuredDialect {
    MeasuredDialect::openai("http://127.0.0.1/v1", &tools()).expect("the address is one")
}

fn tools() -> Arc<[ToolSpec]> {
    let parameters = json!({"type": "object", "required": ["path"], "properties": {
        "path": {"type": "string", "description": "A path below the workspace."},
        "limit": {"type": "integer", "minimum": 1}}});
    let tool = |n: usize| ToolSpec {
        name: format!("tool_{n}"),
        description: "Does one thing to one file, and says what it did.".to_owned(),
        parameters: parameters.clone(),
    };
    (0..12).map(tool).collect()
}

/// Reading events, from single words to a whole answer in one event.
mod sse {
    use super::*;

    /// Reads events with `text` bytes each.
    #[divan::bench(args = [4, 64, 1_024, 65_536, 1_048_576])]
    fn read(bencher: Bencher<'_, '_>, text: usize) {
        let event = format!("data: {}\n\n", delta(&json!({"content": "x".repeat(text)})));
        let stream = event.repeat((STREAM / event.len()).max(1)).into_bytes();
        bencher.counter(BytesCount::new(stream.len())).bench(|| {
            let mut reader = SseReader::new(EVENT_LIMIT);
            let mut bytes = 0;
            for piece in black_box(&stream).chunks(READ) {
                reader.push(piece);
                while let Ok(Some(data)) = reader.next_event() {
                    bytes += data.len();
                }
            }
            bytes
        });
    }
}

/// Assembling an answer from 1,000 deltas.
mod assemble {
    use super::*;

    fn measure(bencher: Bencher<'_, '_>, events: &[String]) {
        let dialect = dialect();
        bencher.counter(ItemsCount::new(events.len())).bench(|| -> ChatResponse {
            let events = black_box(events).iter().map(String::as_str);
            dialect.assemble(events, &NoDeltas).expect("the events are an answer")
        });
    }

    #[divan::bench]
    fn text_of_1000_deltas(bencher: Bencher<'_, '_>) {
        let mut events: Vec<_> = (0..1_000).map(|n| delta(&json!({"content": format!(" word{n}")}))).collect();
        events.push(finish("stop"));
        measure(bencher, &events);
    }

    /// Assembles one call whose arguments arrive in 1,000 pieces.
    #[divan::bench]
    fn arguments_of_1000_deltas(bencher: Bencher<'_, '_>) {
        measure(bencher, &calls(1));
    }

    /// Assembles eight calls whose arguments arrive interleaved.
    #[divan::bench]
    fn arguments_of_8_calls_in_1000_deltas(bencher: Bencher<'_, '_>) {
        measure(bencher, &calls(8));
    }

    fn calls(count: usize) -> Vec<String> {
        let head = |index: usize| {
            let function = json!({"name": "tool_1", "arguments": "{\"path\": \""});
            delta(&json!({"tool_calls": [{"index": index, "id": format!("call_{index}"), "type": "function",
                                          "function": function}]}))
        };
        let tail = |index: usize, piece: &str| {
            delta(&json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}))
        };
        let mut events: Vec<_> = (0..count).map(head).collect();
        events.extend((0..1_000).map(|n| tail(n % count, "some/path/")));
        events.extend((0..count).map(|index| tail(index, "\"}")));
        events.push(finish("tool_calls"));
        events
    }
}

/// Writing the body of a request.
mod request {
    use super::*;

    /// Writes a conversation of `messages` messages with calls and their results.
    #[divan::bench(args = [4, 100])]
    fn write(bencher: Bencher<'_, '_>, messages: usize) {
        let dialect = dialect();
        let request = ChatRequest {
            model: "measured".to_owned(),
            system: "You are a helpful assistant. ".repeat(100).into(),
            messages: (0..messages).map(|number| message(number).into()).collect(),
            images: Images::default(),
            tools: tools(),
            temperature: Some(0.1),
            max_tokens: Some(8_192),
        };
        let length = dialect.body(&request).expect("it can be written").len();
        bencher
            .counter(BytesCount::new(length))
            .bench(|| dialect.body(black_box(&request)).expect("it can be written"));
    }

    fn message(n: usize) -> ChatMessage {
        let id = format!("call_{}", n / 4);
        match n % 4 {
            0 => ChatMessage::user("What does the file say, and what is to be done about it? 请用中文回答。"),
            1 => ChatMessage::Assistant {
                content: String::new(),
                reasoning: None,
                tool_calls: vec![ToolCall {
                    id,
                    name: "tool_1".to_owned(),
                    arguments: json!({"path": "notes/today.md", "limit": 200}).to_string(),
                }],
            },
            2 => ChatMessage::Tool {
                call_id: id,
                name: "tool_1".to_owned(),
                content: "A line of a file with \"quotes\" and\ttabs, as files have them.\n".repeat(20),
                images: Vec::new(),
            },
            _ => ChatMessage::assistant("It says that there is much to do. ".repeat(5)),
        }
    }
}
