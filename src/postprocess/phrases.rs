//! Words and phrases of questions.

/// Returns true if a text in lower case contains a phrase: an English one as whole words, a Chinese one anywhere.
pub fn has_phrase(text: &str, phrase: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(phrase).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + phrase.len()..].chars().next();
        !phrase.is_ascii() || ![before, after].into_iter().flatten().any(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn english_phrases_are_whole_words_and_chinese_ones_are_anywhere() {
        for (text, phrase, expected) in [
            ("how long is it", "how long", true),
            ("somehow long", "how long", false),
            ("how longer", "how long", false),
            ("show longer, how long?", "how long", true),
            ("请问how long呢", "how long", true),
            ("the_count", "count", false),
            ("一共多少", "多少", true),
            ("", "count", false),
        ] {
            assert_eq!(has_phrase(text, phrase), expected, "{text}");
        }
    }
}
