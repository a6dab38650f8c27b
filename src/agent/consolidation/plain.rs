//! The extract that stands in for a summary where no model writes one.

use daoyou_channels::cli::Language;

use super::transcript::{Line, Who};

/// What people said first, so many different things, each of so many characters.
const SAYINGS: usize = 5;
const SAYING_CHARS: usize = 50;

/// The summary so far with an extract of `lines` behind it, at most `chars` long: the oldest extracts give way.
pub(super) fn extend(before: &str, lines: &[Line], language: Language, chars: usize) -> String {
    let mut summary = if before.is_empty() { String::new() } else { format!("{before}\n") };
    summary.push_str(&extract(lines, language));
    while summary.chars().count() > chars {
        match summary.split_once('\n') {
            Some((_, rest)) => summary = rest.to_owned(),
            None => summary = summary.chars().take(chars).collect(),
        }
    }
    summary
}

/// What people were concerned with, from the beginnings of what they said first.
fn extract(lines: &[Line], language: Language) -> String {
    let mut sayings: Vec<String> = Vec::new();
    for line in lines.iter().filter(|line| matches!(line.who, Who::Person { .. })) {
        let saying = saying(&line.text);
        if !saying.is_empty() && !sayings.contains(&saying) {
            sayings.push(saying);
        }
        if sayings.len() == SAYINGS {
            break;
        }
    }
    match (language, sayings.is_empty()) {
        (Language::Zh, true) => "无特别内容".to_owned(),
        (Language::Zh, false) => format!("用户关心: {}", sayings.join("、")),
        (Language::En, true) => "nothing in particular".to_owned(),
        (Language::En, false) => format!("The user was concerned with: {}", sayings.join("; ")),
    }
}

/// The first characters of a text, without punctuation, on one line.
fn saying(text: &str) -> String {
    let words: String = text.chars().map(|c| if c.is_alphanumeric() { c } else { ' ' }).collect();
    let line = words.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(SAYING_CHARS).collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        let who = Who::Person { owner: None, name: "ann".to_owned(), recalled: String::new() };
        Line { seq: 0, turn: String::new(), at: 0, begins_turn: true, who, text: text.to_owned() }
    }

    #[test]
    fn the_extract_names_what_was_said_first() {
        let many: Vec<_> = (0..9).map(|n| n.to_string()).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        for (said, language, expected) in [
            (&["你好！", "天气，怎么样？", "你好。"][..], Language::Zh, "用户关心: 你好、天气 怎么样"),
            (&[], Language::Zh, "无特别内容"),
            (&["?!"], Language::En, "nothing in particular"),
            (&["Hello, you!", "hello"], Language::En, "The user was concerned with: Hello you; hello"),
            (&many, Language::En, "The user was concerned with: 0; 1; 2; 3; 4"),
        ] {
            let lines: Vec<_> = said.iter().map(|text| line(text)).collect();
            assert_eq!(extract(&lines, language), expected);
        }
        let long = extract(&[line(&"word ".repeat(50))], Language::Zh);
        assert!(long.chars().count() <= "用户关心: ".chars().count() + SAYING_CHARS, "{long}");
    }

    #[test]
    fn extracts_stand_behind_each_other_and_the_oldest_give_way() {
        let mut summary = String::new();
        for n in 0..20 {
            summary = extend(&summary, &[line(&format!("topic {n}"))], Language::Zh, 60);
            assert!(summary.chars().count() <= 60);
        }
        assert_eq!(summary.lines().last(), Some("用户关心: topic 19"));
        assert!(summary.lines().count() > 2 && !summary.contains("topic 2\n"));
        assert_eq!(extend(&"长".repeat(100), &[], Language::Zh, 10), "无特别内容");
    }
}
