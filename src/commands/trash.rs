//! `daoyou trash`: works on the files of the workspace, whether or not a gateway runs.

use std::io::Write;

use super::environment::CommandEnvironment;
use super::output::print;
use super::{CommandExit, render};
use crate::cli::TrashCommand;
use crate::gateway;

const ENTRIES: render::TableColumns = &[
    ("ID", "id"),
    ("DELETED", "deleted_at"),
    ("KIND", "kind"),
    ("SIZE", "size"),
    ("PATH", "path"),
    ("SESSION", "session"),
];

/// Runs the command.
///
/// # Errors
/// The entry does not exist, or its place is taken.
pub async fn run(command: &TrashCommand, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    let home = environment.home.clone();
    let config = environment.without_secrets()?.config.clone();
    match command.clone() {
        TrashCommand::List(output) => {
            let list = tokio::task::spawn_blocking(move || gateway::list_trash(&home, &config)).await??;
            print(&list, output, |out| render::table(&list, ENTRIES, "the trash is empty", out))
        }
        TrashCommand::Restore { id, to, output } => {
            let restore = move || gateway::restore_trash(&home, &config, &id, to.as_deref());
            let restored = tokio::task::spawn_blocking(restore).await??;
            print(&restored, output, |out| writeln!(out, "restored: {}", render::text(&restored["restored"])))
        }
        TrashCommand::Empty(output) => {
            let emptied = tokio::task::spawn_blocking(move || gateway::empty_trash(&home, &config)).await??;
            print(&emptied, output, |out| writeln!(out, "{} entries removed", emptied["removed"]))
        }
    }
}
