//! Names of models and providers: suggestions for a wrong name, and the errors of a name without a model.

use std::fmt;
use std::time::Duration;

use super::breaker::KEY_PAUSE;
use super::{FailureScope, LlmError, LlmErrorKind};
use crate::phrases::{Phrases, fill};
use crate::text::Language;

/// The model to suggest for an Ollama without models. It is small, and calls tools.
const PULL: &str = "qwen3:8b";
/// The maximum number of names that are suggested for a wrong one.
const NEAREST: usize = 3;

/// The reason why a name means no model. Its `Display` is English, and for `NoModel` contains the reason of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelError {
    UnknownProvider { name: String, nearest: Vec<String>, known: String },
    NoKey { provider: String, variable: &'static str },
    Ambiguous { name: String, choices: String },
    NoProvider { name: String },
    NoModelsInstalled { provider: String },
    UnknownModel { provider: String, model: String, nearest: Vec<String> },
    NoModel { provider: String, reason: String, condition: Option<(LlmErrorKind, Option<Duration>)> },
    NoVectors { provider: String },
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoModel { provider, reason, .. } => {
                write!(f, "{provider} did not say which models it has ({reason}); set providers.{provider}.model")
            }
            other => f.write_str(&other.to_public(Phrases::of(Language::En))),
        }
    }
}

impl std::error::Error for ModelError {}

impl ModelError {
    /// Returns the command that adds a model to a server without models.
    pub fn install_command(&self) -> String {
        format!("ollama pull {PULL}")
    }

    /// Returns the error for callers in the language of `phrases`, without addresses and text of the service.
    pub fn to_public(&self, phrases: &Phrases) -> String {
        match self {
            Self::UnknownProvider { name, nearest, known } if nearest.is_empty() => {
                fill(phrases.unknown_provider, &[&quoted(name), known])
            }
            Self::UnknownProvider { name, nearest, known } => {
                fill(phrases.unknown_provider_near, &[&quoted(name), &nearest.join(", "), known])
            }
            Self::NoKey { provider, variable } => fill(phrases.provider_without_key, &[provider, variable]),
            Self::Ambiguous { name, choices } => fill(phrases.model_of_several_providers, &[&quoted(name), choices]),
            Self::NoProvider { name } => fill(phrases.model_without_provider, &[&quoted(name), name]),
            Self::NoModelsInstalled { provider } => {
                fill(phrases.no_models_installed, &[provider, &self.install_command()])
            }
            Self::UnknownModel { provider, model, nearest } if nearest.is_empty() => {
                fill(phrases.unknown_model, &[provider, &quoted(model)])
            }
            Self::UnknownModel { provider, model, nearest } => {
                fill(phrases.unknown_model_near, &[provider, &quoted(model), &nearest.join(", ")])
            }
            Self::NoModel { provider, .. } => fill(phrases.models_not_listed, &[provider]),
            Self::NoVectors { provider } => fill(phrases.provider_without_vectors, &[provider]),
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

fn quoted(name: &str) -> String {
    format!("{name:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_written_in_the_language_of_the_reader() {
        let (provider, name) = ("openai".to_owned(), "foo".to_owned());
        let nearest = vec!["fob".to_owned(), "fop".to_owned()];
        let unknown = |nearest| ModelError::UnknownProvider { name: name.clone(), nearest, known: "openai".to_owned() };
        let no_model = |nearest| ModelError::UnknownModel { provider: provider.clone(), model: name.clone(), nearest };
        let condition = None;
        for (error, english, chinese) in [
            (
                unknown(Vec::new()),
                "unknown provider \"foo\"; available: openai",
                "没有名为 \"foo\" 的服务商；现有：openai",
            ),
            (
                unknown(nearest.clone()),
                "unknown provider \"foo\"; similar: fob, fop; available: openai",
                "没有名为 \"foo\" 的服务商；名称相近的有：fob, fop；现有：openai",
            ),
            (
                ModelError::NoKey { provider: provider.clone(), variable: "OPENAI_API_KEY" },
                "openai has no key: set providers.openai.api_key, or the environment variable OPENAI_API_KEY",
                "openai 没有密钥：请设置 providers.openai.api_key，或环境变量 OPENAI_API_KEY",
            ),
            (
                ModelError::NoProvider { name: name.clone() },
                "\"foo\" needs its provider, as no single one is set up: write PROVIDER/foo",
                "\"foo\" 未指明服务商，而当前没有唯一可用的服务商：请写成 服务商/foo",
            ),
            (no_model(Vec::new()), "openai has no model \"foo\"", "openai 没有模型 \"foo\""),
            (
                no_model(nearest),
                "openai has no model \"foo\"; similar: fob, fop",
                "openai 没有模型 \"foo\"；名称相近的有：fob, fop",
            ),
            (
                ModelError::NoModel { provider: provider.clone(), reason: "secret".to_owned(), condition },
                "openai did not say which models it has; set providers.openai.model",
                "openai 没有列出它的模型；请设置 providers.openai.model",
            ),
        ] {
            assert_eq!(error.to_public(Phrases::of(Language::En)), english);
            assert_eq!(error.to_public(Phrases::of(Language::Zh)), chinese);
        }
    }
}
