//! Chat completions as a protocol.

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};

use super::assemble::Assembler;
use super::wire::{LimitField, WireRequest};
use crate::llm::remote::{Assemble, Dialect, Fault, ToolNames};
use crate::llm::{ChatRequest, LlmErrorKind};

/// What one service takes of it.
pub struct OpenaiDialect {
    limit_field: LimitField,
}

impl OpenaiDialect {
    /// As the service at `base_url` takes it.
    pub fn of(base_url: &Url) -> Self {
        let is_openai = base_url.host_str() == Some("api.openai.com");
        Self { limit_field: if is_openai { LimitField::MaxCompletionTokens } else { LimitField::MaxTokens } }
    }
}

impl Dialect for OpenaiDialect {
    fn chat_path(&self) -> &'static [&'static str] {
        &["chat", "completions"]
    }

    fn key_header(&self, key: &str) -> (HeaderName, String) {
        (AUTHORIZATION, format!("Bearer {key}"))
    }

    fn headers(&self) -> &'static [(HeaderName, HeaderValue)] {
        &[]
    }

    fn body(&self, request: &ChatRequest, names: &ToolNames, stream: bool) -> Result<Vec<u8>, Fault> {
        serde_json::to_vec(&WireRequest::new(request, names, stream, self.limit_field))
            .map_err(|error| Fault::new(LlmErrorKind::BadRequest, format!("the request cannot be written: {error}")))
    }

    fn assembler<'a>(&'a self, names: &'a ToolNames, limit: usize) -> Box<dyn Assemble + Send + 'a> {
        Box::new(Assembler::new(names, limit))
    }
}
