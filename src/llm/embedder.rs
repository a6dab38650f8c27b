//! A model that tells by numbers what texts mean.

use std::sync::Arc;

use super::circuit::Circuit;
use super::remote::{Embedded, Patience, RemoteProvider};
use super::{LlmError, Provider};

/// Is told of provider, model and tokens of each answer.
pub type OnTokens = Arc<dyn Fn(&str, &str, u64) + Send + Sync>;

/// A model of vectors at its provider.
pub struct Embedder {
    provider: Arc<RemoteProvider>,
    model: String,
    /// 0: the model's own.
    dimensions: u32,
    /// Its own: a service may chat well and make no vectors.
    circuit: Circuit,
    on_tokens: OnTokens,
}

impl Embedder {
    pub(super) fn new(provider: Arc<RemoteProvider>, model: &str, dimensions: u32) -> Self {
        let on_tokens: OnTokens = Arc::new(|_, _, _| {});
        Self { provider, model: model.to_owned(), dimensions, circuit: Circuit::default(), on_tokens }
    }

    /// Has its tokens counted.
    #[must_use]
    pub fn counted_by(self, on_tokens: OnTokens) -> Self {
        Self { on_tokens, ..self }
    }

    /// What tells its vectors from those of others: `PROVIDER/MODEL`, and how many numbers were asked for.
    pub fn name(&self) -> String {
        let name = format!("{}/{}", self.provider.name(), self.model);
        if self.dimensions > 0 { format!("{name}@{}", self.dimensions) } else { name }
    }

    /// The vectors of `texts`, in their order, each of length 1.
    ///
    /// # Errors
    /// The service is not reached or was left alone as it failed too often, refuses, or answers what cannot be vectors.
    pub async fn embed(&self, texts: &[&str], patience: Patience) -> Result<Vec<Vec<f32>>, LlmError> {
        let provider = self.provider.name();
        let passage = self.circuit.enter(provider)?;
        let result = self.provider.embed(&self.model, self.dimensions, texts, patience).await;
        passage.end(result.as_ref().err());
        let Embedded { vectors, tokens } = result?;
        (self.on_tokens)(provider, &self.model, tokens);
        Ok(vectors)
    }
}
