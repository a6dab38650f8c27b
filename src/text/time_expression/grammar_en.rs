//! The English grammar: "in 10 minutes", "tomorrow at 9", "every Monday and Thursday at half past eight".

use super::clauses::{CalendarPeriod, Clause, DaySpec, Interval, MONDAY_TO_FRIDAY, Recurrence, WEEKEND, bit, from_to};
use super::clock::{AT_NIGHT, ClockForm, ClockTime, DayPart, MIDNIGHT_CLOCK, NIGHT, NOON_CLOCK};
use super::error::TimeFault;
use super::expression::{DAY, HOUR, MINUTE, WEEK};
use super::grammar::{self, Amount, amount, clock_before, minutes_behind, month_days, seconds_of, written_date};
use super::token::{TokenCursor, TokenKind};

/// Reads one clause; `after_day` is true if a day precedes it.
pub(super) fn clause(c: &mut TokenCursor<'_>, after_day: bool) -> Option<Vec<Clause>> {
    c.attempt(wait)
        .or_else(|| c.attempt(every))
        .or_else(|| c.attempt(days))
        .or_else(|| c.attempt(clocks))
        .or_else(|| c.attempt(|c| part(c, after_day)))
}

/// "in 10 minutes", "half an hour from now".
fn wait(c: &mut TokenCursor<'_>) -> Option<Vec<Clause>> {
    let is_led = c.take_any(&["in", "after"]);
    let seconds = length(c, false)?;
    (is_led || c.take_words(&["from", "now"])).then(|| vec![Clause::Wait(seconds)])
}

/// "10 minutes", "an hour and a half", "1h30m"; after "every" also "hour".
pub(super) fn length(c: &mut TokenCursor<'_>, is_every: bool) -> Option<u64> {
    let more = |c: &mut TokenCursor<'_>| {
        c.take_mark(&[',']);
        c.take_word("and");
        length_part(c, false)
    };
    grammar::length(c, |c| length_part(c, is_every), more)
}

