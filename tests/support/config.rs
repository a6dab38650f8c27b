//! The configuration of a test's gateway.

use std::collections::BTreeMap;
use std::path::PathBuf;

use toml::{Table, Value};

use super::mail::{ASSISTANT, AUTHSERV, Dovecot, PASSWORD, Postfix, Smtp};
use super::model::Model;
use super::sink::Sink;

/// The way in which callers of a hook authenticate.
#[derive(Clone, Debug)]
pub enum HookCredentials {
    Bearer(String),
    /// Standard Webhooks; the secret as `whsec_…`.
    Standard(String),
    None,
}

/// The settings of one `[channels.webhook.NAME]`.
#[derive(Clone, Debug)]
pub struct Hook {
    pub name: String,
    pub credentials: HookCredentials,
    table: Table,
}

impl Hook {
    /// Creates a hook that trusts the holder of its secret, as the owner's own hook does.
    pub fn bearer(name: &str) -> Self {
        Self::new(name, "bearer", HookCredentials::Bearer("the-bearer-secret".to_owned()), "the-bearer-secret")
            .trusting(&["*"])
    }

    /// Creates a hook like [`Hook::bearer`], whose requests are signed.
    pub fn standard(name: &str) -> Self {
        let secret = super::signing::secret(b"a signing key of 24 byte");
        Self::new(name, "standard", HookCredentials::Standard(secret.clone()), &secret).trusting(&["*"])
    }

    /// Sets the senders who may trigger tools; an empty list means nobody.
    pub fn trusting(mut self, senders: &[&str]) -> Self {
        self.table.remove("trusted_from");
        if senders.is_empty() { self } else { self.set("trusted_from", senders.to_vec()) }
    }

    /// Creates a hook whose requests are signed by the scheme `verify` (`github`, `stripe`, `slack`). Status requests carry
    /// the secret itself.
    pub fn service(name: &str, verify: &str) -> Self {
        Self::new(name, verify, HookCredentials::Bearer(SERVICE_SECRET.to_owned()), SERVICE_SECRET)
    }

    /// Creates a hook without authentication. Its senders must then be listed.
    pub fn open(name: &str) -> Self {
        let mut hook = Self { name: name.to_owned(), credentials: HookCredentials::None, table: Table::new() };
        hook.table.insert("verify".to_owned(), "none".into());
        hook.set("allow_from", vec!["*"])
    }

    fn new(name: &str, verify: &str, credentials: HookCredentials, secret: &str) -> Self {
        let hook = Self { name: name.to_owned(), credentials, table: Table::new() };
        hook.set("verify", verify).set("secret", secret)
    }

    /// Sends replies to `sink`, signed with [`callback_secret`], with fast and frequent retries.
    pub fn callback(self, sink: &Sink) -> Self {
        let hook = self.set("callback_url", sink.url()).set("callback_secret", callback_secret());
        hook.set("retry", vec!["50ms", "100ms", "200ms", "500ms", "1s", "2s"])
    }

    /// Sets one key of the hook's table. If a template builds the text or the sender, no sender can be trusted any more.
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        if matches!(key, "content" | "sender") {
            self.table.remove("trusted_from");
        }
        self.table.insert(key.to_owned(), value.into());
        self
    }
}

/// The secret with which services sign requests to hooks.
pub const SERVICE_SECRET: &str = "whsec_a-secret-of-a-service";

/// Returns the secret with which callbacks are signed.
pub fn callback_secret() -> String {
    super::signing::secret(b"the key of the callbacks")
}

/// Builds `config.toml` and the environment of a gateway.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    config: Table,
    pub hooks: BTreeMap<String, Hook>,
    pub env: BTreeMap<String, String>,
    /// Further arguments of `daoyou gateway`.
    pub args: Vec<String>,
    /// The user who owns processes and files, if the tests run as root.
    pub user: Option<u32>,
    /// The program to run instead of the one under test.
    pub program: Option<PathBuf>,
}

impl Setup {
    /// Creates the defaults: the offline responder, no hooks. No model writes summaries, so that a story counts only its own requests.
    pub fn new() -> Self {
        Self::default().set("agent.model", "offline/offline").set("memory.model", "offline/offline")
    }

    /// Runs this program, if there is one, instead of the program under test.
    pub fn program(mut self, program: Option<PathBuf>) -> Self {
        self.program = program;
        self
    }

    /// Uses `model`. Failed requests are retried once and soon given up.
    pub fn model(self, model: &Model) -> Self {
        self.set("agent.model", "scripted/scripted").provider("scripted", model.base_url())
    }

