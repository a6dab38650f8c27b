//! The settings `[channels.webhook.NAME]`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::services::EventService;
use super::template::{RequestTemplate, is_template};
use super::verify::{SigningKey, Verifier, is_weak_standard};
use super::wire::{fixed_session, key_path};
use crate::rate_limit::Quota;
use crate::settings::{ByteSize, HumanDuration, Secret, SettingFault, string_setting};
use crate::trust::{AllowList, Author};

/// The largest permitted `max_body`. Each request that is being read may take this much memory.
const MOST_MAX_BODY: ByteSize = ByteSize(64_000_000);
/// The longest `prompt`, in characters. It accompanies every message.
const MAX_PROMPT_CHARS: usize = 16_000;
/// The minimum length, in characters, of a bearer secret that cannot be guessed.
const MIN_BEARER: usize = 16;
/// The largest count of a rate.
const MAX_COUNT: u32 = 1_000_000;

/// How a webhook proves who calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "snake_case")]
pub enum Verify {
    /// Standard Webhooks: a signature over `id.timestamp.body`.
    #[default]
    Standard,
    /// GitHub: `X-Hub-Signature-256` over the body.
    Github,
    /// Stripe: `Stripe-Signature` over `timestamp.body`.
    Stripe,
    /// Slack: `X-Slack-Signature` over `v0:timestamp:body`.
    Slack,
    /// `Authorization: Bearer SECRET`.
    Bearer,
    /// Nothing; for callers on this machine only.
    None,
}

/// One webhook, reached at `POST /webhook/NAME`.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebhookConfig {
    #[default = true]
    pub enabled: bool,
    pub verify: Verify,
    /// The shared secret that `verify` needs; for `standard` in the form `whsec_…`. Looking up a message has no body to
    /// sign: there every kind takes it as `Authorization: Bearer SECRET`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
    /// Where replies are posted. Without it, replies, questions and notices to the sender are kept to be picked up, and nothing else
    /// can be delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback_url: Option<String>,
    /// Signs the callbacks, in the form `whsec_…`; absent is `secret`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback_secret: Option<Secret>,
    /// The waits between tries of one callback; then it is a dead letter.
    #[default([5, 300, 1_800, 7_200, 18_000, 36_000, 36_000].map(HumanDuration::from_secs).to_vec())]
    pub retry: Vec<HumanDuration>,
    /// The senders listened to; absent is everybody who passes `verify`. With `verify = "none"` it must be set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_from: Option<AllowList>,
    /// The senders whose words may make tools change something, as the owner's may; the words of all others are data. The
    /// sender is what the body says (`standard`, `bearer`), a login (`github`), or `TEAM/USER` (`slack`).
    pub trusted_from: AllowList,
    /// The rate of authenticated requests that are taken; those beyond it get 429. Absent means no limit but those of the queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<Rate>,
    /// The largest body taken; a larger one gets 413.
    #[default(ByteSize(2_000_000))]
    pub max_body: ByteSize,
    /// The session of this hook's messages, in place of `webhook:NAME:chat_id`: a name below `webhook:NAME:`, or a whole
    /// key such as `cli:direct`, or a template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Lets a body or a template choose sessions outside of `webhook:NAME:`.
    pub any_session: bool,
    /// Standing instructions that the model is given with each message of this hook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The model for this hook's turns, as in `agent.model`; `/model` in a session overrides it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// A Jinja template that makes the text of the message of any JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// A template for the chat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<String>,
    /// A template for the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// A template for the id by which a message that comes again is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

