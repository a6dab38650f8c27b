//! The screen and the keyboard of a terminal, each on its own thread: both block, and a stopped screen (Ctrl-S) must not
//! block the runtime.

use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Notify, oneshot};

use super::prompt_helper::CompletionSource;
use super::readline::{self, SavedMode};
use super::screen::TerminalStyle;
use super::streams::{
    ConsoleInput, OutputClosed, OutputFault, OutputStream, PROMPT, PrintRequest, SHOW_CURSOR, ThreadEnds, print_all,
    read_lines, spawn, write,
};
use crate::channel::StartError;

/// The maximum number of texts that wait to be printed.
const PRINT_CAPACITY: usize = 64;
const HIDE_CURSOR: &str = "\x1b[?25l";

/// A screen and a keyboard.
pub struct Console {
    pub(super) style: TerminalStyle,
    pub(super) inputs: async_channel::Receiver<ConsoleInput>,
    asks: async_channel::Sender<()>,
    prints: async_channel::Sender<PrintRequest>,
    output_fault: OutputFault,
    /// True while a prompt is on the screen.
    prompting: Arc<AtomicBool>,
    mode: Option<SavedMode>,
    /// The prompt to print if no line editor draws one.
    prompt: &'static str,
    pub(super) known: CompletionSource,
}

impl Drop for Console {
    /// Restores the terminal even if the conversation panics.
    fn drop(&mut self) {
        self.restore();
    }
}

impl Console {
    /// Opens the standard streams: with a line editor if input and output are a terminal, otherwise with plain lines.
    /// `history` is the file of typed lines.
    ///
    /// # Errors
    ///
    /// The terminal or a thread cannot be opened.
    pub fn of_process(history: Option<PathBuf>) -> Result<Self, StartError> {
        let style = TerminalStyle::of_process();
        if style.cursor {
            let known = CompletionSource::default();
            let (mode, spawn_both) = readline::open(history, known.clone(), style.colour)?;
            return Self::of_threads(style, Some(mode), known, spawn_both);
        }
        let mut console = Self::of_streams(BufReader::new(io::stdin()), io::stdout(), io::stderr(), style)?;
        if style.live {
            console.prompt = PROMPT;
        }
        Ok(console)
    }

    /// Reads lines from `input`, without a prompt.
    ///
    /// # Errors
    ///
    /// A thread cannot be started.
    pub fn of_streams(
        input: impl BufRead + Send + 'static,
        mut output: impl Write + Send + 'static,
        mut errors: impl Write + Send + 'static,
        style: TerminalStyle,
    ) -> Result<Self, StartError> {
        Self::of_threads(style, None, CompletionSource::default(), |ends| {
            spawn("cli-in", move || read_lines(input, &ends.asks, &ends.inputs))?;
            spawn("cli-out", move || {
                print_all(&ends.prints, &ends.output_fault, |text, stream| match stream {
                    OutputStream::Out => write(&mut output, &text),
                    OutputStream::Err => write(&mut errors, &text),
                });
            })
        })
    }

    fn of_threads(
        style: TerminalStyle,
        mode: Option<SavedMode>,
        known: CompletionSource,
        spawn_both: impl FnOnce(ThreadEnds) -> io::Result<()>,
    ) -> Result<Self, StartError> {
        let (asks, asked) = async_channel::bounded(1);
        let (given, inputs) = async_channel::bounded(1);
        let (prints, printed) = async_channel::bounded(PRINT_CAPACITY);
        let prompting = Arc::new(AtomicBool::new(false));
        let output_fault = OutputFault::default();
        let ends = ThreadEnds {
            asks: asked,
            inputs: given,
            prints: printed,
            output_fault: Arc::clone(&output_fault),
            prompting: Arc::clone(&prompting),
        };
        spawn_both(ends).map_err(|error| StartError(format!("the terminal could not be opened: {error}")))?;
        Ok(Self { style, inputs, asks, prints, output_fault, prompting, mode, prompt: "", known })
    }

