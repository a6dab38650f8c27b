//! When a job is due: pure, without a clock or a store. Schedules of the kinds `at`, `every` and `cron`, in IANA time zones,
//! with Vixie cron's rules around clock changes.

mod cron_parser;
mod cron_pattern;
mod describe_en;
mod describe_zh;
mod error;
mod kinds;
mod outline;
mod parse_time;
mod timeline;
mod zone;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod oracle_tests;

pub use error::ScheduleError;
pub use kinds::Schedule;
pub(super) use parse_time::parse_instant;
pub use timeline::PassedSlots;
pub use zone::time_zone;
pub(super) use zone::{instant_at, zone_name};
