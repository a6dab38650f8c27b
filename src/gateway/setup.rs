//! The model services that `daoyou init` finds on this machine.

use std::collections::BTreeMap;

use daoyou_channels::text::Language;

use crate::llm::{KnownService, ModelError, SERVICES, installed_models, is_chat_model};
use crate::phrases::Phrases;

/// A known model service, and the key, address and models that this machine has for it.
#[derive(Clone, Debug)]
pub struct ProviderOffer {
    pub name: &'static str,
    /// The address of the service: that of the environment if there is one.
    pub base_url: String,
    /// True if the address comes from the environment.
    pub has_custom_address: bool,
    /// The variables that usually contain the key, the most usual first; none for a local server.
    pub key_variables: &'static [&'static str],
    /// The variable that contains a key.
    pub key_variable: Option<&'static str>,
    /// The default model; empty means the first that the service lists.
    pub usual_model: &'static str,
    /// The chat models of a local server that responds.
    pub installed: Option<Vec<String>>,
}

impl ProviderOffer {
    /// Returns true if the service can be used without further settings.
    pub fn is_ready(&self) -> bool {
        self.key_variable.is_some() || self.installed.as_ref().is_some_and(|models| !models.is_empty())
    }

    /// Returns how to get a model for a local server that has none; `None` for any other service.
    pub fn missing_models(&self, language: Language) -> Option<String> {
        let has_none = self.installed.as_ref().is_some_and(Vec::is_empty);
        let error = ModelError::NoModelsInstalled { provider: self.name.to_owned() };
        has_none.then(|| error.to_public(Phrases::of(language)))
    }

    /// Returns true for a local server, which needs no key.
    pub fn is_local(&self) -> bool {
        self.key_variables.is_empty()
    }
}

/// Returns the known services, with keys and addresses of the environment; services that can be used at once come first. Requests
/// the list of models from this machine's model server.
pub async fn service_offers(env: &BTreeMap<String, String>) -> Vec<ProviderOffer> {
    crate::llm::install_crypto();
    let variable = |name: &str| env.get(name).cloned();
    let mut offers: Vec<_> = SERVICES.iter().map(|service| offer(service, &variable)).collect();
    if let Some(ollama) = offers.iter_mut().find(|offer| offer.name == crate::llm::OLLAMA) {
        let models = installed_models(&ollama.base_url).await;
        ollama.installed = models.map(|models| models.into_iter().filter(|model| is_chat_model(model)).collect());
    }
    offers.sort_by_key(|offer| !offer.is_ready());
    offers
}

fn offer(service: &KnownService, variable: &impl Fn(&str) -> Option<String>) -> ProviderOffer {
    let moved = service.address_in(variable).map(|(_, url)| url);
    ProviderOffer {
        name: service.name,
        has_custom_address: moved.is_some(),
        base_url: moved.unwrap_or_else(|| service.base_url.to_owned()),
        key_variables: service.key_variables,
        key_variable: service.key_in(variable).map(|(name, _)| name),
        usual_model: service.model,
        installed: None,
    }
}
