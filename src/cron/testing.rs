//! Helpers of the tests of this module.

use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::trust::TrustLists;
use jiff::tz::TimeZone;

use super::{CronConfig, CronSettings, JobContext};
use crate::bus::DeliveryChannels;
use crate::phrases::Phrases;
use crate::store::{Connection, Durability, Store};
use crate::text::Language;

/// Runs `work` in a write to a new store.
pub(super) async fn on_store<T: Send + 'static>(work: impl FnOnce(&Connection) -> T + Send + 'static) -> T {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
    let mut work = Some(work);
    store.write(Durability::Synced, move |connection| Ok(work.take().unwrap()(connection))).await.unwrap()
}

/// Returns a context with the zone of Shanghai and these running channels.
pub(super) fn job_context(max_jobs: u32, channels: &[&str]) -> JobContext {
    let zone = TimeZone::get("Asia/Shanghai").unwrap();
    let read = channels.iter().map(|channel| ((*channel).to_owned(), true));
    let settings = CronSettings {
        config: CronConfig { max_jobs, ..CronConfig::default() },
        channels: DeliveryChannels(read.chain([("webhook:deaf".to_owned(), false)]).collect()),
        drain_timeout: Duration::from_secs(30),
        zone,
        phrases: Phrases::of(Language::En),
        owner: Default::default(),
        trust: TrustLists::default(),
    };
    JobContext {
        agents: ["assistant", "coder"].map(str::to_owned).into(),
        providers: ["a", "offline"].map(str::to_owned).into(),
        language: Language::En,
        settings: Arc::new(settings),
    }
}
