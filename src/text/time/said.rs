//! What was said of a time, piece by piece, and the time that it makes together.

use jiff::civil::{Date, Weekday};

use super::grid;
use super::misread::Why;
use super::part::{Clock, Part, Settled, is_mixed};
use super::when::{DAY, Day, Moment, WEEK, When};

/// Something said of a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// After so many seconds.
    Wait(u64),
    Often(Often),
    Each(Each),
    Days(Days),
    Frame(Frame),
    Part(Part),
    Clocks(Vec<Clock>),
    /// From the one to the other.
    Stretch(Clock, Clock),
}

/// An interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Often {
    pub seconds: u64,
    /// It counts from the next clock time, also where none is said: "every other day".
    pub from_clock: bool,
}

/// What it repeats with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Each {
    Day,
    Week,
    Month,
    Year,
    /// The days that are named beside it.
    Named,
}

/// Days that were named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Days {
    Ahead(i32),
    /// Days of the week, a bit for each, Sunday first; `each` where the words alone say that it repeats: "mondays".
    Week {
        set: u8,
        each: bool,
    },
    /// The next such day, never today.
    NextWeekday(Weekday),
    /// Days of a month, a bit for each.
    Month {
        set: u32,
        last: bool,
    },
    /// Which one of the month, 1 to 5; none: the last.
    Nth(Option<i8>, Weekday),
    /// A month and its day.
    Year(i8, i8),
    On(Date),
}

/// The week, month or year so many after this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Week(i32),
    Month(i32),
    Year(i32),
}

/// A bit for each day of the week, Sunday first.
const EACH_WEEKDAY: u8 = 0x7f;
pub(super) const MONDAY_TO_FRIDAY: u8 = 0b011_1110;
pub(super) const WEEKEND: u8 = 0b100_0001;

/// All that was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct All {
    wait: Option<u64>,
    often: Option<Often>,
    each: Option<Each>,
    days: Option<Days>,
    /// The day of the week that was said beside a date.
    weekday: Option<Weekday>,
    frame: Option<Frame>,
    part: Option<Part>,
    clocks: Option<Vec<Clock>>,
    stretch: Option<(Clock, Clock)>,
}

fn put<T>(place: &mut Option<T>, value: T, why: Why) -> Result<(), Why> {
    if place.is_some() {
        return Err(why);
    }
    *place = Some(value);
    Ok(())
}

pub(super) fn bit(day: Weekday) -> u8 {
    1 << day.to_sunday_zero_offset()
}

/// The days from the first to the last, over the end of the week where it has to be.
pub(super) fn from_to(first: Weekday, last: Weekday) -> u8 {
    let more = (last.to_monday_zero_offset() - first.to_monday_zero_offset()).rem_euclid(7);
    let days = std::iter::successors(Some(first), |day| Some(day.next()));
    days.take(usize::try_from(more).unwrap_or(0) + 1).fold(0, |set, day| set | bit(day))
}

/// The day of the week, where there is one only.
fn only(set: u8) -> Option<Weekday> {
    let days = [
        Weekday::Sunday,
        Weekday::Monday,
        Weekday::Tuesday,
        Weekday::Wednesday,
        Weekday::Thursday,
        Weekday::Friday,
        Weekday::Saturday,
    ];
    days.into_iter().find(|day| bit(*day) == set)
}

impl All {
    pub fn put(&mut self, piece: Piece) -> Result<(), Why> {
        match piece {
            Piece::Wait(wait) => put(&mut self.wait, wait, Why::TwoTimes),
            Piece::Often(often) => put(&mut self.often, often, Why::Clash),
            Piece::Each(each) => put(&mut self.each, each, Why::Clash),
            Piece::Days(days) => self.put_days(days),
            Piece::Frame(frame) => put(&mut self.frame, frame, Why::Clash),
            Piece::Part(part) => put(&mut self.part, part, Why::Clash),
            Piece::Clocks(clocks) => put(&mut self.clocks, clocks, Why::TwoTimes),
            Piece::Stretch(first, last) => put(&mut self.stretch, (first, last), Why::TwoTimes),
        }
    }

    /// Of "Thursday, December 24" the one has to fit the other.
    fn put_days(&mut self, days: Days) -> Result<(), Why> {
        let (date, set) = match (self.days, days) {
            (Some(Days::Week { set, each: false }), date) | (Some(date), Days::Week { set, each: false }) => {
                (date, set)
            }
            _ => return put(&mut self.days, days, Why::TwoTimes),
        };
        if !matches!(date, Days::Year(..) | Days::On(_) | Days::Month { .. }) {
            return Err(Why::TwoTimes);
        }
        self.days = Some(date);
        put(&mut self.weekday, only(set).ok_or(Why::TwoTimes)?, Why::TwoTimes)
    }