/// Reads a part of a duration; returns its seconds and its unit.
fn length_part(c: &mut TokenCursor<'_>, is_every: bool) -> Option<(u64, u64)> {
    if c.take_word("half") {
        c.take_word("a");
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
    let count = if count.part.0 == 0 && c.take_words(&["and", "a", "half"]) { count.and_a_half() } else { count };
    seconds_of(c, count, unit)
}

/// "an hour", "2.5 hours", "one and a half hours".
fn counted(c: &mut TokenCursor<'_>) -> Option<(Amount, u64)> {
    let is_one = c.take_word("a");
    let count = if is_one { Amount::of(1) } else { amount(c)? };
    let count = if c.take_words(&["and", "a", "half"]) { count.and_a_half() } else { count };
    if matches!(c.peek(), Some(TokenKind::Word("month" | "year"))) {
        return c.fail(TimeFault::Months);
    }
    Some((count, unit(c, is_one)?))
}

fn quarters_of_an_hour(c: &mut TokenCursor<'_>) -> Option<u64> {
    let count = if c.take_word("a") { 1 } else { c.take_number().map_or(1, |(count, _)| count) };
    if !c.take_word("quarter") {
        return None;
    }
    c.take_words(&["of", "a"]);
    unit(c, true).filter(|unit| *unit == HOUR).map(|_| count)
}

fn unit(c: &mut TokenCursor<'_>, is_one: bool) -> Option<u64> {
    c.take_as(|kind| match kind {
        TokenKind::Unit { seconds, plural } if !(is_one && plural) => Some(seconds),
        TokenKind::Word("second") => Some(1),
        _ => None,
    })
}

/// Reads clauses that begin with "every", and "daily" and the like.
fn every(c: &mut TokenCursor<'_>) -> Option<Vec<Clause>> {
    let often = |seconds| vec![Clause::Interval(Interval { seconds, from_clock: false })];
    const ALONE: [(&str, Recurrence); 4] = [
        ("daily", Recurrence::Day),
        ("weekly", Recurrence::Week),
        ("monthly", Recurrence::Month),
        ("yearly", Recurrence::Year),
    ];
    if let Some(each) = c.take_meaning(&ALONE) {
        return Some(vec![Clause::Recurrence(each)]);
    }
    if c.take_word("hourly") {
        return Some(often(HOUR));
    }
    c.take_word("on");
    if !c.take_word("every") {
        return None;
    }
    if c.take_word("other") {
        return every_other(c);
    }
    if let Some(each) = c.take_meaning(&[("month", Recurrence::Month), ("year", Recurrence::Year)]) {
        return Some(vec![Clause::Recurrence(each)]);
    }
    if let Some(part) = c.take_part() {
        return Some(vec![Clause::Recurrence(Recurrence::Day), Clause::Part(part)]);
    }
    let named = |days| vec![Clause::Recurrence(Recurrence::Named), Clause::Days(days)];
    if let Some(days) = c.attempt(weekdays) {
        return Some(named(days));
    }
    for (seconds, each) in [(DAY, Recurrence::Day), (WEEK, Recurrence::Week)] {
        if one_unit(c, seconds) {
            return Some(vec![Clause::Recurrence(each)]);
        }
    }
    if let Some(seconds) = c.attempt(|c| length(c, true)) {
        return Some(often(seconds));
    }
    if let Some(days) = c.attempt(date) {
        return Some(named(days));
    }
    let one = c.attempt(one_of_month).map(|days| vec![Clause::Recurrence(Recurrence::Month), Clause::Days(days)]);
    let found = one.or_else(|| days_of_month(c).map(named))?;
    c.take_words(&["of", "the", "month"]);
    Some(found)
}

/// Takes the unit with this number of seconds, in the singular.
fn one_unit(c: &mut TokenCursor<'_>, seconds: u64) -> bool {
    c.take_if(|kind| kind == TokenKind::Unit { seconds, plural: false })
}

fn every_other(c: &mut TokenCursor<'_>) -> Option<Vec<Clause>> {
    if matches!(c.peek(), Some(TokenKind::Word("month" | "year"))) {
        return c.fail(TimeFault::Months);
    }
    if let Some(day) = c.take_weekday(false) {
        let often = Interval { seconds: 2 * WEEK, from_clock: false };
        return Some(vec![Clause::Interval(often), Clause::Days(DaySpec::Week { set: bit(day), each: false })]);
    }
    let unit = unit(c, true)?;
    Some(vec![Clause::Interval(Interval { seconds: 2 * unit, from_clock: unit == DAY })])
}

/// Reads one day or several.
fn days(c: &mut TokenCursor<'_>) -> Option<Vec<Clause>> {
    if let Some(found) = c.attempt(period) {
        return Some(found);
    }
    c.take_word("on");
    if let Some(found) = c.attempt(near_day) {
        return Some(found);
    }
    match c.attempt(weekdays).or_else(|| c.attempt(date)) {
        Some(days) => Some(vec![Clause::Days(days)]),
        None => c.attempt(of_each_month),
    }
}

/// "tonight", "the day after tomorrow", "this evening", "next Friday".
fn near_day(c: &mut TokenCursor<'_>) -> Option<Vec<Clause>> {
    if let Some(found) = grammar::day_ahead(c) {
        return Some(found);
    }
    if c.take_word("this") {
        if let Some(part) = c.take_part() {
            return Some(vec![Clause::Days(DaySpec::Ahead(0)), Clause::Part(part)]);
        }
        let day = c.take_weekday(false)?;
        return Some(vec![
            Clause::Period(CalendarPeriod::Week(0)),
            Clause::Days(DaySpec::Week { set: bit(day), each: false }),
        ]);
    }
    if c.take_word("next") {
        return c.take_weekday(false).map(|day| vec![Clause::Days(DaySpec::NextWeekday(day))]);
    }
    c.take_word("the");
    let is_after = one_unit(c, DAY) && c.take_word("after") && c.take_if(|kind| kind == TokenKind::Day(1, None));
    is_after.then(|| vec![Clause::Days(DaySpec::Ahead(2))])
}

/// "next week", "of next month", "this year".
fn period(c: &mut TokenCursor<'_>) -> Option<Vec<Clause>> {
    c.take_any(&["of", "in"]);
    let ahead = if c.take_word("next") { 1 } else { c.take_word("this").then_some(0)? };
    let period = c.take_as(|kind| match kind {
        TokenKind::Unit { seconds: WEEK, plural: false } => Some(CalendarPeriod::Week(ahead)),
        TokenKind::Word("month") => Some(CalendarPeriod::Month(ahead)),
        TokenKind::Word("year") => Some(CalendarPeriod::Year(ahead)),
        _ => None,
    })?;
    Some(vec![Clause::Period(period)])
}

/// "the first Monday", "the last day of every month", "on the 1st and 15th of each month".
fn of_each_month(c: &mut TokenCursor<'_>) -> Option<Vec<Clause>> {
    let days = c.attempt(one_of_month).or_else(|| c.attempt(days_of_month))?;
    let each = c.take_words(&["of", "every", "month"]).then_some(Clause::Recurrence(Recurrence::Month));
    Some([Clause::Days(days)].into_iter().chain(each).collect())
}

fn one_of_month(c: &mut TokenCursor<'_>) -> Option<DaySpec> {
    c.take_word("the");
    if !c.take_word("last") {
        let nth = ordinal(c).and_then(|nth| i8::try_from(nth).ok()).filter(|nth| (1..=5).contains(nth))?;
        return c.take_weekday(false).map(|day| DaySpec::Nth(Some(nth), day));
    }
    if one_unit(c, DAY) {
        return Some(DaySpec::Month { set: 0, last: true });
    }
    c.take_weekday(false).map(|day| DaySpec::Nth(None, day))
}

/// "the 1st and the 15th".
fn days_of_month(c: &mut TokenCursor<'_>) -> Option<DaySpec> {
    let one = |c: &mut TokenCursor<'_>| {
        c.take_word("on");
        // Without the article, "second" is a unit and no day.
        let may_be_spelled = c.take_word("the") || matches!(c.peek(), Some(TokenKind::Number { .. }));
        may_be_spelled.then(|| ordinal(c))?
    };
    let days = c.list(one, joint)?;
    month_days(c, &days)
}

