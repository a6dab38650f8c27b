//! Checks of single modules' sections that the types of their values cannot express.

use daoyou_channels::email::is_address;
use daoyou_channels::settings::{ByteSize, HumanDuration, SettingFault, join_key, quoted};
use daoyou_channels::webhook::Verify;

use super::settings::{Config, GatewayConfig};
use crate::cron::heartbeat::ActiveHours;
use crate::http::{AllowedHosts, parse_network};
use crate::mcp::McpServerConfig;

/// The minimum length, in characters, of a token for a server that other machines can reach.
const MIN_TOKEN: usize = 16;

/// The minimum memory for bodies: two of the API's largest bodies.
const MIN_BODY_BUDGET: ByteSize = ByteSize(4_200_000);

const EMAIL: &str = "channels.email";

/// The channels besides those of webhooks.
const OTHER_CHANNELS: [&str; 5] = ["cli", "email", "api", "page", "mcp"];

/// The allowed form of an owner's mail address.
const OWNER_ADDRESS: &str = "\"email:\" and an address, such as \"email:me@example.org\"";

/// Returns all faults of these sections.
pub(super) fn faults(config: &Config) -> Vec<SettingFault> {
    let of_tools = tools(config).chain(mcp(config)).chain(in_table("otel", config.otel.faults()));
    gateway(&config.gateway).into_iter().chain(heartbeat(config)).chain(email(config)).chain(of_tools).collect()
}

/// Returns warnings about valid settings that are probably mistakes, as `(key, sentence)`.
pub(super) fn warnings(config: &Config) -> Vec<(String, String)> {
    let owners: Vec<&str> = email_owners(config).map(|(_, owner)| owner).collect();
    let of_email = config.channels.email.warnings(&owners).into_iter();
    let of_email = of_email.map(|(key, words)| (join_key(EMAIL, key), words));
    of_email.chain(undeliverable(config)).chain(unverified_behind_proxy(config)).chain(unfit_routes(config)).collect()
}

/// Returns the faults of a module with their keys in the table `path`.
fn in_table(path: impl Into<String>, faults: Vec<SettingFault>) -> impl Iterator<Item = SettingFault> {
    let path = path.into();
    faults.into_iter().map(move |fault| fault.in_table(&path))
}

fn tools(config: &Config) -> impl Iterator<Item = SettingFault> {
    let web = &config.tools.web;
    [web.rules().err(), web.service().err(), config.tools.lsp.fault()].into_iter().flatten()
}

fn mcp(config: &Config) -> impl Iterator<Item = SettingFault> {
    let of_server = |(name, server): (&String, &McpServerConfig)| in_table(join_key("mcp", name), server.faults(name));
    config.mcp.iter().flat_map(of_server)
}

fn gateway(gateway: &GatewayConfig) -> Vec<SettingFault> {
    let mut found: Vec<SettingFault> = listening(gateway).into_iter().collect();
    if gateway.body_budget.0 < MIN_BODY_BUDGET.0 {
        let wrong = format!("{} is less than two bodies of the API", gateway.body_budget);
        found.push(SettingFault::new(&["gateway.body_budget"], wrong, "4200KB or more"));
    }
    for (number, name) in (1..).zip(&gateway.hosts).filter(|(_, name)| !AllowedHosts::is_valid(name)) {
        let wrong = format!("entry {number} is {}", quoted(name));
        let allowed = "a name or an IP address without scheme, port and path, such as \"chat.example.org\"";
        found.push(SettingFault::new(&["gateway.hosts"], wrong, allowed));
    }
    for (number, proxy) in (1..).zip(&gateway.trusted_proxies).filter(|(_, text)| parse_network(text).is_err()) {
        let wrong = format!("entry {number} is {}", quoted(proxy));
        let allowed = "an IP address or a range such as \"10.0.0.0/8\"";
        found.push(SettingFault::new(&["gateway.trusted_proxies"], wrong, allowed));
    }
    found
}

/// Checks that a server which other machines can reach has a token that cannot be guessed.
fn listening(gateway: &GatewayConfig) -> Option<SettingFault> {
    let address = match gateway.listen_addr() {
        Err(wrong) => {
            let allowed =
                "an IP address and a port such as \"127.0.0.1:18790\", \"[::1]:18790\" or \"localhost:18790\"";
            return Some(SettingFault::new(&["gateway.listen"], wrong, allowed));
        }
        Ok(address) if address.ip().is_loopback() => return None,
        Ok(address) => address,
    };
    let reached = format!("{address} can be reached from other machines, and");
    match &gateway.token {
        None => {
            let wrong = format!("{reached} gateway.token is not set");
            let allowed = "an address of this machine alone such as \"127.0.0.1:18790\", or any with gateway.token";
            Some(SettingFault::new(&["gateway.listen", "gateway.token"], wrong, allowed))
        }
        Some(token) if token.expose().chars().count() < MIN_TOKEN => {
            let wrong = format!("{reached} so short a token can be guessed");
            let allowed = "16 characters or more, such as what `openssl rand -hex 32` prints";
            Some(SettingFault::new(&["gateway.token", "gateway.listen"], wrong, allowed))
        }
        Some(_) => None,
    }
}

