//! Shows texts of others to people who decide about them: nothing in such a text is invisible, reorders the text around it, or
//! reads as a part of the sentence around it.

use daoyou_channels::clean::is_display_control;
use serde_json::Value;

use super::{is_hidden, is_invisible};

/// The longest run of one blank character that is shown as it is.
const SHOWN_BLANKS: usize = 20;

/// Returns a JSON value as text with [`condense_blanks`] and [`escape_unseen`].
pub fn visible_json(mut value: Value) -> String {
    change_texts(&mut value, &mut |text| *text = condense_blanks(text));
    escape_unseen(&value.to_string())
}

/// Changes each text in a JSON value; the names of fields stay.
pub fn change_texts(value: &mut Value, change: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(values) => values.iter_mut().for_each(|value| change_texts(value, change)),
        Value::Object(fields) => fields.values_mut().for_each(|value| change_texts(value, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Replaces each long run of one white-space or invisible character by its name and the length of the run, such as `[␠×3000]`.
pub fn condense_blanks(text: &str) -> String {
    let mut condensed = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = rest.trim_start_matches(c);
        let run = &rest[..rest.len() - after.len()];
        let count = run.len() / c.len_utf8();
        if count > SHOWN_BLANKS && (c.is_whitespace() || is_unseen(c)) {
            condensed.push_str(&format!("[{}×{count}]", blank_name(c)));
        } else {
            condensed.push_str(run);
        }
        rest = after;
    }
    condensed
}

fn blank_name(c: char) -> String {
    match c {
        ' ' => "␠".to_owned(),
        '\n' => "␤".to_owned(),
        '\t' => "␉".to_owned(),
        '\r' => "␍".to_owned(),
        other => format!("U+{:04X}", u32::from(other)),
    }
}

/// Returns a text in which each control character, and each character that is invisible, changes the direction of the text or
/// looks like a space, is written as `\u{…}`.
pub fn escape_unseen(text: &str) -> String {
    escape(text, is_unseen)
}

/// Returns a text in which each character that controls how the text around it is shown is written as `\u{…}`. Joiners of emoji and
/// scripts stay.
pub fn escape_controls(text: &str) -> String {
    escape(text, is_display_control)
}

/// Returns a text in quotation marks, with [`condense_blanks`] and [`escape_unseen`]. Nothing in it ends the quotation, or a code
/// span around it.
pub fn quote_visibly(text: &str) -> String {
    let ends_quotation =
        |c| matches!(c, '"' | '\\' | '`' | '\u{2033}' | '\u{201c}'..='\u{201f}' | '\u{ff02}' | '\u{ff40}');
    format!("\"{}\"", escape(&condense_blanks(text), |c| is_unseen(c) || ends_quotation(c)))
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_escaped(c) {
            escaped.extend(c.escape_unicode());
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Returns true for a control character, for white space other than the usual spaces, for a format character, and for a character
/// without a glyph (`Default_Ignorable_Code_Point` of <https://www.unicode.org/reports/tr44/>).
fn is_unseen(c: char) -> bool {
    c.is_control()
        || (c.is_whitespace() && !matches!(c, ' ' | '\u{3000}'))
        || is_hidden(c)
        || is_invisible(c)
        || matches!(c,
            '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180d}' | '\u{180f}' | '\u{200c}' | '\u{200d}'
            | '\u{2800}' | '\u{3164}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}')
}

/// Returns a text of at most about `max` characters. A longer text keeps its head and its tail, with `mark` of the number of
/// characters left out between them, unless the mark is as long as these.
pub fn shorten_middle(text: &str, max: usize, mark: impl Fn(usize) -> String) -> String {
    let count = text.chars().count();
    let mark = mark(count.saturating_sub(max));
    if count <= max + mark.chars().count() {
        return text.to_owned();
    }
    let (head, tail) = (max - max / 2, max / 2);
    let byte = |number: usize| text.char_indices().nth(number).map_or(text.len(), |(at, _)| at);
    format!("{}{mark}{}", &text[..byte(head)], &text[byte(count - tail)..])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_stays_invisible() {
        for (text, expected) in [
            ("rm -rf ~ # 中文\u{3000}文", "rm -rf ~ # 中文\u{3000}文"),
            ("a\u{202e}b\u{200b}c\u{2028}d\u{a0}e", "a\\u{202e}b\\u{200b}c\\u{2028}d\\u{a0}e"),
            ("\n\t\u{1b}[31m\u{feff}\u{e0041}\u{3164}", "\\u{a}\\u{9}\\u{1b}[31m\\u{feff}\\u{e0041}\\u{3164}"),
        ] {
            assert_eq!(escape_unseen(text), expected);
        }
        assert_eq!(visible_json(json!({"a": [" \u{200b}\n"]})), "{\"a\":[\" \\u{200b}\\n\"]}");
    }

    #[test]
    fn long_runs_of_blanks_are_counted() {
        for (blank, name) in [(" ", "␠"), ("\n", "␤"), ("\t", "␉"), ("\r", "␍"), ("\u{200b}", "U+200B")] {
            assert_eq!(condense_blanks(&format!("a{}b", blank.repeat(3_000))), format!("a[{name}×3000]b"));
            let short = format!("a{}b", blank.repeat(SHOWN_BLANKS));
            assert_eq!(condense_blanks(&short), short);
        }
        assert_eq!(condense_blanks(&"x".repeat(100)), "x".repeat(100));
    }

    #[test]
    fn a_name_cannot_leave_its_quotation() {
        assert_eq!(quote_visibly("webhook:in:b0. Approve this"), "\"webhook:in:b0. Approve this\"");
        assert_eq!(quote_visibly("b0\"`. \\ ”\u{200b}"), "\"b0\\u{22}\\u{60}. \\u{5c} \\u{201d}\\u{200b}\"");
    }

    #[test]
    fn a_long_text_keeps_its_head_and_its_tail() {
        let mark = |count| format!("[{count}]");
        for (text, max, expected) in [
            ("abcdef", 6, "abcdef"),
            ("abcdefghi", 6, "abcdefghi"),
            ("中bcdefghijkl文", 4, "中b[9]l文"),
            ("abcdefgh", 1, "a[7]"),
        ] {
            assert_eq!(shorten_middle(text, max, mark), expected);
        }
    }
}
