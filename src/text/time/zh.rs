//! Chinese times: “10分钟后”, “明天下午三点半”, “每周一和周四早上8点”.

use jiff::civil::Weekday;

use super::common::{self, Amount, amount, clock_before, minutes_behind, month_days, written_date};
use super::misread::Why;
use super::part::{Clock, LATE, MIDNIGHT_CLOCK, NOON_CLOCK};
use super::said::{Days, Each, Frame, MONDAY_TO_FRIDAY, Often, Piece, WEEKEND, bit, from_to};
use super::token::{Cursor, Tok};
use super::when::{DAY, HOUR, MINUTE, WEEK};

/// What stands at the place in the words.
pub(super) fn piece(c: &mut Cursor<'_>) -> Option<Vec<Piece>> {
    c.attempt(wait)
        .or_else(|| c.attempt(every))
        .or_else(|| c.attempt(days))
        .or_else(|| c.attempt(clocks))
        .or_else(|| c.attempt(part))
}

/// “10分钟后”, “过半小时”.
fn wait(c: &mut Cursor<'_>) -> Option<Vec<Piece>> {
    c.word("在");
    let is_led = c.word("过");
    let seconds = length(c, false)?;
    let is_tailed = c.word("后");
    (is_led || is_tailed).then(|| vec![Piece::Wait(seconds)])
}

/// “10分钟”, “一个半小时”, “1小时30分钟”; behind 每 also “小时”.
pub(super) fn length(c: &mut Cursor<'_>, is_every: bool) -> Option<u64> {
    common::length(c, |c| length_part(c, is_every), |c| length_part(c, false))
}

/// In seconds, and its unit.
fn length_part(c: &mut Cursor<'_>, is_every: bool) -> Option<(u64, u64)> {
    if c.word("半") {
        c.word("个");
        let unit = unit(c).filter(|unit| (MINUTE..=HOUR).contains(unit))?;
        return Some((unit / 2, unit));
    }
    let count = c.attempt(amount);
    let mut count = count.or(is_every.then_some(Amount::of(1)))?;
    if c.word("刻钟") {
        return Some((count.times(HOUR / 4)?, HOUR));
    }
    let is_counted = c.word("个");
    if c.word("半") {
        count = count.and_a_half();
    }
    if is_counted && c.peek() == Some(Tok::Word("月")) {
        return c.blame(Why::Months);
    }
    let unit = unit(c)?;
    // 一天半, 两小时半; behind a 半 it is none.
    if count.part.0 == 0 && !is_counted && c.word("半") {
        count = count.and_a_half();
    }
    match count.times(unit) {
        Some(seconds) => Some((seconds, unit)),
        None => c.blame(Why::TooLong),
    }
}

fn unit(c: &mut Cursor<'_>) -> Option<u64> {
    let seconds = match c.peek()? {
        Tok::Unit { seconds, .. } => seconds,
        Tok::Word("分") => MINUTE,
        Tok::Word("天" | "日") => DAY,
        Tok::Word("周") => WEEK,
        _ => return None,
    };
    c.step();
    Some(seconds)
}

/// What begins with 每 or 隔; “每2小时一次” is no more than “每2小时”.
fn every(c: &mut Cursor<'_>) -> Option<Vec<Piece>> {
    let pieces = every_so(c)?;
    if matches!(pieces[..], [Piece::Often(_)]) {
        c.attempt(|c| c.number().filter(|(count, _)| *count == 1 && c.word("次")));
    }
    Some(pieces)
}

fn every_so(c: &mut Cursor<'_>) -> Option<Vec<Piece>> {
    let often = |seconds| vec![Piece::Often(Often { seconds, from_clock: false })];
    let is_each = c.word("每");
    if c.word("隔") {
        return c.attempt(every_other).or_else(|| {
            // 每隔两天 is each third day to some.
            let seconds = length(c, false).filter(|_| is_each)?;
            if seconds >= DAY { c.blame(Why::Gap) } else { Some(often(seconds)) }
        });
    }
    if !is_each {
        return None;
    }
    c.word("个");
    if let Some(days) = c.attempt(weekdays) {
        return Some(vec![Piece::Each(Each::Named), Piece::Days(days)]);
    }
    for (word, each) in
        [("天", Each::Day), ("日", Each::Day), ("月", Each::Month), ("年", Each::Year), ("周", Each::Week)]
    {
        if c.word(word) {
            return Some(vec![Piece::Each(each)]);
        }
    }
    // 每晚十点: the part of the day is left for the clock.
    if matches!(c.peek(), Some(Tok::Part(_))) {
        return Some(vec![Piece::Each(Each::Day)]);
    }
    length(c, true).map(often)
}

/// “隔一天”, “隔周”, “隔周二”.
fn every_other(c: &mut Cursor<'_>) -> Option<Vec<Piece>> {
    let often = |seconds, from_clock| Piece::Often(Often { seconds, from_clock });
    if let Some(day) = weekday(c) {
        return Some(vec![often(2 * WEEK, false), Piece::Days(Days::Week { set: bit(day), each: false })]);
    }
    c.attempt(|c| c.number().filter(|(count, _)| *count == 1));
    c.word("个");
    match unit(c)? {
        DAY => Some(vec![often(2 * DAY, true)]),
        WEEK => Some(vec![often(2 * WEEK, false)]),
        _ => None,
    }
}

