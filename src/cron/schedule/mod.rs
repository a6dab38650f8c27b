//! When a job is due: pure, no clock and no store. `at`, `every` and `cron`, in IANA time zones, around changes of the clock
//! as Vixie cron does it.

mod kinds;

mod fields;
mod pattern;
mod timeline;
mod words;
mod zone;

mod describe;
mod describe_en;
mod describe_zh;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod oracle_tests;

pub use describe::Language;
pub use kinds::{Schedule, ScheduleError, Slots};
pub(super) use words::instant;
pub(super) use zone::moment;
pub(super) use zone::name as zone_name;
pub use zone::time_zone;
