//! What `daoyou init` finds on this machine.

use std::collections::BTreeMap;

use crate::llm::{KnownService, SERVICES, installed_models, is_chat_model};

/// A known model service, and what this machine has of it.
#[derive(Clone, Debug)]
pub struct ServiceOffer {
    pub name: &'static str,
    /// Its address; the one in the environment, if there is one.
    pub base_url: String,
    /// The address comes from the environment.
    pub is_moved: bool,
    /// The variables that usually hold its key, the usual one first; none for a local server.
    pub key_variables: &'static [&'static str],
    /// The variable that holds a key.
    pub key_variable: Option<&'static str>,
    /// Empty: the first that it lists.
    pub usual_model: &'static str,
    /// The chat models of a local server that answers.
    pub installed: Option<Vec<String>>,
}

impl ServiceOffer {
    /// Returns true if nothing else is needed to use it.
    pub fn is_ready(&self) -> bool {
        self.key_variable.is_some() || self.installed.as_ref().is_some_and(|models| !models.is_empty())
    }

    /// Returns true for a local server, which needs no key.
    pub fn is_local(&self) -> bool {
        self.key_variables.is_empty()
    }
}

/// Returns the known services, with keys and addresses of the environment, those first that can be used at once. Asks the
/// model server of this machine for its models.
pub async fn service_offers(env: &BTreeMap<String, String>) -> Vec<ServiceOffer> {
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

fn offer(service: &KnownService, variable: &impl Fn(&str) -> Option<String>) -> ServiceOffer {
    let moved = service.moved_address(variable);
    ServiceOffer {
        name: service.name,
        is_moved: moved.is_some(),
        base_url: moved.unwrap_or_else(|| service.base_url.to_owned()),
        key_variables: service.key_variables,
        key_variable: service.key_variable(variable),
        usual_model: service.model,
        installed: None,
    }
}
