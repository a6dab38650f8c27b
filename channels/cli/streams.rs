//! The types that the screen and keyboard threads exchange with the conversation, and plain input and output without a line editor.

use std::io::{self, BufRead, Read, Write};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::thread;

use tokio::sync::oneshot;

use crate::channel::StartError;

pub(super) const PROMPT: &str = "You> ";
pub(super) const SHOW_CURSOR: &str = "\x1b[?25h";
/// The longest line, in bytes.
pub(super) const MAX_LINE: usize = 1 << 20;

/// One input from the keyboard, or from the stream that replaces it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConsoleInput {
    Line(String),
    /// A line longer than a message may be.
    TooLong,
    NotUtf8,
    /// Ctrl-C at the prompt.
    Interrupted {
        /// The user had typed nothing.
        is_blank: bool,
    },
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputStream {
    Out,
    Err,
}

/// The error of a printing thread that stopped because its output is closed.
#[derive(Debug)]
pub(super) struct OutputClosed;

impl From<OutputClosed> for StartError {
    fn from(_: OutputClosed) -> Self {
        Self("nobody reads the terminal's output any more".into())
    }
}

/// The error that ended the output of a terminal; empty until then.
pub type OutputFault = Arc<OnceLock<io::Error>>;

pub(super) struct PrintRequest {
    pub text: String,
    pub stream: OutputStream,
    pub done: Option<oneshot::Sender<()>>,
}

/// The ends of a console's queues that belong to its two threads.
pub(super) struct ThreadEnds {
    pub asks: async_channel::Receiver<()>,
    pub inputs: async_channel::Sender<ConsoleInput>,
    pub prints: async_channel::Receiver<PrintRequest>,
    pub output_fault: OutputFault,
    pub prompting: Arc<AtomicBool>,
}

pub(super) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(|_| ())
}

/// Reads one line for each request.
pub(super) fn read_lines(
    mut input: impl BufRead,
    asks: &async_channel::Receiver<()>,
    inputs: &async_channel::Sender<ConsoleInput>,
) {
    while asks.recv_blocking().is_ok() {
        let line = read_line(&mut input).unwrap_or_else(|error| {
            tracing::warn!(%error, "reading standard input failed");
            ConsoleInput::End
        });
        if inputs.send_blocking(line).is_err() {
            return;
        }
    }
}

/// Reads a line without its line feed. Skips the rest of a line that is too long.
fn read_line(input: &mut impl BufRead) -> io::Result<ConsoleInput> {
    let mut line = Vec::new();
    // The line feed takes one byte more.
    if input.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line)? == 0 {
        return Ok(ConsoleInput::End);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() > MAX_LINE {
        input.skip_until(b'\n')?;
        return Ok(ConsoleInput::TooLong);
    }
    Ok(String::from_utf8(line).map_or(ConsoleInput::NotUtf8, ConsoleInput::Line))
}

/// Prints with `print` until the conversation ends or the output is closed.
pub(super) fn print_all(
    prints: &async_channel::Receiver<PrintRequest>,
    output_fault: &OutputFault,
    mut print: impl FnMut(String, OutputStream) -> io::Result<()>,
) {
    while let Ok(PrintRequest { text, stream, done }) = prints.recv_blocking() {
        if let Err(error) = print(text, stream) {
            tracing::info!(%error, "printing to the terminal failed");
            // Only this thread sets it.
            let _ = output_fault.set(error);
            return;
        }
        if let Some(done) = done {
            // The caller may be gone.
            let _ = done.send(());
        }
    }
}

pub(super) fn write(to: &mut impl Write, text: &str) -> io::Result<()> {
    to.write_all(text.as_bytes())?;
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_whole_or_rejected() {
        let mut bytes = b"one\r\n\n\xff\xfe\n".to_vec();
        bytes.extend(vec![b'x'; MAX_LINE + 1]);
        bytes.extend(b"\nlast");
        let mut input = io::BufReader::with_capacity(7, bytes.as_slice());
        let mut next = || read_line(&mut input).unwrap();
        assert_eq!(next(), ConsoleInput::Line("one\r".into()));
        assert_eq!(next(), ConsoleInput::Line(String::new()));
        assert_eq!(next(), ConsoleInput::NotUtf8);
        assert_eq!(next(), ConsoleInput::TooLong);
        assert_eq!(next(), ConsoleInput::Line("last".into()));
        assert_eq!(next(), ConsoleInput::End);
    }
}
