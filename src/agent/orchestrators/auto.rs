//! Tools where the model takes them, ReAct where it does not.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::react::ReactModel;
use crate::llm::{ChatRequest, ChatResponse, DeltaSink, LlmError, LlmErrorKind, Provider};

/// The most models that are remembered; then all are forgotten, and learnt again.
const MOST_REMEMBERED: usize = 1_000;

/// Models that refused a request for its tools, as `PROVIDER/MODEL`.
#[derive(Default)]
pub struct Refusals(Mutex<BTreeSet<String>>);

impl Refusals {
    fn has(&self, model: &str) -> bool {
        self.lock().contains(model)
    }

    fn remember(&self, model: String) {
        let mut models = self.lock();
        if models.len() >= MOST_REMEMBERED {
            models.clear();
        }
        models.insert(model);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Offers the model its tools, and falls back on ReAct when it refuses them, or is known to.
pub struct AutoModel {
    native: Arc<dyn Provider>,
    react: ReactModel,
    refusals: Arc<Refusals>,
}

impl AutoModel {
    pub fn new(native: Arc<dyn Provider>, refusals: Arc<Refusals>) -> Self {
        let react = ReactModel::new(native.clone());
        Self { native, react, refusals }
    }
}

#[async_trait]
impl Provider for AutoModel {
    fn name(&self) -> &str {
        self.native.name()
    }

    fn takes_tools(&self, _: &str) -> bool {
        true
    }

    async fn chat(&self, request: &ChatRequest, sink: &dyn DeltaSink) -> Result<ChatResponse, LlmError> {
        let model = format!("{}/{}", self.native.name(), request.model);
        if !self.native.takes_tools(&request.model) || self.refusals.has(&model) {
            return self.react.chat(request, sink).await;
        }
        match self.native.chat(request, sink).await {
            Err(error) if !request.tools.is_empty() && refuses_tools(&error) => {
                tracing::info!(%model, %error, "the model takes no tools; it is asked in the ReAct format from now on");
                self.refusals.remember(model);
                self.react.chat(request, sink).await
            }
            other => other,
        }
    }
}

/// Whether a service refused a request because there were tools in it. Services agree on no word for it; these are what
/// they say.
fn refuses_tools(error: &LlmError) -> bool {
    const PHRASES: [&str; 12] = [
        // Ollama, and many after it.
        "not support tool",
        "not support function",
        // OpenRouter.
        "support tool use",
        // vLLM, started without a parser for calls.
        "--enable-auto-tool-choice",
        // llama.cpp, started without --jinja.
        "tools param requires",
        "tool use is not supported",
        "tool calling is not supported",
        "tools are not supported",
        "tools is not supported",
        "function calling is not",
        "parameter: 'tools'",
        "argument supplied: tools",
    ];
    let words = error.message.to_lowercase();
    matches!(error.kind, LlmErrorKind::BadRequest | LlmErrorKind::Server)
        && (PHRASES.iter().any(|phrase| words.contains(phrase))
            || words.contains("unknown parameter: tools")
            || words.contains("extra inputs are not permitted") && words.contains("tools"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_tools_is_told_from_others() {
        use LlmErrorKind::{BadRequest, RateLimit, Server};
        for (kind, words, refuses) in [
            (BadRequest, "HTTP 400: registry.ollama.ai/library/gemma:2b does not support tools", true),
            (BadRequest, "HTTP 404: No endpoints found that support tool use.", true),
            (
                BadRequest,
                "HTTP 400: \"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser",
                true,
            ),
            (Server, "HTTP 500: tools param requires --jinja flag", true),
            (BadRequest, "HTTP 400: Unrecognized request argument supplied: tools", true),
            (BadRequest, "HTTP 400: Unknown parameter: 'tools'.", true),
            (BadRequest, "HTTP 400: tools[3].name: too long", false),
            (BadRequest, "HTTP 400: an assistant message with tool_calls must be followed by tool messages", false),
            (RateLimit, "HTTP 429: does not support tools", false),
        ] {
            assert_eq!(refuses_tools(&LlmError::new(kind, "acme", words)), refuses, "{words}");
        }
    }
}
