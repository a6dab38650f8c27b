//! How long what is noted of mails is of use.

use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);
/// A thread is found again by its mails' ids for as long as this.
const THREAD: Duration = Duration::from_secs(400 * 86_400);

/// The kinds of notes and how long each is kept after it was last written; what is not listed here is kept for ever:
/// `since`, `again` and `silent`, and `thread` and `people`, since a thread's session stays, and must be open to nobody
/// else once all other traces of it are gone. Mails themselves are known again by their rows in the inbox, which are
/// never deleted.
pub const NOTE_AGES: &[(&str, Duration)] = &[
    ("mid", THREAD),
    ("root", THREAD),
    // A mail that came back is told of once.
    ("bounced", THREAD),
    // Whether it may be marked as read.
    ("spot", THREAD),
    // By subject alone a thread is found for thirty days.
    ("subject", Duration::from_secs(31 * 86_400)),
    // What is counted, it is counted by the hour and the day.
    ("sender", DAY.saturating_mul(2)),
    ("hourly", DAY.saturating_mul(2)),
    ("refused", DAY.saturating_mul(2)),
    ("failed", DAY.saturating_mul(2)),
];
