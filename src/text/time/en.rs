//! English times: "in 10 minutes", "tomorrow at 9", "every Monday and Thursday at half past eight".

use jiff::civil::Weekday;

use super::common::{self, Amount, amount, clock_before, minutes_behind, month_days, written_date};
use super::misread::Why;
use super::part::{AT_NIGHT, Clock, MIDNIGHT_CLOCK, NIGHT, NOON_CLOCK, Part, Said};
use super::said::{Days, Each, Frame, MONDAY_TO_FRIDAY, Often, Piece, WEEKEND, bit, from_to};
use super::token::{Cursor, Tok};
use super::when::{DAY, HOUR, MINUTE, WEEK};

/// What stands at the place in the words; `after_day`: a day was said before.
pub(super) fn piece(c: &mut Cursor<'_>, after_day: bool) -> Option<Vec<Piece>> {
    c.attempt(wait)
        .or_else(|| c.attempt(every))
        .or_else(|| c.attempt(days))
        .or_else(|| c.attempt(clocks))
        .or_else(|| c.attempt(|c| part(c, after_day)))
}

/// "in 10 minutes", "half an hour from now".
fn wait(c: &mut Cursor<'_>) -> Option<Vec<Piece>> {
    let is_led = c.any(&["in", "after"]);
    let seconds = length(c, false)?;
    (is_led || c.words(&["from", "now"])).then(|| vec![Piece::Wait(seconds)])
}

/// "10 minutes", "an hour and a half", "1h30m"; behind "every" also "hour".
pub(super) fn length(c: &mut Cursor<'_>, is_every: bool) -> Option<u64> {
    let more = |c: &mut Cursor<'_>| {
        c.mark(&[',']);
        c.word("and");
        length_part(c, false)
    };
    common::length(c, |c| length_part(c, is_every), more)
}

/// In seconds, and its unit.
fn length_part(c: &mut Cursor<'_>, is_every: bool) -> Option<(u64, u64)> {
    if c.word("half") {
        c.word("a");
        let unit = unit(c, true).filter(|unit| *unit >= MINUTE)?;
        return Some((unit / 2, unit));
    }
    if let Some(count) = c.attempt(quarters_of_an_hour) {
        return Some((count.checked_mul(HOUR / 4)?, HOUR));
    }
    let bare = if is_every { c.attempt(|c| unit(c, true)) } else { None };
    let (count, unit) = match bare {
        Some(unit) => (Amount::of(1), unit),
        None => counted(c)?,
    };
    let count = if count.part.0 == 0 && c.words(&["and", "a", "half"]) { count.and_a_half() } else { count };
    match count.times(unit) {
        Some(seconds) => Some((seconds, unit)),
        None => c.blame(Why::TooLong),
    }
}

/// "an hour", "2.5 hours", "one and a half hours".
fn counted(c: &mut Cursor<'_>) -> Option<(Amount, u64)> {
    let is_one = c.word("a");
    let count = if is_one { Amount::of(1) } else { amount(c)? };
    let count = if c.words(&["and", "a", "half"]) { count.and_a_half() } else { count };
    if matches!(c.peek(), Some(Tok::Word("month" | "year"))) {
        return c.blame(Why::Months);
    }
    Some((count, unit(c, is_one)?))
}

fn quarters_of_an_hour(c: &mut Cursor<'_>) -> Option<u64> {
    let count = if c.word("a") { 1 } else { c.number().map_or(1, |(count, _)| count) };
    if !c.word("quarter") {
        return None;
    }
    c.words(&["of", "a"]);
    unit(c, true).filter(|unit| *unit == HOUR).map(|_| count)
}

fn unit(c: &mut Cursor<'_>, is_one: bool) -> Option<u64> {
    let seconds = match c.peek()? {
        Tok::Unit { seconds, plural } if !(is_one && plural) => seconds,
        Tok::Word("second") => 1,
        _ => return None,
    };
    c.step();
    Some(seconds)
}

