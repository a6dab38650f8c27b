//! The settings and time limits for reading one mailbox.

use std::time::Duration;

use crate::email::config::{DoneAction, EmailConfig};

/// The settings for reading one mailbox.
#[derive(Clone, Debug)]
pub struct WatchSettings {
    pub mailbox: String,
    pub poll_interval: Duration,
    pub backlog: Duration,
    pub done: DoneAction,
    pub move_to: String,
    /// The largest mail that is fetched, in bytes.
    pub max_size: u64,
    /// [`NoticeTexts::unfetched_notice`](crate::email::texts::NoticeTexts::unfetched_notice).
    pub unfetched_notice: &'static str,
    pub(super) timings: ImapTimings,
}

impl WatchSettings {
    pub fn new(config: &EmailConfig, mailbox: &str, unfetched_notice: &'static str) -> Self {
        Self {
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