impl WebhookConfig {
    /// Returns the check of callers that these settings define. `listens_on_loopback` is true if only this machine can reach the
    /// server.
    pub(super) fn verifier(&self, listens_on_loopback: bool) -> Result<Verifier, String> {
        let secret = || -> Result<Secret, String> {
            match &self.secret {
                Some(secret) if !secret.expose().trim().is_empty() => Ok(secret.clone()),
                Some(_) => Err("`secret` is empty".into()),
                None => Err("`secret` is missing; without one, set `verify = \"none\"` and `allow_from`".into()),
            }
        };
        let signed_by = |service| {
            let secret = secret()?;
            let key = SigningKey::of_text(&secret).map_err(|reason| format!("`secret`: {reason}"))?;
            Ok(Verifier::Signed { service: Some(service), key, secret })
        };
        match self.verify {
            Verify::Standard => {
                let secret = secret()?;
                let key = SigningKey::standard(&secret)
                    .map_err(|reason| format!("`secret`: {reason}; `verify = \"standard\"` needs one"))?;
                Ok(Verifier::Signed { service: None, key, secret })
            }
            Verify::Github => signed_by(EventService::Github),
            Verify::Stripe => signed_by(EventService::Stripe),
            Verify::Slack => signed_by(EventService::Slack),
            Verify::Bearer => Ok(Verifier::Bearer(secret()?)),
            Verify::None if !listens_on_loopback => {
                Err("`verify = \"none\"` is allowed only while gateway.listen is a loopback address".into())
            }
            Verify::None if self.allow_from.as_ref().is_none_or(AllowList::is_empty) => {
                Err("`verify = \"none\"` needs `allow_from`, the senders to listen to (\"*\" for all)".into())
            }
            Verify::None => Ok(Verifier::Loopback),
        }
    }

    /// Returns the key that signs callbacks: `callback_secret`, or else `secret`. Without either, callbacks are not signed.
    ///
    /// # Errors
    /// The name of the setting that is not a key, and the reason.
    pub(super) fn callback_key(&self) -> Result<Option<SigningKey>, (&'static str, String)> {
        let (key, name) = match (&self.callback_secret, &self.secret) {
            (Some(secret), _) => (SigningKey::of_any(secret), "callback_secret"),
            // The callers' own key, in the same encoding.
            (None, Some(secret)) if self.verify == Verify::Standard => (SigningKey::standard(secret), "secret"),
            // Stripe's secrets also begin with `whsec_` but are not base64.
            (None, Some(secret)) if self.verify == Verify::Stripe => (SigningKey::of_text(secret), "secret"),
            (None, Some(secret)) => (SigningKey::of_any(secret), "secret"),
            (None, None) => return Ok(None),
        };
        key.map(Some).map_err(|reason| (name, reason))
    }

