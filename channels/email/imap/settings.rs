//! Settings and timings of reading one mailbox.

use std::time::Duration;

use crate::email::config::{DoneAction, EmailConfig};

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
    /// [`NoticeTexts::unfetched_notice`](crate::email::texts::NoticeTexts::unfetched_notice).
    pub unfetched_notice: &'static str,
    pub(super) timings: ImapTimings,
}

impl WatchSettings {
    pub fn new(config: &EmailConfig, channel: &str, mailbox: &str, unfetched_notice: &'static str) -> Self {
        Self {
            channel: channel.to_owned(),
            mailbox: mailbox.to_owned(),
            poll_interval: config.poll_interval.into(),
            backlog: config.backlog.into(),
            done: config.done,
            move_to: config.move_to.trim().to_owned(),
            max_size: config.max_size.0,
            unfetched_notice,
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
