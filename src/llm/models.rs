//! All providers, and the resolution of names such as `auto` or `PROVIDER/MODEL`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::settings::SettingFault;
use indexmap::IndexMap;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::embedder::Embedder;
use super::entry::{KeySource, LIST_DEADLINE, ProviderEntry, configured, fault, is_chat_model};
use super::local_server::{LOCAL_DEADLINE, LOCAL_HOLDS, LocalModel, ollama_models};
use super::model_names::{ModelError, is_same_model, nearest};
use super::offline::{OFFLINE, OfflineProvider};
use super::remote::{HttpClients, RemoteProvider};
use super::services::{KnownService, OLLAMA, SERVICES};
use super::{LlmErrorKind, ModelFacts, ModelFeatures, Price, Provider, ProviderConfig};

/// Deadline of a trial call.
const TRY_DEADLINE: Duration = Duration::from_secs(20);

/// All providers: those of the configuration, those whose key is in the environment, servers of this machine, and
/// `offline`.
pub struct Models {
    entries: BTreeMap<String, ProviderEntry>,
    /// The providers that `auto` tries, in order. After them, it tries a model server on this machine, then `offline`.
    preferred: Vec<String>,
    /// The price of models without a known price.
    fallback_price: Option<Price>,
    clients: Arc<HttpClients>,
    /// The models of the server on this machine, and the time when it was asked.
    local: Mutex<Option<(Instant, LocalModel)>>,
}

/// A model at its provider.
#[derive(Clone)]
pub struct ModelChoice {
    pub provider: Arc<dyn Provider>,
    pub model: String,
}

