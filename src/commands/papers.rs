//! What is made from the command line itself: completions for shells, and manual pages.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use super::Exit;
use crate::cli::Cli;

const NAME: &str = "daoyou";

/// Writes what `shell` reads to complete our commands.
pub fn completions(shell: Shell, mut out: impl Write) -> io::Result<Exit> {
    // Into memory first: the generator knows no reader that leaves.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
    out.write_all(&script)?;
    Ok(Exit::Ok)
}

/// Writes the manual page of `daoyou` to `out`, or one for each command into `folder`, which is made.
///
/// # Errors
/// The folder or a file cannot be written.
pub fn man(folder: Option<&Path>, mut out: impl Write) -> anyhow::Result<Exit> {
    let mut command = Cli::command();
    command.build();
    let Some(folder) = folder else {
        return Ok(Exit::of_output(page(&command, NAME).and_then(|page| out.write_all(&page)).map(|()| Exit::Ok))?);
    };
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    write_pages(&command, NAME, folder)?;
    Ok(Exit::Ok)
}

/// `daoyou.1`, `daoyou-config.1`, `daoyou-config-check.1`, …
fn write_pages(command: &Command, name: &str, folder: &Path) -> anyhow::Result<()> {
    let path = folder.join(format!("{name}.1"));
    let written = page(command, name).and_then(|page| fs::write(&path, page));
    written.with_context(|| path.display().to_string())?;
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help") {
        write_pages(inner, &format!("{name}-{}", inner.get_name()), folder)?;
    }
    Ok(())
}

fn page(command: &Command, name: &str) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command.clone().display_name(name.to_owned())).title(name.to_uppercase()).render(&mut page)?;
    Ok(page)
}
