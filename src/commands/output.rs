//! The output of commands. It removes escape sequences, control characters and bidi controls, so that no printed text can control
//! the terminal, unless `--raw` is given and standard output is not a terminal.

use std::fmt::{self, Display};
use std::io::{self, IsTerminal, StderrLock, StdoutLock, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use daoyou_channels::clean::{Cleaner, clean, clean_line, escape_json};
use daoyou_channels::text::Language;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::exit::CommandExit;
use crate::cli::Output;
use crate::config::Config;
use crate::gateway;

/// Set once, from the command line.
static IS_RAW: AtomicBool = AtomicBool::new(false);

/// Set once, from the configuration.
static LOCALE: OnceLock<OutputLocale> = OnceLock::new();

/// The language and the time zone of texts for people.
struct OutputLocale {
    language: Language,
    zone: TimeZone,
}

/// Sets the language and the time zone of texts for people from a configuration.
pub fn set_locale(config: &Config) {
    // The first call counts: a command has only one configuration.
    let _ = LOCALE.set(OutputLocale { language: gateway::language(config), zone: gateway::zone_or_system(config) });
}

/// Returns `zh` if texts for people are in Chinese, else `en`.
pub fn tr<T>(en: T, zh: T) -> T {
    let is_chinese = LOCALE.get().is_some_and(|locale| locale.language == Language::Zh);
    if is_chinese { zh } else { en }
}

/// Formats a time for people in their time zone.
pub fn local_time(at: Timestamp) -> String {
    let zone = LOCALE.get().map_or_else(TimeZone::system, |locale| locale.zone.clone());
    at.to_zoned(zone).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// Standard output of a command.
pub type Stdout = Printer<StdoutLock<'static>>;

/// Stops cleaning standard output.
///
/// # Errors
/// Standard output is a terminal.
pub fn allow_raw() -> Result<(), &'static str> {
    if stdout_is_terminal() {
        return Err(
            "--raw prints terminal escapes as they are, and is for a pipe or a file: leave it out, or add | cat -v",
        );
    }
    IS_RAW.store(true, Ordering::Relaxed);
    Ok(())
}

/// Returns true if standard output is a terminal.
pub fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Returns true if standard error is a terminal.
pub fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Standard output, cleaned unless `--raw` was given.
pub fn stdout() -> Stdout {
    let colours = stdout_is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let cleaner = (!IS_RAW.load(Ordering::Relaxed)).then(Cleaner::default);
    Printer { to: io::stdout().lock(), cleaner, partial: Vec::new(), colours }
}

/// Returns standard output for a command that speaks a protocol with another program: it is not cleaned, and nothing else is printed
/// there.
pub fn protocol_output() -> tokio::io::Stdout {
    tokio::io::stdout()
}

/// Standard error, always cleaned.
pub fn stderr() -> Printer<StderrLock<'static>> {
    Printer { to: io::stderr().lock(), cleaner: Some(Cleaner::default()), partial: Vec::new(), colours: false }
}

/// Prints a line on standard error.
pub fn print_note(line: impl Display) {
    // The command continues even if standard error is closed.
    let _ = writeln!(stderr(), "{line}");
}

/// Prints a question on standard error; the answer is typed after it.
pub fn print_prompt(question: &str) {
    let mut out = stderr();
    // If standard error is closed, nobody sees the question.
    let _ = write!(out, "{question}").and_then(|()| out.flush());
}

/// Returns one cleaned field for people. An unfinished escape sequence in the field must not affect its neighbours.
pub fn field(text: &str) -> String {
    if IS_RAW.load(Ordering::Relaxed) { text.to_owned() } else { clean(text) }
}

/// Returns [`field`] on one line.
pub fn field_line(text: &str) -> String {
    if IS_RAW.load(Ordering::Relaxed) { text.to_owned() } else { clean_line(text) }
}

/// JSON data; `{:#}` formats it on several lines. Terminal controls are escaped, not removed.
pub struct CleanJson<'a>(pub &'a Value);