    /// Returns the settings that cannot sign: the secret of the senders, or the key of callbacks.
    fn unusable_keys(&self) -> impl Iterator<Item = &'static str> {
        let is_set = |secret: &&Secret| !secret.expose().trim().is_empty();
        let secret = self.secret.as_ref().filter(is_set).filter(|_| self.verify == Verify::Standard);
        let of_senders = secret.and_then(|secret| SigningKey::standard(secret).err()).map(|_| "secret");
        let of_callbacks = self.callback_url.as_ref().and_then(|_| self.callback_key().err()).map(|(key, _)| key);
        of_senders.into_iter().chain(of_callbacks)
    }

    /// Returns the faults that only this module detects. `name` is the webhook's name.
    pub fn faults(&self, name: &str) -> Vec<SettingFault> {
        let mut faults = Vec::new();
        let mut fault = |key, wrong: String, allowed: &str| {
            faults.push(SettingFault::new(&[key], wrong, allowed));
        };
        for (key, source) in self.templates() {
            if let Err(wrong) = RequestTemplate::new(&key_path(name, key), source) {
                fault(key, wrong, "a Jinja template over body, headers, query and name");
            }
        }
        if let Some(session) = self.session.as_deref().filter(|session| !is_template(session))
            && let Err(error) = fixed_session(&format!("webhook:{name}"), session)
        {
            fault("session", error.message.into_owned(), "a plain name, a key such as \"cli:direct\", or a template");
        }
        if self.prompt.as_ref().is_some_and(|prompt| prompt.chars().count() > MAX_PROMPT_CHARS) {
            let wrong = format!("it is longer than {MAX_PROMPT_CHARS} characters");
            fault("prompt", wrong, "instructions that are short enough to go along with every message");
        }
        self.trust_faults(&mut fault);
        if self.max_body.0 == 0 || self.max_body > MOST_MAX_BODY {
            fault("max_body", format!("{} is out of range", self.max_body), "a size from \"1B\" to \"64MB\"");
        }
        for key in self.unusable_keys().filter(|_| self.enabled) {
            let allowed = "\"whsec_\" and base64, or a reference to such a secret";
            faults.push(SettingFault::new(&[key, "verify"], "the secret cannot sign: it is not base64", allowed));
        }
        faults
    }

    /// Returns warnings about settings that work but are probably not intended, as `(key, sentence)`. `name` is the webhook's name.
    pub fn warnings(&self, name: &str) -> Vec<(&'static str, String)> {
        let mut warnings = Vec::new();
        let is_elsewhere = |session: &&str| {
            !is_template(session) && session.contains(':') && !session.starts_with(&format!("webhook:{name}:"))
        };
        if let Some(session) = self.session.as_deref().filter(is_elsewhere)
            && !self.trusted_from.allows_everyone()
        {
            let message = format!(
                "messages of senders who are not in trusted_from go into {session:?}, and the model is given what was said there"
            );
            warnings.push(("session", message));
        }
        for entry in self.trusted_from.entries().filter(|entry| *entry != "*") {
            if self.allow_from.as_ref().is_some_and(|list| !list.allows(entry)) {
                warnings
                    .push(("trusted_from", format!("{entry:?} is not in allow_from: messages from there are refused")));
            }
        }
        warnings.extend(self.weak_secret().map(|message| ("secret", message.to_owned())));
        warnings
    }

    /// Returns a warning if the secret can be guessed. The services choose the secrets of their own kinds.
    fn weak_secret(&self) -> Option<&'static str> {
        let secret = self.secret.as_ref()?;
        match self.verify {
            Verify::Bearer if secret.expose().chars().count() < MIN_BEARER => Some(
                "so short a secret can be guessed; use 16 characters or more, such as what `openssl rand -hex 32` prints",
            ),
            Verify::Standard if is_weak_standard(secret) => Some(
                "so short a secret can be guessed; use \"whsec_\" and 24 bytes or more in base64, such as what \
                 `openssl rand -base64 32` prints",
            ),
            _ => None,
        }
    }

    /// Returns the strongest proof of authorship that a message to this webhook can give. The error is the reason why a
    /// message proves nothing; then no sender can be trusted.
    pub fn author(&self) -> Result<Author, &'static str> {
        match self.verify {
            Verify::None => Err("with verify = \"none\" everybody on this machine can write under any name"),
            Verify::Stripe => Err("Stripe does not say who wrote the texts in its events"),
            _ if self.sender.is_some() => Err("a template makes the sender, so nothing proves who wrote the text"),
            Verify::Github | Verify::Slack => Ok(Author::Named),
            Verify::Standard | Verify::Bearer if self.content.is_some() => {
                Err("a template makes the text of somebody else's JSON, so nothing proves who wrote it")
            }
            Verify::Standard | Verify::Bearer => Ok(Author::Holder),
        }
    }

    fn trust_faults(&self, fault: &mut impl FnMut(&'static str, String, &str)) {
        const TEAM_USER: &str = "Slack's own ids as \"TEAM/USER\", such as \"T024BE7LD/U2147483697\"";
        let is_team_user = |entry: &str| {
            entry
                .split_once('/')
                .is_some_and(|(team, user)| !team.is_empty() && !user.is_empty() && !user.contains('/'))
        };
        let is_slack = self.verify == Verify::Slack && self.sender.is_none();
        if is_slack && let Some(list) = &self.allow_from {
            for entry in list.entries().filter(|entry| *entry != "*" && !is_team_user(entry)) {
                let allowed = format!("{TEAM_USER}, or \"*\" for everybody");
                fault("allow_from", format!("{entry:?} names no team and user"), &allowed);
            }
        }
        if self.trusted_from.is_empty() {
            return;
        }
        match self.author() {
            Err(why) => {
                let allowed = "an empty list; [\"*\"] or names are for verify = \"standard\" and \"bearer\" without the \
                               templates content and sender, and names for \"github\" and \"slack\" without the template sender";
                fault("trusted_from", why.to_owned(), allowed);
            }
            Ok(Author::Named) if self.trusted_from.allows_everyone() => {
                let service = if self.verify == Verify::Slack { "Slack" } else { "GitHub" };
                let wrong = format!(
                    "\"*\" would trust everybody whose words {service} passes on: its signature proves {service}, not the author"
                );
                let allowed = if self.verify == Verify::Slack { TEAM_USER } else { "logins, such as \"octocat\"" };
                fault("trusted_from", wrong, allowed);
            }
            Ok(_) => {
                for entry in self.trusted_from.entries() {
                    if entry.is_empty() {
                        fault("trusted_from", "an entry is empty".to_owned(), "the names of senders");
                    } else if is_slack && !is_team_user(entry) {
                        fault("trusted_from", format!("{entry:?} names no team and user"), TEAM_USER);
                    }
                }
            }
        }
    }

    /// Returns the settings that are templates and are set.
    fn templates(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let session = self.session.as_ref().filter(|session| is_template(session));
        [
            ("content", self.content.as_ref()),
            ("chat_id", self.chat_id.as_ref()),
            ("sender", self.sender.as_ref()),
            ("id", self.id.as_ref()),
            ("session", session),
        ]
        .into_iter()
        .filter_map(|(key, source)| Some((key, source?.as_str())))
    }
}

