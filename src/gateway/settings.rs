//! The settings of each module, derived from the configuration.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use daoyou_channels::email;
use daoyou_channels::settings::{Secret, size};
use daoyou_channels::text::Language;
use daoyou_channels::trust::{AllowList, Author, SenderLists, TrustLists};
use jiff::tz::TimeZone;

use crate::bus::{BusSettings, Capacities, ControlCommands, DeliveryChannels, NoticeSettings};
use crate::config::{ChannelsConfig, Config, LoadedConfig};
use crate::cron::heartbeat::HeartbeatSettings;
use crate::cron::{CronSettings, JobContext, machine_zone};
use crate::guard::KnownSecrets;
use crate::home::Home;
use crate::http::PAGE_CHANNEL;
use crate::llm::{Embedder, Models, OFFLINE, SERVICES};
use crate::memory::{Identities, MemorySettings};
use crate::metrics::Metrics;
use crate::phrases::Phrases;
use crate::postprocess::{ModelUse, ResultSummarizer};
use crate::profiles::AgentDirectory;
use crate::session::resets::SessionScope;
use crate::tools::{MEMORY_FOLDER, PrivateFolders};

/// The folders of the workspace that only some turns may access.
pub(super) const PRIVATE: PrivateFolders = PrivateFolders::new(&[MEMORY_FOLDER]);

/// The secrets that no answer and no tool result may contain: those of the configuration, the gateway's own token, and the keys
/// that model services take from the environment.
pub(super) fn secrets(loaded: &LoadedConfig, home: &Home) -> anyhow::Result<KnownSecrets> {
    Ok(KnownSecrets::new(configured_secrets(loaded).chain([home.token()?])))
}

/// The secrets of the configuration, and the keys that model services take from the environment.
pub(super) fn configured_secrets(loaded: &LoadedConfig) -> impl Iterator<Item = Secret> {
    let variables = SERVICES.iter().flat_map(|service| service.key_variables);
    let keys = variables.filter_map(|name| std::env::var(name).ok()).map(Secret::new);
    let configured = loaded.secrets().filter(|(key, secret)| is_secret(key, secret.is_literal));
    configured.flat_map(|(key, secret)| with_credentials(key, &secret.value)).chain(keys)
}

/// Returns a secret, and the credentials in it if it is a header with a scheme, such as `Bearer TOKEN`.
fn with_credentials(key: &str, value: &Secret) -> impl Iterator<Item = Secret> {
    let credentials = value.expose().split_once(' ').filter(|_| key.contains(".headers."));
    let credentials = credentials.map(|(_, credentials)| Secret::new(credentials));
    iter::once(value.clone()).chain(credentials)
}

/// Returns true if the value is a secret. `config show` hides the value of every header and variable, but most are not
/// secret: a title, a version, a date. Removing these would damage ordinary texts. A value that is stored elsewhere is
/// a secret, whatever the name of its header or variable.
fn is_secret(key: &str, is_literal: bool) -> bool {
    const NAMES: [&str; 8] = ["auth", "cookie", "credential", "key", "password", "secret", "token", "url"];
    let variable = key.strip_prefix("mcp.").and_then(|key| key.split_once(".env."));
    let Some((_, name)) = key.split_once(".headers.").or(variable) else { return true };
    !is_literal || NAMES.iter().any(|word| name.to_ascii_lowercase().contains(word))
}

pub(super) fn bus_settings(config: &Config, commands: Arc<dyn ControlCommands>) -> BusSettings {
    BusSettings {
        commands,
        capacities: Capacities {
            session: size(config.gateway.session_capacity),
            inbound: size(config.gateway.inbound_capacity),
            outbound: size(config.gateway.outbound_capacity),
        },
        reserve: config.store.reserve.0,
        drain_timeout: config.gateway.drain_timeout.0,
        by_sender: config.agent.session.scope == SessionScope::Sender,
        notices: notices(config),
    }
}

fn cron_settings(config: &Config) -> anyhow::Result<CronSettings> {
    let hooks = &config.channels.webhook;
    let hooks = hooks.iter().map(|(name, hook)| (format!("webhook:{name}"), hook.callback_url.is_some()));
    let channels = ["cli", "email", PAGE_CHANNEL].map(|name| (name.to_owned(), true)).into_iter().chain(hooks);
    let channels = channels.filter(|(channel, _)| delivers(config, channel)).collect();
    Ok(CronSettings {
        config: config.cron.clone(),
        channels: DeliveryChannels(channels),
        drain_timeout: config.gateway.drain_timeout.0,
        zone: timezone(config)?,
        phrases: Phrases::of(config.agent.locale.resolve()),
        owner: parse_chat(&config.owner.notify).unwrap_or_else(terminal),
        trust: TrustLists::new(trust_lists(config)),
    })
}

