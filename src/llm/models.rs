//! Which providers there are, and which of them a name such as `auto` or `PROVIDER/MODEL` means.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::settings::Secret;
use reqwest::Url;
use serde_json::Value;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::{Instant, timeout};

use super::embedder::Embedder;
use super::remote::{HttpClients, Reach, RemoteProvider};
use super::services::{OLLAMA, SERVICES, Service};
use super::{Abilities, Blame, LlmError, LlmErrorKind, ModelFacts, Price, Provider, ProviderConfig, ProviderKind};

/// The responder inside this program, as a provider's name.
pub const OFFLINE: &str = "offline";

/// How long a model server on this machine may take to say that it is there.
const LOCAL_DEADLINE: Duration = Duration::from_millis(300);
/// How long what was found there holds, or that nothing was.
const LOCAL_HOLDS: Duration = Duration::from_secs(60);
/// How long a server may take to list its models.
const LIST_DEADLINE: Duration = Duration::from_secs(2);

/// All providers: those of the configuration, those whose key is in the environment, servers of this machine, and
/// `offline`.
pub struct Models {
    entries: BTreeMap<String, Entry>,
    /// What `auto` tries, in order; then a model server of this machine, then `offline`.
    preferred: Vec<String>,
    offline: Arc<dyn Provider>,
    clients: Arc<HttpClients>,
    /// The first model of this machine's server, and when it was asked.
    local: Mutex<Option<(Instant, Option<String>)>>,
}

/// A model at its provider.
#[derive(Clone)]
pub struct ModelChoice {
    pub provider: Arc<dyn Provider>,
    pub model: String,
}

/// A setting below `[providers]` that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {message}")]
pub struct ProviderFault {
    /// `providers.NAME.KEY`
    pub key: String,
    pub message: String,
}

/// A name that means no model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    #[error("no provider is called {name:?}; there are {known}")]
    UnknownProvider { name: String, known: String },
    #[error("{provider} has no key: set providers.{provider}.api_key, or the environment variable {variable}")]
    NoKey { provider: String, variable: &'static str },
    #[error("{name:?} may be a model of several providers; write one of {choices}")]
    Ambiguous { name: String, choices: String },
    #[error("{name:?} needs its provider, as no single one is set up: write PROVIDER/{name}")]
    NoProvider { name: String },
    #[error("{provider} did not say which models it has ({reason}); set providers.{provider}.model")]
    NoModel { provider: String, reason: String, is_outage: bool },
    #[error("{provider} makes no vectors: take a provider of kind = \"openai\" that knows /embeddings")]
    NoVectors { provider: String },
}

impl ModelError {
    /// The outage that it comes of, if it comes of one: the provider is set up, and cannot be reached to say more.
    pub fn outage(&self) -> Option<LlmError> {
        let Self::NoModel { provider, reason, is_outage: true } = self else { return None };
        let error = LlmError::new(LlmErrorKind::Connection, provider, reason);
        Some(LlmError { blame: Blame::Service, ..error })
    }
}

struct Entry {
    backend: Backend,
    /// The model it usually answers with; empty: the first that it lists, found when first needed.
    model: String,
    first_listed: OnceCell<String>,
    key: KeySource,
    /// The known service at its address; empty: none. Looked up once, as each turn asks what its model costs and holds.
    service: &'static str,
    /// What the configuration says of its models, which goes before what is known of them.
    price: Option<Price>,
    context_tokens: Option<u32>,
    images: Option<bool>,
}

/// Where a provider's key comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeySource {
    #[default]
    None,
    /// `providers.NAME.api_key`
    Config,
    /// A variable of the environment, by its name.
    Variable(&'static str),
}

enum Backend {
    Remote(Arc<RemoteProvider>),
    Offline,
}

