//! Checks that the types of the values cannot express: names, addresses, and contradictory settings.

use std::collections::BTreeMap;
use std::path::{Component, Path};
use std::time::Duration;

use daoyou_channels::settings::{HumanDuration, Secret, SettingFault, join_key, quoted};
use daoyou_channels::webhook::{Verify, WebhookConfig};
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};

use super::check_modules;
use super::fault::{ConfigFault, SettingOrigin, inside, nearest_origin};
use super::settings::Config;
use super::shape::SettingShape;
use crate::cron::{similar_time_zone, time_zone};
use crate::llm::ProviderConfig;
use crate::logging::LogConfig;
use crate::postprocess::PostprocessMode;

/// The longest name of a provider or webhook.
const MAX_NAME: usize = 64;

/// The required form of a model name.
const ONE_MODEL: &str = "\"PROVIDER/MODEL\" such as \"openai/gpt-5\"";

/// The channels whose turns `[approval.channels]` can name.
const CHANNELS: [&str; 6] = ["cli", "webhook", "email", "api", "page", "mcp"];

/// Returns every fault of `config` that does not follow from a `known` fault.
pub(super) fn check(
    config: &Config,
    origins: &BTreeMap<String, SettingOrigin>,
    known: &[ConfigFault],
) -> Vec<ConfigFault> {
    let mut checks = ConfigChecker { origins, known, found: Vec::new() };
    checks.agent(config);
    for (name, provider) in &config.providers {
        checks.provider(&join_key("providers", name), name, provider);
    }
    for (name, hook) in &config.channels.webhook {
        checks.webhook(config, &join_key("channels.webhook", name), name, hook);
    }
    check_modules::faults(config).into_iter().for_each(|fault| checks.add(fault));
    if let Some(token) = &config.gateway.token {
        checks.sendable("gateway.token", token);
    }
    for (name, agent) in &config.agents {
        checks.optional_model(&join_key(&join_key("agents", name), "model"), &agent.model);
    }
    checks.owner(config);
    checks.identities(config);
    checks.approval_channels(config);
    checks.optional_model("heartbeat.model", &config.heartbeat.model);
    checks.vectors(config);
    checks.postprocess(config);
    checks.found
}

struct ConfigChecker<'a> {
    origins: &'a BTreeMap<String, SettingOrigin>,
    known: &'a [ConfigFault],
    found: Vec<ConfigFault>,
}