/// Returns where notices for the owner go: to the open terminals, unless another chat is set.
fn notices(config: &Config) -> Option<NoticeSettings> {
    let set = parse_chat(&config.owner.notify);
    let on_terminals = set.is_none();
    let (channel, chat_id) = set.unwrap_or_else(terminal);
    if !delivers(config, &channel) {
        tracing::warn!(channel, "owner.notify names a channel that does not run: notices appear in the log only");
        return None;
    }
    let phrases = Phrases::of(config.agent.locale.resolve());
    Some(NoticeSettings {
        on_terminals,
        channel,
        chat_id,
        dead_letter: phrases.dead_letter,
        held: phrases.channel_held,
        loss: phrases.loss,
    })
}

/// The chat of the terminal.
fn terminal() -> (String, String) {
    ("cli".to_owned(), "direct".to_owned())
}

/// Returns the context in which jobs are created and listed.
pub(super) fn job_context(config: &Config, agents: &AgentDirectory) -> anyhow::Result<JobContext> {
    Ok(JobContext {
        settings: Arc::new(cron_settings(config)?),
        providers: providers(config),
        agents: agents.names().into_iter().map(str::to_owned).collect(),
        language: language(config),
    })
}

/// Returns the possible providers of a model: the configured ones, and those that need only a key in the environment.
fn providers(config: &Config) -> BTreeSet<String> {
    let services = SERVICES.iter().map(|service| service.name.to_owned());
    config.providers.keys().cloned().chain(services).chain([OFFLINE.to_owned()]).collect()
}

pub(super) fn memory_settings(config: &Config, workspace: PathBuf) -> anyhow::Result<MemorySettings> {
    Ok(MemorySettings {
        config: config.memory.clone(),
        identities: Identities::new(&config.identities),
        language: language(config),
        zone: timezone(config)?,
        workspace,
    })
}

/// Returns the embedder for memories. `None` if no model is set, or if the model is unknown, which was checked before.
pub(super) fn embedder(config: &Config, models: &Models, metrics: &Arc<Metrics>) -> Option<Embedder> {
    let settings = &config.memory.embeddings;
    counted_embedder(models, &settings.model, settings.dimensions, metrics)
}

/// Returns the embedder that compares parts of results with questions. Its model is that of `tools.postprocess.semantic`, or else
/// that of the memories.
pub(super) fn result_embedder(config: &Config, models: &Models, metrics: &Arc<Metrics>) -> Option<Embedder> {
    let own = &config.tools.postprocess.semantic.model;
    if own.is_empty() {
        return embedder(config, models, metrics);
    }
    counted_embedder(models, own, 0, metrics)
}

fn counted_embedder(models: &Models, model: &str, dimensions: u32, metrics: &Arc<Metrics>) -> Option<Embedder> {
    let metrics = metrics.clone();
    let count = move |provider: &str, model: &str, tokens| metrics.turns.model_read(provider, model, tokens);
    Some(models.embedder(model, dimensions).ok()?.counted_by(Arc::new(count)))
}

/// Returns the summarizer of results; `None` if no model is set.
pub(super) fn result_summarizer(
    config: &Config,
    models: &Arc<Models>,
    metrics: &Arc<Metrics>,
) -> Option<ResultSummarizer> {
    let model = config.tools.postprocess.llm.model.clone();
    let metrics = metrics.clone();
    let count = move |used: &ModelUse| {
        let (provider, model) = used.model.split_once('/').unwrap_or((&used.model, ""));
        let (meter, usage) = (metrics.turns.meter(), used.usage);
        meter.model_used(provider, model, usage.input_tokens, usage.output_tokens, usage.cached_tokens);
        if let Some(cost) = &used.cost {
            meter.model_cost(provider, model, &cost.currency, cost.micros);
        }
    };
    (!model.is_empty()).then(|| ResultSummarizer { models: models.clone(), model, on_use: Arc::new(count) })
}

/// Splits `CHANNEL:CHAT`.
fn parse_chat(text: &str) -> Option<(String, String)> {
    let (channel, chat_id) = text.split_once(':')?;
    // The name of a webhook contains a colon itself: `webhook:NAME:CHAT`.
    Some(match (channel, chat_id.split_once(':')) {
        ("webhook", Some((name, chat_id))) => (format!("webhook:{name}"), chat_id.to_owned()),
        _ => (channel.to_owned(), chat_id.to_owned()),
    })
}

pub(super) fn heartbeat_settings(config: &Config) -> HeartbeatSettings {
    let chats = [&config.heartbeat.deliver_to, &config.owner.notify];
    let chat = chats.into_iter().find_map(|chat| parse_chat(chat)).filter(|(channel, _)| delivers(config, channel));
    let (channel, chat_id) = chat.unwrap_or_else(terminal);
    HeartbeatSettings {
        config: config.heartbeat.clone(),
        zone: zone_or_system(config),
        channel,
        chat_id,
        silent: Phrases::of(config.agent.locale.resolve()).heartbeat_silent,
    }
}