    /// Whether a part of the day may follow without a word between: "tomorrow evening".
    pub fn has_day(&self) -> bool {
        self.days.is_some() && self.part.is_none()
    }

    /// The time that all of it makes.
    pub fn when(&self) -> Result<When, Why> {
        let repeats = self.each.is_some()
            || self.often.is_some()
            || self.days.is_some_and(|days| matches!(days, Days::Week { each: true, .. }));
        let has_clock = self.clocks.is_some() || self.part.is_some();
        match (self.wait, self.often) {
            (Some(_), _) if repeats || self.days.is_some() || self.frame.is_some() || self.stretch.is_some() => {
                Err(Why::Clash)
            }
            (Some(seconds), _) if !has_clock => Ok(When::In(seconds)),
            (Some(seconds), _) if seconds % DAY == 0 => {
                let days = i32::try_from(seconds / DAY).map_err(|_| Why::TooLong)?;
                self.moment(Day::Ahead(days)).map(When::At)
            }
            (Some(_), _) => Err(Why::Clash),
            (None, Some(often)) => self.often(often),
            (None, None) if self.each == Some(Each::Week) && *self == Self::each_week() => {
                Ok(When::Every { seconds: WEEK, first: None })
            }
            (None, None) if repeats => self.cron(),
            (None, None) if self.stretch.is_some() => Err(Why::Stretch),
            (None, None) => self.moment(self.day(has_clock)?).map(When::At),
        }
    }

    fn each_week() -> Self {
        Self { each: Some(Each::Week), ..Self::default() }
    }

    /// The one day that is meant.
    fn day(&self, has_clock: bool) -> Result<Day, Why> {
        let one = |set: u32| i8::try_from(set.trailing_zeros()).ok().filter(|_| set.count_ones() == 1);
        match (self.days, self.frame) {
            (None, None) if has_clock => Ok(Day::Next),
            (None, _) => Err(Why::WhichDay),
            (Some(Days::Ahead(days)), None) => Ok(Day::Ahead(days)),
            (Some(Days::NextWeekday(day)), None) => Ok(Day::NextWeekday(day)),
            (Some(Days::On(date)), None) => Ok(Day::On(date)),
            (Some(Days::Year(month, day)), None) => Ok(Day::OfAnyYear(month, day)),
            (Some(Days::Year(month, day)), Some(Frame::Year(ahead))) => Ok(Day::OfYear(ahead, month, day)),
            (Some(Days::Week { set, .. }), frame) => match (only(set), frame) {
                (Some(day), None) => Ok(Day::Weekday(day)),
                (Some(day), Some(Frame::Week(ahead))) => Ok(Day::OfWeek(ahead, day)),
                (None, _) => Err(Why::SayEvery),
                _ => Err(Why::Clash),
            },
            (Some(Days::Month { set, last: false }), frame) => match (one(set), frame) {
                (Some(day), None) => Ok(Day::OfAnyMonth(day)),
                (Some(day), Some(Frame::Month(ahead))) => Ok(Day::OfMonth(ahead, day)),
                (None, _) => Err(Why::SayEvery),
                _ => Err(Why::Clash),
            },
            _ => Err(Why::Clash),
        }
    }

    /// The clock times, those that were not said as they are usual.
    fn settled(&self) -> Result<Vec<Settled>, Why> {
        let usual = || Clock::usual(self.part).map(|clock| vec![clock]);
        let clocks = self.clocks.clone().map_or_else(usual, Ok)?;
        if self.part.is_none() && is_mixed(&clocks) {
            return Err(Why::WhichHalf);
        }
        clocks.into_iter().map(|clock| clock.settle(self.part)).collect()
    }

    /// The one clock time on that day.
    fn moment(&self, day: Day) -> Result<Moment, Why> {
        let [Settled { time: clock, late, vague }] = *self.settled()? else { return Err(Why::TwoTimes) };
        match (late, day) {
            // The coming one, also when it is past midnight already.
            (true, Day::Next | Day::Ahead(0)) => Ok(Moment { day: Day::Next, clock, late: false, weekday: None }),
            _ if vague => Err(Why::WhichMidnight),
            _ => Ok(Moment { day, clock, late, weekday: self.weekday }),
        }
    }

