//! Runs a program in a terminal.

use std::fs::File;

use rexpect::process::{Signal, WaitStatus};
use rexpect::session::{PtySession, spawn_command};

use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::{Gateway, PATIENCE};

/// A running program whose stdin and stdout are a terminal. Calls block, so use it in a test without a runtime or inside
/// `spawn_blocking`.
pub struct Terminal {
    session: PtySession,
    /// The screen after all awaited output. Its rows are rewrapped when it is resized.
    screen: avt::Terminal,
}

/// The initial size of the screen, in columns and rows.
const SIZE: (u16, u16) = (80, 24);

impl Terminal {
    /// Starts `daoyou ARGS` in the home of `gateway`, in a new terminal.
    pub fn start(gateway: &Gateway, args: &[&str]) -> Self {
        let mut command = std::process::Command::new(super::gateway::binary());
        let shaped = gateway.command(args);
        let shaped = shaped.as_std();
        command.env_clear().args(shaped.get_args()).env("TERM", "xterm");
        for (name, value) in shaped.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        if let Some(directory) = shaped.get_current_dir() {
            command.current_dir(directory);
        }
        Self::spawn(command)
    }

    /// Starts `daoyou chat` and waits for its prompt.
    pub fn chat(gateway: &Gateway) -> Self {
        let mut terminal = Self::start(gateway, &["chat"]);
        terminal.expect("You> ");
        terminal
    }

    fn spawn(command: std::process::Command) -> Self {
        let patience = u64::try_from(PATIENCE.as_millis()).expect("a minute fits");
        let session = spawn_command(command, Some(patience)).expect("the program starts at a terminal");
        let screen = avt::Terminal::with_scrollback(SIZE.0.into(), SIZE.1.into(), None).expect("a screen has a size");
        let mut terminal = Self { session, screen };
        terminal.resize(SIZE.0);
        terminal
    }

    /// Returns what a person sees, including scrollback: lines as they would be copied, without trailing spaces.
    pub fn screen(&self) -> String {
        let lines: Vec<_> = self.screen.screen().text().iter().map(|line| line.trim_end().to_owned()).collect();
        lines.join("\n")
    }

    /// Waits until `text` is on the screen and returns the output before it.
    pub fn expect(&mut self, text: &str) -> String {
        // The screen is read byte by byte, with one character for each byte.
        let bytes: String = text.bytes().map(char::from).collect();
        let before = self.session.exp_string(&bytes).unwrap_or_else(|fault| panic!("waiting for {text:?}: {fault}"));
        let before: Vec<u8> = before.chars().map(|c| u8::try_from(c).unwrap_or(b'?')).collect();
        let before = String::from_utf8_lossy(&before).into_owned();
        self.screen.feed(before.as_str());
        self.screen.feed(text);
        before
    }

    /// Types keys as bytes, without Enter.
    pub fn keys(&mut self, text: &str) {
        self.session.send(text).expect("the terminal takes keys");
        self.session.flush().expect("the terminal takes keys");
    }

    /// Resizes the screen to this many columns and notifies the program.
    pub fn resize(&mut self, columns: u16) {
        let size = Winsize { ws_row: SIZE.1, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(self.master(), size).expect("a terminal can be resized");
        self.screen.resize(columns.into(), SIZE.1.into());
    }

    /// Returns true if input arrives line by line, the mode that a shell expects. Echo is not a sign here, because this
    /// terminal never echoes.
    pub fn is_cooked(&self) -> bool {
        let mode = tcgetattr(self.master()).expect("a terminal has a mode");
        mode.local_modes.contains(LocalModes::ICANON)
    }

    /// Sends SIGTERM to the program.
    pub fn sigterm(&mut self) {
        self.session.process_mut().signal(Signal::SIGTERM).expect("the program takes a signal");
    }

    fn master(&self) -> File {
        self.session.process().get_file_handle().expect("the terminal's other end")
    }

    /// Types a line and Enter.
    pub fn line(&mut self, text: &str) {
        self.session.send_line(text).expect("the terminal takes a line");
    }

    /// Types Ctrl and `key`, e.g. `'c'`.
    pub fn control(&mut self, key: char) {
        self.session.send_control(key).expect("the terminal takes a key");
    }

    /// Waits until the program has closed the terminal, and returns all its unread output.
    pub fn rest(&mut self) -> String {
        let rest = self.session.exp_eof().unwrap_or_else(|fault| panic!("waiting for the end: {fault}"));
        // The output is read byte by byte, with one character for each byte.
        let bytes: Vec<u8> = rest.chars().map(|c| u8::try_from(c).unwrap_or(b'?')).collect();
        String::from_utf8(bytes).expect("the program writes UTF-8")
    }

    /// Waits until the program ends and returns its exit code; `None` if a signal ended it.
    pub fn wait_exit(&mut self) -> Option<i32> {
        // The remaining output must be read, because a full terminal would block the program.
        self.session.exp_eof().unwrap_or_else(|fault| panic!("waiting for the end: {fault}"));
        match self.session.process().wait() {
            Ok(WaitStatus::Exited(_, code)) => Some(code),
            Ok(_) => None,
            Err(fault) => panic!("waiting for the exit: {fault}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_sees_a_terminal() {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "test -t 0 && test -t 1 && printf 'You> ' && read line && echo \"Bot> $line\"; exit 3"]);
        let mut terminal = Terminal::spawn(command);
        terminal.expect("You> ");
        terminal.line("hello");
        terminal.expect("Bot> hello");
        assert_eq!(terminal.wait_exit(), Some(3));
    }
}
