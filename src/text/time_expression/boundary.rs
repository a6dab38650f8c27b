//! Detects time words at the boundary between a text and a time expression. A text with such words is not a subject of
//! a reminder, since they belong to the time.

use super::clauses::Clauses;
use super::error::TimeParseError;
use super::parse::{clause, parse_error, parse_prefix, tokens};
use super::token::{TimeToken, TokenCursor, TokenKind};
use crate::text::Language;

/// Words that join two times, or introduce a time.
const JOINTS: &[&str] = &["and", "or", "to", "about", "for", "starting", "和", "或", "到", "开始"];
/// Words that change or continue the time before them, whatever text follows.
const CHANGES: &[&str] = &["except", "twice", "after", "and", "or", "前", "后", "除", "或", "次"];
/// Other words at the end of a text before a time that belong to the time.
const LEADS: &[&str] = &["at", "by", "on", "in", "from", "between", "every", "the", "在", "从", "每"];
/// The characters of Chinese conjunctions: 和, 以及, 还有, ….
const JOINT_LETTERS: &str = "和与跟及以还有、，,";
/// Days without a fixed date, or whose date is unknown here. After a conjunction such as 和, they continue the time before it.
const OTHER_DAYS: &str = "春节 除夕 大年 正月 腊月 农历 阴历 初一 元旦 元宵 清明 端午 七夕 中秋 重阳 国庆 劳动节 五一 十一假 情人节 妇女节 儿童节 \
    教师节 母亲节 父亲节 感恩节 万圣节 复活节 圣诞 平安夜 节假日 假日 假期 放假 节日 生日 月初 月中 月底 月末 年初 年底 年末 季度";
const MARKS: &[char] = &[',', '、', ';', '&', '-', '.', ':'];
/// Marks between two tasks.
const TASK_MARKS: &[char] = &[',', ';', '；', '。'];
/// The maximum number of tokens at the end of a text that are examined.
const LAST: usize = 12;

/// Returns true if a text that follows a time begins with time words, valid or not: `and 25:00`, `到10点`.
pub fn starts_with_time(text: &str, language: Language) -> bool {
    let tokens = tokens(text, language);
    let mut c = TokenCursor::new(&tokens);
    while c.take_mark(MARKS) {}
    if c.take_any(CHANGES) {
        return true;
    }
    while c.take_any(JOINTS) || c.take_mark(MARKS) {}
    let joined = text.trim_start_matches(|c: char| c.is_whitespace() || JOINT_LETTERS.contains(c));
    if joined.len() < text.trim_start().len() && OTHER_DAYS.split(' ').any(|day| joined.starts_with(day)) {
        return true;
    }
    // A bare number belongs to the time before it.
    let is_number = language == Language::En && matches!(c.peek(), Some(TokenKind::Number { .. }));
    is_number || is_time(&c, language).is_some()
}

/// Returns true if an English text begins with a month or another period: `january`, `the month`, `next week`.
pub fn starts_with_period(text: &str) -> bool {
    let tokens = tokens(text, Language::En);
    let mut c = TokenCursor::new(&tokens);
    c.take_any(&["the", "this", "next", "every"]);
    matches!(
        c.peek(),
        Some(
            TokenKind::Month(_) | TokenKind::Unit { .. } | TokenKind::Word("month" | "year") | TokenKind::Number { .. }
        )
    )
}

/// Returns true if a text before a time ends with time words, or with a word that introduces a time.
pub fn ends_with_time(text: &str, language: Language) -> bool {
    let mut tokens = tokens(text, language);
    let is_lead = |token: &TimeToken| {
        matches!(token.kind, TokenKind::Word(word) if LEADS.contains(&word) || JOINTS.contains(&word))
            || matches!(token.kind, TokenKind::Mark(mark) if MARKS.contains(&mark))
    };
    while tokens.last().is_some_and(is_lead) {
        tokens.pop();
    }
    let last = tokens.len();
    (last.saturating_sub(LAST)..last).any(|at| {
        let c = TokenCursor { at, ..TokenCursor::new(&tokens) };
        is_time(&c, language).is_some_and(|end| end == last)
    })
}

/// Returns the positions at which a time at the beginning of a text may end: none within a word, and none before the last word
/// of the longest time.
pub fn time_ends(text: &str, language: Language) -> Vec<usize> {
    let tokens = tokens(text, language);
    let Ok(longest) = parse_prefix(text, &tokens, language) else { return Vec::new() };
    tokens.iter().map(|token| token.end).filter(|end| *end >= longest.end).collect()
}