impl Display for CleanJson<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = if to.alternate() { format!("{:#}", self.0) } else { self.0.to_string() };
        to.write_str(&escape_json(&text))
    }
}

/// A colour for the program's own words.
#[derive(Clone, Copy, Debug)]
pub enum Colour {
    Red = 31,
    Green = 32,
    Yellow = 33,
}

/// A stream that writes only clean text.
#[derive(Debug)]
pub struct Printer<W> {
    to: W,
    /// `None` for `--raw`.
    cleaner: Option<Cleaner>,
    /// The first bytes of an incomplete character.
    partial: Vec<u8>,
    /// The output has colours.
    pub colours: bool,
}

impl<W: Write> Printer<W> {
    /// Writes a text that was cleaned before colours were added.
    pub fn write_rendered(&mut self, text: &str) -> io::Result<()> {
        self.to.write_all(text.as_bytes())
    }

    /// Writes a word, in colour on a terminal.
    pub fn paint(&mut self, colour: Colour, word: &str) -> io::Result<()> {
        if self.colours {
            write!(self.to, "\x1b[{}m{word}\x1b[0m", colour as u8)
        } else {
            self.write_all(word.as_bytes())
        }
    }
}

impl<W: Write> Write for Printer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(cleaner) = &mut self.cleaner else { return self.to.write(bytes) };
        self.partial.extend_from_slice(bytes);
        // Only the end can be the beginning of an incomplete character.
        let end = self.partial.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
        let is_incomplete = std::str::from_utf8(end).is_err_and(|error| error.error_len().is_none());
        let complete = self.partial.len() - if is_incomplete { end.len() } else { 0 };
        let rest = self.partial.split_off(complete);
        // An invalid byte may be a control character in an older encoding.
        let text = String::from_utf8_lossy(&self.partial).into_owned();
        self.partial = rest;
        self.to.write_all(cleaner.clean(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Prints a value as JSON, or with `for_people` as text.
///
/// # Errors
/// Standard output cannot be written.
pub fn print(
    value: &Value,
    format: Output,
    for_people: impl FnOnce(&mut Stdout) -> io::Result<()>,
) -> anyhow::Result<CommandExit> {
    let mut out = stdout();
    let printed = if format.json { writeln!(out, "{:#}", CleanJson(value)) } else { for_people(&mut out) };
    Ok(CommandExit::of_output(printed.map(|()| CommandExit::Ok))?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn printed(pieces: &[&[u8]]) -> String {
        let mut printer =
            Printer { to: Vec::new(), cleaner: Some(Cleaner::default()), partial: Vec::new(), colours: true };
        for piece in pieces {
            printer.write_all(piece).unwrap();
        }
        String::from_utf8(printer.to).unwrap()
    }

    #[test]
    fn only_text_passes() {
        for (pieces, expected) in [
            (&[&b"a\x1b]52;c;aGk=\x07b\r\n"[..]][..], "ab\n"),
            (&[&b"\xe4\xb8"[..], &b"\xad\x1b["[..], b"2Jx"], "中x"),
            (&[&b"\x9b2J \xff"[..]], "\u{fffd}2J \u{fffd}"),
            (&[&b"\xc2"[..], b"\x9b2Jx"], "x"),
        ] {
            assert_eq!(printed(pieces), expected, "{pieces:?}");
        }
        let mut printer =
            Printer { to: Vec::new(), cleaner: Some(Cleaner::default()), partial: Vec::new(), colours: true };
        printer.paint(Colour::Red, "fail").unwrap();
        assert_eq!(printer.to, b"\x1b[31mfail\x1b[0m");
    }

    proptest! {
        #[test]
        fn no_output_controls_the_terminal(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 0..9)) {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let text = printed(&pieces);
            let is_control = |c: char| daoyou_channels::clean::is_display_control(c) && c != '\n' && c != '\t';
            prop_assert!(!text.contains(is_control), "{text:?}");
        }
    }
}
