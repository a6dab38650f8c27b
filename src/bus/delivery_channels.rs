//! The channels on which the agent can write to somebody unasked.

use std::collections::BTreeMap;

use daoyou_channels::Trust;

use crate::text::truncate;

/// The longest part of a channel's name that an error repeats, in characters.
const MAX_ECHO: usize = 80;

/// The running channels; true if the channel can deliver messages that answer no message.
#[derive(Clone, Debug, Default)]
pub struct DeliveryChannels(pub BTreeMap<String, bool>);

impl DeliveryChannels {
    /// Explains why nobody would read in `channel` what was not asked for; `None` if a person may read it.
    pub fn why_unreachable(&self, channel: &str) -> Option<String> {
        match self.0.get(channel) {
            Some(true) => None,
            Some(false) => Some(format!("{channel} has no callback_url, so nobody reads there what was not asked for")),
            None => {
                let channel = truncate(channel, MAX_ECHO);
                Some(format!("there is no channel {channel:?} that is switched on"))
            }
        }
    }

    /// Refuses a channel on which nobody would read a message of a turn with this trust.
    ///
    /// # Errors
    /// Explains why. An untrusted turn learns of no other channel; other turns learn the usable ones.
    pub fn check(&self, channel: &str, trust: Trust) -> Result<(), String> {
        let Some(why) = self.why_unreachable(channel) else { return Ok(()) };
        if trust == Trust::Untrusted {
            return Err(format!("channel: {why}"));
        }
        let known = self.0.iter().filter(|(_, is_read)| **is_read).map(|(name, _)| name.as_str());
        let known = known.collect::<Vec<_>>().join(", ");
        let callback = match channel.strip_prefix("webhook:").filter(|_| self.0.contains_key(channel)) {
            Some(hook) => format!("set channels.webhook.{hook}.callback_url, or "),
            None => String::new(),
        };
        Err(format!("channel: {why}; {callback}name another channel and chat: there are {known}"))
    }
}
