//! The error of a schedule that cannot be used.

/// The fault of an unusable schedule, as a text that also names valid values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScheduleError(pub String);