impl Models {
    /// `configs` with their secrets resolved, `env` reads the environment. All faults are reported at once.
    pub fn build(
        configs: &BTreeMap<String, ProviderConfig>,
        env: impl Fn(&str) -> Option<String>,
        offline: Arc<dyn Provider>,
    ) -> Result<Self, Vec<ProviderFault>> {
        let clients = Arc::new(HttpClients::default());
        let mut entries = BTreeMap::new();
        let mut faults = Vec::new();
        for (name, config) in configs {
            if config.price.as_ref().is_some_and(|price| !price.is_sound()) {
                faults.push(fault(name, "price", "a price is a number, zero or more"));
            }
            match configured(name, config, &env, &clients) {
                Ok(entry) => drop(entries.insert(name.clone(), entry)),
                Err(fault) => faults.push(fault),
            }
        }
        // A configured `offline` says nothing against a better one, unless it is all there is.
        let is_model = |entry: &Entry| matches!(entry.backend, Backend::Remote(_));
        let mut preferred: Vec<String> = entries.iter().filter(|(_, e)| is_model(e)).map(|(n, _)| n.clone()).collect();
        if preferred.is_empty() && !entries.is_empty() {
            preferred.push(OFFLINE.to_owned());
        }
        for service in SERVICES.iter().filter(|service| !configs.contains_key(service.name)) {
            let key = key_in_environment(service, &env);
            if key.is_none() && !service.is_local() {
                continue;
            }
            if key.is_some() {
                preferred.push(service.name.to_owned());
            }
            let (source, key) =
                key.map_or((KeySource::None, None), |(variable, key)| (KeySource::Variable(variable), Some(key)));
            let config = ProviderConfig {
                kind: Some(service.kind),
                base_url: Some(service.base_url.to_owned()),
                api_key: key,
                model: service.model.to_owned(),
                ..ProviderConfig::default()
            };
            match Entry::new(service.name, &config, source, &clients) {
                Ok(entry) => drop(entries.insert(service.name.to_owned(), entry)),
                Err(fault) => faults.push(fault),
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Self { entries, preferred, offline, clients, local: Mutex::new(None) })
    }

    /// Those that speak over the network, by name: configured, with a key in the environment, or servers of this machine.
    pub fn services(&self) -> impl Iterator<Item = (&str, &Arc<RemoteProvider>)> {
        self.entries.iter().filter_map(|(name, entry)| match &entry.backend {
            Backend::Remote(provider) => Some((name.as_str(), provider)),
            Backend::Offline => None,
        })
    }

    /// The model that a service usually answers with; empty where it is the first that it lists.
    pub fn usual_model(&self, name: &str) -> &str {
        self.entries.get(name).map_or("", |entry| &entry.model)
    }

    /// The model that `wanted` means: `auto` (or nothing), `PROVIDER/MODEL`, `PROVIDER` for its usual model, or `MODEL`
    /// where only one provider can be meant.
    pub async fn resolve(&self, wanted: &str) -> Result<ModelChoice, ModelError> {
        let wanted = wanted.trim();
        if matches!(wanted, "" | "auto") {
            return self.auto().await;
        }
        let (name, model) = wanted.split_once('/').unwrap_or((wanted, ""));
        if name == OFFLINE {
            return Ok(self.offline_choice());
        }
        if let Some(entry) = self.entries.get(name) {
            let model = if model.is_empty() { entry.usual_model(name).await? } else { model.to_owned() };
            return Ok(self.choice(entry, model));
        }
        self.not_set_up(wanted, name)
    }

    /// Whether [`resolve`](Self::resolve) would find a provider for `wanted`; no server is asked.
    pub fn check(&self, wanted: &str) -> Result<(), ModelError> {
        let wanted = wanted.trim();
        let name = wanted.split_once('/').map_or(wanted, |(name, _)| name);
        if matches!(wanted, "" | "auto") || name == OFFLINE || self.entries.contains_key(name) {
            return Ok(());
        }
        self.not_set_up(wanted, name).map(drop)
    }

    /// The model of vectors that `wanted` (`PROVIDER/MODEL`) means; vectors of `dimensions` numbers, or the model's own with
    /// 0. Nobody is asked.
    pub fn embedder(&self, wanted: &str, dimensions: u32) -> Result<Embedder, ModelError> {
        let wanted = wanted.trim();
        let Some((name, model)) = wanted.split_once('/').filter(|(_, model)| !model.is_empty()) else {
            return Err(ModelError::NoProvider { name: wanted.to_owned() });
        };
        match self.entries.get(name).map(|entry| &entry.backend) {
            Some(Backend::Remote(provider)) if provider.makes_vectors() => {
                Ok(Embedder::new(provider.clone(), model, dimensions))
            }
            None if name != OFFLINE => {
                self.check(wanted)?;
                Err(ModelError::UnknownProvider { name: name.to_owned(), known: self.known() })
            }
            _ => Err(ModelError::NoVectors { provider: name.to_owned() }),
        }
    }

    /// A name that is none of a provider that is set up: at best that of a model alone.
    fn not_set_up(&self, wanted: &str, name: &str) -> Result<ModelChoice, ModelError> {
        if let Some(service) = Service::find(name) {
            let variable = service.key_variables.first().copied().unwrap_or_default();
            return Err(ModelError::NoKey { provider: name.to_owned(), variable });
        }
        if wanted.contains('/') {
            return Err(ModelError::UnknownProvider { name: name.to_owned(), known: self.known() });
        }
        self.model_alone(wanted)
    }

    /// What the tokens of a model cost at its provider, where that is known.
    pub fn price(&self, provider: &str, model: &str) -> Option<Price> {
        self.facts(provider, model).price
    }

    /// What is known of a model at its provider: what the configuration says, or else the table of this program.
    pub fn facts(&self, provider: &str, model: &str) -> ModelFacts {
        let Some(entry) = self.entries.get(provider) else { return ModelFacts::known(provider, model) };
        if matches!(entry.backend, Backend::Offline) {
            return ModelFacts::default();
        }
        let known = ModelFacts::known(entry.service, model);
        let price = entry.price.clone().or(known.price);
        let see = |able: Abilities| Abilities { vision: entry.images.unwrap_or(able.vision), ..able };
        let abilities = known.abilities.map(see);
        ModelFacts { price, abilities, context_tokens: entry.context_tokens.or(known.context_tokens), ..known }
    }

    /// How many tokens the model that `wanted` means holds, as [`resolve`](Self::resolve) reads it, where that is known
    /// without asking anybody.
    pub fn context_tokens(&self, wanted: &str) -> Option<u32> {
        let (name, model) = self.meant(wanted)?;
        self.facts(name, model).context_tokens
    }

    /// `PROVIDER/MODEL` of the model that `wanted` means, where that is known without asking anybody.
    pub fn known_name(&self, wanted: &str) -> Option<String> {
        let (name, model) = self.meant(wanted)?;
        Some(format!("{name}/{model}"))
    }

    fn meant<'a>(&'a self, wanted: &'a str) -> Option<(&'a str, &'a str)> {
        let wanted = wanted.trim();
        let (name, model) = match wanted {
            "" | "auto" => (self.preferred.first()?.as_str(), ""),
            _ => wanted.split_once('/').unwrap_or((wanted, "")),
        };
        let entry = self.entries.get(name)?;
        Some((name, if model.is_empty() { &entry.model } else { model }))
    }

