//! The Chinese lexer.

use jiff::civil::Weekday;

use super::clock::{AROUND_NOON, DAWN, DUSK, DayPart, EARLY, LATE, MORNING, NIGHT, NOON_TO_MIDNIGHT};
use super::expression::{HOUR, MINUTE};
use super::token::{MAX_TOKENS, TimeToken, TokenKind};

const fn unit(seconds: u64) -> TokenKind {
    TokenKind::Unit { seconds, plural: false }
}

const fn part(part: DayPart) -> TokenKind {
    TokenKind::Part(part)
}

/// Tokens with several spellings. The longest matching spelling counts.
const WORDS: &[(&[&str], TokenKind)] = &[
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
    (&["今天", "今日"], TokenKind::Day(0, None)),
    (&["今早"], TokenKind::Day(0, Some(EARLY))),
    (&["今晚", "今夜"], TokenKind::Day(0, Some(NIGHT))),
    (&["明天", "明日"], TokenKind::Day(1, None)),
    (&["明早"], TokenKind::Day(1, Some(EARLY))),
    (&["明晚"], TokenKind::Day(1, Some(NIGHT))),
    (&["后天"], TokenKind::Day(2, None)),
    (&["大后天"], TokenKind::Day(3, None)),
    (&["周", "星期", "礼拜"], TokenKind::Word("周")),
    (&["点", "点钟", "时"], TokenKind::Word("点")),
    (&["后", "之后", "以后", "过后"], TokenKind::Word("后")),
    (&["过", "再过"], TokenKind::Word("过")),
    (&["每", "每逢"], TokenKind::Word("每")),
    (&["在", "于"], TokenKind::Word("在")),
    (&["到", "至", "直到"], TokenKind::Word("到")),
    (&["和", "与", "及", "以及", "还有", "跟"], TokenKind::Word("和")),
    (&["或", "或者", "还是"], TokenKind::Word("或")),
    (&["这", "本"], TokenKind::Word("这")),
    (&["除", "除了", "除去"], TokenKind::Word("除")),
    (&["开始", "起"], TokenKind::Word("开始")),
    (&["前", "之前", "以前", "前后", "之间", "左右", "以内", "之内", "内", "多"], TokenKind::Word("前")),
];

/// Keywords with one spelling.
const PLAIN: &str = "天 日 号 月 年 分 半 刻 刻钟 整 差 隔 个 的 从 最后 第 下 次 今年 明年 后年 周末 工作日 正午 午夜";

/// Words that contain a keyword but are not about time.
const OTHERS: &str = "小时候 时候 时间 时代 到底 分别 在线 年轻 天气 月亮 前往 前去 前台 内容 多少 起床 起来 起飞 次数 号楼 号线 号门 号店 号机 号院 \
    号桌 号厅 号馆 号房 号码 早一点 晚一点 早点 早些 早起 早睡 早饭 早餐 早茶 早晚 早会 早班 早操 早读 早市 早教 早退 早日 早安 晚点 晚些 晚起 晚睡 晚饭 晚餐 晚会 晚班 晚宴 \
    晚安 晚自习 晚归 晚年 晚辈";

/// Words that are a part of the day only after a day or before a number: 周五晚, 早8点. Elsewhere, they begin other words.
const SHORT_PARTS: &[char] = &['早', '晚'];

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

/// Returns the tokens at the beginning of the text.
pub(super) fn tokens(text: &str) -> Vec<TimeToken> {
    let mut tokens: Vec<TimeToken> = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next().filter(|_| tokens.len() < MAX_TOKENS) {
        let rest = &text[at..];
        let is_behind_week = tokens.last().is_some_and(|last| last.kind == TokenKind::Word("周") && last.end == at);
        let weekday = is_behind_week.then(|| weekday(first)).flatten();
        let (kind, length) = match weekday {
            // In 周三十点, the first numeral is the day of the week.
            Some(day) => (TokenKind::Weekday { day, plural: false }, first.len_utf8()),
            None => number(rest).or_else(|| word(rest)).unwrap_or_else(|| (mark(first), first.len_utf8())),
        };
        let is_short = SHORT_PARTS.contains(&first) && length == first.len_utf8();
        let is_number_next = || number(rest[length..].trim_start()).is_some();
        let kind = if is_short && !is_day(tokens.last()) && !is_number_next() { TokenKind::Unknown } else { kind };
        let (start, end) = (at, at + length);
        at = end;
        match tokens.last_mut() {
            _ if first.is_whitespace() => {}
            Some(last) if weekday.is_some() => (last.kind, last.end) = (kind, end),
            _ => tokens.push(TimeToken { kind, start, end }),
        }
    }
    tokens
}

