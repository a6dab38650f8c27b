//! Lines and sentences.

use super::script::is_cjk;

/// Splits a text into sentences. Each keeps its marks and the white space behind them, so that all together are the text.
pub fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (sentence, behind) = rest.split_at(sentence_end(rest));
        rest = behind;
        (!sentence.is_empty()).then_some(sentence)
    })
}

fn sentence_end(text: &str) -> usize {
    for (at, c) in text.char_indices() {
        let behind = text[at..].trim_start_matches(is_sentence_mark);
        let marks = &text[at..text.len() - behind.len()];
        if c == '\n' || (!marks.is_empty() && ends_sentence(&text[..at], marks, behind)) {
            return text.len() - behind.trim_start().len();
        }
    }
    text.len()
}

/// Returns true for a mark that may end a sentence.
pub fn is_sentence_mark(c: char) -> bool {
    matches!(c, '.' | '!' | '?' | ';' | '。' | '！' | '？' | '；')
}

/// A point inside a word or behind a title ends no sentence.
fn ends_sentence(before: &str, marks: &str, behind: &str) -> bool {
    let is_title = || {
        let word = before.rsplit(char::is_whitespace).next();
        matches!(word, Some("Dr" | "Mr" | "Mrs" | "Ms" | "Prof" | "St"))
    };
    match behind.chars().next() {
        _ if !marks.is_ascii() => true,
        Some(next) if !next.is_whitespace() => marks != "." && (is_cjk(next) || next.is_uppercase()),
        Some(_) => marks != "." || !is_title(),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_at_marks_that_end_them() {
        for (text, expected) in [
            ("", &[][..]),
            ("One. Two!  Three", &["One. ", "Two!  ", "Three"]),
            ("Version 3.5 by Dr. Who.", &["Version 3.5 by Dr. Who."]),
            ("你好！我在北京。你呢？", &["你好！", "我在北京。", "你呢？"]),
            ("我喜欢茶!我住在北京", &["我喜欢茶!", "我住在北京"]),
            ("Fun!I know?! http://a.b/?c=d;e", &["Fun!", "I know?! ", "http://a.b/?c=d;e"]),
            ("one\n\ntwo; three...\n", &["one\n\n", "two; ", "three...\n"]),
        ] {
            assert_eq!(sentences(text).collect::<Vec<_>>(), expected, "{text}");
        }
    }
}
