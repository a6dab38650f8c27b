//! Translates findings and configuration faults into Chinese. They arrive as complete English sentences, some over the control
//! socket, so the translation recognizes them by their words.

use super::output::tr;
use crate::config::ConfigFault;

/// The sentences, one `English => Chinese` a line.
const SENTENCES: &str = include_str!("chinese.txt");
/// The deepest nesting of sentences within the values of other sentences.
const MAX_DEPTH: usize = 3;

/// Replaces each `{}` by the next of `values`, and `{0}` by the first.
pub fn fill_template(template: &str, values: &[String]) -> String {
    let mut filled = String::new();
    let mut rest = template;
    let mut next = values.iter();
    while let Some((before, behind)) = rest.split_once('{') {
        filled.push_str(before);
        let Some((number, behind)) = behind.split_once('}') else { break };
        let value =
            if number.is_empty() { next.next() } else { number.parse().ok().and_then(|at: usize| values.get(at)) };
        filled.push_str(value.map_or("", String::as_str));
        rest = behind;
    }
    filled + rest
}

/// Returns a sentence in the output language; unchanged if there is no translation.
pub fn translate(english: &str) -> String {
    tr(None, Some(())).and_then(|()| translated(english, MAX_DEPTH)).unwrap_or_else(|| english.to_owned())
}

/// Formats a fault on one line, like its `Display`, in the language of the output.
pub fn translate_fault(fault: &ConfigFault) -> String {
    if tr(true, false) {
        return fault.to_string();
    }
    let key = if fault.key.is_empty() { String::new() } else { format!("{}: ", fault.key) };
    let allowed =
        if fault.allowed.is_empty() { String::new() } else { format!("；应为：{}", translate(&fault.allowed)) };
    let line = format!("{}: {key}{}{allowed}", fault.origin, translate(&fault.wrong));
    line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn translated(english: &str, depth: usize) -> Option<String> {
    let mut pairs = SENTENCES.lines().filter_map(|line| line.split_once(" => "));
    pairs.find_map(|(template, chinese)| {
        let values = values_of(template, english)?;
        let value = |value: &str| {
            // A single word is a name and is not translated.
            let depth = depth.checked_sub(1).filter(|_| value.contains(' '));
            depth.and_then(|depth| translated(value, depth)).unwrap_or_else(|| value.to_owned())
        };
        let values: Vec<_> = values.into_iter().map(value).collect();
        Some(fill_template(chinese, &values))
    })
}

/// Returns the values for the `{}` of `template` in `text`, if `text` matches the template.
fn values_of<'a>(template: &str, text: &'a str) -> Option<Vec<&'a str>> {
    let mut pieces = template.split("{}");
    let mut rest = text.strip_prefix(pieces.next()?)?;
    let pieces: Vec<_> = pieces.collect();
    let mut values = Vec::new();
    for (number, piece) in pieces.iter().enumerate() {
        let at = if number + 1 == pieces.len() { rest.len().checked_sub(piece.len()) } else { rest.find(piece) };
        let (value, behind) = rest.split_at_checked(at?)?;
        rest = behind.strip_prefix(piece)?;
        values.push(value);
    }
    rest.is_empty().then_some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_recognized_by_their_words() {
        for (english, chinese) in [
            ("1.2 GB are free", Some("剩余 1.2 GB")),
            ("/home/a/.daoyou, private", Some("/home/a/.daoyou，仅自己可访问")),
            ("within 3 s of openai's", Some("与 openai 相差不超过 3 秒")),
            ("unknown key; the nearest known key is agent.model", Some("没有这个键；最接近的是 agent.model")),
            ("the value is a text", Some("这里是文本")),
            ("it answers, but not now: it cannot be reached: x", Some("有响应，但暂时不可用：无法连接：x")),
            ("unknown key; the nearest known key is model", Some("没有这个键；最接近的是 model")),
            ("something else", None),
            ("", None),
        ] {
            assert_eq!(translated(english, MAX_DEPTH).as_deref(), chinese, "{english}");
        }
    }

    #[test]
    fn each_translation_has_the_placeholders_of_its_original() {
        for line in SENTENCES.lines().filter(|line| line.contains(" => ")) {
            let (english, chinese) = line.split_once(" => ").unwrap();
            let placeholders = chinese.matches("{}").count()
                + usize::from(chinese.contains("{0}"))
                + usize::from(chinese.contains("{1}"));
            assert_eq!(english.matches("{}").count(), placeholders, "{line}");
        }
    }
}