impl Models {
    /// Creates the providers from `configs`, whose secrets are resolved; `env` reads the environment.
    ///
    /// # Errors
    /// All invalid settings.
    pub fn build(
        configs: &IndexMap<String, ProviderConfig>,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<SettingFault>> {
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
        // A configured `offline` does not outrank a model, unless it is the only provider.
        let is_model = |entry: &ProviderEntry| entry.remote.is_some();
        let mut preferred: Vec<String> =
            configs.keys().filter(|name| entries.get(*name).is_some_and(is_model)).cloned().collect();
        if preferred.is_empty() && !entries.is_empty() {
            preferred.push(OFFLINE.to_owned());
        }
        for service in SERVICES.iter().filter(|service| !configs.contains_key(service.name)) {
            let has_key = service.key_in(&env).is_some();
            if !has_key && !service.is_local() {
                continue;
            }
            if has_key {
                preferred.push(service.name.to_owned());
            }
            match configured(service.name, &ProviderConfig::default(), &env, &clients) {
                Ok(entry) => drop(entries.insert(service.name.to_owned(), entry)),
                // The fault is in a local server that is not configured, so it is only logged.
                Err(fault) if !has_key => {
                    tracing::warn!("{}: {}; {} is not asked", fault.key(), fault.wrong, service.name);
                }
                Err(fault) => faults.push(fault),
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Self { entries, preferred, fallback_price: None, clients, local: Mutex::new(None) })
    }

    /// Sets the price for models without a known price.
    #[must_use]
    pub fn with_fallback_price(self, fallback_price: Option<Price>) -> Self {
        Self { fallback_price, ..self }
    }

    /// Returns the remote providers by name: configured, with a key in the environment, or servers of this machine.
    pub fn services(&self) -> impl Iterator<Item = (&str, &Arc<RemoteProvider>)> {
        self.entries.iter().filter_map(|(name, entry)| Some((name.as_str(), entry.remote.as_ref()?)))
    }

    /// Closes the circuit breakers of all services, so that their next calls go through.
    pub fn reset_circuits(&self) {
        self.services().for_each(|(_, provider)| provider.reset_circuit());
    }

    /// Returns the usual model of a service; empty if it is the first that the service lists.
    pub fn usual_model(&self, name: &str) -> &str {
        self.entries.get(name).map_or("", ProviderEntry::configured_model)
    }

    /// Returns the model that `wanted` names: `auto` (or nothing), `PROVIDER/MODEL`, `PROVIDER` for its usual model, or
    /// `MODEL` if only one provider can be meant.
    ///
    /// # Errors
    /// The name is unknown, ambiguous or names no model; the provider has no key; or the provider's list of models,
    /// which is needed for its usual model, cannot be read or is empty.
    pub async fn resolve(&self, wanted: &str) -> Result<ModelChoice, ModelError> {
        let wanted = wanted.trim();
        if matches!(wanted, "" | "auto") {
            return self.auto().await;
        }
        let (name, model) = wanted.split_once('/').unwrap_or((wanted, ""));
        if let Some(error) = self.empty_model(wanted) {
            return Err(error);
        }
        if name == OFFLINE {
            return Ok(offline_choice());
        }
        if let Some(entry) = self.entries.get(name) {
            let model = if model.is_empty() { entry.usual_model(name).await? } else { model.to_owned() };
            return Ok(choice(entry, model));
        }
        self.not_set_up(wanted, name)
    }

    /// Checks that [`resolve`](Self::resolve) would find a provider for `wanted`; asks no server.
    ///
    /// # Errors
    /// The name is unknown, ambiguous or names no model, or the provider has no key.
    pub fn check(&self, wanted: &str) -> Result<(), ModelError> {
        let wanted = wanted.trim();
        let name = wanted.split_once('/').map_or(wanted, |(name, _)| name);
        if let Some(error) = self.empty_model(wanted) {
            return Err(error);
        }
        if matches!(wanted, "" | "auto") || name == OFFLINE || self.entries.contains_key(name) {
            return Ok(());
        }
        self.not_set_up(wanted, name).map(drop)
    }

    /// Returns the error of `PROVIDER/`, which names no model; the usual model is that of `PROVIDER` alone.
    fn empty_model(&self, wanted: &str) -> Option<ModelError> {
        let name = wanted.strip_suffix('/').filter(|name| *name == OFFLINE || self.entries.contains_key(*name))?;
        Some(ModelError::UnknownModel { provider: name.to_owned(), model: String::new(), nearest: Vec::new() })
    }

    /// Returns the embedding model that `wanted` (`PROVIDER/MODEL`) names, with `dimensions`, or the model's default
    /// for 0. Asks no server.
    ///
    /// # Errors
    /// `wanted` is not `PROVIDER/MODEL`, the provider is unknown or has no key, or it offers no embeddings.
    pub fn embedder(&self, wanted: &str, dimensions: u32) -> Result<Embedder, ModelError> {
        let wanted = wanted.trim();
        let Some((name, model)) = wanted.split_once('/').filter(|(_, model)| !model.is_empty()) else {
            return Err(ModelError::NoProvider { name: wanted.to_owned() });
        };
        match self.entries.get(name).map(|entry| &entry.remote) {
            Some(Some(provider)) if provider.makes_vectors() => Ok(Embedder::new(provider.clone(), model, dimensions)),
            None if name != OFFLINE => {
                self.check(wanted)?;
                Err(self.unknown_provider(name))
            }
            _ => Err(ModelError::NoVectors { provider: name.to_owned() }),
        }
    }

    /// Resolves a name whose provider is not configured: the name may be that of a model without its provider.
    fn not_set_up(&self, wanted: &str, name: &str) -> Result<ModelChoice, ModelError> {
        if let Some(service) = KnownService::find(name) {
            let variable = service.key_variables.first().copied().unwrap_or_default();
            return Err(ModelError::NoKey { provider: name.to_owned(), variable });
        }
        if wanted.contains('/') {
            return Err(self.unknown_provider(name));
        }
        self.model_alone(wanted)
    }

    fn unknown_provider(&self, name: &str) -> ModelError {
        let known = self.known();
        let nearest = nearest(name, &known);
        ModelError::UnknownProvider { name: name.to_owned(), nearest, known: known.join(", ") }
    }

    /// Resolves a name that a person gives, as [`resolve`](Self::resolve) does. A model that its provider does not list gets a
    /// trial call.
    ///
    /// # Errors
    /// The errors of `resolve`, or the provider has no such model.
    pub async fn choose(&self, wanted: &str) -> Result<ModelChoice, ModelError> {
        let choice = self.resolve(wanted).await?;
        let name = choice.provider.name();
        let Some(ProviderEntry { remote: Some(provider), .. }) = self.entries.get(name) else {
            return Ok(choice);
        };
        let listed = provider.models(LIST_DEADLINE).await;
        if listed.as_ref().is_ok_and(|listed| listed.iter().any(|one| is_same_model(one, &choice.model))) {
            return Ok(choice);
        }
        // Lists of models may be incomplete, so only a call shows whether the model exists.
        let refused = match provider.try_out(&choice.model, TRY_DEADLINE).await {
            Ok(()) => false,
            Err(error) if error.kind == LlmErrorKind::BadRequest => true,
            // This failure says nothing about the model, so the list decides.
            Err(_) => listed.is_ok(),
        };
        if !refused {
            return Ok(choice);
        }
        let listed = listed.unwrap_or_default();
        if listed.is_empty() && name == OLLAMA {
            return Err(ModelError::NoModelsInstalled { provider: name.to_owned() });
        }
        let nearest = nearest(&choice.model, &listed).into_iter().map(|model| format!("{name}/{model}")).collect();
        Err(ModelError::UnknownModel { provider: name.to_owned(), model: choice.model, nearest })
    }

    /// Returns the price of a model's tokens at its provider, if the price is known or the owner has set a default. The offline
    /// responder costs nothing.
    pub fn price(&self, provider: &str, model: &str) -> Option<Price> {
        let others = || self.fallback_price.clone().filter(|_| provider != OFFLINE);
        self.facts(provider, model).price.or_else(others)
    }

    /// Returns the facts of a model at its provider: the configured ones, otherwise those of the table.
    pub fn facts(&self, provider: &str, model: &str) -> ModelFacts {
        let Some(entry) = self.entries.get(provider) else { return ModelFacts::known(provider, model) };
        let Some(config) = entry.remote.as_deref().map(RemoteProvider::config) else { return ModelFacts::default() };
        let known = ModelFacts::known(entry.service, model);
        let price = config.price.clone().or(known.price);
        let see = |able: ModelFeatures| ModelFeatures { vision: config.images.unwrap_or(able.vision), ..able };
        let abilities = known.abilities.map(see);
        ModelFacts { price, abilities, context_tokens: config.context_tokens.or(known.context_tokens), ..known }
    }

    /// Returns the context length of the model that `wanted` names, if it is known without asking a server.
    pub fn context_tokens(&self, wanted: &str) -> Option<u32> {
        let (name, model) = self.provider_and_model(wanted)?;
        self.facts(name, model).context_tokens
    }

    /// Returns `PROVIDER/MODEL` of the model that `wanted` names, if it is known without asking a server.
    pub fn known_name(&self, wanted: &str) -> Option<String> {
        let (name, model) = self.provider_and_model(wanted)?;
        Some(format!("{name}/{model}"))
    }

    /// Returns the provider and the model that `wanted` names, without asking a server.
    fn provider_and_model<'a>(&'a self, wanted: &'a str) -> Option<(&'a str, &'a str)> {
        let wanted = wanted.trim();
        let (name, model) = match wanted {
            "" | "auto" => (self.preferred.first()?.as_str(), ""),
            _ => wanted.split_once('/').unwrap_or((wanted, "")),
        };
        let entry = self.entries.get(name)?;
        Some((name, if model.is_empty() { entry.configured_model() } else { model }))
    }

    /// Returns the source of a provider's key.
    pub fn key_source(&self, name: &str) -> KeySource {
        self.entries.get(name).map(|entry| entry.key).unwrap_or_default()
    }

    /// Returns each provider that is configured or found, with its usual model (empty if its server does not say);
    /// `offline` is the last.
    pub async fn list(&self) -> Vec<(String, String)> {
        let mut list = Vec::new();
        for name in self.preferred.iter().filter(|name| *name != OFFLINE) {
            let Some(entry) = self.entries.get(name) else { continue };
            list.push((name.clone(), entry.usual_model(name).await.unwrap_or_default()));
        }
        if !self.preferred.iter().any(|name| name == OLLAMA)
            && let LocalModel::First(model) = self.local_model().await
        {
            list.push((OLLAMA.to_owned(), model));
        }
        list.push((OFFLINE.to_owned(), OFFLINE.to_owned()));
        list
    }

    async fn auto(&self) -> Result<ModelChoice, ModelError> {
        if let Some(name) = self.preferred.first() {
            return match self.entries.get(name) {
                Some(entry) => Ok(choice(entry, entry.usual_model(name).await?)),
                None => Ok(offline_choice()),
            };
        }
        match (self.entries.get(OLLAMA), self.local_model().await) {
            (Some(entry), LocalModel::First(model)) => Ok(choice(entry, model)),
            _ => Ok(offline_choice()),
        }
    }

    /// Resolves a model without its provider.
    fn model_alone(&self, model: &str) -> Result<ModelChoice, ModelError> {
        let able = || self.preferred.iter().filter_map(|name| Some((name, self.entries.get(name)?)));
        let usual: Vec<_> = able().filter(|(_, entry)| entry.configured_model() == model).collect();
        let fitting = if usual.len() == 1 { usual } else { able().collect() };
        match fitting.as_slice() {
            [] => Err(ModelError::NoProvider { name: model.to_owned() }),
            [(_, entry)] => Ok(choice(entry, model.to_owned())),
            several => {
                let choices: Vec<_> = several.iter().map(|(name, _)| format!("{name}/{model}")).collect();
                Err(ModelError::Ambiguous { name: model.to_owned(), choices: choices.join(", ") })
            }
        }
    }

    /// Returns the error of a missing model if `auto` would use the server on this machine and the server has no models.
    pub async fn lacking_local_model(&self) -> Option<ModelError> {
        let lacks = self.preferred.is_empty() && self.local_model().await == LocalModel::Nothing;
        lacks.then(|| ModelError::NoModelsInstalled { provider: OLLAMA.to_owned() })
    }

    async fn local_model(&self) -> LocalModel {
        let mut local = self.local.lock().await;
        if let Some((_, model)) = local.as_ref().filter(|(asked, _)| asked.elapsed() < LOCAL_HOLDS) {
            return model.clone();
        }
        let model = match self.entries.get(OLLAMA).and_then(|entry| entry.remote.as_ref()) {
            Some(ollama) => {
                let asked = timeout(LOCAL_DEADLINE, ollama_models(&self.clients, ollama.base_url())).await;
                match asked.ok().flatten().map(|names| names.into_iter().find(|name| is_chat_model(name))) {
                    None => LocalModel::NoServer,
                    Some(None) => LocalModel::Nothing,
                    Some(Some(name)) => LocalModel::First(name),
                }
            }
            None => LocalModel::NoServer,
        };
        *local = Some((Instant::now(), model.clone()));
        model
    }

    fn known(&self) -> Vec<String> {
        let services = SERVICES.iter().map(|service| service.name);
        let names: BTreeSet<&str> = self.entries.keys().map(String::as_str).chain(services).chain([OFFLINE]).collect();
        names.into_iter().map(str::to_owned).collect()
    }
}

fn choice(entry: &ProviderEntry, model: String) -> ModelChoice {
    match &entry.remote {
        Some(provider) => ModelChoice { provider: provider.clone(), model },
        None => offline_choice(),
    }
}

fn offline_choice() -> ModelChoice {
    ModelChoice { provider: Arc::new(OfflineProvider), model: OFFLINE.to_owned() }
}

impl fmt::Display for ModelChoice {
    /// Writes `PROVIDER/MODEL`, in the form that [`Models::resolve`] accepts.
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

#[cfg(test)]
#[path = "models_tests.rs"]
mod tests;
