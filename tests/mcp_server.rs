//! daoyou as an MCP server, over the lines of `daoyou mcp serve` and over HTTP.

use std::process::Stdio;

use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::support::gateway::http_client;
use crate::support::invariants::open;
use crate::support::{Gate, Gateway, Hook, Model, Reply, Setup, Sink, deadline, until};

const OLD: &str = "2025-06-18";
const NEW: &str = "2026-07-28";

fn initialize(version: &str) -> Value {
    let client = json!({"name": "story", "version": "1"});
    let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client});
    json!({"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": params})
}

fn call(id: impl Into<Value>, tool: &str, arguments: &Value) -> Value {
    let meta = json!({"progressToken": "p"});
    let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
    json!({"jsonrpc": "2.0", "id": id.into(), "method": "tools/call", "params": params})
}

fn cancel(id: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
}

/// Returns the texts of a result, and whether it is an error.
fn tool_result(answer: &Value) -> (String, bool) {
    let texts = answer["result"]["content"].as_array().unwrap_or_else(|| panic!("{answer}")).iter();
    let texts: Vec<_> = texts.map(|block| block["text"].as_str().unwrap()).collect();
    (texts.join("\n--\n"), answer["result"]["isError"] == true)
}

fn fine(text: &str) -> (String, bool) {
    (text.to_owned(), false)
}

/// A client of `daoyou mcp serve`.
struct StdioClient {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    progress: Vec<Value>,
}

impl StdioClient {
    /// Starts the program without any message.
    fn start(gateway: &Gateway, arguments: &[&str]) -> Self {
        let mut command = gateway.command(&[&["mcp", "serve"], arguments].concat());
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output).lines(), progress: Vec::new() }
    }

    async fn connect(gateway: &Gateway) -> Self {
        let mut client = Self::start(gateway, &["--session", "story"]);
        let answer = client.request(&initialize(OLD)).await;
        assert_eq!(answer["result"]["protocolVersion"], OLD, "{answer}");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        client
    }

    async fn send(&mut self, message: &Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// Returns the next message, which is JSON. The output carries nothing else.
    async fn next(&mut self) -> Value {
        let line = deadline("a line of mcp serve", self.output.next_line()).await.unwrap().expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|fault| panic!("{fault}: {line}"))
    }

    /// Returns the answer to a request; stores notifications of progress.
    async fn answer(&mut self, id: &Value) -> Value {
        loop {
            let message = self.next().await;
            if message["method"] == "notifications/progress" {
                self.progress.push(message["params"].clone());
            } else if message["id"] == *id {
                return message;
            }
        }
    }

    async fn request(&mut self, message: &Value) -> Value {
        self.send(message).await;
        self.answer(&message["id"]).await
    }

    async fn ask(&mut self, text: &str) -> (String, bool) {
        tool_result(&self.request(&call(text, "ask", &json!({"message": text}))).await)
    }
}

/// Returns a request to `/mcp` with the token.
fn post(gateway: &Gateway, message: &Value) -> RequestBuilder {
    let request = http_client().post(gateway.url("/mcp")).bearer_auth(gateway.token());
    let request = request.header("accept", "application/json, text/event-stream");
    request.header("content-type", "application/json").body(message.to_string())
}

fn delete(gateway: &Gateway) -> RequestBuilder {
    http_client().delete(gateway.url("/mcp")).bearer_auth(gateway.token())
}

/// Returns a call in the newer protocol version, which needs no session.
fn post_alone(gateway: &Gateway, message: &Value) -> RequestBuilder {
    let mut message = message.clone();
    let meta = message["params"]["_meta"].as_object_mut().unwrap();
    meta.insert("io.modelcontextprotocol/protocolVersion".to_owned(), json!(NEW));
    meta.insert("io.modelcontextprotocol/clientInfo".to_owned(), json!({"name": "Story", "version": "1"}));
    meta.insert("io.modelcontextprotocol/clientCapabilities".to_owned(), json!({}));
    let name = message["params"]["name"].as_str().unwrap().to_owned();
    let request = post(gateway, &message).header("mcp-protocol-version", NEW);
    request.header("mcp-method", "tools/call").header("mcp-name", name)
}

