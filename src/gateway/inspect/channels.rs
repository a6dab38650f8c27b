//! Lists and tests the channels and the port.

use std::time::Duration;

use daoyou_channels::email::EmailConfig;
use daoyou_channels::finding::worst;
use daoyou_channels::{Finding, Severity};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::Inspector;
use super::read_only::{local_client, local_url};
use crate::bus::ChannelState;
use crate::config::NO_CREDENTIALS;
use crate::gateway::settings::local_address;
use crate::query::InspectError;
use crate::store::cursors::SkippedPosition;
use crate::store::{Connection, cursors, outbox};

const EMAIL: &str = "email";
/// The maximum number of skipped messages that are shown for a channel.
const MAX_SKIPPED: u32 = 5;

/// The time limit of a channel's test.
const TEST_LIMIT: Duration = Duration::from_secs(40);
/// The time limit of the long test, which `doctor` omits.
const END_TO_END_LIMIT: Duration = Duration::from_secs(120);
/// The time limit of a connection to this machine.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

impl Inspector {
    /// Lists the channels, each with the messages that it skipped.
    pub(super) async fn channel_rows(&self) -> Result<Value, InspectError> {
        let names: Vec<String> = self.names().collect();
        let read = move |connection: &Connection| {
            let skipped = |name: &String| cursors::skipped(connection, name, MAX_SKIPPED);
            let skipped = names.iter().map(skipped).collect::<Result<Vec<_>, _>>()?;
            Ok((outbox::open_by_channel(connection)?, skipped))
        };
        let (queued, skipped) = self.read(read).await?;
        let mut rows = self.rows(&queued);
        let mut skipped = skipped.into_iter();
        for row in rows.as_array_mut().into_iter().flatten() {
            let (count, last) = skipped.next().unwrap_or_default();
            row["skipped"] = json!(count);
            row["last_skipped"] = last.iter().map(skipped_row).collect();
        }
        Ok(rows)
    }

    /// Returns the names of all channels in the order of the list.
    fn names(&self) -> impl Iterator<Item = String> {
        let hooks = self.config.channels.webhook.keys().map(webhook_channel);
        let email = self.has_email().then(|| EMAIL.to_owned());
        std::iter::once("cli".to_owned()).chain(email).chain(hooks).chain(self.removed().map(str::to_owned))
    }

    /// Returns running channels that are no longer in the configuration.
    fn removed(&self) -> impl Iterator<Item = &str> {
        let is_known = |name: &str| match name.strip_prefix("webhook:") {
            Some(hook) => self.config.channels.webhook.contains_key(hook),
            None => name != EMAIL || self.has_email(),
        };
        self.channels.keys().map(String::as_str).filter(move |name| self.running.is_some() && !is_known(name))
    }

