//! The question that a result must answer, and its keywords.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use super::dates::{QuestionDate, dates_of};
use super::phrases::has_phrase;
use crate::text::{is_han, is_stop_word, is_weak_char, stem};

/// The beginning of a question that is read, in bytes.
const QUESTION_LIMIT: usize = 4_000;
/// The maximum number of candidates for keywords; further ones are dropped.
const MAX_CANDIDATES: usize = 24;
/// The weight of a word that belongs to a keyword but is not the keyword: a part of an identifier, or a translation.
const PART_WEIGHT: f64 = 0.6;
const TRANSLATION_WEIGHT: f64 = 0.8;

/// Chinese words and their usual English words in software and its documents, so that a Chinese question finds English text. Each line:
/// the word, then the English words, separated by spaces.
const GLOSSARY: &str = include_str!("glossary.txt");

static TRANSLATIONS: LazyLock<HashMap<&str, Vec<&str>>> = LazyLock::new(|| {
    let line = |line: &'static str| line.split_once(' ').map(|(word, english)| (word, english.split(' ').collect()));
    GLOSSARY.lines().filter_map(line).collect()
});
/// The longest word of the glossary in characters.
const LONGEST_WORD: usize = 6;

/// English phrases of questions, each with words of possible answers.
const PHRASES: &[(&str, &[&str])] = &[
    ("how long", &["time", "duration", "elapsed", "took"]),
    ("how big", &["size", "bytes"]),
    ("how large", &["size", "bytes"]),
];

/// English words of questions that select nothing, since they occur in questions about any result.
static OF_QUESTIONS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    "\
    anything briefly check code describe detail details did does doing everything exactly explain file find give got \
    happen happens help hello know like list look looking make mean means need one output page read say says search \
    see show something summarise summarize summary tell thing things text use used uses using want way work works"
        .split(' ')
        .collect()
});
/// Chinese words of questions that select nothing, since they occur in questions about any result.
static OF_CHINESE_QUESTIONS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    "\
    为什么 什么 怎么 怎样 如何 哪里 哪些 哪个 多少 几个 是否 有没有 可以 能不能 请问 帮我 看看 一下 告诉 介绍 解释 \
    总结 概括 意思 这个 那个 这里 里面 其中 所有 全部 需要 应该 时候 之后 之前 以及 还有 没有 哪一 到底 具体 关于 \
    进行 使用 通过 如果 会不会 分别 主要 代码 文件里 发生"
        .split(' ')
        .collect()
});

/// Words of questions about the whole of a result, with `|` between them.
const BROAD: &str = "\
    summarise|summarize|summary|overview|tl;dr|tldr|main points|key points|in short|how many|each of|\
    what is this about|what's this about|what's in here|walk me through|总结|概括|概述|大意|摘要|主要内容|讲了什么|\
    讲了些什么|讲的是什么|说了什么|介绍一下|要点|归纳|梳理|大概|全部|每个|每一|列出|有多少|共多少|有几";
/// Chinese characters after 多少 that make it a question for a number of things. Without such a character, 多少 asks for a value.
const COUNTED: &str = "个条行种次处项类家人台份张本页篇段层列组对名位例件";
/// Chinese characters after 所有 with which it does not ask for all: 所有权 is ownership.
const AFTER_ALL: &str = "权者";
/// English words before "all" with which it does not ask for all.
const BEFORE_ALL: &[&str] = &["at", "after", "above"];

/// Further Chinese characters that join words. They end a run of characters that are in no word of the glossary.
const JOINING: &str = "把被让给从到对向往于为以及或而且但却并再还又都各每只仅才已曾将会能可要想需应该得着过做用拿来去上下里中内外前后时候不没无非别几多少大小最更太真好成出起啥咋嘛哈";

/// The question that a tool call must answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    /// The words of the user in this turn.
    pub text: String,
    /// The words of the model when it made the call; empty if there are none.
    pub aim: String,
}