    /// Returns the place where the console records the error that ends its output.
    pub fn output_fault(&self) -> OutputFault {
        Arc::clone(&self.output_fault)
    }

    /// Requests one input, after all earlier text is on the screen.
    pub(super) async fn ask(&self) -> Result<(), OutputClosed> {
        let mut prompt = self.prompt;
        if let Some(mode) = &self.mode {
            mode.echo_on();
            prompt = SHOW_CURSOR;
        }
        self.print_through(prompt.to_owned(), OutputStream::Out).await?;
        self.prompting.store(true, Ordering::SeqCst);
        self.asks.send(()).await.map_err(|_| OutputClosed)
    }

    /// Returns the next input.
    pub(super) async fn input(&self) -> ConsoleInput {
        let input = self.inputs.recv().await.unwrap_or(ConsoleInput::End);
        self.prompting.store(false, Ordering::SeqCst);
        input
    }

    /// Hides typed text while a turn runs, since it would appear inside the output. The next prompt shows it.
    pub(super) async fn hide_input(&self) -> Result<(), OutputClosed> {
        let Some(mode) = &self.mode else { return Ok(()) };
        mode.echo_off();
        // The cursor rests at the start of the live row, where it would only distract.
        self.print(HIDE_CURSOR.to_owned(), OutputStream::Out).await
    }

    pub(super) async fn print(&self, text: String, stream: OutputStream) -> Result<(), OutputClosed> {
        if text.is_empty() {
            return Ok(());
        }
        let text = self.around_prompt(text);
        self.prints.send(PrintRequest { text, stream, done: None }).await.map_err(|_| OutputClosed)
    }

    /// Adds the prompt again after a text that is printed below it, unless a line editor does so.
    fn around_prompt(&self, text: String) -> String {
        let is_prompt_shown = !self.prompt.is_empty() && self.prompting.load(Ordering::SeqCst);
        if is_prompt_shown && !text.is_empty() { format!("\n{text}{}", self.prompt) } else { text }
    }

    /// Prints a text and waits until it and all earlier text is written.
    pub(super) async fn print_through(&self, text: String, stream: OutputStream) -> Result<(), OutputClosed> {
        let (done, written) = oneshot::channel();
        let text = self.around_prompt(text);
        self.prints.send(PrintRequest { text, stream, done: Some(done) }).await.map_err(|_| OutputClosed)?;
        written.await.map_err(|_| OutputClosed)
    }

    /// Restores the terminal. The reading thread may stay blocked in its read.
    pub(super) fn restore(&self) {
        if let Some(mode) = &self.mode {
            mode.restore(self.prompting.load(Ordering::SeqCst));
        }
    }
}

/// Forwards SIGINT to a terminal. While a turn runs, the line editor does not read Ctrl-C, so Ctrl-C arrives as a signal of the process.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<InterruptState>);

#[derive(Default)]
struct InterruptState {
    /// A turn runs in this terminal and has not been interrupted yet.
    armed: AtomicBool,
    raised: Notify,
}

impl Interrupt {
    /// Handles a SIGINT. Returns true if it stops a turn of this terminal. Returns false if no turn runs or the turn is
    /// being stopped already; the process then handles the signal.
    pub fn raise(&self) -> bool {
        let taken = self.0.armed.swap(false, Ordering::AcqRel);
        if taken {
            self.0.raised.notify_one();
        }
        taken
    }

    /// Marks the start of a turn.
    pub(super) fn arm(&self) {
        self.0.armed.store(true, Ordering::Release);
    }

    /// Marks the end of a turn.
    pub(super) fn disarm(&self) {
        self.0.armed.store(false, Ordering::Release);
    }

    /// Completes when a SIGINT stops the turn.
    pub(super) async fn raised(&self) {
        self.0.raised.notified().await;
    }
}
