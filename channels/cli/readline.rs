//! The line editor at a terminal.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{ColorMode, CompletionType, Config, Editor, ExternalPrinter};

use super::prompt_helper::{CompletionSource, PromptHelper, joined};
use super::streams::{ConsoleInput, MAX_LINE, OutputStream, PROMPT, SHOW_CURSOR, ThreadEnds, print_all, spawn, write};
use crate::channel::StartError;

const HISTORY_ENTRIES: usize = 1_000;
/// The size in bytes up to which a message enters the history.
const MAX_HISTORY_ENTRY: usize = 8 << 10;
/// The value of a special code that no key has; `_POSIX_VDISABLE` of Linux.
const DISABLED_CODE: u8 = 0;
const BRACKETED_PASTE_OFF: &str = "\x1b[?2004l";

type Line = Editor<PromptHelper, FileHistory>;

/// The terminal's mode before the line editor changes it.
pub(super) struct SavedMode {
    found: Termios,
    is_echo_off: AtomicBool,
    is_restored: AtomicBool,
}

impl SavedMode {
    /// Turns echo off; Ctrl-C still works. Ctrl-D is an ordinary character meanwhile, so that the next prompt reads it: the kernel
    /// would drop an end of input before a prompt, which reads keys and not lines.
    pub(super) fn echo_off(&self) {
        let mut silent = self.found.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        silent.special_codes[SpecialCodeIndex::VEOF] = DISABLED_CODE;
        self.is_echo_off.store(true, Ordering::SeqCst);
        self.set(&silent);
    }

    /// Turns echo on again.
    pub(super) fn echo_on(&self) {
        if self.is_echo_off.swap(false, Ordering::SeqCst) {
            self.set(&self.found);
        }
    }

    /// Restores the mode once, as far as possible, since the terminal may be gone.
    pub(super) fn restore(&self, prompting: bool) {
        if self.is_restored.swap(true, Ordering::SeqCst) {
            return;
        }
        self.echo_on();
        if prompting {
            self.set(&self.found);
        }
        let end = if prompting { format!("{BRACKETED_PASTE_OFF}\r\n") } else { SHOW_CURSOR.to_owned() };
        let written = write(&mut io::stdout(), &end);
        tracing::debug!(?written, "the terminal was restored");
    }

    fn set(&self, mode: &Termios) {
        if let Err(error) = tcsetattr(io::stdin(), OptionalActions::Now, mode) {
            tracing::debug!(%error, "the terminal could not be set");
        }
    }
}

/// Opens a line editor on the terminal of this process. Returns the mode to restore at the end, and a function that starts
/// the threads that read and print.
pub(super) fn open(
    history: Option<PathBuf>,
    known: CompletionSource,
    in_colour: bool,
) -> Result<(SavedMode, impl FnOnce(ThreadEnds) -> io::Result<()>), StartError> {
    let fault = |reason: String| StartError(format!("the terminal could not be opened: {reason}"));
    let found = tcgetattr(io::stdin()).map_err(|error| fault(error.to_string()))?;
    let mode = SavedMode { found, is_echo_off: AtomicBool::new(false), is_restored: AtomicBool::new(false) };
    let helper = PromptHelper::new(known, in_colour);
    let (editor, mut printer) = editor(history.as_deref(), helper).map_err(|error| fault(error.to_string()))?;
    let spawn_both = move |ThreadEnds { asks, inputs, prints, output_fault, prompting }| {
        let is_prompting = Arc::clone(&prompting);
        spawn("cli-in", move || read_lines(editor, history.as_deref(), &prompting, &asks, &inputs))?;
        spawn("cli-out", move || {
            print_all(&prints, &output_fault, |text, stream| {
                print(&mut printer, is_prompting.load(Ordering::SeqCst), text, stream)
            });
        })
    };
    Ok((mode, spawn_both))
}

fn editor(
    history: Option<&Path>,
    helper: PromptHelper,
) -> rustyline::Result<(Line, impl ExternalPrinter + Send + use<>)> {
    let config = Config::builder()
        .max_history_size(HISTORY_ENTRIES)?
        .history_ignore_space(true)
        .completion_type(CompletionType::List)
        .color_mode(ColorMode::Enabled)
        .bracketed_paste(true)
        .build();
    let mut editor = Line::with_config(config)?;
    editor.set_helper(Some(helper));
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
    mut editor: Line,
    history: Option<&Path>,
    prompting: &AtomicBool,
    asks: &async_channel::Receiver<()>,
    inputs: &async_channel::Sender<ConsoleInput>,
) {
    let is_blank = editor.helper().map(|helper| Arc::clone(&helper.is_blank)).unwrap_or_default();
    while asks.recv_blocking().is_ok() {
        is_blank.store(true, Ordering::SeqCst);
        let read = editor.readline(PROMPT);
        prompting.store(false, Ordering::SeqCst);
        let input = match read {
            Ok(line) if line.len() > MAX_LINE => ConsoleInput::TooLong,
            Ok(line) => {
                remember(&mut editor, history, &line);
                ConsoleInput::Line(joined(&line))
            }
            Err(ReadlineError::Interrupted) => ConsoleInput::Interrupted { is_blank: is_blank.load(Ordering::SeqCst) },
            Err(ReadlineError::Eof) => ConsoleInput::End,
            Err(error) => {
                tracing::warn!(%error, "reading from the terminal failed");
                ConsoleInput::End
            }
        };
        if inputs.send_blocking(input).is_err() {
            return;
        }
    }
}

/// Adds a line to the history and its file, which the line editor makes readable only for its owner.
fn remember(editor: &mut Line, history: Option<&Path>, line: &str) {
    if line.trim().is_empty() || line.len() > MAX_HISTORY_ENTRY {
        return;
    }
    let added = editor.add_history_entry(line);
    let kept = match (added, history) {
        (Ok(true), Some(path)) => editor.append_history(path),
        (added, _) => added.map(drop),
    };
    if let Err(error) = kept {
        tracing::warn!(%error, "the history of the terminal could not be written");
    }
}

/// Prints a text. While the prompt is shown, the line editor prints it, because it redraws the prompt below. Otherwise it
/// is printed directly, because the editor loses lines while it is not reading (rustyline#629).
fn print(printer: &mut impl ExternalPrinter, is_prompting: bool, text: String, stream: OutputStream) -> io::Result<()> {
    match stream {
        _ if is_prompting && !text.is_empty() => printer.print(text).map_err(io::Error::other),
        OutputStream::Out => write(&mut io::stdout(), &text),
        OutputStream::Err => write(&mut io::stderr(), &text),
    }
}