impl ConfigChecker<'_> {
    fn agent(&mut self, config: &Config) {
        let agent = &config.agent;
        self.model("agent.model", &agent.model);
        for name in &agent.fallback {
            // The model that `auto` selects is known only at the time of a call.
            match name.as_str() {
                "auto" => self.fault(&["agent.fallback"], "\"auto\" names no provider and model", ONE_MODEL),
                name => self.model("agent.fallback", name),
            }
        }
        if !agent.timezone.is_empty() && jiff::tz::TimeZone::get(&agent.timezone).is_err() {
            let name = quoted(&agent.timezone);
            let wrong = match time_zone(&agent.timezone) {
                // Not the error itself, which names forms that only jobs accept.
                Err(_) => match similar_time_zone(&agent.timezone) {
                    Some(meant) => format!("{name} is not a known time zone; did you mean {meant:?}?"),
                    None => format!("{name} is not a known time zone"),
                },
                Ok(zone) if zone.iana_name().is_some() => format!("{name} has spaces around it"),
                Ok(_) => format!("{name} is an offset, which knows no daylight saving time"),
            };
            self.fault(&["agent.timezone"], wrong, "an IANA name such as \"Asia/Shanghai\", or \"\" for the system's");
        }
        self.not_zero("agent.turn_timeout", agent.turn_timeout);
        if let Err(wrong) = agent.session.resets() {
            self.fault(&["agent.session.daily_reset"], wrong, "a time of the day such as \"04:00\", or \"\" for never");
        }
        if let Some(idle) = agent.session.idle_reset {
            self.not_zero("agent.session.idle_reset", idle);
        }
        self.not_zero("agent.cache.ttl", agent.cache.ttl);
        self.not_zero("agent.spawn.timeout", agent.spawn.timeout);
        let twice = agent.middleware.iter().enumerate().find(|(at, name)| agent.middleware[..*at].contains(name));
        if let Some((_, name)) = twice {
            let wrong = format!("\"{}\" is listed twice", name.as_str());
            self.fault(&["agent.middleware"], wrong, "each name once, in the order from outside to inside");
        }
        let tools = &config.tools;
        for (key, span) in [
            ("tools.timeout", tools.timeout),
            ("tools.exec.timeout", tools.exec.timeout),
            ("tools.exec.background_timeout", tools.exec.background_timeout),
            ("tools.lsp.timeout", tools.lsp.timeout),
            ("tools.lsp.startup_timeout", tools.lsp.startup_timeout),
            ("approval.expires", config.approval.expires),
        ] {
            self.not_zero(key, span);
        }
        if let Some(sessions) = config.store.retain.sessions {
            self.not_zero("store.retain.sessions", sessions);
        }
        for path in &config.tools.strangers_read {
            // An absolute path may lie in the workspace.
            let leads_out = Path::new(path).components().any(|part| part == Component::ParentDir);
            if path.trim().is_empty() || leads_out {
                let wrong = format!("{} is not a path in the workspace", quoted(path));
                self.fault(&["tools.strangers_read"], wrong, "paths relative to the workspace, such as \"public\"");
            }
        }
        for name in config.tools.exec.env.iter().filter(|name| name.is_empty() || name.contains('=')) {
            let wrong = format!("{} is not the name of an environment variable", quoted(name));
            self.fault(&["tools.exec.env"], wrong, "names such as \"RUST_LOG\"; the values are those of the gateway");
        }
        let memory = &config.memory;
        self.not_zero("memory.timeout", memory.timeout);
        self.optional_model("memory.model", &memory.model);
        if memory.keep >= memory.consolidate_at {
            let wrong = format!(
                "{} of {} messages are kept, so none are left to summarize",
                memory.keep, memory.consolidate_at
            );
            self.fault(&["memory.keep", "memory.consolidate_at"], wrong, "memory.keep less than memory.consolidate_at");
        }
        if let Err(wrong) = LogConfig::filter(&config.log.level) {
            self.fault(&["log.level"], wrong, LogConfig::LEVELS);
        }
    }

    fn provider(&mut self, key: &str, name: &str, provider: &ProviderConfig) {
        self.name(key, name);
        if let Some(url) = &provider.base_url {
            self.url(&join_key(key, "base_url"), url);
        }
        if let Some(api_key) = &provider.api_key {
            self.sendable(&join_key(key, "api_key"), api_key);
        }
        for (header, value) in &provider.headers {
            let key = join_key(&join_key(key, "headers"), header);
            if HeaderName::from_bytes(header.as_bytes()).is_err() {
                let wrong = format!("{} is not the name of a header", quoted(header));
                self.fault(&[&key], wrong, "a name such as X-Title");
            }
            self.sendable(&key, value);
        }
        self.not_zero(&join_key(key, "connect_timeout"), provider.connect_timeout);
        self.not_zero(&join_key(key, "idle_timeout"), provider.idle_timeout);
        self.not_zero(&join_key(key, "timeout"), provider.timeout);
    }

    fn webhook(&mut self, config: &Config, key: &str, name: &str, hook: &WebhookConfig) {
        self.name(key, name);
        let at = |name| join_key(key, name);
        let (verify, secret_key) = (at("verify"), at("secret"));
        if let Some(url) = &hook.callback_url {
            self.url(&at("callback_url"), url);
        }
        if let Some(secret) = &hook.callback_secret {
            self.signing(&at("callback_secret"), secret);
        }
        if let Some(model) = &hook.model {
            self.model(&at("model"), model);
        }
        let faults = hook.faults(name);
        let budget = config.gateway.body_budget;
        if hook.max_body.0 > budget.0 && faults.iter().all(|fault| fault.key() != "max_body") {
            let wrong =
                format!("{budget} is less than the {} that {} lets one body have", hook.max_body, at("max_body"));
            self.fault(&["gateway.body_budget", &at("max_body")], wrong, "a size of max_body or more");
        }
        faults.into_iter().for_each(|fault| self.add(fault.in_table(key)));
        if !hook.enabled {
            return;
        }
        match (hook.verify, &hook.secret) {
            (Verify::None, _) => self.unverified(config, key, hook),
            (_, Some(secret)) if secret.expose().trim().is_empty() => {
                self.fault(&[&secret_key, &verify], "the secret is empty", "the secret of the sender");
            }
            (Verify::Bearer, Some(secret)) => self.sendable(&secret_key, secret),
            (_, Some(_)) => {}
            (how, None) => {
                let wrong = format!("it is not set, and verify = \"{how}\" needs it");
                self.fault(
                    &[&secret_key, &verify],
                    wrong,
                    "\"env:NAME\", \"file:PATH\", \"cred:NAME\", or the secret itself",
                );
            }
        }
        if hook.callback_url.is_some() && hook.callback_secret.is_none() && hook.secret.is_none() {
            let wrong = "it is not set, and callbacks are signed with it or with secret";
            self.fault(&[&at("callback_secret"), &secret_key, &verify], wrong, "a secret in the form \"whsec_…\"");
        }
    }

    /// Checks a webhook with `verify = "none"`. Anyone who can reach the webhook may write, so it needs two more settings.
    fn unverified(&mut self, config: &Config, key: &str, hook: &WebhookConfig) {
        let (verify, allow_from) = (join_key(key, "verify"), join_key(key, "allow_from"));
        if hook.allow_from.is_none() {
            let wrong = "it is not set, and verify = \"none\" needs it";
            self.fault(&[&allow_from, &verify], wrong, "a list of senders, or [\"*\"] for everybody");
        }
        if config.gateway.listen_addr().is_ok_and(|addr| !addr.ip().is_loopback()) {
            let wrong =
                format!("\"none\" is for callers on this machine, and gateway.listen is {}", config.gateway.listen);
            self.fault(
                &[&verify, "gateway.listen"],
                wrong,
                "any other way to verify, such as \"standard\" or \"bearer\"",
            );
        }
    }

    fn owner(&mut self, config: &Config) {
        let pair =
            |text: &str| text.split_once(':').is_some_and(|(channel, rest)| !channel.is_empty() && !rest.is_empty());
        for (number, identity) in (1..).zip(&config.owner.identities) {
            if !pair(identity) {
                let wrong = format!("entry {number} is {}", quoted(identity));
                self.fault(&["owner.identities"], wrong, "\"CHANNEL:SENDER\" such as \"webhook:phone:ann\"");
            } else if let Some(of_hook) = identity.strip_prefix("webhook:") {
                self.owner_of_hook(config, number, of_hook);
            }
        }
        if !config.owner.notify.is_empty()
            && let Err(wrong) = notify(config)
        {
            let allowed = "\"CHANNEL:CHAT\" such as \"webhook:phone:ann\", or \"\" for the open terminals";
            self.fault(&["owner.notify", "channels.webhook"], wrong, allowed);
        }
    }

    /// Checks entry `number` of `owner.identities`, counted from 1. The entry is `webhook:` and `identity`; the webhook must prove
    /// who its senders are.
    fn owner_of_hook(&mut self, config: &Config, number: usize, identity: &str) {
        const ALLOWED: &str = "\"webhook:NAME:SENDER\" of a webhook with verify = \"standard\" or \"bearer\" without the \
                               templates content and sender, or \"github\" or \"slack\" without the template sender";
        let hook = identity.split_once(':').filter(|(_, sender)| !sender.is_empty());
        let hook = hook.and_then(|(name, _)| Some((name, config.channels.webhook.get(name)?)));
        let Some((name, hook)) = hook else {
            let wrong =
                format!("entry {number} is {}, and there is no such webhook", quoted(&format!("webhook:{identity}")));
            return self.fault(&["owner.identities", "channels.webhook"], wrong, ALLOWED);
        };
        if let Err(why) = hook.author() {
            let wrong =
                format!("entry {number} is a sender of [channels.webhook.{name}], which proves no sender: {why}");
            let keys = ["owner.identities".to_owned(), format!("channels.webhook.{name}.verify")];
            self.fault(&keys.each_ref().map(String::as_str), wrong, ALLOWED);
        }
    }

    /// Checks that each sender belongs to one person, and that no person has a reserved name.
    fn identities(&mut self, config: &Config) {
        let mut known: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, senders) in &config.identities {
            let key = join_key("identities", name);
            self.name(&key, name);
            if matches!(name.as_str(), "owner" | "everyone") {
                let wrong = format!("{} is a reserved name", quoted(name));
                self.fault(&[&key], wrong, "any other name; your own senders belong in owner.identities");
            }
            for sender in senders {
                if sender.split_once(':').is_none_or(|(channel, sender)| channel.is_empty() || sender.is_empty()) {
                    let wrong = format!("{} names no channel and sender", quoted(sender));
                    self.fault(&[&key], wrong, "\"CHANNEL:SENDER\" such as \"email:ann@example.org\"");
                }
                if let Some(other) = known.insert(sender, name) {
                    let wrong = format!("{} is also listed under {}", quoted(sender), quoted(other));
                    self.fault(&[&key], wrong, "each sender with one name");
                }
                if config.owner.identities.contains(sender) {
                    let wrong = format!("{} is in owner.identities", quoted(sender));
                    self.fault(&[&key, "owner.identities"], wrong, "senders who are not you");
                }
            }
        }
    }

    /// Checks that the channels that `[approval.channels]` names exist.
    fn approval_channels(&mut self, config: &Config) {
        for name in config.approval.channels.keys() {
            let is_known = match name.strip_prefix("webhook:") {
                Some(webhook) => config.channels.webhook.contains_key(webhook),
                None => CHANNELS.contains(&name.as_str()),
            };
            if !is_known {
                let allowed = format!("{}, or webhook:NAME of a [channels.webhook.NAME]", CHANNELS.join(", "));
                self.fault(
                    &[&join_key("approval.channels", name)],
                    format!("{} is not a channel", quoted(name)),
                    &allowed,
                );
            }
        }
    }

    /// Checks the name of a model; an empty name is an unset one.
    fn optional_model(&mut self, key: &str, text: &str) {
        if !text.is_empty() {
            self.model(key, text);
        }
    }

    fn model(&mut self, key: &str, text: &str) {
        if !matches!(text, "auto" | "offline") && !is_model(text) {
            let wrong = format!("{} names no provider and model", quoted(text));
            self.fault(&[key], wrong, "\"auto\", or \"PROVIDER/MODEL\" such as \"openai/gpt-5\"");
        }
    }

    /// Checks the name of a model that makes vectors; an empty name is an unset one.
    fn vector_model(&mut self, key: &str, text: &str) {
        const ALLOWED: &str = "\"PROVIDER/MODEL\" such as \"openai/text-embedding-3-small\", or \"\"";
        if matches!(text, "auto" | "offline") {
            self.fault(&[key], format!("{} does not support embeddings", quoted(text)), ALLOWED);
        } else if !text.is_empty() && !is_model(text) {
            self.fault(&[key], format!("{} names no provider and model", quoted(text)), ALLOWED);
        }
    }

    fn vectors(&mut self, config: &Config) {
        let settings = &config.memory.embeddings;
        self.vector_model("memory.embeddings.model", &settings.model);
        self.not_zero("memory.embeddings.timeout", settings.timeout);
    }

    fn postprocess(&mut self, config: &Config) {
        let settings = &config.tools.postprocess;
        self.vector_model("tools.postprocess.semantic.model", &settings.semantic.model);
        self.optional_model("tools.postprocess.llm.model", &settings.llm.model);
        let has_vectors = !settings.semantic.model.is_empty() || !config.memory.embeddings.model.is_empty();
        let lacking = match settings.mode {
            PostprocessMode::Semantic if !has_vectors => Some("tools.postprocess.semantic.model"),
            PostprocessMode::Llm if settings.llm.model.is_empty() => Some("tools.postprocess.llm.model"),
            _ => None,
        };
        if let Some(key) = lacking.filter(|_| settings.enabled) {
            let wrong = format!("tools.postprocess.mode needs a model, and {key} names none");
            self.fault(&["tools.postprocess.mode", key], wrong, "\"PROVIDER/MODEL\" there, or mode = \"basic\"");
        }
    }

    fn name(&mut self, key: &str, name: &str) {
        if !is_valid_name(name) {
            let wrong = format!("{} is not a valid name", quoted(name));
            let allowed = format!("1 to {MAX_NAME} of the letters a-z, A-Z, digits, '-', '_' and '.'");
            self.fault(&[key], wrong, &allowed);
        }
    }

    fn url(&mut self, key: &str, url: &str) {
        // The parser also accepts "http:example.org" and surrounding white space.
        let whole = url.starts_with("http://") || url.starts_with("https://");
        if !whole || url.trim() != url || !Url::parse(url).is_ok_and(|url| url.has_host()) {
            self.fault(
                &[key],
                "the value is not a web address",
                "an address that starts with \"https://\" or \"http://\"",
            );
        }
    }

    fn sendable(&mut self, key: &str, secret: &Secret) {
        if HeaderValue::from_str(secret.expose()).is_err() {
            let wrong = "the secret holds characters that cannot be sent in a header";
            self.fault(&[key], wrong, "visible characters, without a line break");
        }
    }

    /// Checks that a secret has the characters of base64.
    fn signing(&mut self, key: &str, secret: &Secret) {
        let text = secret.expose().strip_prefix("whsec_").unwrap_or(secret.expose());
        let base64 = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/';
        let body = text.trim_end_matches('=');
        if body.is_empty() || !body.chars().all(base64) {
            self.fault(
                &[key],
                "the secret cannot sign: it is not base64",
                "\"whsec_\" and base64, or a reference to such a secret",
            );
        }
    }

    fn not_zero(&mut self, key: &str, span: HumanDuration) {
        if span.0 == Duration::ZERO {
            self.fault(&[key], "the duration is zero", "a duration above 0 such as \"90s\" or \"10m\"");
        }
    }

    /// Adds a fault of `keys`; see [`Self::add`].
    fn fault(&mut self, keys: &[&str], wrong: impl Into<String>, allowed: &str) {
        self.add(SettingFault::new(keys, wrong, allowed));
    }

    /// Adds a fault, unless one of its keys already has a fault, which may be the cause of this one.
    fn add(&mut self, fault: SettingFault) {
        let is_faulty =
            |key: &String| self.known.iter().any(|known| inside(&known.key, key) || inside(key, &known.key));
        if !fault.keys.iter().any(is_faulty) {
            let key = fault.key().to_owned();
            self.found.push(ConfigFault::new(nearest_origin(self.origins, &key), key, fault.wrong, fault.allowed));
        }
    }
}