/// What begins with "every", and "daily" and the like.
fn every(c: &mut Cursor<'_>) -> Option<Vec<Piece>> {
    let often = |seconds| vec![Piece::Often(Often { seconds, from_clock: false })];
    for (word, each) in [("daily", Each::Day), ("weekly", Each::Week), ("monthly", Each::Month), ("yearly", Each::Year)]
    {
        if c.word(word) {
            return Some(vec![Piece::Each(each)]);
        }
    }
    if c.word("hourly") {
        return Some(often(HOUR));
    }
    c.word("on");
    if !c.word("every") {
        return None;
    }
    if c.word("other") {
        return every_other(c);
    }
    for (word, each) in [("month", Each::Month), ("year", Each::Year)] {
        if c.word(word) {
            return Some(vec![Piece::Each(each)]);
        }
    }
    if let Some(Tok::Part(part)) = c.peek() {
        c.step();
        return Some(vec![Piece::Each(Each::Day), Piece::Part(part)]);
    }
    let named = |days| vec![Piece::Each(Each::Named), Piece::Days(days)];
    if let Some(days) = c.attempt(weekdays) {
        return Some(named(days));
    }
    for (seconds, each) in [(DAY, Each::Day), (WEEK, Each::Week)] {
        if one_unit(c, seconds) {
            return Some(vec![Piece::Each(each)]);
        }
    }
    if let Some(seconds) = c.attempt(|c| length(c, true)) {
        return Some(often(seconds));
    }
    if let Some(days) = c.attempt(date) {
        return Some(named(days));
    }
    let one = c.attempt(one_of_month).map(|days| vec![Piece::Each(Each::Month), Piece::Days(days)]);
    let found = one.or_else(|| days_of_month(c).map(named))?;
    c.words(&["of", "the", "month"]);
    Some(found)
}

/// Takes that unit in the singular.
fn one_unit(c: &mut Cursor<'_>, seconds: u64) -> bool {
    let is_next = c.peek() == Some(Tok::Unit { seconds, plural: false });
    c.at += usize::from(is_next);
    is_next
}

fn every_other(c: &mut Cursor<'_>) -> Option<Vec<Piece>> {
    if matches!(c.peek(), Some(Tok::Word("month" | "year"))) {
        return c.blame(Why::Months);
    }
    if let Some(day) = weekday(c, true) {
        let often = Often { seconds: 2 * WEEK, from_clock: false };
        return Some(vec![Piece::Often(often), Piece::Days(Days::Week { set: bit(day), each: false })]);
    }
    let unit = unit(c, true)?;
    Some(vec![Piece::Often(Often { seconds: 2 * unit, from_clock: unit == DAY })])
}

/// One day or several.
fn days(c: &mut Cursor<'_>) -> Option<Vec<Piece>> {
    if let Some(found) = c.attempt(frame) {
        return Some(found);
    }
    c.word("on");
    if let Some(found) = c.attempt(near_day) {
        return Some(found);
    }
    match c.attempt(weekdays).or_else(|| c.attempt(date)) {
        Some(days) => Some(vec![Piece::Days(days)]),
        None => c.attempt(of_each_month),
    }
}

/// "tonight", "the day after tomorrow", "this evening", "next Friday".
fn near_day(c: &mut Cursor<'_>) -> Option<Vec<Piece>> {
    if let Some(Tok::Day(ahead, part)) = c.peek() {
        c.step();
        return Some([Piece::Days(Days::Ahead(ahead))].into_iter().chain(part.map(Piece::Part)).collect());
    }
    if c.word("this") {
        if let Some(Tok::Part(part)) = c.peek() {
            c.step();
            return Some(vec![Piece::Days(Days::Ahead(0)), Piece::Part(part)]);
        }
        let day = weekday(c, true)?;
        return Some(vec![Piece::Frame(Frame::Week(0)), Piece::Days(Days::Week { set: bit(day), each: false })]);
    }
    if c.word("next") {
        return weekday(c, true).map(|day| vec![Piece::Days(Days::NextWeekday(day))]);
    }
    c.word("the");
    let is_after = one_unit(c, DAY) && c.word("after") && c.peek() == Some(Tok::Day(1, None));
    c.step();
    is_after.then(|| vec![Piece::Days(Days::Ahead(2))])
}

