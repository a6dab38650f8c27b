//! Detects plain sentences that claim the only value of an attribute, such as "My cat is called Momo" or 我住在北京. A newer claim
//! about the same attribute replaces the older one. A sentence that can be true together with the others makes no exclusive
//! claim.

use crate::text::{comparison_key, is_han_or_kana};

/// A claim that an attribute of a subject has one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExclusiveClaim {
    pub subject: String,
    pub value: String,
}

/// Words that let two claims hold together (at other times, in other places), or that leave a claim unclear.
const EN_QUALIFIERS: &str = "also too another other second sometimes and or not was used previously during in on at \
    while until mostly usually often part-time half weekends";
const ZH_QUALIFIERS: &str = "也 还 另 和 或 不 没 以前 曾 第二 之一 有时 平时 周 星期 工作日 天住 假期 暂时 经常 \
    常常 期间";

/// Verbs between a subject and its value, separated by bars, after their normal form.
const EN_VERBS: [(&str, &str); 5] = [
    ("is called", " is called | is named "),
    ("lives in", " lives in | live in "),
    ("works at", " works at | work at | works for | work for "),
    ("is married to", " is married to | am married to "),
    ("was born on", " was born on "),
];

/// Attributes that have a single value: only for these does "is" exclude another value.
const EN_SINGLE: &str = "name|full name|first name|last name|nickname|birthday|date of birth|age|phone number|phone|\
    mobile number|email|e-mail|email address|e-mail address|address|job|employer|hometown|time zone|timezone|\
    native language|boss|home address";

const ZH_SINGLE: &str = "名字 姓名 昵称 生日 出生日期 年龄 电话 电话号码 手机 手机号 邮箱 邮件地址 地址 住址 工作 \
    职业 公司 老家 家乡 时区 母语 老板";

/// Returns the claim of a sentence; `None` if the sentence has another form.
pub fn exclusive_claim(sentence: &str) -> Option<ExclusiveClaim> {
    // A second sentence or an aside may change the meaning.
    if sentence.chars().count() > 120 || sentence.contains(['\n', '?', '？', ';', '；', '(', '（']) {
        return None;
    }
    let normal = comparison_key(sentence);
    if normal.chars().any(is_han_or_kana) { chinese_claim(&normal) } else { english_claim(&normal) }
}

fn english_claim(text: &str) -> Option<ExclusiveClaim> {
    let is_qualified = |words: &str| {
        words.split(' ').any(|word| EN_QUALIFIERS.split(' ').any(|one| one == word)) || words.contains("n't")
    };
    for (normal, verbs) in EN_VERBS {
        if let Some((subject, value)) = verbs.split('|').find_map(|verb| text.split_once(verb)) {
            let is_unclear = is_qualified(subject) || is_qualified(value);
            return if is_unclear { None } else { claim(&english_subject(subject)?, normal, value) };
        }
    }
    if is_qualified(text) {
        return None;
    }
    let (subject, value) = text.split_once(" is ")?;
    let subject = english_subject(subject)?;
    let (_, attribute) = subject.split_once("'s ")?;
    let favourite = attribute.strip_prefix("favourite ").or(attribute.strip_prefix("favorite "));
    let is_single = favourite.is_some()
        || EN_SINGLE.split('|').any(|single| attribute == single || is_attribute_of_other(attribute, single));
    is_single.then(|| claim(&subject.replace("favorite ", "favourite "), "is", value)).flatten()
}

/// Returns true if `attribute` is `single` of something else, as in "cat's name".
fn is_attribute_of_other(attribute: &str, single: &str) -> bool {
    attribute.strip_suffix(single).is_some_and(|before| before.ends_with("'s "))
}

/// Returns the normal form of a subject. The writer is always called "user".
fn english_subject(words: &str) -> Option<String> {
    let words = words.strip_prefix("the ").unwrap_or(words);
    let subject = match words.split_once(' ') {
        None if matches!(words, "i" | "user" | "me") => "user".to_owned(),
        Some(("my" | "user's", rest)) => format!("user's {rest}"),
        // The sentence does not say who "he" or "it" is.
        _ if matches!(words, "he" | "she" | "it" | "they" | "we" | "you" | "there" | "this" | "that") => return None,
        _ => words.to_owned(),
    };
    let words = subject.split(' ').count();
    let opaque = ["his ", "her ", "their ", "its ", "our ", "your "].iter().any(|word| subject.starts_with(word));
    ((1..=5).contains(&words) && !opaque).then_some(subject)
}