/// Checks that `owner.notify` names a chat of an existing channel.
fn notify(config: &Config) -> Result<(), String> {
    let notify = &config.owner.notify;
    let nowhere = || format!("{} names no channel and chat", quoted(notify));
    let (channel, chat) = notify.split_once(':').ok_or_else(nowhere)?;
    let chat = if channel == "webhook" {
        let (name, chat) = chat.split_once(':').ok_or_else(nowhere)?;
        if !config.channels.webhook.contains_key(name) {
            return Err(format!("there is no [channels.webhook.{name}]"));
        }
        chat
    } else {
        chat
    };
    if channel.is_empty() || chat.is_empty() {
        return Err(nowhere());
    }
    if let SettingShape::Table(tables, _) = SettingShape::config()
        && let Some(SettingShape::Table(channels, _)) = tables.get("channels")
        && !channels.contains_key(channel)
    {
        return Err(format!("{} is not a channel", quoted(channel)));
    }
    Ok(())
}

/// Returns true for the form `PROVIDER/MODEL`.
fn is_model(text: &str) -> bool {
    text.split_once('/')
        .is_some_and(|(provider, model)| !model.trim().is_empty() && is_valid_name(provider) && text.trim() == text)
}

/// Returns true for a valid name. Names are part of URLs, session keys and `PROVIDER/MODEL`, so they contain no separators.
fn is_valid_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=MAX_NAME).contains(&name.len()) && name.chars().all(plain) && name.chars().any(|c| c != '.')
}
