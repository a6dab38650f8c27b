//! `daoyou backup` and `daoyou restore`. They need no configuration, so they also work for a home with a faulty one.

use std::fmt::Display;
use std::io::Write;
use std::path::Path;

use anyhow::{anyhow, bail};
use serde_json::json;

use super::CommandExit;
use super::output::{print, tr};
use super::translation::{tr_fill, translate};
use crate::backup;
use crate::cli::{BackupArgs, Globals, RestoreArgs};
use crate::config;
use crate::home::Home;
use crate::logging::{self, LogConfig};

/// Writes a home to a file.
///
/// # Errors
/// The home cannot be read, or the file cannot be written.
pub fn create(args: &BackupArgs, globals: &Globals) -> anyhow::Result<CommandExit> {
    start_log(globals)?;
    let home = Home::locate(globals.home.clone())?;
    super::config::set_locale(globals, &home);
    if !home.dir().is_dir() {
        bail!("{}{}", tr("there is no home at ", "没有主目录 "), home.dir().display());
    }
    let created = backup::create(&home, &args.file, args.force).map_err(translate_error)?;
    let mut left_out = created.left_out;
    let config = std::path::absolute(super::config::path_of(globals, &home, &config::environment()))?;
    left_out.extend(config_outside(&home, &config));
    left_out.extend(workspace_outside(&home, &config));
    let answer = json!({
        "file": args.file,
        "bytes": created.size,
        "files": created.files,
        "accepted": created.database.as_ref().map(|facts| facts.seq),
        "left_out": left_out,
    });
    print(&answer, args.output, |out| {
        let (en, zh) = ("{0}: {1} files of {2}, {3} bytes", "{0}：{2} 的 {1} 个文件，{3} 字节");
        let values: [&dyn Display; 4] = [&args.file.display(), &created.files, &home.dir().display(), &created.size];
        writeln!(out, "{}", tr_fill(en, zh, &values))?;
        match &created.database {
            Some(facts) => {
                writeln!(out, "{}{}", tr("messages accepted so far: ", "至今已接收的消息数："), facts.seq)?;
            }
            None => writeln!(out, "{}", tr("there is no database yet", "还没有数据库"))?,
        }
        let not_in_it = tr("not in it: ", "未包含：");
        left_out.iter().try_for_each(|what| writeln!(out, "{not_in_it}{}", translate(what)))
    })
}

/// Translates a fault of the target; any other error keeps its causes.
fn translate_error(error: anyhow::Error) -> anyhow::Error {
    let english = format!("{error:#}");
    let shown = translate(&english);
    if shown == english { error } else { anyhow!(shown) }
}

/// Restores a home from a file.
///
/// # Errors
/// The file is not a complete backup, or the home cannot be written.
pub fn restore(args: &RestoreArgs, globals: &Globals) -> anyhow::Result<CommandExit> {
    start_log(globals)?;
    let home = Home::open(globals.home.clone())?;
    super::config::set_locale(globals, &home);
    let lock = home.lock_for_command()?;
    let restored = backup::restore(&home, &lock, &args.file)?;
    let answer = json!({
        "home": home.dir(),
        "files": restored.files,
        "created_at": restored.created_at,
        "kept": restored.kept,
        "missing": restored.missing,
    });
    print(&answer, args.output, |out| {
        let (en, zh) = ("{}: {} files, as they were at {}", "{}：{} 个文件，恢复到 {} 时的样子");
        writeln!(out, "{}", tr_fill(en, zh, &[&home.dir().display(), &restored.files, &restored.created_at]))?;
        if let Some(kept) = &restored.kept {
            writeln!(out, "{}{}", tr("what was there before is in ", "原有内容移到了 "), kept.display())?;
        }
        restored.missing.iter().try_for_each(|missing| writeln!(out, "{}", translate(missing)))
    })
}

/// Starts the log. These commands log little, and for people.
fn start_log(globals: &Globals) -> anyhow::Result<()> {
    let level = globals.log.clone().unwrap_or_else(|| "warn".to_owned());
    let format = globals.log_format.unwrap_or_default();
    logging::start(&LogConfig { level, format }, None).map(drop)
}

/// Returns a note if the configuration file is not part of the home.
fn config_outside(home: &Home, config: &Path) -> Option<String> {
    let real = |path: &Path| path.canonicalize().ok();
    let is_inside = config.starts_with(home.dir())
        || real(config).zip(real(home.dir())).is_some_and(|(config, home)| config.starts_with(home));
    (!is_inside).then(|| format!("{}: the configuration is not in the home", config.display()))
}

/// Returns a note if the workspace that the file `config` sets is not part of the home.
fn workspace_outside(home: &Home, config: &Path) -> Option<String> {
    let text = std::fs::read_to_string(config).ok()?;
    let config: toml::Table = text.parse().ok()?;
    let configured = config.get("agent")?.get("workspace")?.as_str()?;
    let workspace = home.workspace(configured);
    let is_inside = Path::starts_with(&workspace, home.dir());
    (!is_inside).then(|| format!("{}: the workspace is not in the home", workspace.display()))
}
