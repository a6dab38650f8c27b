//! The request of chat completions. Some services refuse unknown fields, so it has only fields that are in the reference of
//! every service, and fields that the service itself sent.

use std::borrow::Cow;
use std::sync::Arc;

use daoyou_channels::text::hex;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::chat::{ChatMessage, ImageRef, Reasoning, ToolCall, ToolSpec};
use crate::llm::openai::quirks::{LimitField, Quirks, ReasoningEcho, ReasoningField, ToolForm};
use crate::llm::remote::{SerializedTools, ToolNames, is_json_object};
use crate::llm::{ChatRequest, Image, Images, SerializedText};

/// The longest id of a call that OpenAI accepts.
const ID_LIMIT: usize = 40;

/// Placeholder for unknown reasoning, for services that require reasoning and refuse an empty text.
const BLANK: &str = " ";

/// Placeholder for Gemini's signature in calls that another model made, or whose signature is lost
/// (ai.google.dev/gemini-api/docs/thought-signatures).
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// The keys of a call's own block, which is stored among the blocks of the reasoning: `{"call": INDEX, "extra_content": …}`.
const CALL: &str = "call";
const EXTRA_CONTENT: &str = "extra_content";

/// The request of one answer.
#[derive(Serialize)]
pub(in crate::llm) struct OpenaiRequest<'a> {
    model: &'a str,
    messages: Vec<OpenaiMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<SerializedTools>,
    /// The tools, under their name in older versions of the protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    functions: Option<SerializedTools>,
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

impl<'a> OpenaiRequest<'a> {
    /// Creates a request; `provider` is the name of the provider that is asked, `tools` the result of [`definitions`].
    pub(in crate::llm) fn new(
        request: &'a ChatRequest,
        names: &'a ToolNames,
        stream: bool,
        quirks: &Quirks,
        provider: &str,
        tools: Option<SerializedTools>,
    ) -> Self {
        let (tools, functions) = match quirks.tools {
            ToolForm::Tools => (tools, None),
            ToolForm::Functions => (None, tools),
            ToolForm::Words => (None, None),
        };
        let limit = |field| request.max_tokens.filter(|_| quirks.limit == Some(field));
        Self {
            model: &request.model,
            messages: messages(request, names, quirks, provider),
            tools,
            functions,
            temperature: request.temperature.filter(|_| quirks.temperature),
            max_tokens: limit(LimitField::MaxTokens),
            max_completion_tokens: limit(LimitField::MaxCompletionTokens),
            stream,
            stream_options: (stream && quirks.stream_options).then_some(StreamOptions { include_usage: true }),
        }
    }
}

/// Returns the definitions of tools for a model.
pub(in crate::llm) fn definitions<'a>(
    tools: &'a [ToolSpec],
    names: &'a ToolNames,
    form: ToolForm,
) -> Vec<OpenaiTool<'a>> {
    let specs = tools.iter().map(|tool| SentSpec {
        name: names.service_name(&tool.name),
        description: &tool.description,
        parameters: &tool.parameters,
    });
    match form {
        ToolForm::Tools => specs.map(|function| OpenaiTool::Tool { type_: "function", function }).collect(),
        ToolForm::Functions => specs.map(OpenaiTool::Function).collect(),
        ToolForm::Words => Vec::new(),
    }
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(in crate::llm) enum OpenaiTool<'a> {
    Tool {
        #[serde(rename = "type")]
        type_: &'static str,
        function: SentSpec<'a>,
    },
    Function(SentSpec<'a>),
}

#[derive(Serialize)]
pub(in crate::llm) struct SentSpec<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    parameters: &'a Value,
}

/// A message of the conversation in the form of one service.
#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub(super) enum OpenaiMessage<'a> {
    System { content: &'a SerializedText },
    User { content: UserContent<'a> },
    Assistant(SentAnswer<'a>),
    Tool { tool_call_id: Cow<'a, str>, content: &'a str },
    Function { name: Cow<'a, str>, content: &'a str },
}

/// The content of a user's message. It is plain text if there are no images, because not every server knows content parts.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum UserContent<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<UserPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum UserPart<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrl<'a> },
}

#[derive(Serialize)]
pub(super) struct ImageUrl<'a> {
    #[serde(serialize_with = "data_url")]
    url: &'a Image,
}

