//! A scripted, strict, recording model server on loopback. It speaks OpenAI's chat completions and Anthropic's Messages.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use super::port::Port;
use super::reply::{Rendered, Reply};
use super::{anthropic, deadline, strict, strict_anthropic, until};

/// The beginning of the text that the gateway adds to the user's message.
pub const RUNTIME_CONTEXT: &str = "\n\n[Runtime Context]\n";

/// One request as a script sees it.
pub struct ModelRequest<'a> {
    /// The number of the request to this server, from 1.
    pub n: usize,
    pub body: &'a Value,
    /// The last user message, without the runtime context.
    pub user: String,
    /// The number of the model's answers since that message.
    pub step: usize,
    /// The tool results at the end of the request.
    pub results: Vec<String>,
}

impl<'a> ModelRequest<'a> {
    pub fn new(n: usize, body: &'a Value) -> Self {
        let messages = anthropic::flat(body["messages"].as_array().map_or(&[][..], Vec::as_slice));
        let role = |message: &Value, role: &str| message["role"] == role;
        let last = messages.iter().rposition(|message| role(message, "user"));
        let after = &messages[last.map_or(0, |i| i + 1)..];
        let results = after.iter().rev().take_while(|m| role(m, "tool")).map(|m| content(m).to_owned());
        let mut results: Vec<_> = results.collect();
        results.reverse();
        let user = last.map_or("", |i| user_text(content(&messages[i]))).to_owned();
        Self { n, body, user, step: after.iter().filter(|m| role(m, "assistant")).count(), results }
    }
}

/// Returns the system prompt of a request.
pub fn system_of(request: &Value) -> &str {
    let first = &messages_of(request)[0];
    assert_eq!(first["role"], "system", "{request}");
    first["content"].as_str().expect("a system prompt")
}

/// Returns the messages of a request.
pub fn messages_of(request: &Value) -> &[Value] {
    request["messages"].as_array().expect("a request that was not refused")
}

/// Returns the text of the last message of a request.
pub fn last_text(request: &Value) -> &str {
    messages_of(request).last().and_then(|last| last["content"].as_str()).expect("a message with text")
}

/// Returns the user messages of a request, without the runtime context.
pub fn user_messages(request: &Value) -> Vec<&str> {
    let users = messages_of(request).iter().filter(|message| message["role"] == "user");
    users.map(|message| user_text(content(message))).collect()
}

/// Returns the message that began the current turn, with its runtime context, and the messages after it; `None` for a
/// request outside of a turn. The observations that a model without tools gets as user messages begin no turn.
pub fn current_turn(request: &Value) -> Option<(&str, &[Value])> {
    let messages = request["messages"].as_array()?;
    let first = messages.iter().rposition(|message| content(message).contains(RUNTIME_CONTEXT))?;
    Some((content(&messages[first]), &messages[first + 1..]))
}

/// Returns the number of answers among messages, with and without a text.
pub fn answers_in(messages: &[Value]) -> usize {
    messages.iter().filter(|message| message["role"] == "assistant").count()
}

/// Returns the texts of the messages of one role.
pub fn texts_of<'a>(messages: &'a [Value], role: &str) -> Vec<&'a str> {
    messages
        .iter()
        .filter(|message| message["role"] == role)
        .filter_map(|message| message["content"].as_str())
        .collect()
}

/// Returns the names of the tools that a request offers.
pub fn tools_of(request: &Value) -> Vec<&str> {
    let tools = request["tools"].as_array().into_iter().flatten();
    tools.map(|tool| tool["function"]["name"].as_str().expect("a tool has a name")).collect()
}

/// Returns the tool results at the end of a request.
pub fn results_of(request: &Value) -> Vec<String> {
    ModelRequest::new(0, request).results
}

fn content(message: &Value) -> &str {
    message["content"].as_str().unwrap_or_default()
}

/// Returns the user's text: the message as sent, without the runtime context.
pub fn user_text(sent: &str) -> &str {
    sent.rfind(RUNTIME_CONTEXT).map_or(sent, |at| &sent[..at])
}

type Script = Box<dyn Fn(&ModelRequest<'_>) -> Option<Reply> + Send + Sync>;

/// The server's general behaviour.
#[derive(Clone, Copy, Debug)]
pub struct ModelOptions {
    /// Refuses what real services refuse, and records every request. Off only where speed is measured.
    pub strict: bool,
    /// The time before each answer.
    pub latency: Duration,
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self { strict: true, latency: Duration::ZERO }
    }
}

#[derive(Default)]
struct Record {
    scripts: Vec<Script>,
    requests: Vec<Value>,
    refused: Vec<String>,
}

struct Shared {
    options: ModelOptions,
    record: Mutex<Record>,
    count: watch::Sender<usize>,
    disconnected: watch::Sender<usize>,
}

