//! The screen: its style, its width, and the one row that may still change.

use std::io::{self, IsTerminal};

use rustix::termios::tcgetwinsize;

use super::layout::ScreenRow;

/// The assumed width of a screen that does not report one.
const USUAL_COLUMNS: usize = 80;
/// The maximum width of text. Longer rows are hard to read.
const MAX_TEXT_COLUMNS: usize = 110;
const MIN_COLUMNS: usize = 10;

const CLEAR_BELOW: &str = "\x1b[J";

/// Values of `TERM` for terminals without cursor movement. The line editor has the same list.
const DUMB_TERMS: [&str; 3] = ["dumb", "cons25", "emacs"];

/// The style of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalStyle {
    /// Shows turns while they run, and a prompt; if false, only complete replies.
    pub live: bool,
    /// Uses colours and other styles.
    pub colour: bool,
    /// The cursor can be moved, so a row can be redrawn.
    pub cursor: bool,
    /// The width of the screen; `None` asks the terminal each time.
    pub columns: Option<usize>,
}

impl TerminalStyle {
    /// Replies only, as plain text.
    pub const PLAIN: Self = Self { live: false, colour: false, cursor: false, columns: None };

    /// Returns the style for the standard streams of this process.
    pub(super) fn of_process() -> Self {
        let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
        Self::choose(is_terminal, |name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// Chooses the style. Output is coloured on a terminal that is not dumb, unless `NO_COLOR` (<https://no-color.org>) or
    /// `CLICOLOR=0` is set; `CLICOLOR_FORCE` (<https://bixense.com/clicolors/>) enables colours everywhere.
    fn choose(is_terminal: bool, env: impl Fn(&str) -> Option<String>) -> Self {
        let is_dumb = env("TERM").is_some_and(|term| DUMB_TERMS.contains(&term.as_str()));
        let is_on = |name| env(name).map(|value| value != "0");
        let colour = match (env("NO_COLOR"), is_on("CLICOLOR_FORCE"), is_on("CLICOLOR")) {
            (Some(_), ..) => false,
            (_, Some(true), _) => true,
            (.., Some(false)) => false,
            _ => is_terminal && !is_dumb,
        };
        Self { live: is_terminal, colour, cursor: is_terminal && !is_dumb, columns: None }
    }
}

/// Prints final rows once. Below them, one live row may be redrawn when it changes. The cursor rests at the start of the
/// live row: a terminal that becomes narrower may wrap or cut the row, and only from its start can all of it be cleared.
pub(super) struct Screen {
    style: TerminalStyle,
    live: ScreenRow,
    /// The width of the screen when the live row was drawn, in columns.
    drawn_at: usize,
}

impl Screen {
    pub(super) fn new(style: TerminalStyle) -> Self {
        Self { style, live: ScreenRow::default(), drawn_at: 0 }
    }

    /// Returns the columns that text may fill now.
    pub(super) fn width(&self) -> usize {
        (self.columns().saturating_sub(1)).clamp(MIN_COLUMNS, MAX_TEXT_COLUMNS)
    }

    fn columns(&self) -> usize {
        self.style.columns.unwrap_or_else(columns)
    }

    /// Prints `rows` as final and draws `live` as the new live row.
    pub(super) fn put(&mut self, rows: &[ScreenRow], live: Option<ScreenRow>) -> String {
        let mut drawn = String::new();
        for row in rows {
            drawn += &self.over(row);
            drawn.push('\n');
            self.live = ScreenRow::default();
        }
        // The live row never reaches the last column, so that the terminal does not wrap it.
        let live = live.unwrap_or_default().cut(self.width());
        drawn += &self.over(&live);
        if !live.is_empty() && !drawn.is_empty() {
            drawn.push('\r');
        }
        self.live = live;
        self.drawn_at = self.columns();
        drawn
    }

    /// Makes the live row final.
    pub(super) fn keep(&mut self) -> String {
        let row = std::mem::take(&mut self.live);
        if row.is_empty() { String::new() } else { format!("{CLEAR_BELOW}{}\n", row.paint(self.style.colour)) }
    }

    /// Removes the live row from the screen.
    pub(super) fn lift(&mut self) -> String {
        self.put(&[], None)
    }

    /// Draws `row` over the live row. A row that only grew is overwritten, so that it does not flicker.
    fn over(&self, row: &ScreenRow) -> String {
        if *row == self.live && self.drawn_at == self.columns() {
            return String::new();
        }
        let has_grown = row.plain().starts_with(&self.live.plain()) && self.drawn_at == self.columns();
        let clear = if self.live.is_empty() || has_grown { "" } else { CLEAR_BELOW };
        format!("{clear}{}", row.paint(self.style.colour))
    }
}

fn columns() -> usize {
    let screen = tcgetwinsize(io::stdout()).map(|size| usize::from(size.ws_col)).unwrap_or(0);
    let from_env =
        || std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).filter(|columns| *columns > 0);
    if screen > 0 { screen } else { from_env().unwrap_or(USUAL_COLUMNS) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::layout::TextStyle;

    #[test]
    fn a_growing_row_is_extended_and_a_changed_row_is_redrawn() {
        let mut screen = Screen::new(TerminalStyle { live: true, colour: false, cursor: true, columns: Some(40) });
        let row = |text: &str| ScreenRow::of(TextStyle::PLAIN, text);
        for (rows, live, drawn) in [
            (&[][..], Some(row("Hel")), "Hel\r"),
            (&[], Some(row("Hello")), "Hello\r"),
            (&[], Some(row("Hello")), ""),
            (&[row("Hello you")], Some(row("and")), "Hello you\nand\r"),
            (&[row("And"), row("more")], None, "\x1b[JAnd\nmore\n"),
            (&[], Some(row("x")), "x\r"),
            (&[], None, "\x1b[J"),
        ] {
            assert_eq!(screen.put(rows, live), drawn);
        }
    }

    /// Covers a terminal that rewraps rows when it becomes narrower, and one that cuts them off.
    #[test]
    fn a_row_that_changes_leaves_nothing_behind_when_the_screen_is_resized() {
        for is_cutting in [false, true] {
            let mut terminal = avt::Terminal::with_scrollback(40, 10, None).unwrap();
            if is_cutting {
                terminal.feed("\x1b[?1049h");
            }
            let mut screen = Screen::new(TerminalStyle { live: true, colour: false, cursor: true, columns: Some(40) });
            let feed = |terminal: &mut avt::Terminal, drawn: String| {
                terminal.feed(drawn.replace('\n', "\r\n").as_str());
            };
            let row = |text: &str| ScreenRow::of(TextStyle::PLAIN, text);
            let drawn = screen.put(&[row("a final row")], Some(row("this row changes while it is looked at")));
            feed(&mut terminal, drawn);
            for columns in [25, 15, 30] {
                terminal.resize(columns, 10);
                screen.style.columns = Some(columns);
                let drawn = screen.put(&[], Some(row(&format!("now {columns} columns wide"))));
                feed(&mut terminal, drawn);
            }
            let drawn = screen.put(&[row("the end")], None);
            feed(&mut terminal, drawn);
            let text = terminal.screen().text().concat();
            assert_eq!(text.trim_end(), "a final rowthe end", "{is_cutting}");
        }
    }

    #[test]
    fn colours_follow_the_terminal_and_the_environment() {
        type Env<'a> = &'a [(&'a str, &'a str)];
        let table: &[(bool, Env<'_>, (bool, bool))] = &[
            (true, &[("TERM", "xterm")], (true, true)),
            (true, &[], (true, true)),
            (true, &[("NO_COLOR", "1")], (false, true)),
            (true, &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")], (false, true)),
            (true, &[("TERM", "dumb")], (false, false)),
            (true, &[("TERM", "dumb"), ("CLICOLOR_FORCE", "1")], (true, false)),
            (true, &[("CLICOLOR", "0")], (false, true)),
            (false, &[("TERM", "xterm")], (false, false)),
            (false, &[("CLICOLOR_FORCE", "1")], (true, false)),
            (false, &[("CLICOLOR_FORCE", "0")], (false, false)),
        ];
        for (is_terminal, env, expected) in table {
            let find = |name: &str| env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            let style = TerminalStyle::choose(*is_terminal, find);
            assert_eq!((style.colour, style.cursor), *expected, "{is_terminal} {env:?}");
        }
    }
}