impl<'a> UserContent<'a> {
    /// Creates content from `text` and those of the `wanted` images that are in `images`.
    fn new(text: &'a str, wanted: &'a [ImageRef], images: &'a Images) -> Self {
        let mut pictures =
            images.of(wanted).map(|image| UserPart::ImageUrl { image_url: ImageUrl { url: image } }).peekable();
        if pictures.peek().is_none() {
            return Self::Text(text.into());
        }
        let text = Some(text).filter(|text| !text.is_empty()).map(|text| UserPart::Text { text: text.into() });
        Self::Parts(text.into_iter().chain(pictures).collect())
    }

    /// Appends a paragraph.
    fn push(&mut self, words: String) {
        match self {
            Self::Text(text) => {
                text.to_mut().push_str("\n\n");
                text.to_mut().push_str(&words);
            }
            Self::Parts(parts) => parts.push(UserPart::Text { text: words.into() }),
        }
    }
}

/// Writes an image as a data URL (RFC 2397).
fn data_url<S: Serializer>(image: &&Image, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("data:{};base64,{}", image.media_type(), image.base64()))
}

#[derive(Serialize, Default)]
pub(super) struct SentAnswer<'a> {
    /// The text; `null` for calls without text.
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

/// Returns the stored form of the service's own block for the call at `index`.
pub(in crate::llm) fn call_block(index: usize, extra_content: &Value) -> Value {
    json!({ CALL: index, EXTRA_CONTENT: extra_content })
}

/// Returns the conversation of `request` for `provider`, the system prompt first.
pub(super) fn messages<'a>(
    request: &'a ChatRequest,
    names: &'a ToolNames,
    quirks: &Quirks,
    provider: &str,
) -> Vec<OpenaiMessage<'a>> {
    let writer = MessageWriter { names, quirks, provider };
    let mut sent = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        sent.push(OpenaiMessage::System { content: &request.system });
    }
    for (at, message) in request.messages.iter().enumerate() {
        match (&**message, quirks.tools) {
            (ChatMessage::User { content, images }, _) => {
                sent.push(OpenaiMessage::User { content: UserContent::new(content, images, &request.images) });
            }
            // Strict services refuse an empty message, so it is left out.
            (ChatMessage::Assistant { content, tool_calls, .. }, _) if content.is_empty() && tool_calls.is_empty() => {}
            (ChatMessage::Assistant { content, reasoning, tool_calls }, form) => match form {
                ToolForm::Functions if !tool_calls.is_empty() => {
                    writer.functions(content, tool_calls, &request.messages[at + 1..], &mut sent);
                }
                ToolForm::Words if !tool_calls.is_empty() => sent.push(in_words(content, tool_calls)),
                _ => sent.push(OpenaiMessage::Assistant(writer.answer(content, reasoning.as_ref(), tool_calls))),
            },
            (ChatMessage::Tool { call_id, content, .. }, ToolForm::Tools) => {
                sent.push(OpenaiMessage::Tool { tool_call_id: sent_id(call_id), content });
            }
            // The result was written after its call.
            (ChatMessage::Tool { .. }, ToolForm::Functions) => {}
            (ChatMessage::Tool { name, content, .. }, ToolForm::Words) => result_in_words(name, content, &mut sent),
        }
    }
    sent
}

struct MessageWriter<'a, 'b> {
    names: &'a ToolNames,
    quirks: &'b Quirks,
    provider: &'b str,
}

