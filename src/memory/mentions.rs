//! Detects sentences that mention a memory, and removes them from texts.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::{MemoryEntry, MemoryKind};
use crate::store::search_index::{SearchCorpus, find, highest_id};
use crate::store::{Connection, StoreError};
use crate::text::{comparison_key, is_han_or_kana, query_terms, sentences, visit_terms};

/// The share of a memory's words that a sentence must hold to mention the memory.
const MENTION_SHARE: f64 = 0.7;

/// A term does not identify a memory by itself if more messages than this hold it, and more than one in `COMMON_SHARE`.
const COMMON: usize = 50;
const COMMON_SHARE: usize = 20;
/// The shortest term with a digit that counts as a number or a code, in bytes.
const CODE_BYTES: usize = 4;

/// A detector of sentences that mention one memory.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct MentionDetector {
    whole: String,
    words: BTreeSet<String>,
    /// Terms that identify the memory by themselves.
    terms: BTreeSet<String>,
}

impl MentionDetector {
    /// Creates a detector from the words of `entry`, and from those of its terms that are rare in messages.
    pub(super) fn with_rare_terms(connection: &Connection, entry: &MemoryEntry) -> Result<Self, StoreError> {
        let mut detector = Self::of_entry(entry);
        let most =
            COMMON.max(usize::try_from(highest_id(connection, SearchCorpus::Messages)?).unwrap_or(0) / COMMON_SHARE);
        for term in std::mem::take(&mut detector.terms) {
            match find(connection, SearchCorpus::Messages, &format!("\"{term}\""), most + 1) {
                Ok(found) if found.len() > most => {}
                // A damaged index cannot tell which terms are common.
                Err(error) if !error.is_index_fault() => return Err(error),
                _ => drop(detector.terms.insert(term)),
            }
        }
        Ok(detector)
    }

    /// Creates a detector from the words of `entry` and all its terms, common ones included.
    pub(super) fn of_entry(entry: &MemoryEntry) -> Self {
        let text = match entry.kind {
            MemoryKind::Preference => format!("{} {}", entry.name.replace(['_', '-'], " "), entry.text),
            _ => entry.text.clone(),
        };
        // A value of one word, such as "python", occurs in unrelated sentences as well. Key and value together identify it.
        let whole = comparison_key(&entry.text);
        let is_word =
            entry.kind == MemoryKind::Preference && !whole.contains(' ') && !whole.chars().any(is_han_or_kana);
        let whole = if is_word { String::new() } else { whole };
        Self { whole, words: distinctive(&text), terms: identifying_terms(entry.kind, &text) }
    }

    /// Returns true if the text holds a term that identifies the memory by itself.
    pub(super) fn is_named_in(&self, text: &str) -> bool {
        let mut is_named = false;
        visit_terms(text, |_| !self.terms.is_empty(), |term| is_named |= self.terms.contains(term));
        is_named
    }

    /// Returns true if the text states the memory. One word in common is not enough, unless it is a code.
    pub(super) fn is_stated_in(&self, text: &str) -> bool {
        let mut has_code = false;
        visit_terms(text, |_| true, |term| has_code |= is_code(term) && self.terms.contains(term));
        has_code || self.is_quoted_in(text) || sentences(text).any(|sentence| self.is_mentioned_in(sentence))
    }

    /// Returns true if this answer to `question` discloses the memory: the answer or the question names the memory, or both
    /// together state it.
    pub(super) fn is_disclosed_by(&self, answer: &str, question: &str) -> bool {
        if answer.trim().is_empty() {
            return false;
        }
        let (answered, asked) = (distinctive(answer), distinctive(question));
        let adds = self.words.iter().any(|word| answered.contains(word) && !asked.contains(word));
        let both: BTreeSet<String> = answered.union(&asked).cloned().collect();
        self.is_named_in(answer) || self.is_named_in(question) || (adds && self.share(&both) >= MENTION_SHARE)
    }

    fn share(&self, words: &BTreeSet<String>) -> f64 {
        self.words.intersection(words).count() as f64 / self.words.len().max(1) as f64
    }

    /// Returns true if the text quotes the whole memory.
    pub(super) fn is_quoted_in(&self, text: &str) -> bool {
        self.whole.chars().count() >= 4 && comparison_key(text).contains(&self.whole)
    }

    /// Returns true if a text may mention the memory. The text must be in lower case and narrow characters.
    pub(super) fn may_be_in(&self, text: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| text.contains(word.as_str()))
    }

    /// Returns true if an answer to `question` holds words of the memory that the question lacks.
    pub(super) fn is_answered(&self, answer: &str, question: &str) -> bool {
        let (answered, asked) = (distinctive(answer), distinctive(question));
        self.words.iter().any(|word| answered.contains(word) && !asked.contains(word))
    }

    /// Returns true if the sentence mentions the memory.
    fn is_mentioned_in(&self, sentence: &str) -> bool {
        self.is_quoted_in(sentence) || self.share(&distinctive(sentence)) >= MENTION_SHARE
    }
}

