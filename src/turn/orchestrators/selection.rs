//! Selects the orchestrator of a model.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::plain::PlainModel;
use super::react::ReactModel;
use crate::llm::{ChatRequest, ChatResponse, DeltaSink, LlmError, ModelChoice, Provider};

/// How a model is led to an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Orchestrator {
    /// By its own tool calls, or by `react` where the model takes no tools.
    #[default]
    Auto,
    /// By its own tool calls.
    Tools,
    /// By actions and observations written as text.
    React,
    /// By one question, without tools.
    Plain,
}

/// Wraps models in the configured orchestrator.
#[derive(Clone, Copy, Default)]
pub struct Orchestrators {
    orchestrator: Orchestrator,
}

impl Orchestrators {
    pub fn new(orchestrator: Orchestrator) -> Self {
        Self { orchestrator }
    }

    /// Returns the model behind the orchestrator, under the same name.
    pub fn over(&self, choice: ModelChoice) -> ModelChoice {
        let ModelChoice { provider, model } = choice;
        let provider: Arc<dyn Provider> = match self.orchestrator {
            Orchestrator::Auto => Arc::new(AutoModel::new(provider)),
            Orchestrator::Tools => provider,
            Orchestrator::React => Arc::new(ReactModel::new(provider)),
            Orchestrator::Plain => Arc::new(PlainModel::new(provider)),
        };
        ModelChoice { provider, model }
    }
}

/// Offers native tools, and falls back to ReAct if the model rejects them or is known to have none.
pub struct AutoModel {
    native: Arc<dyn Provider>,
    react: ReactModel,
}

impl AutoModel {
    pub fn new(native: Arc<dyn Provider>) -> Self {
        let react = ReactModel::new(native.clone());
        Self { native, react }
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

    fn body(&self, request: &ChatRequest) -> Result<Vec<u8>, LlmError> {
        if self.native.takes_tools(&request.model) { self.native.body(request) } else { self.react.body(request) }
    }

    async fn chat(&self, request: &ChatRequest, sink: &dyn DeltaSink) -> Result<ChatResponse, LlmError> {
        let takes_tools = || self.native.takes_tools(&request.model);
        if !takes_tools() {
            return self.react.chat(request, sink).await;
        }
        match self.native.chat(request, sink).await {
            // The provider has learned from the refusal.
            Err(error) if !request.tools.is_empty() && !takes_tools() => {
                let (provider, model) = (self.native.name(), &request.model);
                tracing::info!(provider, model, %error, "the model takes no tools; it is asked in the ReAct format from now on");
                self.react.chat(request, sink).await
            }
            other => other,
        }
    }
}