impl Question {
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), aim: String::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.text.trim().is_empty() && self.aim.trim().is_empty()
    }

    /// Returns true if the question is about the whole of something: no part answers it.
    pub fn is_broad(&self) -> bool {
        let text = self.text.to_lowercase();
        BROAD.split('|').any(|words| has_phrase(&text, words)) || asks_for_all(&text) || asks_for_number(&text)
    }

    /// Returns the candidates for keywords, the most distinctive first: identifiers and paths, then the other words in their
    /// order. The user's candidates come before the model's.
    pub fn candidates(&self) -> Vec<Keyword> {
        let mut all = Vec::new();
        for text in [&self.text, &self.aim] {
            let mut text = text[..text.floor_char_boundary(QUESTION_LIMIT)].to_owned();
            for date in dates_of(&text) {
                text = text.replace(&date.text, " ");
                all.push(Keyword::of_date(date));
            }
            let mut found = candidates_of(&text);
            found.sort_by_key(|keyword| !keyword.is_identifier);
            all.append(&mut found);
        }
        let mut seen = HashSet::new();
        all.retain(|keyword| seen.insert(keyword.text.to_lowercase()));
        all.truncate(MAX_CANDIDATES);
        all
    }
}

/// Returns true if a text asks for all of something by "all", "every" or 所有. "At all" and "every time" do not count.
fn asks_for_all(text: &str) -> bool {
    let words: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let is_all = |at: usize| match words[at] {
        "all" => at == 0 || !BEFORE_ALL.contains(&words[at - 1]),
        "every" => words.get(at + 1) != Some(&"time"),
        _ => false,
    };
    let mut behind = text.match_indices("所有").map(|(at, word)| text[at + word.len()..].chars().next());
    (0..words.len()).any(is_all) || behind.any(|next| !next.is_some_and(|c| AFTER_ALL.contains(c)))
}

/// Returns true if a text has 多少 before a measure word, such as 多少个.
fn asks_for_number(text: &str) -> bool {
    let mut behind = text.match_indices("多少").map(|(at, word)| text[at + word.len()..].trim_start());
    behind.any(|rest| rest.chars().next().is_some_and(|c| COUNTED.contains(c)))
}

/// A keyword of a question.
#[derive(Clone, Debug, PartialEq)]
pub struct Keyword {
    /// The keyword as the question writes it.
    pub text: String,
    /// True for a name in code, a path, a date or a number: `snake_case`, `camelCase`, `a/b.rs`, `1975`.
    pub is_identifier: bool,
    /// English words in lower case, stemmed, or identifiers in lower case, each with its weight.
    pub words: Vec<(String, f64)>,
    /// Texts that are searched as they are, in lower case: Chinese words, and paths, dates and the like.
    pub texts: Vec<(String, f64)>,
}

impl Keyword {
    fn of_word(word: &str) -> Self {
        let lower = word.to_lowercase();
        let subwords = subwords(word);
        let is_identifier = is_identifier(word);
        let mut words = vec![(stem(&lower), 1.0)];
        if subwords.len() > 1 {
            let parts = subwords.iter().filter(|part| part.len() > 2);
            words.extend(parts.map(|part| (stem(part), PART_WEIGHT)));
        }
        let is_path = word.contains(['/', '.', '-', ':']);
        let texts = if is_path { vec![(lower, 1.0)] } else { Vec::new() };
        Self { text: word.to_owned(), is_identifier, words, texts }
    }

    fn of_phrase(phrase: &str, words: &[&str]) -> Self {
        let words = words.iter().map(|word| (stem(word), TRANSLATION_WEIGHT)).collect();
        Self { text: phrase.to_owned(), is_identifier: false, words, texts: Vec::new() }
    }

    fn of_date(date: QuestionDate) -> Self {
        let texts = date.forms.into_iter().map(|form| (form, 1.0)).collect();
        Self { text: date.text, is_identifier: true, words: Vec::new(), texts }
    }

    fn of_chinese(word: &str) -> Self {
        let mut texts = vec![(word.to_owned(), 1.0)];
        let mut words = Vec::new();
        match TRANSLATIONS.get(word) {
            Some(english) => words.extend(english.iter().map(|word| (stem(word), TRANSLATION_WEIGHT))),
            // A word that is not in the glossary may be several words.
            None => {
                let chars: Vec<char> = word.chars().collect();
                if chars.len() > 2 {
                    let share = 1.0 / (chars.len() - 1) as f64;
                    texts.extend(chars.windows(2).map(|pair| (pair.iter().collect(), share.max(0.3))));
                }
            }
        }
        Self { text: word.to_owned(), is_identifier: false, words, texts }
    }
}