/// The caller of a request. If it is dropped before the answer is complete, the caller counts as disconnected.
struct Caller(Option<Arc<Shared>>);

impl Caller {
    fn complete(&mut self) {
        self.0 = None;
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.disconnected.send_modify(|count| *count += 1);
        }
    }
}

/// The running server; it stops when dropped.
pub struct Model {
    shared: Arc<Shared>,
    port: u16,
    server: AbortHandle,
}

impl Drop for Model {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Model {
    /// Starts a server that answers `echo: <the user's text>` until a script answers instead.
    pub async fn start() -> Self {
        Self::with(ModelOptions::default()).await
    }

    pub async fn with(options: ModelOptions) -> Self {
        Self::listen(options, 0).await
    }

    /// Starts on a claimed port.
    pub async fn start_on_port(port: &Port) -> Self {
        Self::listen(ModelOptions::default(), port.number).await
    }

    async fn listen(options: ModelOptions, port: u16) -> Self {
        let record = Mutex::new(Record::default());
        let shared =
            Arc::new(Shared { options, record, count: watch::Sender::new(0), disconnected: watch::Sender::new(0) });
        let app = Router::new()
            .route("/v1/chat/completions", post(complete))
            .route("/v1/messages", post(message))
            .route("/v1/models", get(models))
            .layer(axum::extract::DefaultBodyLimit::max(64 << 20))
            .with_state(Arc::clone(&shared));
        let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("a free port on loopback");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        // Without TCP_NODELAY, a stream of small events would take 40 ms longer.
        let listener = listener.tap_io(|stream| stream.set_nodelay(true).expect("TCP_NODELAY can be set"));
        let server = tokio::spawn(async move { axum::serve(listener, app).await }).abort_handle();
        Self { shared, port, server }
    }

    /// Returns the value for `providers.NAME.base_url`.
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Adds a rule. The newest rule that returns a reply applies.
    pub fn script(&self, rule: impl Fn(&ModelRequest<'_>) -> Option<Reply> + Send + Sync + 'static) {
        self.shared.record.lock().scripts.push(Box::new(rule));
    }

    /// Makes the model call the tools that a message lists as `[TOOL, ARGUMENTS]`, all at once, and repeat their results.
    pub fn call_named_tools(&self) {
        self.script(|asked| {
            let calls: Vec<(String, Value)> = serde_json::from_str(&asked.user).ok()?;
            if asked.step > 0 {
                return Some(Reply::text(json!(asked.results).to_string()));
            }
            let first = Reply::text("");
            Some(calls.iter().fold(first, |reply, (tool, arguments)| reply.and_tool(tool, arguments)))
        });
    }

    /// Answers a user message that contains `text` with these replies, one for each step of its turn. The last reply repeats.
    pub fn on(&self, text: &str, steps: impl Into<Vec<Reply>>) {
        let (text, steps) = (text.to_owned(), steps.into());
        self.script(move |asked| {
            let reply = asked.user.contains(&text).then(|| steps.get(asked.step).or(steps.last()))?;
            reply.cloned()
        });
    }

    /// Answers request number `n` of this server (from 1) with `reply`.
    pub fn nth(&self, n: usize, reply: Reply) {
        self.script(move |asked| (asked.n == n).then(|| reply.clone()));
    }

    /// Returns every request so far, including refused ones.
    pub fn requests(&self) -> Vec<Value> {
        self.shared.record.lock().requests.clone()
    }

    /// Returns the requests whose last user message contains `text`.
    pub fn requests_about(&self, text: &str) -> Vec<Value> {
        let requests = self.requests();
        requests.into_iter().filter(|body| ModelRequest::new(0, body).user.contains(text)).collect()
    }

    /// Returns the reasons for refused requests; must be empty at the end of every test.
    pub fn refused(&self) -> Vec<String> {
        self.shared.record.lock().refused.clone()
    }

    /// Returns the number of requests so far.
    pub fn count(&self) -> usize {
        *self.shared.count.borrow()
    }

    /// Waits until `count` requests have arrived.
    pub async fn wait_requests(&self, count: usize) {
        let mut seen = self.shared.count.subscribe();
        let what = format!("{count} requests to the model");
        deadline(&what, seen.wait_for(|n| *n >= count)).await.expect("the server lives");
        if self.shared.options.strict {
            // A request is counted on arrival and recorded after its check.
            until(&what, async || (self.requests().len() >= count).then_some(())).await;
        }
    }

    /// Waits until `count` callers have closed their connections before the answer was complete.
    pub async fn wait_disconnected(&self, count: usize) {
        let mut disconnected = self.shared.disconnected.subscribe();
        let what = format!("{count} callers to leave");
        deadline(&what, disconnected.wait_for(|n| *n >= count)).await.expect("the server lives");
    }
}

/// The protocol of a request and its answer.
#[derive(Clone, Copy, PartialEq)]
enum Protocol {
    Openai,
    Anthropic,
}

impl Protocol {
    fn check(self, headers: &HeaderMap, body: &Value) -> Result<(), String> {
        match self {
            Self::Openai => strict::check(body),
            Self::Anthropic => strict_anthropic::check_head(headers).and_then(|()| strict_anthropic::check(body)),
        }
    }

