//! Time zones by name or offset.

use jiff::Timestamp;
use jiff::tz::{self, Offset, TimeZone};

use super::error::ScheduleError;
use crate::text::nearest;

/// Common names of zones, each with its name in the time zone database.
const MEANT: &[(&str, &str)] = &[
    ("beijing", "Asia/Shanghai"),
    ("peking", "Asia/Shanghai"),
    ("china", "Asia/Shanghai"),
    ("cst", "Asia/Shanghai or America/Chicago"),
    ("ist", "Asia/Kolkata"),
    ("jst", "Asia/Tokyo"),
    ("pst", "America/Los_Angeles"),
    ("pdt", "America/Los_Angeles"),
    ("edt", "America/New_York"),
    ("bst", "Europe/London"),
    ("cest", "Europe/Berlin"),
];

/// The minimum similarity, from 0 to 1, of a city that is suggested.
const SIMILAR: f64 = 0.7;

/// The longest part of an unknown name that is compared and shown.
const MAX_NAME: usize = 60;

/// The largest offset from UTC, in seconds: 14 hours.
const FURTHEST: i32 = 14 * 3_600;

/// Returns the IANA time zone of this name, or the zone of an offset: `UTC+8`, `GMT-3:30`, `+08:00`. `Etc/GMT+8` is an IANA
/// name, which means west of Greenwich.
///
/// # Errors
/// There is no such zone; the error suggests the nearest name. Offsets go from -14:00 to +14:00.
pub fn time_zone(name: &str) -> Result<TimeZone, ScheduleError> {
    let name = name.trim();
    let shown: String = name.chars().take(MAX_NAME).collect();
    if name.is_empty() {
        return Err(ScheduleError(
            "the time zone is empty; give an IANA name such as \"Asia/Shanghai\" or \"UTC\"".to_owned(),
        ));
    }
    if let Ok(zone) = TimeZone::get(name) {
        return Ok(zone);
    }
    Err(ScheduleError(match offset(name) {
        Some(offset) if is_offset(offset) => return Ok(TimeZone::fixed(offset)),
        Some(_) => format!("{shown:?} is not a time zone: offsets go from -14:00 to +14:00"),
        None => match similar_time_zone(name) {
            Some(meant) => format!("{shown:?} is not a known time zone; did you mean {meant:?}?"),
            None => format!(
                "{shown:?} is not a known time zone; give an IANA name such as \"Asia/Shanghai\", \"UTC\", or an \
                 offset such as \"+08:00\""
            ),
        },
    }))
}

/// The changes of the clock by which a zone without a name is compared with those of the database: those of four years.
const CHANGES: usize = 8;

/// Returns the time zone of this machine, with a name or an offset by which [`time_zone`] finds it again. A machine with neither
/// has the unknown zone, whose times are UTC.
pub fn machine_zone() -> TimeZone {
    named(TimeZone::system(), Timestamp::now())
}

/// Returns a zone with the clock of `zone` that has a name or an offset. A rule such as `TZ=CST-8`, and a copy of a file of the
/// database as `/etc/localtime`, have no name.
fn named(zone: TimeZone, now: Timestamp) -> TimeZone {
    if zone.iana_name().is_some() || zone.is_unknown() {
        return zone;
    }
    let clock = |zone: &TimeZone| {
        let changes = zone.following(now).take(CHANGES).map(|change| (change.timestamp(), change.offset()));
        (zone.to_offset(now), changes.collect::<Vec<_>>())
    };
    let own = clock(&zone);
    if own.1.is_empty() {
        return TimeZone::fixed(own.0);
    }
    let mut known = tz::db().available().filter_map(|name| TimeZone::get(name.as_str()).ok());
    known.find(|known| clock(known) == own).unwrap_or_else(TimeZone::unknown)
}

/// Returns the name that [`time_zone`] reads as the same zone; `UTC` for a zone that has neither a name nor an offset, which
/// no setting gives.
pub fn zone_name(zone: &TimeZone) -> String {
    match (zone.iana_name(), zone.to_fixed_offset()) {
        (Some(name), _) => name.to_owned(),
        (None, Ok(offset)) => {
            let minutes = offset.seconds().abs() / 60;
            format!("{}{:02}:{:02}", if offset.is_negative() { '-' } else { '+' }, minutes / 60, minutes % 60)
        }
        (None, Err(_)) => "UTC".to_owned(),
    }
}

/// Returns true if a clock can differ that much from UTC.
pub(super) fn is_offset(offset: Offset) -> bool {
    offset.seconds().abs() <= FURTHEST
}