fn ordinal(c: &mut TokenCursor<'_>) -> Option<u64> {
    if let Some(nth) = c.take_meaning(&[("first", 1), ("second", 2), ("third", 3), ("fourth", 4), ("fifth", 5)]) {
        return Some(nth);
    }
    let (value, _) = c.take_number()?;
    (c.is_glued() && c.take_word("th")).then_some(value)
}

/// Takes a comma, "and", or both.
fn joint(c: &mut TokenCursor<'_>) -> bool {
    let comma = c.take_mark(&[',']);
    c.take_word("and") || c.take_mark(&['&']) || comma
}

/// "2026-12-24", "December 24", "the 24th of Dec, 2027".
fn date(c: &mut TokenCursor<'_>) -> Option<DaySpec> {
    if let Some(days) = c.attempt(written_date) {
        return Some(days);
    }
    let day_before = c.attempt(|c| {
        c.take_word("the");
        let (day, _) = c.take_number()?;
        c.take_word("th");
        c.take_word("of");
        Some(day)
    });
    let month = c.take_as(|kind| if let TokenKind::Month(month) = kind { Some(month) } else { None })?;
    let day = match day_before {
        Some(day) => day,
        None => {
            c.take_word("the");
            let (day, digits) = c.take_number()?;
            c.take_word("th");
            // "December 9:00", "December 2027".
            let is_other = digits > 2 || matches!(c.peek(), Some(TokenKind::Mark(':') | TokenKind::Word("am" | "pm")));
            (!is_other).then_some(day)?
        }
    };
    let year = c.attempt(|c| {
        c.take_mark(&[',']);
        c.take_number().filter(|(_, digits)| *digits == 4 && c.peek() != Some(TokenKind::Mark(':')))
    });
    grammar::date(c, year.map(|(year, _)| year), u64::try_from(month).ok()?, day)
}