/// Returns the keywords of a text in their order.
fn candidates_of(text: &str) -> Vec<Keyword> {
    let lower = text.to_lowercase();
    let phrases = PHRASES.iter().filter(|(phrase, _)| has_phrase(&lower, phrase));
    let mut found: Vec<Keyword> = phrases.map(|(phrase, words)| Keyword::of_phrase(phrase, words)).collect();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if is_han(first) {
            let end = rest.find(|c| !is_han(c)).unwrap_or(rest.len());
            found.extend(chinese_words(&rest[..end]).into_iter().map(|word| Keyword::of_chinese(&word)));
            rest = &rest[end..];
        } else if is_word_char(first) {
            let joins = |c: char| is_word_char(c) || matches!(c, '/' | '.' | '-' | ':');
            let end = rest.find(|c: char| is_han(c) || !joins(c)).unwrap_or(rest.len());
            let word = rest[..end].trim_end_matches(['.', '-', ':', '/', '\'']);
            found.extend(words_of(word));
            rest = &rest[end..];
        } else {
            rest = &rest[first.len_utf8()..];
        }
    }
    found
}

/// Returns the keywords of a run of letters, digits and path characters.
fn words_of(word: &str) -> Vec<Keyword> {
    // The address of a page is the same for all its parts, so it selects nothing.
    if word.contains("://") {
        return Vec::new();
    }
    // A path is one keyword; words joined by other signs are several.
    if is_identifier(word) || !word.contains(['/', '.', '-', ':']) {
        let lower = word.to_lowercase();
        let counts = word.chars().count() > 2 || (word.chars().any(char::is_numeric) && word.len() > 1);
        let is_common = is_stop_word(&lower) || OF_QUESTIONS.contains(lower.as_str());
        let counts = counts && (is_identifier(word) || !is_common);
        return if counts { vec![Keyword::of_word(word)] } else { Vec::new() };
    }
    word.split(['/', '.', '-', ':']).filter(|part| !part.is_empty()).flat_map(words_of).collect()
}

/// Returns true for a word in the form of a name in code or a path, and for a longer number.
fn is_identifier(word: &str) -> bool {
    if word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_digit()) {
        return true;
    }
    let has_joint = word.trim_matches('_').contains('_') || word.contains("::");
    let is_camel = word.chars().zip(word.chars().skip(1)).any(|(a, b)| a.is_lowercase() && b.is_uppercase());
    let is_path = word.len() > 2 && word.contains('/') && !word.starts_with('/');
    let has_ending = word.rsplit_once('.').is_some_and(|(stem, end)| {
        !stem.is_empty() && (1..=5).contains(&end.len()) && end.bytes().all(|byte| byte.is_ascii_alphanumeric())
    });
    has_joint || is_camel || is_path || word.starts_with('/') || has_ending
}

fn is_word_char(c: char) -> bool {
    (c.is_alphanumeric() && !is_han(c)) || c == '_'
}

/// Returns the words of a run of Chinese characters: those of the glossary, and the rest between glossary words, particles and
/// words of questions.
fn chinese_words(run: &str) -> Vec<String> {
    let chars: Vec<char> = run.chars().collect();
    let (mut words, mut open, mut at) = (Vec::new(), String::new(), 0);
    let close = |open: &mut String, words: &mut Vec<String>| {
        if open.chars().count() > 1 || TRANSLATIONS.contains_key(open.as_str()) {
            words.push(std::mem::take(open));
        }
        open.clear();
    };
    while at < chars.len() {
        let known = (2..=LONGEST_WORD.min(chars.len() - at)).rev().find_map(|length| {
            let word: String = chars[at..at + length].iter().collect();
            let is_question = OF_CHINESE_QUESTIONS.contains(word.as_str());
            (is_question || TRANSLATIONS.contains_key(word.as_str())).then_some((word, is_question))
        });
        match known {
            Some((word, is_question)) => {
                close(&mut open, &mut words);
                at += word.chars().count();
                if !is_question {
                    words.push(word);
                }
            }
            None => {
                if is_weak_char(chars[at]) || JOINING.contains(chars[at]) {
                    close(&mut open, &mut words);
                } else {
                    open.push(chars[at]);
                }
                at += 1;
            }
        }
    }
    close(&mut open, &mut words);
    words
}

