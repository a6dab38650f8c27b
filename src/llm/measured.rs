//! Access to a dialect without a service, for the micro-benchmarks (`benches/llm`). No other code uses it.

use reqwest::Url;

use super::openai::OpenaiDialect;
use super::remote::{AttemptError, Dialect, ToolNames};
use super::{ChatRequest, ChatResponse, DeltaSink, LlmError, LlmErrorKind, ProviderConfig};
use crate::chat::ToolSpec;

/// The maximum size, in bytes, of an answer, as in production.
const LIMIT: usize = 16 * 1024 * 1024;

/// A dialect and the names of its tools.
pub struct MeasuredDialect {
    dialect: Box<dyn Dialect>,
    names: ToolNames,
}

impl MeasuredDialect {
    /// Creates the dialect of chat completions for the service at `base_url`.
    ///
    /// # Errors
    /// `base_url` is not a URL.
    pub fn openai(base_url: &str, tools: &[ToolSpec]) -> Result<Self, LlmError> {
        let base = Url::parse(base_url)
            .map_err(|error| LlmError::new(LlmErrorKind::BadRequest, "measured", error.to_string()))?;
        Ok(Self {
            dialect: Box::new(OpenaiDialect::new("measured", &base, &ProviderConfig::default())),
            names: ToolNames::of(tools),
        })
    }

    /// Returns the body of a request.
    ///
    /// # Errors
    /// The body cannot be written.
    pub fn body(&self, request: &ChatRequest) -> Result<Vec<u8>, LlmError> {
        self.dialect
            .body(request, &self.names, true)
            .map_err(|error| LlmError::new(LlmErrorKind::BadRequest, "measured", error.to_string()))
    }

    /// Assembles the answer from the data of `events`.
    ///
    /// # Errors
    /// The answer cannot be read, or is not complete.
    pub fn assemble<'a>(
        &self,
        events: impl IntoIterator<Item = &'a str>,
        sink: &dyn DeltaSink,
    ) -> Result<ChatResponse, LlmError> {
        let mut assembler = self.dialect.assembler(&self.names, LIMIT, sink);
        for data in events {
            assembler.push(data).map_err(into_llm_error)?;
        }
        assembler.into_response("measured").map_err(into_llm_error)
    }
}

fn into_llm_error(fault: AttemptError) -> LlmError {
    fault.into_error("measured", std::iter::empty())
}
