//! Chat completions as a dialect.

use std::collections::HashMap;

use parking_lot::Mutex;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde_json::Value;

use super::assemble::OpenaiAssembler;
use super::quirks::{FixedQuirks, Quirks, ToolForm};
use super::wire::{OpenaiRequest, definitions};
use crate::llm::remote::{Assemble, AttemptError, Dialect, ToolNames, ToolSerializer};
use crate::llm::services::{KnownService, ServiceRules};
use crate::llm::{ChatRequest, LlmErrorKind, ProviderConfig};

/// The most models that are remembered.
const MODELS_LIMIT: usize = 256;

/// The dialect of one service.
pub struct OpenaiDialect {
    /// The provider's name: reasoning goes back to the provider it came from and to no other.
    provider: String,
    settled: FixedQuirks,
    first: Quirks,
    /// Models that refused the first attempt. Not stored: a new process learns anew.
    learned: Mutex<HashMap<String, Quirks>>,
    written: ToolSerializer<ToolForm>,
}

impl OpenaiDialect {
    /// Creates the dialect for the service at `base_url`, as far as it is known and `config` does not override it.
    pub fn new(provider: &str, base_url: &Url, config: &ProviderConfig) -> Self {
        // At a custom address a known name means that service behind a proxy.
        let service = KnownService::at(base_url).or_else(|| KnownService::find(provider));
        let rules = service.map_or_else(ServiceRules::default, |service| service.rules);
        let settled = FixedQuirks { reasoning: config.reasoning, tools: config.tools };
        Self {
            provider: provider.to_owned(),
            settled,
            first: Quirks::first(settled, rules.limit, rules.echo),
            learned: Mutex::default(),
            written: ToolSerializer::default(),
        }
    }

    fn with_quirks<T>(&self, model: &str, look: impl FnOnce(&Quirks) -> T) -> T {
        let learned = self.learned.lock();
        look(learned.get(model).unwrap_or(&self.first))
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

    fn body(&self, request: &ChatRequest, names: &ToolNames, stream: bool) -> Result<Vec<u8>, AttemptError> {
        let quirks = self.with_quirks(&request.model, Quirks::clone);
        self.written
            .get(&request.tools, quirks.tools, || definitions(&request.tools, names, quirks.tools))
            .map(|tools| OpenaiRequest::new(request, names, stream, &quirks, &self.provider, tools))
            .and_then(|request| serde_json::to_vec(&request))
            .map_err(|error| {
                AttemptError::new(LlmErrorKind::BadRequest, format!("the request cannot be written: {error}"))
            })
    }

    fn learn(&self, model: &str, sent: &[u8], refusal: &str) -> Option<&'static str> {
        let sent: Value = serde_json::from_slice(sent).ok()?;
        let mut learned = self.learned.lock();
        let mut quirks = learned.get(model).unwrap_or(&self.first).clone();
        let change = quirks.learn(self.settled, &sent, refusal)?;
        if learned.len() >= MODELS_LIMIT && !learned.contains_key(model) {
            learned.clear();
        }
        learned.insert(model.to_owned(), quirks);
        Some(change)
    }

    fn takes_tools(&self, model: &str) -> bool {
        self.with_quirks(model, |quirks| quirks.tools != ToolForm::Words)
    }

    fn streams(&self, model: &str) -> bool {
        self.with_quirks(model, |quirks| quirks.stream)
    }

    fn assembler<'a>(&'a self, names: &'a ToolNames, limit: usize) -> Box<dyn Assemble + Send + 'a> {
        Box::new(OpenaiAssembler::new(names, limit))
    }
}

/// Returns the body of `request` for an ordinary service.
#[cfg(test)]
pub fn sent(request: &ChatRequest) -> Value {
    let base = reqwest::Url::parse("http://127.0.0.1/v1").unwrap();
    let names = ToolNames::of(&request.tools);
    let body = OpenaiDialect::new("tested", &base, &ProviderConfig::default()).body(request, &names, false).unwrap();
    serde_json::from_slice(&body).unwrap()
}
