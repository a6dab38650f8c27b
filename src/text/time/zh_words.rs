//! The words of Chinese times.

use jiff::civil::Weekday;

use super::part::{AROUND_NOON, DAWN, DUSK, EARLY, LATE, MORNING, NIGHT, NOON_TO_MIDNIGHT, Part};
use super::token::{MOST, Tok, Token};
use super::when::{HOUR, MINUTE};

const fn unit(seconds: u64) -> Tok {
    Tok::Unit { seconds, plural: false }
}

const fn part(part: Part) -> Tok {
    Tok::Part(part)
}

/// What is written in several ways, and what it means. Of the words that fit, the longest counts.
const WORDS: &[(&[&str], Tok)] = &[
    (&["秒", "秒钟"], unit(1)),
    (&["分钟"], unit(MINUTE)),
    (&["小时", "钟头", "钟"], unit(HOUR)),
    (&["凌晨"], part(DAWN)),
    (&["早", "早上", "早晨", "清晨", "清早"], part(EARLY)),
    (&["上午"], part(MORNING)),
    (&["中午"], part(AROUND_NOON)),
    (&["下午"], part(NOON_TO_MIDNIGHT)),
    (&["傍晚"], part(DUSK)),
    (&["晚", "晚上", "晚间", "夜里", "夜晚"], part(NIGHT)),
    (&["半夜", "深夜"], part(LATE)),
    (&["今天", "今日"], Tok::Day(0, None)),
    (&["今早"], Tok::Day(0, Some(EARLY))),
    (&["今晚", "今夜"], Tok::Day(0, Some(NIGHT))),
    (&["明天", "明日"], Tok::Day(1, None)),
    (&["明早"], Tok::Day(1, Some(EARLY))),
    (&["明晚"], Tok::Day(1, Some(NIGHT))),
    (&["后天"], Tok::Day(2, None)),
    (&["大后天"], Tok::Day(3, None)),
    (&["周", "星期", "礼拜"], Tok::Word("周")),
    (&["点", "点钟", "时"], Tok::Word("点")),
    (&["后", "之后", "以后", "过后"], Tok::Word("后")),
    (&["过", "再过"], Tok::Word("过")),
    (&["每", "每逢"], Tok::Word("每")),
    (&["在", "于"], Tok::Word("在")),
    (&["到", "至", "直到"], Tok::Word("到")),
    (&["和", "与", "及", "以及", "还有", "跟"], Tok::Word("和")),
    (&["或", "或者", "还是"], Tok::Word("或")),
    (&["这", "本"], Tok::Word("这")),
    (&["除", "除了", "除去"], Tok::Word("除")),
    (&["开始", "起"], Tok::Word("开始")),
    (&["前", "之前", "以前", "前后", "左右", "以内", "之内", "内", "多"], Tok::Word("前")),
];

/// Words that stand for themselves.
const PLAIN: &str = "天 日 号 月 年 分 半 刻 刻钟 整 差 隔 个 的 从 最后 第 下 次 今年 明年 后年 周末 工作日 正午 午夜";

/// Words with one of the others in them that have nothing to do with time.
const OTHERS: &str = "小时候 时候 时间 时代 到底 分别 在线 年轻 天气 月亮 前往 前去 前台 内容 多少 起床 起来 起飞 次数";

const WEEKDAYS: &[(char, Weekday)] = &[
    ('一', Weekday::Monday),
    ('二', Weekday::Tuesday),
    ('三', Weekday::Wednesday),
    ('四', Weekday::Thursday),
    ('五', Weekday::Friday),
    ('六', Weekday::Saturday),
    ('日', Weekday::Sunday),
    ('天', Weekday::Sunday),
];

const MARKS: &[(char, char)] = &[('：', ':'), ('，', ','), ('–', '-'), ('—', '-'), ('~', '-'), ('～', '-')];

/// The words of the text, the first of them.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next().filter(|_| tokens.len() < MOST) {
        let rest = &text[at..];
        let is_behind_week = tokens.last().is_some_and(|last| last.tok == Tok::Word("周") && last.end == at);
        let weekday = is_behind_week.then(|| weekday(first)).flatten();
        let (tok, length) = match weekday {
            // Of 周三十点 the first is the day.
            Some(day) => (Tok::Weekday { day, plural: false }, first.len_utf8()),
            None => number(rest).or_else(|| word(rest)).unwrap_or_else(|| (mark(first), first.len_utf8())),
        };
        let (start, end) = (at, at + length);
        at = end;
        match tokens.last_mut() {
            _ if first.is_whitespace() => {}
            Some(last) if weekday.is_some() => (last.tok, last.end) = (tok, end),
            _ => tokens.push(Token { tok, start, end }),
        }
    }
    tokens
}

