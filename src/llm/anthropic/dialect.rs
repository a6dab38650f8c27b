//! The Messages API as a dialect.

use reqwest::header::{HeaderName, HeaderValue};
use serde_json::Value;

use super::assemble::AnthropicAssembler;
use super::parameters::ModelParameters;
use super::wire::{AnthropicRequest, LEAST_THINKING, RequestOptions, definitions};
use crate::llm::remote::{Assemble, Dialect, LearnedByModel, ToolNames, ToolSerializer, serialize_body};
use crate::llm::{ChatRequest, DeltaSink};

static HEADERS: [(HeaderName, HeaderValue); 1] =
    [(HeaderName::from_static("anthropic-version"), HeaderValue::from_static("2023-06-01"))];

/// The dialect of one provider.
pub struct AnthropicDialect {
    provider: String,
    /// The maximum number of tokens for reasoning; `None` if the models must not reason.
    thinking: Option<u32>,
    learned: LearnedByModel<ModelParameters>,
    written: ToolSerializer<()>,
}

impl AnthropicDialect {
    /// Creates the dialect; `provider` is its name in the configuration, `thinking` the maximum number of tokens for
    /// reasoning, 0 for none.
    ///
    /// # Errors
    /// `thinking` is less than the service accepts.
    pub fn new(provider: &str, thinking: u32) -> Result<Self, String> {
        if (1..LEAST_THINKING).contains(&thinking) {
            return Err(format!("thinking: must be 0 (off) or at least {LEAST_THINKING} tokens"));
        }
        let thinking = Some(thinking).filter(|budget| *budget > 0);
        let (learned, written) = (LearnedByModel::default(), ToolSerializer::default());
        Ok(Self { provider: provider.to_owned(), thinking, learned, written })
    }
}

impl Dialect for AnthropicDialect {
    fn chat_path(&self) -> &'static [&'static str] {
        &["messages"]
    }

    fn key_header(&self, key: &str) -> (HeaderName, String) {
        (HeaderName::from_static("x-api-key"), key.to_owned())
    }

    fn headers(&self) -> &'static [(HeaderName, HeaderValue)] {
        &HEADERS
    }

    fn body(&self, request: &ChatRequest, names: &ToolNames, stream: bool) -> serde_json::Result<Vec<u8>> {
        let learned = self.learned.get(&request.model).unwrap_or_default();
        let options = RequestOptions { provider: &self.provider, thinking: self.thinking, learned, stream };
        let tools = self.written.get(&request.tools, (), || definitions(&request.tools, names))?;
        serialize_body(&AnthropicRequest::new(request, names, options, tools)?)
    }

    fn learn(&self, model: &str, sent: &Value, refusal: &str) -> Option<&'static str> {
        self.learned.learn(model, ModelParameters::default(), |known| known.learn(sent, refusal))
    }

    fn next_models(&self, list: &Value) -> Option<(&'static str, String)> {
        let last = list["last_id"].as_str().filter(|_| list["has_more"] == true)?;
        Some(("after_id", last.to_owned()))
    }

    fn assembler<'a>(&'a self, names: &'a ToolNames, limit: usize, sink: &'a dyn DeltaSink) -> Box<dyn Assemble + 'a> {
        Box::new(AnthropicAssembler::new(names, limit, sink))
    }
}

#[cfg(test)]
#[path = "dialect_tests.rs"]
mod tests;
