//! `[heartbeat]`.

use daoyou_channels::settings::HumanDuration;
use jiff::Timestamp;
use jiff::civil::Time;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::cron::Schedule;
use crate::text::time_expression::instant_at;

/// A regular check of HEARTBEAT.md.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HeartbeatConfig {
    /// Runs the checks. If false, nothing runs.
    pub enabled: bool,
    /// The interval of the checks, counted from midnight; at least 1s. A change to or from less than 1m takes effect at the
    /// next start.
    #[default(HumanDuration::from_secs(1_800))]
    pub every: HumanDuration,
    /// `HH:MM-HH:MM` by agent.timezone, also over midnight; there are no checks outside of it. Empty is always.
    #[default = "08:00-22:00"]
    pub active_hours: String,
    /// `CHANNEL:CHAT` that receives the answers; empty is owner.notify, or else the terminal.
    pub deliver_to: String,
    /// `PROVIDER/MODEL`; empty is the agent's.
    pub model: String,
    /// The tokens that its turns may use in a day; after that, there are no turns until the next day.
    #[schemars(range(min = 1))]
    #[default = 50_000]
    pub tokens_per_day: u64,
    /// The maximum number of entries of one turn; the others follow in the next one.
    #[schemars(range(min = 1, max = 1_000))]
    #[default = 20]
    pub max_items: u32,
}

/// The hours of a day in which checks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveHours {
    from: Time,
    to: Time,
}

impl ActiveHours {
    /// Reads `HH:MM-HH:MM`; returns `None` for an empty text.
    ///
    /// # Errors
    /// The text is invalid; the error explains the fault.
    pub fn read(text: &str) -> Result<Option<Self>, String> {
        if text.trim().is_empty() {
            return Ok(None);
        }
        let wrong = || format!("{text:?} is not two times of a day such as \"08:00-22:00\"");
        let (from, to) = text.split_once('-').ok_or_else(wrong)?;
        let clock = |text: &str| -> Option<Time> {
            let (hour, minute) = text.trim().split_once(':')?;
            let is_number = |text: &str| (1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
            if !is_number(hour) || !is_number(minute) {
                return None;
            }
            match (hour.parse().ok()?, minute.parse().ok()?) {
                (24, 0) => Some(Time::midnight()),
                (hour, minute) => Time::new(hour, minute, 0, 0).ok(),
            }
        };
        let (from, to) = (clock(from).ok_or_else(wrong)?, clock(to).ok_or_else(wrong)?);
        if from == to {
            return Err(format!("{text:?} begins and ends at the same time; leave it empty for the whole day"));
        }
        Ok(Some(Self { from, to }))
    }

    fn contains(self, clock: Time) -> bool {
        if self.from < self.to { (self.from..self.to).contains(&clock) } else { clock >= self.from || clock < self.to }
    }
}

/// The current settings of the heartbeat.
#[derive(Clone, Debug)]
pub struct HeartbeatSettings {
    pub config: HeartbeatConfig,
    pub zone: TimeZone,
    /// The chat that receives the answers.
    pub channel: String,
    pub chat_id: String,
    /// The notice that the tokens of the day are used up. `{}` is replaced by their number.
    pub silent: &'static str,
}

impl HeartbeatSettings {
    /// Returns the time of the next check: at a multiple of `every` since midnight, or when the active hours begin.
    pub fn next_check(&self, now: Timestamp) -> Option<Timestamp> {
        let midnight = now.to_zoned(self.zone.clone()).start_of_day().ok()?.timestamp();
        let next = Schedule::Every { every: self.config.every, anchor: midnight }.next_after(now)?;
        if self.is_active(next) { Some(next) } else { self.next_start(now) }
    }

    pub fn is_active(&self, at: Timestamp) -> bool {
        let clock = at.to_zoned(self.zone.clone()).time();
        self.hours().is_none_or(|hours| hours.contains(clock))
    }

    /// Returns the time when the active hours begin next.
    fn next_start(&self, now: Timestamp) -> Option<Timestamp> {
        let from = self.hours()?.from;
        let today = now.to_zoned(self.zone.clone()).date();
        let days = [Ok(today), today.tomorrow(), today.tomorrow().and_then(jiff::civil::Date::tomorrow)];
        days.into_iter().flatten().find_map(|day| instant_at(day.to_datetime(from), &self.zone).filter(|at| *at > now))
    }

    /// Returns the active hours. They are readable, since the configuration was validated.
    fn hours(&self) -> Option<ActiveHours> {
        ActiveHours::read(&self.config.active_hours).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_come_in_active_hours_and_at_their_beginning() {
        for (every, hours, now, expected) in [
            ("30m", "08:00-22:00", "2026-11-21T09:10", "2026-11-21T09:30"),
            ("30m", "08:00-22:00", "2026-11-21T09:30", "2026-11-21T10:00"),
            ("30m", "08:10-22:00", "2026-11-21T03:00", "2026-11-21T08:10"),
            ("30m", "08:00-22:00", "2026-11-21T21:45", "2026-11-22T08:00"),
            ("30m", "22:00-06:00", "2026-11-21T23:50", "2026-11-22T00:00"),
            ("30m", "22:00-06:00", "2026-11-21T05:40", "2026-11-21T22:00"),
            ("7h", "", "2026-11-21T01:00", "2026-11-21T07:00"),
            ("7h", "08:00-22:00", "2026-11-21T01:00", "2026-11-21T08:00"),
            ("1s", "", "2026-11-21T01:00", "2026-11-21T01:00:01"),
            ("30m", "08:00-24:00", "2026-11-21T23:40", "2026-11-22T08:00"),
        ] {
            let zone = TimeZone::get("Asia/Kathmandu").unwrap();
            let config =
                HeartbeatConfig { every: every.parse().unwrap(), active_hours: hours.to_owned(), ..Default::default() };
            let at =
                |text: &str| text.parse::<jiff::civil::DateTime>().unwrap().to_zoned(zone.clone()).unwrap().timestamp();
            let settings = HeartbeatSettings {
                config,
                zone: zone.clone(),
                channel: String::new(),
                chat_id: String::new(),
                silent: "",
            };
            assert_eq!(settings.next_check(at(now)), Some(at(expected)), "{every} {hours} {now}");
        }
        for wrong in ["8-22", "08:00", "08:00-08:00", "25:00-26:00", "morning", "08:00–22:00", "-", "+8:00-9:00"] {
            assert!(ActiveHours::read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(ActiveHours::read(" "), Ok(None));
    }
}
