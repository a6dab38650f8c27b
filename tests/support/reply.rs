//! The answers of the scripted model, and their wire formats.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

use super::deadline;

/// One call of a tool.
#[derive(Clone, Debug)]
pub struct Call {
    pub id: Option<String>,
    pub name: String,
    /// The arguments as the model writes them. They are text, so that broken JSON can be scripted.
    pub arguments: String,
}

/// Holds answers back until a test releases them, so that tests wait for states and never for a time.
#[derive(Clone)]
pub struct Gate {
    permits: Arc<Semaphore>,
    arrived: Arc<watch::Sender<usize>>,
}

impl Gate {
    /// Creates a closed gate.
    pub fn new() -> Self {
        Self { permits: Arc::new(Semaphore::new(0)), arrived: Arc::new(watch::Sender::new(0)) }
    }

    /// Returns when `count` requests have arrived at the gate since its creation.
    pub async fn wait_arrived(&self, count: usize) {
        let mut arrived = self.arrived.subscribe();
        deadline(&format!("{count} requests at the gate"), arrived.wait_for(|n| *n >= count))
            .await
            .expect("gate lives");
    }

    /// Lets `count` requests through.
    pub fn release(&self, count: usize) {
        self.permits.add_permits(count);
    }

    /// Opens permanently.
    pub fn open(&self) {
        self.permits.close();
    }

    pub(super) async fn pass(&self) {
        self.arrived.send_modify(|n| *n += 1);
        if let Ok(permit) = self.permits.acquire().await {
            permit.forget();
        }
    }
}

/// One scripted answer. A constructor creates it, and methods refine it.
#[derive(Clone, Default)]
pub struct Reply {
    pub(super) text: String,
    pub(super) reasoning: String,
    pub(super) calls: Vec<Call>,
    pub(super) delay: Duration,
    pub(super) chunk_delay: Duration,
    pub(super) chunk_chars: Option<usize>,
    pub(super) gate: Option<Gate>,
    pub(super) gates_after_chunks: Vec<(Gate, usize)>,
    pub(super) hang: bool,
    pub(super) status: Option<u16>,
    pub(super) retry_after: Option<String>,
    pub(super) drop_after: Option<usize>,
    pub(super) raw: Option<Vec<Vec<u8>>>,
    pub(super) for_ever: Option<(Vec<u8>, Duration)>,
    pub(super) headers: Vec<(&'static str, &'static str)>,
    pub(super) bom: bool,
    pub(super) interleaved: bool,
    pub(super) one_byte: bool,
    pub(super) crlf: bool,
    pub(super) usage: Option<(u64, u64)>,
    pub(super) reasoning_tokens: u64,
    pub(super) no_usage: bool,
    pub(super) old_form: bool,
    pub(super) cached: (u64, u64),
    pub(super) finish: Option<String>,
}

impl Reply {
    /// Creates a final answer.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Creates an answer with one tool call.
    pub fn tool(name: &str, arguments: &Value) -> Self {
        Self::default().and_tool(name, arguments)
    }

    /// Creates an answer with one tool call and exactly these arguments.
    pub fn raw_tool(name: &str, arguments: &str) -> Self {
        let call = Call { id: None, name: name.to_owned(), arguments: arguments.to_owned() };
        Self { calls: vec![call], ..Self::default() }
    }

    /// Creates an error answer.
    pub fn status(status: u16) -> Self {
        Self { status: Some(status), ..Self::default() }
    }

