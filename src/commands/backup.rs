//! `daoyou backup` and `daoyou restore`. They need no configuration, so they also work for a home with a faulty one.

use std::io::Write;
use std::path::Path;

use anyhow::bail;
use serde_json::json;

use super::CommandExit;
use super::environment::exit_for_lock_error;
use super::output::print;
use crate::backup;
use crate::cli::{BackupArgs, Globals, RestoreArgs};
use crate::home::Home;
use crate::logging::{self, LogConfig};

/// Writes a home to a file.
///
/// # Errors
/// The home cannot be read, or the file cannot be written.
pub fn create(args: &BackupArgs, globals: &Globals) -> anyhow::Result<CommandExit> {
    start_log(globals)?;
    let home = Home::locate(globals.home.clone())?;
    if !home.dir().is_dir() {
        bail!("there is no home at {}", home.dir().display());
    }
    let created = backup::create(&home, &args.file, args.force)?;
    let mut left_out = created.left_out;
    left_out.extend(workspace_outside(&home));
    let answer = json!({
        "file": args.file,
        "bytes": created.size,
        "files": created.files,
        "accepted": created.database.as_ref().map(|facts| facts.seq),
        "left_out": left_out,
    });
    print(&answer, args.output, |out| {
        let (file, folder) = (args.file.display(), home.dir().display());
        writeln!(out, "{file}: {} files of {folder}, {} bytes", created.files, created.size)?;
        match &created.database {
            Some(facts) => writeln!(out, "messages accepted so far: {}", facts.seq)?,
            None => writeln!(out, "there is no database yet")?,
        }
        left_out.iter().try_for_each(|what| writeln!(out, "not in it: {what}"))
    })
}

/// Restores a home from a file.
///
/// # Errors
/// The file is not a complete backup, or the home cannot be written.
pub fn restore(args: &RestoreArgs, globals: &Globals) -> anyhow::Result<CommandExit> {
    start_log(globals)?;
    let home = Home::open(globals.home.clone())?;
    let lock = match home.lock() {
        Ok(lock) => lock,
        Err(error) => return exit_for_lock_error(error),
    };
    let restored = backup::restore(&home, &lock, &args.file)?;
    let answer = json!({
        "home": home.dir(),
        "files": restored.files,
        "created_at": restored.created_at,
        "kept": restored.kept,
        "missing": restored.missing,
    });
    print(&answer, args.output, |out| {
        let dir = home.dir().display();
        writeln!(out, "{dir}: {} files, as they were at {}", restored.files, restored.created_at)?;
        if let Some(kept) = &restored.kept {
            writeln!(out, "what was there before is in {}", kept.display())?;
        }
        restored.missing.iter().try_for_each(|missing| writeln!(out, "{missing}"))
    })
}

/// Starts the log. These commands log little, and for people.
fn start_log(globals: &Globals) -> anyhow::Result<()> {
    let level = globals.log.clone().unwrap_or_else(|| "warn".to_owned());
    let format = globals.log_format.unwrap_or_default();
    logging::start(&LogConfig { level, format }, None).map(drop)
}

/// Returns a note if the configured workspace is not part of the home.
fn workspace_outside(home: &Home) -> Option<String> {
    let text = std::fs::read_to_string(home.config()).ok()?;
    let config: toml::Table = text.parse().ok()?;
    let configured = config.get("agent")?.get("workspace")?.as_str()?;
    let workspace = home.workspace(configured);
    let is_inside = Path::starts_with(&workspace, home.dir());
    (!is_inside).then(|| format!("{}: the workspace is not in the home", workspace.display()))
}
