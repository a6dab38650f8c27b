//! What is done with one mailbox.

use std::time::Duration;

use crate::email::config::{Done, EmailConfig};

/// What the owner is told of a mail that cannot be fetched: its mailbox, its number there, the reason.
pub const SKIPPED_ENGLISH: &str = "A mail in {mailbox} (UID {uid}) was skipped: the server could not be brought to hand it out \
                                   ({reason}). It lies there unread.";
pub const SKIPPED_CHINESE: &str =
    "{mailbox} 中的一封邮件（UID {uid}）被跳过：无法从服务器取得（{reason}）。它仍以未读状态留在邮箱里。";

/// What is done with one mailbox.
#[derive(Clone, Debug)]
pub struct WatchSettings {
    /// The channel's name, under which cursors and notes are kept.
    pub channel: String,
    pub mailbox: String,
    pub poll_interval: Duration,
    pub backlog: Duration,
    pub done: Done,
    pub move_to: String,
    /// In bytes.
    pub max_size: u64,
    /// [`SKIPPED_ENGLISH`] or [`SKIPPED_CHINESE`].
    pub skipped: &'static str,
    pub(super) pace: Pace,
}

impl WatchSettings {
    pub fn new(config: &EmailConfig, channel: &str, mailbox: &str) -> Self {
        Self {
            channel: channel.to_owned(),
            mailbox: mailbox.to_owned(),
            poll_interval: config.poll_interval.into(),
            backlog: config.backlog.into(),
            done: config.done,
            move_to: config.move_to.trim().to_owned(),
            max_size: config.max_size.0,
            skipped: SKIPPED_ENGLISH,
            pace: Pace::default(),
        }
    }
}

/// How long is waited for what. A connection that is only half there is to be noticed within a minute, even where somebody
/// between (a proxy, a NAT) keeps its own half alive, so that TCP's keepalive notices nothing: the server itself is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// The longest silence in an answer.
    pub silence: Duration,
    /// A server that says nothing for so long while it idles is asked whether it is there.
    pub quiet: Duration,
    /// How long it then has.
    pub patience: Duration,
    /// IDLE is begun anew after this, whatever the server says meanwhile. RFC 2177 wants less than 29 minutes; NATs less.
    pub longest_idle: Duration,
    /// The waits between connections: the first and the longest.
    pub reconnect: (Duration, Duration),
    /// The waits between tries of one mail that is not taken: the first and the longest.
    pub retry: (Duration, Duration),
}

impl Default for Pace {
    fn default() -> Self {
        const fn secs(secs: u64) -> Duration {
            Duration::from_secs(secs)
        }
        Self {
            silence: secs(50),
            quiet: secs(40),
            patience: secs(10),
            longest_idle: secs(270),
            reconnect: (secs(1), secs(60)),
            retry: (secs(1), secs(60)),
        }
    }
}