/// The day of the week that the numeral stands for.
fn weekday(numeral: char) -> Option<Weekday> {
    WEEKDAYS.iter().find(|(written, _)| *written == numeral).map(|(_, day)| *day)
}

fn word(text: &str) -> Option<(Tok, usize)> {
    let several = WORDS.iter().flat_map(|(written, tok)| written.iter().map(move |word| (*tok, *word)));
    let plain = PLAIN.split(' ').map(|plain| (Tok::Word(plain), plain));
    let all = several.chain(plain).chain(OTHERS.split(' ').map(|other| (Tok::Unknown, other)));
    all.filter(|(_, word)| text.starts_with(word))
        .max_by_key(|(_, word)| word.len())
        .map(|(tok, word)| (tok, word.len()))
}

fn mark(c: char) -> Tok {
    if c.is_alphanumeric() {
        return Tok::Unknown;
    }
    Tok::Mark(MARKS.iter().find(|(written, _)| *written == c).map_or(c, |(_, mark)| *mark))
}

/// Digits, or numerals up to 九百九十九, and the length that they take.
fn number(text: &str) -> Option<(Tok, usize)> {
    let digit =
        |c: char| c.to_digit(10).or_else(|| u32::from(c).checked_sub(u32::from('０')).filter(|value| *value < 10));
    let digits: String = text.chars().map_while(digit).filter_map(|value| char::from_digit(value, 10)).collect();
    if !digits.is_empty() {
        let length = text.chars().take(digits.len()).map(char::len_utf8).sum();
        let tok = digits.parse().map_or(Tok::Unknown, |value| Tok::Number { value, digits: digits.len() });
        return Some((tok, length));
    }
    let mut rest = text;
    let mut value = 0;
    let mut is_found = false;
    for (unit, name) in [(100, '百'), (10, '十')] {
        // 十 alone is ten.
        let (count, tail) = numeral(rest).unwrap_or((1, rest));
        if let Some(tail) = tail.strip_prefix(name).filter(|_| unit == 10 || tail.len() < rest.len()) {
            (value, rest, is_found) = (value + count * unit, tail, true);
        }
        if value > 0
            && let Some(tail) = rest.strip_prefix('零')
        {
            rest = tail;
        }
    }
    match numeral(rest) {
        // 一百二 may be 102 or 120.
        Some(_) if value > 0 && value % 100 == 0 && !text[..text.len() - rest.len()].ends_with('零') => {}
        Some((ones, tail)) => (value, rest, is_found) = (value + ones, tail, true),
        None => {
            if let Some(tail) = rest.strip_prefix(['零', '〇']).filter(|_| !is_found) {
                let (ones, tail) = numeral(tail).unwrap_or((0, tail));
                (value, rest, is_found) = (ones, tail, true);
            }
        }
    }
    // 零五 is written as minutes are.
    let digits = if value > 0 && text.starts_with('零') { 2 } else { 0 };
    is_found.then_some((Tok::Number { value, digits }, text.len() - rest.len()))
}

fn numeral(text: &str) -> Option<(u64, &str)> {
    let first = text.chars().next()?;
    let value = match first {
        '两' => 2,
        first => (1..).zip("一二三四五六七八九".chars()).find(|(_, numeral)| *numeral == first)?.0,
    };
    Some((value, &text[first.len_utf8()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numerals() {
        for (text, expected) in [
            ("零", Some((0, 1))),
            ("零五分", Some((5, 2))),
            ("两点", Some((2, 1))),
            ("十", Some((10, 1))),
            ("十二点", Some((12, 2))),
            ("三十五分", Some((35, 3))),
            ("一三五", Some((1, 1))),
            ("一百", Some((100, 2))),
            ("一百零五", Some((105, 4))),
            ("一百二十", Some((120, 4))),
            ("一百二", Some((100, 2))),
            ("１２", Some((12, 2))),
            ("百", None),
            ("天", None),
        ] {
            let found = number(text).map(|(tok, length)| match tok {
                Tok::Number { value, .. } => (value, text[..length].chars().count()),
                _ => (u64::MAX, 0),
            });
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn days_of_the_week_are_one_word() {
        let found = |text: &str| tokens(text).into_iter().map(|token| token.tok).collect::<Vec<_>>();
        let wednesday = Tok::Weekday { day: Weekday::Wednesday, plural: false };
        assert_eq!(found("周三十点"), [wednesday, Tok::Number { value: 10, digits: 0 }, Tok::Word("点")]);
        assert_eq!(found("每 周末")[1], Tok::Word("周末"));
        assert_eq!(tokens(&"天".repeat(1_000)).len(), MOST);
    }
}
