//! Writes intervals within a range of hours, and sets of values, as fields of a cron expression.

use super::clock::{ClockForm, ClockTime, is_mixed};
use super::error::TimeFault;
use super::expression::{DAY, MINUTE};

const MINUTES_OF_DAY: u64 = 24 * 60;

/// Returns the minute and hour fields for an interval in seconds within the range, or within the whole day.
pub(super) fn interval_fields(
    seconds: u64,
    range: Option<(ClockTime, ClockTime)>,
    on_each_day: bool,
) -> Result<(String, String), TimeFault> {
    if !seconds.is_multiple_of(MINUTE) || seconds >= DAY {
        return Err(TimeFault::Uneven);
    }
    let step = seconds / MINUTE;
    let (first, last) = match range {
        Some(range) => bounds(range, on_each_day)?,
        None if MINUTES_OF_DAY.is_multiple_of(step) => (0, MINUTES_OF_DAY - 1),
        None => return Err(TimeFault::Uneven),
    };
    let (mut minutes, mut hours, mut count) = (0_u64, 0_u64, 0_u32);
    let mut at = first;
    while at <= last {
        minutes |= 1 << (at % 60);
        hours |= 1 << (at / 60 % 24);
        count += 1;
        at += step;
    }
    if minutes.count_ones() * hours.count_ones() != count {
        return Err(TimeFault::Uneven);
    }
    Ok((field(minutes, 60), field(hours, 24)))
}

/// Returns the first and the last minute of the range, counted from midnight; the last one may be on the next day.
fn bounds((first, last): (ClockTime, ClockTime), on_each_day: bool) -> Result<(u64, u64), TimeFault> {
    if is_mixed([&first, &last]) {
        return Err(TimeFault::WhichHalf);
    }
    let minute = |clock: &ClockTime| {
        let time = clock.resolve(None)?.time;
        u64::try_from(i16::from(time.hour()) * 60 + i16::from(time.minute())).map_err(|_| TimeFault::NoSuchTime)
    };
    let (from, to) = (minute(&first)?, minute(&last)?);
    // "9 to 5" may end in the afternoon, while "22 to 6" cannot.
    let is_clear = first.form == ClockForm::Definite || first.part.is_some() || first.hour > 12;
    match from < to {
        true => Ok((from, to)),
        false if from > to && is_clear && on_each_day => Ok((from, to + MINUTES_OF_DAY)),
        false => Err(TimeFault::Range),
    }
}

/// Returns the field for the values of a set below `end`: three or more consecutive values as a range, and all values as a
/// star.
pub(super) fn field(set: u64, end: u32) -> String {
    let values: Vec<u32> = (0..end).filter(|value| set & (1 << value) != 0).collect();
    if values.len() == usize::try_from(end).unwrap_or(usize::MAX) {
        return "*".to_owned();
    }
    ranges(&values, |value| value.to_string(), "-").join(",")
}

/// Joins three or more consecutive values to a range with `to` between its ends.
pub fn ranges(values: &[u32], one: impl Fn(u32) -> String, to: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = values;
    while let [first, ..] = rest {
        let run = rest.iter().zip(*first..).take_while(|(value, expected)| **value == *expected).count();
        let (head, tail) = rest.split_at(if run >= 3 { run } else { 1 });
        match head {
            [first, .., last] => words.push(format!("{}{to}{}", one(*first), one(*last))),
            _ => words.push(one(*first)),
        }
        rest = tail;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_written_as_fields() {
        for (set, end, expected) in [
            (0x7f, 7, "*"),
            (0b11_1110, 7, "1-5"),
            (0b100_0001, 7, "0,6"),
            (1 << 9 | 1 << 21, 24, "9,21"),
            (0b1110_0011, 24, "0,1,5-7"),
            (0, 24, ""),
        ] {
            assert_eq!(field(set, end), expected);
        }
    }
}
