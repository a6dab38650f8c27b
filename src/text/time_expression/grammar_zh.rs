//! The Chinese grammar: “10分钟后”, “明天下午三点半”, “每周一和周四早上8点”.

use jiff::civil::Weekday;

use super::clauses::{CalendarPeriod, Clause, DaySpec, Interval, MONDAY_TO_FRIDAY, Recurrence, WEEKEND, bit, from_to};
use super::clock::{ClockTime, LATE, MIDNIGHT_CLOCK, NOON_CLOCK};
use super::error::TimeFault;
use super::expression::{DAY, HOUR, MINUTE, WEEK};
use super::grammar::{self, Amount, amount, clock_before, minutes_behind, month_days, seconds_of, written_date};
use super::token::{TokenCursor, TokenKind};

/// Reads one clause.
pub(super) fn clause(c: &mut TokenCursor<'_>) -> Option<Vec<Clause>> {
    c.attempt(wait)
        .or_else(|| c.attempt(every))
        .or_else(|| c.attempt(days))
        .or_else(|| c.attempt(clocks))
        .or_else(|| c.attempt(part))
}

/// “10分钟后”, “过半小时”.
fn wait(c: &mut TokenCursor<'_>) -> Option<Vec<Clause>> {
    c.take_word("在");
    let is_led = c.take_word("过");
    let seconds = length(c, false)?;
    let is_tailed = c.take_word("后");
    (is_led || is_tailed).then(|| vec![Clause::Wait(seconds)])
}

/// “10分钟”, “一个半小时”, “1小时30分钟”; after 每 also “小时”.
pub(super) fn length(c: &mut TokenCursor<'_>, is_every: bool) -> Option<u64> {
    grammar::length(c, |c| length_part(c, is_every), |c| length_part(c, false))
}

/// Reads a part of a duration; returns its seconds and its unit.
fn length_part(c: &mut TokenCursor<'_>, is_every: bool) -> Option<(u64, u64)> {
    if c.take_word("半") {
        c.take_word("个");
        let unit = unit(c).filter(|unit| (MINUTE..=HOUR).contains(unit))?;
        return Some((unit / 2, unit));
    }
    let count = c.attempt(amount);
    let mut count = count.or(is_every.then_some(Amount::of(1)))?;
    if c.take_word("刻钟") {
        return Some((count.times(HOUR / 4)?, HOUR));
    }
    let is_counted = c.take_word("个");
    if c.take_word("半") {
        count = count.and_a_half();
    }
    if is_counted && c.peek() == Some(TokenKind::Word("月")) {
        return c.fail(TimeFault::Months);
    }
    let unit = unit(c)?;
    // 一天半, 两小时半; not after another 半.
    if count.part.0 == 0 && !is_counted && c.take_word("半") {
        count = count.and_a_half();
    }
    seconds_of(c, count, unit)
}

fn unit(c: &mut TokenCursor<'_>) -> Option<u64> {
    c.take_as(|kind| match kind {
        TokenKind::Unit { seconds, .. } => Some(seconds),
        TokenKind::Word("分") => Some(MINUTE),
        TokenKind::Word("天" | "日") => Some(DAY),
        TokenKind::Word("周") => Some(WEEK),
        _ => None,
    })
}

/// Reads clauses that begin with 每 or 隔. “每2小时一次” means the same as “每2小时”.
fn every(c: &mut TokenCursor<'_>) -> Option<Vec<Clause>> {
    let clauses = every_so(c)?;
    if matches!(clauses[..], [Clause::Interval(_)]) {
        c.attempt(|c| c.take_number().filter(|(count, _)| *count == 1 && c.take_word("次")));
    }
    Some(clauses)
}

