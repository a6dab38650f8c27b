//! The channels, and whether they and the port work.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use daoyou_channels::email::EmailConfig;
use daoyou_channels::finding::worst;
use daoyou_channels::{Finding, Verdict};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::Inspector;
use crate::bus::ChannelState;
use crate::query::InspectError;
use crate::store::cursors::PassedOver;
use crate::store::{Connection, cursors, outbox};

const EMAIL: &str = "email";
/// Of what a channel passed over, so much is shown.
const PASSED_OVER: u32 = 5;

/// The longest that one channel's test may take.
const TEST: Duration = Duration::from_secs(40);
/// The same of what is not tried by `doctor`.
const WHOLE_WAY: Duration = Duration::from_secs(120);
/// How long this machine may take to connect to itself.
const CONNECT: Duration = Duration::from_secs(2);

impl Inspector {
    /// Each channel, with what it passed over.
    pub(super) async fn channel_rows(&self) -> Result<Value, InspectError> {
        let names: Vec<String> = self.names().collect();
        let look = move |connection: &Connection| {
            let passed = |name: &String| cursors::passed_over(connection, name, PASSED_OVER);
            let passed = names.iter().map(passed).collect::<Result<Vec<_>, _>>()?;
            Ok((outbox::open_by_channel(connection)?, passed))
        };
        let (queued, passed) = self.read(look).await?;
        let mut rows = self.rows(&queued);
        let mut passed = passed.into_iter();
        for row in rows.as_array_mut().into_iter().flatten() {
            let (count, last) = passed.next().unwrap_or_default();
            row["skipped"] = json!(count);
            row["last_skipped"] = last.iter().map(skipped).collect();
        }
        Ok(rows)
    }

    /// The names of the channels that there are, in the order in which they are listed.
    fn names(&self) -> impl Iterator<Item = String> {
        let hooks = self.config.channels.webhook.keys().map(hook);
        let email = self.has_email().then(|| EMAIL.to_owned());
        std::iter::once("cli".to_owned()).chain(email).chain(hooks).chain(self.removed().map(str::to_owned))
    }

    /// Channels that run and are no longer in the configuration.
    fn removed(&self) -> impl Iterator<Item = &str> {
        let is_known = |name: &str| match name.strip_prefix("webhook:") {
            Some(hook) => self.config.channels.webhook.contains_key(hook),
            None => name != EMAIL || self.has_email(),
        };
        self.channels.keys().map(String::as_str).filter(move |name| self.live.is_some() && !is_known(name))
    }