/// "next week", "of next month", "this year".
fn frame(c: &mut Cursor<'_>) -> Option<Vec<Piece>> {
    c.any(&["of", "in"]);
    let ahead = if c.word("next") { 1 } else { c.word("this").then_some(0)? };
    let frame = match c.peek()? {
        Tok::Unit { seconds: WEEK, plural: false } => Frame::Week(ahead),
        Tok::Word("month") => Frame::Month(ahead),
        Tok::Word("year") => Frame::Year(ahead),
        _ => return None,
    };
    c.step();
    Some(vec![Piece::Frame(frame)])
}

/// "the first Monday", "the last day of every month", "on the 1st and 15th of each month".
fn of_each_month(c: &mut Cursor<'_>) -> Option<Vec<Piece>> {
    let days = c.attempt(one_of_month).or_else(|| c.attempt(days_of_month))?;
    let each = c.words(&["of", "every", "month"]).then_some(Piece::Each(Each::Month));
    Some([Piece::Days(days)].into_iter().chain(each).collect())
}

fn one_of_month(c: &mut Cursor<'_>) -> Option<Days> {
    c.word("the");
    if !c.word("last") {
        let nth = ordinal(c).and_then(|nth| i8::try_from(nth).ok()).filter(|nth| (1..=5).contains(nth))?;
        return weekday(c, true).map(|day| Days::Nth(Some(nth), day));
    }
    if one_unit(c, DAY) {
        return Some(Days::Month { set: 0, last: true });
    }
    weekday(c, true).map(|day| Days::Nth(None, day))
}

/// "the 1st and the 15th".
fn days_of_month(c: &mut Cursor<'_>) -> Option<Days> {
    let one = |c: &mut Cursor<'_>| {
        c.word("on");
        // Without it, "second" is no day.
        let may_be_spelled = c.word("the") || matches!(c.peek(), Some(Tok::Number { .. }));
        may_be_spelled.then(|| ordinal(c))?
    };
    let days = c.list(one, joint)?;
    month_days(c, &days)
}

fn ordinal(c: &mut Cursor<'_>) -> Option<u64> {
    for (nth, word) in (1..).zip(["first", "second", "third", "fourth", "fifth"]) {
        if c.word(word) {
            return Some(nth);
        }
    }
    let (value, _) = c.number()?;
    (c.is_glued() && c.word("th")).then_some(value)
}

/// Comma, "and", or both.
fn joint(c: &mut Cursor<'_>) -> bool {
    let comma = c.mark(&[',']);
    c.word("and") || c.mark(&['&']) || comma
}

/// "2026-12-24", "December 24", "the 24th of Dec, 2027".
fn date(c: &mut Cursor<'_>) -> Option<Days> {
    if let Some(days) = c.attempt(written_date) {
        return Some(days);
    }
    let day_before = c.attempt(|c| {
        c.word("the");
        let (day, _) = c.number()?;
        c.word("th");
        c.word("of");
        Some(day)
    });
    let Some(Tok::Month(month)) = c.peek() else { return None };
    c.step();
    let day = match day_before {
        Some(day) => day,
        None => {
            c.word("the");
            let (day, digits) = c.number()?;
            c.word("th");
            // "December 9:00", "December 2027".
            let is_other = digits > 2 || matches!(c.peek(), Some(Tok::Mark(':') | Tok::Word("am" | "pm")));
            (!is_other).then_some(day)?
        }
    };
    let year = c.attempt(|c| {
        c.mark(&[',']);
        c.number().filter(|(_, digits)| *digits == 4 && c.peek() != Some(Tok::Mark(':')))
    });
    common::date(c, year.map(|(year, _)| year), u64::try_from(month).ok()?, day)
}

/// "Monday", "mondays and thursdays", "Monday to Friday", "weekdays", "the weekend".
fn weekdays(c: &mut Cursor<'_>) -> Option<Days> {
    let between = |c: &mut Cursor<'_>| {
        let is_joined = joint(c);
        c.word("on");
        c.word("every");
        is_joined
    };
    let all = c.list(some_weekdays, between)?;
    let (set, each) = all.into_iter().fold((0, false), |sum, one| (sum.0 | one.0, sum.1 | one.1));
    Some(Days::Week { set, each })
}

