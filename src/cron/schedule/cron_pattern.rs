//! A cron expression as sets of values, and the matching dates and times. This is own code, since croner visits each match of a
//! period to count them, reads `L,LW` as `LW`, and ends its search at the year 5000. Tests compare the two.

use jiff::civil::{Date, DateTime, Time};

/// A day, in seconds.
pub(super) const DAY: u32 = 86_400;

/// The sets of a cron expression. Bit `n` of a set means the value `n`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CronPattern {
    pub seconds: u64,
    pub minutes: u64,
    pub hours: u64,
    pub days: MonthDaySet,
    pub months: u64,
    pub weekdays: WeekdaySet,
    /// One of the two day fields begins with a star: then a day must match both fields, otherwise one of them.
    pub both_days: bool,
    /// A time field begins with a star: the expression follows the clock, and has no fixed time that a clock change could
    /// skip or repeat.
    pub follows_clock: bool,
}

/// The day-of-month field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MonthDaySet {
    pub set: u64,
    /// `15W`: the working day nearest to it, in the same month.
    pub nearest: u64,
    /// `L`.
    pub last: bool,
    /// `LW`.
    pub last_working: bool,
}

/// The day-of-week field; Sunday is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WeekdaySet {
    pub set: u64,
    /// `1#2`: the second Monday, in `nth[1]`.
    pub nth: [u64; 5],
    /// `5L`: the last Friday.
    pub last: u64,
}

fn has(set: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| in_set(set, value))
}

/// Returns the values of a set, in ascending order.
pub(super) fn values(set: u64) -> Vec<u32> {
    (0..64).filter(|value| set & (1 << value) != 0).collect()
}

impl MonthDaySet {
    pub fn is_all(&self) -> bool {
        self.set == ALL_DAYS
    }

    fn has(&self, date: Date) -> bool {
        let (day, length) = (date.day(), date.days_in_month());
        has(self.set, day)
            || self.last && day == length
            || self.last_working && day == nearest_working(date, length)
            || self.nearest != 0
                && (day - 2..=day + 2).any(|meant| {
                    (1..=length).contains(&meant) && has(self.nearest, meant) && nearest_working(date, meant) == day
                })
    }
}

impl WeekdaySet {
    /// Returns true if the field has no `#` and no `L`.
    pub fn is_plain(&self) -> bool {
        self.last == 0 && self.nth == [0; 5]
    }

    fn has(&self, date: Date) -> bool {
        let (day, weekday) = (date.day(), date.weekday().to_sunday_zero_offset());
        let nth = usize::try_from((day - 1) / 7).unwrap_or(0);
        has(self.set, weekday)
            || self.nth.get(nth).is_some_and(|set| has(*set, weekday))
            || has(self.last, weekday) && day + 7 > date.days_in_month()
    }
}

const ALL_DAYS: u64 = 0xffff_fffe;
pub(super) const ALL_WEEKDAYS: u64 = 0x7f;

/// Returns the working day nearest to the day `meant` of the month of `date`, in the same month.
fn nearest_working(date: Date, meant: i8) -> i8 {
    let weekday = (date.weekday().to_sunday_zero_offset() + meant - date.day()).rem_euclid(7);
    match weekday {
        6 if meant == 1 => 3,
        6 => meant - 1,
        0 if meant == date.days_in_month() => meant - 2,
        0 => meant + 1,
        _ => meant,
    }
}

impl CronPattern {
    /// Returns true if any day matches. It checks 400 years, after which the calendar repeats.
    pub fn has_match(&self) -> bool {
        let begin = jiff::civil::date(2000, 1, 1).at(0, 0, 0, 0);
        self.first(begin, jiff::civil::date(2400, 1, 1).at(0, 0, 0, 0)).is_some()
    }

    /// Returns the first match from `from` on and before `before`, by a clock that never changes.
    pub fn first(&self, from: DateTime, before: DateTime) -> Option<DateTime> {
        let (mut date, mut time) = (from.date(), seconds_of(from.time()));
        while date <= before.date() {
            if !has(self.months, date.month()) {
                date = date.last_of_month().tomorrow().ok()?;
            } else if self.is_on(date)
                && let Some(time) = self.time_from(time)
            {
                return Some(at(date, time)).filter(|found| *found < before);
            } else {
                date = date.tomorrow().ok()?;
            }
            time = 0;
        }
        None
    }