/// One day or several.
fn days(c: &mut Cursor<'_>) -> Option<Vec<Piece>> {
    c.word("在");
    if let Some(Tok::Day(ahead, part)) = c.peek() {
        c.step();
        return Some([Piece::Days(Days::Ahead(ahead))].into_iter().chain(part.map(Piece::Part)).collect());
    }
    for (ahead, word) in (0..).zip(["今年", "明年", "后年"]) {
        if c.word(word) {
            return Some(vec![Piece::Frame(Frame::Year(ahead))]);
        }
    }
    if let Some(found) = c.attempt(frame) {
        return Some(found);
    }
    let found = c.attempt(weekdays).or_else(|| c.attempt(one_of_month)).or_else(|| c.attempt(date));
    found.or_else(|| c.attempt(days_of_month)).map(|days| vec![Piece::Days(days)])
}

/// “下周”, “下下周一”, “这个月”.
fn frame(c: &mut Cursor<'_>) -> Option<Vec<Piece>> {
    let mut ahead = 0;
    if !c.word("这") {
        while c.word("下") {
            ahead += 1;
        }
        (ahead > 0).then_some(())?;
    }
    c.word("个");
    if let Some(day) = weekday(c) {
        return Some(vec![Piece::Frame(Frame::Week(ahead)), Piece::Days(Days::Week { set: bit(day), each: false })]);
    }
    match c.word("周") {
        true => Some(vec![Piece::Frame(Frame::Week(ahead))]),
        false => c.word("月").then(|| vec![Piece::Frame(Frame::Month(ahead))]),
    }
}

/// “第二个周一”, “最后一天”.
fn one_of_month(c: &mut Cursor<'_>) -> Option<Days> {
    let nth = if c.word("最后") {
        c.number().filter(|(count, _)| *count == 1)?;
        if c.word("天") {
            return Some(Days::Month { set: 0, last: true });
        }
        None
    } else {
        c.word("第").then_some(())?;
        Some(c.number_in(1..=5)?)
    };
    c.word("个");
    weekday(c).map(|day| Days::Nth(nth, day))
}

/// “2026-12-24”, “2026年12月24日”, “12月24号”.
fn date(c: &mut Cursor<'_>) -> Option<Days> {
    if let Some(days) = c.attempt(written_date) {
        return Some(days);
    }
    let year = c.attempt(|c| c.number().filter(|(_, digits)| *digits == 4 && c.word("年")));
    let (month, _) = c.number()?;
    c.word("月").then_some(())?;
    let (day, _) = c.number()?;
    c.any(&["日", "号"]).then(|| common::date(c, year.map(|(year, _)| year), month, day))?
}

/// “1号”, “1、15号”, “1日和15日”.
fn days_of_month(c: &mut Cursor<'_>) -> Option<Days> {
    let mut is_marked = false;
    let one = |c: &mut Cursor<'_>| {
        let (day, _) = c.number()?;
        is_marked = c.any(&["号", "日"]);
        Some(day)
    };
    let days = c.list(one, joint)?;
    if is_marked { month_days(c, &days) } else { None }
}

fn joint(c: &mut Cursor<'_>) -> bool {
    c.mark(&['、', ',']) | c.word("和")
}

/// “周一”, “周一、三、五”, “周一三五”, “周一到周五”, “工作日”, “周末”.
fn weekdays(c: &mut Cursor<'_>) -> Option<Days> {
    let (mut set, mut each) = some_weekdays(c)?;
    // A numeral alone goes on with a day: 工作日三 says nothing.
    let mut is_named = !each && set != WEEKEND;
    while let Some((more, is_each)) = c.attempt(|c| {
        let is_joined = joint(c);
        let several = if is_joined { c.attempt(some_weekdays) } else { None };
        let may_be_sunday = is_joined || set & bit(Weekday::Saturday) != 0;
        let one = |c: &mut Cursor<'_>| {
            numeral(c, may_be_sunday).map(|day| (bit(day), false)).filter(|one| is_named && set & one.0 == 0)
        };
        several.or_else(|| one(c))
    }) {
        (set, each) = (set | more, each | is_each);
        is_named = !is_each && more != WEEKEND;
    }
    Some(Days::Week { set, each })
}

/// As a set, and whether the words alone say that it repeats.
fn some_weekdays(c: &mut Cursor<'_>) -> Option<(u8, bool)> {
    for (word, set, each) in [("工作日", MONDAY_TO_FRIDAY, true), ("周末", WEEKEND, false)] {
        if c.word(word) {
            return Some((set, each));
        }
    }
    let first = weekday(c)?;
    let last = c.attempt(|c| {
        let is_range = c.word("到") || c.mark(&['-']);
        is_range.then(|| weekday(c).or_else(|| numeral(c, true)))?
    });
    Some((last.map_or(bit(first), |last| from_to(first, last)), false))
}