fn every_so(c: &mut TokenCursor<'_>) -> Option<Vec<Clause>> {
    let often = |seconds| vec![Clause::Interval(Interval { seconds, from_clock: false })];
    let is_each = c.take_word("每");
    if c.take_word("隔") {
        return c.attempt(every_other).or_else(|| {
            // 每隔两天 is ambiguous, since some people mean every third day by it.
            let seconds = length(c, false).filter(|_| is_each)?;
            if seconds >= DAY { c.fail(TimeFault::Gap) } else { Some(often(seconds)) }
        });
    }
    if !is_each {
        return None;
    }
    c.take_word("个");
    if let Some(days) = c.attempt(weekdays) {
        return Some(vec![Clause::Recurrence(Recurrence::Named), Clause::Days(days)]);
    }
    const PERIODS: [(&str, Recurrence); 5] = [
        ("天", Recurrence::Day),
        ("日", Recurrence::Day),
        ("月", Recurrence::Month),
        ("年", Recurrence::Year),
        ("周", Recurrence::Week),
    ];
    if let Some(each) = c.take_meaning(&PERIODS) {
        return Some(vec![Clause::Recurrence(each)]);
    }
    // The part of the day in 每晚十点 belongs to the clock time.
    if matches!(c.peek(), Some(TokenKind::Part(_))) {
        return Some(vec![Clause::Recurrence(Recurrence::Day)]);
    }
    length(c, true).map(often)
}

/// “隔一天”, “隔周”, “隔周二”.
fn every_other(c: &mut TokenCursor<'_>) -> Option<Vec<Clause>> {
    let often = |seconds, from_clock| Clause::Interval(Interval { seconds, from_clock });
    if let Some(day) = c.take_weekday(true) {
        return Some(vec![often(2 * WEEK, false), Clause::Days(DaySpec::Week { set: bit(day), each: false })]);
    }
    c.attempt(|c| c.take_number().filter(|(count, _)| *count == 1));
    c.take_word("个");
    match unit(c)? {
        DAY => Some(vec![often(2 * DAY, true)]),
        WEEK => Some(vec![often(2 * WEEK, false)]),
        _ => None,
    }
}

/// Reads one day or several.
fn days(c: &mut TokenCursor<'_>) -> Option<Vec<Clause>> {
    c.take_word("在");
    if let Some(found) = grammar::day_ahead(c) {
        return Some(found);
    }
    if let Some(ahead) = c.take_meaning(&[("今年", 0), ("明年", 1), ("后年", 2)]) {
        return Some(vec![Clause::Period(CalendarPeriod::Year(ahead))]);
    }
    if let Some(found) = c.attempt(period) {
        return Some(found);
    }
    let found = c.attempt(weekdays).or_else(|| c.attempt(one_of_month)).or_else(|| c.attempt(date));
    found.or_else(|| c.attempt(days_of_month)).map(|days| vec![Clause::Days(days)])
}

/// “下周”, “下下周一”, “这个月”.
fn period(c: &mut TokenCursor<'_>) -> Option<Vec<Clause>> {
    let mut ahead = 0;
    if !c.take_word("这") {
        while c.take_word("下") {
            ahead += 1;
        }
        (ahead > 0).then_some(())?;
    }
    c.take_word("个");
    if let Some(day) = c.take_weekday(true) {
        return Some(vec![
            Clause::Period(CalendarPeriod::Week(ahead)),
            Clause::Days(DaySpec::Week { set: bit(day), each: false }),
        ]);
    }
    match c.take_word("周") {
        true => Some(vec![Clause::Period(CalendarPeriod::Week(ahead))]),
        false => c.take_word("月").then(|| vec![Clause::Period(CalendarPeriod::Month(ahead))]),
    }
}

/// “第二个周一”, “最后一天”.
fn one_of_month(c: &mut TokenCursor<'_>) -> Option<DaySpec> {
    let nth = if c.take_word("最后") {
        c.take_number().filter(|(count, _)| *count == 1)?;
        if c.take_word("天") {
            return Some(DaySpec::Month { set: 0, last: true });
        }
        None
    } else {
        c.take_word("第").then_some(())?;
        Some(c.take_number_in(1..=5)?)
    };
    c.take_word("个");
    c.take_weekday(true).map(|day| DaySpec::Nth(nth, day))
}