/// A number of requests per second, minute or hour, written `"10/s"`, `"60/m"`, `"1000/h"`. All of them may come at once;
/// after that, one more is allowed whenever its share of the period has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: u32,
    unit: &'static RateUnit,
}

#[derive(Debug, PartialEq, Eq)]
struct RateUnit {
    name: &'static str,
    length: Duration,
}

const UNITS: &[RateUnit; 3] = &[
    RateUnit { name: "s", length: Duration::from_secs(1) },
    RateUnit { name: "m", length: Duration::from_secs(60) },
    RateUnit { name: "h", length: Duration::from_secs(3_600) },
];

impl Rate {
    /// Returns the rate as a quota of a limiter.
    pub(super) fn quota(self) -> Quota {
        Quota::Steady { count: self.count, period: self.unit.length }
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a rate such as \"10/s\", \"60/m\" or \"1000/h\"");
        let (count, unit) = text.trim().split_once('/').ok_or_else(wrong)?;
        let unit = UNITS.iter().find(|known| known.name == unit.trim()).ok_or_else(wrong)?;
        let count = count.trim();
        if count.is_empty() || !count.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong());
        }
        match count.parse() {
            Ok(count @ 1..=MAX_COUNT) => Ok(Self { count, unit }),
            Ok(0) => Err(format!("{text:?} lets nothing through; to close a webhook set enabled = false")),
            _ => Err(format!("{text:?} is more than {MAX_COUNT}")),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, self.unit.name)
    }
}

