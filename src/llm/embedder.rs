//! A model that turns texts into vectors.

use std::sync::Arc;

use super::circuit::CircuitBreaker;
use super::remote::{EmbeddingBatch, EmbeddingDeadline, RemoteProvider};
use super::{LlmError, Provider};

/// A callback that gets provider, model and tokens of each answer.
pub type OnTokens = Arc<dyn Fn(&str, &str, u64) + Send + Sync>;

/// An embedding model at its provider.
pub struct Embedder {
    provider: Arc<RemoteProvider>,
    model: String,
    /// The number of dimensions; 0 for the model's default.
    dimensions: u32,
    /// The breaker is separate from that of chats, since a service may answer chats and create no vectors.
    circuit: CircuitBreaker,
    on_tokens: OnTokens,
}

impl Embedder {
    pub(super) fn new(provider: Arc<RemoteProvider>, model: &str, dimensions: u32) -> Self {
        let on_tokens: OnTokens = Arc::new(|_, _, _| {});
        Self { provider, model: model.to_owned(), dimensions, circuit: CircuitBreaker::default(), on_tokens }
    }

    /// Reports the tokens of each answer to `on_tokens`.
    #[must_use]
    pub fn counted_by(self, on_tokens: OnTokens) -> Self {
        Self { on_tokens, ..self }
    }

    /// Returns the name of the embedder's vector space: `PROVIDER/MODEL`, and the number of dimensions if one is configured.
    pub fn name(&self) -> String {
        let name = format!("{}/{}", self.provider.name(), self.model);
        if self.dimensions > 0 { format!("{name}@{}", self.dimensions) } else { name }
    }

    /// Returns the vectors of `texts`, in their order, each of length 1.
    ///
    /// # Errors
    /// The service cannot be reached or refuses, its breaker is open, or its answer is invalid.
    pub async fn embed(&self, texts: &[&str], deadline: EmbeddingDeadline) -> Result<Vec<Vec<f32>>, LlmError> {
        let provider = self.provider.name();
        let permit = self.circuit.enter(provider, None)?;
        let result = self.provider.embed(&self.model, self.dimensions, texts, deadline).await;
        permit.end(result.as_ref().err());
        let EmbeddingBatch { vectors, tokens } = result?;
        (self.on_tokens)(provider, &self.model, tokens);
        Ok(vectors)
    }
}
