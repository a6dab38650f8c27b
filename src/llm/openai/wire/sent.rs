//! The messages of a conversation as one service takes them.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::parts::UserContent;
use crate::chat::{ChatMessage, Reasoning, ToolCall};
use crate::llm::ChatRequest;
use crate::llm::openai::manners::{Echo, Manners, ReasoningField, ToolForm};
use crate::llm::remote::{ToolNames, is_json_object};

/// The longest id of a call that OpenAI takes.
const ID_LIMIT: usize = 40;

/// Stands for thoughts that are not known, where a service wants some: it takes no empty text.
const BLANK: &str = " ";

/// Stands for Gemini's signature in calls that another model made, or that have lost it
/// (ai.google.dev/gemini-api/docs/thought-signatures).
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Where a call's own block is kept among those of the reasoning: `{"call": INDEX, "extra_content": …}`.
const CALL: &str = "call";
const EXTRA_CONTENT: &str = "extra_content";

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub(super) enum SentMessage<'a> {
    System { content: &'a str },
    User { content: UserContent<'a> },
    Assistant(SentAnswer<'a>),
    Tool { tool_call_id: Cow<'a, str>, content: &'a str },
    Function { name: Cow<'a, str>, content: &'a str },
}

#[derive(Serialize, Default)]
pub(super) struct SentAnswer<'a> {
    /// `null` beside calls where nothing was said.
    content: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasoning_details: Vec<&'a Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<SentCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<SentArguments<'a>>,
}

#[derive(Serialize)]
struct SentCall<'a> {
    id: Cow<'a, str>,
    #[serde(rename = "type")]
    type_: &'static str,
    function: SentArguments<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<Cow<'a, Value>>,
}

#[derive(Serialize)]
struct SentArguments<'a> {
    name: Cow<'a, str>,
    arguments: &'a str,
}

/// What is kept of a service's own block that came with the call at `index`.
pub(in crate::llm) fn call_block(index: usize, extra_content: &Value) -> Value {
    json!({ CALL: index, EXTRA_CONTENT: extra_content })
}

/// The conversation of `request` for `provider`, the system prompt first.
pub(super) fn messages<'a>(
    request: &'a ChatRequest,
    names: &'a ToolNames,
    manners: &Manners,
    provider: &str,
) -> Vec<SentMessage<'a>> {
    let writer = Writer { names, manners, provider };
    let mut sent = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        sent.push(SentMessage::System { content: &request.system });
    }
    for (at, message) in request.messages.iter().enumerate() {
        match (message, manners.tools) {
            (ChatMessage::User { content, images }, _) => {
                sent.push(SentMessage::User { content: UserContent::new(content, images, &request.images) });
            }
            // It says nothing, which strict services refuse.
            (ChatMessage::Assistant { content, tool_calls, .. }, _) if content.is_empty() && tool_calls.is_empty() => {}
            (ChatMessage::Assistant { content, reasoning, tool_calls }, form) => match form {
                ToolForm::Functions if !tool_calls.is_empty() => {
                    writer.functions(content, tool_calls, &request.messages[at + 1..], &mut sent);
                }
                ToolForm::Words if !tool_calls.is_empty() => sent.push(in_words(content, tool_calls)),
                _ => sent.push(SentMessage::Assistant(writer.answer(content, reasoning.as_ref(), tool_calls))),
            },
            (ChatMessage::Tool { call_id, content, .. }, ToolForm::Tools) => {
                sent.push(SentMessage::Tool { tool_call_id: sent_id(call_id), content });
            }
            // Written beside its call.
            (ChatMessage::Tool { .. }, ToolForm::Functions) => {}
            (ChatMessage::Tool { name, content, .. }, ToolForm::Words) => result_in_words(name, content, &mut sent),
        }
    }
    sent
}

struct Writer<'a, 'b> {
    names: &'a ToolNames,
    manners: &'b Manners,
    provider: &'b str,
}

