//! What a text must say to tell a memory, and a text without that.

use std::collections::BTreeSet;

use super::wording::{is_ideograph, normal};
use super::{Entry, Kind};

/// Of the words of a memory, as many must stand in a sentence for it to tell that memory.
const TELLS: f64 = 0.7;

/// By what a sentence that tells a memory is known.
pub(super) struct Telling {
    whole: String,
    words: BTreeSet<String>,
}

impl Telling {
    /// By the words of `entry`.
    pub(super) fn of(entry: &Entry) -> Self {
        let text = match entry.kind {
            Kind::Preference => format!("{} {}", entry.name.replace(['_', '-'], " "), entry.text),
            _ => entry.text.clone(),
        };
        // One word of a value ("python") stands in sentences that tell something else; key and value together tell it.
        let whole = normal(&entry.text);
        let is_word = entry.kind == Kind::Preference && !whole.contains(' ') && !whole.chars().any(is_ideograph);
        Self { whole: if is_word { String::new() } else { whole }, words: distinctive(&text) }
    }

    /// Whether this text holds the memory as it is.
    pub(super) fn is_whole_in(&self, text: &str) -> bool {
        self.whole.chars().count() >= 4 && normal(text).contains(&self.whole)
    }

    /// Whether a text in lower case and usual width may tell it.
    pub(super) fn may_be_in(&self, text: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| text.contains(word.as_str()))
    }

    /// Whether an answer to `question` has words of the memory that the question has not.
    pub(super) fn is_answered(&self, answer: &str, question: &str) -> bool {
        let (said, asked) = (distinctive(answer), distinctive(question));
        self.words.iter().any(|word| said.contains(word) && !asked.contains(word))
    }

    /// Whether this sentence tells the memory.
    pub(super) fn is_in(&self, sentence: &str) -> bool {
        if self.is_whole_in(sentence) {
            return true;
        }
        let said = distinctive(sentence);
        let common = self.words.intersection(&said).count();
        #[expect(clippy::cast_precision_loss, reason = "a sentence has a handful of words")]
        let share = common as f64 / self.words.len().max(1) as f64;
        common > 0 && share >= TELLS
    }
}

/// Words that say what a sentence is about: those of three letters and more or with a capital or a digit, and pairs of
/// ideographs. What all sentences are made of does not count.
fn distinctive(text: &str) -> BTreeSet<String> {
    const PLAIN: [&str; 54] = [
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
            if is_ideograph(c) {
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
        if counts && word.chars().count() > 1 && !PLAIN.contains(&word.as_str()) {
            found.insert(word);
        }
    }
    found
}

/// A text without the sentences that tell; `None` when there is none.
pub(super) fn without(text: &str, telling: &[Telling]) -> Option<String> {
    let mut left = String::with_capacity(text.len());
    let mut is_changed = false;
    for line in text.split_inclusive('\n') {
        let kept: String =
            sentences(line).into_iter().filter(|one| !telling.iter().any(|telling| telling.is_in(one))).collect();
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

/// A line in sentences, each with what stands behind it.
fn sentences(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut chars = line.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next_is_gap = chars.peek().is_none_or(|(_, next)| next.is_whitespace());
        if matches!(c, '。' | '！' | '？' | '；') || (matches!(c, '.' | '!' | '?' | ';') && next_is_gap) {
            let mut end = at + c.len_utf8();
            while let Some((at, gap)) = chars.next_if(|(_, next)| next.is_whitespace()) {
                end = at + gap.len_utf8();
            }
            found.push(&line[start..end]);
            start = end;
        }
    }
    if start < line.len() {
        found.push(&line[start..]);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentences_that_tell_go_and_the_others_stay() {
        let telling = |text: &str| Telling { whole: normal(text), words: distinctive(text) };
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
            assert_eq!(without(summary, &[telling(memory)]).as_deref(), expected, "{memory} in {summary}");
        }
    }
}
