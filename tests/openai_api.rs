//! The OpenAI-compatible API: requests that clients of `/v1` send, and the answers.

mod clients;

use futures_util::future::join_all;
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::support::gateway::http_client;
use crate::support::invariants::{Journal, Witness, check, wait_settled};
use crate::support::model::{RUNTIME_CONTEXT, answers_in, last_text, messages_of};
use crate::support::{Gate, Gateway, Model, Reply, Setup, deadline, until};

/// A PNG of one pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn chat(messages: &Value) -> Value {
    json!({"model": "daoyou", "messages": messages})
}

fn say(text: &str) -> Value {
    chat(&json!([user(text)]))
}

/// Returns the request with the token.
fn post(gateway: &Gateway, body: &Value) -> RequestBuilder {
    let request = http_client().post(gateway.url("/v1/chat/completions")).bearer_auth(gateway.token());
    request.header("content-type", "application/json").body(body.to_string())
}

async fn send(request: RequestBuilder) -> Response {
    deadline("an answer", request.send()).await.unwrap()
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers()[name].to_str().unwrap()
}

/// Returns the status and the body.
async fn answer(request: RequestBuilder) -> (u16, Value) {
    let response = send(request).await;
    let status = response.status().as_u16();
    let text = deadline("a body", response.text()).await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or_else(|fault| panic!("{fault}: {text}")))
}

