//! The screen: how wide it is, and the one row on it that may still change.

use std::io;

use rustix::termios::tcgetwinsize;

use super::console::Style;
use super::layout::Row;

/// Where nothing says how wide the screen is.
const USUAL_COLUMNS: usize = 80;
/// Longer rows are hard to read.
const MAX_TEXT_COLUMNS: usize = 110;
const MIN_COLUMNS: usize = 10;

const CLEAR_ROW: &str = "\r\x1b[K";

/// Final rows go to the screen once; below them may stand one row that is drawn anew when it changes. It never reaches
/// the last column, so that the terminal does not wrap it and it can be taken back.
pub(super) struct Screen {
    style: Style,
    live: Row,
}

impl Screen {
    pub(super) fn new(style: Style) -> Self {
        Self { style, live: Row::default() }
    }

    /// Columns that text may fill at the moment.
    pub(super) fn width(&self) -> usize {
        let columns = self.style.columns.unwrap_or_else(columns);
        (columns.saturating_sub(1)).clamp(MIN_COLUMNS, MAX_TEXT_COLUMNS)
    }

    /// Prints `rows` above the row that may change, which becomes `live`.
    pub(super) fn put(&mut self, rows: &[Row], live: Option<Row>) -> String {
        let colour = self.style.colour;
        let mut drawn = String::new();
        for row in rows {
            drawn += &over(&std::mem::take(&mut self.live), row, colour);
            drawn.push('\n');
        }
        // The screen may have been made narrower since the row was laid out.
        let live = live.unwrap_or_default().cut(self.width());
        drawn += &over(&self.live, &live, colour);
        self.live = live;
        drawn
    }

    /// The changing row is final as it stands.
    pub(super) fn keep(&mut self) -> String {
        let row = std::mem::take(&mut self.live);
        if row.is_empty() { String::new() } else { "\n".to_owned() }
    }

    /// Takes the changing row off the screen.
    pub(super) fn lift(&mut self) -> String {
        self.put(&[], None)
    }
}

/// Draws `new` where `old` stands. What only grew is written on, so that nothing flickers.
fn over(old: &Row, new: &Row, in_colour: bool) -> String {
    match old.rest_of(new, in_colour) {
        Some(rest) => rest,
        None => format!("{CLEAR_ROW}{}", new.paint(in_colour)),
    }
}

fn columns() -> usize {
    let screen = tcgetwinsize(io::stdout()).map(|size| usize::from(size.ws_col)).unwrap_or(0);
    let said = || std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).filter(|said| *said > 0);
    if screen > 0 { screen } else { said().unwrap_or(USUAL_COLUMNS) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::layout::Face;

    #[test]
    fn a_row_that_grows_is_written_on_and_one_that_changes_is_drawn_anew() {
        let mut screen = Screen::new(Style { live: true, colour: false, cursor: true, columns: Some(40) });
        let row = |text: &str| Row::of(Face::PLAIN, text);
        for (rows, live, drawn) in [
            (&[][..], Some(row("Hel")), "Hel"),
            (&[], Some(row("Hello")), "lo"),
            (&[], Some(row("Hello")), ""),
            (&[row("Hello you")], Some(row("and")), " you\nand"),
            (&[row("And"), row("more")], None, "\r\x1b[KAnd\nmore\n"),
            (&[], Some(row("x")), "x"),
            (&[], None, "\r\x1b[K"),
        ] {
            assert_eq!(screen.put(rows, live), drawn);
        }
    }
}
