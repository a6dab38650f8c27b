//! When a job is due: pure, no clock and no store. `at`, `every` and `cron`, in IANA time zones, around changes of the clock
//! as Vixie cron does it.

mod schedule;

pub use schedule::{Language, Schedule, ScheduleError};
