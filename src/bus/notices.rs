//! Notices for the owner, and their throttling.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use daoyou_channels::SessionKey;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::drafts::{OutboundBody, OutboundDraft, OutboxSlot};
use crate::store::{Connection, StoreError, meta, now_ms};

/// The time during which the same cause on the same channel yields no second notice.
const REPEAT_INTERVAL: Duration = Duration::from_secs(3_600);
/// The time during which a refused key yields no second notice, in milliseconds.
const REFUSAL_INTERVAL: i64 = 24 * 3_600_000;
/// The entry of [`NoticeThrottle`] for refused keys, in place of a channel.
pub(super) const REFUSED_KEY: &str = "refused key";
/// The maximum number of remembered causes; beyond this number, some causes may be reported twice.
const MAX_CAUSES: usize = 1_000;

/// The texts of the owner's notices, and the chat that receives them.
#[derive(Clone, Debug)]
pub struct NoticeSettings {
    /// Notices go to every terminal that is open at that moment, whatever it shows. If none is open, they go to an open page, or
    /// else to the log.
    pub on_terminals: bool,
    pub channel: String,
    pub chat_id: String,
    /// The text for a message that could not be delivered; `{}` stands for its channel, its id and the reason.
    pub dead_letter: &'static str,
    /// The text for a channel that cannot send; `{}` stands for its name and the reason.
    pub held: &'static str,
    /// The text for a loss of accepted messages; `{}` stands for its description.
    pub loss: &'static str,
}

/// A message that was given up.
#[derive(Clone, Copy, Debug)]
pub struct DeadLetter<'a> {
    pub turn: Uuid,
    pub slot: &'a str,
    pub id: Uuid,
    pub channel: &'a str,
    pub chat_id: &'a str,
    pub reason: &'a str,
}

impl NoticeSettings {
    /// Returns true if a notice of this dead letter can arrive: it uses another channel, and the dead letter is not itself a notice.
    pub(super) fn can_report(&self, letter: &DeadLetter<'_>) -> bool {
        let goes_the_same_way = self.channel == letter.channel && self.chat_id == letter.chat_id;
        !goes_the_same_way && !OutboxSlot::is_notice(letter.slot)
    }

    pub(super) fn draft(&self, turn: Uuid, slot: OutboxSlot, content: String) -> OutboundDraft {
        let mut body = OutboundBody::new(content, SessionKey::of_chat(&self.channel, &self.chat_id));
        body.context.is_for_all_terminals = self.on_terminals;
        OutboundDraft { turn, slot, channel: self.channel.clone(), chat_id: self.chat_id.clone(), body }
    }
}

/// A notice that a provider refuses its key.
#[derive(Serialize, Deserialize)]
struct RefusalNotice {
    /// The time of the notice, in UTC milliseconds.
    at: i64,
    /// The model that was refused.
    model: String,
}

/// Writes a notice for the owner into the outbox, and returns the channel that has to deliver it. Without `notices`, it writes the
/// notice to the log.
pub(super) fn write_notice(
    connection: &Connection,
    notices: Option<&NoticeSettings>,
    turn: Uuid,
    slot: OutboxSlot,
    content: String,
) -> Result<Option<String>, StoreError> {
    let Some(notices) = notices else {
        tracing::warn!(notice = content, "notice for the owner, which goes only to this log (owner.notify)");
        return Ok(None);
    };
    notices.draft(turn, slot, content).insert(connection)?;
    Ok(Some(notices.channel.clone()))
}

/// Returns true if the owner got no notice within a day that the provider refuses its key, or the provider has accepted its key since.
/// The store keeps the times, so that a restart repeats no notice.
pub(super) fn is_refusal_news(connection: &Connection, provider: &str) -> Result<bool, StoreError> {
    Ok(!refusals(connection)?.contains_key(provider))
}

/// Returns the providers whose refusals of their keys the owner got a notice of within a day, with the refused models.
pub(super) fn reported_refusals(connection: &Connection) -> Result<BTreeMap<String, String>, StoreError> {
    Ok(refusals(connection)?.into_iter().map(|(provider, notice)| (provider, notice.model)).collect())
}