    /// What comes with an interval.
    fn often(&self, often: Often) -> Result<When, Why> {
        let Often { seconds, from_clock } = often;
        if self.frame.is_some() || self.weekday.is_some() {
            return Err(Why::Clash);
        }
        if self.stretch.is_some() || self.each.is_some() || matches!(self.days, Some(Days::Week { each: true, .. })) {
            return self.within(seconds);
        }
        let first = match self.days {
            None if self.clocks.is_none() && self.part.is_none() && !from_clock => None,
            None if seconds % DAY == 0 => Some(self.moment(Day::Next)?),
            Some(Days::Week { set, .. }) if seconds % WEEK == 0 => {
                Some(self.moment(Day::Weekday(only(set).ok_or(Why::TwoTimes)?))?)
            }
            _ => return Err(Why::Clash),
        };
        Ok(When::Every { seconds, first })
    }

    /// An interval within each of some days.
    fn within(&self, seconds: u64) -> Result<When, Why> {
        let days = self.cron_days()?;
        if self.clocks.is_some() || self.part.is_some() || days.months != "*" || days.days != "*" {
            return Err(Why::Clash);
        }
        let (minutes, hours) = grid::times(seconds, self.stretch, days.week == EACH_WEEKDAY && days.nth.is_none())?;
        Ok(When::Cron(days.at(&minutes, &hours)))
    }

    /// At clock times of some days.
    fn cron(&self) -> Result<When, Why> {
        if self.stretch.is_some() {
            return Err(Why::Stretch);
        }
        let mut days = self.cron_days()?;
        let clocks = self.settled()?;
        let minute = clocks.first().map_or(0, |clock| clock.time.minute());
        if clocks.iter().any(|clock| clock.time.minute() != minute) {
            return Err(Why::MinutesDiffer);
        }
        let is_each = days.week == EACH_WEEKDAY && days.days == "*" && days.nth.is_none();
        if !is_each && clocks.iter().any(|clock| clock.vague) {
            return Err(Why::WhichMidnight);
        }
        match clocks.iter().filter(|clock| clock.late).count() {
            late if late == 0 || is_each => {}
            late if late < clocks.len() => return Err(Why::MinutesDiffer),
            // The night of a day ends on the next.
            _ if days.days == "*" && days.nth.is_none() => days.week = (days.week << 1 | days.week >> 6) & EACH_WEEKDAY,
            _ => return Err(Why::WhichMidnight),
        }
        let hours = clocks.iter().fold(0, |set, clock| set | 1 << clock.time.hour());
        Ok(When::Cron(days.at(&minute.to_string(), &grid::list(hours, 24))))
    }

    fn cron_days(&self) -> Result<CronDays, Why> {
        let free = CronDays { days: "*".to_owned(), months: "*".to_owned(), week: EACH_WEEKDAY, nth: None };
        if self.frame.is_some() || self.weekday.is_some() {
            return Err(Why::Clash);
        }
        match (self.each, self.days) {
            // With an interval alone, each day is meant.
            (Some(Each::Day) | None, None) => Ok(free),
            (Some(Each::Day), Some(Days::Week { set, .. })) if only(set).is_none() => {
                Ok(CronDays { week: set, ..free })
            }
            (None | Some(Each::Named | Each::Week), Some(Days::Week { set, .. })) => Ok(CronDays { week: set, ..free }),
            (Some(Each::Month | Each::Named), Some(Days::Month { set, last })) => {
                let last = if last { vec!["L".to_owned()] } else { Vec::new() };
                let days = Some(grid::list(u64::from(set), 32)).filter(|days| !days.is_empty());
                Ok(CronDays { days: days.into_iter().chain(last).collect::<Vec<_>>().join(","), ..free })
            }
            (Some(Each::Month), Some(Days::Nth(nth, day))) => {
                let day = day.to_sunday_zero_offset();
                let nth = nth.map_or_else(|| format!("{day}L"), |nth| format!("{day}#{nth}"));
                Ok(CronDays { nth: Some(nth), ..free })
            }
            (Some(Each::Year | Each::Named), Some(Days::Year(month, day))) => {
                Ok(CronDays { days: day.to_string(), months: month.to_string(), ..free })
            }
            (Some(Each::Week | Each::Month | Each::Year), None) => Err(Why::WhichDay),
            _ => Err(Why::Clash),
        }
    }
}

/// The fields of a cron expression that say on which days.
struct CronDays {
    days: String,
    months: String,
    /// Days of the week, a bit for each, Sunday first.
    week: u8,
    /// One of a month instead: the second Monday.
    nth: Option<String>,
}

impl CronDays {
    fn at(&self, minutes: &str, hours: &str) -> String {
        let Self { days, months, week, nth } = self;
        let week = nth.clone().unwrap_or_else(|| grid::list(u64::from(*week), 7));
        format!("{minutes} {hours} {days} {months} {week}")
    }
}