/// "Monday", "mondays and thursdays", "Monday to Friday", "weekdays", "the weekend".
fn weekdays(c: &mut TokenCursor<'_>) -> Option<DaySpec> {
    let between = |c: &mut TokenCursor<'_>| {
        let is_joined = joint(c);
        c.take_word("on");
        c.take_word("every");
        is_joined
    };
    let all = c.list(some_weekdays, between)?;
    let (set, each) = all.into_iter().fold((0, false), |sum, one| (sum.0 | one.0, sum.1 | one.1));
    Some(DaySpec::Week { set, each })
}

/// Returns the days as a set, and whether they are plural.
fn some_weekdays(c: &mut TokenCursor<'_>) -> Option<(u8, bool)> {
    let first =
        c.take_as(|kind| if let TokenKind::Weekday { day, plural } = kind { Some((day, plural)) } else { None });
    if let Some((day, plural)) = first {
        let last = c.attempt(|c| {
            let is_range = c.take_word("to") || c.take_mark(&['-']);
            is_range.then(|| c.take_weekday(true))?
        });
        return Some((last.map_or(bit(day), |last| from_to(day, last)), plural));
    }
    const NAMED: [(&str, (u8, bool)); 4] = [
        ("weekday", (MONDAY_TO_FRIDAY, false)),
        ("weekdays", (MONDAY_TO_FRIDAY, true)),
        ("weekend", (WEEKEND, false)),
        ("weekends", (WEEKEND, true)),
    ];
    if let Some(days) = c.take_meaning(&NAMED) {
        return Some(days);
    }
    if !c.take_word("working") && !one_unit(c, WEEK) {
        return None;
    }
    c.take_as(|kind| match kind {
        TokenKind::Unit { seconds: DAY, plural } => Some((MONDAY_TO_FRIDAY, plural)),
        _ => None,
    })
}

/// "at 9", "at 9am and 9pm", "between 9 and 17".
fn clocks(c: &mut TokenCursor<'_>) -> Option<Vec<Clause>> {
    let to = |c: &mut TokenCursor<'_>| c.take_word("to") || c.take_mark(&['-']);
    if c.take_any(&["between", "from"]) {
        let is_between = matches!(c.tokens[c.at - 1].kind, TokenKind::Word("between"));
        let first = clock(c, true, false)?;
        let is_joined = if is_between { c.take_word("and") } else { to(c) };
        return is_joined.then(|| clock(c, true, false).map(|last| vec![Clause::Range(first, last)]))?;
    }
    let is_led = c.take_any(&["at", "by"]);
    let first = clock(c, is_led, true)?;
    if let Some(last) = c.attempt(|c| to(c).then(|| clock(c, true, false))?) {
        return Some(vec![Clause::Range(first, last)]);
    }
    let mut all = vec![first];
    while let Some(next) = c.attempt(|c| {
        let is_led = joint(c).then(|| c.take_word("at"))? || is_led;
        clock(c, is_led, true)
    }) {
        all.push(next);
    }
    Some(vec![Clause::Clocks(all)])
}

/// A clock time with its part of the day. A bare `9` is a clock time only if `is_led`. "ten to nine" may also be a range.
fn clock(c: &mut TokenCursor<'_>, is_led: bool, may_be_before: bool) -> Option<ClockTime> {
    for (word, clock) in [("noon", NOON_CLOCK), ("midnight", MIDNIGHT_CLOCK)] {
        // "12 noon".
        if c.take_word(word)
            || c.attempt(|c| c.take_number().filter(|(hour, _)| *hour == 12 && c.take_word(word))).is_some()
        {
            return Some(clock);
        }
    }
    // "9 in the morning".
    let has_part = c.ahead(1) == Some(TokenKind::Word("in")) && matches!(c.ahead(3), Some(TokenKind::Part(_)));
    let is_led = is_led || has_part;
    let clock = c.attempt(|c| clock_beside(c, may_be_before)).or_else(|| c.attempt(|c| plain_clock(c, is_led)))?;
    Some(ClockTime { part: c.attempt(led_part), ..clock })
}

