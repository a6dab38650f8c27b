//! The program: reads the command line and runs the command.

use daoyou::commands::{self, Exit};

#[expect(clippy::print_stderr, reason = "an error ends the program, and this is where the owner reads it")]
fn main() -> Exit {
    daoyou::llm::install_crypto();
    let cli = match commands::read() {
        Ok(cli) => cli,
        Err(exit) => return exit,
    };
    commands::run(&cli).unwrap_or_else(|error| {
        eprintln!("daoyou: {error:#}");
        Exit::Failed
    })
}
