//! The screen and the keyboard behind a terminal's conversation, each on a thread of its own: both block, and a stopped
//! screen (Ctrl-S) must not hold up the runtime.

use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tokio::sync::oneshot;

use super::{plain, readline};
use crate::channel::StartError;

/// How many texts may wait to be printed.
const PRINT_CAPACITY: usize = 64;

/// How things are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Turns are shown while they run, at a prompt. Else replies alone are, each when it is complete.
    pub live: bool,
    /// Colours and other escape sequences.
    pub ansi: bool,
}

impl Style {
    /// Replies alone, as plain text.
    pub const PLAIN: Self = Self { live: false, ansi: false };

    /// At a terminal: coloured unless `NO_COLOR` (<https://no-color.org>) is set or the terminal is a dumb one.
    pub fn of_terminal() -> Self {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self { live: true, ansi: set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb") }
    }
}

/// What the keyboard, or whatever stands for it, gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input {
    Line(String),
    /// A line that cannot be a message, and why.
    Rejected(String),
    /// Ctrl-C at the prompt.
    Interrupted,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

/// The printing thread stopped: nobody reads the output any more.
#[derive(Debug)]
pub(super) struct Closed;

pub(super) struct Print {
    pub text: String,
    pub stream: Stream,
    pub done: Option<oneshot::Sender<()>>,
}

/// A screen and a keyboard.
pub struct Console {
    pub(super) style: Style,
    pub(super) inputs: async_channel::Receiver<Input>,
    asks: async_channel::Sender<()>,
    prints: async_channel::Sender<Print>,
    /// Whether a prompt stands on the screen.
    prompting: Arc<AtomicBool>,
    mode: Option<readline::SavedMode>,
}

impl Console {
    /// What this process was started with: a line editor when standard input and output are a terminal, else plain
    /// lines. `history` is the file that keeps what was typed.
    ///
    /// # Errors
    ///
    /// The terminal or a thread cannot be had.
    pub fn of_process(history: Option<PathBuf>) -> Result<Self, StartError> {
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            return readline::open(history, Style::of_terminal());
        }
        Self::of_streams(BufReader::new(io::stdin()), io::stdout(), io::stderr(), Style::PLAIN)
    }

    /// Reads lines from `input`, without a prompt.
    ///
    /// # Errors
    ///
    /// A thread cannot be had.
    pub fn of_streams(
        input: impl BufRead + Send + 'static,
        output: impl Write + Send + 'static,
        errors: impl Write + Send + 'static,
        style: Style,
    ) -> Result<Self, StartError> {
        Self::of_threads(style, None, |ends| {
            spawn("cli-in", move || plain::read_lines(input, &ends.asks, &ends.inputs))?;
            spawn("cli-out", move || plain::print_all(output, errors, &ends.prints))
        })
    }

    pub(super) fn of_threads(
        style: Style,
        mode: Option<readline::SavedMode>,
        spawn_both: impl FnOnce(ThreadEnds) -> io::Result<()>,
    ) -> Result<Self, StartError> {
        let (asks, asked) = async_channel::bounded(1);
        let (given, inputs) = async_channel::bounded(1);
        let (prints, printed) = async_channel::bounded(PRINT_CAPACITY);
        let prompting = Arc::new(AtomicBool::new(false));
        let ends = ThreadEnds { asks: asked, inputs: given, prints: printed, prompting: Arc::clone(&prompting) };
        spawn_both(ends).map_err(|error| StartError(format!("the terminal could not be opened: {error}")))?;
        Ok(Self { style, inputs, asks, prints, prompting, mode })
    }

    /// Asks for one input; everything printed before stands on the screen by then.
    pub(super) async fn ask(&self) -> Result<(), Closed> {
        self.print_through(String::new(), Stream::Out).await?;
        self.prompting.store(true, Ordering::SeqCst);
        self.asks.send(()).await.map_err(|_| Closed)
    }

    pub(super) async fn print(&self, text: String, stream: Stream) -> Result<(), Closed> {
        if text.is_empty() {
            return Ok(());
        }
        self.prints.send(Print { text, stream, done: None }).await.map_err(|_| Closed)
    }

    /// Returns when the text, and all before it, is written.
    pub(super) async fn print_through(&self, text: String, stream: Stream) -> Result<(), Closed> {
        let (done, written) = oneshot::channel();
        self.prints.send(Print { text, stream, done: Some(done) }).await.map_err(|_| Closed)?;
        written.await.map_err(|_| Closed)
    }

    /// Leaves the terminal as it was found. The reading thread may be stuck in its read for good.
    pub(super) fn restore(&self) {
        if let Some(mode) = &self.mode {
            mode.restore(self.prompting.load(Ordering::SeqCst));
        }
    }
}

/// What the two threads hold of a console.
pub(super) struct ThreadEnds {
    pub asks: async_channel::Receiver<()>,
    pub inputs: async_channel::Sender<Input>,
    pub prints: async_channel::Receiver<Print>,
    pub prompting: Arc<AtomicBool>,
}

pub(super) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(|_| ())
}
