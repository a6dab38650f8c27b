//! Selects the orchestrator of a model, and opens the chain of the models that may answer.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::plain::PlainModel;
use super::react::ReactModel;
use crate::llm::{
    ChatRequest, ChatResponse, DeltaSink, FallbackChain, LlmError, ModelChoice, ModelError, Models, Provider,
};

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

impl Orchestrator {
    /// Returns the model behind the orchestrator, under the same name.
    pub fn over(self, choice: ModelChoice) -> ModelChoice {
        let ModelChoice { provider, model } = choice;
        let provider: Arc<dyn Provider> = match self {
            Self::Auto => Arc::new(AutoModel { react: ReactModel(provider.clone()), native: provider }),
            Self::Tools => provider,
            Self::React => Arc::new(ReactModel(provider)),
            Self::Plain => Arc::new(PlainModel(provider)),
        };
        ModelChoice { provider, model }
    }
}

/// Opens chains of the models that may answer: the wanted model, then its fallbacks, each behind the orchestrator.
#[derive(Clone)]
pub struct ModelChains {
    pub models: Arc<Models>,
    /// `agent.fallback`.
    pub fallback: Vec<String>,
    pub orchestrator: Orchestrator,
}

impl ModelChains {
    /// Opens the chain that begins with `wanted`, or with the provider that `answered` before. The models run behind `orchestrator`,
    /// or behind the configured one if it is `None`. `on_answer` is called for each answer; see [`FallbackChain::new`].
    ///
    /// # Errors
    /// `wanted` names no model.
    pub async fn open(
        &self,
        orchestrator: Option<Orchestrator>,
        wanted: &str,
        answered: &str,
        on_answer: impl Fn(&[ModelChoice], &[LlmError]) + Send + Sync + 'static,
    ) -> Result<FallbackChain, ModelError> {
        let chain =
            FallbackChain::new(self.models.clone(), wanted, &self.fallback, answered, Box::new(on_answer)).await?;
        let orchestrator = orchestrator.unwrap_or(self.orchestrator);
        Ok(chain.wrapped_by(Box::new(move |model| orchestrator.over(model))))
    }
}

/// Offers native tools; changes to ReAct if the model rejects them or is known to lack them.
struct AutoModel {
    native: Arc<dyn Provider>,
    react: ReactModel,
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
            // The provider has recorded the rejection, so it now reports that the model takes no tools.
            Err(error) if !request.tools.is_empty() && !takes_tools() => {
                let (provider, model) = (self.native.name(), &request.model);
                tracing::info!(provider, model, %error, "the model takes no tools; it is asked in the ReAct format from now on");
                self.react.chat(request, sink).await
            }
            other => other,
        }
    }
}
