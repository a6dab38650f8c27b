//! The life of this process: what its command line asks for, and the code it ends with.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use super::dispatch;
use super::exit::Exit;
use crate::cli::Cli;
use crate::gateway;
use crate::logging;

/// Runs the command that this process was started with. What went wrong has been printed.
#[expect(clippy::print_stderr, reason = "an error ends the program, and this is where the owner reads it")]
pub fn main() -> ExitCode {
    // Before anything else: the supervisor of a command needs nothing of the gateway.
    if let Some(exit) = gateway::supervise_command() {
        return exit;
    }
    let cli = match read() {
        Ok(cli) => cli,
        Err(exit) => return exit.into(),
    };
    let exit = dispatch::run(&cli).unwrap_or_else(|error| {
        eprintln!("{}daoyou: {error:#}", logging::error_prefix());
        Exit::Failed
    });
    exit.into()
}

/// The command line. When there is nothing to run, the help, the version or what is wrong has been printed, and the error
/// is the code to end with.
fn read() -> Result<Cli, Exit> {
    Cli::try_parse().map_err(|error| {
        // Called with nothing at all, the help is the answer, though not what a script can have wanted.
        let printed = match error.kind() {
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                io::stdout().write_all(error.render().to_string().as_bytes())
            }
            _ => error.print(),
        };
        match (printed, error.use_stderr()) {
            (_, true) => Exit::Usage,
            (Ok(()), false) => Exit::Ok,
            (Err(_), false) => Exit::Failed,
        }
    })
}
