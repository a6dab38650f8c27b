//! The models that may answer: the wanted one, then those that stand in for it.

use std::sync::Arc;

use super::orchestrators::{Orchestrator, Orchestrators};
use crate::llm::{FallbackChain, ModelError, Models};

/// Opens chains of models, each model behind its orchestrator.
#[derive(Clone)]
pub struct ModelChains {
    pub models: Arc<Models>,
    /// `agent.fallback`.
    pub fallback: Vec<String>,
    pub orchestrators: Orchestrators,
}

impl ModelChains {
    /// Returns the same chains, whose models this orchestrator leads; `None`: the configured one.
    #[must_use]
    pub fn led_by(&self, orchestrator: Option<Orchestrator>) -> Self {
        let orchestrators = orchestrator.map_or(self.orchestrators, Orchestrators::new);
        Self { orchestrators, ..self.clone() }
    }

    /// Opens the chain that begins with `wanted`, or with the member of the provider that `answered` before. `on_answer` is
    /// called with the name of each provider that answers.
    ///
    /// # Errors
    /// `wanted` names no model.
    pub async fn open(
        &self,
        wanted: &str,
        answered: &str,
        on_answer: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<FallbackChain, ModelError> {
        let chain =
            FallbackChain::new(self.models.clone(), wanted, &self.fallback, answered, Box::new(on_answer)).await?;
        let orchestrators = self.orchestrators;
        Ok(chain.wrapped_by(Box::new(move |model| orchestrators.over(model))))
    }
}
