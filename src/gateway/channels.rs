//! The channels of a configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Context;
use daoyou_channels::Channel;
use daoyou_channels::api::{self, ApiChannel};
use daoyou_channels::cli::CliChannel;
use daoyou_channels::email::{self, EmailChannel, EmailSetup};
use daoyou_channels::outgoing::OutgoingFiles;
use daoyou_channels::trust::TrustLists;
use daoyou_channels::webhook::{Webhook, WebhookConfig};

use super::api::ApiAccess;
use super::settings::trust_lists;
use crate::config::Config;
use crate::home::Home;
use crate::http::{PAGE_CHANNEL, PageChannel};
use crate::mcp::{MCP_CHANNEL, mcp_channel};

/// The channels of a gateway.
pub(super) struct Channels {
    pub running: Vec<Arc<dyn Channel>>,
    /// The names of the configured channels that do not run.
    pub disabled: BTreeSet<String>,
}

/// Builds the enabled channels. A gateway of a single conversation, which has no `api`, has only the terminal.
pub(super) fn build(
    config: &Config,
    home: &Home,
    cli: Arc<CliChannel>,
    trust: &TrustLists,
    api: Option<ApiAccess>,
) -> anyhow::Result<Channels> {
    let mut channels = Channels { running: vec![cli], disabled: BTreeSet::new() };
    let is_alone = api.is_none();
    match api {
        Some(api) => {
            let workspace = home.workspace(&config.agent.workspace);
            let api = ApiChannel::new(Arc::new(api), &workspace);
            channels.running.push(Arc::new(api.with_context(|| workspace.display().to_string())?));
            channels.running.push(Arc::new(mcp_channel()));
            channels.running.push(Arc::new(PageChannel));
        }
        // A gateway of a single conversation has no HTTP server.
        None => channels.disabled.extend([api::NAME, MCP_CHANNEL, PAGE_CHANNEL].map(str::to_owned)),
    }
    for (name, webhook) in &config.channels.webhook {
        if webhook.enabled && !is_alone {
            channels.running.push(build_webhook(config, name, webhook, trust).map_err(anyhow::Error::msg)?);
        } else {
            channels.disabled.insert(format!("webhook:{name}"));
        }
    }
    if email_runs(config) && !is_alone {
        channels.running.push(build_email(config, home, trust).map_err(anyhow::Error::msg)?);
    } else {
        channels.disabled.insert(email::NAME.to_owned());
    }
    Ok(channels)
}

/// Builds each enabled channel separately; an error is the reason why a channel cannot be built.
pub(super) fn build_each(config: &Config, home: &Home) -> BTreeMap<String, Result<Arc<dyn Channel>, String>> {
    let cli: Arc<dyn Channel> = Arc::new(CliChannel::new(None));
    let trust = TrustLists::new(trust_lists(config));
    let hooks = config.channels.webhook.iter().filter(|(_, hook)| hook.enabled);
    let hooks = hooks.map(|(name, hook)| (format!("webhook:{name}"), build_webhook(config, name, hook, &trust)));
    let email = email_runs(config).then(|| (email::NAME.to_owned(), build_email(config, home, &trust)));
    std::iter::once(("cli".to_owned(), Ok(cli))).chain(hooks).chain(email).collect()
}

fn build_webhook(
    config: &Config,
    name: &str,
    webhook: &WebhookConfig,
    trust: &TrustLists,
) -> Result<Arc<dyn Channel>, String> {
    let listen = config.gateway.listen_addr()?;
    Ok(Arc::new(Webhook::new(name, webhook.clone(), listen.ip().is_loopback(), trust.clone())?))
}

fn email_runs(config: &Config) -> bool {
    config.channels.email.enabled && config.channels.email.consent_granted
}

fn build_email(config: &Config, home: &Home, trust: &TrustLists) -> Result<Arc<dyn Channel>, String> {
    let workspace = home.workspace(&config.agent.workspace);
    let setup = EmailSetup {
        workspace: &workspace,
        outgoing: OutgoingFiles::of_home(home.dir()),
        lists: trust.clone(),
        language: config.agent.locale.resolve(),
    };
    Ok(Arc::new(EmailChannel::new(config.channels.email.clone(), setup)?))
}
