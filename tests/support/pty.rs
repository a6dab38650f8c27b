//! A program at a terminal.

use rexpect::process::WaitStatus;
use rexpect::session::{PtySession, spawn_command};

use super::{Gateway, PATIENCE};

/// A running program whose stdin and stdout are a terminal. Calls block: use it from a test without a runtime's help or
/// inside `spawn_blocking`.
pub struct Terminal {
    session: PtySession,
}

impl Terminal {
    /// Starts `daoyou ARGS` in `gateway`'s home at a terminal of its own.
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

    fn spawn(command: std::process::Command) -> Self {
        let patience = u64::try_from(PATIENCE.as_millis()).expect("half a minute fits");
        Self { session: spawn_command(command, Some(patience)).expect("the program starts at a terminal") }
    }

    /// Waits until `text` is on the screen; answers what came before it.
    pub fn expect(&mut self, text: &str) -> String {
        self.session.exp_string(text).unwrap_or_else(|fault| panic!("waiting for {text:?}: {fault}"))
    }

    /// Types a line and Enter.
    pub fn line(&mut self, text: &str) {
        self.session.send_line(text).expect("the terminal takes a line");
    }

    /// Types Ctrl and `key`, e.g. `'c'`.
    pub fn control(&mut self, key: char) {
        self.session.send_control(key).expect("the terminal takes a key");
    }

    /// Waits until the program ends; answers its exit code, `None` when a signal ended it.
    pub fn wait_exit(&mut self) -> Option<i32> {
        // Whatever is still to come must be read, or a full terminal would block the program.
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
