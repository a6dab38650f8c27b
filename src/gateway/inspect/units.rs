//! Amounts for people.

use daoyou_channels::settings::Span;

/// Formats bytes such as `1.2 GB`, with powers of 1,000 as in the configuration.
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KB", "MB", "GB", "TB", "PB"];
    if bytes < 1_000 {
        return format!("{bytes} B");
    }
    let (mut amount, mut unit) = (bytes as f64 / 1_000.0, 0);
    while amount >= 999.95 && unit + 1 < UNITS.len() {
        amount /= 1_000.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

/// Formats the time from `then` to `now`, both in milliseconds, in its two largest units.
pub fn format_age(then: i64, now: i64) -> String {
    let secs = u64::try_from(now.saturating_sub(then) / 1_000).unwrap_or(0);
    let coarse = match secs {
        ..3_600 => secs,
        3_600..86_400 => secs - secs % 60,
        86_400.. => secs - secs % 3_600,
    };
    Span::from_secs(coarse).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_at_most_two_units() {
        for (amount, expected) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 KB"),
            (999_960, "1.0 MB"),
            (1_234_567_890, "1.2 GB"),
            (u64::MAX, "18446.7 PB"),
        ] {
            assert_eq!(format_bytes(amount), expected);
        }
        for (secs, expected) in
            [(-5, "0s"), (0, "0s"), (59, "59s"), (3_599, "59m 59s"), (3_661, "1h 1m"), (90_061, "1d 1h")]
        {
            assert_eq!(format_age(0, secs * 1_000), expected);
        }
    }
}