impl<'a> MessageWriter<'a, '_> {
    fn answer(&self, content: &'a str, reasoning: Option<&'a Reasoning>, calls: &'a [ToolCall]) -> SentAnswer<'a> {
        let own = reasoning.filter(|reasoning| reasoning.provider == self.provider);
        let mut answer = SentAnswer {
            content: Some(content.into()).filter(|_| !content.is_empty()),
            tool_calls: calls.iter().enumerate().map(|(index, call)| self.call(index, call, own)).collect(),
            ..SentAnswer::default()
        };
        let text = own.map(|own| own.text.as_str()).filter(|text| !text.is_empty());
        match (self.quirks.reasoning, own) {
            (ReasoningEcho::AsSent, Some(own)) => {
                answer.reasoning_details = details(own).collect();
                if answer.reasoning_details.is_empty() {
                    answer.push_reasoning(own.field.parse().ok(), text);
                }
            }
            (ReasoningEcho::Always(ReasoningField::Details), Some(own)) => {
                answer.reasoning_details = details(own).collect();
            }
            (ReasoningEcho::Always(field), _) if !calls.is_empty() => {
                answer.push_reasoning(Some(field), text.or(Some(BLANK)));
            }
            _ => {}
        }
        answer
    }

    fn call(&self, index: usize, call: &'a ToolCall, own: Option<&'a Reasoning>) -> SentCall<'a> {
        let kept = own.and_then(|own| own.blocks.iter().find(|block| block[CALL].as_u64() == Some(index as u64)));
        // Only the first of parallel calls has a signature.
        let mark = || json!({"google": {"thought_signature": NO_SIGNATURE}});
        let mark = (self.quirks.marks_calls && index == 0).then(mark);
        SentCall {
            id: sent_id(&call.id),
            type_: "function",
            function: self.arguments(call),
            extra_content: kept.map(|block| Cow::Borrowed(&block[EXTRA_CONTENT])).or(mark.map(Cow::Owned)),
        }
    }

    fn arguments(&self, call: &'a ToolCall) -> SentArguments<'a> {
        SentArguments { name: self.names.service_name(&call.name), arguments: arguments(call) }
    }

    /// Writes one message for each call, followed by its result, as the protocol from before tools requires.
    fn functions(
        &self,
        content: &'a str,
        calls: &'a [ToolCall],
        after: &'a [Arc<ChatMessage>],
        sent: &mut Vec<OpenaiMessage<'a>>,
    ) {
        let mut content = Some(Cow::Borrowed(content)).filter(|content| !content.is_empty());
        for call in calls {
            let results = after.iter().map_while(|message| match &**message {
                ChatMessage::Tool { call_id, content, .. } => Some((call_id, content)),
                _ => None,
            });
            let result = results.into_iter().find(|(id, _)| **id == call.id);
            let function_call = Some(self.arguments(call));
            let answer = SentAnswer { content: content.take(), function_call, ..SentAnswer::default() };
            sent.push(OpenaiMessage::Assistant(answer));
            if let Some((_, content)) = result {
                sent.push(OpenaiMessage::Function { name: self.names.service_name(&call.name), content });
            }
        }
    }
}

impl<'a> SentAnswer<'a> {
    fn push_reasoning(&mut self, field: Option<ReasoningField>, text: Option<&'a str>) {
        match field {
            Some(ReasoningField::Content) => self.reasoning_content = text,
            Some(ReasoningField::Plain) => self.reasoning = text,
            Some(ReasoningField::Details) | None => {}
        }
    }
}

/// Returns the blocks of the reasoning, without those of calls.
fn details(own: &Reasoning) -> impl Iterator<Item = &Value> {
    own.blocks.iter().filter(|block| block.get(CALL).is_none())
}

/// Returns arguments in the form that services accept: a JSON object. If the model wrote something else, the result of the call
/// tells the model what it wrote.
fn arguments(call: &ToolCall) -> &str {
    if is_json_object(&call.arguments) { &call.arguments } else { "{}" }
}

/// Writes calls of earlier answers as text for a model without tools.
fn in_words<'a>(content: &'a str, calls: &'a [ToolCall]) -> OpenaiMessage<'a> {
    let called = calls.iter().map(|call| format!("[called {} with {}]", call.name, arguments(call)));
    let text = Some(content.to_owned()).filter(|content| !content.is_empty());
    let words = text.into_iter().chain(called).collect::<Vec<_>>().join("\n");
    OpenaiMessage::Assistant(SentAnswer { content: Some(words.into()), ..SentAnswer::default() })
}

/// Writes a result as text in a user's message, together with the results before it, because such models require that user and
/// assistant alternate.
fn result_in_words<'a>(name: &str, content: &str, sent: &mut Vec<OpenaiMessage<'a>>) {
    let words = format!("[result of {name}]\n{content}");
    match sent.last_mut() {
        Some(OpenaiMessage::User { content }) => content.push(words),
        _ => sent.push(OpenaiMessage::User { content: UserContent::Text(words.into()) }),
    }
}

/// Returns an id that services accept, the same for the call and for its result.
fn sent_id(id: &str) -> Cow<'_, str> {
    if (1..=ID_LIMIT).contains(&id.len()) {
        return Cow::Borrowed(id);
    }
    Cow::Owned(format!("call_{}", hex(&Sha256::digest(id.as_bytes())[..16])))
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
