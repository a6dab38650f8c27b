//! Removes control sequences from text, so that it cannot control the terminal or forge a log line.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The length in characters at which an unterminated control string counts as ended.
const MAX_CONTROL_STRING: usize = 256;

/// Returns `text` without escape sequences and control characters.
pub fn clean(text: &str) -> String {
    Cleaner::default().clean(text)
}

/// Returns [`clean`] text on one line.
pub fn clean_line(text: &str) -> String {
    clean(text).replace(['\n', '\t'], " ")
}

/// Returns cleaned text with its line feeds written as `\n`.
pub fn escape_newlines(text: &str) -> String {
    clean(text).replace('\n', "\\n")
}

/// Returns `json` with every display control in its strings written as `\uXXXX`. A parser reads the same data, and the
/// terminal interprets nothing. JSON writers escape only C0 controls.
pub fn escape_json(json: &str) -> Cow<'_, str> {
    let is_left = |c: char| c != '\n' && is_display_control(c);
    if !json.contains(is_left) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        if !is_left(c) {
            escaped.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    }
    Cow::Owned(escaped)
}

/// Removes escape sequences and control characters from text that may arrive in pieces: the output of a model or a tool
/// must not move the cursor, rename the window, fill the clipboard or reverse the reading direction. Line feeds, tabs,
/// joiners and combining characters stay.
#[derive(Debug, Default)]
pub struct Cleaner(EscapeState);

#[derive(Clone, Copy, Debug, Default)]
enum EscapeState {
    #[default]
    Text,
    Escape,
    /// `ESC [ … letter`
    Sequence,
    /// `ESC ] …` up to BEL, `ESC \` or the end of the line; holds the number of characters so far.
    String(usize),
}

impl Cleaner {
    /// Returns the text of the next piece.
    pub fn clean(&mut self, text: &str) -> String {
        // Most text has nothing to remove.
        let is_plain = |byte: u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t');
        if matches!(self.0, EscapeState::Text) && text.bytes().all(is_plain) {
            return text.to_owned();
        }
        text.chars().filter(|c| self.keeps(*c)).collect()
    }

    fn keeps(&mut self, c: char) -> bool {
        let (next, keep) = match (self.0, c) {
            (_, '\x1b') => (EscapeState::Escape, false),
            (_, '\u{9b}') => (EscapeState::Sequence, false),
            (_, '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}') => (EscapeState::String(0), false),
            (_, '\n') => (EscapeState::Text, true),
            (EscapeState::Text, _) => (EscapeState::Text, true),
            (EscapeState::Escape, '[') => (EscapeState::Sequence, false),
            (EscapeState::Escape, ']' | 'P' | 'X' | '^' | '_') => (EscapeState::String(0), false),
            (EscapeState::Escape, ' '..='/') => (EscapeState::Escape, false),
            (EscapeState::Sequence, '@'..='~') | (EscapeState::Escape, _) => (EscapeState::Text, false),
            (EscapeState::Sequence, c) if c.is_ascii() => (EscapeState::Sequence, false),
            // No sequence contains such a character, so the sequence was cut off.
            (EscapeState::Sequence, _) => (EscapeState::Text, true),
            (EscapeState::String(_), '\x07' | '\u{9c}') | (EscapeState::String(MAX_CONTROL_STRING..), _) => {
                (EscapeState::Text, false)
            }
            (EscapeState::String(passed), _) => (EscapeState::String(passed + 1), false),
        };
        self.0 = next;
        keep && (c == '\n' || c == '\t' || !is_display_control(c))
    }
}

/// Returns true for a character that controls how the text around it is shown: C0, DEL and C1 controls, the line and
/// paragraph separators, those that reorder text (<https://www.unicode.org/reports/tr9/>, 2.1–2.6), and the invisible tag
/// characters.
pub fn is_display_control(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn commands_are_taken_out_and_text_stays() {
        for (text, expected) in [
            ("a\x1b[31mb\x1b]0;title\x07c\rd", "abcd"),
            ("\x1b]52;c;aGk=\x1b\\x", "x"),
            ("\u{9b}2Jx\u{7f}\x08", "x"),
            ("道\t友\n👩‍🚀", "道\t友\n👩‍🚀"),
            ("evil\u{202e}gnp.exe\u{2066}", "evilgnp.exe"),
            ("a\u{2028}b\u{2029}c", "abc"),
            ("a\u{200e}b\u{200f}c\u{61c}d\u{e0041}\u{e007f}e", "abcde"),
            ("e\u{301} \u{200d} ❤\u{fe0f}", "e\u{301} \u{200d} ❤\u{fe0f}"),
            ("\u{90}1;secret\u{9c}x\x1bP1;secret\x1b\\y\x1b_z\nlast", "xy\nlast"),
        ] {
            assert_eq!(clean(text), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn cleaned_text_commands_nothing_wherever_it_is_split(
            pieces in proptest::collection::vec("[a-z\\[\\]0-9;中\x1b\x07\u{9b}\u{9d}\u{9c}\r\n\t]{0,12}", 0..8),
        ) {
            let mut cleaner = Cleaner::default();
            let split: String = pieces.iter().map(|piece| cleaner.clean(piece)).collect();
            prop_assert_eq!(&split, &clean(&pieces.concat()));
            prop_assert!(!split.contains(|c: char| is_display_control(c) && c != '\n' && c != '\t'));
        }

        #[test]
        fn escaped_json_is_the_same_data_and_commands_nothing(text in "[a中\"\\\\\x1b\u{9b}\u{7f}\u{202e}\u{2028}\u{e0041}\n]{0,20}") {
            let json = format!("{:#}", serde_json::json!({ &text: [&text] }));
            let escaped = escape_json(&json);
            prop_assert!(!escaped.contains(|c: char| is_display_control(c) && c != '\n'));
            let read: serde_json::Value = serde_json::from_str(&escaped).unwrap();
            prop_assert_eq!(&read[&text][0], &text);
        }
    }
}