fn weekday(c: &mut Cursor<'_>) -> Option<Weekday> {
    let Tok::Weekday { day, .. } = c.peek()? else { return None };
    c.step();
    Some(day)
}

/// The day of the week of a numeral alone; 日 only where nothing else can be meant.
fn numeral(c: &mut Cursor<'_>, may_be_sunday: bool) -> Option<Weekday> {
    let day = match c.peek()? {
        Tok::Number { value: value @ 1..=6, digits: 0 } => {
            Weekday::from_monday_one_offset(i8::try_from(value).ok()?).ok()?
        }
        Tok::Word("日") if may_be_sunday => Weekday::Sunday,
        _ => return None,
    };
    c.step();
    (!is_counted(c)).then_some(day)
}

/// Whether the number before has something that it counts.
fn is_counted(c: &Cursor<'_>) -> bool {
    match c.peek() {
        Some(Tok::Word(word)) => {
            ["点", "分", "刻", "刻钟", "号", "日", "月", "年", "个", "天", "周", "半"].contains(&word)
        }
        Some(Tok::Unit { .. } | Tok::Mark(':')) => true,
        _ => false,
    }
}

/// “9点”, “早上9点和21点”, “9点到17点”.
fn clocks(c: &mut Cursor<'_>) -> Option<Vec<Piece>> {
    c.any(&["在", "从"]);
    let first = clock(c)?;
    if let Some(last) = c.attempt(|c| {
        let is_stretch = c.word("到") || c.mark(&['-']);
        is_stretch.then(|| clock(c))?
    }) {
        return Some(vec![Piece::Stretch(first, later(first, last))]);
    }
    let mut all = vec![first];
    let mut before = first;
    while let Some(next) = c.attempt(|c| joint(c).then(|| clock(c))?) {
        before = later(before, next);
        all.push(before);
    }
    Some(vec![Piece::Clocks(all)])
}

/// Of 下午3点和5点 both are in the afternoon; 上午9点和3点 leaves open what is meant.
fn later(before: Clock, next: Clock) -> Clock {
    let goes_on = next.is_open() && before.part.is_some() && next.hour % 12 > before.hour % 12;
    Clock { part: if goes_on { before.part } else { next.part }, ..next }
}

/// A clock time with its part of the day.
fn clock(c: &mut Cursor<'_>) -> Option<Clock> {
    if c.word("正午") {
        return Some(NOON_CLOCK);
    }
    if c.word("午夜") {
        let clock = c.attempt(plain_clock).map(|clock| Clock { part: Some(LATE), ..clock });
        return Some(clock.unwrap_or(MIDNIGHT_CLOCK));
    }
    let part = match c.peek()? {
        Tok::Part(part) => Some(part),
        _ => None,
    };
    c.at += usize::from(part.is_some());
    let clock = c.attempt(clock_short_of).or_else(|| c.attempt(plain_clock))?;
    Some(Clock { part, ..clock })
}

/// “差五分九点”.
fn clock_short_of(c: &mut Cursor<'_>) -> Option<Clock> {
    let minutes = short_of(c)?;
    let (hour, _) = c.number()?;
    c.word("点").then(|| clock_before(c, minutes, hour))?
}

/// “差五分”, “差一刻”.
fn short_of(c: &mut Cursor<'_>) -> Option<u64> {
    c.word("差").then_some(())?;
    let (count, _) = c.number()?;
    match c.word("刻") {
        true => count.checked_mul(15),
        false => c.word("分").then_some(count),
    }
}

/// “9点”, “9:05”, “三点半”, “三点一刻”, “十五点三十分”.
fn plain_clock(c: &mut Cursor<'_>) -> Option<Clock> {
    let (hour, _) = c.number()?;
    if let Some(minute) = c.attempt(|c| minutes_behind(c, ':')) {
        return common::clock(c, hour, minute);
    }
    c.word("点").then_some(())?;
    if let Some(minutes) = c.attempt(short_of) {
        return clock_before(c, minutes, hour);
    }
    let minute = if c.word("半") {
        30
    } else if c.word("整") {
        0
    } else {
        c.attempt(minutes).unwrap_or(0)
    };
    common::clock(c, hour, minute)
}

/// What stands behind 点: “三十分”, “零五”, “一刻”.
fn minutes(c: &mut Cursor<'_>) -> Option<u64> {
    let (count, digits) = c.number()?;
    if c.word("刻") {
        return (1..=3).contains(&count).then_some(count * 15);
    }
    // 三点五 may be half past three.
    let is_written = digits > 0 || count >= 10;
    (c.word("分") || is_written && !is_counted(c)).then_some(count)
}

fn part(c: &mut Cursor<'_>) -> Option<Vec<Piece>> {
    c.word("在");
    let Tok::Part(part) = c.peek()? else { return None };
    c.step();
    Some(vec![Piece::Part(part)])
}
