//! Computes when a job is due. Pure: without a clock or a store. A schedule is of the kind `at`, `every`, `days` or `cron`, in an
//! IANA time zone, and follows the rules of Vixie cron around clock changes.

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
pub(super) use parse_time::{parse_instant, slot_before_skipped};
pub use timeline::PassedSlots;
pub use zone::{machine_zone, similar_time_zone, time_zone, zone_name};