    /// Adds a provider that speaks OpenAI's protocol at this address.
    pub fn provider(self, name: &str, base_url: impl Into<String>) -> Self {
        self.set(&format!("providers.{name}.kind"), "openai")
            .set(&format!("providers.{name}.api_key"), "a-model-key")
            .set(&format!("providers.{name}.base_url"), base_url.into())
    }

    /// Uses `model` like [`Setup::model`], but by Anthropic's Messages API.
    pub fn anthropic(self, model: &Model) -> Self {
        self.model(model).set("providers.scripted.kind", "anthropic")
    }

    /// Uses `model` with the owner's own hook `in`.
    pub fn scripted(model: &Model) -> Self {
        Self::new().model(model).hook(Hook::bearer("in"))
    }

    /// Uses `model`. On the hook `in`, messages from `boss` are the owner's; other senders are not trusted.
    pub fn owned_by_boss(model: &Model) -> Self {
        let setup = Self::new().model(model).hook(Hook::bearer("in").trusting(&[]));
        setup.set("owner.identities", vec!["webhook:in:boss"])
    }

    pub fn hook(mut self, hook: Hook) -> Self {
        let table = Value::Table(hook.table.clone());
        self = self.set(&format!("channels.webhook.{}", hook.name), table);
        self.hooks.insert(hook.name.clone(), hook);
        self
    }

    /// Reads the assistant's mail from `dovecot` and answers everyone in example.test through `smtp`, with fast and
    /// frequent retries.
    pub fn email(self, dovecot: &Dovecot, smtp: &Smtp) -> Self {
        self.mailbox(dovecot).mail("smtp_port", i64::from(smtp.port())).mail("smtp_tls", "none")
    }

    /// Reads mail like [`Setup::email`], but sends it through a real server.
    pub fn email_through_postfix(self, dovecot: &Dovecot, postfix: &Postfix) -> Self {
        self.mailbox(dovecot).mail("smtp_port", i64::from(postfix.submission_port())).mail("smtp_tls", "starttls")
    }

    fn mailbox(self, dovecot: &Dovecot) -> Self {
        self.mail("enabled", true)
            .mail("consent_granted", true)
            .mail("address", ASSISTANT)
            .mail("imap_host", "127.0.0.1")
            .mail("imap_port", i64::from(dovecot.imaps_port()))
            .mail("imap_password", PASSWORD)
            .mail("smtp_host", "127.0.0.1")
            .mail("ca_file", dovecot.ca_file().to_str().expect("a plain path"))
            .mail("allow_from", vec!["@example.test"])
            .mail("authserv_id", AUTHSERV)
            .mail("retry", vec!["1s"; 20])
    }

    /// Sets one key of `[channels.email]`.
    pub fn mail(self, key: &str, value: impl Into<Value>) -> Self {
        self.set(&format!("channels.email.{key}"), value)
    }

    /// Refuses restricted calls for untrusted senders and asks nobody for approval.
    pub fn refusing_strangers(self) -> Self {
        self.set("approval.channels.webhook", "deny").set("approval.channels.email", "deny")
    }

    /// Sets one key, named by its dotted path.
    pub fn set(mut self, path: &str, value: impl Into<Value>) -> Self {
        let (tables, key) = path.rsplit_once('.').unwrap_or(("", path));
        let mut table = &mut self.config;
        for name in tables.split('.').filter(|name| !name.is_empty()) {
            let inner = table.entry(name).or_insert_with(|| Table::new().into());
            table = inner.as_table_mut().expect("a dotted path of tables");
        }
        table.insert(key.to_owned(), value.into());
        self
    }

    /// Removes the key or table with this dotted path.
    pub fn without(mut self, path: &str) -> Self {
        let (tables, key) = path.rsplit_once('.').unwrap_or(("", path));
        let names = tables.split('.').filter(|name| !name.is_empty());
        let table = names.fold(&mut self.config, |table, name| table[name].as_table_mut().expect("a path of tables"));
        table.remove(key).expect("a key that is set");
        self
    }

    /// Adds an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Runs the program as this user.
    pub fn user(mut self, user: u32) -> Self {
        self.user = Some(user);
        self
    }

    /// Adds an argument of `daoyou gateway`.
    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    /// Returns the text of `config.toml`, for a gateway that listens on `port`.
    pub fn render(&self, port: u16) -> String {
        self.clone().set("gateway.listen", format!("127.0.0.1:{port}")).config.to_string()
    }
}
