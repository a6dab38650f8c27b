//! The line editor at a terminal.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor, ExternalPrinter};

use super::console::{Console, Input, Print, Stream, Style, ThreadEnds, spawn};
use super::plain;
use crate::channel::StartError;

const PROMPT: &str = "You> ";
const HISTORY_ENTRIES: usize = 1_000;
const BRACKETED_PASTE_OFF: &str = "\x1b[?2004l";

/// How the terminal was set when it was found.
pub(super) struct SavedMode(Termios);

impl SavedMode {
    /// Best effort: the terminal may be gone.
    pub(super) fn restore(&self, prompting: bool) {
        if !prompting {
            return;
        }
        let restored = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
        let written = plain::write(&mut io::stdout(), &format!("{BRACKETED_PASTE_OFF}\r\n"));
        tracing::debug!(?restored, ?written, "the terminal was given back");
    }
}

/// Opens the terminal that this process was started on.
pub(super) fn open(history: Option<PathBuf>, style: Style) -> Result<Console, StartError> {
    let fault = |words: String| StartError(format!("the terminal could not be opened: {words}"));
    let mode = tcgetattr(io::stdin()).map_err(|error| fault(error.to_string()))?;
    let (editor, printer) = editor(history.as_deref()).map_err(|error| fault(error.to_string()))?;
    Console::of_threads(style, Some(SavedMode(mode)), |ends| {
        let ThreadEnds { asks, inputs, prints, prompting } = ends;
        let standing = Arc::clone(&prompting);
        spawn("cli-in", move || read_lines(editor, history.as_deref(), &prompting, &asks, &inputs))?;
        spawn("cli-out", move || print_all(printer, &standing, &prints))
    })
}

fn editor(
    history: Option<&Path>,
) -> rustyline::Result<(Editor<(), FileHistory>, impl ExternalPrinter + Send + 'static)> {
    let config = Config::builder()
        .max_history_size(HISTORY_ENTRIES)?
        .history_ignore_space(true)
        .auto_add_history(true)
        .bracketed_paste(true)
        .build();
    let mut editor = Editor::with_config(config)?;
    if let Some(path) = history
        && path.exists()
        && let Err(error) = editor.load_history(path)
    {
        tracing::warn!(%error, path = %path.display(), "the history of the terminal could not be read");
    }
    let printer = editor.create_external_printer()?;
    Ok((editor, printer))
}

fn read_lines(
    mut editor: Editor<(), FileHistory>,
    history: Option<&Path>,
    prompting: &AtomicBool,
    asks: &async_channel::Receiver<()>,
    inputs: &async_channel::Sender<Input>,
) {
    while asks.recv_blocking().is_ok() {
        let read = editor.readline(PROMPT);
        prompting.store(false, Ordering::SeqCst);
        let input = match read {
            Ok(line) if line.len() > plain::MAX_LINE => {
                Input::Rejected(format!("a message longer than {} bytes was left out", plain::MAX_LINE))
            }
            Ok(line) => Input::Line(line),
            Err(ReadlineError::Interrupted) => Input::Interrupted,
            Err(ReadlineError::Eof) => Input::End,
            Err(error) => {
                tracing::warn!(%error, "reading from the terminal failed");
                Input::End
            }
        };
        if let (Some(path), Input::Line(_)) = (history, &input)
            && let Err(error) = editor.append_history(path)
        {
            tracing::warn!(%error, path = %path.display(), "the history of the terminal could not be written");
        }
        if inputs.send_blocking(input).is_err() {
            return;
        }
    }
}

/// While the prompt stands, text goes through the line editor, which draws the prompt anew below it; around a turn it
/// goes straight to the screen, as the editor loses lines while it is not reading (rustyline#629).
fn print_all(mut printer: impl ExternalPrinter, prompting: &AtomicBool, prints: &async_channel::Receiver<Print>) {
    while let Ok(Print { text, stream, done }) = prints.recv_blocking() {
        let written = if prompting.load(Ordering::SeqCst) && !text.is_empty() {
            printer.print(text).map_err(io::Error::other)
        } else if stream == Stream::Err {
            plain::write(&mut io::stderr(), &text)
        } else {
            plain::write(&mut io::stdout(), &text)
        };
        if let Err(error) = written {
            tracing::warn!(%error, "printing to the terminal failed");
            return;
        }
        if let Some(done) = done {
            // Whoever waited may have gone.
            let _ = done.send(());
        }
    }
}
