//! The model server of this machine: Ollama, which needs no key.

use std::time::Duration;

use reqwest::Url;
use serde_json::Value;

use super::remote::{HttpClients, Reach, read_capped};

/// How long a model server on this machine may take to say that it is there.
pub(super) const LOCAL_DEADLINE: Duration = Duration::from_millis(300);

/// How long what was found there holds, or that nothing was.
pub(super) const LOCAL_HOLDS: Duration = Duration::from_secs(60);

/// What a model server of this machine has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LocalModel {
    /// No server answers.
    NoServer,
    /// It has no models.
    Nothing,
    /// The first that talks.
    First(String),
}

/// The names of all models; `None` where no Ollama answers.
pub(super) async fn ollama_models(clients: &HttpClients, base_url: &Url) -> Option<Vec<String>> {
    let client = clients.get(Reach::of(base_url, LOCAL_DEADLINE)).ok()?;
    let mut url = base_url.clone();
    url.set_path("/api/tags");
    let answer = client.get(url).send().await.ok()?.error_for_status().ok()?;
    let tags: Value = serde_json::from_slice(&read_capped(answer, 1024 * 1024).await).ok()?;
    let models = tags["models"].as_array().map_or(&[][..], Vec::as_slice);
    Some(models.iter().filter_map(|model| model["name"].as_str().map(str::to_owned)).collect())
}
