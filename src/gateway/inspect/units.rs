//! Formats amounts for people.

use daoyou_channels::settings::HumanDuration;

/// Formats the time from `then` to `now`, both in milliseconds, in its two largest units.
pub fn format_age(then: i64, now: i64) -> String {
    let secs = u64::try_from(now.saturating_sub(then) / 1_000).unwrap_or(0);
    let coarse = match secs {
        ..3_600 => secs,
        3_600..86_400 => secs - secs % 60,
        86_400.. => secs - secs % 3_600,
    };
    HumanDuration::from_secs(coarse).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_at_most_two_units() {
        for (secs, expected) in
            [(-5, "0s"), (0, "0s"), (59, "59s"), (3_599, "59m 59s"), (3_661, "1h 1m"), (90_061, "1d 1h")]
        {
            assert_eq!(format_age(0, secs * 1_000), expected);
        }
    }
}
