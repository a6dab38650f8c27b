//! `[agent.session]`: which senders share a conversation in a group chat, and when a conversation starts over automatically.

use daoyou_channels::settings::HumanDuration;
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::store::messages::{self, LastUse};
use crate::store::{Connection, StoreError};

/// The maximum number of days to search back for the last reset time: some time zones once skipped a day.
const DAYS: u32 = 3;

/// What one conversation is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionScope {
    /// A chat, whoever writes in it.
    #[default]
    Chat,
    /// What one sender writes in a chat.
    Sender,
}

/// How conversations are separated, and when they start over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SessionConfig {
    /// `chat`: all senders of a chat share one conversation; `sender`: each sender has one.
    pub scope: SessionScope,
    /// After so long without a message the next one begins a new conversation; absent is never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_reset: Option<HumanDuration>,
    /// The first message after this time of each day, `HH:MM` by agent.timezone, begins a new conversation; empty is never.
    pub daily_reset: String,
}

/// The rules by which conversations start over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resets {
    idle: Option<std::time::Duration>,
    daily: Option<Time>,
}

impl SessionConfig {
    /// Parses the times.
    ///
    /// # Errors
    /// A description of the invalid times.
    pub fn resets(&self) -> Result<Resets, String> {
        Ok(Resets { idle: self.idle_reset.map(|HumanDuration(idle)| idle), daily: time_of_day(&self.daily_reset)? })
    }
}

impl Resets {
    /// Begins a new epoch of `session` if one is due, within the commit that starts the turn of a message received at `received_ms`;
    /// returns true if it began one.
    ///
    /// # Errors
    /// The store cannot be read or written.
    pub fn apply(
        &self,
        connection: &Connection,
        session: &str,
        received_ms: i64,
        zone: &TimeZone,
    ) -> Result<bool, StoreError> {
        if self.idle.is_none() && self.daily.is_none() {
            return Ok(false);
        }
        let Some(last) = messages::last_use(connection, session)? else { return Ok(false) };
        let is_due = self.is_due(&last, received_ms, zone);
        if is_due {
            messages::new_epoch(connection, session)?;
        }
        Ok(is_due)
    }

    fn is_due(&self, last: &LastUse, received_ms: i64, zone: &TimeZone) -> bool {
        let quiet = received_ms.saturating_sub(last.used_at);
        let is_idle = self.idle.is_some_and(|idle| i64::try_from(idle.as_millis()).is_ok_and(|idle| quiet >= idle));
        let boundary = self.daily.and_then(|time| last_boundary(received_ms, time, zone));
        is_idle || boundary.is_some_and(|boundary| asked_at(last) < boundary)
    }
}

/// Returns the time of the message of the last use that was not a note. A turn that runs across the reset time belongs to the day
/// of its message. So the message's time counts; the turn's id contains it.
fn asked_at(last: &LastUse) -> i64 {
    let is_turn = last.last_message_at == last.used_at;
    let asked = last.turn.parse::<Uuid>().ok().filter(|_| is_turn).and_then(|turn| turn.get_timestamp());
    asked
        .and_then(|at| {
            let (seconds, nanos) = at.to_unix();
            i64::try_from(seconds).ok()?.checked_mul(1_000)?.checked_add(i64::from(nanos / 1_000_000))
        })
        .map_or(last.used_at, |asked| asked.min(last.used_at))
}

/// Returns the last moment up to `at_ms` at which the clock of `zone` shows `time`. If the clock shows it twice, that is the first
/// moment; if the clock skips it, the end of the gap.
fn last_boundary(at_ms: i64, time: Time, zone: &TimeZone) -> Option<i64> {
    let at = Timestamp::from_millisecond(at_ms).ok()?;
    let mut day: Date = at.to_zoned(zone.clone()).date();
    for _ in 0..DAYS {
        let boundary = day.to_datetime(time).to_zoned(zone.clone()).ok()?.timestamp();
        if boundary <= at {
            return Some(boundary.as_millisecond());
        }
        day = day.checked_sub(1.day()).ok()?;
    }
    None
}

