//! The error of a schedule that cannot be used.

/// Explains what is wrong with a schedule, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScheduleError(pub String);