fn heartbeat(config: &Config) -> Vec<SettingFault> {
    let heartbeat = &config.heartbeat;
    let mut found = Vec::new();
    if !(HumanDuration::from_secs(1)..=HumanDuration::from_secs(86_400)).contains(&heartbeat.every) {
        let wrong = format!("{} is too short or too long", heartbeat.every);
        found.push(SettingFault::new(&["heartbeat.every"], wrong, "from \"1s\" to \"1d\""));
    }
    if let Err(wrong) = ActiveHours::read(&heartbeat.active_hours) {
        let allowed = "two times of a day such as \"08:00-22:00\", or \"\" for the whole day";
        found.push(SettingFault::new(&["heartbeat.active_hours"], wrong, allowed));
    }
    if let Some(wrong) = undeliverable_heartbeat(config) {
        let allowed = "\"CHANNEL:CHAT\" such as \"webhook:phone:ann\", or \"\" for the chat of owner.notify";
        found.push(SettingFault::new(&["heartbeat.deliver_to"], wrong, allowed));
    }
    found
}

/// Returns the fault of `heartbeat.deliver_to`, if it has one.
fn undeliverable_heartbeat(config: &Config) -> Option<String> {
    let text = config.heartbeat.deliver_to.as_str();
    if text.is_empty() {
        return None;
    }
    let wrong = match text.split_once(':') {
        Some(("cli", chat)) if !chat.is_empty() => return None,
        Some(("email", chat)) if !chat.is_empty() => match config.channels.email.enabled {
            true => return None,
            false => "a channel that is not switched on",
        },
        Some(("webhook", rest)) => match rest.split_once(':') {
            Some((name, chat)) if !chat.is_empty() => {
                match config.channels.webhook.get(name).is_some_and(|hook| hook.enabled) {
                    true => return None,
                    false => "a webhook that is not switched on",
                }
            }
            _ => "no chat",
        },
        _ => "no channel and chat",
    };
    Some(format!("{} names {wrong}", quoted(text)))
}

/// Checks `[channels.email]`, and the owner's addresses.
fn email(config: &Config) -> Vec<SettingFault> {
    // An entry without an address has a fault of its own already.
    let named = email_owners(config).filter(|(_, owner)| !owner.is_empty());
    let owners = named.filter(|(_, owner)| !is_address(owner)).map(|(number, owner)| {
        let wrong = format!("entry {number} is \"email:\" and {}, which is not an address", quoted(owner));
        SettingFault::new(&["owner.identities"], wrong, OWNER_ADDRESS)
    });
    in_table(EMAIL, config.channels.email.faults()).chain(owners).chain(email_notify(config)).collect()
}

/// Returns the owner's addresses with their numbers in `owner.identities`, from 1.
fn email_owners(config: &Config) -> impl Iterator<Item = (usize, &str)> {
    let identities = (1..).zip(&config.owner.identities);
    identities.filter_map(|(number, identity)| Some((number, identity.strip_prefix("email:")?)))
}

/// Checks `owner.notify`: it may be an address, or the Message-ID of a thread's first mail.
fn email_notify(config: &Config) -> Option<SettingFault> {
    let chat = config.owner.notify.strip_prefix("email:").filter(|chat| !chat.is_empty())?;
    let is_thread = chat.starts_with('<') && chat.ends_with('>') && chat.contains('@');
    if !is_address(chat) && !is_thread {
        let wrong = format!("{} is not an address", quoted(chat));
        return Some(SettingFault::new(&["owner.notify"], wrong, OWNER_ADDRESS));
    }
    (!config.channels.email.enabled).then(|| {
        let allowed = "an enabled channel, or \"\" for the log only";
        SettingFault::new(&["owner.notify", EMAIL], "[channels.email] is not switched on", allowed)
    })
}

