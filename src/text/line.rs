//! Helpers for lines and sentences.

use std::borrow::Cow;

use daoyou_channels::text::one_line;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::script::is_cjk;

/// Returns a number with its unit, such as `1 line` or `2 lines`.
pub fn plural(count: usize, unit: &str) -> String {
    if count == 1 { format!("1 {unit}") } else { format!("{count} {unit}s") }
}

/// Formats a minute as `2026-03-08 09:00 (Asia/Shanghai)`.
pub fn minute_in_zone(at: Timestamp, zone: &TimeZone) -> String {
    let at = at.to_zoned(zone.clone());
    let zone = zone.iana_name().map_or_else(|| at.strftime("%Z").to_string(), str::to_owned);
    format!("{} ({zone})", at.strftime("%Y-%m-%d %H:%M"))
}

/// Returns a page of numbered lines without their numbers, and any other text unchanged. In such a page, the first line begins
/// with a number and a tab, and each number is one more than the one before.
pub fn without_line_numbers(page: &str) -> Cow<'_, str> {
    let number = |line: &str| line.split_once('\t').and_then(|(number, _)| number.parse::<u64>().ok());
    let Some(first) = number(page) else { return Cow::Borrowed(page) };
    let mut expected = first;
    let mut plain = String::with_capacity(page.len());
    for line in page.split_inclusive('\n') {
        match line.split_once('\t') {
            Some((number, rest)) if number.parse() == Ok(expected) => plain.push_str(rest),
            // A note after the last numbered line has no number.
            _ => plain.push_str(line),
        }
        expected = expected.saturating_add(1);
    }
    Cow::Owned(plain)
}

/// Returns a text as data for one line: without line breaks, control characters, hidden characters, tags, headings, rules and
/// fences.
pub fn plain_line(text: &str) -> String {
    let visible: String = text.chars().filter(|c| !is_hidden(*c)).map(without_bracket).collect();
    let line = one_line(&visible);
    line.split(' ').filter(|word| !is_markup(word)).collect::<Vec<_>>().join(" ")
}

/// Replaces angle brackets by characters that look similar and begin no tag.
fn without_bracket(c: char) -> char {
    match c {
        '<' => '‹',
        '>' => '›',
        other => other,
    }
}

/// Returns true for an invisible character that can carry a hidden text: soft hyphens, invisible operators, tags, variation
/// selectors.
pub fn is_hidden(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180e}' | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns true for the mark of a heading, a rule, or a code fence.
fn is_markup(word: &str) -> bool {
    let only = |mark: char| word.chars().all(|c| c == mark);
    only('#')
        || (word.len() >= 3 && ['-', '=', '*', '_'].into_iter().any(only))
        || word.starts_with("```")
        || word.starts_with("~~~")
}

/// Splits a text into sentences. Each sentence keeps its marks and the white space after them, so that all sentences joined are
/// the text.
pub fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (sentence, behind) = rest.split_at(sentence_end(rest));
        rest = behind;
        (!sentence.is_empty()).then_some(sentence)
    })
}

fn sentence_end(text: &str) -> usize {
    let mut from = 0;
    while let Some(next) = text[from..].find(|c: char| c == '\n' || is_sentence_mark(c)) {
        let at = from + next;
        let behind = text[at..].trim_start_matches(is_sentence_mark);
        let marks = &text[at..text.len() - behind.len()];
        // A line break has no marks.
        if marks.is_empty() || ends_sentence(&text[..at], marks, behind) {
            return text.len() - behind.trim_start().len();
        }
        // A run of marks is checked once, since long runs occur in foreign text.
        from = at + marks.len();
    }
    text.len()
}

/// Returns true for a mark that may end a sentence.
pub fn is_sentence_mark(c: char) -> bool {
    matches!(c, '.' | '!' | '?' | ';' | '。' | '！' | '？' | '；')
}

/// Returns true if `marks` end a sentence. A period inside a word or after a title does not.
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

/// Quotes one word for a POSIX shell (POSIX.1-2024, Shell Command Language, 2.2.2): no character is special within single
/// quotes.
pub fn shell_quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Quotes one word for a POSIX shell if it has a character that may need it.
pub fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) { word.to_owned() } else { shell_quote(word) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(shell_quote("it's; rm -rf $HOME `x`"), r"'it'\''s; rm -rf $HOME `x`'");
        for (word, expected) in
            [("a/b-c.d:e", "a/b-c.d:e"), ("早报", "早报"), ("", "''"), ("a b", "'a b'"), ("*", "'*'")]
        {
            assert_eq!(shell_word(word), expected);
        }
    }

    #[test]
    fn only_numbers_of_lines_are_removed() {
        for (page, expected) in [
            ("1\ta\n2\t\n3\t4\tb", "a\n\n4\tb"),
            ("7\ta\n8\tb\n[lines 7-8 of 9]", "a\nb\n[lines 7-8 of 9]"),
            ("1\ta\n1\tb", "a\n1\tb"),
            ("a\tb\n2\tc", "a\tb\n2\tc"),
            ("", ""),
        ] {
            assert_eq!(without_line_numbers(page), expected, "{page:?}");
        }
    }

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

    #[test]
    fn a_long_run_of_marks_takes_linear_time() {
        // The runner ends a run in quadratic time (`slow-timeout` in .config/nextest.toml).
        let run = format!("{}a", ".".repeat(500_000));
        assert_eq!(sentences(&run).count(), 1);
    }
}
