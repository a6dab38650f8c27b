//! What the tests of this area share.

use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::{CronConfig, CronSettings, JobContext, JobNotices};
use crate::text::Language;

/// In Shanghai, with these channels switched on.
pub(super) fn job_context(max_jobs: u32, channels: &[&str]) -> JobContext {
    let words = JobNotices { paused: "{} {} {} {}", failed: "{} {}", unreachable: "{} {} {}", over_budget: "{} {}" };
    let zone = TimeZone::get("Asia/Shanghai").unwrap();
    let mut settings = CronSettings::new(&CronConfig::default(), zone, words, Duration::from_secs(30));
    let read = channels.iter().map(|channel| ((*channel).to_owned(), true));
    settings.channels = read.chain([("webhook:deaf".to_owned(), false)]).collect();
    JobContext {
        max_jobs,
        providers: ["a", "offline"].map(str::to_owned).into(),
        language: Language::En,
        settings: Arc::new(settings),
    }
}
