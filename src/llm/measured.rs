//! A door for the micro-benchmarks (`benches/llm`): the work of a dialect without a service behind it. Nothing else
//! goes through it; the dialects themselves stay inside.

use reqwest::Url;

use super::openai::OpenaiDialect;
use super::remote::{Dialect, Fault, ToolNames};
use super::{ChatRequest, ChatResponse, DeltaSink, LlmError, LlmErrorKind, ProviderConfig};
use crate::chat::ToolSpec;

/// The most bytes of an answer, as for real ones.
const LIMIT: usize = 16 * 1024 * 1024;

/// A dialect, and the tools that it names.
pub struct Measured {
    dialect: Box<dyn Dialect>,
    names: ToolNames,
}

impl Measured {
    /// Chat completions, as `base_url`'s service takes them.
    ///
    /// # Errors
    /// `base_url` is no URL.
    pub fn openai(base_url: &str, tools: &[ToolSpec]) -> Result<Self, LlmError> {
        let base = Url::parse(base_url)
            .map_err(|error| LlmError::new(LlmErrorKind::BadRequest, "measured", error.to_string()))?;
        Ok(Self {
            dialect: Box::new(OpenaiDialect::new("measured", &base, &ProviderConfig::default())),
            names: ToolNames::of(tools),
        })
    }

    /// The body of a request.
    ///
    /// # Errors
    /// Why it cannot be written.
    pub fn body(&self, request: &ChatRequest) -> Result<Vec<u8>, LlmError> {
        self.dialect.body(request, &self.names, true).map_err(told)
    }

    /// The answer that the data of `events` make.
    ///
    /// # Errors
    /// It cannot be read, or is not complete.
    pub fn assemble<'a>(
        &self,
        events: impl IntoIterator<Item = &'a str>,
        sink: &dyn DeltaSink,
    ) -> Result<ChatResponse, LlmError> {
        let mut assembler = self.dialect.assembler(&self.names, LIMIT);
        for data in events {
            assembler.push(data, sink).map_err(told)?;
        }
        assembler.into_response("measured").map_err(told)
    }
}

fn told(fault: Fault) -> LlmError {
    fault.into_error("measured", std::iter::empty())
}