/// “2026-12-24”, “2026年12月24日”, “12月24号”.
fn date(c: &mut TokenCursor<'_>) -> Option<DaySpec> {
    if let Some(days) = c.attempt(written_date) {
        return Some(days);
    }
    let year = c.attempt(|c| c.take_number().filter(|(_, digits)| *digits == 4 && c.take_word("年")));
    let (month, _) = c.take_number()?;
    c.take_word("月").then_some(())?;
    let (day, _) = c.take_number()?;
    c.take_any(&["日", "号"]).then(|| grammar::date(c, year.map(|(year, _)| year), month, day))?
}

/// “1号”, “1、15号”, “1日和15日”.
fn days_of_month(c: &mut TokenCursor<'_>) -> Option<DaySpec> {
    let mut is_marked = false;
    let one = |c: &mut TokenCursor<'_>| {
        let (day, _) = c.take_number()?;
        is_marked = c.take_any(&["号", "日"]);
        Some(day)
    };
    let days = c.list(one, joint)?;
    if is_marked { month_days(c, &days) } else { None }
}

fn joint(c: &mut TokenCursor<'_>) -> bool {
    c.take_mark(&['、', ',']) | c.take_word("和")
}

/// “周一”, “周一、三、五”, “周一三五”, “周一到周五”, “工作日”, “周末”.
fn weekdays(c: &mut TokenCursor<'_>) -> Option<DaySpec> {
    let (mut set, mut each) = some_weekdays(c)?;
    // A numeral alone only continues a list of named days: 工作日三 has no meaning.
    let mut is_named = !each && set != WEEKEND;
    while let Some((more, is_each)) = c.attempt(|c| {
        let is_joined = joint(c);
        let several = if is_joined { c.attempt(some_weekdays) } else { None };
        let may_be_sunday = is_joined || set & bit(Weekday::Saturday) != 0;
        let one = |c: &mut TokenCursor<'_>| {
            numeral(c, may_be_sunday).map(|day| (bit(day), false)).filter(|one| is_named && set & one.0 == 0)
        };
        several.or_else(|| one(c))
    }) {
        (set, each) = (set | more, each | is_each);
        is_named = !is_each && more != WEEKEND;
    }
    Some(DaySpec::Week { set, each })
}

/// Returns the days as a set, and whether the words alone imply repetition.
fn some_weekdays(c: &mut TokenCursor<'_>) -> Option<(u8, bool)> {
    if let Some(days) = c.take_meaning(&[("工作日", (MONDAY_TO_FRIDAY, true)), ("周末", (WEEKEND, false))]) {
        return Some(days);
    }
    let first = c.take_weekday(true)?;
    let last = c.attempt(|c| {
        let is_range = c.take_word("到") || c.take_mark(&['-']);
        is_range.then(|| c.take_weekday(true).or_else(|| numeral(c, true)))?
    });
    Some((last.map_or(bit(first), |last| from_to(first, last)), false))
}

/// Reads the day of the week of a numeral alone. 日 counts only if it can mean nothing else.
fn numeral(c: &mut TokenCursor<'_>, may_be_sunday: bool) -> Option<Weekday> {
    let day = c.take_as(|kind| match kind {
        TokenKind::Number { value: value @ 1..=6, digits: 0 } => {
            Weekday::from_monday_one_offset(i8::try_from(value).ok()?).ok()
        }
        TokenKind::Word("日") if may_be_sunday => Some(Weekday::Sunday),
        _ => None,
    })?;
    (!is_counted(c)).then_some(day)
}

/// Returns true if the number before the cursor counts something.
fn is_counted(c: &TokenCursor<'_>) -> bool {
    match c.peek() {
        Some(TokenKind::Word(word)) => {
            ["点", "分", "刻", "刻钟", "号", "日", "月", "年", "个", "天", "周", "半"].contains(&word)
        }
        Some(TokenKind::Unit { .. } | TokenKind::Mark(':')) => true,
        _ => false,
    }
}

