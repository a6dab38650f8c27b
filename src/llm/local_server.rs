//! The model server on this machine: Ollama, which needs no key.

use std::time::Duration;

use reqwest::Url;
use serde_json::Value;
use tokio::time::timeout;

use super::ProviderKind;
use super::remote::{ClientProfile, HttpClients, base, read_capped};

/// Deadline for finding a model server on this machine.
pub(super) const LOCAL_DEADLINE: Duration = Duration::from_millis(300);

/// The time for which the result of that search is valid.
pub(super) const LOCAL_HOLDS: Duration = Duration::from_secs(60);

/// The models of the server on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LocalModel {
    /// No server answers.
    NoServer,
    /// The server has no models.
    Nothing,
    /// The server's first chat model.
    First(String),
}

/// Returns the names of the models of an Ollama at `address`; `None` if none answers there.
pub async fn installed_models(address: &str) -> Option<Vec<String>> {
    let base = base(address, ProviderKind::Openai).ok()?;
    timeout(LOCAL_DEADLINE, ollama_models(&HttpClients::default(), &base)).await.ok().flatten()
}

/// Returns the names of all models; `None` if no Ollama answers.
pub(super) async fn ollama_models(clients: &HttpClients, base_url: &Url) -> Option<Vec<String>> {
    let client = clients.get(ClientProfile::of(base_url, LOCAL_DEADLINE)).ok()?;
    let mut url = base_url.clone();
    url.set_path("/api/tags");
    let answer = client.get(url).send().await.ok()?.error_for_status().ok()?;
    let tags: Value = serde_json::from_slice(&read_capped(answer, 1024 * 1024).await).ok()?;
    let models = tags["models"].as_array().map_or(&[][..], Vec::as_slice);
    Some(models.iter().filter_map(|model| model["name"].as_str().map(str::to_owned)).collect())
}
