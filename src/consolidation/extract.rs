//! The extract that replaces a summary if no model writes one.

use daoyou_channels::text::Language;

use super::transcript::{LineAuthor, TranscriptLine};
use crate::text::{one_line, sentences};

/// The number of statements in an extract, and the characters of each.
const MAX_STATEMENTS: usize = 5;
const STATEMENT_CHARS: usize = 50;

/// The beginning of an extract, by language.
const OPENINGS: [(Language, &str); 2] = [(Language::Zh, "用户关心: "), (Language::En, "The user was concerned with: ")];

/// Appends an extract of `lines` to the summary `before`, at most `chars` characters in all. If the text is too long, the
/// oldest extracts are dropped first, then the beginning of the text that a model wrote. Some of that text always stays.
pub(super) fn extend(before: &str, lines: &[TranscriptLine], language: Language, chars: usize) -> String {
    let new = match statements(lines) {
        statements if statements.is_empty() && !before.is_empty() => String::new(),
        statements => extract(&statements, language),
    };
    let is_extract = |line: &str| OPENINGS.iter().any(|(_, opening)| line.starts_with(opening));
    let (mut extracts, summary): (Vec<&str>, Vec<&str>) = before.lines().partition(|line| is_extract(line));
    let summary = summary.join("\n");
    let length = |extracts: &[&str]| {
        let parts = std::iter::once(summary.as_str()).chain(extracts.iter().copied()).chain([new.as_str()]);
        parts.filter(|part| !part.is_empty()).map(|part| part.chars().count() + 1).sum::<usize>().saturating_sub(1)
    };
    while length(&extracts) > chars && !extracts.is_empty() {
        extracts.remove(0);
    }
    let surplus = length(&extracts).saturating_sub(chars);
    let least = summary.chars().count().min(chars / 2);
    let summary = ending(&summary, summary.chars().count().saturating_sub(surplus).max(least));
    let parts = std::iter::once(summary).chain(extracts).chain([new.as_str()]).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("\n").chars().take(chars).collect()
}

/// Returns the end of a text, at most `chars` characters, from the beginning of a sentence if there is one.
fn ending(text: &str, chars: usize) -> &str {
    let surplus = text.chars().count().saturating_sub(chars);
    let Some((from, _)) = text.char_indices().nth(surplus).filter(|_| surplus > 0) else {
        return if surplus > 0 { "" } else { text };
    };
    let rest = &text[from..];
    let behind = &rest[sentences(rest).next().map_or(0, str::len)..];
    if behind.is_empty() { rest } else { behind }
}

/// Returns the first statements of people, without duplicates.
fn statements(lines: &[TranscriptLine]) -> Vec<String> {
    let mut statements: Vec<String> = Vec::new();
    for line in lines.iter().filter(|line| matches!(line.author, LineAuthor::Person { .. })) {
        let statement = statement(&line.text);
        if !statement.is_empty() && !statements.contains(&statement) {
            statements.push(statement);
        }
        if statements.len() == MAX_STATEMENTS {
            break;
        }
    }
    statements
}

/// Formats the statements.
fn extract(statements: &[String], language: Language) -> String {
    let opening = OPENINGS.iter().find(|(of, _)| *of == language).map_or("", |(_, opening)| opening);
    match (language, statements.is_empty()) {
        (Language::Zh, true) => "无特别内容".to_owned(),
        (Language::Zh, false) => format!("{opening}{}", statements.join("、")),
        (Language::En, true) => "nothing in particular".to_owned(),
        (Language::En, false) => format!("{opening}{}", statements.join("; ")),
    }
}

/// Returns the first characters of a text, without punctuation, on one line.
fn statement(text: &str) -> String {
    let words: String = text.chars().map(|c| if c.is_alphanumeric() { c } else { ' ' }).collect();
    one_line(&words).chars().take(STATEMENT_CHARS).collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> TranscriptLine {
        let author = LineAuthor::Person { owner: None, name: "ann".to_owned(), recalled: String::new() };
        TranscriptLine { seq: 0, turn: String::new(), at: 0, begins_turn: true, author, text: text.to_owned() }
    }

    #[test]
    fn the_extract_holds_the_first_statements() {
        let many: Vec<_> = (0..9).map(|n| n.to_string()).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        for (texts, language, expected) in [
            (&["你好！", "天气，怎么样？", "你好。"][..], Language::Zh, "用户关心: 你好、天气 怎么样"),
            (&[], Language::Zh, "无特别内容"),
            (&["?!"], Language::En, "nothing in particular"),
            (&["Hello, you!", "hello"], Language::En, "The user was concerned with: Hello you; hello"),
            (&many, Language::En, "The user was concerned with: 0; 1; 2; 3; 4"),
        ] {
            let lines: Vec<_> = texts.iter().map(|text| line(text)).collect();
            assert_eq!(extract(&statements(&lines), language), expected);
        }
        let long = extract(&statements(&[line(&"word ".repeat(50))]), Language::Zh);
        assert!(long.chars().count() <= "用户关心: ".chars().count() + STATEMENT_CHARS, "{long}");
    }

    #[test]
    fn extracts_accumulate_and_the_oldest_are_dropped() {
        let mut summary = String::new();
        for n in 0..20 {
            summary = extend(&summary, &[line(&format!("topic {n}"))], Language::Zh, 60);
            assert!(summary.chars().count() <= 60);
        }
        assert_eq!(summary.lines().last(), Some("用户关心: topic 19"));
        assert!(summary.lines().count() > 2 && !summary.contains("topic 2\n"));
    }

    #[test]
    fn a_models_summary_is_cut_at_a_sentence_and_never_dropped() {
        let summary = "The cat is Momo. A plan was made. The boiler is old.";
        for (before, text, chars, expected) in [
            ("长长长长长长长长长长长长", "", 10, "长长长长长长长长长长"),
            (summary, "", 100, summary),
            (summary, "", 20, "The boiler is old."),
            (summary, "", 40, "A plan was made. The boiler is old."),
            ("", "", 40, "nothing in particular"),
            // The oldest extract is dropped first.
            (
                "It was told.\nThe user was concerned with: a\n用户关心: b",
                "c",
                70,
                "It was told.\n用户关心: b\nThe user was concerned with: c",
            ),
            (summary, "c", 70, "A plan was made. The boiler is old.\nThe user was concerned with: c"),
            (summary, "c", 34, "he boiler is old.\nThe user was con"),
        ] {
            let lines: Vec<_> = Some(text).filter(|text| !text.is_empty()).map(line).into_iter().collect();
            assert_eq!(extend(before, &lines, Language::En, chars), expected, "{before} {text} {chars}");
        }
    }
}
