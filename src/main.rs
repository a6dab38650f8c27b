//! The program.

use std::process::ExitCode;

fn main() -> ExitCode {
    daoyou::commands::main()
}
