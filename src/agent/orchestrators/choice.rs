//! Which orchestrator a model is given.

use std::sync::Arc;

use super::auto::AutoModel;
use super::plain::PlainModel;
use super::react::ReactModel;
use crate::agent::Orchestrator;
use crate::llm::{ModelChoice, Provider};

/// Puts models behind the configured orchestrator.
#[derive(Clone, Copy, Default)]
pub struct Orchestrators {
    orchestrator: Orchestrator,
}

impl Orchestrators {
    pub fn new(orchestrator: Orchestrator) -> Self {
        Self { orchestrator }
    }

    /// The same model, as turns ask it. It goes by the same name.
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