    /// Returns the matches from `from` on and before `before`, in descending order.
    pub fn backwards(&self, from: DateTime, before: DateTime) -> impl Iterator<Item = DateTime> {
        let mut next = Some((before.date(), seconds_of(before.time())));
        std::iter::from_fn(move || {
            loop {
                let (date, time) = next.filter(|(date, _)| *date >= from.date())?;
                if !has(self.months, date.month()) {
                    next = date.first_of_month().yesterday().ok().map(|date| (date, DAY));
                } else if self.is_on(date)
                    && let Some(time) = self.time_before(time)
                {
                    next = Some((date, time));
                    return Some(at(date, time)).filter(|found| *found >= from);
                } else {
                    next = date.yesterday().ok().map(|date| (date, DAY));
                }
            }
        })
    }

    /// Returns the number of matches from `from` on and before `before`.
    pub fn count(&self, from: DateTime, before: DateTime) -> u64 {
        if from >= before {
            return 0;
        }
        let mut count = 0;
        let mut date = from.date();
        while date <= before.date() {
            if has(self.months, date.month()) && self.is_on(date) {
                let begin = if date == from.date() { seconds_of(from.time()) } else { 0 };
                let end = if date == before.date() { seconds_of(before.time()) } else { DAY };
                count += u64::from(self.times_before(end) - self.times_before(begin));
            }
            let Ok(tomorrow) = date.tomorrow() else { break };
            date = tomorrow;
        }
        count
    }

    fn is_on(&self, date: Date) -> bool {
        if self.both_days {
            self.days.has(date) && self.weekdays.has(date)
        } else {
            self.days.has(date) || self.weekdays.has(date)
        }
    }

    /// Returns the first time of a day at or after this second of the day.
    fn time_from(&self, second: u32) -> Option<u32> {
        let (h, m, s) = split(second);
        if in_set(self.hours, h) {
            if in_set(self.minutes, m)
                && let Some(s) = lowest(self.seconds, s)
            {
                return Some(join(h, m, s));
            }
            if let Some(m) = lowest(self.minutes, m + 1) {
                return Some(join(h, m, lowest(self.seconds, 0)?));
            }
        }
        let h = lowest(self.hours, h + 1)?;
        Some(join(h, lowest(self.minutes, 0)?, lowest(self.seconds, 0)?))
    }

    /// Returns the last time of a day before this second of the day.
    fn time_before(&self, second: u32) -> Option<u32> {
        let (h, m, s) = split(second.checked_sub(1)?);
        if in_set(self.hours, h) {
            if in_set(self.minutes, m)
                && let Some(s) = highest(self.seconds, s + 1)
            {
                return Some(join(h, m, s));
            }
            if let Some(m) = highest(self.minutes, m) {
                return Some(join(h, m, highest(self.seconds, 60)?));
            }
        }
        let h = highest(self.hours, h)?;
        Some(join(h, highest(self.minutes, 60)?, highest(self.seconds, 60)?))
    }

    /// Returns the number of times of a day before this second of the day.
    fn times_before(&self, second: u32) -> u32 {
        let (h, m, s) = split(second);
        let below = |set: u64, value: u32| (set & ((1 << value) - 1)).count_ones();
        let (minutes, seconds) = (self.minutes.count_ones(), self.seconds.count_ones());
        let in_minute = if in_set(self.minutes, m) { below(self.seconds, s) } else { 0 };
        let in_hour = if in_set(self.hours, h) { below(self.minutes, m) * seconds + in_minute } else { 0 };
        below(self.hours, h) * minutes * seconds + in_hour
    }
}

fn in_set(set: u64, value: u32) -> bool {
    value < 64 && set & (1 << value) != 0
}

/// Returns the lowest value of a set at or above `value`.
fn lowest(set: u64, value: u32) -> Option<u32> {
    let rest = set.checked_shr(value)?;
    (rest != 0).then(|| value + rest.trailing_zeros())
}

/// Returns the highest value of a set below `value`.
fn highest(set: u64, value: u32) -> Option<u32> {
    let rest = set & ((1_u64 << value.min(63)) - 1);
    (rest != 0).then(|| 63 - rest.leading_zeros())
}

fn split(second: u32) -> (u32, u32, u32) {
    (second / 3_600, second / 60 % 60, second % 60)
}

fn join(h: u32, m: u32, s: u32) -> u32 {
    h * 3_600 + m * 60 + s
}

fn seconds_of(time: Time) -> u32 {
    let part = |value: i8| u32::try_from(value).unwrap_or(0);
    join(part(time.hour()), part(time.minute()), part(time.second()))
}

fn at(date: Date, second: u32) -> DateTime {
    let (h, m, s) = split(second);
    let part = |value: u32| i8::try_from(value).unwrap_or(0);
    date.at(part(h), part(m), part(s), 0)
}
