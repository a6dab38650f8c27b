//! The commands, and the entry point of the program.

mod access;
mod environment;
mod exit;
mod files;
mod output;
mod page;
mod render;
mod status;
mod translation;

mod agent;
mod backup;
mod chat;
pub mod config;
mod cron;
mod dispatch;
mod doctor;
mod gateway;
mod init;
mod logs;
mod mcp;
mod mcp_bridge;
mod memory;
mod service;
mod sessions;
mod skills;
mod tools;
mod unit_file;

pub use exit::CommandExit;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::cli::{Cli, Command, ToolsCommand};
use crate::logging;

/// Runs the command of this process; prints errors, and returns the exit code.
pub fn main() -> ExitCode {
    // This check comes first: the supervisor of a command needs no other part of the program.
    if let Some(exit) = crate::gateway::supervise_command() {
        return exit;
    }
    let cli = match parse_arguments() {
        Ok(cli) => cli,
        Err(exit) => return exit.into(),
    };
    // For `tools run`, `--raw` means the whole result, which a terminal may show as well.
    let runs_tool = matches!(cli.command, Command::Tools(ToolsCommand::Run(_)));
    if cli.globals.raw
        && let Err(wrong) = output::allow_raw()
        && !runs_tool
    {
        output::print_note(format_args!("daoyou: {wrong}"));
        return CommandExit::Usage.into();
    }
    let exit = dispatch::run(&cli).unwrap_or_else(|error| {
        let exit = CommandExit::of_error(&error);
        let shown = format!("{error:#}");
        let shown = if exit == CommandExit::HomeHeld { translation::translate(&shown) } else { shown };
        output::print_note(format_args!("{}daoyou: {shown}", logging::error_prefix()));
        exit
    });
    exit.into()
}

/// Parses the command line. The help of the command `help` is that of the commands that it names.
fn try_parse() -> Result<Cli, clap::Error> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let error = match Cli::try_parse_from(&arguments) {
        Err(error) if error.kind() == ErrorKind::InvalidSubcommand => error,
        parsed => return parsed,
    };
    let Some(at) = arguments.iter().position(|argument| argument == "help") else { return Err(error) };
    let (before, after) = arguments.split_at(at);
    let plain = after.iter().filter(|argument| *argument != "--help" && *argument != "-h");
    let plain: Vec<_> = before.iter().chain(plain).collect();
    if plain.len() == arguments.len() { Err(error) } else { Cli::try_parse_from(plain) }
}

/// Parses the command line. If there is no command to run, prints the help, the version or the error, and returns the exit code.
fn parse_arguments() -> Result<Cli, CommandExit> {
    try_parse().map_err(|error| {
        // Without arguments the program prints the help, but a script cannot have intended that.
        let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
        // The text quotes the command line, so it is cleaned like any other output.
        let text = error.render().to_string();
        let printed = match error.use_stderr() && !is_help {
            true => output::stderr().write_all(text.as_bytes()),
            false => output::stdout().write_all(text.as_bytes()),
        };
        match CommandExit::of_output(printed.map(|()| CommandExit::Ok)) {
            _ if error.use_stderr() => CommandExit::Usage,
            Ok(exit) => exit,
            Err(error) => {
                output::print_note(format_args!("daoyou: {error}"));
                CommandExit::Failed
            }
        }
    })
}