/// Reads `UTC+8`, `GMT-3:30`, `+0800`, positive east of Greenwich.
fn offset(name: &str) -> Option<Offset> {
    let upper = name.to_ascii_uppercase();
    let signed = upper.strip_prefix("UTC").or_else(|| upper.strip_prefix("GMT")).unwrap_or(&upper).trim_start();
    let (sign, digits) = match signed.strip_prefix('+') {
        Some(digits) => (1, digits),
        None => (-1, signed.strip_prefix(['-', '−'])?),
    };
    let (hours, minutes) = match digits.split_once(':') {
        Some((hours, minutes)) if minutes.len() == 2 => (hours, minutes),
        None if digits.len() == 4 => digits.split_at_checked(2)?,
        None => (digits, "0"),
        Some(_) => return None,
    };
    let is_number = |text: &str| (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(hours) || !is_number(minutes) {
        return None;
    }
    let minutes = minutes.parse().ok().filter(|minutes: &i32| *minutes < 60)?;
    // An offset that is too large must give another error than a text that is not an offset.
    let seconds = (hours.parse::<i32>().ok()? * 3_600 + minutes * 60).min(Offset::MAX.seconds());
    Offset::from_seconds(sign * seconds).ok()
}

/// Returns the zone name that `name` probably means, if one is similar enough.
pub fn similar_time_zone(name: &str) -> Option<String> {
    let plain = |text: &str| text.to_lowercase().replace([' ', '-'], "_");
    let city = |text: &str| text.rsplit('/').next().unwrap_or(text).to_owned();
    let name = plain(&name[..name.floor_char_boundary(MAX_NAME)]);
    if let Some((_, meant)) = MEANT.iter().find(|(wrong, _)| *wrong == city(&name)) {
        return Some((*meant).to_owned());
    }
    let known: Vec<String> = tz::db().available().map(|known| known.as_str().to_owned()).collect();
    if let Some(same) = known.iter().find(|known| city(&plain(known)) == city(&name)) {
        return Some(same.clone());
    }
    let meant = MEANT.iter().filter(|(wrong, _)| wrong.len() > 4).map(|(wrong, meant)| (*wrong, *meant));
    let cities: Vec<(String, &str)> = known.iter().map(|known| (city(&plain(known)), known.as_str())).collect();
    let all = cities.iter().map(|(city, known)| (city.as_str(), *known)).chain(meant);
    let area = name.split_once('/').map(|(area, _)| format!("{area}/"));
    let here = |zone: &str| area.as_ref().is_some_and(|area| plain(zone).starts_with(area.as_str()));
    // The continent is rarely misspelled, so cities of the same continent come first.
    let (near, far): (Vec<_>, Vec<_>) = all.partition(|(_, zone)| here(zone));
    let city = city(&name);
    let most_similar = |zones| nearest::nearest(&city, zones, nearest::BY_EDITS, SIMILAR);
    [near, far].into_iter().find_map(most_similar).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_of_the_machine_without_a_name_gets_one() {
        let now: Timestamp = "2026-11-29T04:52:00Z".parse().unwrap();
        for (written, expected) in [("CST-8", "+08:00"), ("UTC-8", "+08:00"), ("NPT-5:45", "+05:45"), ("UTC0", "UTC")] {
            let zone = named(TimeZone::posix(written).unwrap(), now);
            assert_eq!(zone_name(&zone), expected, "{written}");
            assert_eq!(time_zone(&zone_name(&zone)).as_ref(), Ok(&zone), "{written}: the name makes the zone again");
        }
        // No zone changes its clock on these days.
        assert!(named(TimeZone::posix("XST3XDT,M1.1.1,M2.1.1").unwrap(), now).is_unknown());
        assert!(named(TimeZone::unknown(), now).is_unknown(), "doctor warns of it");
        let rule = TimeZone::posix("CST6CDT,M3.2.0,M11.1.0").unwrap();
        let zone = time_zone(&zone_name(&named(rule.clone(), now))).unwrap();
        assert!(zone.iana_name().is_some_and(|name| name.contains('/')), "{zone:?}");
        for month in 1..=12 {
            let at = jiff::civil::date(2031, month, 1).at(9, 0, 0, 0);
            assert_eq!(zone.to_timestamp(at).unwrap(), rule.to_timestamp(at).unwrap(), "{at}");
        }
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        assert_eq!(named(berlin.clone(), now), berlin);
    }

    #[test]
    fn zones_are_read_by_offset() {
        for (written, expected) in [
            ("UTC+8", Ok("+08:00")),
            ("utc+08:00", Ok("+08:00")),
            ("GMT+8", Ok("+08:00")),
            ("GMT -3:30", Ok("-03:30")),
            ("+0545", Ok("+05:45")),
            ("-11", Ok("-11:00")),
            ("UTC+14", Ok("+14:00")),
            ("UTC+0", Ok("UTC")),
            ("+08:00", Ok("+08:00")),
            // West of Greenwich, by the rule of the database.
            ("Etc/GMT+8", Ok("Etc/GMT+8")),
            ("asia/shanghai", Ok("Asia/Shanghai")),
            ("UTC+14:01", Err("offsets go from -14:00 to +14:00")),
            ("+25:00", Err("offsets go from -14:00 to +14:00")),
            ("GMT-99", Err("offsets go from -14:00 to +14:00")),
            ("UTC+8:5", Err("is not a known time zone")),
            ("UTC+8:60", Err("is not a known time zone")),
            ("UTC8", Err("is not a known time zone")),
            ("+", Err("is not a known time zone")),
        ] {
            let found = time_zone(written);
            match (&found, expected) {
                (Ok(zone), Ok(name)) => assert_eq!(zone_name(zone), name, "{written}"),
                (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{written}: {error}"),
                _ => panic!("{written}: {found:?}"),
            }
            if let Ok(zone) = found {
                assert_eq!(
                    time_zone(&zone_name(&zone)).as_ref(),
                    Ok(&zone),
                    "{written}: the name makes the zone again"
                );
            }
        }
        let west = time_zone("Etc/GMT+8").unwrap().to_offset(Timestamp::UNIX_EPOCH);
        assert_eq!(west.seconds(), -8 * 3_600);
    }

    #[test]
    fn a_long_unknown_name_is_compared_in_part() {
        // No character begins at the limit. The comparison of the whole name with all zones would exceed the time limit of the runner
        // (`slow-timeout` in .config/nextest.toml).
        let name = format!("x{}", "道".repeat(5_000_000));
        assert!(time_zone(&name).unwrap_err().to_string().contains("is not a known time zone"));
    }
}