/// Returns true if a time begins a text, or follows a conjunction or a comma in it: `buy milk and on Friday call Ann`. A second
/// task with its own time begins there. `from` is the first word that counts.
pub fn has_second_time(text: &str, language: Language, from: usize) -> bool {
    let tokens = tokens(text, language);
    let is_joint = |token: &TimeToken| match token.kind {
        TokenKind::Word(word) => ["and", "or", "和", "或"].contains(&word),
        TokenKind::Mark(mark) => TASK_MARKS.contains(&mark),
        _ => false,
    };
    (from..tokens.len()).any(|at| {
        let mut c = TokenCursor { at, ..TokenCursor::new(&tokens) };
        (at == 0 || is_joint(&tokens[at - 1]))
            && clause(&mut c, language, &Clauses::default()).is_some()
            // 周一和周二的报表 is one thing.
            && !c.take_word("的")
    })
}

/// Returns true if a conjunction or a comma follows a time in a text: `buy milk tomorrow and call Ann`.
pub fn has_time_before_joint(text: &str, language: Language) -> bool {
    let joints = [" and ", ",", ";", "，", "；", "。", "和"];
    joints.iter().flat_map(|joint| text.match_indices(joint)).any(|(at, _)| ends_with_time(&text[..at], language))
}

/// Returns the index of the token after the time at the cursor; `None` if there is no time. The time may be invalid.
fn is_time(c: &TokenCursor<'_>, language: Language) -> Option<usize> {
    let mut whole = TokenCursor { fault: None, ..*c };
    if clause(&mut whole, language, &Clauses::default()).is_some() {
        return Some(whole.at);
    }
    // Numbers of these forms are times as well: 三四点, 25:00, 3-4 pm.
    let rest = &c.tokens[c.at.min(c.tokens.len())..];
    let is_in = |kind: TokenKind| match kind {
        TokenKind::Number { .. } | TokenKind::Mark('-' | '、' | ':' | '.' | '/') => true,
        TokenKind::Word(word) => JOINTS.contains(&word),
        _ => false,
    };
    let is_number = matches!(c.peek(), Some(TokenKind::Number { .. }));
    let numbers = if is_number { rest.iter().take_while(|token| is_in(token.kind)).count() } else { 0 };
    let is_counted = match rest.get(numbers).filter(|_| is_number).map(|token| token.kind) {
        Some(TokenKind::Word(word)) => ["th", "am", "pm", "o'clock", "点", "号", "次"].contains(&word),
        Some(TokenKind::Unit { .. }) => language == Language::En,
        _ => false,
    };
    (whole.fault.is_some() || is_counted).then_some(c.at + numbers + usize::from(is_counted))
}

