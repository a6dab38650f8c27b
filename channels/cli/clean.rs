//! Text that must not command the terminal.

/// After how many characters a control string that does not end is taken for ended.
const MAX_CONTROL_STRING: usize = 256;

/// `text` without what would command the terminal.
pub(super) fn clean(text: &str) -> String {
    Cleaner::default().clean(text)
}

/// [`clean`], on one line.
pub(super) fn clean_line(text: &str) -> String {
    clean(text).replace(['\n', '\t'], " ")
}

/// Takes escape sequences and control characters out of text that may come in pieces: what a model or a tool wrote
/// must not move the cursor, rename the window, fill the clipboard or turn the reading direction round. Line feeds and
/// tabs stay.
#[derive(Default)]
pub(super) struct Cleaner {
    within: Within,
}

#[derive(Clone, Copy, Default)]
enum Within {
    #[default]
    Text,
    Escape,
    /// `ESC [ … letter`
    Sequence,
    /// `ESC ] …` up to BEL, `ESC \` or a line's end; how much of it passed.
    String(usize),
}

impl Cleaner {
    pub(super) fn clean(&mut self, text: &str) -> String {
        text.chars().filter(|c| self.keeps(*c)).collect()
    }

    fn keeps(&mut self, c: char) -> bool {
        let (next, keep) = match (self.within, c) {
            (_, '\x1b') => (Within::Escape, false),
            (_, '\u{9b}') => (Within::Sequence, false),
            (_, '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}') => (Within::String(0), false),
            (_, '\n') => (Within::Text, true),
            (Within::Text, c) => (Within::Text, c == '\t' || !is_command(c)),
            (Within::Escape, '[') => (Within::Sequence, false),
            (Within::Escape, ']' | 'P' | 'X' | '^' | '_') => (Within::String(0), false),
            (Within::Escape, ' '..='/') => (Within::Escape, false),
            (Within::Sequence, '@'..='~') | (Within::Escape, _) => (Within::Text, false),
            (Within::Sequence, c) if c.is_ascii() => (Within::Sequence, false),
            // No sequence holds such a character: it was cut off.
            (Within::Sequence, _) => (Within::Text, true),
            (Within::String(_), '\x07' | '\u{9c}') | (Within::String(MAX_CONTROL_STRING..), _) => (Within::Text, false),
            (Within::String(passed), _) => (Within::String(passed + 1), false),
        };
        self.within = next;
        keep && (c == '\n' || c == '\t' || !is_command(c))
    }
}

/// Control characters, and those that reorder what stands around them (<https://www.unicode.org/reports/tr9/>, 2.1–2.5).
fn is_command(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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
            prop_assert!(!split.contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
        }
    }
}