/// Returns true if a channel delivers messages according to the configuration.
fn delivers(config: &Config, channel: &str) -> bool {
    let email = &config.channels.email;
    match channel.split_once(':') {
        None if channel == "email" => email.enabled && email.consent_granted,
        None => channel == "cli" || channel == PAGE_CHANNEL,
        Some((_, name)) => config.channels.webhook.get(name).is_some_and(|hook| hook.enabled),
    }
}

/// Returns the address of the page for a browser on this machine, if the server listens on `listen`.
pub(super) fn page_address(config: &Config, listen: SocketAddr) -> String {
    // A certificate is valid for a name.
    match (config.gateway.tls.cert.is_some(), config.gateway.hosts.first()) {
        (true, Some(name)) => format!("https://{name}:{}", listen.port()),
        (true, None) => format!("https://{}", local_address(listen)),
        (false, _) => format!("http://{}", local_address(listen)),
    }
}

/// Returns the address by which this machine reaches a server that listens on `listen`.
pub(super) fn local_address(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// Returns the owner's time zone.
///
/// # Errors
/// `agent.timezone` is not a known time zone.
pub fn timezone(config: &Config) -> anyhow::Result<TimeZone> {
    match config.agent.timezone.as_str() {
        "" => Ok(machine_zone()),
        name => TimeZone::get(name).with_context(|| format!("agent.timezone: {name:?} is not a known time zone")),
    }
}

/// Returns the owner's time zone, or that of the machine if `agent.timezone` is not known.
pub fn zone_or_system(config: &Config) -> TimeZone {
    timezone(config).unwrap_or_else(|_| machine_zone())
}

/// Returns the language of `agent.locale`.
pub fn language(config: &Config) -> Language {
    config.agent.locale.resolve()
}

/// Returns the trusted senders in the configuration, by channel. A channel without an entry trusts nobody.
pub(super) fn trust_lists(config: &Config) -> HashMap<String, SenderLists> {
    // Each channel is named, so that a new channel must be added here. At the terminal, everyone is the owner.
    let ChannelsConfig { cli: _, webhook, email } = &config.channels;
    let hooks = webhook.iter().map(|(name, hook)| (format!("webhook:{name}"), &hook.trusted_from));
    let channels = hooks.chain([(email::NAME.to_owned(), &email.trusted_from)]);
    channels.map(|(channel, trusted)| (channel.clone(), lists(config, &channel, trusted))).collect()
}

/// Returns the channels on which something proves the name of a sender, so that an unlisted sender writes under one name only.
pub(super) fn channels_with_proof(config: &Config) -> HashSet<String> {
    let ChannelsConfig { cli: _, webhook, email } = &config.channels;
    let hooks = webhook.iter().filter(|(_, hook)| hook.author().is_ok()).map(|(name, _)| format!("webhook:{name}"));
    let is_mail_proven = email.trust.author() != Author::Unproven;
    hooks.chain(is_mail_proven.then(|| email::NAME.to_owned())).collect()
}

fn lists(config: &Config, channel: &str, trusted: &AllowList) -> SenderLists {
    let of_channel = |identity: &String| Some(identity.strip_prefix(channel)?.strip_prefix(':')?.to_owned());
    SenderLists { owners: config.owner.identities.iter().filter_map(of_channel).collect(), trusted: trusted.clone() }
}

#[cfg(test)]
mod tests {
    use daoyou_channels::email::TrustMethod;
    use daoyou_channels::trust::{SenderListing, trust_of};
    use daoyou_channels::webhook::{Verify, WebhookConfig};

    use super::*;

    #[test]
    fn each_channel_has_its_own_trust_lists() {
        let mut config = Config::default();
        let names = |names: &[&str]| AllowList::new(names.iter().copied());
        config
            .channels
            .webhook
            .insert("in".into(), WebhookConfig { trusted_from: names(&["bob"]), ..Default::default() });
        config.channels.webhook.insert("in2".into(), WebhookConfig::default());
        config.channels.email.trusted_from = names(&["bob@example.org"]);
        config.owner.identities =
            ["webhook:in:ann", "webhook:in2:T1/U1", "email:me@example.org"].map(str::to_owned).into();
        let lists = TrustLists::new(trust_lists(&config));
        for (channel, sender, expected) in [
            ("webhook:in", "ann", SenderListing::Owner),
            ("webhook:in", "bob", SenderListing::Listed),
            ("webhook:in2", "ann", SenderListing::Unlisted),
            ("webhook:in2", "bob", SenderListing::Unlisted),
            ("webhook:in2", "T1/U1", SenderListing::Owner),
            ("email", "me@example.org", SenderListing::Owner),
            ("email", "bob@example.org", SenderListing::Listed),
            ("email", "ann", SenderListing::Unlisted),
            ("cli", "ann", SenderListing::Unlisted),
            ("webhook:in:ann", "bob", SenderListing::Unlisted),
        ] {
            assert_eq!(lists.of(channel).listing(sender), expected, "{channel} {sender}");
        }
    }

    #[test]
    fn only_channels_with_proof_have_senders_of_their_own() {
        let mut config = Config::default();
        for (name, verify) in [("proven", Verify::Github), ("open", Verify::None)] {
            config.channels.webhook.insert(name.into(), WebhookConfig { verify, ..Default::default() });
        }
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<HashSet<_>>();
        assert_eq!(channels_with_proof(&config), names(&["webhook:proven", "email"]));
        config.channels.email.trust = TrustMethod::None;
        assert_eq!(channels_with_proof(&config), names(&["webhook:proven"]));
    }

    /// For every channel and each proof of its author that it can give: the trust of a sender who is the owner, is listed, is
    /// covered by `"*"`, or is in no list. A new channel or a new kind of proof does not compile until it has an entry here.
    #[test]
    fn each_channel_and_proof_grants_its_trust() {
        const OWNERS: [&str; 4] = ["owner"; 4];
        const UNTRUSTED: [&str; 4] = ["untrusted"; 4];
        let ChannelsConfig { cli: _, webhook: _, email: _ } = ChannelsConfig::default();
        let trusts = |author| {
            [SenderListing::Owner, SenderListing::Listed, SenderListing::Everybody, SenderListing::Unlisted]
                .map(|listing| trust_of(author, listing).as_str())
        };
        // The terminal, the HTTP API, and work of the gateway for its owner.
        assert_eq!(trusts(Author::Owner), OWNERS);
        for verify in [Verify::Standard, Verify::Bearer, Verify::Github, Verify::Slack, Verify::Stripe, Verify::None] {
            let of = |sender: Option<&str>, content: Option<&str>| {
                let own = |text: Option<&str>| text.map(str::to_owned);
                let config = WebhookConfig { verify, sender: own(sender), content: own(content), ..Default::default() };
                trusts(config.author().unwrap_or_default())
            };
            let [plain, by_content, by_sender] = [of(None, None), of(None, Some("x")), of(Some("x"), None)];
            let (expected, with_content) = match verify {
                Verify::Standard | Verify::Bearer => (["owner", "known", "known", "untrusted"], UNTRUSTED),
                Verify::Github | Verify::Slack => {
                    (["owner", "known", "untrusted", "untrusted"], ["owner", "known", "untrusted", "untrusted"])
                }
                Verify::Stripe | Verify::None => (UNTRUSTED, UNTRUSTED),
            };
            assert_eq!((plain, by_content, by_sender), (expected, with_content, UNTRUSTED), "{verify:?}");
        }
        for trust in [TrustMethod::Authserv, TrustMethod::Verify, TrustMethod::None] {
            let expected = match trust {
                TrustMethod::Authserv | TrustMethod::Verify => ["owner", "known", "untrusted", "untrusted"],
                TrustMethod::None => UNTRUSTED,
            };
            assert_eq!(trusts(trust.author()), expected, "{trust:?}");
        }
    }

    #[test]
    fn the_credentials_of_a_header_are_secret_without_their_scheme() {
        for (key, value, expected) in [
            ("mcp.x.headers.Authorization", "Bearer tok-1", &["Bearer tok-1", "tok-1"][..]),
            ("mcp.x.headers.X-Api-Key", "tok-1", &["tok-1"]),
            ("channels.email.imap.password", "two words", &["two words"]),
        ] {
            let found: Vec<_> = with_credentials(key, &Secret::new(value)).collect();
            assert_eq!(found.iter().map(Secret::expose).collect::<Vec<_>>(), expected, "{key}");
        }
    }

    #[test]
    fn headers_and_variables_are_secret_by_their_name_or_source() {
        for (key, is_literal, expected) in [
            ("providers.p.api_key", true, true),
            ("gateway.token", true, true),
            ("providers.p.headers.X-Title", true, false),
            ("providers.p.headers.anthropic-version", true, false),
            ("providers.p.headers.Authorization", true, true),
            ("providers.p.headers.X-Api-Key", true, true),
            ("providers.p.headers.X-Session", true, false),
            ("providers.p.headers.X-Session", false, true),
            ("mcp.github.headers.Authorization", true, true),
            ("mcp.github.env.GITHUB_TOKEN", true, true),
            ("mcp.github.env.NODE_ENV", true, false),
            ("mcp.github.env.NODE_ENV", false, true),
        ] {
            assert_eq!(is_secret(key, is_literal), expected, "{key}");
        }
    }
}