    /// Returns a note if a change of the channel takes effect only at the next start.
    fn until_restart(&self, name: &str, enabled: bool) -> Option<&'static str> {
        // The terminal needs no restart, and a gateway of a single conversation has no other channels.
        let running = self.running.as_ref().filter(|running| running.serves.is_some() && name != "cli")?;
        match (self.channels.contains_key(name), enabled) {
            (true, false) if running.health.all().contains_key(name) => {
                Some("switched off in the configuration; it runs until the gateway is restarted")
            }
            (false, true) if self.email_idle_reason().filter(|_| name == EMAIL).is_none() => {
                Some("new in the configuration; it starts when the gateway is restarted")
            }
            _ => None,
        }
    }

    /// Returns true if e-mail has settings: like a webhook, it is listed only in that case.
    fn has_email(&self) -> bool {
        self.config.channels.email != EmailConfig::default()
    }

    /// Returns the reason why the enabled e-mail channel is not running. A running channel keeps the settings of its start.
    fn email_idle_reason(&self) -> Option<&'static str> {
        self.config.channels.email.inactive_reason().filter(|_| !self.channels.contains_key(EMAIL))
    }

    /// Lists the channels with their states; `queued` has the undelivered messages by channel.
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

    /// Returns the state, and the error of a failed channel.
    fn state(&self, name: &str, enabled: bool) -> (&'static str, Option<String>) {
        if let Some(Err(error)) = self.channels.get(name) {
            return ("failed", Some(error.clone()));
        }
        if let Some(why) = self.email_idle_reason().filter(|_| name == EMAIL) {
            return ("resting", Some(why.to_owned()));
        }
        let Some(running) = &self.running else { return (if enabled { "down" } else { "off" }, None) };
        match running.health.all().remove(name) {
            Some(ChannelState::Starting) => ("starting", None),
            Some(ChannelState::Running) => ("running", None),
            Some(ChannelState::Stopped) => ("stopped", None),
            Some(ChannelState::Failed { error }) => ("failed", Some(error)),
            None => ("off", None),
        }
    }

    pub(super) async fn test_channel(&self, wanted: &str) -> Result<Value, InspectError> {
        let (name, checks) = self.try_channel(wanted).await?;
        Ok(json!({ "channel": name, "ok": worst(&checks) != Severity::Fail, "checks": checks }))
    }

    /// Runs all tests of a channel, and returns its full name together with the findings.
    ///
    /// # Errors
    /// There is no such channel.
    pub async fn try_channel(&self, wanted: &str) -> Result<(String, Vec<Finding>), InspectError> {
        // The name of a webhook may omit the prefix.
        let mut known = self.names().chain((wanted == EMAIL).then(|| EMAIL.to_owned()));
        let Some(name) = known.find(|name| name == wanted || *name == webhook_channel(wanted)) else {
            let known = self.names().collect::<Vec<_>>().join(", ");
            return Err(InspectError::Unknown(format!("there is no channel {wanted:?}; there are {known}")));
        };
        let mut checks = self.test(&name).await;
        // The long test is omitted if the short one failed.
        if let Some(Ok(channel)) = self.channels.get(&name)
            && worst(&checks) != Severity::Fail
        {
            checks.extend(bounded(END_TO_END_LIMIT, channel.test_end_to_end()).await);
        }
        Ok((name, checks))
    }

    /// Runs the tests of one channel, each after those that it depends on.
    pub(super) async fn test(&self, name: &str) -> Vec<Finding> {
        let channel = match self.channels.get(name) {
            None => {
                if let Some(why) = self.email_idle_reason().filter(|_| name == EMAIL) {
                    return vec![Finding::warn("consent", why, "set consent_granted = true under [channels.email]")];
                }
                let mend = format!("set enabled = true under [channels.{}]", name.replace(':', "."));
                return vec![Finding::warn("enabled", "it is switched off", mend)];
            }
            Some(Err(error)) if error == NO_CREDENTIALS => {
                return vec![Finding::warn("config", error.clone(), "start the service, and test it again")];
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
                "fix what the error names; the gateway's log has more",
            )),
            ("down", _) => findings.push(Finding::ok("state", "no gateway runs")),
            ("starting", _) => findings.push(Finding::warn("state", "it is starting", "look again in a moment")),
            (state, _) => findings.push(Finding::ok("state", state)),
        }
        if let Some(path) = name.strip_prefix("webhook:").map(|name| format!("/webhook/{name}")) {
            findings.push(self.route(&path).await);
        }
        findings.extend(bounded(TEST_LIMIT, channel.test()).await);
        findings
    }

    /// Checks that the server answers at `path`. It uses a method that the route does not have, so that no message is created.
    async fn route(&self, path: &str) -> Finding {
        const NAME: &str = "route";
        let Some(listen) = self.running.as_ref().and_then(|running| running.serves) else {
            return Finding::ok(NAME, format!("{path}: not tried, as no gateway serves it"));
        };
        let url = local_url(&self.config, listen, path);
        let listen = local_address(listen);
        let answer = match local_client() {
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

    /// Checks that the gateway listens on its port, or that the port is free.
    pub(super) async fn port(&self) -> Finding {
        const NAME: &str = "port";
        const OTHER: &str = "choose another port with gateway.listen in config.toml, or stop the program that has it";
        let served = self.running.as_ref().and_then(|running| running.serves);
        let listen = match served.map_or_else(|| self.config.gateway.listen_addr(), Ok) {
            Ok(listen) => listen,
            Err(wrong) => return Finding::fail(NAME, wrong, "set gateway.listen = \"127.0.0.1:18790\" in config.toml"),
        };
        match &self.running {
            Some(running) if running.serves.is_some() => {
                match timeout(CONNECT_LIMIT, TcpStream::connect(local_address(listen))).await {
                    Ok(Ok(_)) => Finding::ok(NAME, format!("the gateway listens on {listen}")),
                    Ok(Err(error)) => Finding::fail(NAME, format!("{listen}: {error}"), "restart the gateway"),
                    Err(_) => Finding::fail(
                        NAME,
                        format!("{listen}: no connection within {CONNECT_LIMIT:?}"),
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
        if self.email_idle_reason().is_some() {
            names.push(EMAIL);
        }
        let tests = names.into_iter().map(async |name| (name, self.test(name).await));
        let mut all = Vec::new();
        for (name, findings) in futures_util::future::join_all(tests).await {
            let messages: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
            if worst(&findings) == Severity::Ok {
                all.push(Finding::ok(format!("channel {name}"), messages[1..].join("; ")));
                continue;
            }
            let bad = findings.into_iter().filter(|finding| finding.state != Severity::Ok);
            all.extend(bad.map(|finding| Finding { name: format!("channel {name}"), ..finding }));
        }
        all
    }
}

async fn bounded(limit: Duration, test: impl Future<Output = Vec<Finding>>) -> Vec<Finding> {
    match timeout(limit, test).await {
        Ok(findings) => findings,
        Err(_) => {
            let message = format!("the test did not finish within {limit:?}");
            vec![Finding::fail("test", message, "look at the gateway's log")]
        }
    }
}

fn skipped_row(row: &SkippedPosition) -> Value {
    json!({ "source": row.source, "position": row.position, "reason": row.reason, "at": crate::query::timestamp(row.at) })
}

fn webhook_channel(name: impl AsRef<str>) -> String {
    format!("webhook:{}", name.as_ref())
}