/// Returns the text of an answer; asserts that the request succeeded.
async fn text(request: RequestBuilder) -> String {
    let (status, body) = answer(request).await;
    assert_eq!(status, 200, "{body}");
    body["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

/// Returns the events of a stream, which ends with `[DONE]`.
async fn events(request: RequestBuilder) -> Vec<Value> {
    let body = deadline("a stream", send(request).await.text()).await.unwrap();
    let data: Vec<_> = body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let (last, events) = data.split_last().unwrap_or_else(|| panic!("{body}"));
    assert_eq!(*last, "[DONE]", "{body}");
    events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

/// Joins the texts of one kind in the events of a stream.
fn joined(events: &[Value], key: &str) -> String {
    events.iter().filter_map(|event| event["choices"][0]["delta"][key].as_str()).collect()
}

async fn waiting(gateway: &Gateway) -> u64 {
    gateway.json(&["status"]).await["parts"]["inbound"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_returned_whole_or_streamed() {
    let model = Model::start().await;
    let steps = [
        Reply::tool("message", &json!({"content": "soon"})).saying("I look.").usage(100, 5),
        Reply::tool("list_dir", &json!({"path": "."})).usage(200, 6),
        Reply::text("two files").reasoning("hm").usage(300, 7),
    ];
    model.on("which files", steps);
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    let (status, body) = answer(post(&gateway, &say("which files"))).await;
    assert_eq!(status, 200, "{body}");
    let message = &body["choices"][0]["message"];
    assert_eq!((&message["content"], &message["role"]), (&json!("soon\n\ntwo files"), &json!("assistant")));
    assert!(message.get("reasoning_content").is_none(), "nobody asked for it: {message}");
    assert_eq!((&body["object"], &body["model"]), (&json!("chat.completion"), &json!("daoyou")));
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    let usage = json!({
        "prompt_tokens": 600, "completion_tokens": 18, "total_tokens": 618,
        "prompt_tokens_details": {"cached_tokens": 0},
    });
    assert_eq!(body["usage"], usage);
    let mut streamed = say("which files");
    streamed["stream"] = json!(true);
    let plain = events(post(&gateway, &streamed)).await;
    assert_eq!(joined(&plain, "content"), "I look.\n\nsoon\n\ntwo files");
    assert_eq!(joined(&plain, "reasoning_content"), "");
    assert!(plain.iter().all(|event| event.get("usage").is_none()), "{plain:?}");
    assert_eq!(plain[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert_eq!(plain.last().unwrap()["choices"][0]["finish_reason"], "stop");
    streamed["stream_options"] = json!({"include_usage": true});
    streamed["reasoning_effort"] = json!("low");
    let full = events(post(&gateway, &streamed)).await;
    assert_eq!(joined(&full, "content"), "I look.\n\nsoon\n\ntwo files");
    let shown = joined(&full, "reasoning_content");
    let parts =
        ["[message {\"content\":\"soon\"}]", "[message: done", "[list_dir {\"path\":\".\"}]", "[list_dir: done", "hm"];
    let at: Vec<_> = parts.iter().map(|part| shown.find(part)).collect();
    assert!(at.iter().all(Option::is_some) && at.is_sorted(), "{shown}");
    let last = full.last().unwrap();
    assert_eq!((&last["choices"], &last["usage"]), (&json!([]), &usage));
    // Commands are answered without a model.
    let before = model.count();
    assert!(text(post(&gateway, &say("/help"))).await.contains("/status"));
    assert_eq!(model.count(), before);
    wait_settled(&gateway.database()).await;
    let journal = block_in_place(|| Journal::read(&gateway.database()).unwrap());
    assert!(journal.outbox.iter().all(|row| row.state == "sent"), "the messages were shown: {:?}", journal.outbox);
}

/// The template of the model opens the think block, so the thinking is known as such only after the response.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_shows_the_answer_after_thinking_without_an_opening_tag_once() {
    let model = Model::start().await;
    model.on("greet me", [Reply::text("hm\n</think>\n\nHello, Ann.").chunk_chars(4)]);
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    assert_eq!(text(post(&gateway, &say("greet me"))).await, "Hello, Ann.");
    let mut streamed = say("greet me");
    streamed["stream"] = json!(true);
    let shown = joined(&events(post(&gateway, &streamed)).await, "content");
    assert_eq!(shown, "hm\n</think>\n\nHello, Ann.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_session_continues_and_a_new_one_gets_the_clients_history() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    let last = || model.requests().last().unwrap().clone();
    let named = |body: &Value| post(&gateway, body).header("x-session-id", "work");
    let begun = send(named(&say("my name is Ann"))).await;
    assert_eq!((begun.status().as_u16(), header(&begun, "x-session-id")), (200, "work"));
    let history = json!([user("other words"), {"role": "assistant", "content": "other answer"}, user("who am I?")]);
    assert_eq!(text(named(&chat(&history))).await, "echo: who am I?");
    let sent = json!(messages_of(&last())).to_string();
    assert!(
        sent.contains("my name is Ann") && !sent.contains("other words"),
        "the session knows what was said: {sent}"
    );
    // The same session, named by `user`, and by the key in the list.
    let mut by_user = say("and?");
    by_user["user"] = json!("work");
    assert_eq!(text(post(&gateway, &by_user)).await, "echo: and?");
    assert!(json!(messages_of(&last())).to_string().contains("my name is Ann"));
    assert_eq!(text(post(&gateway, &by_user).header("x-session-id", "api:other")).await, "echo: and?");
    assert!(!json!(messages_of(&last())).to_string().contains("my name is Ann"), "the header goes first");
    // Without a name, the session is new and gets the history and the instructions.
    let history = json!([{"role": "system", "content": "Answer in verse."}, user("blue"), {"role": "assistant", "content": "sky"}, user("red")]);
    let first = send(post(&gateway, &chat(&history))).await;
    let session = header(&first, "x-session-id").to_owned();
    let sent = last();
    assert_eq!(answers_in(messages_of(&sent)), 0, "{sent:?}");
    let asked = last_text(&sent);
    let (words, context) = asked.split_at(asked.find(RUNTIME_CONTEXT).unwrap());
    assert_eq!(words, "red");
    assert!(context.contains("user: blue\n\nassistant: sky"), "{context}");
    assert!(context.ends_with("Answer in verse."), "{context}");
    let second = send(post(&gateway, &say("red"))).await;
    assert_ne!(header(&second, "x-session-id"), session);
    let sessions = gateway.json(&["sessions", "list"]).await;
    let keys: Vec<_> = sessions.as_array().unwrap().iter().map(|one| one["session"].as_str().unwrap()).collect();
    assert!(keys.contains(&"api:work") && keys.contains(&"api:other") && keys.len() == 4, "{keys:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn images_and_files_reach_the_agent() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::new().model(&model).set("providers.scripted.images", true)).await;
    let image = json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{PNG}")}});
    let file =
        json!({"type": "file", "file": {"filename": "../notes.txt", "file_data": "data:text/plain;base64,aGVsbG8="}});
    let parts = json!([{"type": "text", "text": "what is this?"}, image, file]);
    let body = chat(&json!([{"role": "user", "content": parts}]));
    assert_eq!(send(post(&gateway, &body)).await.status(), 200);
    let images = |request: &Value| request.to_string().matches(PNG).count();
    let request = model.requests().last().unwrap().clone();
    assert_eq!(images(&request), 1, "{request}");
    let sent = request["messages"].as_array().unwrap().last().unwrap()["content"].to_string();
    let start = sent.find("uploads/").unwrap_or_else(|| panic!("{sent}"));
    let path = sent[start..].split("image-1.png").next().unwrap();
    let saved = gateway.workspace().join(path);
    assert_eq!(std::fs::read_to_string(saved.join("notes.txt")).unwrap(), "hello");
    // A client that keeps the conversation sends the image again, and a new session needs it.
    let again =
        json!([{"role": "user", "content": parts}, {"role": "assistant", "content": "A dot."}, user("which colour?")]);
    assert_eq!(send(post(&gateway, &chat(&again))).await.status(), 200);
    let request = model.requests().last().unwrap().clone();
    assert!(images(&request) == 1 && request.to_string().contains("[file image-1.png]"), "{request}");
    // A fault of the folder is named.
    let uploads = gateway.workspace().join("uploads");
    std::fs::rename(&uploads, gateway.workspace().join("moved")).unwrap();
    std::os::unix::fs::symlink("moved", &uploads).unwrap();
    let (status, body) = answer(post(&gateway, &chat(&json!([{"role": "user", "content": parts}])))).await;
    assert_eq!((status, &body["error"]["code"]), (500, &json!("file")), "{body}");
    assert!(
        body["error"]["message"].as_str().unwrap().contains("\"uploads\" in the workspace is not a folder"),
        "{body}"
    );
    std::fs::remove_file(&uploads).unwrap();
    // A large body is accepted; a body above the limit is refused.
    let large = "QUFB".repeat(2_500_000);
    let file = json!({"type": "file", "file": {"filename": "a.bin", "file_data": large}});
    let (status, body) = answer(post(&gateway, &chat(&json!([{"role": "user", "content": [file]}])))).await;
    assert_eq!(status, 200, "{body}");
    let (status, body) = answer(post(&gateway, &say(&"x".repeat(51_000_000)))).await;
    assert_eq!((status, &body["error"]["type"]), (413, &json!("invalid_request_error")), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_list_has_agents_and_configured_models() {
    let model = Model::start().await;
    let setup = Setup::new().model(&model).set("agent.fallback", vec!["scripted/second"]);
    let setup = setup.set("agents.poet.prompt", "You rhyme.").set("agents.poet.model", "scripted/rhymes");
    let gateway = Gateway::start(setup).await;
    let get = |path: &str| http_client().get(gateway.url(path)).bearer_auth(gateway.token());
    let (_, list) = answer(get("/v1/models")).await;
    let names: Vec<_> = list["data"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(names[0], "daoyou");
    for name in ["assistant", "coder", "poet", "scripted/scripted", "scripted/second", "scripted/rhymes"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    assert_eq!(answer(get("/v1/models/scripted/second")).await.1["id"], "scripted/second");
    assert_eq!(answer(get("/v1/models/scripted%2Fsecond")).await.1["id"], "scripted/second");
    let (status, body) = answer(get("/v1/models/nobody")).await;
    assert_eq!((status, &body["error"]["code"]), (404, &json!("model_not_found")));
    for (asked, used, says) in [
        ("", "scripted", ""),
        ("daoyou", "scripted", ""),
        ("poet", "rhymes", "You rhyme."),
        ("scripted/second", "second", ""),
    ] {
        let mut body = say("hi");
        body["model"] = json!(asked);
        let (status, body) = answer(post(&gateway, &body)).await;
        assert_eq!((status, &body["model"]), (200, &json!(if asked.is_empty() { "daoyou" } else { asked })), "{body}");
        let request = model.requests().last().unwrap().clone();
        assert!(request["model"] == used && request.to_string().contains(says), "{asked}: {request}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unsupported_requests_are_refused_in_openais_format() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    let with = |key: &str, value: Value| {
        let mut body = say("hi");
        body[key] = value;
        post(&gateway, &body)
    };
    let twice = |name: &str| post(&gateway, &say("hi")).header(name, "a").header(name, "b");
    let to = |path: &str| http_client().post(gateway.url(path)).body(say("hi").to_string());
    let image = json!({"type": "image_url", "image_url": {"url": "https://example.test/a.png"}});
    for (request, status, code, kind) in [
        (to("/v1/chat/completions"), 401, "unauthorized", "authentication_error"),
        (to("/v1/chat/completions").bearer_auth("wrong"), 401, "unauthorized", "authentication_error"),
        (post(&gateway, &say("hi")).header("origin", "https://evil.example"), 403, "forbidden", "permission_error"),
        (to("/v1/embeddings").bearer_auth(gateway.token()), 404, "not_found", "invalid_request_error"),
        (to("/v1/models").bearer_auth(gateway.token()), 405, "method_not_allowed", "invalid_request_error"),
        (post(&gateway, &json!(1)), 400, "bad_request", "invalid_request_error"),
        (
            post(&gateway, &say("hi")).body("{\"messages\": 1, \"messages\": 2}"),
            400,
            "bad_request",
            "invalid_request_error",
        ),
        (post(&gateway, &say("hi")).body(&b"\xff"[..]), 400, "bad_request", "invalid_request_error"),
        (with("model", json!("gpt-9")), 404, "model_not_found", "invalid_request_error"),
        (
            with("tools", json!([{"type": "function", "function": {"name": "f"}}])),
            400,
            "unsupported",
            "invalid_request_error",
        ),
        (with("functions", json!([{"name": "f"}])), 400, "unsupported", "invalid_request_error"),
        (with("n", json!(3)), 400, "unsupported", "invalid_request_error"),
        (with("audio", json!({"voice": "a"})), 400, "unsupported", "invalid_request_error"),
        (with("messages", json!([{"role": "user", "content": [image]}])), 400, "bad_request", "invalid_request_error"),
        (with("messages", json!([])), 400, "bad_request", "invalid_request_error"),
        (with("response_format", json!("json")), 400, "bad_request", "invalid_request_error"),
        (with("modalities", json!("audio")), 400, "bad_request", "invalid_request_error"),
        (with("stream_options", json!({"include_usage": "true"})), 400, "bad_request", "invalid_request_error"),
        (twice("x-session-id"), 400, "bad_request", "invalid_request_error"),
        (twice("idempotency-key"), 400, "bad_request", "invalid_request_error"),
        (post(&gateway, &say("hi")).header("x-session-id", " "), 400, "bad_request", "invalid_request_error"),
        (post(&gateway, &say("hi")).header("idempotency-key", ""), 400, "bad_request", "invalid_request_error"),
    ] {
        let shown = format!("{request:?}");
        let (found, body) = answer(request).await;
        let error = &body["error"];
        assert_eq!((found, &error["code"], &error["type"]), (status, &json!(code), &json!(kind)), "{shown}: {body}");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{shown}: {body}");
    }
    assert_eq!(model.count(), 0);
    assert_eq!(waiting(&gateway).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_turn_is_an_error_that_clients_do_not_repeat() {
    let model = Model::start().await;
    model.on("fail", [Reply::status(400)]);
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    let response = send(post(&gateway, &say("fail"))).await;
    assert_eq!((response.status().as_u16(), header(&response, "x-should-retry")), (422, "false"));
    let body: Value = response.json().await.unwrap();
    assert!(body["error"]["code"].as_str().unwrap().starts_with("llm_"), "{body}");
    let mut streamed = say("fail");
    streamed["stream"] = json!(true);
    let events = events(post(&gateway, &streamed)).await;
    assert_eq!(events.last().unwrap()["error"]["code"], body["error"]["code"], "{events:?}");
}

/// The retry of a response that broke off continues the stream where it differs, and the last events have the reply alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_broke_off_is_not_streamed_twice() {
    const REPLY: &str = "Hello world, all good.";
    let model = Model::start().await;
    for (number, broken) in [(1, REPLY), (3, REPLY), (5, "Good morning to all.")] {
        model.nth(number, Reply::text(broken).chunk_chars(5).drops_after(4));
        model.nth(number + 1, Reply::text(REPLY));
    }
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    let mut streamed = say("chat");
    streamed["stream"] = json!(true);
    assert_eq!(joined(&events(post(&gateway, &streamed)).await, "content"), REPLY);
    let respond = async |input: &str| {
        let request = http_client().post(gateway.url("/v1/responses")).bearer_auth(gateway.token());
        let body =
            deadline("a stream", send(request.json(&json!({"input": input, "stream": true}))).await.text()).await;
        let body = body.unwrap();
        let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|event| serde_json::from_str(event).unwrap()).collect::<Vec<Value>>()
    };
    for (input, is_repeated) in [("response", true), ("other", false)] {
        let events = respond(input).await;
        let deltas: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
        assert!(deltas.ends_with(REPLY) && (deltas == REPLY) == is_repeated, "{deltas}");
        let completed = &events.last().unwrap()["response"]["output"][0]["content"][0]["text"];
        let done = events.iter().find(|event| event["type"] == "response.output_text.done").unwrap();
        assert_eq!((completed, &done["text"]), (&json!(REPLY), &json!(REPLY)));
    }
    assert_eq!(model.count(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disconnected_client_loses_the_stream_and_a_repeated_request_is_one_message() {
    let model = Model::start().await;
    let gate = Gate::new();
    for text in ["first", "second", "third"] {
        model.on(text, [Reply::text(format!("{text} done")).held_by(&gate)]);
    }
    let mut gateway = Gateway::start(Setup::new().model(&model)).await;
    // A stream that the client drops.
    let mut streamed = say("first");
    streamed["stream"] = json!(true);
    let request = |gateway: &Gateway, body: &Value, key: &str| {
        post(gateway, body).header("x-session-id", "left").header("idempotency-key", key.to_owned())
    };
    let response = send(request(&gateway, &streamed, "a")).await;
    gate.wait_arrived(1).await;
    drop(response);
    gate.release(1);
    until("the end of the turn", async || (waiting(&gateway).await == 0).then_some(())).await;
    assert_eq!(text(request(&gateway, &say("first"), "a")).await, "first done");
    assert_eq!(send(request(&gateway, &say("other"), "a")).await.status(), 422, "the key is that of another request");
    // The gateway dies during a request.
    let lost = tokio::spawn(request(&gateway, &say("second"), "b").send());
    gate.wait_arrived(2).await;
    gateway.kill9().await;
    assert!(lost.await.unwrap().is_err());
    gateway.up().await;
    gate.release(2);
    assert_eq!(text(request(&gateway, &say("second"), "b")).await, "second done");
    // OpenAI's own clients send no key and count their attempts.
    let attempt = |count: u32| {
        post(&gateway, &say("third"))
            .header("x-session-id", "left")
            .header("x-stainless-retry-count", count.to_string())
    };
    let lost = tokio::spawn(attempt(0).send());
    gate.wait_arrived(4).await;
    lost.abort();
    let again = tokio::spawn(text(attempt(1)));
    gate.open();
    assert_eq!(deadline("the third answer", again).await.unwrap(), "third done");
    let journal = |gateway: &Gateway| block_in_place(|| Journal::read(&gateway.database()).unwrap());
    let count = |gateway: &Gateway| journal(gateway).inbox.iter().filter(|row| row.session == "api:left").count();
    assert_eq!(count(&gateway), 3);
    // The request was answered, so an equal one is a new message, even if its first attempt was refused.
    assert_eq!(text(attempt(1)).await, "third done");
    assert_eq!(count(&gateway), 4);
    wait_settled(&gateway.database()).await;
    block_in_place(|| check(&gateway.database(), &Witness::default()));
}

/// Of two requests with one key at the same time, one gets the key and the answer; the other is refused.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_with_one_key_are_never_answered_with_each_others_answer() {
    let model = Model::start().await;
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    for round in 0..10 {
        let asked = ["one", "two"].map(|name| format!("{name} {round}"));
        let ask = |content: &str| {
            let request = post(&gateway, &say(content)).header("x-session-id", "race");
            answer(request.header("idempotency-key", format!("race-{round}")))
        };
        let answers = join_all(asked.iter().map(|content| ask(content))).await;
        let taken: Vec<_> = (0..2).filter(|at| answers[*at].0 == 200).collect();
        let [first] = taken[..] else { panic!("{answers:?}") };
        for _ in 0..2 {
            let (status, body) = ask(&asked[first]).await;
            let reply = format!("echo: {}", asked[first]);
            assert_eq!((status, &body["choices"][0]["message"]["content"]), (200, &json!(reply)), "{body}");
            let (status, body) = ask(&asked[1 - first]).await;
            assert_eq!((status, &body["error"]["code"]), (422, &json!("invalid")), "{body}");
        }
        assert_eq!(answers[1 - first].0, 422, "{answers:?}");
    }
    assert_eq!(model.count(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_stream_that_joins_a_running_turn_has_the_reply_once_and_whole() {
    const REPLY: &str = "The first half of the reply, and then the second half of the reply.";
    let model = Model::start().await;
    let gate = Gate::new();
    model.on("halves", [Reply::text(REPLY).stalls_after(3, &gate)]);
    let gateway = Gateway::start(Setup::new().model(&model)).await;
    let mut streamed = say("halves");
    streamed["stream"] = json!(true);
    let request = || post(&gateway, &streamed).header("x-session-id", "joined").header("idempotency-key", "j");
    let first = tokio::spawn(events(request()));
    gate.wait_arrived(1).await;
    // The head of a streamed answer comes as soon as the request follows the turn.
    let second = send(request()).await;
    gate.open();
    let body = deadline("the second stream", second.text()).await.unwrap();
    let data = body.lines().filter_map(|line| line.strip_prefix("data: {"));
    let second: Vec<_> = data.map(|event| serde_json::from_str(&format!("{{{event}")).unwrap()).collect();
    assert_eq!(joined(&second, "content"), REPLY);
    assert_eq!(joined(&deadline("the first stream", first).await.unwrap(), "content"), REPLY);
    assert_eq!(model.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_and_approvals_are_returned_as_text() {
    let model = Model::start().await;
    model.on("paint", [Reply::tool("ask_user", &json!({"question": "Which colour?"})), Reply::text("painted")]);
    model.on("run", [Reply::tool("exec", &json!({"command": "true"})), Reply::text("ran")]);
    let gateway = Gateway::start(Setup::new().model(&model).set("approval.tools.exec", "always")).await;
    let named = |body: &str| post(&gateway, &say(body)).header("x-session-id", "talk");
    assert!(text(named("paint")).await.contains("Which colour?"));
    assert_eq!(text(named("blue")).await, "painted");
    let asked = text(named("run")).await;
    assert!(asked.contains("needs the owner's approval"), "{asked}");
    let pending = gateway.json(&["approvals", "list"]).await;
    let approve = format!("/approve {}", pending[0]["id"].as_str().unwrap());
    assert!(text(named(&approve)).await.contains("exec"));
    until("the end of the turn", async || (waiting(&gateway).await == 0).then_some(())).await;
    let shown = gateway.run(&["sessions", "show", "api:talk"]).await.stdout;
    assert!(shown.contains("ran"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_gateway_answers_the_requests_whose_turns_run() {
    let model = Model::start().await;
    let gate = Gate::new();
    model.on("slow", [Reply::text("done").held_by(&gate)]);
    let mut gateway = Gateway::start(Setup::new().model(&model)).await;
    let request = tokio::spawn(answer(post(&gateway, &say("slow")).header("x-session-id", "kept")));
    gate.wait_arrived(1).await;
    gateway.sigterm();
    gate.open();
    let (status, body) = deadline("the answer", request).await.unwrap();
    assert_eq!((status, &body["choices"][0]["message"]["content"]), (200, &json!("done")), "{body}");
    gateway.wait_exit().await;
}

/// A stopping gateway does not wait for a model service. The client is told to repeat, and the message is kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_waits_for_its_model_at_a_stop_is_answered_after_the_next_start() {
    let model = Model::start().await;
    model.nth(1, Reply::status(401));
    let mut gateway = Gateway::start(Setup::new().model(&model)).await;
    let request = tokio::spawn(answer(post(&gateway, &say("hello")).header("x-session-id", "kept")));
    until("the message to wait", async || {
        (gateway.json(&["queue", "list"]).await[0]["state"] == "waiting").then_some(())
    })
    .await;
    gateway.sigterm();
    let (status, body) = deadline("the answer", request).await.unwrap();
    assert_eq!((status, &body["error"]["code"]), (503, &json!("draining")), "{body}");
    gateway.wait_exit().await;
    gateway.up().await;
    until("the late answer", async || {
        let shown = gateway.run(&["sessions", "show", "api:kept"]).await.stdout;
        shown.contains("echo: hello").then_some(())
    })
    .await;
}