/// Returns the parts of an identifier in lower case: the splits are at signs, and between a small letter and a capital.
pub(super) fn subwords(word: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut part = String::new();
    let chars: Vec<char> = word.chars().collect();
    for (at, c) in chars.iter().enumerate() {
        let next_is_small = chars.get(at + 1).is_some_and(|next| next.is_lowercase());
        let follows_small = at > 0 && (chars[at - 1].is_lowercase() || chars[at - 1].is_numeric());
        let follows_capital = at > 0 && chars[at - 1].is_uppercase();
        let begins = c.is_uppercase() && (follows_small || (follows_capital && next_is_small));
        if (begins || !c.is_alphanumeric()) && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
        }
        if c.is_alphanumeric() {
            part.extend(c.to_lowercase());
        }
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns at most five keywords as they were written.
    fn keywords(question: &Question) -> Vec<String> {
        question.candidates().into_iter().take(5).map(|keyword| keyword.text).collect()
    }

    #[test]
    fn keywords_are_words_of_both_languages_and_whole_identifiers() {
        for (question, expected) in [
            ("agent系统是怎么实现的", &["agent", "系统", "实现"][..]),
            ("What does parse_config do with HTTPAdapter?", &["parse_config", "HTTPAdapter"]),
            ("where is maxRetries set in src/net/client.rs?", &["maxRetries", "src/net/client.rs", "set"]),
            ("数据库连接超时的错误怎么处理", &["数据库", "连接", "超时", "错误", "处理"]),
            (
                "Why is the build so slow on Windows and on Linux machines of ours today",
                &["build", "slow", "Windows", "Linux", "machines"],
            ),
            ("it is of the", &[]),
            ("这个是什么？", &[]),
            ("v2 or v3?", &["v2", "v3"]),
            ("std::mem::take 的用法", &["std::mem::take", "用法"]),
        ] {
            assert_eq!(keywords(&Question::new(question)), expected, "{question}");
        }
    }

    #[test]
    fn phrases_count_as_whole_words() {
        for (question, expected) in [
            ("how long does it take", &["how long", "long", "take"][..]),
            ("somehow longer names", &["somehow", "longer", "names"]),
            ("how big is it", &["how big", "big"]),
            ("how bigoted", &["bigoted"]),
            ("How large?", &["how large", "large"]),
        ] {
            assert_eq!(keywords(&Question::new(question)), expected, "{question}");
        }
        for (question, expected) in [
            ("in short, what is it?", true),
            ("within shorter times", false),
            ("an overview", true),
            ("TL;DR", true),
            ("总结一下", true),
            ("how many are there", true),
            ("show manyfold", false),
            ("list all of them", true),
            ("Every file", true),
            ("the overall call", false),
            ("does it work at all?", false),
            ("所有文件", true),
            ("它用到的所有", true),
            ("所有权是什么", false),
            ("有多少个文件", true),
            ("一共多少 files", true),
            ("端口是多少？", false),
            ("默认值多少", false),
            ("how does it work", false),
            ("list the files", false),
        ] {
            assert_eq!(Question::new(question).is_broad(), expected, "{question}");
        }
    }

    #[test]
    fn the_models_aim_adds_keywords_after_those_of_the_user() {
        let question = Question { text: "why so slow".to_owned(), aim: "I search read_timeout.".to_owned() };
        assert_eq!(keywords(&question), ["slow", "read_timeout"]);
    }

    #[test]
    fn a_keyword_also_means_its_parts_and_translations() {
        let words = |question: &str| {
            let first = Question::new(question).candidates().swap_remove(0);
            first.words.into_iter().map(|(word, _)| word).collect::<Vec<_>>()
        };
        assert_eq!(words("parseHTTPHeaders"), ["parsehttphead", "pars", "http", "header"]);
        assert_eq!(words("重试"), ["retri", "retri", "attempt"]);
    }

    #[test]
    fn every_word_of_the_glossary_is_once_there_and_short_enough() {
        let mut seen = HashSet::new();
        for line in GLOSSARY.lines() {
            let (word, english) = line.split_once(' ').unwrap();
            assert!((1..=LONGEST_WORD).contains(&word.chars().count()) && !english.is_empty(), "{line}");
            assert!(seen.insert(word), "{word} is there twice");
        }
    }
}
