//! Whether what is to be remembered was said by whom it is remembered of: what tools found and what came out of memory may
//! stand in a conversation without being told by anybody.

use std::collections::BTreeSet;

/// Words that say nothing of whether two sentences speak of the same.
const EMPTY: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "be", "by", "does", "for", "from", "has", "have", "he", "her", "his", "i",
    "in", "is", "it", "its", "like", "likes", "me", "my", "of", "on", "or", "owner", "s", "she", "that", "the",
    "their", "they", "this", "to", "user", "users", "want", "wants", "was", "were", "will", "with", "you", "your",
    "用户", "我的", "喜欢",
];

/// Whether somebody who said `said` told `fact`. `recalled` is what he was shown from memory: of what stands there nothing is
/// told anew by speaking of it.
pub(super) fn is_told(fact: &str, said: &str, recalled: &str) -> bool {
    let (fact, said, recalled) = (words(fact), words(said), words(recalled));
    let only = |of: &BTreeSet<String>, not: &BTreeSet<String>| {
        fact.iter().filter(|word| of.contains(*word) && !not.contains(*word)).count()
    };
    fact.intersection(&said).next().is_some() && only(&recalled, &said) <= only(&said, &recalled)
}

/// How much of `fact` was said, in words.
pub(super) fn overlap(fact: &str, said: &str) -> usize {
    words(fact).intersection(&words(said)).count()
}

/// The words of a text; of Chinese, Japanese and Korean each pair of characters.
fn words(text: &str) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    let lower = text.to_lowercase();
    for run in lower.split(|c: char| !c.is_alphanumeric()) {
        let chars: Vec<char> = run.chars().collect();
        for piece in chars.chunk_by(|a, b| is_wide(*a) == is_wide(*b)) {
            if piece.first().is_some_and(|c| is_wide(*c)) && piece.len() > 1 {
                words.extend(piece.windows(2).map(|pair| pair.iter().collect::<String>()));
            } else {
                words.insert(stem(&piece.iter().collect::<String>()));
            }
        }
    }
    words.retain(|word| !word.is_empty() && !EMPTY.contains(&word.as_str()));
    words
}

/// Written without blanks between words.
fn is_wide(c: char) -> bool {
    matches!(c, '\u{2e80}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// `lives` and `living` are `live`, nearly.
fn stem(word: &str) -> String {
    let ends = ["ing", "ed", "es", "s", "e"];
    let cut = ends.iter().find_map(|end| word.strip_suffix(end).filter(|rest| rest.chars().count() >= 3));
    cut.unwrap_or(word).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_said_is_told() {
        let shown = "[Memory]\n- Ann lives in Oslo";
        for (fact, said, recalled, expected) in [
            ("The user lives in Oslo.", "I moved to Oslo last week", "", true),
            ("The user lives in Oslo.", "what is the weather?", "", false),
            ("The account number is 12345", "please read the page", "", false),
            ("用户住在奥斯陆", "我搬到奥斯陆了", "", true),
            ("用户住在奥斯陆", "今天天气怎么样", "", false),
            ("Ann lives in Oslo", "where do I live?", shown, false),
            ("The name of Ann's cat is Mitzi", "what is the name of my cat?", "- Ann's cat is called Mitzi", false),
            ("Ann lives in Bergen", "no, I live in Bergen now", shown, true),
            ("Ann lives in Oslo", "yes, Ann lives in Oslo", shown, true),
            ("", "anything", "", false),
        ] {
            assert_eq!(is_told(fact, said, recalled), expected, "{fact}: {said}");
        }
    }
}