fn chinese_claim(text: &str) -> Option<ExclusiveClaim> {
    if ZH_QUALIFIERS.split(' ').any(|word| text.contains(word)) || text.ends_with(['吗', '么', '呢']) {
        return None;
    }
    let text = text.strip_prefix("用户").map_or_else(|| text.to_owned(), |rest| format!("我{rest}"));
    for (verb, normal) in
        [("住在", "住在"), ("出生于", "出生于"), ("就职于", "就职于"), ("名叫", "叫"), ("叫做", "叫"), ("叫", "叫")]
    {
        if let Some((subject, value)) = text.split_once(verb) {
            let subject = chinese_subject(subject)?;
            return claim(&subject, normal, value);
        }
    }
    let (subject, value) = text.split_once('是')?;
    let subject = chinese_subject(subject)?;
    let (of, attribute) = subject.rsplit_once('的')?;
    let is_single = ZH_SINGLE.split(' ').any(|single| single == attribute) || of.ends_with("最喜欢");
    is_single.then(|| claim(&subject, "是", value)).flatten()
}

fn chinese_subject(words: &str) -> Option<String> {
    let words = ["现在", "目前"].iter().fold(words, |words, now| words.strip_suffix(now).unwrap_or(words));
    let opaque =
        ["他", "她", "它", "你", "您", "这", "那", "大家", "我们", "人们"].iter().any(|word| words.starts_with(word));
    (!opaque && (1..=12).contains(&words.chars().count())).then(|| words.to_owned())
}

fn claim(subject: &str, verb: &str, value: &str) -> Option<ExclusiveClaim> {
    let value = value.trim();
    let is_plain = !value.is_empty() && !value.starts_with("not ") && value.chars().count() <= 60;
    is_plain.then(|| ExclusiveClaim { subject: format!("{subject}|{verb}"), value: value.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_claims_replace_claims_about_the_same_attribute() {
        for (old, new, replaces) in [
            ("My cat is called Momo", "My cat is called Nini.", true),
            ("My cat is called Momo", "The user's cat is named Nini", true),
            ("My cat is called Momo", "My dog is called Rex", false),
            ("My cat is called Momo", "My cat is called momo", false),
            ("My cat is called Momo", "My second cat is called Nini", false),
            ("My cat is black", "My cat is old", false),
            ("I live in Berlin", "The user lives in Paris", true),
            ("I live in Berlin", "Ann lives in Paris", false),
            ("I live in Berlin", "I also live in Paris", false),
            ("I live in Berlin", "I don't live in Berlin", false),
            ("I lived in Berlin", "I live in Paris", false),
            ("I live in Berlin in winter", "I live in Porto in summer", false),
            ("I work at Siemens", "I work at Bosch", true),
            ("I work at Siemens on weekdays", "I work at the bakery on Saturdays", false),
            ("I work at Siemens", "I work at the bakery on Saturdays", false),
            ("I work at Siemens part-time", "I work at the bakery", false),
            ("我平时住在北京", "我周末住在天津", false),
            ("My favorite colour is red", "My favourite colour is blue", true),
            ("My birthday is May 3", "My birthday is May 4", true),
            ("My brother's name is Tom", "My brother's name is Tim", true),
            ("My brother's name is Tom", "My name is Tim", false),
            ("He lives in Berlin", "He lives in Paris", false),
            ("I like tea", "I like coffee", false),
            ("我住在北京", "我住在上海。", true),
            ("我住在北京", "用户现在住在上海", true),
            ("我住在北京", "我也住在上海", false),
            ("我的猫叫Momo", "我的猫名叫 Nini", true),
            ("我的猫叫Momo", "我的狗叫旺财", false),
            ("我叫张三", "我叫李四", true),
            ("我的生日是五月三日", "我的生日是五月四日", true),
            ("我最喜欢的颜色是红色", "我最喜欢的颜色是蓝色", true),
            ("我喜欢茶", "我喜欢咖啡", false),
            ("我的朋友是老师", "我的朋友是医生", false),
            ("他住在北京", "他住在上海", false),
            ("我不住在北京", "我住在上海", false),
        ] {
            let (old_claim, new_claim) = (exclusive_claim(old), exclusive_claim(new));
            let is_replaced = match (&old_claim, &new_claim) {
                (Some(old), Some(new)) => old.subject == new.subject && old.value != new.value,
                _ => false,
            };
            assert_eq!(is_replaced, replaces, "{old} → {new}: {old_claim:?} {new_claim:?}");
        }
    }
}