    /// Where the key of a provider comes from.
    pub fn key_source(&self, name: &str) -> KeySource {
        self.entries.get(name).map(|entry| entry.key).unwrap_or_default()
    }

    /// Each provider that is set up or found, with its usual model (empty where its server does not say); `offline` is
    /// the last.
    pub async fn list(&self) -> Vec<(String, String)> {
        let mut list = Vec::new();
        for name in self.preferred.iter().filter(|name| *name != OFFLINE) {
            let model = match self.entries.get(name) {
                Some(entry) => entry.usual_model(name).await.unwrap_or_default(),
                None => continue,
            };
            list.push((name.clone(), model));
        }
        if !self.preferred.iter().any(|name| name == OLLAMA)
            && let Some(model) = self.local_model().await
        {
            list.push((OLLAMA.to_owned(), model));
        }
        list.push((OFFLINE.to_owned(), OFFLINE.to_owned()));
        list
    }

    async fn auto(&self) -> Result<ModelChoice, ModelError> {
        if let Some(name) = self.preferred.first() {
            return match self.entries.get(name) {
                Some(entry) => Ok(self.choice(entry, entry.usual_model(name).await?)),
                None => Ok(self.offline_choice()),
            };
        }
        match (self.entries.get(OLLAMA), self.local_model().await) {
            (Some(entry), Some(model)) => Ok(self.choice(entry, model)),
            _ => Ok(self.offline_choice()),
        }
    }