/// Returns true if the token ends the name of a day: 周五, 明天, 24号, 每.
fn is_day(token: Option<&TimeToken>) -> bool {
    matches!(
        token.map(|token| token.kind),
        Some(
            TokenKind::Weekday { .. }
                | TokenKind::Day(..)
                | TokenKind::Word("每" | "天" | "日" | "号" | "周末" | "工作日" | "的")
        )
    )
}

/// Returns the day of the week that a numeral means.
fn weekday(numeral: char) -> Option<Weekday> {
    WEEKDAYS.iter().find(|(written, _)| *written == numeral).map(|(_, day)| *day)
}

fn word(text: &str) -> Option<(TokenKind, usize)> {
    let several = WORDS.iter().flat_map(|(written, kind)| written.iter().map(move |word| (*kind, *word)));
    let plain = PLAIN.split(' ').map(|plain| (TokenKind::Word(plain), plain));
    let all = several.chain(plain).chain(OTHERS.split(' ').map(|other| (TokenKind::Unknown, other)));
    all.filter(|(_, word)| text.starts_with(word))
        .max_by_key(|(_, word)| word.len())
        .map(|(kind, word)| (kind, word.len()))
}

fn mark(c: char) -> TokenKind {
    if c.is_alphanumeric() {
        return TokenKind::Unknown;
    }
    TokenKind::Mark(MARKS.iter().find(|(written, _)| *written == c).map_or(c, |(_, mark)| *mark))
}

/// Reads digits, or numerals up to 九百九十九; returns the token and its length in bytes.
fn number(text: &str) -> Option<(TokenKind, usize)> {
    let digit =
        |c: char| c.to_digit(10).or_else(|| u32::from(c).checked_sub(u32::from('０')).filter(|value| *value < 10));
    let digits: String = text.chars().map_while(digit).filter_map(|value| char::from_digit(value, 10)).collect();
    if !digits.is_empty() {
        let length = text.chars().take(digits.len()).map(char::len_utf8).sum();
        let kind = digits.parse().map_or(TokenKind::Unknown, |value| TokenKind::Number { value, digits: digits.len() });
        return Some((kind, length));
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
    // 零五 counts as two digits, as minutes have.
    let digits = if value > 0 && text.starts_with('零') { 2 } else { 0 };
    is_found.then_some((TokenKind::Number { value, digits }, text.len() - rest.len()))
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
    fn numerals_become_numbers() {
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
            let found = number(text).map(|(kind, length)| match kind {
                TokenKind::Number { value, .. } => (value, text[..length].chars().count()),
                _ => (u64::MAX, 0),
            });
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn days_of_the_week_are_one_token() {
        let found = |text: &str| tokens(text).into_iter().map(|token| token.kind).collect::<Vec<_>>();
        let wednesday = TokenKind::Weekday { day: Weekday::Wednesday, plural: false };
        assert_eq!(found("周三十点"), [wednesday, TokenKind::Number { value: 10, digits: 0 }, TokenKind::Word("点")]);
        assert_eq!(found("每 周末")[1], TokenKind::Word("周末"));
        assert_eq!(tokens(&"天".repeat(1_000)).len(), MAX_TOKENS);
    }

    #[test]
    fn short_parts_of_the_day_need_a_day_or_a_number() {
        for (text, expected) in [
            ("早8点", true),
            ("晚 十点", true),
            ("周五晚", true),
            ("12月24日晚聚餐", true),
            ("每早", true),
            ("早", false),
            ("晚", false),
            ("早点睡", false),
            ("明天早起", false),
            ("晚上", true),
            ("每晚饭后", false),
        ] {
            let has_part = tokens(text).iter().any(|token| matches!(token.kind, TokenKind::Part(_)));
            assert_eq!(has_part, expected, "{text}");
        }
    }
}
