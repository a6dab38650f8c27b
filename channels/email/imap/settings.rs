//! The settings and time limits for reading one mailbox.

use std::time::Duration;

use crate::email::config::{DoneAction, EmailConfig};
use crate::email::texts::NoticeTexts;

const INBOX: &str = "INBOX";

/// The settings for reading one mailbox.
#[derive(Clone, Debug)]
pub struct WatchSettings {
    /// The mailbox; each spelling of INBOX is `INBOX` (RFC 3501, section 5.1).
    pub mailbox: String,
    /// The mailbox as the configuration names it. Earlier versions stored its position by this name.
    pub configured_name: String,
    /// The account's login, which tells accounts apart.
    pub account: String,
    pub poll_interval: Duration,
    pub backlog: Duration,
    pub done: DoneAction,
    pub move_to: String,
    /// The largest mail that is fetched, in bytes.
    pub max_size: u64,
    pub texts: &'static NoticeTexts,
    pub(super) timings: ImapTimings,
}

impl WatchSettings {
    pub fn new(config: &EmailConfig, mailbox: &str, texts: &'static NoticeTexts) -> Self {
        let is_inbox = mailbox.eq_ignore_ascii_case(INBOX);
        let login = match config.imap_username.trim() {
            "" => config.address.trim(),
            login => login,
        };
        // A login without a domain may exist on several servers.
        let host = if login.contains('@') { "" } else { config.imap_host.trim() };
        Self {
            mailbox: if is_inbox { INBOX.to_owned() } else { mailbox.to_owned() },
            configured_name: mailbox.to_owned(),
            account: format!("{login} {host}").trim_end().to_lowercase(),
            poll_interval: config.poll_interval.into(),
            backlog: config.backlog.into(),
            done: config.done,
            move_to: config.move_to.trim().to_owned(),
            max_size: config.max_size.0,
            texts,
            timings: ImapTimings::default(),
        }
    }
}

/// Timeouts and intervals. The reader must notice a dead connection within a minute. A proxy or NAT may keep its own side
/// alive, so that TCP keepalive notices nothing; therefore the reader asks the server itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct ImapTimings {
    /// Longest silence within a response.
    pub silence: Duration,
    /// The longest silence during IDLE before the reader asks the server for a sign of life.
    pub idle_silence: Duration,
    /// The time limit for the server's answer to that.
    pub idle_answer: Duration,
    /// The longest IDLE before it is renewed. RFC 2177 asks for less than 29 minutes, and NATs need a shorter time.
    pub longest_idle: Duration,
    /// The first and the longest wait between connections.
    pub reconnect: (Duration, Duration),
    /// The first and the longest wait between attempts to hand over one mail.
    pub retry: (Duration, Duration),
}

impl Default for ImapTimings {
    fn default() -> Self {
        let secs = Duration::from_secs;
        Self {
            silence: secs(50),
            idle_silence: secs(40),
            idle_answer: secs(10),
            longest_idle: secs(270),
            reconnect: (secs(1), secs(60)),
            retry: (secs(1), secs(60)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Language;

    #[test]
    fn the_login_tells_accounts_apart() {
        for (address, username, host, expected) in [
            ("Me@Example.org", "", "imap.example.org", "me@example.org"),
            ("alias@example.org", "me@example.org", "imap.example.org", "me@example.org"),
            ("me@example.org", "me", "imap.example.org", "me imap.example.org"),
            ("me@example.org", "me", "", "me"),
        ] {
            let config = EmailConfig {
                address: address.to_owned(),
                imap_username: username.to_owned(),
                imap_host: host.to_owned(),
                ..EmailConfig::default()
            };
            assert_eq!(WatchSettings::new(&config, "INBOX", NoticeTexts::of(Language::En)).account, expected);
        }
    }
}
