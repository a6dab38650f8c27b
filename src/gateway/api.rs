//! The gateway's side of the OpenAI-compatible API: the models that it lists, and the usage and messages of a turn.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use daoyou_channels::api::{self, ApiGateway, TurnReport};
use daoyou_channels::text::truncate;
use daoyou_channels::{Refusal, TurnSettings};
use uuid::Uuid;

use super::runtime::Runtime;
use crate::bus::BusInbox;
use crate::live::Live;

/// The model of the default agent.
const DEFAULT_MODEL: &str = "daoyou";

/// The models and turns of a gateway, according to the current settings.
pub(super) struct ApiAccess {
    pub runtime: Arc<Live<Runtime>>,
    pub inbox: BusInbox,
}

#[async_trait]
impl ApiGateway for ApiAccess {
    fn models(&self) -> Vec<String> {
        let runtime = self.runtime.get();
        let (config, models) = (&runtime.config, &runtime.models.models);
        let own = runtime.agents().all().filter_map(|agent| agent.model.as_deref());
        let named = std::iter::once(config.agent.model.as_str());
        let named = named.chain(config.agent.fallback.iter().map(String::as_str)).chain(own);
        let named = named.filter(|name| name.contains('/')).map(str::to_owned);
        let usual = models.services().map(|(name, _)| (name, models.usual_model(name)));
        let usual = usual.filter(|(_, model)| !model.is_empty()).map(|(name, model)| format!("{name}/{model}"));
        let of_providers: BTreeSet<String> = named.chain(usual).collect();
        let agents = runtime.agents().names().into_iter().map(str::to_owned);
        std::iter::once(DEFAULT_MODEL.to_owned()).chain(agents).chain(of_providers).collect()
    }

    fn settings(&self, model: &str) -> Result<TurnSettings, String> {
        let runtime = self.runtime.get();
        if matches!(model, "" | "auto" | DEFAULT_MODEL) {
            return Ok(TurnSettings::default());
        }
        if let Some(agent) = runtime.agents().find(model) {
            return Ok(TurnSettings { agent: Some(agent.name.clone()), ..TurnSettings::default() });
        }
        // A name without a provider could be a misspelt agent, or a model of any provider.
        if !model.contains('/') {
            return Err(format!("There is no agent {:?} here.", truncate(model, 100)));
        }
        match runtime.models.models.check(model) {
            Ok(()) => Ok(TurnSettings { requested_model: Some(model.to_owned()), ..TurnSettings::default() }),
            Err(error) => Err(format!("There is no model {:?} here: {error}.", truncate(model, 100))),
        }
    }

    async fn report(&self, message: Uuid, chat_id: &str) -> Result<TurnReport, Refusal> {
        self.inbox.report(message, api::NAME, chat_id).await
    }
}
