//! How long what is noted of mails is of use.

use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);
/// A thread is found again for as long as this after its last mail.
const THREAD: Duration = Duration::from_secs(400 * 86_400);

/// The kinds of notes and how long each is kept after it was last written; what is not listed here (`since`) is kept for
/// ever. Mails themselves are known again by their rows in the inbox, which are never deleted.
pub const NOTE_AGES: &[(&str, Duration)] = &[
    ("mid", THREAD),
    ("root", THREAD),
    ("thread", THREAD),
    ("people", THREAD),
    // Whether it may be marked as read.
    ("spot", THREAD),
    // By subject alone a thread is found for thirty days.
    ("subject", Duration::from_secs(31 * 86_400)),
    // What is counted, it is counted by the hour and the day.
    ("sender", DAY.saturating_mul(2)),
    ("hourly", DAY.saturating_mul(2)),
    ("rate", DAY.saturating_mul(2)),
    ("refused", DAY.saturating_mul(2)),
    ("failed", DAY.saturating_mul(2)),
];