string_setting!(Rate, "rate");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_settings_are_named() {
        let base = WebhookConfig::default;
        let text = |text: &str| Some(text.to_owned());
        let list = |names: &[&str]| AllowList::new(names.iter().copied());
        let trusting = |verify, names: &[&str]| WebhookConfig { verify, trusted_from: list(names), ..base() };
        let table = [
            (base(), None),
            (WebhookConfig { content: text("{{ body.x"), ..base() }, Some(("content", "syntax error"))),
            (WebhookConfig { chat_id: text("{{ bdy }}"), ..base() }, Some(("chat_id", "no name \"bdy\""))),
            (WebhookConfig { session: text("{{ body.x | nope }}"), ..base() }, Some(("session", "unknown filter"))),
            (WebhookConfig { session: text("ops"), ..base() }, None),
            (WebhookConfig { session: text("cli:direct"), ..base() }, None),
            (WebhookConfig { session: text("{{ body.room }}"), ..base() }, None),
            (WebhookConfig { session: text(" "), ..base() }, Some(("session", "empty"))),
            (WebhookConfig { session: text("cli:"), ..base() }, Some(("session", "not a key"))),
            (WebhookConfig { prompt: Some("x".repeat(16_001)), ..base() }, Some(("prompt", "longer"))),
            (WebhookConfig { max_body: ByteSize(0), ..base() }, Some(("max_body", "0B"))),
            (WebhookConfig { max_body: ByteSize(1 << 30), ..base() }, Some(("max_body", "1GiB"))),
            (trusting(Verify::Standard, &["*"]), None),
            (trusting(Verify::Bearer, &["ann", "*"]), None),
            (trusting(Verify::Bearer, &[" "]), Some(("trusted_from", "empty"))),
            (trusting(Verify::Github, &["octocat"]), None),
            (trusting(Verify::Github, &["octocat", "*"]), Some(("trusted_from", "not the author"))),
            (trusting(Verify::Slack, &["T1/U1"]), None),
            (trusting(Verify::Slack, &["*"]), Some(("trusted_from", "proves Slack"))),
            (trusting(Verify::Slack, &["U1"]), Some(("trusted_from", "\"U1\" names no team"))),
            (trusting(Verify::Slack, &["T1/"]), Some(("trusted_from", "names no team"))),
            (trusting(Verify::Stripe, &["ann"]), Some(("trusted_from", "Stripe"))),
            (trusting(Verify::None, &["ann"]), Some(("trusted_from", "under any name"))),
            (
                WebhookConfig { content: text("{{ body.x }}"), ..trusting(Verify::Bearer, &["ann"]) },
                Some(("trusted_from", "makes the text")),
            ),
            (
                WebhookConfig { sender: text("{{ body.x }}"), ..trusting(Verify::Standard, &["ann"]) },
                Some(("trusted_from", "makes the sender")),
            ),
            (
                WebhookConfig { sender: text("{{ body.x }}"), ..trusting(Verify::Github, &["ann"]) },
                Some(("trusted_from", "makes the sender")),
            ),
            (WebhookConfig { content: text("{{ body.x }}"), ..trusting(Verify::Github, &["ann"]) }, None),
            (
                WebhookConfig { allow_from: Some(list(&["*", "U1"])), ..trusting(Verify::Slack, &[]) },
                Some(("allow_from", "\"U1\" names no team")),
            ),
        ];
        for (config, expected) in table {
            let faults = config.faults("ci");
            let first = faults.first().map(|fault| (fault.key(), fault.wrong.clone()));
            match (expected, first) {
                (None, None) => {}
                (Some((key, words)), Some((got, wrong))) if key == got && wrong.contains(words) => {}
                (expected, first) => panic!("{expected:?} {first:?}"),
            }
        }
    }

    #[test]
    fn suspicious_settings_are_reported() {
        let list = |names: &[&str]| AllowList::new(names.iter().copied());
        let of = |session: Option<&str>, allowed: Option<&[&str]>, trusted: &[&str]| {
            let config = WebhookConfig {
                session: session.map(str::to_owned),
                allow_from: allowed.map(list),
                trusted_from: list(trusted),
                ..WebhookConfig::default()
            };
            config.warnings("in").into_iter().map(|(key, _)| key).collect::<Vec<_>>().join(" ")
        };
        for (session, allowed, trusted, expected) in [
            (None, None, &[][..], ""),
            (Some("cli:direct"), None, &[], "session"),
            (Some("cli:direct"), None, &["ann"], "session"),
            (Some("cli:direct"), None, &["*"], ""),
            (Some("ops"), None, &[], ""),
            (Some("webhook:in:ops"), None, &[], ""),
            (None, Some(&["ann"][..]), &["ann", "bob", "*"], "trusted_from"),
            (None, Some(&["*"]), &["ann"], ""),
        ] {
            assert_eq!(of(session, allowed, trusted), expected, "{session:?} {allowed:?} {trusted:?}");
        }
    }

    #[test]
    fn a_rate_is_read_and_written() {
        for (text, shown) in [("60/m", "60/m"), (" 5 / s ", "5/s"), ("1000000/h", "1000000/h")] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), shown);
        }
        for (text, words) in [
            ("", "not a rate"),
            ("60", "not a rate"),
            ("60/d", "not a rate"),
            ("+6/m", "not a rate"),
            ("-1/m", "not a rate"),
            ("1.5/s", "not a rate"),
            ("m/60", "not a rate"),
            ("0/m", "lets nothing through"),
            ("1000001/h", "more than 1000000"),
            ("99999999999/s", "more than 1000000"),
        ] {
            let fault = text.parse::<Rate>().unwrap_err();
            assert!(fault.contains(words), "{fault}");
        }
    }
}
