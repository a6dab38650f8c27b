//! Reads the command line of this process.

use std::io::{self, Write};

use clap::Parser;
use clap::error::ErrorKind;

use super::exit::Exit;
use crate::cli::Cli;

/// The command line. When there is nothing to run, the help, the version or what is wrong has been printed, and the error
/// is the code to end with.
pub fn read() -> Result<Cli, Exit> {
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
