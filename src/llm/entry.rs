//! One available provider: its connection, its key, and its usual model.

use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::settings::{Secret, SettingFault, join_key};
use parking_lot::Mutex;
use reqwest::Url;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::local_server::LOCAL_HOLDS;
use super::model_names::{ModelError, is_same_model};
use super::offline::OFFLINE;
use super::remote::{HttpClients, RemoteProvider};
use super::services::{KnownService, OLLAMA, OLLAMA_HOST, SERVICES, ollama_base};
use super::{ProviderConfig, ProviderKind};

/// Deadline for listing the models of a server.
pub(super) const LIST_DEADLINE: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(super) struct ProviderEntry {
    /// The remote service; `None` for the offline responder.
    pub remote: Option<Arc<RemoteProvider>>,
    /// The first model that the service lists. It is looked up when it is first needed.
    first_listed: OnceCell<String>,
    /// The model that is used if none is configured, unless the server lists models and this one is not among them.
    assumed: &'static str,
    /// The time when listing the models last failed, while a model is assumed.
    unlisted: Mutex<Option<Instant>>,
    pub key: KeySource,
    /// The known service at the provider's address; empty if there is none. It is looked up once, because each turn asks for
    /// price and context length.
    pub service: &'static str,
}

/// The source of a provider's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeySource {
    #[default]
    None,
    /// `providers.NAME.api_key`
    Config,
    /// An environment variable, by its name.
    Variable(&'static str),
}

impl ProviderEntry {
    /// Creates the entry of a configured provider.
    ///
    /// # Errors
    /// A setting of the provider is invalid; the fault names its key.
    pub fn new(
        name: &str,
        config: &ProviderConfig,
        key: KeySource,
        clients: &Arc<HttpClients>,
    ) -> Result<Self, SettingFault> {
        let provider = RemoteProvider::new(name, config, clients.clone()).map_err(|error| {
            let (key, message) = error.split_once(": ").unwrap_or(("base_url", &error));
            fault(name, key, message)
        })?;
        Ok(Self {
            service: KnownService::at(provider.base_url()).map_or("", |service| service.name),
            remote: Some(Arc::new(provider)),
            key,
            ..Self::default()
        })
    }

    /// Returns the usual model of the settings; empty if it is the first that the service lists, or for the offline responder.
    pub fn configured_model(&self) -> &str {
        self.remote.as_ref().map_or("", |remote| &remote.config().model)
    }

    /// Returns the model for turns that name none: the configured one, the assumed one, or the first that the service
    /// lists.
    ///
    /// # Errors
    /// The service's list of models cannot be read, or lists no chat model.
    pub async fn usual_model(&self, name: &str) -> Result<String, ModelError> {
        let Some(provider) = &self.remote else { return Ok(OFFLINE.to_owned()) };
        if !self.configured_model().is_empty() {
            return Ok(self.configured_model().to_owned());
        }
        if !self.assumed.is_empty() {
            return Ok(self.assumed_model(provider).await);
        }
        let no_model = |reason: String, condition| ModelError::NoModel { provider: name.to_owned(), reason, condition };
        let first = self.first_listed.get_or_try_init(|| async {
            let models = match provider.models_for_turn(LIST_DEADLINE).await {
                Ok(models) => models,
                Err(error) => {
                    let condition = error.is_service_condition().then_some((error.kind, error.retry_after));
                    return Err(no_model(error.message, condition));
                }
            };
            let first = models.into_iter().find(|model| is_chat_model(model));
            first.ok_or_else(|| match name {
                OLLAMA => ModelError::NoModelsInstalled { provider: name.to_owned() },
                _ => no_model("it lists none".to_owned(), None),
            })
        });
        first.await.cloned()
    }

    /// Returns the assumed model, or the first listed one if the service lists models without it.
    async fn assumed_model(&self, provider: &RemoteProvider) -> String {
        let unlisted = || self.unlisted.lock();
        if unlisted().is_some_and(|asked| asked.elapsed() < LOCAL_HOLDS) {
            return self.assumed.to_owned();
        }
        let first = self.first_listed.get_or_try_init(|| async {
            let models = provider.models(LIST_DEADLINE).await.map_err(drop)?;
            let same = models.iter().find(|model| is_same_model(model, self.assumed)).map(|_| self.assumed);
            let other = || models.iter().find(|model| is_chat_model(model)).map(String::as_str);
            same.or_else(other).map(str::to_owned).ok_or(())
        });
        match first.await {
            Ok(model) => model.clone(),
            Err(()) => {
                *unlisted() = Some(Instant::now());
                self.assumed.to_owned()
            }
        }
    }
}