    /// What a reload has left to the next start.
    fn until_restart(&self, name: &str, enabled: bool) -> Option<&'static str> {
        // The terminal needs no restart, and who runs for a single conversation has no other channel.
        let live = self.live.as_ref().filter(|live| live.serves.is_some() && name != "cli")?;
        match (self.channels.contains_key(name), enabled) {
            (true, false) if live.health.all().contains_key(name) => {
                Some("switched off in the configuration; it runs until the gateway is restarted")
            }
            (false, true) if self.email_rests().filter(|_| name == EMAIL).is_none() => {
                Some("new in the configuration; it starts when the gateway is restarted")
            }
            _ => None,
        }
    }

    /// Whether anything is set for e-mail: like a webhook it is listed once it is.
    fn has_email(&self) -> bool {
        self.config.channels.email != EmailConfig::default()
    }

    /// Why the e-mail channel does not run although it is switched on. One that runs keeps the settings that it began with.
    fn email_rests(&self) -> Option<&'static str> {
        self.config.channels.email.resting().filter(|_| !self.channels.contains_key(EMAIL))
    }

    /// Each channel with its state; `queued` are the undelivered messages by channel.
    pub(super) fn rows(&self, queued: &[(String, usize)]) -> Value {
        let row = |name: &str, kind: &str, enabled: bool, allow_from: Value| {
            let (state, error) = self.state(name, enabled);
            let queued = queued.iter().find(|(channel, _)| channel == name).map_or(0, |(_, messages)| *messages);
            json!({ "name": name, "kind": kind, "enabled": enabled, "state": state, "error": error, "queued": queued,
                    "allow_from": allow_from, "note": self.until_restart(name, enabled) })
        };
        let channels = &self.config.channels;
        let mut rows = vec![row("cli", "cli", channels.cli.enabled, Value::Null)];
        if self.has_email() {
            rows.push(row(EMAIL, EMAIL, channels.email.enabled, json!(channels.email.allow_from)));
        }
        for (name, hook) in &channels.webhook {
            rows.push(row(&format!("webhook:{name}"), "webhook", hook.enabled, json!(hook.allow_from)));
        }
        for name in self.removed() {
            rows.push(row(name, name.split(':').next().unwrap_or(name), false, Value::Null));
        }
        Value::Array(rows)
    }

    /// The state as one word, and the error that a failed one has.
    fn state(&self, name: &str, enabled: bool) -> (&'static str, Option<String>) {
        if let Some(Err(error)) = self.channels.get(name) {
            return ("failed", Some(error.clone()));
        }
        if let Some(why) = self.email_rests().filter(|_| name == EMAIL) {
            return ("resting", Some(why.to_owned()));
        }
        let Some(live) = &self.live else { return (if enabled { "down" } else { "off" }, None) };
        match live.health.all().remove(name) {
            Some(ChannelState::Starting) => ("starting", None),
            Some(ChannelState::Running) => ("running", None),
            Some(ChannelState::Stopped) => ("stopped", None),
            Some(ChannelState::Failed { error }) => ("failed", Some(error)),
            None => ("off", None),
        }
    }

    pub(super) async fn test_channel(&self, wanted: &str) -> Result<Value, InspectError> {
        // A webhook's own name is enough.
        let mut known = self.names().chain((wanted == EMAIL).then(|| EMAIL.to_owned()));
        let Some(name) = known.find(|name| name == wanted || *name == hook(wanted)) else {
            let known = self.names().collect::<Vec<_>>().join(", ");
            return Err(InspectError::Unknown(format!("there is no channel {wanted:?}; there are {known}")));
        };
        let mut checks = self.test(&name).await;
        // What is broken already is not tried again for a minute.
        if let Some(Ok(channel)) = self.channels.get(&name)
            && worst(&checks) != Verdict::Fail
        {
            checks.extend(bounded(WHOLE_WAY, channel.test_whole_way()).await);
        }
        Ok(json!({ "channel": name, "ok": worst(&checks) != Verdict::Fail, "checks": checks }))
    }

    /// Every test of one channel, in the order in which they depend on each other.
    pub(super) async fn test(&self, name: &str) -> Vec<Finding> {
        let channel = match self.channels.get(name) {
            None => {
                if let Some(why) = self.email_rests().filter(|_| name == EMAIL) {
                    return vec![Finding::warn("consent", why, "set consent_granted = true under [channels.email]")];
                }
                let mend = format!("set enabled = true under [channels.{}]", name.replace(':', "."));
                return vec![Finding::warn("enabled", "it is switched off", mend)];
            }
            Some(Err(error)) => {
                return vec![Finding::fail(
                    "config",
                    error.clone(),
                    "edit config.toml; `daoyou config check` says more",
                )];
            }
            Some(Ok(channel)) => channel,
        };
        let mut findings = vec![Finding::ok("config", "its settings are sound")];
        match self.state(name, true) {
            ("failed", error) => findings.push(Finding::fail(
                "state",
                format!("it failed and is tried again: {}", error.unwrap_or_default()),
                "mend what the error names; the gateway's log has more",
            )),
            ("down", _) => findings.push(Finding::ok("state", "no gateway runs")),
            ("starting", _) => findings.push(Finding::warn("state", "it is starting", "look again in a moment")),
            (state, _) => findings.push(Finding::ok("state", state)),
        }
        if let Some(path) = name.strip_prefix("webhook:").map(|name| format!("/webhook/{name}")) {
            findings.push(self.route(&path).await);
        }
        findings.extend(bounded(TEST, channel.test()).await);
        findings
    }

    /// Whether the server answers at `path`: to a method that the route does not know, so nobody's message.
    async fn route(&self, path: &str) -> Finding {
        const NAME: &str = "route";
        let Some(listen) = self.live.as_ref().and_then(|live| live.serves) else {
            return Finding::ok(NAME, format!("{path}: not tried, as no gateway serves it"));
        };
        let listen = reachable(listen);
        let url = format!("http://{listen}{path}");
        let client = reqwest::Client::builder().no_proxy().tls_certs_only(std::iter::empty()).timeout(CONNECT).build();
        let answer = match client {
            Ok(client) => client.request(reqwest::Method::OPTIONS, &url).send().await,
            Err(error) => return Finding::warn(NAME, format!("not tried: {error}"), "try again"),
        };
        match answer.map(|answer| answer.status()) {
            Ok(reqwest::StatusCode::NOT_FOUND) => Finding::fail(
                NAME,
                format!("{listen} knows no {path}"),
                "restart the gateway: it has another configuration",
            ),
            Ok(status) => Finding::ok(NAME, format!("{path} answers at {listen} (OPTIONS: {status})")),
            Err(error) => Finding::warn(
                NAME,
                format!("{path} was asked at {listen}, and gave no HTTP answer: {}", error.without_url()),
                "look at the gateway's log",
            ),
        }
    }

    /// The port: ours, free, or somebody else's.
    pub(super) async fn port(&self) -> Finding {
        const NAME: &str = "port";
        const OTHER: &str = "choose another port with gateway.listen in config.toml, or stop the program that has it";
        let served = self.live.as_ref().and_then(|live| live.serves);
        let listen = match served.map_or_else(|| self.config.gateway.listen_addr(), Ok) {
            Ok(listen) => listen,
            Err(wrong) => return Finding::fail(NAME, wrong, "set gateway.listen = \"127.0.0.1:18790\" in config.toml"),
        };
        match &self.live {
            Some(live) if live.serves.is_some() => {
                match timeout(CONNECT, TcpStream::connect(reachable(listen))).await {
                    Ok(Ok(_)) => Finding::ok(NAME, format!("the gateway listens on {listen}")),
                    Ok(Err(error)) => Finding::fail(NAME, format!("{listen}: {error}"), "restart the gateway"),
                    Err(_) => Finding::fail(
                        NAME,
                        format!("{listen}: no connection within {CONNECT:?}"),
                        "restart the gateway",
                    ),
                }
            }
            Some(_) => Finding::ok(NAME, "this conversation opens none"),
            None => match TcpListener::bind(listen).await {
                Ok(_) => Finding::ok(NAME, format!("{listen} is free")),
                Err(error) => Finding::fail(NAME, format!("{listen}: {error}"), OTHER),
            },
        }
    }

    pub(super) async fn all_channels(&self) -> Vec<Finding> {
        let mut names: Vec<&str> = self.channels.keys().map(String::as_str).collect();
        if self.email_rests().is_some() {
            names.push(EMAIL);
        }
        let tests = names.into_iter().map(async |name| (name, self.test(name).await));
        let mut all = Vec::new();
        for (name, findings) in futures_util::future::join_all(tests).await {
            let told: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
            if worst(&findings) == Verdict::Ok {
                all.push(Finding::ok(format!("channel {name}"), told[1..].join("; ")));
                continue;
            }
            let bad = findings.into_iter().filter(|finding| finding.state != Verdict::Ok);
            all.extend(bad.map(|finding| Finding { name: format!("channel {name}"), ..finding }));
        }
        all
    }
}

async fn bounded(limit: Duration, test: impl Future<Output = Vec<Finding>>) -> Vec<Finding> {
    match timeout(limit, test).await {
        Ok(findings) => findings,
        Err(_) => vec![Finding::fail("test", format!("no end within {limit:?}"), "look at the gateway's log")],
    }
}

fn skipped(place: &PassedOver) -> Value {
    let at = Timestamp::from_millisecond(place.at).map(|at| at.to_string()).unwrap_or_default();
    json!({ "source": place.source, "position": place.position, "reason": place.reason, "at": at })
}

fn hook(name: impl AsRef<str>) -> String {
    format!("webhook:{}", name.as_ref())
}

/// Where this machine reaches a server that listens on `listen`.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}