/// Records that the owner gets a notice now, because the provider refuses its key for `model`.
pub(super) fn record_refusal(connection: &Connection, provider: &str, model: String) -> Result<(), StoreError> {
    let mut refusals = refusals(connection)?;
    refusals.insert(provider.to_owned(), RefusalNotice { at: now_ms(), model });
    meta::set(connection, meta::REFUSED_KEYS, &serde_json::to_string(&refusals)?)
}

/// Removes the record of a notice, because the provider accepts its key again. Its next refusal is new.
pub(super) fn forget_refusal(connection: &Connection, provider: &str) -> Result<(), StoreError> {
    let mut refusals = refusals(connection)?;
    if refusals.remove(provider).is_none() {
        return Ok(());
    }
    meta::set(connection, meta::REFUSED_KEYS, &serde_json::to_string(&refusals)?)
}

/// Returns the notices of the last day. Times in the future come from a clock that was set back.
fn refusals(connection: &Connection) -> Result<BTreeMap<String, RefusalNotice>, StoreError> {
    let stored = meta::get(connection, meta::REFUSED_KEYS)?.unwrap_or_default();
    // The format of another version counts as empty; the next refusal is a new notice.
    let mut refusals: BTreeMap<String, RefusalNotice> = serde_json::from_str(&stored).unwrap_or_default();
    refusals.retain(|_, notice| (0..REFUSAL_INTERVAL).contains(&(now_ms() - notice.at)));
    Ok(refusals)
}

/// The recently reported causes, by channel and reason. Unlike the channels' `RateLimiter`, it can forget a cause again.
#[derive(Default)]
pub struct NoticeThrottle(Mutex<HashMap<(String, String), Instant>>);

impl NoticeThrottle {
    /// Marks `reason` as reported for `channel`. Returns false if it was reported within [`REPEAT_INTERVAL`].
    pub fn mark_if_new(&self, channel: &str, reason: &str, now: Instant) -> bool {
        let mut noticed = self.0.lock();
        noticed.retain(|_, at| now.saturating_duration_since(*at) < REPEAT_INTERVAL);
        let key = (channel.to_owned(), reason.to_owned());
        if noticed.contains_key(&key) {
            return false;
        }
        if noticed.len() < MAX_CAUSES {
            noticed.insert(key, now);
        }
        true
    }

    /// Forgets that `reason` was reported for `channel`, because its notice could not be written.
    pub fn forget(&self, channel: &str, reason: &str) {
        let mut noticed = self.0.lock();
        noticed.remove(&(channel.to_owned(), reason.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_reported_once_an_hour() {
        let (noticed, now) = (NoticeThrottle::default(), Instant::now());
        let later = |secs| now + Duration::from_secs(secs);
        for (channel, reason, at, expected) in [
            ("a", "503", 0, true),
            ("a", "503", 3_599, false),
            ("a", "410", 1, true),
            ("b", "503", 1, true),
            ("a", "503", 3_601, true),
        ] {
            assert_eq!(noticed.mark_if_new(channel, reason, later(at)), expected, "{channel} {reason} {at}");
        }
        noticed.forget("a", "503");
        assert!(noticed.mark_if_new("a", "503", later(3_602)));
    }

    #[test]
    fn a_dead_letter_is_reported_only_through_another_chat() {
        let notices = NoticeSettings {
            on_terminals: false,
            channel: "email".to_owned(),
            chat_id: "me@example.org".to_owned(),
            dead_letter: "",
            held: "",
            loss: "",
        };
        for (slot, channel, chat_id, expected) in [
            ("reply", "webhook:in", "c", true),
            ("reply", "email", "<thread@example.org>", true),
            ("tool:3", "email", "me@example.org", false),
            ("notice:dead:1", "email", "me@example.org", false),
            ("notice:loss", "webhook:in", "c", false),
        ] {
            let letter = DeadLetter { turn: Uuid::nil(), slot, id: Uuid::nil(), channel, chat_id, reason: "550" };
            assert_eq!(notices.can_report(&letter), expected, "{slot} {channel} {chat_id}");
        }
    }
}
