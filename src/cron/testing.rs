//! What the tests of this area share.

use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::{CronConfig, Language, Rules, Settings, Terms, Words};

/// In Shanghai, with these channels switched on.
pub(super) fn terms(max_jobs: u32, channels: &[&str]) -> Terms {
    let words = Words { paused: "{} {} {} {}", failed: "{} {}" };
    let zone = TimeZone::get("Asia/Shanghai").unwrap();
    Terms {
        settings: Settings { max_jobs },
        channels: channels.iter().map(|channel| (*channel).to_owned()).collect(),
        providers: ["a", "offline"].map(str::to_owned).into(),
        language: Language::En,
        rules: Arc::new(Rules::new(&CronConfig::default(), zone, words, Duration::from_secs(30))),
    }
}