    /// Creates an answer with a raw body and status 200.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self { raw: Some(vec![bytes.into()]), ..Self::default() }
    }

    /// Creates a streamed answer with the data of these events and no further markers, which then ends.
    pub fn events<'a>(data: impl IntoIterator<Item = &'a str>) -> Self {
        let events = data.into_iter().map(|data| format!("data: {data}\n\n").into_bytes());
        Self { raw: Some(events.collect()), ..Self::default() }
    }

    /// Creates an answer that never sends headers.
    pub fn hang() -> Self {
        Self { hang: true, ..Self::default() }
    }

    /// Adds a tool call to the same answer.
    pub fn and_tool(mut self, name: &str, arguments: &Value) -> Self {
        self.calls.push(Call { id: None, name: name.to_owned(), arguments: arguments.to_string() });
        self
    }

    /// Sets the id of the last tool call; by default each call gets a new one.
    pub fn call_id(mut self, id: &str) -> Self {
        if let Some(call) = self.calls.last_mut() {
            call.id = Some(id.to_owned());
        }
        self
    }

    /// Sets the text that accompanies the tool calls, or the message of an error answer.
    pub fn saying(mut self, text: &str) -> Self {
        self.text = text.to_owned();
        self
    }

    /// Sets the reasoning, sent before the text as `reasoning_content`, or as a thinking block with its signature.
    pub fn reasoning(mut self, text: &str) -> Self {
        self.reasoning = text.to_owned();
        self
    }

    /// Sets Retry-After: seconds or a date.
    pub fn retry_after(mut self, value: &str) -> Self {
        self.retry_after = Some(value.to_owned());
        self
    }

    /// Sets the time before the headers.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets the time before each chunk of a stream.
    pub fn chunk_delay(mut self, delay: Duration) -> Self {
        self.chunk_delay = delay;
        self
    }

    /// Sets the number of characters of text in one chunk of a stream; the default is 16.
    pub fn chunk_chars(mut self, chars: usize) -> Self {
        self.chunk_chars = Some(chars);
        self
    }

    /// Holds the answer back until `gate` releases it.
    pub fn held_by(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// Stalls the stream after `chunks` events until `gate` releases it; can be set several times.
    pub fn stalls_after(mut self, chunks: usize, gate: &Gate) -> Self {
        self.gates_after_chunks.push((gate.clone(), chunks));
        self
    }

    /// Cuts the connection after `chunks` events.
    pub fn drops_after(mut self, chunks: usize) -> Self {
        self.drop_after = Some(chunks);
        self
    }

    /// After the answer, repeats `bytes`, one every `pace`, until the caller disconnects.
    pub fn repeating_for_ever(mut self, bytes: impl Into<Vec<u8>>, pace: Duration) -> Self {
        self.for_ever = Some((bytes.into(), pace));
        self
    }

    /// Adds a header to an answer with status 200.
    pub fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Begins the stream with a byte order mark.
    pub fn with_bom(mut self) -> Self {
        self.bom = true;
        self
    }

    /// Interleaves the pieces of the tool calls: one piece of each call at a time.
    pub fn interleaved(mut self) -> Self {
        self.interleaved = true;
        self
    }

    /// Sends each byte alone.
    pub fn one_byte_chunks(mut self) -> Self {
        self.one_byte = true;
        self
    }

    /// Ends lines with CR LF.
    pub fn crlf(mut self) -> Self {
        self.crlf = true;
        self
    }

    /// Sets the tokens of the prompt and of the answer; the default is an estimate from the lengths.
    pub fn usage(mut self, prompt: u64, completion: u64) -> Self {
        self.usage = Some((prompt, completion));
        self
    }

    /// Sets reasoning tokens that only the total includes.
    pub fn thinking_tokens(mut self, tokens: u64) -> Self {
        self.reasoning_tokens = tokens;
        self
    }

    /// Reports no usage.
    pub fn without_usage(mut self) -> Self {
        self.no_usage = true;
        self
    }

    /// Sets the tokens read from the service's cache and written to it, if the protocol counts both.
    pub fn cached(mut self, read: u64, written: u64) -> Self {
        self.cached = (read, written);
        self
    }

    /// Sets the finish reason in the words of the protocol.
    pub fn finish(mut self, reason: &str) -> Self {
        self.finish = Some(reason.to_owned());
        self
    }

    /// Sends the call in the format from before tools: `function_call`, without an id.
    pub fn in_function_call_form(mut self) -> Self {
        self.old_form = true;
        self
    }
}

/// Splits `text` into pieces of `chars` characters.
pub(super) fn pieces(text: &str, chars: usize) -> Vec<String> {
    let all: Vec<char> = text.chars().collect();
    all.chunks(chars.max(1)).map(|piece| piece.iter().collect()).collect()
}

/// An answer in the service's wire format, for request number `n` of the model `model`.
pub(super) struct Rendered<'a> {
    pub reply: &'a Reply,
    pub n: usize,
    pub model: &'a str,
    pub prompt_chars: usize,
}

