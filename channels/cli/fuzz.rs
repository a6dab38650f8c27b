//! The entry point of the fuzz target `terminal_markdown`.

use super::config::Thinking;
use super::painter::Painter;
use super::screen::TerminalStyle;
use crate::event::TurnEvent;
use crate::text::Language;

/// The byte that ends a piece.
const CUT: u8 = 0xff;

/// Reads the kind of terminal from the first byte and an answer from the rest, in pieces that end with 0xff. Asserts that
/// the answer sends no command to the terminal, neither while it streams nor as a whole.
pub fn markdown(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let pieces: Vec<String> =
        rest.split(|byte| *byte == CUT).map(|piece| String::from_utf8_lossy(piece).into_owned()).collect();
    let style = TerminalStyle {
        live: first & 1 == 0,
        colour: first & 2 == 0,
        cursor: first & 4 == 0,
        columns: Some(usize::from(first >> 3) * 4),
    };
    let mut painter = Painter::new(style, Language::En, Thinking::Show);
    let mut drawn = String::new();
    for delta in &pieces {
        drawn += &painter.event(&TurnEvent::Text { delta: delta.clone() });
    }
    drawn += &painter.reply(&pieces.concat(), false);
    check(&drawn);
    check(&Painter::new(style, Language::En, Thinking::Show).reply(&pieces.concat(), first & 8 == 0));
}

/// Asserts that only the painter's own sequences command the terminal: styles (`ESC [ … m`) and the redrawing of a row.
fn check(drawn: &str) {
    let mut rest = drawn;
    while let Some(at) = rest.find(is_command) {
        let (_, command) = rest.split_at(at);
        rest = own(command).unwrap_or_else(|| panic!("{:?} in {drawn:?}", command.chars().next()));
    }
}

/// Returns the text after one of the painter's own commands.
fn own(text: &str) -> Option<&str> {
    let row = text.strip_prefix("\x1b[J").or_else(|| text.strip_prefix('\r'));
    row.or_else(|| {
        text.strip_prefix("\x1b[")?.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').strip_prefix('m')
    })
}

fn is_command(c: char) -> bool {
    let is_bidi = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    is_bidi || (c.is_control() && c != '\n' && c != '\t')
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn the_seeds_of_terminal_markdown_pass() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/terminal_markdown");
        let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
        assert!(files.len() >= 3, "a target has at least three seeds");
        for file in files {
            super::markdown(&std::fs::read(&file).unwrap());
        }
    }
}