    fn error(self, status: u16, message: &str) -> Response {
        match self {
            Self::Openai => error(status, message),
            Self::Anthropic => anthropic::error(status, message),
        }
    }
}

async fn models(headers: HeaderMap) -> Response {
    if headers.contains_key("anthropic-version") {
        let data = json!([{"type": "model", "id": "scripted", "display_name": "Scripted"}]);
        let list = json!({"data": data, "has_more": false, "first_id": "scripted", "last_id": "scripted"});
        return axum::Json(list).into_response();
    }
    axum::Json(json!({"object": "list", "data": [{"id": "scripted", "object": "model", "owned_by": "tests"}]}))
        .into_response()
}

fn error(status: u16, message: &str) -> Response {
    let status = StatusCode::from_u16(status).expect("a script's status is one");
    let kind = if status.is_server_error() { "server_error" } else { "invalid_request_error" };
    let body = json!({"error": {"message": message, "type": kind, "param": null, "code": null}});
    (status, axum::Json(body)).into_response()
}

async fn complete(State(shared): State<Arc<Shared>>, headers: HeaderMap, bytes: Bytes) -> Response {
    serve(shared, Protocol::Openai, &headers, bytes).await
}

async fn message(State(shared): State<Arc<Shared>>, headers: HeaderMap, bytes: Bytes) -> Response {
    serve(shared, Protocol::Anthropic, &headers, bytes).await
}

async fn serve(shared: Arc<Shared>, protocol: Protocol, headers: &HeaderMap, bytes: Bytes) -> Response {
    let parsed = serde_json::from_slice::<Value>(&bytes);
    let mut n = 0;
    shared.count.send_modify(|count| {
        *count += 1;
        n = *count;
    });
    let body = match parsed {
        Ok(body) => body,
        Err(fault) => return refuse(&shared, protocol, Value::Null, &fault.to_string()),
    };
    if shared.options.strict
        && let Err(fault) = protocol.check(headers, &body)
    {
        return refuse(&shared, protocol, body, &fault);
    }
    let asked = ModelRequest::new(n, &body);
    let scripted = shared.record.lock().scripts.iter().rev().find_map(|script| script(&asked));
    let reply = scripted.unwrap_or_else(|| Reply::text(format!("echo: {}", asked.user)));
    if shared.options.strict {
        shared.record.lock().requests.push(body.clone());
    }
    if !shared.options.latency.is_zero() {
        tokio::time::sleep(shared.options.latency).await;
    }
    let rendered =
        Rendered { reply: &reply, n, model: body["model"].as_str().unwrap_or_default(), prompt_chars: bytes.len() };
    answer(protocol, rendered, &body, Caller(Some(shared))).await
}

fn refuse(shared: &Shared, protocol: Protocol, body: Value, fault: &str) -> Response {
    let mut record = shared.record.lock();
    record.refused.push(fault.to_owned());
    record.requests.push(body);
    drop(record);
    protocol.error(400, fault)
}

async fn answer(protocol: Protocol, rendered: Rendered<'_>, body: &Value, mut caller: Caller) -> Response {
    let reply = rendered.reply;
    if let Some(gate) = &reply.gate {
        gate.pass().await;
    }
    if !reply.delay.is_zero() {
        tokio::time::sleep(reply.delay).await;
    }
    if reply.hang {
        std::future::pending::<Infallible>().await;
    }
    if let Some(status) = reply.status {
        caller.complete();
        let words = if reply.text.is_empty() { "scripted failure" } else { &reply.text };
        let mut response = protocol.error(status, words);
        if let Some(value) = &reply.retry_after {
            let value = HeaderValue::from_str(value).expect("a script's header is one");
            response.headers_mut().insert(header::RETRY_AFTER, value);
        }
        return response;
    }
    let streams = body["stream"] == true;
    let (kind, chunks) = if let Some(raw) = &reply.raw {
        (if streams { "text/event-stream" } else { "application/json" }, raw.clone())
    } else if streams {
        let include_usage = body["stream_options"]["include_usage"] == true;
        let events = match protocol {
            Protocol::Openai => rendered.events(include_usage),
            Protocol::Anthropic => rendered.message_events(),
        };
        ("text/event-stream", events)
    } else {
        let whole = match protocol {
            Protocol::Openai => rendered.plain(),
            Protocol::Anthropic => rendered.message(),
        };
        ("application/json", vec![whole.to_string().into_bytes()])
    };
    let mut response = ([(header::CONTENT_TYPE, kind)], stream(reply.clone(), chunks, caller)).into_response();
    for (name, value) in &reply.headers {
        response.headers_mut().insert(*name, HeaderValue::from_static(value));
    }
    response
}

/// Sends `chunks` at the pace and with the faults of `reply`.
fn stream(reply: Reply, chunks: Vec<Vec<u8>>, mut caller: Caller) -> Body {
    let accidents = reply.one_byte
        || reply.drop_after.is_some()
        || !reply.gates_after_chunks.is_empty()
        || reply.for_ever.is_some();
    if let [whole] = chunks.as_slice()
        && !accidents
    {
        return Body::from(whole.clone());
    }
    if !accidents && reply.chunk_delay.is_zero() {
        caller.complete();
        return Body::from_stream(futures_util::stream::iter(chunks.into_iter().map(Ok::<_, Infallible>)));
    }
    let (sender, receiver) = mpsc::channel(1);
    // The only possible error is a disconnected client, which needs no report.
    tokio::spawn(async move { pace(reply, chunks, sender).await.ok() });
    Body::from_stream(futures_util::stream::unfold((receiver, caller), |(mut receiver, mut caller)| async move {
        let Some(item) = receiver.recv().await else {
            caller.complete();
            return None;
        };
        Some((item, (receiver, caller)))
    }))
}

type Piece = Result<Bytes, std::io::Error>;

async fn pace(
    reply: Reply,
    chunks: Vec<Vec<u8>>,
    sender: mpsc::Sender<Piece>,
) -> Result<(), mpsc::error::SendError<Piece>> {
    for (i, chunk) in chunks.into_iter().enumerate() {
        if reply.drop_after == Some(i) {
            // Leaves time for sent data, because hyper drops its buffer when a body fails.
            tokio::time::sleep(Duration::from_millis(200)).await;
            let cut = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "scripted cut");
            return sender.send(Err(cut)).await;
        }
        for (gate, _) in reply.gates_after_chunks.iter().filter(|(_, after)| *after == i) {
            gate.pass().await;
        }
        tokio::time::sleep(reply.chunk_delay).await;
        for piece in chunk.chunks(if reply.one_byte { 1 } else { chunk.len().max(1) }) {
            sender.send(Ok(Bytes::copy_from_slice(piece))).await?;
        }
    }
    if let Some((bytes, pace)) = &reply.for_ever {
        let bytes = Bytes::copy_from_slice(bytes);
        loop {
            tokio::time::sleep(*pace).await;
            sender.send(Ok(bytes.clone())).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Gate, gateway::http_client};
    use super::*;

    async fn ask(model: &Model, content: &str, stream: bool) -> Result<String, reqwest::Error> {
        let body = json!({"model": "m", "stream": stream, "messages": [{"role": "user", "content": content}]});
        let url = format!("{}/chat/completions", model.base_url());
        http_client().post(url).json(&body).send().await?.text().await
    }

    /// Returns the whole text of the events of a stream.
    fn joined(stream: &str) -> String {
        let events = stream.lines().filter_map(|line| line.strip_prefix("data: {"));
        let parsed = events.map(|rest| serde_json::from_str::<Value>(&format!("{{{rest}")).unwrap());
        parsed.filter_map(|event| event["choices"][0]["delta"]["content"].as_str().map(str::to_owned)).collect()
    }

    #[tokio::test]
    async fn follows_its_script() {
        let model = Model::start().await;
        let plain = ask(&model, "hi\n\n[Runtime Context]\nCurrent Time: now", false).await.unwrap();
        assert!(plain.contains(r#""content":"echo: hi""#), "{plain}");

        model.on("bytes", [Reply::text("多语言 text").one_byte_chunks().crlf()]);
        let stream = ask(&model, "bytes", true).await.unwrap();
        assert_eq!((joined(&stream).as_str(), stream.ends_with("data: [DONE]\r\n\r\n")), ("多语言 text", true));

        model.on("cut", [Reply::text("a long answer that is cut off").chunk_chars(4).drops_after(3)]);
        assert!(ask(&model, "cut", true).await.is_err());

        let gate = Gate::new();
        model.on("held", [Reply::text("released").held_by(&gate)]);
        let release = async {
            gate.wait_arrived(1).await;
            gate.open();
        };
        let (held, ()) = tokio::join!(ask(&model, "held", true), release);
        assert_eq!(joined(&held.unwrap()), "released");

        assert_eq!(model.refused(), Vec::<String>::new());
        assert!(ask(&model, "", true).await.unwrap().contains("empty"));
        assert_eq!((model.refused().len(), model.requests().len(), model.count()), (1, 5, 5));
    }
}
