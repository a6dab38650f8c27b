//! What is sent. Some services refuse a request for any field that they do not know, so that nothing stands here that is
//! not in every service's reference, but for what a service sent itself.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use super::sent::{SentMessage, messages};
use crate::chat::ToolSpec;
use crate::llm::ChatRequest;
use crate::llm::openai::manners::{LimitField, Manners, ToolForm};
use crate::llm::remote::{ToolNames, Written};

/// The request of one answer.
#[derive(Serialize)]
pub(in crate::llm) struct WireRequest<'a> {
    model: &'a str,
    messages: Vec<SentMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Written>,
    /// What tools were called before there were tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    functions: Option<Written>,
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

impl<'a> WireRequest<'a> {
    /// `provider` is the name of the one that is asked, `tools` what [`definitions`] gives.
    pub(in crate::llm) fn new(
        request: &'a ChatRequest,
        names: &'a ToolNames,
        stream: bool,
        manners: &Manners,
        provider: &str,
        tools: Option<Written>,
    ) -> Self {
        let (tools, functions) = match manners.tools {
            ToolForm::Tools => (tools, None),
            ToolForm::Functions => (None, tools),
            ToolForm::Words => (None, None),
        };
        let limit = |field| request.max_tokens.filter(|_| manners.limit == Some(field));
        Self {
            model: &request.model,
            messages: messages(request, names, manners, provider),
            tools,
            functions,
            temperature: request.temperature.filter(|_| manners.temperature),
            max_tokens: limit(LimitField::MaxTokens),
            max_completion_tokens: limit(LimitField::MaxCompletionTokens),
            stream,
            stream_options: (stream && manners.stream_options).then_some(StreamOptions { include_usage: true }),
        }
    }
}

/// What a model is told of its tools.
pub(in crate::llm) fn definitions<'a>(
    tools: &'a [ToolSpec],
    names: &'a ToolNames,
    form: ToolForm,
) -> Vec<SentTool<'a>> {
    let specs = tools.iter().map(|tool| SentSpec::new(tool, names));
    match form {
        ToolForm::Tools => specs.map(|function| SentTool::Tool { type_: "function", function }).collect(),
        ToolForm::Functions => specs.map(SentTool::Function).collect(),
        ToolForm::Words => Vec::new(),
    }
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(in crate::llm) enum SentTool<'a> {
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
        Self { name: names.sent(&tool.name), description: &tool.description, parameters: &tool.parameters }
    }
}
