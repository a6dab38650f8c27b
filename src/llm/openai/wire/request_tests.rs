use serde_json::json;

use super::*;
use crate::chat::{ImageRef, ToolSpec};
use crate::llm::openai::quirks::{FixedQuirks, LimitField};
use crate::llm::openai::wire::{OpenaiRequest, definitions};
use crate::llm::remote::ToolSerializer;
use crate::llm::{Image, Images, ReasoningMode, ToolMode};

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
}

fn tool(name: &str) -> ToolSpec {
    ToolSpec { name: name.to_owned(), description: "Does it.".to_owned(), parameters: json!({"type": "object"}) }
}

fn quirks() -> Quirks {
    let settled = FixedQuirks { reasoning: ReasoningMode::Auto, tools: ToolMode::Auto };
    Quirks::first(settled, LimitField::MaxTokens, ReasoningEcho::AsSent)
}

fn sent_by(quirks: &Quirks, request: &ChatRequest, stream: bool) -> Value {
    let names = ToolNames::of(&request.tools);
    let tools = ToolSerializer::default()
        .get(&request.tools, quirks.tools, || definitions(&request.tools, &names, quirks.tools))
        .unwrap();
    serde_json::to_value(OpenaiRequest::new(request, &names, stream, quirks, "acme", tools)).unwrap()
}

fn sent(request: &ChatRequest, stream: bool) -> Value {
    sent_by(&quirks(), request, stream)
}

fn request(messages: Vec<ChatMessage>, tools: Vec<ToolSpec>) -> ChatRequest {
    let (model, system) = ("m".to_owned(), "Be kind.".into());
    let messages = messages.into_iter().map(Arc::new).collect();
    ChatRequest { model, system, messages, tools: tools.into(), ..ChatRequest::default() }
}

#[test]
fn a_plain_request_contains_only_the_required_fields() {
    let mut plain = request(vec![ChatMessage::user("hi")], vec![]);
    let messages = json!([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}]);
    assert_eq!(sent(&plain, false), json!({"model": "m", "messages": messages}));
    plain.system = "".into();
    plain.max_tokens = Some(5);
    plain.temperature = Some(0.5);
    assert_eq!(
        sent(&plain, true),
        json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 0.5, "max_tokens": 5,
                   "stream": true, "stream_options": {"include_usage": true}})
    );
    let newer = Quirks { limit: Some(LimitField::MaxCompletionTokens), ..quirks() };
    let newer = sent_by(&newer, &plain, false);
    assert_eq!((&newer["max_completion_tokens"], &newer["max_tokens"]), (&json!(5), &Value::Null));
}

#[test]
fn calls_and_results_are_sent_as_strict_services_want_them() {
    let long_id = "x".repeat(41);
    let messages = vec![
        ChatMessage::user("do"),
        ChatMessage::Assistant {
            content: String::new(),
            reasoning: Some(Reasoning { field: "reasoning".to_owned(), text: "hm".to_owned(), ..Default::default() }),
            tool_calls: vec![call("a", "read_file", r#"{"path":"x"}"#), call(&long_id, "no.such", r#"{"cut"#)],
        },
        ChatMessage::tool("a", "read_file", "ok"),
        ChatMessage::tool(long_id, "no.such", "unknown"),
        ChatMessage::assistant(""),
        ChatMessage::assistant("done"),
    ];
    let body = sent(&request(messages, vec![tool("read_file")]), false);
    let id = body["messages"][2]["tool_calls"][1]["id"].clone();
    assert!(id.as_str().is_some_and(|id| id.len() <= ID_LIMIT));
    assert_eq!(
        body["messages"].as_array().unwrap()[1..],
        [
            json!({"role": "user", "content": "do"}),
            json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "read_file", "arguments": "{\"path\":\"x\"}"}},
                {"id": id, "type": "function", "function": {"name": "no_such", "arguments": "{}"}},
            ]}),
            json!({"role": "tool", "tool_call_id": "a", "content": "ok"}),
            json!({"role": "tool", "tool_call_id": id, "content": "unknown"}),
            json!({"role": "assistant", "content": "done"}),
        ]
    );
    assert_eq!(
        body["tools"],
        json!([{"type": "function", "function":
                    {"name": "read_file", "description": "Does it.", "parameters": {"type": "object"}}}])
    );
}

#[test]
fn parameters_that_a_model_declines_are_left_out() {
    let mut full = request(vec![ChatMessage::user("hi")], vec![tool("f")]);
    (full.temperature, full.max_tokens) = (Some(0.5), Some(5));
    let bare = Quirks { temperature: false, limit: None, stream_options: false, ..quirks() };
    let body = sent_by(&bare, &full, true);
    let keys: Vec<_> = body.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["messages", "model", "stream", "tools"]);
}

/// Returns an answer with one call in its sent form, with the stored parts of its reasoning.
fn echoed(quirks: &Quirks, field: &str, text: &str, blocks: &Value, provider: &str) -> Value {
    let reasoning = Some(Reasoning {
        field: field.to_owned(),
        text: text.to_owned(),
        blocks: blocks.as_array().cloned().unwrap_or_default(),
        provider: provider.to_owned(),
    });
    let tool_calls = vec![call("a", "f", "{}")];
    let answer = ChatMessage::Assistant { content: String::new(), reasoning, tool_calls };
    let mut answer = sent_by(quirks, &request(vec![answer], vec![]), false)["messages"][1].clone();
    let call = answer["tool_calls"][0].clone();
    answer["extra_content"] = call["extra_content"].clone();
    for key in ["role", "content", "tool_calls"] {
        answer.as_object_mut().unwrap().remove(key);
    }
    answer.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    answer
}