/// As a set, and whether they are plural.
fn some_weekdays(c: &mut Cursor<'_>) -> Option<(u8, bool)> {
    if let Some(Tok::Weekday { day, plural }) = c.peek() {
        c.step();
        let last = c.attempt(|c| {
            let is_range = c.word("to") || c.mark(&['-']);
            is_range.then(|| weekday(c, false))?
        });
        return Some((last.map_or(bit(day), |last| from_to(day, last)), plural));
    }
    for (word, set, plural) in [
        ("weekday", MONDAY_TO_FRIDAY, false),
        ("weekdays", MONDAY_TO_FRIDAY, true),
        ("weekend", WEEKEND, false),
        ("weekends", WEEKEND, true),
    ] {
        if c.word(word) {
            return Some((set, plural));
        }
    }
    if !c.word("working") && !one_unit(c, WEEK) {
        return None;
    }
    let Tok::Unit { seconds: DAY, plural } = c.peek()? else { return None };
    c.step();
    Some((MONDAY_TO_FRIDAY, plural))
}

fn weekday(c: &mut Cursor<'_>, is_one: bool) -> Option<Weekday> {
    match c.peek()? {
        Tok::Weekday { day, plural } if !(is_one && plural) => {
            c.step();
            Some(day)
        }
        _ => None,
    }
}

/// "at 9", "at 9am and 9pm", "between 9 and 17".
fn clocks(c: &mut Cursor<'_>) -> Option<Vec<Piece>> {
    let to = |c: &mut Cursor<'_>| c.word("to") || c.mark(&['-']);
    if c.any(&["between", "from"]) {
        let is_between = matches!(c.tokens[c.at - 1].tok, Tok::Word("between"));
        let first = clock(c, true, false)?;
        let is_joined = if is_between { c.word("and") } else { to(c) };
        return is_joined.then(|| clock(c, true, false).map(|last| vec![Piece::Stretch(first, last)]))?;
    }
    let is_led = c.any(&["at", "by"]);
    let first = clock(c, is_led, true)?;
    if let Some(last) = c.attempt(|c| to(c).then(|| clock(c, true, false))?) {
        return Some(vec![Piece::Stretch(first, last)]);
    }
    let mut all = vec![first];
    while let Some(next) = c.attempt(|c| {
        let is_led = joint(c).then(|| c.word("at"))? || is_led;
        clock(c, is_led, true)
    }) {
        all.push(next);
    }
    Some(vec![Piece::Clocks(all)])
}

/// A clock time with its part of the day. A bare `9` is one only where `is_led`; "ten to nine" may be a stretch.
fn clock(c: &mut Cursor<'_>, is_led: bool, may_be_before: bool) -> Option<Clock> {
    for (word, clock) in [("noon", NOON_CLOCK), ("midnight", MIDNIGHT_CLOCK)] {
        // "12 noon".
        if c.word(word) || c.attempt(|c| c.number().filter(|(hour, _)| *hour == 12 && c.word(word))).is_some() {
            return Some(clock);
        }
    }
    // "9 in the morning".
    let has_part = c.ahead(1) == Some(Tok::Word("in")) && matches!(c.ahead(3), Some(Tok::Part(_)));
    let is_led = is_led || has_part;
    let clock = c.attempt(|c| clock_beside(c, may_be_before)).or_else(|| c.attempt(|c| plain_clock(c, is_led)))?;
    Some(Clock { part: c.attempt(led_part), ..clock })
}

