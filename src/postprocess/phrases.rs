//! Finds words and phrases in questions.

/// Returns true if a text in lower case contains a phrase: an English one as whole words, a Chinese one anywhere.
pub fn has_phrase(text: &str, phrase: &str) -> bool {
    places(text, phrase).any(|at| !phrase.is_ascii() || !text[at + phrase.len()..].starts_with(is_word_char))
}

/// Returns true if a text in lower case contains a phrase whose last word may be longer in the text: `error` is in
/// "errors", and not in "terror".
pub fn has_word_start(text: &str, phrase: &str) -> bool {
    places(text, phrase).next().is_some()
}

/// Returns the offsets at which a phrase begins; for an English phrase, only those at the start of a word.
fn places(text: &str, phrase: &str) -> impl Iterator<Item = usize> {
    let begins = |at: &usize| !phrase.is_ascii() || !text[..*at].ends_with(is_word_char);
    text.match_indices(phrase).map(|(at, _)| at).filter(begins)
}

fn is_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
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