#[test]
fn thoughts_go_back_to_where_they_came_from_as_the_service_wants_them() {
    let (none, block) = (json!([]), json!({"type": "reasoning.encrypted", "data": "x"}));
    let signature = json!({"google": {"thought_signature": "s"}});
    let signed = json!([call_block(0, &signature)]);
    let as_sent = quirks();
    let never = Quirks { reasoning: ReasoningEcho::Never, ..quirks() };
    let always = Quirks { reasoning: ReasoningEcho::Always(ReasoningField::Content), ..quirks() };
    let marks = Quirks { marks_calls: true, ..quirks() };
    let table = [
        (&as_sent, "reasoning_content", "hm", &none, "acme", json!({"reasoning_content": "hm"})),
        (&as_sent, "reasoning", "hm", &none, "acme", json!({"reasoning": "hm"})),
        (&as_sent, "reasoning", "hm", &json!([block]), "acme", json!({"reasoning_details": [block]})),
        (&as_sent, "thinking", "hm", &none, "acme", json!({})),
        (&as_sent, "reasoning_content", "hm", &none, "other", json!({})),
        (&as_sent, "extra_content", "", &signed, "acme", json!({"extra_content": signature})),
        (&as_sent, "extra_content", "", &signed, "other", json!({})),
        (&never, "reasoning_content", "hm", &none, "acme", json!({})),
        (&always, "reasoning", "hm", &none, "acme", json!({"reasoning_content": "hm"})),
        (&always, "reasoning_content", "hm", &none, "other", json!({"reasoning_content": " "})),
        (&always, "reasoning_content", "", &none, "acme", json!({"reasoning_content": " "})),
        (&marks, "extra_content", "", &signed, "acme", json!({"extra_content": signature})),
        (
            &marks,
            "",
            "",
            &none,
            "other",
            json!({"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}}),
        ),
    ];
    for (quirks, field, text, blocks, provider, expected) in table {
        assert_eq!(echoed(quirks, field, text, blocks, provider), expected, "{quirks:?} {field} {text} {provider}");
    }
}

/// Two calls in one answer, then the user's next message.
fn with_calls() -> ChatRequest {
    let tool_calls = vec![call("a", "f.x", r#"{"n":1}"#), call("b", "g", "cut")];
    let messages = vec![
        ChatMessage::user("do"),
        ChatMessage::Assistant { content: "I do.".to_owned(), reasoning: None, tool_calls },
        ChatMessage::tool("b", "g", "second"),
        ChatMessage::tool("a", "f.x", "first"),
        ChatMessage::assistant("done"),
    ];
    request(messages, vec![tool("f.x"), tool("g")])
}

#[test]
fn old_servers_get_functions_with_one_call_an_answer() {
    let body = sent_by(&Quirks { tools: ToolForm::Functions, ..quirks() }, &with_calls(), false);
    assert_eq!(
        body["messages"].as_array().unwrap()[1..],
        [
            json!({"role": "user", "content": "do"}),
            json!({"role": "assistant", "content": "I do.", "function_call": {"name": "f_x", "arguments": "{\"n\":1}"}}),
            json!({"role": "function", "name": "f_x", "content": "first"}),
            json!({"role": "assistant", "content": null, "function_call": {"name": "g", "arguments": "{}"}}),
            json!({"role": "function", "name": "g", "content": "second"}),
            json!({"role": "assistant", "content": "done"}),
        ]
    );
    assert_eq!(body.get("tools"), None);
    assert_eq!(
        body["functions"][0],
        json!({"name": "f_x", "description": "Does it.", "parameters": {"type": "object"}})
    );
}

#[test]
fn a_model_without_tools_reads_earlier_calls_in_words() {
    let body = sent_by(&Quirks { tools: ToolForm::Words, ..quirks() }, &with_calls(), false);
    assert_eq!(
        body["messages"].as_array().unwrap()[1..],
        [
            json!({"role": "user", "content": "do"}),
            json!({"role": "assistant", "content": "I do.\n[called f.x with {\"n\":1}]\n[called g with {}]"}),
            json!({"role": "user", "content": "[result of g]\nsecond\n\n[result of f.x]\nfirst"}),
            json!({"role": "assistant", "content": "done"}),
        ]
    );
    assert!(body.get("tools").or(body.get("functions")).is_none());
}

#[test]
fn pictures_go_with_the_words_and_only_those_that_were_read() {
    let wanted = |path: &str| ImageRef { path: path.to_owned(), media_type: "image/png".to_owned() };
    let look = |images: &[&str]| ChatMessage::User {
        content: "look".to_owned(),
        images: images.iter().map(|path| wanted(path)).collect(),
    };
    let mut request =
        request(vec![look(&["a.gif", "gone.png"]), ChatMessage::assistant("hm"), look(&["gone.png"])], vec![]);
    request.images = Images::from_iter([("a.gif".to_owned(), Image::of(b"GIF89a").unwrap())]);
    let picture = json!({"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lGODlh"}});
    let with_picture = json!({"role": "user", "content": [{"type": "text", "text": "look"}, picture]});
    assert_eq!(
        sent(&request, false)["messages"].as_array().unwrap()[1..],
        [
            with_picture.clone(),
            json!({"role": "assistant", "content": "hm"}),
            json!({"role": "user", "content": "look"})
        ]
    );
    let words = Quirks { tools: ToolForm::Words, ..quirks() };
    request.messages.splice(1.., [ChatMessage::tool("a", "f", "done").into()]);
    let mut together = with_picture;
    together["content"].as_array_mut().unwrap().push(json!({"type": "text", "text": "[result of f]\ndone"}));
    assert_eq!(sent_by(&words, &request, false)["messages"][1], together);
}