/// "half past three", "a quarter to ten", "ten minutes past nine".
fn clock_beside(c: &mut Cursor<'_>, may_be_before: bool) -> Option<Clock> {
    let (minutes, is_plain) = if c.word("half") {
        if matches!(c.peek(), Some(Tok::Number { .. })) {
            return c.blame(Why::HalfHour);
        }
        (30, true)
    } else if c.words(&["a", "quarter"]) || c.word("quarter") {
        (15, true)
    } else {
        let (minutes, digits) = c.number().filter(|(minutes, _)| (1..30).contains(minutes))?;
        let is_said = matches!(c.peek(), Some(Tok::Unit { seconds: MINUTE, .. }));
        c.at += usize::from(is_said);
        // "10 to 9" and "nine to five" may be stretches.
        (minutes, is_said || digits == 0 && minutes.is_multiple_of(5))
    };
    let is_before = !c.word("past");
    if is_before && !(c.word("to") && may_be_before && is_plain && minutes != 30) {
        return None;
    }
    let (hour, _) = c.number()?;
    let said = half_of_day(c, hour)?;
    // A quarter to 12 pm is before noon, or before midnight.
    if is_before && said.is_some() && hour == 12 {
        return c.blame(Why::WhichHalf);
    }
    let clock = if is_before { clock_before(c, minutes, hour) } else { common::clock(c, hour, minutes) }?;
    Some(in_half(clock, said))
}

/// "9", "9:05", "9.30am", "9 o'clock".
fn plain_clock(c: &mut Cursor<'_>, is_led: bool) -> Option<Clock> {
    let (hour, digits) = c.number()?;
    let minutes = c.attempt(|c| minutes_behind(c, ':'));
    let dotted = if minutes.is_none() { c.attempt(|c| minutes_behind(c, '.')) } else { None };
    let spelled = if digits == 0 && is_led { c.attempt(spelled_minutes) } else { None };
    let is_oclock = c.word("o'clock");
    let half = half_of_day(c, hour)?;
    let is_whole = half.is_some() || minutes.is_some() || spelled.is_some() || is_oclock;
    let is_other = match c.peek() {
        Some(Tok::Unit { .. } | Tok::Month(_) | Tok::Word("th" | "of")) => true,
        Some(Tok::Mark(':' | '/' | '.')) => c.is_glued() && c.ahead(1).is_some(),
        _ => false,
    };
    if !(is_whole || is_led && !is_other) {
        return None;
    }
    let clock = common::clock(c, hour, minutes.or(dotted).or(spelled).unwrap_or(0))?;
    Some(in_half(clock, half))
}

/// The thirty of "seven thirty".
fn spelled_minutes(c: &mut Cursor<'_>) -> Option<u64> {
    let (minutes, _) = c.number().filter(|(minutes, digits)| *digits == 0 && (10..60).contains(minutes))?;
    (!matches!(c.peek(), Some(Tok::Unit { .. } | Tok::Word("past" | "to")))).then_some(minutes)
}

/// The clock time with what "am" or "pm" adds to it, where either was said.
fn in_half(clock: Clock, half: Option<i8>) -> Clock {
    half.map_or(clock, |later| Clock { hour: clock.hour % 12 + later, said: Said::Sure, ..clock })
}

/// The hours that "am" or "pm" adds; `None` when the hour cannot have one.
fn half_of_day(c: &mut Cursor<'_>, hour: u64) -> Option<Option<i8>> {
    let half = if c.word("am") { Some(0) } else { c.word("pm").then_some(12) };
    match half {
        Some(_) if !(1..=12).contains(&hour) => c.blame(Why::NoSuchTime),
        half => Some(half),
    }
}

/// "in the evening", "at night", and behind a day the bare word.
fn part(c: &mut Cursor<'_>, after_day: bool) -> Option<Vec<Piece>> {
    let part = match (c.attempt(led_part), c.peek()) {
        (Some(part), _) => part,
        (None, Some(Tok::Part(part))) if after_day => {
            c.step();
            part
        }
        _ => return None,
    };
    Some(vec![Piece::Part(part)])
}

fn led_part(c: &mut Cursor<'_>) -> Option<Part> {
    let in_the = c.words(&["in", "the"]);
    if !in_the && !c.word("at") {
        return None;
    }
    let Some(Tok::Part(part)) = c.peek() else { return None };
    c.step();
    if in_the { Some(part) } else { (part == NIGHT).then_some(AT_NIGHT) }
}