/// Returns the error of a text that begins or ends with a time that cannot be read completely; `None` for any other text.
pub fn explain_partial_time(text: &str, language: Language) -> Option<TimeParseError> {
    if !starts_with_time(text, language) && !ends_with_time(text, language) {
        return None;
    }
    let mut wrong = None;
    for token in tokens(text, language) {
        let (before, rest) = text.split_at(token.start);
        let found = match parse_prefix(rest, &tokens(rest, language), language) {
            Err(wrong) => return Some(wrong),
            Ok(found) => found,
        };
        wrong = wrong.or(found.fault);
        if found.is_any {
            let (understood, after) = rest.split_at(found.end);
            let fault = found.clauses.combine().err();
            let after = match fault {
                // The fault is in the words that were understood; the others are not a time.
                Some(_) => "",
                // The time is complete, so the fault is in the text before it.
                None if after.trim().is_empty() || starts_with_time(before, language) => before,
                None => after,
            };
            return Some(parse_error(understood, after, fault.or(wrong)));
        }
    }
    Some(parse_error("", text, wrong))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_continue_a_time_are_detected() {
        for (text, language, expected) in [
            ("and in 20 minutes to stretch", Language::En, true),
            ("and 10 to call", Language::En, true),
            ("and 25:00 to call", Language::En, true),
            ("10 to call", Language::En, true),
            ("or 5", Language::En, true),
            ("and Friday", Language::En, true),
            ("at 25:00 to call", Language::En, true),
            ("call Ann at 10", Language::En, false),
            ("and the day before Easter", Language::En, true),
            ("before lunch", Language::En, true),
            ("to Ann", Language::En, false),
            ("the Sunday paper", Language::En, false),
            ("on Friday's list", Language::En, false),
            ("an hour of yoga", Language::En, false),
            ("和20分钟后喝水", Language::Zh, true),
            ("和周四喝水", Language::Zh, true),
            ("到10点开会", Language::Zh, true),
            ("至晚上8点", Language::Zh, true),
            ("三四点开会", Language::Zh, true),
            ("前交作业", Language::Zh, true),
            ("除了周日浇花", Language::Zh, true),
            ("开始每天9点浇花", Language::Zh, true),
            ("开始写作业", Language::Zh, false),
            ("except on holidays to water", Language::En, true),
            ("for 3 days to water", Language::En, true),
            ("for the meeting", Language::En, false),
            ("25点开会", Language::Zh, true),
            ("到公司", Language::Zh, false),
            ("和复活节前一天浇花", Language::Zh, true),
            ("、春节浇花", Language::Zh, true),
            ("以及春节浇花", Language::Zh, true),
            ("，还有春节浇花", Language::Zh, true),
            ("和小王开会", Language::Zh, false),
            ("和初中同学吃饭", Language::Zh, false),
            ("和三个人吃饭", Language::Zh, false),
            ("前往机场", Language::Zh, false),
            ("三次喝水", Language::Zh, true),
            ("次健身", Language::Zh, true),
            ("之间直线最短", Language::Zh, true),
            ("1号楼开会", Language::Zh, false),
            ("早饭后吃药", Language::Zh, false),
            ("浇花", Language::Zh, false),
            ("", Language::En, false),
        ] {
            assert_eq!(starts_with_time(text, language), expected, "{text}");
        }
    }

    #[test]
    fn texts_that_introduce_a_time_are_detected() {
        for (text, language, expected) in [
            ("call Ann at 3pm tomorrow and", Language::En, true),
            ("call Ann at 3pm tomorrow and on", Language::En, true),
            ("call Ann at 25:00", Language::En, true),
            ("call Ann at 9,", Language::En, true),
            ("call Ann on the 40th", Language::En, true),
            ("call Ann at 3-4 pm", Language::En, true),
            ("read chapter 9", Language::En, false),
            ("read the Sunday paper", Language::En, false),
            ("call Ann", Language::En, false),
            ("fish and", Language::En, false),
            ("浇花，每周一和", Language::Zh, true),
            ("浇花25点", Language::Zh, true),
            ("浇花", Language::Zh, false),
        ] {
            assert_eq!(ends_with_time(text, language), expected, "{text}");
        }
    }

    #[test]
    fn second_times_are_detected() {
        for (text, language, second, before) in [
            ("buy milk tomorrow and call Ann", Language::En, false, true),
            ("buy milk and on Friday call Ann", Language::En, true, false),
            ("today to lock up", Language::En, true, false),
            ("buy eggs, 2 cartons of milk and bread", Language::En, false, false),
            ("fish and chips", Language::En, false, false),
            ("买牛奶，周五给安打电话", Language::Zh, true, false),
            ("买牛奶明天，给安打电话", Language::Zh, false, true),
            ("整理周一和周二的报表", Language::Zh, false, true),
            ("和小王开会", Language::Zh, false, false),
        ] {
            let found = (has_second_time(text, language, 0), has_time_before_joint(text, language));
            assert_eq!(found, (second, before), "{text}");
        }
    }

    #[test]
    fn a_time_ends_neither_in_a_word_nor_before_its_last_word() {
        for (text, expected) in [("周一三五健身", "周一三五"), ("明天早起", "明天"), ("两点之间", "两点")]
        {
            assert_eq!(time_ends(text, Language::Zh).first(), Some(&expected.len()), "{text}");
        }
        assert!(!time_ends("明天早起", Language::Zh).contains(&"明天早".len()));
    }

    #[test]
    fn an_incomplete_time_is_explained() {
        for (text, language, understood, rest) in [
            ("in 10 minutes and in 20 minutes to stretch", Language::En, "in 10 minutes and in 20 minutes", ""),
            ("tomorrow at 9 and at 17 to call", Language::En, "tomorrow at 9 and at 17", ""),
            ("in 2 hours every day to call", Language::En, "in 2 hours every day", ""),
            ("call Ann at 3pm tomorrow and on Friday", Language::En, "at 3pm tomorrow and on Friday", ""),
            (
                "every Monday and the day before Easter to rest",
                Language::En,
                "every Monday",
                "and the day before Easter to rest",
            ),
            ("25:00 to rest", Language::En, "", "25:00 to rest"),
            ("call Ann at 25:00 tomorrow", Language::En, "tomorrow", "call Ann at 25:00"),
            ("明天9点到10点开会", Language::Zh, "明天9点到10点", ""),
            ("周一三五健身", Language::Zh, "周一三五", ""),
            ("today to lock up", Language::En, "today", ""),
            ("5 minutes before 3pm to leave", Language::En, "3pm", "5 minutes before"),
            ("before friday to pay", Language::En, "friday", "before"),
            ("on 12/24 at 6pm to go", Language::En, "at 6pm", "on 12/24"),
            ("at 2026-11-29T23:00 to go", Language::En, "23:00", "at 2026-11-29T"),
            ("10分钟后和20分钟后", Language::Zh, "10分钟后和20分钟后", ""),
        ] {
            let wrong = explain_partial_time(text, language).unwrap_or_else(|| panic!("{text} is unclear"));
            assert_eq!((wrong.understood.as_str(), wrong.rest.as_str()), (understood, rest), "{text}");
        }
        for text in ["rest", "read the Sunday paper"] {
            assert_eq!(explain_partial_time(text, Language::En), None, "{text}");
        }
    }
}
