use std::sync::Arc;

use proptest::prelude::*;

use super::super::rules::broken_rule;
use super::*;
use crate::chat::{ChatMessage, ImageRef, Reasoning, ToolCall};
use crate::llm::remote::ToolSerializer;
use crate::llm::{Image, Images};

const OPTIONS: RequestOptions<'static> = RequestOptions {
    provider: "us",
    thinking: None,
    learned: ModelParameters { thinking: ThinkingForm::Budget, takes_temperature: true },
    stream: false,
};

fn thinks() -> RequestOptions<'static> {
    RequestOptions { thinking: Some(2_000), ..OPTIONS }
}

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
}

fn calls(text: &str, tool_calls: &[ToolCall]) -> ChatMessage {
    ChatMessage::Assistant { content: text.to_owned(), reasoning: None, tool_calls: tool_calls.to_vec() }
}

fn thought(message: ChatMessage, provider: &str) -> ChatMessage {
    let ChatMessage::Assistant { content, tool_calls, .. } = message else { return message };
    let reasoning = Reasoning {
        field: "thinking".to_owned(),
        text: "hm".to_owned(),
        blocks: vec![thought_block()],
        provider: provider.to_owned(),
    };
    ChatMessage::Assistant { content, reasoning: Some(reasoning), tool_calls }
}

fn thought_block() -> Value {
    json!({"type": "thinking", "thinking": "hm", "signature": "EqQ="})
}

fn result(id: &str, content: &str) -> ChatMessage {
    ChatMessage::tool(id, "read", content)
}

fn tool(name: &str) -> ToolSpec {
    ToolSpec { name: name.to_owned(), description: "Does it.".to_owned(), parameters: json!({"type": "object"}) }
}

fn request(messages: Vec<ChatMessage>) -> ChatRequest {
    ChatRequest {
        model: "m".to_owned(),
        system: "Be kind.".into(),
        messages: messages.into_iter().map(Arc::new).collect(),
        tools: vec![tool("list"), tool("read")].into(),
        temperature: Some(0.5),
        ..ChatRequest::default()
    }
}

fn sent(request: &ChatRequest, options: RequestOptions<'_>) -> Value {
    let body = body(request, options);
    assert_eq!(broken_rule(&body), None, "{body:#}");
    body
}

fn body(request: &ChatRequest, options: RequestOptions<'_>) -> Value {
    let names = ToolNames::of(&request.tools);
    let tools = ToolSerializer::default().get(&request.tools, (), || definitions(&request.tools, &names)).unwrap();
    serde_json::to_value(AnthropicRequest::new(request, &names, options, tools).unwrap()).unwrap()
}