/// Returns warnings about webhooks without a callback that are configured to deliver notices or heartbeats.
fn undeliverable(config: &Config) -> Vec<(String, String)> {
    let chats = [("owner.notify", &config.owner.notify), ("heartbeat.deliver_to", &config.heartbeat.deliver_to)];
    let to_nobody = chats.into_iter().filter_map(|(key, chat)| {
        let name = chat.strip_prefix("webhook:")?.split(':').next()?;
        let hook = config.channels.webhook.get(name)?;
        let words = format!(
            "[channels.webhook.{name}] has no callback_url, so only replies can be picked up there: what is sent to {chat:?} \
             becomes a dead letter"
        );
        hook.callback_url.is_none().then(|| (key.to_owned(), words))
    });
    to_nobody.collect()
}

/// Returns warnings about routes whose pattern fits no channel.
fn unfit_routes(config: &Config) -> impl Iterator<Item = (String, String)> {
    let hooks = config.channels.webhook.keys().map(|name| format!("webhook:{name}"));
    let channels: Vec<String> = OTHER_CHANNELS.into_iter().map(str::to_owned).chain(hooks).collect();
    config.routes.iter().enumerate().filter_map(move |(at, route)| {
        let words = format!("{} fits no channel; there are {}", quoted(&route.channel), channels.join(", "));
        let is_fit = route.fits_channel(channels.iter().map(String::as_str));
        (!is_fit).then(|| (format!("routes[{at}].channel"), words))
    })
}

/// Returns warnings about webhooks with `verify = "none"` behind a trusted proxy: all their callers may come through the proxy.
fn unverified_behind_proxy(config: &Config) -> impl Iterator<Item = (String, String)> {
    let has_proxy = !config.gateway.trusted_proxies.is_empty();
    let open = config
        .channels
        .webhook
        .iter()
        .filter(move |(_, hook)| has_proxy && hook.enabled && hook.verify == Verify::None);
    open.map(|(name, _)| {
        let words = "with gateway.trusted_proxies, \"none\" refuses every request from a proxy's address whose X-Forwarded-For \
             names no other client, also one that a program on this machine sends directly";
        (join_key(&join_key("channels.webhook", name), "verify"), words.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faulty_heartbeat_settings_are_found() {
        for (key, value, expected) in [
            ("every", "500ms", "heartbeat.every"),
            ("every", "2d", "heartbeat.every"),
            ("every", "1s", ""),
            ("active_hours", "8 to 22", "heartbeat.active_hours"),
            ("active_hours", "", ""),
            ("deliver_to", "phone", "heartbeat.deliver_to"),
            ("deliver_to", "webhook:phone:me", "heartbeat.deliver_to"),
            ("deliver_to", "email:me@example.org", "heartbeat.deliver_to"),
            ("deliver_to", "cli:direct", ""),
        ] {
            let config: Config = toml::from_str(&format!("[heartbeat]\n{key} = {value:?}")).unwrap();
            let keys: Vec<_> = faults(&config).into_iter().flat_map(|fault| fault.keys).collect();
            assert_eq!(keys.join(" "), expected, "{key} {value}");
        }
    }

    #[test]
    fn an_unverified_webhook_behind_a_proxy_is_warned_about() {
        for (proxies, verify, expected) in [
            ("[\"127.0.0.1\"]", "none", "channels.webhook.h.verify"),
            ("[\"127.0.0.1\"]", "bearer", ""),
            ("[]", "none", ""),
        ] {
            let text = format!("[gateway]\ntrusted_proxies = {proxies}\n[channels.webhook.h]\nverify = {verify:?}\n");
            let config: Config = toml::from_str(&text).unwrap();
            let keys: Vec<_> = warnings(&config).into_iter().map(|(key, _)| key).collect();
            assert_eq!(keys.join(" "), expected, "{proxies} {verify}");
        }
    }

    #[test]
    fn delivery_to_a_webhook_without_callback_is_warned_about() {
        for (notify, deliver_to, expected) in [
            ("webhook:quiet:me", "", "owner.notify"),
            ("", "webhook:quiet:me", "heartbeat.deliver_to"),
            ("webhook:quiet:me", "webhook:quiet:me", "owner.notify heartbeat.deliver_to"),
            ("webhook:loud:me", "webhook:loud:me", ""),
            ("cli:direct", "email:me@example.org", ""),
            ("", "", ""),
        ] {
            let text = format!(
                "[owner]\nnotify = {notify:?}\n[heartbeat]\ndeliver_to = {deliver_to:?}\n[channels.webhook.quiet]\n\
                 [channels.webhook.loud]\ncallback_url = \"https://example.org\"\n"
            );
            let config: Config = toml::from_str(&text).unwrap();
            let keys: Vec<_> = undeliverable(&config).into_iter().map(|(key, _)| key).collect();
            assert_eq!(keys.join(" "), expected, "{notify} {deliver_to}");
        }
    }
}
