//! What the tests of this area share.

use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::{CronConfig, Language, Rules, Settings, Terms, Words};

/// In Shanghai, with these channels switched on.
pub(super) fn terms(max_jobs: u32, channels: &[&str]) -> Terms {
    let words = Words { paused: "{} {} {} {}", failed: "{} {}", unreachable: "{} {} {}", braked: "{} {}" };
    let zone = TimeZone::get("Asia/Shanghai").unwrap();
    let mut rules = Rules::new(&CronConfig::default(), zone, words, Duration::from_secs(30));
    let read = channels.iter().map(|channel| ((*channel).to_owned(), true));
    rules.channels = read.chain([("webhook:deaf".to_owned(), false)]).collect();
    Terms {
        settings: Settings { max_jobs },
        providers: ["a", "offline"].map(str::to_owned).into(),
        language: Language::En,
        rules: Arc::new(rules),
    }
}
