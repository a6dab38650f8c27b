//! The settings `[channels.email]`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::settings::{ByteSize, HumanDuration, Secret};
use crate::trust::{AllowList, Author};

/// The name of the channel.
pub const NAME: &str = "email";
/// The folder of the workspace for attachments.
pub const ATTACHMENTS: &str = "mail";

/// The encryption of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tls {
    /// TLS from the first byte.
    Implicit,
    /// Plain text first, TLS before any secret is sent.
    Starttls,
    /// No encryption: only for servers on this machine.
    None,
}

/// What proves that a mail is from its From address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TrustMethod {
    /// The receiving server: the topmost `Authentication-Results` of `authserv_id` (RFC 8601), at `authserv_depth` or
    /// above.
    #[default]
    Authserv,
    /// The gateway's own check of DKIM and DMARC, and of SPF where `authserv_id` names the server whose `Received`
    /// counts.
    Verify,
    /// Nothing: From is believed, although anybody can write anything there.
    None,
}

impl TrustMethod {
    /// Returns how the check identifies the author of a mail that passes it.
    pub fn author(self) -> Author {
        match self {
            Self::Authserv | Self::Verify => Author::Named,
            Self::None => Author::Unproven,
        }
    }
}

/// What is done with an accepted mail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DoneAction {
    /// Marked as read.
    #[default]
    Seen,
    /// Moved to `move_to`.
    Move,
    /// Left unchanged.
    Keep,
}

/// What senders outside `allow_from` get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnlistedSenderPolicy {
    #[default]
    Ignore,
    /// A polite refusal, once a day, if their address is proven.
    Refuse,
}

/// One or more mailboxes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Mailboxes {
    One(String),
    Many(Vec<String>),
}

impl Mailboxes {
    pub fn names(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Many(names) => names,
        }
    }
}

/// `[channels.email]`: an account whose mail is read by IMAP and answered by SMTP.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EmailConfig {
    pub enabled: bool,
    /// The owner of the account agrees that its mail is read and answered. Without this agreement the channel does not
    /// run.
    pub consent_granted: bool,
    /// The address of the account; replies come from it.
    pub address: String,
    /// The display name of the address.
    pub name: String,
    /// Empty: the preset of the address's provider, if known.
    pub imap_host: String,
    /// Absent: 993, or 143 without implicit TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub imap_port: Option<u16>,
    #[default(Tls::Implicit)]
    pub imap_tls: Tls,
    /// Empty: the address.
    pub imap_username: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub imap_password: Option<Secret>,
    /// The mailboxes to read.
    #[default(Mailboxes::One("INBOX".to_owned()))]
    pub mailbox: Mailboxes,
    /// Empty: the preset of the address's provider, if known.
    pub smtp_host: String,
    /// Absent: 587 with STARTTLS, 465 with implicit TLS, 25 without TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smtp_port: Option<u16>,
    #[default(Tls::Starttls)]
    pub smtp_tls: Tls,
    /// Empty: the same as for IMAP.
    pub smtp_username: String,
    /// Absent: the same as for IMAP. Without it and without a token there is no login.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smtp_password: Option<Secret>,
    /// A command that prints an OAuth 2 access token, which replaces the passwords of both logins (XOAUTH2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_command: Option<Vec<String>>,
    /// A PEM file of certificates that are trusted besides those of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The addresses and `@domain`s whose mail is accepted; empty: nobody.
    pub allow_from: AllowList,
    /// The addresses among them whose words may make tools change something, like the owner's. The words of all others
    /// are data.
    pub trusted_from: AllowList,
    pub trust: TrustMethod,
    /// The name under which the receiving server writes its results. With `trust = "verify"`: the name in its
    /// `Received`, without which SPF proves nothing.
    pub authserv_id: String,
    /// How many `Received` precede the receiving server's results in a mail in the mailbox, without those of local
    /// delivery (LMTP). Results further down are not believed.
    #[schemars(range(max = 20))]
    pub authserv_depth: u32,
    pub strangers: UnlistedSenderPolicy,
    /// How often a server without IDLE is polled.
    #[default(HumanDuration::from_secs(60))]
    pub poll_interval: HumanDuration,
    /// How old a mail may be that was in the mailbox before the first start, to be answered.
    #[default(HumanDuration::from_secs(0))]
    pub backlog: HumanDuration,
    pub done: DoneAction,
    /// The mailbox of accepted mail with `done = "move"`.
    pub move_to: String,
    /// The folder that keeps a copy of each sent mail; empty: none.
    pub sent_mailbox: String,
    /// A larger mail is not fetched, and its sender is notified.
    #[default(ByteSize(35_000_000))]
    pub max_size: ByteSize,
    /// Whether a reply quotes the beginning of the mail that it answers.
    pub quote: bool,
    /// Whether a reply also goes to the other recipients of the mail.
    pub reply_all: bool,
    /// How many mails of one sender, and of one thread, are answered within an hour.
    #[schemars(range(min = 1, max = 1_000))]
    #[default = 30]
    pub hourly_limit: u32,
    /// The waits between the attempts to send a reply; then it is a dead letter.
    #[default([1, 5, 10, 30, 60, 120, 240, 480].map(|minutes: u64| HumanDuration::from_secs(minutes * 60)).to_vec())]
    pub retry: Vec<HumanDuration>,
}

impl EmailConfig {
    /// Returns the names in `authserv_id`. Some services write the result of each method under its own name.
    pub fn authserv_ids(&self) -> impl Iterator<Item = &str> {
        self.authserv_id.split(|c: char| c == ',' || c.is_whitespace()).filter(|id| !id.is_empty())
    }
}