impl Rendered<'_> {
    pub(super) fn usage(&self) -> Value {
        let guess = |chars: usize| u64::try_from(chars / 4 + 1).expect("a length fits");
        let written = self.reply.text.len() + self.reply.calls.iter().map(|call| call.arguments.len()).sum::<usize>();
        let (prompt, completion) = self.reply.usage.unwrap_or((guess(self.prompt_chars), guess(written)));
        if self.reply.no_usage {
            return Value::Null;
        }
        let total = prompt + completion + self.reply.reasoning_tokens;
        json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total})
    }

    pub(super) fn call_id(&self, index: usize, call: &Call) -> String {
        call.id.clone().unwrap_or_else(|| format!("call_{}_{index}", self.n))
    }

    fn finish_reason(&self) -> &str {
        let usual = match (self.reply.calls.is_empty(), self.reply.old_form) {
            (true, _) => "stop",
            (false, false) => "tool_calls",
            (false, true) => "function_call",
        };
        self.reply.finish.as_deref().unwrap_or(usual)
    }

    /// Returns the body of an answer that is not streamed.
    pub fn plain(&self) -> Value {
        let mut message = json!({"role": "assistant", "content": self.reply.text});
        if !self.reply.reasoning.is_empty() {
            message["reasoning_content"] = json!(self.reply.reasoning);
        }
        if !self.reply.calls.is_empty() {
            let calls = self.reply.calls.iter().enumerate().map(|(i, call)| {
                let function = json!({"name": call.name, "arguments": call.arguments});
                json!({"id": self.call_id(i, call), "type": "function", "function": function})
            });
            message["tool_calls"] = calls.collect();
            if self.reply.text.is_empty() {
                message["content"] = Value::Null;
            }
        }
        json!({"id": format!("chatcmpl-{}", self.n), "object": "chat.completion", "created": 1_700_000_000,
            "model": self.model, "usage": self.usage(),
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish_reason()}]})
    }

    fn chunk(&self, choices: &Value, usage: &Value) -> Value {
        json!({"id": format!("chatcmpl-{}", self.n), "object": "chat.completion.chunk", "created": 1_700_000_000,
            "model": self.model, "choices": choices, "usage": usage})
    }

    /// Returns the pieces of all calls, in the order of sending.
    fn call_pieces(&self, chars: usize) -> Vec<Value> {
        let mut all = Vec::new();
        for (index, call) in self.reply.calls.iter().enumerate() {
            let function = json!({"name": call.name, "arguments": ""});
            all.push((
                0,
                json!({"index": index, "id": self.call_id(index, call), "type": "function", "function": function}),
            ));
            let tails = pieces(&call.arguments, chars).into_iter().zip(1..);
            all.extend(tails.map(|(piece, n)| (n, json!({"index": index, "function": {"arguments": piece}}))));
        }
        if self.reply.interleaved {
            all.sort_by_key(|(n, _)| *n);
        }
        all.into_iter().map(|(_, piece)| piece).collect()
    }

    /// Returns the events of a streamed answer, each with its `data:` and blank line.
    pub fn events(&self, include_usage: bool) -> Vec<Vec<u8>> {
        let delta =
            |delta: Value| self.chunk(&json!([{"index": 0, "delta": delta, "finish_reason": null}]), &Value::Null);
        let chars = self.reply.chunk_chars.unwrap_or(16);
        let mut chunks = vec![delta(json!({"role": "assistant", "content": ""}))];
        for piece in pieces(&self.reply.reasoning, chars) {
            chunks.push(delta(json!({"reasoning_content": piece})));
        }
        for piece in pieces(&self.reply.text, chars) {
            chunks.push(delta(json!({"content": piece})));
        }
        for call in self.reply.calls.iter().filter(|_| self.reply.old_form) {
            chunks.push(delta(json!({"function_call": {"name": call.name, "arguments": ""}})));
            for piece in pieces(&call.arguments, chars) {
                chunks.push(delta(json!({"function_call": {"arguments": piece}})));
            }
        }
        if !self.reply.old_form {
            chunks.extend(self.call_pieces(chars).into_iter().map(|piece| delta(json!({"tool_calls": [piece]}))));
        }
        let last = json!([{"index": 0, "delta": {}, "finish_reason": self.finish_reason()}]);
        chunks.push(self.chunk(&last, &Value::Null));
        if include_usage {
            chunks.push(self.chunk(&json!([]), &self.usage()));
        }
        let newline = if self.reply.crlf { "\r\n" } else { "\n" };
        let mut events: Vec<_> = chunks.iter().map(|chunk| format!("data: {chunk}{newline}{newline}")).collect();
        events.push(format!("data: [DONE]{newline}{newline}"));
        if self.reply.bom {
            events[0].insert(0, '\u{feff}');
        }
        events.into_iter().map(String::into_bytes).collect()
    }
}
