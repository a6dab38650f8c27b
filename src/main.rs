//! The program: reads the command line and runs the command.

use std::process::ExitCode;

use daoyou::commands::{self, Exit};

#[expect(clippy::print_stderr, reason = "an error ends the program, and this is where the owner reads it")]
fn main() -> ExitCode {
    // Before anything else: a command's supervisor needs nothing of the gateway.
    if std::env::args_os().nth(1).is_some_and(|word| word == daoyou::guard::EXEC_WORD) {
        return daoyou::guard::exec_main();
    }
    let cli = match commands::read() {
        Ok(cli) => cli,
        Err(exit) => return exit.into(),
    };
    daoyou::llm::install_crypto();
    let exit = commands::run(&cli).unwrap_or_else(|error| {
        eprintln!("daoyou: {error:#}");
        Exit::Failed
    });
    exit.into()
}
