//! Chat completions as a protocol.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde_json::Value;

use super::assemble::Assembler;
use super::manners::{Manners, Settled, ToolForm};
use super::wire::{WireRequest, definitions};
use crate::llm::remote::{Assemble, Dialect, Fault, ToolNames, WrittenTools};
use crate::llm::services::{Rules, Service};
use crate::llm::{ChatRequest, LlmErrorKind, ProviderConfig};

/// The most models of which something is remembered.
const MODELS_LIMIT: usize = 256;

/// What one service takes of it.
pub struct OpenaiDialect {
    /// The provider's name: what a model thought goes back to it and to no other.
    provider: String,
    settled: Settled,
    first: Manners,
    /// Models that refused what is tried first. In memory alone: a new start asks anew.
    learned: Mutex<HashMap<String, Manners>>,
    written: WrittenTools<ToolForm>,
}

impl OpenaiDialect {
    /// As the service at `base_url` takes it, as far as it is known and `config` does not say otherwise.
    pub fn new(provider: &str, base_url: &Url, config: &ProviderConfig) -> Self {
        // At an address of one's own a known name means that service behind a proxy.
        let service = Service::at(base_url).or_else(|| Service::find(provider));
        let rules = service.map_or_else(Rules::default, |service| service.rules);
        let settled = Settled { reasoning: config.reasoning, tools: config.tools };
        Self {
            provider: provider.to_owned(),
            settled,
            first: Manners::first(settled, rules.limit, rules.echo),
            learned: Mutex::default(),
            written: WrittenTools::default(),
        }
    }

    fn with_manners<T>(&self, model: &str, look: impl FnOnce(&Manners) -> T) -> T {
        let learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
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

    fn body(&self, request: &ChatRequest, names: &ToolNames, stream: bool) -> Result<Vec<u8>, Fault> {
        let manners = self.with_manners(&request.model, Manners::clone);
        self.written
            .get(&request.tools, manners.tools, || definitions(&request.tools, names, manners.tools))
            .map(|tools| WireRequest::new(request, names, stream, &manners, &self.provider, tools))
            .and_then(|request| serde_json::to_vec(&request))
            .map_err(|error| Fault::new(LlmErrorKind::BadRequest, format!("the request cannot be written: {error}")))
    }

    fn learn(&self, model: &str, sent: &[u8], refusal: &str) -> Option<&'static str> {
        let sent: Value = serde_json::from_slice(sent).ok()?;
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        let mut manners = learned.get(model).unwrap_or(&self.first).clone();
        let change = manners.learn(self.settled, &sent, refusal)?;
        if learned.len() >= MODELS_LIMIT && !learned.contains_key(model) {
            learned.clear();
        }
        learned.insert(model.to_owned(), manners);
        Some(change)
    }

    fn takes_tools(&self, model: &str) -> bool {
        self.with_manners(model, |manners| manners.tools != ToolForm::Words)
    }

    fn streams(&self, model: &str) -> bool {
        self.with_manners(model, |manners| manners.stream)
    }

    fn assembler<'a>(&'a self, names: &'a ToolNames, limit: usize) -> Box<dyn Assemble + Send + 'a> {
        Box::new(Assembler::new(names, limit))
    }
}
