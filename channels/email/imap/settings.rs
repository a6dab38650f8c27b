//! Settings and timings of reading one mailbox.

use std::time::Duration;

use crate::email::config::{DoneAction, EmailConfig};

/// Notice to the owner about a mail that cannot be fetched; placeholders: mailbox, UID, reason.
pub const SKIPPED_ENGLISH: &str = "A mail in {mailbox} (UID {uid}) was skipped because it cannot be fetched from the server ({reason}). \
                                   It stays there unread.";
pub const SKIPPED_CHINESE: &str =
    "{mailbox} 中的一封邮件（UID {uid}）被跳过：无法从服务器取得（{reason}）。它仍以未读状态留在邮箱里。";

/// How one mailbox is read.
#[derive(Clone, Debug)]
pub struct WatchSettings {
    /// Name of the channel that owns the cursors and notes.
    pub channel: String,
    pub mailbox: String,
    pub poll_interval: Duration,
    pub backlog: Duration,
    pub done: DoneAction,
    pub move_to: String,
    /// In bytes.
    pub max_size: u64,
    /// [`SKIPPED_ENGLISH`] or [`SKIPPED_CHINESE`].
    pub skipped: &'static str,
    pub(super) timings: ImapTimings,
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
            timings: ImapTimings::default(),
        }
    }
}

/// Timeouts and intervals. A dead connection must be noticed within a minute even if a proxy or NAT keeps its own side
/// alive and TCP keepalive notices nothing; therefore the server itself is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct ImapTimings {
    /// Longest silence within a response.
    pub silence: Duration,
    /// Longest silence during IDLE before the server is asked for a sign of life.
    pub idle_silence: Duration,
    /// Time for the server to answer then.
    pub idle_answer: Duration,
    /// Longest IDLE before it is renewed: RFC 2177 wants less than 29 minutes, and NATs less than that.
    pub longest_idle: Duration,
    /// First and longest wait between connections.
    pub reconnect: (Duration, Duration),
    /// First and longest wait between attempts to hand over one mail.
    pub retry: (Duration, Duration),
}

impl Default for ImapTimings {
    fn default() -> Self {
        const fn secs(secs: u64) -> Duration {
            Duration::from_secs(secs)
        }
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
