//! Names of models and providers: suggestions for a wrong name, and the errors of a name without a model.

use std::time::Duration;

use super::breaker::KEY_PAUSE;
use super::{FailureScope, LlmError, LlmErrorKind};

/// The model to suggest for an Ollama without models. It is small, and calls tools.
const PULL: &str = "qwen3:8b";
/// The most names that are suggested for a wrong one.
const NEAREST: usize = 3;

/// The reason why a name means no model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    #[error("no provider is called {name:?}{}; there are {known}", near_words(.nearest))]
    UnknownProvider { name: String, nearest: Vec<String>, known: String },
    #[error("{provider} has no key: set providers.{provider}.api_key, or the environment variable {variable}")]
    NoKey { provider: String, variable: &'static str },
    #[error("{name:?} may be a model of several providers; write one of {choices}")]
    Ambiguous { name: String, choices: String },
    #[error("{name:?} needs its provider, as no single one is set up: write PROVIDER/{name}")]
    NoProvider { name: String },
    #[error("{provider} has no models yet: get one with `ollama pull {PULL}`")]
    NoModelsInstalled { provider: String },
    #[error("{provider} has no model {model:?}{}", near_words(.nearest))]
    UnknownModel { provider: String, model: String, nearest: Vec<String> },
    #[error("{provider} did not say which models it has ({reason}); set providers.{provider}.model")]
    NoModel { provider: String, reason: String, condition: Option<(LlmErrorKind, Option<Duration>)> },
    #[error("{provider} makes no vectors: take a provider of kind = \"openai\" that knows /embeddings")]
    NoVectors { provider: String },
}

impl ModelError {
    /// Returns the command that adds a model to a server without models.
    pub fn install_command(&self) -> String {
        format!("ollama pull {PULL}")
    }

    /// Returns the error for callers, without addresses and text of the service.
    pub fn to_public(&self) -> String {
        match self {
            Self::NoModel { provider, .. } => {
                format!("{provider} did not say which models it has; set providers.{provider}.model")
            }
            other => other.to_string(),
        }
    }

    /// Returns the condition of the service that caused the error, if any: the provider is configured, but cannot answer until
    /// the service is back or accepts the key.
    pub fn outage(&self) -> Option<LlmError> {
        let Self::NoModel { provider, reason, condition: Some((kind, retry_after)) } = self else { return None };
        let public = Some("it did not say which models it has".to_owned());
        let retry_after = if *kind == LlmErrorKind::Auth { Some(KEY_PAUSE) } else { *retry_after };
        let error = LlmError::new(*kind, provider, reason);
        Some(LlmError { blame: FailureScope::Service, public, retry_after, ..error })
    }
}

/// Returns true if the name `listed` in a service's list means the model `wanted`: some services list `models/NAME`, others
/// `NAME:latest`.
pub fn is_same_model(listed: &str, wanted: &str) -> bool {
    let listed = listed.strip_prefix("models/").unwrap_or(listed);
    listed == wanted || listed.strip_suffix(":latest") == Some(wanted)
}

/// Returns the names that are similar to `wanted`, the most similar first.
pub fn nearest(wanted: &str, names: &[String]) -> Vec<String> {
    let score = |name: &String| strsim::jaro_winkler(&wanted.to_lowercase(), &name.to_lowercase());
    let mut scored: Vec<_> = names.iter().map(|name| (score(name), name)).filter(|(score, _)| *score > 0.75).collect();
    scored.sort_by(|one, other| other.0.total_cmp(&one.0));
    scored.into_iter().take(NEAREST).map(|(_, name)| name.clone()).collect()
}

fn near_words(nearest: &[String]) -> String {
    if nearest.is_empty() { String::new() } else { format!("; near to it: {}", nearest.join(", ")) }
}
