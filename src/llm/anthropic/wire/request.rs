//! The request of the Messages API.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::conversation::{AnthropicConversation, AnthropicMessage, CacheControl};
use super::limits::limits;
use crate::chat::ToolSpec;
use crate::llm::anthropic::parameters::{ModelParameters, ThinkingForm};
use crate::llm::remote::{SerializedTools, ToolNames};
use crate::llm::{ChatRequest, SerializedText};

/// The request of one answer.
#[derive(Serialize)]
pub(in crate::llm) struct AnthropicRequest<'a> {
    model: &'a str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<[System<'a>; 1]>,
    messages: Vec<AnthropicMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<SerializedTools>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<ToolChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<SentThinking>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream: bool,
}

/// The provider's options for each request.
#[derive(Clone, Copy, Debug)]
pub(in crate::llm) struct RequestOptions<'a> {
    /// The provider that gets its own reasoning back.
    pub provider: &'a str,
    /// The budget for reasoning, in tokens; `None` if the model must not reason.
    pub thinking: Option<u32>,
    /// The parameters that the model accepts, as learned from refusals.
    pub learned: ModelParameters,
    pub stream: bool,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum SentThinking {
    Enabled {
        budget_tokens: u32,
    },
    /// The model chooses the budget. Newer models do so, and show no reasoning unless the request asks for it.
    Adaptive {
        display: &'static str,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum ToolChoice {
    None,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum System<'a> {
    Text { text: &'a SerializedText, cache_control: CacheControl },
}

#[derive(Serialize)]
pub(in crate::llm) struct AnthropicTool<'a> {
    name: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    input_schema: Cow<'a, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

impl<'a> AnthropicRequest<'a> {
    /// Creates a request; `tools` is the result of [`definitions`].
    ///
    /// # Errors
    /// The tools cannot be serialized.
    pub(in crate::llm) fn new(
        request: &'a ChatRequest,
        names: &'a ToolNames,
        options: RequestOptions<'_>,
        mut tools: Option<SerializedTools>,
    ) -> serde_json::Result<Self> {
        let mut conversation = AnthropicConversation::new(&request.messages, &request.images, names, options.provider);
        let form = options.learned.thinking;
        let wanted = options.thinking.filter(|_| form != ThinkingForm::Refused);
        // A model that chooses its own budget may have answered without reasoning.
        let may_think = form == ThinkingForm::Adaptive || conversation.has_reasoning_throughout();
        let limits = limits(&request.model, request.max_tokens, wanted.filter(|_| may_think));
        let thinking = limits.thinking.map(|budget_tokens| match form {
            ThinkingForm::Adaptive => SentThinking::Adaptive { display: "summarized" },
            ThinkingForm::Budget | ThinkingForm::Refused => SentThinking::Enabled { budget_tokens },
        });
        // The service refuses earlier reasoning if thinking is off. A service that reasons although thinking was never
        // requested gets its own reasoning back.
        if options.thinking.is_some() && thinking.is_none() {
            conversation.remove_reasoning();
        }
        conversation.mark_for_cache();
        let mut tool_choice = None;
        // The service accepts earlier calls only together with definitions of their tools.
        let gone = if tools.is_none() { conversation.called() } else { Vec::new() };
        if !gone.is_empty() {
            tools = Some(SerializedTools::new(&marked(gone.into_iter().map(gone_tool).collect()))?);
            tool_choice = Some(ToolChoice::None);
        }
        let temperature = request.temperature.filter(|_| thinking.is_none() && options.learned.takes_temperature);
        Ok(Self {
            model: &request.model,
            max_tokens: limits.max_tokens,
            system: system(&request.system),
            messages: conversation.messages,
            tools,
            tool_choice,
            temperature: temperature.map(|temperature| temperature.clamp(0.0, 1.0)),
            thinking,
            stream: options.stream,
        })
    }
}

/// Returns the definitions of tools for a model.
pub(in crate::llm) fn definitions<'a>(tools: &'a [ToolSpec], names: &ToolNames) -> Vec<AnthropicTool<'a>> {
    marked(tools.iter().map(|tool| sent_tool(tool, names)).collect())
}

/// Sets the cache mark on the last of `tools`.
fn marked(mut tools: Vec<AnthropicTool<'_>>) -> Vec<AnthropicTool<'_>> {
    if let Some(last) = tools.last_mut() {
        last.cache_control = Some(CacheControl::Ephemeral);
    }
    tools
}

fn system(text: &SerializedText) -> Option<[System<'_>; 1]> {
    let is_empty = text.trim().is_empty();
    (!is_empty).then_some([System::Text { text, cache_control: CacheControl::Ephemeral }])
}

fn sent_tool<'a>(tool: &'a ToolSpec, names: &ToolNames) -> AnthropicTool<'a> {
    let name = names.service_name(&tool.name).into_owned();
    AnthropicTool {
        name,
        description: &tool.description,
        input_schema: input_schema(&tool.parameters),
        cache_control: None,
    }
}

/// Returns a definition for a tool that the conversation names but that is no longer offered, so that it must not be called.
fn gone_tool(name: &str) -> AnthropicTool<'static> {
    let input_schema = Cow::Owned(json!({"type": "object", "properties": {}}));
    AnthropicTool { name: name.to_owned(), description: "", input_schema, cache_control: None }
}

/// Returns a schema in the form that the service accepts: of an object, without choices at the top level.
fn input_schema(schema: &Value) -> Cow<'_, Value> {
    const CHOICES: [&str; 3] = ["anyOf", "oneOf", "allOf"];
    let is_object = schema["type"] == "object";
    if is_object && CHOICES.iter().all(|key| schema.get(key).is_none()) {
        return Cow::Borrowed(schema);
    }
    let mut fields: Map<String, Value> = schema.as_object().cloned().unwrap_or_default();
    fields.retain(|key, _| !CHOICES.contains(&key.as_str()));
    fields.insert("type".to_owned(), "object".into());
    Cow::Owned(Value::Object(fields))
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
