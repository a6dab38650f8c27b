//! The request of chat completions. Some services refuse unknown fields, so it has only fields that are in the reference of
//! every service, and fields that the service itself sent.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use super::sent::{OpenaiMessage, messages};
use crate::chat::ToolSpec;
use crate::llm::ChatRequest;
use crate::llm::openai::quirks::{LimitField, Quirks, ToolForm};
use crate::llm::remote::{SerializedTools, ToolNames};

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
    let specs = tools.iter().map(|tool| SentSpec::new(tool, names));
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

impl<'a> SentSpec<'a> {
    fn new(tool: &'a ToolSpec, names: &'a ToolNames) -> Self {
        Self { name: names.service_name(&tool.name), description: &tool.description, parameters: &tool.parameters }
    }
}
