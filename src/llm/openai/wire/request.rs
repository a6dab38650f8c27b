//! What is sent. Some services refuse a request for any field that they do not know, so that nothing stands here that is
//! not in every service's reference.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::llm::remote::{ToolNames, is_json_object};
use crate::llm::{ChatMessage, ChatRequest, ToolCall, ToolSpec};

/// The longest id of a call that OpenAI takes.
const ID_LIMIT: usize = 40;

/// The request of one answer.
#[derive(Serialize)]
pub(in crate::llm) struct WireRequest<'a> {
    model: &'a str,
    messages: Vec<SentMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<SentTool<SentSpec<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
}

/// How a service calls the longest answer: OpenAI's newer models refuse the old name, most others know no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::llm) enum LimitField {
    MaxTokens,
    MaxCompletionTokens,
}

impl<'a> WireRequest<'a> {
    pub(in crate::llm) fn new(request: &'a ChatRequest, names: &'a ToolNames, stream: bool, limit: LimitField) -> Self {
        let system = Some(SentMessage::System { content: &request.system }).filter(|_| !request.system.is_empty());
        let (max_tokens, max_completion_tokens) = match limit {
            LimitField::MaxTokens => (request.max_tokens, None),
            LimitField::MaxCompletionTokens => (None, request.max_tokens),
        };
        Self {
            model: &request.model,
            messages: system
                .into_iter()
                .chain(request.messages.iter().filter_map(|m| sent_message(m, names)))
                .collect(),
            tools: request.tools.iter().map(|tool| sent_tool(tool, names)).collect(),
            temperature: request.temperature,
            max_tokens,
            max_completion_tokens,
            stream,
            stream_options: stream.then_some(StreamOptions { include_usage: true }),
        }
    }
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum SentMessage<'a> {
    System {
        content: &'a str,
    },
    User {
        content: &'a str,
    },
    Assistant {
        /// `null` beside calls where nothing was said.
        content: Option<&'a str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<SentCall<'a>>,
    },
    Tool {
        tool_call_id: Cow<'a, str>,
        content: &'a str,
    },
}

/// `{"type": "function", "function": …}`, the one kind of tool.
#[derive(Serialize)]
#[serde(tag = "type", content = "function", rename_all = "lowercase")]
enum SentTool<T> {
    Function(T),
}

#[derive(Serialize)]
struct SentCall<'a> {
    id: Cow<'a, str>,
    #[serde(flatten)]
    tool: SentTool<SentArguments<'a>>,
}

#[derive(Serialize)]
struct SentArguments<'a> {
    name: Cow<'a, str>,
    arguments: &'a str,
}

#[derive(Serialize)]
struct SentSpec<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    parameters: &'a Value,
}

fn sent_tool<'a>(tool: &'a ToolSpec, names: &'a ToolNames) -> SentTool<SentSpec<'a>> {
    let name = names.sent(&tool.name);
    SentTool::Function(SentSpec { name, description: &tool.description, parameters: &tool.parameters })
}

/// `None` for an assistant's message that says nothing, which strict services refuse.
fn sent_message<'a>(message: &'a ChatMessage, names: &'a ToolNames) -> Option<SentMessage<'a>> {
    Some(match message {
        ChatMessage::User { content } => SentMessage::User { content },
        ChatMessage::Assistant { content, tool_calls, .. } if content.is_empty() && tool_calls.is_empty() => {
            return None;
        }
        ChatMessage::Assistant { content, tool_calls, .. } => SentMessage::Assistant {
            content: Some(content.as_str()).filter(|content| !content.is_empty()),
            tool_calls: tool_calls.iter().map(|call| sent_call(call, names)).collect(),
        },
        ChatMessage::Tool { call_id, content, .. } => SentMessage::Tool { tool_call_id: sent_id(call_id), content },
    })
}

fn sent_call<'a>(call: &'a ToolCall, names: &'a ToolNames) -> SentCall<'a> {
    // Services refuse arguments that are no JSON object; the result of such a call tells the model what it wrote.
    let arguments = if is_json_object(&call.arguments) { call.arguments.as_str() } else { "{}" };
    let tool = SentTool::Function(SentArguments { name: names.sent(&call.name), arguments });
    SentCall { id: sent_id(&call.id), tool }
}

/// An id as services take it: the same for the call and for its result.
fn sent_id(id: &str) -> Cow<'_, str> {
    if (1..=ID_LIMIT).contains(&id.len()) {
        return Cow::Borrowed(id);
    }
    let hash = Sha256::digest(id.as_bytes());
    Cow::Owned(hash[..16].iter().fold("call_".to_owned(), |text, byte| text + &format!("{byte:02x}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
        ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
    }

    fn tool(name: &str) -> ToolSpec {
        ToolSpec { name: name.to_owned(), description: "Does it.".to_owned(), parameters: json!({"type": "object"}) }
    }

    fn sent(request: &ChatRequest, stream: bool) -> Value {
        let names = ToolNames::of(&request.tools);
        serde_json::to_value(WireRequest::new(request, &names, stream, LimitField::MaxTokens)).unwrap()
    }

    fn request(messages: Vec<ChatMessage>, tools: Vec<ToolSpec>) -> ChatRequest {
        ChatRequest {
            model: "m".to_owned(),
            system: "Be kind.".into(),
            messages,
            tools: tools.into(),
            temperature: None,
            max_tokens: None,
        }
    }

    #[test]
    fn a_plain_request_holds_nothing_but_what_is_asked() {
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
        let names = ToolNames::default();
        let newer =
            serde_json::to_value(WireRequest::new(&plain, &names, false, LimitField::MaxCompletionTokens)).unwrap();
        assert_eq!((&newer["max_completion_tokens"], &newer["max_tokens"]), (&json!(5), &Value::Null));
    }

    #[test]
    fn calls_and_results_are_sent_as_strict_services_want_them() {
        let long_id = "x".repeat(41);
        let messages = vec![
            ChatMessage::user("do"),
            ChatMessage::Assistant {
                content: String::new(),
                reasoning: Some(crate::llm::Reasoning {
                    field: "reasoning".to_owned(),
                    text: "hm".to_owned(),
                    ..Default::default()
                }),
                tool_calls: vec![call("a", "read_file", r#"{"path":"x"}"#), call(&long_id, "no.such", r#"{"cut"#)],
            },
            ChatMessage::Tool { call_id: "a".to_owned(), name: "read_file".to_owned(), content: "ok".to_owned() },
            ChatMessage::Tool { call_id: long_id, name: "no.such".to_owned(), content: "unknown".to_owned() },
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
}