/// Returns the terms that identify a memory with this text by themselves, including the terms of a preference's key ("likes
/// mushrooms: no"). Tasks and cases have none, as their words occur in unrelated texts. Days, months and attributes that
/// everybody has do not count.
fn identifying_terms(kind: MemoryKind, text: &str) -> BTreeSet<String> {
    const STOP_WORDS: [&str; 32] = [
        "user", "owner", "name", "call", "like", "love", "hate", "prefer", "favourit", "favorit", "live", "work",
        "want", "need", "use", "make", "know", "think", "time", "day", "year", "good", "new", "喜欢", "用户", "名字",
        "住在", "工作", "知道", "现在", "时候", "一个",
    ];
    const DATES: &str = "monday tuesday wednesday thursday friday saturday sunday weekend weekday january february march april may \
        june july august september october november december today tomorrow yesterday tonight morning afternoon evening week month \
        星期一 星期二 星期三 星期四 星期五 星期六 星期日 星期天 周一 周二 周三 周四 周五 周六 周日 周末 今天 明天 昨天 今晚 早上 下午 \
        晚上 一月 二月 三月 四月 五月 六月 七月 八月 九月 十月 十一月 十二月";
    const KEYS: &str = "address age birthday browser city color colour company country diet editor email family food format hobby job \
        language music phone reply shell style theme timezone tone units zone 地址 年龄 生日 城市 颜色 公司 国家 编辑器 邮箱 食物 格式 \
        爱好 语言 音乐 电话 风格 主题 时区 语气 单位";
    if !matches!(kind, MemoryKind::Fact | MemoryKind::Preference) {
        return BTreeSet::new();
    }
    static COMMON_TERMS: LazyLock<BTreeSet<String>> =
        LazyLock::new(|| [DATES, KEYS].into_iter().flat_map(query_terms).map(|term| term.text).collect());
    let terms = query_terms(text).into_iter().filter(|term| term.weight >= 1.0).map(|term| term.text);
    let is_identifying =
        |term: &String| term.len() > 1 && !STOP_WORDS.contains(&term.as_str()) && !COMMON_TERMS.contains(term);
    terms.filter(is_identifying).collect()
}

/// Returns true if a term is a number or a code, which has no second meaning.
fn is_code(term: &str) -> bool {
    term.len() >= CODE_BYTES && term.bytes().any(|byte| byte.is_ascii_digit())
}

/// Returns the words that show what a sentence is about: those with at least three letters, a capital or a digit, and pairs
/// of ideographs. Stop words do not count.
fn distinctive(text: &str) -> BTreeSet<String> {
    const STOP_WORDS: [&str; 54] = [
        "my", "me", "he", "we", "it", "is", "in", "on", "at", "to", "of", "an", "as", "if", "the", "and", "for", "are",
        "was", "has", "had", "his", "her", "its", "you", "your", "not", "but", "all", "can", "our", "she", "who",
        "why", "how", "user", "user's", "that", "this", "with", "have", "they", "their", "called", "named", "said",
        "says", "told", "lives", "live", "from", "about", "what", "when",
    ];
    let mut found = BTreeSet::new();
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '\'' | '+' | '#' | '-' | '@' | '.');
    for run in text.split(|c: char| !is_part(c)) {
        let mut latin = String::new();
        let mut before: Option<char> = None;
        for c in run.chars() {
            if is_han_or_kana(c) {
                found.extend(before.map(|before| format!("{before}{c}")));
                before = Some(c);
            } else {
                before = None;
                latin.push(c);
            }
        }
        let word = latin.trim_matches(|c: char| !c.is_alphanumeric());
        let counts = word.chars().count() >= 3 || word.chars().any(|c| c.is_uppercase() || c.is_ascii_digit());
        let word = word.to_lowercase();
        if counts && word.chars().count() > 1 && !STOP_WORDS.contains(&word.as_str()) {
            found.insert(word);
        }
    }
    found
}

/// Removes the sentences that mention a memory; `None` if there is none.
pub(super) fn without_mentions(text: &str, detectors: &[MentionDetector]) -> Option<String> {
    let mut left = String::with_capacity(text.len());
    let mut is_changed = false;
    for line in text.split_inclusive('\n') {
        let kept: String = sentences(line)
            .filter(|one| !detectors.iter().any(|it| it.is_mentioned_in(one) || it.is_named_in(one)))
            .collect();
        if kept.len() == line.len() {
            left.push_str(line);
            continue;
        }
        is_changed = true;
        let bare = kept.trim_matches(|c: char| c.is_whitespace() || matches!(c, '-' | '*' | '+'));
        if !bare.is_empty() {
            left.push_str(kept.trim_end());
            left.push('\n');
        }
    }
    is_changed.then(|| left.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sentences_that_mention_the_memory_are_removed() {
        let detector = |text: &str| MentionDetector {
            whole: comparison_key(text),
            words: distinctive(text),
            terms: BTreeSet::new(),
        };
        for (memory, summary, expected) in [
            (
                "The user's cat is called Momo",
                "- The user has a cat. They said that the cat is called Momo. They want a plan.\n- Rust is used.",
                Some("- The user has a cat. They want a plan.\n- Rust is used."),
            ),
            ("The user's cat is called Momo", "- The dog is called Rex.", None),
            ("The user's cat is called Momo", "- Cat: Momo, called so since May\n- Other", Some("- Other")),
            ("我的猫叫莫莫", "用户的猫叫莫莫。用户住在北京。", Some("用户住在北京。")),
            ("我的猫叫莫莫", "用户养猫。", None),
            ("PIN is 4711", "The PIN, 4711, was told.", Some("")),
            ("I like tea", "They talked of coffee.", None),
        ] {
            assert_eq!(without_mentions(summary, &[detector(memory)]).as_deref(), expected, "{memory} in {summary}");
        }
    }
}