/// Completes a configured provider with the known service of the same name.
pub(super) fn configured(
    name: &str,
    config: &ProviderConfig,
    env: &impl Fn(&str) -> Option<String>,
    clients: &Arc<HttpClients>,
) -> Result<ProviderEntry, SettingFault> {
    if name.is_empty() || name.contains('/') || name == "auto" {
        let wrong = "is not a name for a provider: \"auto\" and names with \"/\" mean something else";
        return Err(SettingFault::new(&[&format!("providers.{name:?}")], wrong, ""));
    }
    if config.kind == Some(ProviderKind::Offline) || (name == OFFLINE && config.base_url.is_none()) {
        return Ok(ProviderEntry::default());
    }
    if name == OFFLINE {
        return Err(fault(name, "base_url", "offline is the responder inside this program; choose another name"));
    }
    let service = KnownService::find(name);
    let mut config = config.clone();
    config.api_key = config.api_key.filter(is_key);
    let moved = service.and_then(|service| service.address_in(env));
    // The address variable belongs to the key from the environment, and must not redirect another key.
    let goes_along = moved.clone().filter(|_| {
        let theirs = service.and_then(|service| service.key_in(env));
        config.api_key.is_none()
            || theirs.zip(config.api_key.as_ref()).is_some_and(|((_, theirs), key)| theirs.expose() == key.expose())
    });
    let is_moved = config.base_url.is_none() && goes_along.is_some();
    let known = service.map(|service| service.base_url.to_owned());
    let Some(base_url) = config.base_url.clone().or_else(|| goes_along.map(|(_, url)| url)).or(known) else {
        let known: Vec<_> = SERVICES.iter().map(|service| service.name).collect();
        let message = format!("is needed, as {name} is none of the known services ({})", known.join(", "));
        return Err(fault(name, "base_url", &message));
    };
    let mut source = config.api_key.as_ref().map_or(KeySource::None, |_| KeySource::Config);
    // A key from the environment is sent only to the service that issued it.
    let is_theirs = |service: &&KnownService| {
        has_same_host(&base_url, service.base_url) || moved.iter().any(|(_, url)| has_same_host(&base_url, url))
    };
    if let Some(service) = service.filter(is_theirs) {
        if config.api_key.is_none()
            && let Some((variable, key)) = service.key_in(env)
        {
            (config.api_key, source) = (Some(key), KeySource::Variable(variable));
        }
        let proves =
            |header: &String| ["authorization", "x-api-key"].iter().any(|key| header.eq_ignore_ascii_case(key));
        let brings_own = config.headers.keys().any(proves);
        if let (None, Some(variable), false) = (&config.api_key, service.key_variables.first(), brings_own) {
            let message = format!("is missing: set it, or the environment variable {variable}");
            return Err(fault(name, "api_key", &message));
        }
    }
    let usual = service.map_or("", |service| service.model);
    // A server at another address may lack the known service's models.
    let assumed =
        if is_moved && !service.is_some_and(|service| has_same_host(&base_url, service.base_url)) { usual } else { "" };
    if config.model.is_empty() && assumed.is_empty() {
        usual.clone_into(&mut config.model);
    }
    config.base_url = Some(base_url);
    config.kind = config.kind.or_else(|| service.map(|service| service.kind));
    let entry = ProviderEntry::new(name, &config, source, clients).map_err(|fault| match moved {
        Some((variable, _)) if is_moved && fault.key().ends_with(".base_url") => {
            SettingFault { keys: vec![variable.to_owned()], ..fault }
        }
        _ => fault,
    })?;
    Ok(ProviderEntry { assumed, ..entry })
}

impl KnownService {
    /// Returns the variable that gives the address of this service, and its value.
    pub fn address_in(&self, env: &impl Fn(&str) -> Option<String>) -> Option<(&'static str, String)> {
        let variable = self.base_variable?;
        let given = env(variable).filter(|url| !url.trim().is_empty())?;
        Some((variable, if variable == OLLAMA_HOST { ollama_base(&given) } else { given }))
    }

    /// Returns the variable that holds a key of this service, and the key.
    pub fn key_in(&self, env: &impl Fn(&str) -> Option<String>) -> Option<(&'static str, Secret)> {
        let mut set = self.key_variables.iter().filter_map(|variable| Some((*variable, Secret::new(env(variable)?))));
        set.find(|(_, key)| is_key(key))
    }
}

pub(super) fn fault(name: &str, key: &str, wrong: &str) -> SettingFault {
    SettingFault::new(&[&format!("{}.{key}", join_key("providers", name))], wrong, "")
}

/// Returns false for an empty value and for the `your-api-key` of an example.
fn is_key(key: &Secret) -> bool {
    !key.expose().trim().is_empty() && !key.expose().starts_with("your-")
}

fn has_same_host(one: &str, other: &str) -> bool {
    let host = |url: &str| Url::parse(url.trim()).ok()?.host_str().map(str::to_owned);
    host(one).is_some_and(|one| host(other) == Some(one))
}

/// Returns false for embedding models, which model servers list among the others.
pub fn is_chat_model(name: &str) -> bool {
    !name.contains("embed") && !name.contains("bge-")
}