    /// A model without its provider.
    fn model_alone(&self, model: &str) -> Result<ModelChoice, ModelError> {
        let able = || self.preferred.iter().filter_map(|name| Some((name, self.entries.get(name)?)));
        let usual: Vec<_> = able().filter(|(_, entry)| entry.model == model).collect();
        let fitting = if usual.len() == 1 { usual } else { able().collect() };
        match fitting.as_slice() {
            [] => Err(ModelError::NoProvider { name: model.to_owned() }),
            [(_, entry)] => Ok(self.choice(entry, model.to_owned())),
            several => {
                let choices: Vec<_> = several.iter().map(|(name, _)| format!("{name}/{model}")).collect();
                Err(ModelError::Ambiguous { name: model.to_owned(), choices: choices.join(", ") })
            }
        }
    }

    /// The first model of the server on this machine, if one answers.
    async fn local_model(&self) -> Option<String> {
        let mut local = self.local.lock().await;
        if let Some((_, model)) = local.as_ref().filter(|(asked, _)| asked.elapsed() < LOCAL_HOLDS) {
            return model.clone();
        }
        let model = match self.entries.get(OLLAMA).map(|entry| &entry.backend) {
            Some(Backend::Remote(ollama)) => {
                timeout(LOCAL_DEADLINE, first_ollama_model(&self.clients, ollama.base_url())).await.ok().flatten()
            }
            _ => None,
        };
        *local = Some((Instant::now(), model.clone()));
        model
    }

    fn choice(&self, entry: &Entry, model: String) -> ModelChoice {
        match &entry.backend {
            Backend::Remote(provider) => ModelChoice { provider: provider.clone(), model },
            Backend::Offline => self.offline_choice(),
        }
    }

    fn offline_choice(&self) -> ModelChoice {
        ModelChoice { provider: self.offline.clone(), model: OFFLINE.to_owned() }
    }

    fn known(&self) -> String {
        let services = SERVICES.iter().map(|service| service.name);
        let mut names: Vec<&str> = self.entries.keys().map(String::as_str).chain(services).chain([OFFLINE]).collect();
        names.sort_unstable();
        names.dedup();
        names.join(", ")
    }
}

impl Entry {
    fn new(
        name: &str,
        config: &ProviderConfig,
        key: KeySource,
        clients: &Arc<HttpClients>,
    ) -> Result<Self, ProviderFault> {
        let provider = RemoteProvider::new(name, config, clients.clone()).map_err(|error| {
            let (key, message) = error.split_once(": ").unwrap_or(("base_url", &error));
            fault(name, key, message)
        })?;
        Ok(Self {
            service: Service::at(provider.base_url()).map_or("", |service| service.name),
            backend: Backend::Remote(Arc::new(provider)),
            model: config.model.clone(),
            first_listed: OnceCell::new(),
            key,
            price: config.price.clone(),
            context_tokens: config.context_tokens,
            images: config.images,
        })
    }

    fn offline() -> Self {
        Self {
            backend: Backend::Offline,
            model: String::new(),
            first_listed: OnceCell::new(),
            key: KeySource::None,
            service: "",
            price: None,
            context_tokens: None,
            images: None,
        }
    }

    async fn usual_model(&self, name: &str) -> Result<String, ModelError> {
        let Backend::Remote(provider) = &self.backend else { return Ok(OFFLINE.to_owned()) };
        if !self.model.is_empty() {
            return Ok(self.model.clone());
        }
        let no_model = |reason: String, is_outage| ModelError::NoModel { provider: name.to_owned(), reason, is_outage };
        let first = self.first_listed.get_or_try_init(|| async {
            let models = provider.models(LIST_DEADLINE).await.map_err(|error| {
                let is_outage = error.is_outage();
                no_model(error.message, is_outage)
            })?;
            models
                .into_iter()
                .find(|model| is_chat_model(model))
                .ok_or_else(|| no_model("it lists none".to_owned(), false))
        });
        first.await.cloned()
    }
}