/// "half past three", "a quarter to ten", "ten minutes past nine".
fn clock_beside(c: &mut TokenCursor<'_>, may_be_before: bool) -> Option<ClockTime> {
    let (minutes, is_plain) = if c.take_word("half") {
        if matches!(c.peek(), Some(TokenKind::Number { .. })) {
            return c.fail(TimeFault::HalfHour);
        }
        (30, true)
    } else if c.take_words(&["a", "quarter"]) || c.take_word("quarter") {
        (15, true)
    } else {
        let (minutes, digits) = c.take_number().filter(|(minutes, _)| (1..30).contains(minutes))?;
        let is_said = c.take_if(|kind| matches!(kind, TokenKind::Unit { seconds: MINUTE, .. }));
        // "10 to 9" and "nine to five" may be ranges.
        (minutes, is_said || digits == 0 && minutes.is_multiple_of(5))
    };
    let is_before = !c.take_word("past");
    if is_before && !(c.take_word("to") && may_be_before && is_plain && minutes != 30) {
        return None;
    }
    let (hour, _) = c.take_number()?;
    let half = half_of_day(c, hour)?;
    // "A quarter to 12 pm" is ambiguous: it may be before noon or before midnight.
    if is_before && half.is_some() && hour == 12 {
        return c.fail(TimeFault::WhichHalf);
    }
    let clock = if is_before { clock_before(c, minutes, hour) } else { grammar::clock(c, hour, minutes) }?;
    Some(in_half(clock, half))
}

/// "9", "9:05", "9.30am", "9 o'clock".
fn plain_clock(c: &mut TokenCursor<'_>, is_led: bool) -> Option<ClockTime> {
    let (hour, digits) = c.take_number()?;
    let minutes = c.attempt(|c| minutes_behind(c, ':'));
    let dotted = if minutes.is_none() { c.attempt(|c| minutes_behind(c, '.')) } else { None };
    let spelled = if digits == 0 && is_led { c.attempt(spelled_minutes) } else { None };
    let is_oclock = c.take_word("o'clock");
    let half = half_of_day(c, hour)?;
    let is_whole = half.is_some() || minutes.is_some() || spelled.is_some() || is_oclock;
    let is_other = match c.peek() {
        Some(TokenKind::Unit { .. } | TokenKind::Month(_) | TokenKind::Word("th" | "of")) => true,
        Some(TokenKind::Mark(':' | '/' | '.')) => c.is_glued() && c.ahead(1).is_some(),
        _ => false,
    };
    if !(is_whole || is_led && !is_other) {
        return None;
    }
    let clock = grammar::clock(c, hour, minutes.or(dotted).or(spelled).unwrap_or(0))?;
    Some(in_half(clock, half))
}

/// Reads the minutes of "seven thirty".
fn spelled_minutes(c: &mut TokenCursor<'_>) -> Option<u64> {
    let (minutes, _) = c.take_number().filter(|(minutes, digits)| *digits == 0 && (10..60).contains(minutes))?;
    (!matches!(c.peek(), Some(TokenKind::Unit { .. } | TokenKind::Word("past" | "to")))).then_some(minutes)
}

/// Returns the clock time with the hours that "am" or "pm" adds, if there is either.
fn in_half(clock: ClockTime, half: Option<i8>) -> ClockTime {
    half.map_or(clock, |later| ClockTime { hour: clock.hour % 12 + later, form: ClockForm::Definite, ..clock })
}

/// Returns the hours that "am" or "pm" adds. Fails if the hour permits neither.
fn half_of_day(c: &mut TokenCursor<'_>, hour: u64) -> Option<Option<i8>> {
    let half = if c.take_word("am") { Some(0) } else { c.take_word("pm").then_some(12) };
    match half {
        Some(_) if !(1..=12).contains(&hour) => c.fail(TimeFault::NoSuchTime),
        half => Some(half),
    }
}

/// "in the evening", "at night", and after a day the bare word.
fn part(c: &mut TokenCursor<'_>, after_day: bool) -> Option<Vec<Clause>> {
    let part = c.attempt(led_part).or_else(|| if after_day { c.take_part() } else { None })?;
    Some(vec![Clause::Part(part)])
}

fn led_part(c: &mut TokenCursor<'_>) -> Option<DayPart> {
    let in_the = c.take_words(&["in", "the"]);
    if !in_the && !c.take_word("at") {
        return None;
    }
    let part = c.take_part()?;
    if in_the { Some(part) } else { (part == NIGHT).then_some(AT_NIGHT) }
}
