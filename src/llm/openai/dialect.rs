//! Chat completions as a dialect.

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde_json::Value;

use super::assemble::OpenaiAssembler;
use super::quirks::{FixedQuirks, Quirks, ToolForm};
use super::wire::{OpenaiRequest, definitions};
use crate::llm::remote::{Assemble, Dialect, LearnedByModel, ToolNames, ToolSerializer, serialize_body};
use crate::llm::services::{KnownService, USUAL_RULES};
use crate::llm::{ChatRequest, DeltaSink, ProviderConfig};

/// The dialect of one service.
pub struct OpenaiDialect {
    /// The provider's name. Reasoning is sent back only to the provider that it came from.
    provider: String,
    settled: FixedQuirks,
    first: Quirks,
    /// The quirks of models that refused a request with the first ones.
    learned: LearnedByModel<Quirks>,
    written: ToolSerializer<ToolForm>,
}

impl OpenaiDialect {
    /// Creates the dialect for the service at `base_url`, from the table of known services and from `config`, which takes
    /// precedence.
    pub fn new(provider: &str, base_url: &Url, config: &ProviderConfig) -> Self {
        // At an unknown address, the name of a known service means that service behind a proxy.
        let service = KnownService::at(base_url).or_else(|| KnownService::find(provider));
        let rules = service.map_or(USUAL_RULES, |service| service.rules);
        let settled = FixedQuirks { reasoning: config.reasoning, tools: config.tools };
        Self {
            provider: provider.to_owned(),
            settled,
            first: Quirks::first(settled, rules.limit, rules.echo),
            learned: LearnedByModel::default(),
            written: ToolSerializer::default(),
        }
    }

    fn quirks(&self, model: &str) -> Quirks {
        self.learned.get(model).unwrap_or(self.first)
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

    fn body(&self, request: &ChatRequest, names: &ToolNames, stream: bool) -> serde_json::Result<Vec<u8>> {
        let quirks = self.quirks(&request.model);
        let form = quirks.tools;
        let tools = self.written.get(&request.tools, form, || definitions(&request.tools, names, form))?;
        serialize_body(&OpenaiRequest::new(request, names, stream, &quirks, &self.provider, tools))
    }

    fn learn(&self, model: &str, sent: &Value, refusal: &str) -> Option<&'static str> {
        self.learned.learn(model, self.first, |quirks| quirks.learn(self.settled, sent, refusal))
    }

    fn takes_tools(&self, model: &str) -> bool {
        self.quirks(model).tools != ToolForm::Words
    }

    fn streams(&self, model: &str) -> bool {
        self.quirks(model).stream
    }

    fn assembler<'a>(&'a self, names: &'a ToolNames, limit: usize, sink: &'a dyn DeltaSink) -> Box<dyn Assemble + 'a> {
        Box::new(OpenaiAssembler::new(names, limit, sink))
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