impl<'a> Writer<'a, '_> {
    fn answer(&self, content: &'a str, reasoning: Option<&'a Reasoning>, calls: &'a [ToolCall]) -> SentAnswer<'a> {
        let own = reasoning.filter(|reasoning| reasoning.provider == self.provider);
        let mut answer = SentAnswer {
            content: Some(content.into()).filter(|_| !content.is_empty()),
            tool_calls: calls.iter().enumerate().map(|(index, call)| self.call(index, call, own)).collect(),
            ..SentAnswer::default()
        };
        let text = own.map(|own| own.text.as_str()).filter(|text| !text.is_empty());
        match (self.manners.reasoning, own) {
            (Echo::AsSent, Some(own)) => {
                answer.reasoning_details = details(own).collect();
                if answer.reasoning_details.is_empty() {
                    answer.think(ReasoningField::find(&own.field), text);
                }
            }
            (Echo::Always(ReasoningField::Details), Some(own)) => answer.reasoning_details = details(own).collect(),
            (Echo::Always(field), _) if !calls.is_empty() => answer.think(Some(field), text.or(Some(BLANK))),
            _ => {}
        }
        answer
    }

    fn call(&self, index: usize, call: &'a ToolCall, own: Option<&'a Reasoning>) -> SentCall<'a> {
        let kept = own.and_then(|own| own.blocks.iter().find(|block| block[CALL].as_u64() == Some(index as u64)));
        // The first of calls made side by side bears the signature.
        let mark = || json!({"google": {"thought_signature": NO_SIGNATURE}});
        let mark = (self.manners.marks_calls && index == 0).then(mark);
        SentCall {
            id: sent_id(&call.id),
            type_: "function",
            function: self.arguments(call),
            extra_content: kept.map(|block| Cow::Borrowed(&block[EXTRA_CONTENT])).or(mark.map(Cow::Owned)),
        }
    }

    fn arguments(&self, call: &'a ToolCall) -> SentArguments<'a> {
        SentArguments { name: self.names.sent(&call.name), arguments: arguments(call) }
    }

    /// One message for each call, and its result right behind it: all that there was before there were tools.
    fn functions(
        &self,
        content: &'a str,
        calls: &'a [ToolCall],
        after: &'a [ChatMessage],
        sent: &mut Vec<SentMessage<'a>>,
    ) {
        let mut content = Some(Cow::Borrowed(content)).filter(|content| !content.is_empty());
        for call in calls {
            let results = after.iter().map_while(|message| match message {
                ChatMessage::Tool { call_id, content, .. } => Some((call_id, content)),
                _ => None,
            });
            let result = results.into_iter().find(|(id, _)| **id == call.id);
            let function_call = Some(self.arguments(call));
            let answer = SentAnswer { content: content.take(), function_call, ..SentAnswer::default() };
            sent.push(SentMessage::Assistant(answer));
            if let Some((_, content)) = result {
                sent.push(SentMessage::Function { name: self.names.sent(&call.name), content });
            }
        }
    }
}

impl<'a> SentAnswer<'a> {
    fn think(&mut self, field: Option<ReasoningField>, text: Option<&'a str>) {
        match field {
            Some(ReasoningField::Content) => self.reasoning_content = text,
            Some(ReasoningField::Plain) => self.reasoning = text,
            Some(ReasoningField::Details) | None => {}
        }
    }
}

/// The blocks of the reasoning itself.
fn details(own: &Reasoning) -> impl Iterator<Item = &Value> {
    own.blocks.iter().filter(|block| block.get(CALL).is_none())
}

/// Services refuse arguments that are no JSON object; the result of such a call tells the model what it wrote.
fn arguments(call: &ToolCall) -> &str {
    if is_json_object(&call.arguments) { &call.arguments } else { "{}" }
}

/// Calls of earlier answers for a model that knows no tools.
fn in_words<'a>(content: &'a str, calls: &'a [ToolCall]) -> SentMessage<'a> {
    let called = calls.iter().map(|call| format!("[called {} with {}]", call.name, arguments(call)));
    let said = Some(content.to_owned()).filter(|content| !content.is_empty());
    let words = said.into_iter().chain(called).collect::<Vec<_>>().join("\n");
    SentMessage::Assistant(SentAnswer { content: Some(words.into()), ..SentAnswer::default() })
}

/// Adds to the results before it, as such models want user and assistant to take turns.
fn result_in_words<'a>(name: &str, content: &str, sent: &mut Vec<SentMessage<'a>>) {
    let words = format!("[result of {name}]\n{content}");
    match sent.last_mut() {
        Some(SentMessage::User { content }) => content.push(words),
        _ => sent.push(SentMessage::User { content: UserContent::Text(words.into()) }),
    }
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
#[path = "sent_tests.rs"]
mod tests;
