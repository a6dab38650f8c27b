//! A request as it is sent, for tests of other areas.

use serde_json::Value;

use super::OpenaiDialect;
use crate::llm::remote::{Dialect, ToolNames};
use crate::llm::{ChatRequest, ProviderConfig};

/// The body of `request`, as most services are sent it.
pub fn sent(request: &ChatRequest) -> Value {
    let base = reqwest::Url::parse("http://127.0.0.1/v1").unwrap();
    let names = ToolNames::of(&request.tools);
    let body = OpenaiDialect::new("tested", &base, &ProviderConfig::default()).body(request, &names, false).unwrap();
    serde_json::from_slice(&body).unwrap()
}
