//! Descriptions of schedules for people.

use daoyou_channels::settings::Span;
use jiff::Zoned;

use super::cron_pattern::CronPattern;
use super::outline::{days, parts, times};
use super::{describe_en as en, describe_zh as zh};
use crate::text::Language;

pub(super) fn once(language: Language, at: &Zoned) -> String {
    match language {
        Language::En => en::once(at),
        Language::Zh => zh::once(at),
    }
}

pub(super) fn every(language: Language, every: Span) -> String {
    let parts = parts(every);
    match language {
        Language::En => en::every(&parts),
        Language::Zh => zh::every(&parts),
    }
}

pub(super) fn cron(language: Language, pattern: &CronPattern, tz: &str) -> String {
    let (times, days) = (times(pattern), days(pattern));
    match language {
        Language::En => format!("{} ({tz})", en::cron(&times, &days)),
        Language::Zh => format!("{}（{tz}）", zh::cron(&times, &days)),
    }
}
