//! Identifiers that sort by creation time.

use std::sync::Mutex;

use jiff::Timestamp;
use uuid::{ContextV7, Uuid};

/// Keeps ids in order within one millisecond, and while the clock goes back.
static CONTEXT: Mutex<ContextV7> = Mutex::new(ContextV7::new());

/// Returns a new UUID of version 7 for the current time.
///
/// `Uuid::now_v7` panics if the clock shows a time before 1970. Here such a time counts as the start of 1970.
pub fn new_id() -> Uuid {
    id_at(Timestamp::now())
}

fn id_at(now: Timestamp) -> Uuid {
    let now = now.max(Timestamp::UNIX_EPOCH);
    let seconds = u64::try_from(now.as_second()).unwrap_or(0);
    let nanos = u32::try_from(now.subsec_nanosecond()).unwrap_or(0);
    Uuid::new_v7(uuid::Timestamp::from_unix(&CONTEXT, seconds, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_made_in_order_whatever_the_clock_shows() {
        let mut last = Uuid::nil();
        for time in ["1960-01-01T00:00:00Z", "1969-12-31T23:59:59.9Z", "1970-01-01T00:00:00Z", "2026-11-22T18:00:00.5Z"]
        {
            for _ in 0..1_000 {
                let id = id_at(time.parse().unwrap());
                assert!(id > last && id.get_version_num() == 7, "{time}: {id} after {last}");
                last = id;
            }
        }
        assert!(new_id() > last);
    }
}
