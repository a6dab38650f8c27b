//! Whether words that stand beside a time are times themselves: then they are no text that it could be a time for.

use super::misread::Misread;
use super::token::{Cursor, Tok, Token};
use super::{All, Language, misread, pieces};

/// Words that join a time to another, or lead to one.
const JOINTS: &[&str] = &["and", "or", "to", "about", "for", "starting", "和", "或", "到", "开始"];
/// Words that change a time before them, or go on with it, whatever follows.
const CHANGES: &[&str] = &["except", "twice", "after", "and", "or", "前", "后", "除", "或"];
/// What else may stand at the end of a text that goes on with a time.
const LEADS: &[&str] = &["at", "by", "on", "in", "from", "between", "every", "the", "在", "从", "每"];
/// Of what Chinese words are made that join: 和, 以及, 还有, ….
const JOINT_LETTERS: &str = "和与跟及以还有、，,";
/// Days that have no fixed date, or none that is known here: behind 和 they belong to the time before it.
const OTHER_DAYS: &str = "春节 除夕 大年 正月 腊月 农历 阴历 初一 元旦 元宵 清明 端午 七夕 中秋 重阳 国庆 劳动节 五一 十一假 情人节 妇女节 儿童节 \
    教师节 母亲节 父亲节 感恩节 万圣节 复活节 圣诞 平安夜 节假日 假日 假期 放假 节日 生日 月初 月中 月底 月末 年初 年底 年末 季度";
const MARKS: &[char] = &[',', '、', ';', '&', '-', '.', ':'];
/// The most words at the end that are looked at.
const LAST: usize = 12;

/// Whether a text that stands behind a time begins with words of time, also such as make none: `and 25:00`, `到10点`.
pub fn begins(text: &str, language: Language) -> bool {
    let tokens = language.tokens(text);
    let mut c = Cursor::new(&tokens);
    while c.mark(MARKS) {}
    if c.any(CHANGES) {
        return true;
    }
    while c.any(JOINTS) || c.mark(MARKS) {}
    let joined = text.trim_start_matches(|c: char| c.is_whitespace() || JOINT_LETTERS.contains(c));
    if joined.len() < text.trim_start().len() && OTHER_DAYS.split(' ').any(|day| joined.starts_with(day)) {
        return true;
    }
    // A bare number belongs to the time before it.
    let is_number = language == Language::En && matches!(c.peek(), Some(Tok::Number { .. }));
    is_number || is_time(&c, language).is_some()
}

/// Whether a text that stands before a time ends with words of time, or with what leads on to one.
pub fn ends(text: &str, language: Language) -> bool {
    let mut tokens = language.tokens(text);
    let is_lead = |token: &Token| {
        matches!(token.tok, Tok::Word(word) if LEADS.contains(&word) || JOINTS.contains(&word))
            || matches!(token.tok, Tok::Mark(mark) if MARKS.contains(&mark))
    };
    while tokens.last().is_some_and(is_lead) {
        tokens.pop();
    }
    let last = tokens.len();
    (last.saturating_sub(LAST)..last).any(|at| {
        let c = Cursor { at, ..Cursor::new(&tokens) };
        is_time(&c, language).is_some_and(|end| end == last)
    })
}

/// Where the time ends that begins at the place, as far as it is one.
fn is_time(c: &Cursor<'_>, language: Language) -> Option<usize> {
    let mut whole = Cursor { why: None, ..*c };
    if language.piece(&mut whole, &All::default()).is_some() {
        return Some(whole.at);
    }
    // 三四点, 25:00, 3-4 pm.
    let rest = &c.tokens[c.at.min(c.tokens.len())..];
    let is_in = |tok: Tok| match tok {
        Tok::Number { .. } | Tok::Mark('-' | '、' | ':' | '.' | '/') => true,
        Tok::Word(word) => JOINTS.contains(&word),
        _ => false,
    };
    let is_number = matches!(c.peek(), Some(Tok::Number { .. }));
    let numbers = if is_number { rest.iter().take_while(|token| is_in(token.tok)).count() } else { 0 };
    let is_counted = match rest.get(numbers).filter(|_| is_number).map(|token| token.tok) {
        Some(Tok::Word(word)) => ["th", "am", "pm", "o'clock", "点", "号", "次"].contains(&word),
        Some(Tok::Unit { .. }) => language == Language::En,
        _ => false,
    };
    (whole.why.is_some() || is_counted).then_some(c.at + numbers + usize::from(is_counted))
}

/// What is wrong with a text that begins or ends with a time which cannot be read whole; `None` where it does neither.
pub fn unclear(text: &str, language: Language) -> Option<Misread> {
    if !begins(text, language) && !ends(text, language) {
        return None;
    }
    let mut wrong = None;
    for token in language.tokens(text) {
        let (before, rest) = text.split_at(token.start);
        let found = match pieces(rest, &language.tokens(rest), language) {
            Err(wrong) => return Some(wrong),
            Ok(found) => found,
        };
        wrong = wrong.or(found.why);
        if found.is_any {
            let (understood, after) = rest.split_at(found.end);
            // A time that is whole stands beside one that is not.
            let after = if after.trim().is_empty() && found.all.when().is_ok() { before } else { after };
            return Some(misread(understood, after, found.all.when().err().or(wrong)));
        }
    }
    Some(misread("", text, wrong))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_with_a_time() {
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
            ("浇花", Language::Zh, false),
            ("", Language::En, false),
        ] {
            assert_eq!(begins(text, language), expected, "{text}");
        }
    }

    #[test]
    fn what_leads_on_to_a_time() {
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
            assert_eq!(ends(text, language), expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_whole_is_told() {
        for (text, language, understood, rest) in [
            (
                "in 10 minutes and in 20 minutes to stretch",
                Language::En,
                "in 10 minutes and in 20 minutes",
                "to stretch",
            ),
            ("call Ann at 3pm tomorrow and on Friday", Language::En, "at 3pm tomorrow and on Friday", ""),
            (
                "every Monday and the day before Easter to rest",
                Language::En,
                "every Monday",
                "and the day before Easter to rest",
            ),
            ("25:00 to rest", Language::En, "", "25:00 to rest"),
            ("call Ann at 25:00 tomorrow", Language::En, "tomorrow", "call Ann at 25:00"),
            ("明天9点到10点开会", Language::Zh, "明天9点到10点", "开会"),
            ("10分钟后和20分钟后", Language::Zh, "10分钟后和20分钟后", ""),
        ] {
            let wrong = unclear(text, language).unwrap_or_else(|| panic!("{text} is unclear"));
            assert_eq!((wrong.understood.as_str(), wrong.rest.as_str()), (understood, rest), "{text}");
        }
        for text in ["rest", "read the Sunday paper"] {
            assert_eq!(unclear(text, Language::En), None, "{text}");
        }
    }
}