fn text_of(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn use_of(id: &str, input: &Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": "read", "input": input})
}

fn answer(id: &str, content: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": content})
}

fn marked(mut block: Value) -> Value {
    block["cache_control"] = json!({"type": "ephemeral"});
    block
}

#[test]
fn a_plain_request_contains_only_the_required_fields() {
    let mut plain = request(vec![ChatMessage::user("hi")]);
    assert_eq!(
        sent(&plain, RequestOptions { stream: true, ..OPTIONS }),
        json!({"model": "m", "max_tokens": 8192, "temperature": 0.5, "stream": true,
            "system": [marked(text_of("Be kind."))],
            "tools": [{"name": "list", "description": "Does it.", "input_schema": {"type": "object"}},
                marked(json!({"name": "read", "description": "Does it.", "input_schema": {"type": "object"}}))],
            "messages": [{"role": "user", "content": [marked(text_of("hi"))]}]})
    );
    plain.system = " ".into();
    plain.tools = [].into();
    (plain.temperature, plain.max_tokens) = (Some(1.7), Some(5));
    assert_eq!(
        sent(&plain, OPTIONS),
        json!({"model": "m", "max_tokens": 5, "temperature": 1.0,
            "messages": [{"role": "user", "content": [marked(text_of("hi"))]}]})
    );
}

#[test]
fn conversations_take_the_form_that_the_service_wants() {
    let user = ChatMessage::user;
    let two = || calls("so", &[call("a", "read", r#"{"k":1}"#), call("b.1", "read", "{\"cut")]);
    let b = "toolu_705a9e965f01ba858e4aae89";
    let table: Vec<(&str, Vec<ChatMessage>, Value)> = vec![
        (
            "results in one message, in the order of the calls, the user's words after them",
            vec![user("do"), two(), result("b.1", "B"), result("a", ""), user("and"), user("more")],
            json!([[text_of("do")], [text_of("so"), use_of("a", &json!({"k": 1})), use_of(b, &json!({}))],
                [{"type": "tool_result", "tool_use_id": "a"}, answer(b, "B"), text_of("and"), text_of("more")]]),
        ),
        (
            "ids that begin anew with each answer",
            vec![
                user("do"),
                calls("", &[call("a", "read", "{}")]),
                result("a", "1"),
                calls("", &[call("a", "read", "")]),
                result("a", "2"),
            ],
            json!([
                [text_of("do")],
                [use_of("a", &json!({}))],
                [answer("a", "1")],
                [use_of("a_2", &json!({}))],
                [answer("a_2", "2")]
            ]),
        ),
        (
            "a result that is missing, one of no call, one twice",
            vec![
                result("x", "?"),
                user("do"),
                two(),
                result("a", "A"),
                result("a", "again"),
                result("y", "?"),
                user("go"),
            ],
            json!([
                [text_of("do")],
                [text_of("so"), use_of("a", &json!({"k": 1})), use_of(b, &json!({}))],
                [
                    answer("a", "A"),
                    answer(b, "error: there is no result; whether it took effect is unknown"),
                    text_of("go")
                ]
            ]),
        ),
        (
            "neighbours of one role are one message, and what is blank is nothing",
            vec![user("a"), user(" \n"), user("b"), calls("", &[]), calls("c", &[]), calls("d\n", &[]), user("e")],
            json!([[text_of("a"), text_of("b")], [text_of("c"), text_of("d\n")], [text_of("e")]]),
        ),
        (
            "the assistant neither begins nor ends",
            vec![calls("hello", &[])],
            json!([[text_of("(What was said before is left out.)")], [text_of("hello")], [text_of("Go on.")]]),
        ),
        ("nothing at all", vec![], json!([[text_of("Go on.")]])),
    ];
    for (case, messages, expected) in table {
        let body = sent(&request(messages), OPTIONS);
        let contents: Vec<Value> = body["messages"].as_array().unwrap().iter().map(|m| m["content"].clone()).collect();
        assert_eq!(without_marks(Value::Array(contents)), expected, "{case}");
    }
}

fn without_marks(mut value: Value) -> Value {
    match &mut value {
        Value::Array(list) => list.iter_mut().for_each(|inner| *inner = without_marks(inner.take())),
        Value::Object(fields) => drop(fields.remove("cache_control")),
        _ => {}
    }
    value
}

#[test]
fn the_common_part_of_requests_is_marked_for_the_cache() {
    let user = ChatMessage::user;
    let step = |id: &str| [calls("", &[call(id, "read", "{}")]), result(id, "fine")];
    let marks = |messages: &[ChatMessage]| -> Vec<usize> {
        let body = sent(&request(messages.to_vec()), OPTIONS);
        let is_marked = |message: &Value| message.to_string().contains("cache_control");
        (0..).zip(body["messages"].as_array().unwrap()).filter(|(_, m)| is_marked(m)).map(|(at, _)| at).collect()
    };
    let mut messages = vec![user("one")];
    assert_eq!(marks(&messages), [0]);
    messages.push(calls("first", &[]));
    messages.push(user("two"));
    assert_eq!(marks(&messages), [1, 2]);
    messages.extend(step("a"));
    messages.extend(step("b"));
    assert_eq!(marks(&messages), [1, 6], "the next step begins as this one, and the next turn too");
    messages.push(calls("second", &[]));
    messages.push(user("three"));
    assert_eq!(marks(&messages), [7, 8]);
}

#[test]
fn each_request_begins_as_the_one_before() {
    let mut messages = vec![];
    let mut before = String::new();
    for turn in 0..4 {
        messages.push(ChatMessage::user(format!("do {turn}")));
        for _ in 0..2 {
            messages.extend([calls("", &[call("call_1", "read", "{}")]), result("call_1", "fine")]);
            let body = without_marks(sent(&request(messages.clone()), OPTIONS)["messages"].take());
            let text: String =
                body.as_array().unwrap().iter().map(|m| without_marks(m["content"].clone()).to_string()).collect();
            assert!(text.starts_with(&before));
            before = text;
        }
        messages.push(calls("done", &[]));
    }
}

#[test]
fn thoughts_go_back_to_whom_they_came_from() {
    let user = ChatMessage::user;
    let asks = |id: &str| calls("", &[call(id, "read", "{}")]);
    let ours = |id: &str| [thought(asks(id), "us"), result(id, "fine")];
    let theirs = |id: &str| [thought(asks(id), "them"), result(id, "fine")];
    let plain = |id: &str| [asks(id), result(id, "fine")];
    let turn = |steps: &[[ChatMessage; 2]]| [vec![user("do")], steps.concat()].concat();
    let adaptive = RequestOptions {
        learned: ModelParameters { thinking: ThinkingForm::Adaptive, takes_temperature: true },
        ..thinks()
    };
    let refused = RequestOptions {
        learned: ModelParameters { thinking: ThinkingForm::Refused, takes_temperature: false },
        ..thinks()
    };
    let (on, auto) =
        (json!({"type": "enabled", "budget_tokens": 2000}), json!({"type": "adaptive", "display": "summarized"}));
    for (case, messages, options, thinking, thoughts) in [
        ("off", turn(&[plain("a")]), OPTIONS, Value::Null, 0),
        ("off, of a service that thinks unasked", turn(&[ours("a"), plain("b")]), OPTIONS, Value::Null, 1),
        ("on, a first question", turn(&[]), thinks(), on.clone(), 0),
        ("on, within a turn", turn(&[ours("a"), ours("b")]), thinks(), on.clone(), 2),
        ("on, an answer without a thought", turn(&[ours("a"), plain("b")]), thinks(), Value::Null, 0),
        ("on, an answer of another's", turn(&[theirs("a"), ours("b")]), thinks(), Value::Null, 0),
        ("on, another's all along", turn(&[theirs("a")]), thinks(), Value::Null, 0),
        (
            "on, after a turn of another's",
            [turn(&[theirs("a")]), vec![calls("so", &[]), user("and")]].concat(),
            thinks(),
            on.clone(),
            0,
        ),
        ("on, words after a result", [turn(&[ours("a")]), vec![user("wait")]].concat(), thinks(), on.clone(), 1),
        (
            "on, words after another's result",
            [turn(&[theirs("a")]), vec![user("wait")]].concat(),
            thinks(),
            Value::Null,
            0,
        ),
        ("adaptive", turn(&[ours("a"), plain("b")]), adaptive, auto, 1),
        ("learned that it cannot", turn(&[ours("a")]), refused, Value::Null, 0),
    ] {
        let body = sent(&request(messages), options);
        assert_eq!(body["thinking"], thinking, "{case}");
        assert_eq!(body["messages"].to_string().matches("EqQ=").count(), thoughts, "{case}");
        let takes_temperature = thinking.is_null() && options.learned.takes_temperature;
        assert_eq!(body.get("temperature").is_some(), takes_temperature, "{case}");
    }
    let body = sent(&request(turn(&[ours("a")])), thinks());
    assert_eq!(body["messages"][1]["content"][0], thought_block());
    assert_eq!(body["max_tokens"], 8_192);
}

#[test]
fn earlier_calls_are_sent_with_definitions_of_their_tools() {
    let mut last = request(vec![
        ChatMessage::user("do"),
        calls("", &[call("a", "mail.send", "{}"), call("b", "read", "{}"), call("c", "read", "{}")]),
        result("a", "1"),
    ]);
    last.tools = [].into();
    let body = sent(&last, OPTIONS);
    let empty = json!({"type": "object", "properties": {}});
    assert_eq!(
        (&body["tools"], &body["tool_choice"]),
        (
            &json!([{"name": "mail_send", "input_schema": empty}, marked(json!({"name": "read", "input_schema": empty}))]),
            &json!({"type": "none"})
        )
    );
}

#[test]
fn schemas_are_of_objects() {
    for (schema, expected) in [
        (json!({"type": "object", "properties": {}}), json!({"type": "object", "properties": {}})),
        (json!({"properties": {"a": {}}}), json!({"type": "object", "properties": {"a": {}}})),
        (json!({"type": "object", "anyOf": [{}], "required": []}), json!({"type": "object", "required": []})),
        (json!(true), json!({"type": "object"})),
        (Value::Null, json!({"type": "object"})),
    ] {
        assert_eq!(*input_schema(&schema), expected, "{schema}");
    }
}

/// Random messages, most of them at a place where they make no sense.
fn any_message() -> impl Strategy<Value = ChatMessage> {
    let id = || prop_oneof![Just("a"), Just("b"), Just("c.d"), Just("")];
    let text = || prop_oneof![2 => Just("words"), 1 => Just(""), 1 => Just(" \n"), 1 => Just("words \n")];
    let arguments = prop_oneof![Just("{}"), Just(""), Just("[1]"), Just("{\"a\":"), Just("{\"a\":[{}]}")];
    let name = prop_oneof![Just("read"), Just("mail.send"), Just("")];
    let one = (id(), name, arguments).prop_map(|(id, name, arguments)| call(id, name, arguments));
    let whose = prop_oneof![Just(None), Just(Some("us")), Just(Some("them"))];
    prop_oneof![
        2 => text().prop_map(ChatMessage::user),
        3 => (text(), proptest::collection::vec(one, 0..4), whose).prop_map(|(text, list, whose)| {
            let message = calls(text, &list);
            whose.map_or(message.clone(), |whose| thought(message, whose))
        }),
        3 => (id(), text()).prop_map(|(id, text)| result(id, text)),
    ]
}

proptest! {
    #[test]
    fn every_history_becomes_a_request_that_the_service_takes(
        messages in proptest::collection::vec(any_message(), 0..24),
        has_tools in any::<bool>(),
        is_thinking in any::<bool>(),
        max_tokens in proptest::option::of(0u32..5_000),
    ) {
        let mut request = request(messages);
        request.max_tokens = max_tokens;
        if !has_tools {
            request.tools = [].into();
        }
        let body = body(&request, if is_thinking { thinks() } else { OPTIONS });
        prop_assert_eq!(broken_rule(&body), None, "{:#}", body);
        prop_assert!(!body["messages"].to_string().contains("them"));
    }
}

#[test]
fn pictures_stand_before_the_words_about_them() {
    let look = |path: &str| ChatMessage::User {
        content: "look".to_owned(),
        images: vec![ImageRef { path: path.to_owned(), media_type: "image/png".to_owned() }],
    };
    let mut request = request(vec![look("a.gif"), ChatMessage::assistant("hm"), look("gone.png")]);
    request.images = Images::from_iter([("a.gif".to_owned(), Image::of(b"GIF89a").unwrap())]);
    let source = json!({"type": "base64", "media_type": "image/gif", "data": "R0lGODlh"});
    assert_eq!(
        sent(&request, OPTIONS)["messages"],
        json!([
            {"role": "user", "content": [{"type": "image", "source": source}, text_of("look")]},
            {"role": "assistant", "content": [marked(text_of("hm"))]},
            {"role": "user", "content": [marked(text_of("look"))]},
        ])
    );
}