impl fmt::Display for ModelChoice {
    /// `PROVIDER/MODEL`, as [`Models::resolve`] takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let provider = self.provider.name();
        if provider == self.model { f.write_str(provider) } else { write!(f, "{provider}/{}", self.model) }
    }
}

impl fmt::Debug for ModelChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ModelChoice({self})")
    }
}

/// A provider of the configuration, completed by what is known of its name.
fn configured(
    name: &str,
    config: &ProviderConfig,
    env: &impl Fn(&str) -> Option<String>,
    clients: &Arc<HttpClients>,
) -> Result<Entry, ProviderFault> {
    if name.is_empty() || name.contains('/') || name == "auto" {
        return Err(ProviderFault {
            key: format!("providers.{name:?}"),
            message: "is no name for a provider: \"auto\" and names with \"/\" mean something else".to_owned(),
        });
    }
    if config.kind == Some(ProviderKind::Offline) || (name == OFFLINE && config.base_url.is_none()) {
        return Ok(Entry::offline());
    }
    if name == OFFLINE {
        return Err(fault(name, "base_url", "offline is the responder inside this program; choose another name"));
    }
    let service = Service::find(name);
    let Some(base_url) = config.base_url.clone().or_else(|| service.map(|service| service.base_url.to_owned())) else {
        let known: Vec<_> = SERVICES.iter().map(|service| service.name).collect();
        let message = format!("is needed, as {name} is none of the known services ({})", known.join(", "));
        return Err(fault(name, "base_url", &message));
    };
    let mut config = config.clone();
    config.api_key = config.api_key.filter(is_key);
    let mut source = config.api_key.as_ref().map_or(KeySource::None, |_| KeySource::Config);
    // A key of the environment goes to the service it is for and to no other place.
    if let Some(service) = service.filter(|service| has_same_host(&base_url, service.base_url)) {
        if config.api_key.is_none()
            && let Some((variable, key)) = key_in_environment(service, env)
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
    if config.model.is_empty() {
        config.model = service.map(|service| service.model.to_owned()).unwrap_or_default();
    }
    config.base_url = Some(base_url);
    config.kind = config.kind.or_else(|| service.map(|service| service.kind));
    Entry::new(name, &config, source, clients)
}

fn fault(name: &str, key: &str, message: &str) -> ProviderFault {
    ProviderFault { key: format!("providers.{name}.{key}"), message: message.to_owned() }
}

/// The key of a service, and the variable that holds it.
fn key_in_environment(service: &Service, env: &impl Fn(&str) -> Option<String>) -> Option<(&'static str, Secret)> {
    let set = service.key_variables.iter().filter_map(|variable| Some((*variable, Secret::new(env(variable)?))));
    set.into_iter().find(|(_, key)| is_key(key))
}

/// Neither nothing nor the `your-api-key` of some example.
fn is_key(key: &Secret) -> bool {
    !key.expose().trim().is_empty() && !key.expose().starts_with("your-")
}

fn has_same_host(one: &str, other: &str) -> bool {
    let host = |url: &str| Url::parse(url).ok()?.host_str().map(str::to_owned);
    host(one).is_some_and(|one| host(other) == Some(one))
}

/// Model servers list those that only make vectors among the others.
fn is_chat_model(name: &str) -> bool {
    !name.contains("embed") && !name.contains("bge-")
}

async fn first_ollama_model(clients: &HttpClients, base_url: &Url) -> Option<String> {
    let client = clients.get(Reach::of(base_url, LOCAL_DEADLINE)).ok()?;
    let mut url = base_url.clone();
    url.set_path("/api/tags");
    let answer = client.get(url).send().await.ok()?.error_for_status().ok()?;
    let tags: Value = serde_json::from_slice(&super::remote::read_capped(answer, 1024 * 1024).await).ok()?;
    let mut names = tags["models"].as_array()?.iter().filter_map(|model| model["name"].as_str());
    names.find(|name| is_chat_model(name)).map(str::to_owned)
}

#[cfg(test)]
#[path = "models_tests.rs"]
mod tests;
