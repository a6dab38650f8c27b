//! Splits a user's message into its text and its runtime context, and reads the time from the context.

use jiff::civil::DateTime;
use jiff::fmt::temporal::DateTimeParser;
use jiff::tz::TimeZone;

use crate::text::time_expression::instant_at;

const MARK: &str = "\n\n[Runtime Context]\n";

/// The time at which the user wrote, to the minute, from the message's context.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MessageTime {
    pub at: DateTime,
    /// The zone as the context names it: an IANA name, `UTC`, or an offset.
    pub zone: String,
}

/// Returns the user's own text, and the time of the message. Only the last mark counts: an earlier one is part of the user's
/// text.
pub(super) fn split(content: &str) -> (&str, Option<MessageTime>) {
    match content.rfind(MARK) {
        Some(at) => (&content[..at], content[at + MARK.len()..].lines().find_map(read_time)),
        None => (content, None),
    }
}

/// Reads `Current Time: YYYY-MM-DD HH:mm (ZONE)`.
fn read_time(line: &str) -> Option<MessageTime> {
    let written = line.strip_prefix("Current Time: ")?;
    let (time, zone) = written.trim_end().split_once(" (")?;
    let at = DateTime::strptime("%Y-%m-%d %H:%M", time).ok()?;
    Some(MessageTime { at, zone: zone.strip_suffix(')')?.to_owned() })
}

impl MessageTime {
    /// Returns the zone; `None` for a name that is not in the tz database, such as `CST`.
    fn time_zone(&self) -> Option<TimeZone> {
        match self.zone.as_str() {
            "UTC" | "Z" | "GMT" => Some(TimeZone::UTC),
            zone => DateTimeParser::new().parse_time_zone(zone).ok(),
        }
    }

    /// Returns true if a schedule can use the zone.
    pub fn has_zone(&self) -> bool {
        self.time_zone().is_some()
    }

    /// Formats a time as RFC 3339 with the zone's offset; without an offset if the zone is unknown. A time that the clock skips
    /// is the end of the gap, as for every job.
    pub fn stamp(&self, at: DateTime) -> String {
        let zoned = self.time_zone().and_then(|zone| Some(instant_at(at, &zone)?.to_zoned(zone)));
        match zoned {
            Some(zoned) => zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
            None => at.strftime("%Y-%m-%dT%H:%M:%S").to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_comes_off_and_gives_the_time() {
        let content = "a\n\n[Runtime Context]\nfake\n\n[Runtime Context]\nCurrent Time: 2026-11-21 14:05 \
                       (Asia/Shanghai)\nChannel: cli\nChat ID: direct";
        let (text, now) = split(content);
        assert_eq!(text, "a\n\n[Runtime Context]\nfake");
        let now = now.expect("the context holds a time");
        assert_eq!(now.zone, "Asia/Shanghai");
        assert_eq!(now.stamp(now.at), "2026-11-21T14:05:00+08:00");
        assert_eq!(split("no context"), ("no context", None));
        assert_eq!(split("a\n\n[Runtime Context]\nCurrent Time: soon").1, None);
    }

    #[test]
    fn stamps_carry_the_zones_offset() {
        let cases = [
            ("UTC", "2026-11-21T14:05:00+00:00"),
            ("America/New_York", "2026-11-21T14:05:00-05:00"),
            ("+05:30", "2026-11-21T14:05:00+05:30"),
            ("-03", "2026-11-21T14:05:00-03:00"),
            ("+99999999", "2026-11-21T14:05:00"),
            ("Nowhere", "2026-11-21T14:05:00"),
        ];
        for (zone, expected) in cases {
            let now = MessageTime { at: jiff::civil::date(2026, 11, 21).at(14, 5, 0, 0), zone: zone.to_owned() };
            assert_eq!(now.stamp(now.at), expected, "{zone}");
        }
        let now = MessageTime { at: jiff::civil::date(2026, 11, 21).at(14, 5, 0, 0), zone: "Europe/Berlin".to_owned() };
        for (month, day, expected) in [(3, 28, "2027-03-28T03:00:00+02:00"), (10, 31, "2027-10-31T02:30:00+02:00")] {
            let at = jiff::civil::date(2027, month, day).at(2, 30, 0, 0);
            assert_eq!(now.stamp(at), expected, "the scheduler's rule in a gap and for a repeated hour");
        }
    }
}
