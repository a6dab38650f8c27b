//! The program: reads the command line and runs the command.

use std::io;

use daoyou::cli::{Cli, Command};
use daoyou::commands::{self, Exit};
use daoyou::config;
use daoyou::home::Home;

#[expect(clippy::print_stderr, reason = "an error ends the program, and this is where the owner reads it")]
fn main() -> Exit {
    let cli = match commands::read() {
        Ok(cli) => cli,
        Err(exit) => return exit,
    };
    match run(&cli) {
        Ok(exit) => exit,
        Err(error) => {
            eprintln!("daoyou: {error:#}");
            Exit::Failed
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<Exit> {
    let home = Home::locate(cli.globals.home.clone())?;
    match &cli.command {
        Command::Config(command) => {
            let (out, err) = (io::stdout().lock(), io::stderr().lock());
            let env = config::environment();
            Ok(Exit::of_output(commands::config::run(command, &cli.globals, &home, &env, out, err))?)
        }
        _ => anyhow::bail!("this command is not built in yet"),
    }
}