/// Parses `HH:MM`; `None` for an empty text.
fn time_of_day(text: &str) -> Result<Option<Time>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let read = || {
        let (hour, minute) = text.split_once(':')?;
        let digits = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        let (hour, minute) = Some((hour, minute)).filter(|(hour, minute)| digits(hour) && digits(minute))?;
        Time::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok()
    };
    read().map(Some).ok_or_else(|| format!("{text:?} is not a time of a day"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Durability, Store};

    fn ms(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_millisecond()
    }

    fn resets(idle: &str, daily: &str) -> Resets {
        let idle_reset = Some(idle).filter(|idle| !idle.is_empty()).map(|idle| idle.parse().unwrap());
        SessionConfig { idle_reset, daily_reset: daily.to_owned(), ..SessionConfig::default() }.resets().unwrap()
    }

    #[test]
    fn a_conversation_begins_anew_when_it_is_due() {
        let used = |text: &str| LastUse { used_at: ms(text), last_message_at: 0, turn: String::new() };
        for (idle, daily, zone, last, received, expected) in [
            ("", "", "UTC", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z", false),
            ("30m", "", "UTC", "2026-01-01T10:00:00Z", "2026-01-01T10:29:59Z", false),
            ("30m", "", "UTC", "2026-01-01T10:00:00Z", "2026-01-01T10:30:00Z", true),
            // Accepted while the previous turn ran.
            ("30m", "04:00", "UTC", "2026-01-01T10:00:00Z", "2026-01-01T09:00:00Z", false),
            ("", "04:00", "UTC", "2026-01-01T03:59:59Z", "2026-01-01T04:00:00Z", true),
            ("", "04:00", "UTC", "2026-01-01T04:00:00Z", "2026-01-02T03:59:59Z", false),
            ("", "04:00", "UTC", "2025-12-20T04:00:00Z", "2026-01-02T03:59:59Z", true),
            // Four o'clock in Shanghai.
            ("", "04:00", "Asia/Shanghai", "2026-01-01T19:59:00Z", "2026-01-01T20:01:00Z", true),
            ("", "04:00", "Asia/Shanghai", "2026-01-01T20:00:30Z", "2026-01-02T19:00:00Z", false),
            // There is no 02:30 on this day: the reset happens once, at 03:30 EDT, 07:30 UTC.
            ("", "02:30", "America/New_York", "2026-03-08T06:59:00Z", "2026-03-08T07:29:00Z", false),
            ("", "02:30", "America/New_York", "2026-03-08T07:29:00Z", "2026-03-08T07:31:00Z", true),
            // 01:30 occurs twice: the first one counts.
            ("", "01:30", "America/New_York", "2026-11-01T05:29:00Z", "2026-11-01T05:31:00Z", true),
            ("", "01:30", "America/New_York", "2026-11-01T05:31:00Z", "2026-11-01T06:31:00Z", false),
            // A day that the zone skipped.
            ("", "04:00", "Pacific/Apia", "2011-12-30T09:00:00Z", "2011-12-30T11:00:00Z", false),
        ] {
            let zone_of = TimeZone::get(zone).unwrap();
            let found = resets(idle, daily).is_due(&used(last), ms(received), &zone_of);
            assert_eq!(found, expected, "{idle} {daily} {zone} {last} {received}");
        }
    }

    #[test]
    fn a_turn_across_the_reset_time_belongs_to_the_day_before() {
        let at = uuid::Timestamp::from_unix(uuid::NoContext, 1_767_236_399, 0);
        assert_eq!(ms("2026-01-01T02:59:59Z"), 1_767_236_399_000);
        let turn = Uuid::new_v7(at).to_string();
        let (ended, asked_again) = (ms("2026-01-01T03:01:00Z"), ms("2026-01-01T09:00:00Z"));
        let daily = resets("", "03:00");
        for (last_message_at, expected) in [(ended, true), (ended - 60_000, false)] {
            // The time of a message does not matter after another use of the session, such as a restore.
            let last = LastUse { used_at: ended, last_message_at, turn: turn.clone() };
            assert_eq!(daily.is_due(&last, asked_again, &TimeZone::UTC), expected, "{last_message_at}");
        }
    }

    #[tokio::test]
    async fn notes_to_a_session_do_not_count_as_use() {
        let (_folder, store) = Store::temporary();
        let check = |connection: &Connection| {
            let mut found = Vec::new();
            // `s`: a person writes; `t`: the session gets a note; `n`: a new epoch begins. The events are an hour apart, the last
            // one an hour ago.
            for (number, order) in ["s", "st", "stt", "t", "tt", "nt", "snt", "sts", "stns"].into_iter().enumerate() {
                let session = format!("s{number}");
                for letter in order.chars() {
                    let message = [("user", "{}".to_owned())].into_iter();
                    match letter {
                        's' => drop(messages::append(connection, &session, Uuid::now_v7(), message)?),
                        't' => drop(messages::append_note(connection, &session, Uuid::now_v7(), message)?),
                        _ => messages::new_epoch(connection, &session)?,
                    }
                    let back = |table: &str, columns: &[&str]| {
                        let set: Vec<_> = columns.iter().map(|one| format!("{one} = {one} - 3600000")).collect();
                        let sql = format!("UPDATE {table} SET {} WHERE session = ?", set.join(", "));
                        connection.execute(&sql, [&session])
                    };
                    back("messages", &["at"])?;
                    back("sessions", &["updated_at", "used_at"])?;
                }
                let now = crate::store::now_ms();
                let used = messages::last_use(connection, &session)?;
                let hours = used.map(|used| (now - used.used_at + 1_800_000) / 3_600_000);
                let idle = resets("90m", "").apply(connection, &session, now, &TimeZone::UTC)?;
                found.push((order, hours, idle));
            }
            Ok(found)
        };
        assert_eq!(
            store.write(Durability::Logged, check).await.unwrap(),
            [
                ("s", Some(1), false),
                ("st", Some(2), true),
                ("stt", Some(3), true),
                // No person has written.
                ("t", None, false),
                ("tt", None, false),
                ("nt", None, false),
                ("snt", None, false),
                ("sts", Some(1), false),
                ("stns", Some(1), false),
            ]
        );
    }

    #[test]
    fn times_of_a_day() {
        for (text, good) in [
            ("", true),
            ("04:00", true),
            ("23:59", true),
            ("24:00", false),
            ("4:00", false),
            ("04.00", false),
            ("x", false),
        ] {
            assert_eq!(time_of_day(text).is_ok(), good, "{text:?}");
        }
    }
}