/// “9点”, “早上9点和21点”, “9点到17点”.
fn clocks(c: &mut TokenCursor<'_>) -> Option<Vec<Clause>> {
    c.take_any(&["在", "从"]);
    let first = clock(c)?;
    if let Some(last) = c.attempt(|c| {
        let is_stretch = c.take_word("到") || c.take_mark(&['-']);
        is_stretch.then(|| clock(c))?
    }) {
        return Some(vec![Clause::Range(first, later(first, last))]);
    }
    let mut all = vec![first];
    let mut before = first;
    while let Some(next) = c.attempt(|c| joint(c).then(|| clock(c))?) {
        before = later(before, next);
        all.push(before);
    }
    Some(vec![Clause::Clocks(all)])
}

/// Applies the part of the day of a time to the next one: in 下午3点和5点, both times are in the afternoon, while 上午9点和3点 is
/// ambiguous.
fn later(before: ClockTime, next: ClockTime) -> ClockTime {
    let goes_on = next.is_open() && before.part.is_some() && next.hour % 12 > before.hour % 12;
    ClockTime { part: if goes_on { before.part } else { next.part }, ..next }
}

/// Reads a clock time with its part of the day.
fn clock(c: &mut TokenCursor<'_>) -> Option<ClockTime> {
    if c.take_word("正午") {
        return Some(NOON_CLOCK);
    }
    if c.take_word("午夜") {
        let clock = c.attempt(plain_clock).map(|clock| ClockTime { part: Some(LATE), ..clock });
        return Some(clock.unwrap_or(MIDNIGHT_CLOCK));
    }
    let part = c.take_part();
    let clock = c.attempt(clock_short_of).or_else(|| c.attempt(plain_clock))?;
    Some(ClockTime { part, ..clock })
}

/// “差五分九点”.
fn clock_short_of(c: &mut TokenCursor<'_>) -> Option<ClockTime> {
    let minutes = short_of(c)?;
    let (hour, _) = c.take_number()?;
    c.take_word("点").then(|| clock_before(c, minutes, hour))?
}

/// “差五分”, “差一刻”.
fn short_of(c: &mut TokenCursor<'_>) -> Option<u64> {
    c.take_word("差").then_some(())?;
    let (count, _) = c.take_number()?;
    match c.take_word("刻") {
        true => count.checked_mul(15),
        false => c.take_word("分").then_some(count),
    }
}

/// “9点”, “9:05”, “三点半”, “三点一刻”, “十五点三十分”.
fn plain_clock(c: &mut TokenCursor<'_>) -> Option<ClockTime> {
    let (hour, _) = c.take_number()?;
    if let Some(minute) = c.attempt(|c| minutes_behind(c, ':')) {
        return grammar::clock(c, hour, minute);
    }
    c.take_word("点").then_some(())?;
    if let Some(minutes) = c.attempt(short_of) {
        return clock_before(c, minutes, hour);
    }
    let minute = if c.take_word("半") {
        30
    } else if c.take_word("整") {
        0
    } else {
        c.attempt(minutes).unwrap_or(0)
    };
    grammar::clock(c, hour, minute)
}

/// Reads the minutes after 点: “三十分”, “零五”, “一刻”.
fn minutes(c: &mut TokenCursor<'_>) -> Option<u64> {
    let (count, digits) = c.take_number()?;
    if c.take_word("刻") {
        return (1..=3).contains(&count).then_some(count * 15);
    }
    // 三点五 may mean half past three.
    let is_written = digits > 0 || count >= 10;
    (c.take_word("分") || is_written && !is_counted(c)).then_some(count)
}

fn part(c: &mut TokenCursor<'_>) -> Option<Vec<Clause>> {
    c.take_word("在");
    Some(vec![Clause::Part(c.take_part()?)])
}