/// Returns the messages of an event stream.
async fn messages(request: RequestBuilder) -> Vec<Value> {
    let body = deadline("an answer", async { request.send().await.unwrap().text().await.unwrap() }).await;
    let data = body.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
    data.filter(|data| !data.is_empty()).map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// Begins a session and returns its id.
async fn begin(gateway: &Gateway) -> String {
    let begun = post(gateway, &initialize(OLD)).send().await.unwrap();
    assert_eq!(begun.status(), 200);
    let session = begun.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    drop(begun.text().await.unwrap());
    let initialized = post(gateway, &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    assert_eq!(initialized.header("mcp-session-id", &session).send().await.unwrap().status(), 202);
    session
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_asks_over_standard_input_and_sees_progress() {
    let model = Model::start().await;
    let gate = Gate::new();
    let steps = [Reply::tool("list_dir", &json!({"path": "."})), Reply::text("two files").held_by(&gate)];
    model.on("which files", steps);
    model.on("tell me", [Reply::tool("message", &json!({"content": "soon"})), Reply::text("now")]);
    model.on("and", [Reply::text("none")]);
    model.on("paint", [Reply::tool("ask_user", &json!({"question": "Which colour?"})), Reply::text("painted")]);
    model.on("fail", [Reply::status(401)]);
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    let mut client = StdioClient::connect(&gateway).await;
    let tools = client.request(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})).await;
    let names: Vec<_> = tools["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(json!(names), json!(["ask", "remember", "recall", "schedule", "send", "list_sessions"]));
    client.send(&call("files", "ask", &json!({"message": "which files"}))).await;
    gate.wait_arrived(1).await;
    while client.progress.is_empty() {
        let message = client.next().await;
        assert_eq!(
            (&message["method"], &message["params"]["progressToken"]),
            (&json!("notifications/progress"), &json!("p"))
        );
        client.progress.push(message["params"].clone());
    }
    gate.open();
    let answer = client.answer(&json!("files")).await;
    assert_eq!(tool_result(&answer), fine("two files"));
    assert_eq!(answer["result"]["_meta"]["daoyou/session"], "mcp:story");
    let values: Vec<_> = client.progress.iter().map(|one| one["progress"].as_f64().unwrap()).collect();
    assert!(values.windows(2).all(|two| two[0] < two[1]), "{values:?}");
    assert_eq!(client.ask("and").await, fine("none"));
    assert!(model.requests().last().unwrap().to_string().contains("which files"), "one session a connection");
    assert_eq!(client.ask("tell me").await, fine("soon\n--\nnow"));
    let (question, is_error) = client.ask("paint").await;
    assert!(question.starts_with("Which colour?") && question.contains("mcp:story") && !is_error, "{question}");
    assert_eq!(client.ask("blue").await, fine("painted"));
    let (text, is_error) = client.ask("/approve abcd").await;
    assert!(is_error && text.contains("owner alone"), "{text}");
    // Other sessions, by name and by key.
    let other = json!({"message": "and", "session": "other"});
    let answer = client.request(&call(7, "ask", &other)).await;
    assert_eq!(answer["result"]["_meta"]["daoyou/session"], "mcp:other");
    let request = model.requests().last().unwrap().clone();
    let is_answer = |message: &Value| message["role"] == "assistant";
    assert!(!request["messages"].as_array().unwrap().iter().any(is_answer), "a session of its own: {request}");
    let (text, is_error) =
        tool_result(&client.request(&call(9, "ask", &json!({"message": "hi", "session": " other"}))).await);
    assert!(is_error && text.contains("without spaces at its ends"), "{text}");
    let (text, is_error) =
        tool_result(&client.request(&call(8, "ask", &json!({"message": "hi", "agent": "nobody"}))).await);
    assert!(is_error && text.contains("nobody"), "{text}");
    drop(client.input);
    assert!(deadline("the end of mcp serve", client.child.wait()).await.unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_requests_stop_their_turns_and_lost_connections_do_not() {
    let model = Model::start().await;
    let gate = Gate::new();
    for text in ["first", "second", "third", "fourth"] {
        model.on(text, [Reply::text(format!("{text} done")).held_by(&gate)]);
    }
    model.on("behind", [Reply::text("never")]);
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    let mut client = StdioClient::connect(&gateway).await;
    let status = async |session: &str| {
        let turns = gateway.json(&["turns", "list", "--session", session]).await;
        turns[0]["state"].as_str().map(str::to_owned)
    };
    // Over standard input, the running turn stops, and a queued turn never starts.
    client.send(&call("a", "ask", &json!({"message": "first"}))).await;
    gate.wait_arrived(1).await;
    client.send(&call("b", "ask", &json!({"message": "behind"}))).await;
    until("both messages", async || {
        let queue = gateway.json(&["status"]).await;
        (queue["parts"]["inbound"] == 2).then_some(())
    })
    .await;
    client.send(&cancel("b")).await;
    until("the queued turn to be cancelled", async || {
        let marked = "SELECT count(*) FROM inbox WHERE cancel != 0";
        let marked = open(&gateway.database()).ok()?.query_row(marked, [], |row| row.get::<_, i64>(0));
        (marked == Ok(1)).then_some(())
    })
    .await;
    client.send(&cancel("a")).await;
    model.wait_disconnected(1).await;
    until("the end of both", async || (gateway.json(&["status"]).await["parts"]["inbound"] == 0).then_some(())).await;
    assert_eq!(model.requests_about("behind").len(), 0);
    // In an HTTP session, the notification arrives in a separate request.
    let session = begin(&gateway).await;
    let ask = call("c", "ask", &json!({"message": "second", "session": "http"}));
    let running = tokio::spawn(post(&gateway, &ask).header("mcp-session-id", &session).send());
    gate.wait_arrived(2).await;
    let cancelled = post(&gateway, &cancel("c")).header("mcp-session-id", &session).send().await.unwrap();
    assert_eq!(cancelled.status(), 202);
    model.wait_disconnected(2).await;
    running.abort();
    // Without a session, the end of the request is the cancellation.
    let ask = call("d", "ask", &json!({"message": "third"}));
    let running = tokio::spawn(messages(post_alone(&gateway, &ask)));
    gate.wait_arrived(3).await;
    running.abort();
    model.wait_disconnected(3).await;
    // If a client dies, its turn continues.
    client.send(&call("e", "ask", &json!({"message": "fourth", "session": "left"}))).await;
    gate.wait_arrived(4).await;
    client.child.kill().await.unwrap();
    gate.open();
    until("the turn that was left", async || (status("mcp:left").await? == "done").then_some(())).await;
    let shown = gateway.run(&["sessions", "show", "mcp:left"]).await.stdout;
    assert!(shown.contains("fourth done"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_protocol_eras_work_over_http_and_need_the_token() {
    let model = Model::start().await;
    model.on("hello", [Reply::text("hi"), Reply::text("hi"), Reply::text("hi")]);
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    let session = begin(&gateway).await;
    let hello = call(1, "ask", &json!({"message": "hello"}));
    let answers = messages(post(&gateway, &hello).header("mcp-session-id", &session)).await;
    assert_eq!(tool_result(answers.last().unwrap()), fine("hi"));
    let answers = messages(post_alone(&gateway, &hello)).await;
    assert_eq!(tool_result(answers.last().unwrap()), fine("hi"));
    assert_eq!(answers.last().unwrap()["result"]["_meta"]["daoyou/session"], "mcp:story");
    let status = async |request: RequestBuilder| request.send().await.unwrap().status().as_u16();
    let bare = || http_client().post(gateway.url("/mcp")).body(initialize(OLD).to_string());
    for (request, expected) in [
        (bare(), 401),
        (bare().bearer_auth("wrong"), 401),
        (post(&gateway, &initialize(OLD)).header("origin", "https://evil.example"), 403),
        (post(&gateway, &initialize(OLD)).header("host", "evil.example"), 403),
        (post(&gateway, &hello).header("mcp-session-id", "unknown"), 404),
        (delete(&gateway).header("mcp-session-id", "unknown"), 404),
        (delete(&gateway), 400),
        (delete(&gateway).header("mcp-session-id", &session), 204),
        (delete(&gateway).header("mcp-session-id", &session), 404),
        (post(&gateway, &hello).header("mcp-session-id", &session), 404),
        (post(&gateway, &hello), 400),
        (post(&gateway, &json!(1)), 400),
        (post(&gateway, &json!({"jsonrpc": "2.0"})), 400),
        (http_client().get(gateway.url("/mcp/stream?connection=x")).bearer_auth(gateway.token()), 404),
    ] {
        let shown = format!("{request:?}");
        assert_eq!(status(request).await, expected, "{shown}");
    }
    assert_eq!(model.count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_jobs_channels_and_sessions_are_tools() {
    let sink = Sink::signed().await;
    let gateway = Gateway::start(Setup::new().hook(Hook::bearer("in").callback(&sink))).await;
    let mut client = StdioClient::connect(&gateway).await;
    let mut tool =
        async |name: &str, arguments: Value| tool_result(&client.request(&call(name, name, &arguments)).await);
    let (made, is_error) = tool("remember", json!({"content": "The cat is called Miso."})).await;
    assert!(made.contains("\"remembered\":\"new\"") && !is_error, "{made}");
    let (found, _) = tool("recall", json!({"query": "Miso", "limit": 3})).await;
    assert!(found.contains("The cat is called Miso."), "{found}");
    let (job, is_error) = tool("schedule", json!({"message": "tea", "at": "in 20m", "name": "tea"})).await;
    let job: Value = serde_json::from_str(&job).unwrap();
    assert!(job["next_at"].is_string() && !is_error, "{job}");
    assert_eq!(gateway.json(&["cron", "show", "tea"]).await["id"], job["id"]);
    let (sent, is_error) = tool("send", json!({"channel": "webhook:in", "chat_id": "c", "content": "hi there"})).await;
    assert!(sent.contains("\"state\":\"pending\"") && !is_error, "{sent}");
    let delivered = sink.wait_posts(1).await;
    assert!(format!("{delivered:?}").contains("hi there"), "{delivered:?}");
    let (text, is_error) = tool("ask", json!({"message": "what time is it?"})).await;
    assert!(text.contains("It is") && !is_error, "{text}");
    let (listed, _) = tool("list_sessions", json!({"limit": 1})).await;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["session"]), (1, &json!("mcp:story")), "{listed}");
    for (name, arguments, expected) in [
        ("remember", json!({"content": " "}), "text"),
        ("recall", json!({"question": "x"}), "unknown field `question`"),
        ("recall", json!({"query": "x", "limit": 0}), "limit: 0 is not allowed; use 1 to 100"),
        ("recall", json!({"query": "x", "limit": 4_294_967_295_u32}), "limit"),
        ("list_sessions", json!({"limit": 0}), "limit: 0 is not allowed; use 1 to 100"),
        ("list_sessions", json!({"limit": 101}), "limit"),
        ("schedule", json!({"message": "tea"}), "say when"),
        ("schedule", json!({"message": "tea", "prompt": "tea", "at": "in 1h"}), "one of"),
        ("send", json!({"channel": "nowhere", "chat_id": "c", "content": "x"}), "there is no channel"),
        ("send", json!({"channel": "cli", "chat_id": "", "content": "x"}), "chat_id"),
        ("ask", json!({"message": "  "}), "message is empty"),
        ("ask", json!({"message": "x", "session": ""}), "session"),
        ("ask", json!({"message": "x", "session": ":"}), "session"),
        ("ask", json!({"message": "x", "session": "cli:"}), "session"),
        ("ask", json!({}), "missing field `message`"),
    ] {
        let (text, is_error) = tool(name, arguments.clone()).await;
        assert!(is_error && text.contains(expected), "{name} {arguments}: {text}");
    }
    let unknown = client.request(&call(1, "nothing", &json!({}))).await;
    assert_eq!(unknown["error"]["code"], -32_602, "{unknown}");
    let list = client.request(&call(2, "ask", &json!(["x"]))).await;
    let text = list["error"]["message"].as_str().unwrap_or_default();
    assert!(list["error"]["code"] == -32_602 && text.contains("params.arguments"), "{list}");
}

/// A message that can be read in two ways is refused, and so is a second request with the id of an open one.
#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_messages_and_ids_are_refused_over_http() {
    let (model, gate) = (Model::start().await, Gate::new());
    model.on("slow", [Reply::text("slow done").held_by(&gate)]);
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    let (session, other) = (begin(&gateway).await, begin(&gateway).await);
    let refusal = async |request: RequestBuilder| {
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 400);
        let body: Value = answer.json().await.unwrap();
        assert_eq!((&body["error"]["code"], &body["id"]), (&json!(-32_600), &Value::Null), "{body}");
        body["error"]["message"].as_str().unwrap().to_owned()
    };
    let twice = call(1, "ask", &json!({"message": "good"}));
    let twice = twice.to_string().replace(r#""message":"good""#, r#""message":"good","message":"evil""#);
    let refused = refusal(post(&gateway, &json!({})).body(twice).header("mcp-session-id", &session)).await;
    assert!(
        refused.contains(r#"the key "message" stands twice in the object at $["params"]["arguments"]"#),
        "{refused}"
    );
    let ask = call(5, "ask", &json!({"message": "slow"}));
    let first = tokio::spawn(messages(post(&gateway, &ask).header("mcp-session-id", &session)));
    gate.wait_arrived(1).await;
    let second = json!({"jsonrpc": "2.0", "id": 5, "method": "ping"});
    let refused = refusal(post(&gateway, &second).header("mcp-session-id", &session)).await;
    assert!(refused.contains("id 5 is still in use"), "{refused}");
    // Another session, and a text with the same digits, are other requests.
    for (session, id) in [(&other, json!(5)), (&session, json!("5"))] {
        let ping = json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
        let answers = messages(post(&gateway, &ping).header("mcp-session-id", session)).await;
        assert_eq!(answers.last().unwrap()["result"], json!({}), "{answers:?}");
    }
    gate.open();
    let answers = deadline("the first answer", first).await.unwrap();
    assert_eq!(tool_result(answers.last().unwrap()), fine("slow done"));
    assert_eq!(model.count(), 1);
    // A message above the limit.
    let large = call(6, "ask", &json!({"message": "x".repeat(5_000_000)}));
    let answer = post(&gateway, &large).header("mcp-session-id", &session).send().await.unwrap();
    assert_eq!(answer.status(), 413);
}

/// The call of a cancelled request ends later than the request, and must not answer the next one with its id.
#[tokio::test(flavor = "multi_thread")]
async fn the_id_of_a_cancelled_request_is_free_at_once_over_http() {
    let (model, gate) = (Model::start().await, Gate::new());
    model.on("slow", [Reply::text("slow done").held_by(&gate)]);
    model.on("quick", [Reply::text("quick done")]);
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    let session = begin(&gateway).await;
    let in_session = |message: &Value| post(&gateway, message).header("mcp-session-id", &session);
    for round in 1..=5 {
        let old = call("a", "ask", &json!({"message": format!("slow {round}")}));
        let old = tokio::spawn(messages(in_session(&old)));
        gate.wait_arrived(round).await;
        assert_eq!(in_session(&cancel("a")).send().await.unwrap().status(), 202);
        let new = call("a", "ask", &json!({"message": format!("quick {round}")}));
        let answers = messages(in_session(&new)).await;
        assert_eq!(tool_result(answers.last().unwrap()), fine("quick done"), "{answers:?}");
        assert!(answers.iter().all(|answer| answer["id"] == "a" || answer["method"].is_string()), "{answers:?}");
        let old = deadline("the end of the cancelled request", old).await.unwrap();
        assert!(old.iter().all(|message| message["result"].is_null()), "{old:?}");
    }
    assert_eq!(model.requests_about("quick").len(), 5);
}

/// An accepted message is answered after a crash, and the bridge continues with the next gateway.
#[tokio::test(flavor = "multi_thread")]
async fn an_ask_outlives_the_gateway_and_the_bridge_reconnects() {
    let model = Model::start().await;
    let gate = Gate::new();
    model.on("slow", [Reply::text("slow done").held_by(&gate)]);
    model.on("next", [Reply::text("next done")]);
    let mut gateway = Gateway::start(Setup::new().model(&model)).await;
    let mut client = StdioClient::connect(&gateway).await;
    client.send(&call("a", "ask", &json!({"message": "slow"}))).await;
    gate.wait_arrived(1).await;
    gateway.kill9().await;
    let answer = client.answer(&json!("a")).await;
    let text = answer["error"]["message"].as_str().unwrap();
    assert!(text.contains("kept") && text.contains("mcp:story"), "{answer}");
    gateway.up().await;
    gate.open();
    assert_eq!(client.ask("next").await, fine("next done"));
    let last = model.requests().last().unwrap().to_string();
    assert!(last.contains("slow done"), "the first one was answered: {last}");
    assert_eq!(gateway.run(&["sessions", "show", "mcp:story"]).await.stdout.matches("slow done").count(), 1);
    // If the gateway is gone for good, each request gets an error, and the start gets none.
    gateway.stop().await;
    let answer = client.request(&call("b", "ask", &json!({"message": "next"}))).await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("no gateway runs"), "{answer}");
    let refused = gateway.run(&["mcp", "serve"]).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{refused:?}");
    assert!(refused.stderr.contains("no gateway runs here"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_refused_and_the_connection_goes_on() {
    let gateway = Gateway::start(Setup::new()).await;
    let mut client = StdioClient::connect(&gateway).await;
    let huge = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":"{}"}}"#, "x".repeat(5_000_000));
    for (garbage, code, text) in [
        (&b"{"[..], -32_700, "JSON-RPC message"),
        (b"\0\x1b[2J", -32_700, "JSON-RPC message"),
        (b"\xff\xfe", -32_700, "JSON-RPC message"),
        (&[b'['; 100_000], -32_700, "JSON-RPC message"),
        (huge.as_bytes(), -32_700, "4 MB"),
        (b"[]", -32_600, "JSON-RPC message"),
        (b"{\"jsonrpc\":\"2.0\"}", -32_600, "JSON-RPC message"),
    ] {
        client.input.write_all(&[b"\n", garbage, b"\n"].concat()).await.unwrap();
        let answer = client.next().await;
        let id = if garbage == huge.as_bytes() { json!(1) } else { Value::Null };
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(code)), "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(text), "{answer}");
    }
    let surrogate = r#"{"jsonrpc":"2.0","id":8,"method":"ping","params":{"a":"\ud800"}}"#;
    client.input.write_all(format!("{surrogate}\n").as_bytes()).await.unwrap();
    assert_eq!(client.answer(&json!(8)).await["error"]["code"], -32_700);
    let answer = client.request(&json!({"jsonrpc": "2.0", "id": 9, "method": "no/such"})).await;
    assert_eq!(answer["error"]["code"], -32_601, "{answer}");
    assert_eq!(client.request(&json!({"jsonrpc": "2.0", "id": 10, "method": "ping"})).await["result"], json!({}));
    // A client that violates the protocol at the start affects only itself.
    let mut rude = StdioClient::start(&gateway, &[]);
    rude.send(&call(1, "ask", &json!({"message": "hi"}))).await;
    assert!(rude.answer(&json!(1)).await["error"].is_object());
    assert!(!client.ask("what time is it?").await.1);
}

/// Each of two open requests with one id would get the other's answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_refuses_the_id_of_an_open_request() {
    let model = Model::start().await;
    let gate = Gate::new();
    model.on("slow", [Reply::text("slow done").held_by(&gate)]);
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    let mut client = StdioClient::connect(&gateway).await;
    client.send(&call("a", "ask", &json!({"message": "slow"}))).await;
    gate.wait_arrived(1).await;
    client.send(&call("a", "ask", &json!({"message": "other", "session": "other"}))).await;
    let refused = client.answer(&Value::Null).await;
    assert_eq!(refused["error"]["code"], -32_600, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("id \"a\" is still in use"), "{refused}");
    gate.open();
    assert_eq!(tool_result(&client.answer(&json!("a")).await), fine("slow done"));
    assert_eq!(model.count(), 1);
    // The id of an answered request is free.
    let again = client.request(&call("a", "recall", &json!({"query": "slow"}))).await;
    assert!(again["result"].is_object(), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_above_the_limit_names_it() {
    let gateway = Gateway::start(Setup::new()).await;
    let mut streams = Vec::new();
    for _ in 0..100 {
        let mut stream = UnixStream::connect(gateway.home().join("daoyou.sock")).await.unwrap();
        let request = "GET /mcp/stream?connection=story HTTP/1.1\r\nHost: daoyou\r\nConnection: upgrade\r\n\
                       Upgrade: mcp-lines\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        deadline("the upgrade", stream.read_exact(&mut status)).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 101");
        streams.push(stream);
    }
    let refused = gateway.run(&["mcp", "serve"]).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{refused:?}");
    assert!(refused.stderr.contains("100 runs of `daoyou mcp serve` are open"), "{refused:?}");
    drop(streams);
    until("a free stream", async || {
        let served = gateway.run(&["mcp", "serve"]).await;
        (served.code == Some(0)).then_some(())
    })
    .await;
}
