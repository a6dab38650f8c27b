//! Checks of the home, its files and the workspace.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use daoyou_channels::{Finding, Severity};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::check::{DoctorCheck, Repair};
use super::running::HomeHolder;
use crate::agent::is_prepared;
use crate::backup;
use crate::config::{Config, LoadedConfig};
use crate::cron::heartbeat::{self, HeartbeatFault};
use crate::gateway::agents::load_agents;
use crate::gateway::runtime::skill_catalog;
use crate::gateway::settings::{PRIVATE, heartbeat_settings};
use crate::guard::stale_temp_folders;
use crate::home::Home;
use crate::home::modes::{self, ModeFault, ModeFaultKind};
use crate::skills::SkillProblem;
use crate::turn::context::system_prompt::{PromptSkills, SystemPrompt};

/// The maximum number of reported problems of skills.
const MAX_SKILL_PROBLEMS: usize = 20;
/// The minimum age of an abandoned draft: a program writes and moves its draft within moments.
const STALE_AGE: Duration = Duration::from_secs(60);

/// The remedy for a folder on a read-only file system.
const REMOUNT: &str = "findmnt -T DIR shows it; mount -o remount,rw makes it writable";

/// Checks the folder of the home.
pub fn home(home: &Home) -> DoctorCheck {
    const NAME: &str = "home";
    let dir = home.dir();
    let shown = dir.display();
    let found = match fs::metadata(dir) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let none = format!("{shown}: there is none yet; the first start makes it");
            return DoctorCheck::with(Finding::warn(NAME, none, "daoyou gateway"), Repair::CreateHome);
        }
        Err(error) => {
            let mend = "choose another with --home or DAOYOU_HOME";
            return Finding::fail(NAME, format!("{shown}: {error}"), mend).into();
        }
    };
    if !found.is_dir() {
        let mend = format!("choose another with --home or DAOYOU_HOME, or move it away: mv {shown} {shown}.old");
        return Finding::fail(NAME, format!("{shown}: it is a file, not a folder"), mend).into();
    }
    let mode = found.mode() & 0o777;
    let private = Repair::Mode { path: dir.to_owned(), mode: 0o700 };
    let finding = if let Some(finding) = owner_finding(NAME, dir, &found) {
        return finding.into();
    } else if access(dir, Access::WRITE_OK) == Err(Errno::ROFS) {
        let message = format!("{shown}: it is on a read-only file system: the gateway starts, and takes no messages");
        Finding::fail(NAME, message, REMOUNT)
    } else if access(dir, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).is_err() {
        Finding::fail(
            NAME,
            format!("{shown}: it cannot be read and written (mode {mode:03o})"),
            format!("chmod 700 {shown}"),
        )
    } else if mode & 0o022 != 0 {
        let message = format!("{shown}: other users of this machine can change it (mode {mode:03o})");
        Finding::fail(NAME, message, format!("chmod 700 {shown}"))
    } else if mode & 0o077 != 0 {
        let message = format!("{shown}: other users of this machine can look into it (mode {mode:03o})");
        Finding::warn(NAME, message, format!("chmod 700 {shown}"))
    } else {
        return Finding::ok(NAME, format!("{shown}, private")).into();
    };
    DoctorCheck::with(finding, private)
}

/// Returns true if this user may repair the home: this user owns it, or it does not exist yet.
pub fn is_own(home: &Home) -> bool {
    fs::metadata(home.dir()).map_or(true, |found| found.uid() == geteuid().as_raw())
}

/// Returns a finding if `path` belongs to another user.
fn owner_finding(name: &str, path: &Path, found: &Metadata) -> Option<Finding> {
    let (theirs, ours) = (found.uid(), geteuid().as_raw());
    let shown = path.display();
    if theirs == ours {
        return None;
    }
    let message = format!("{shown}: it belongs to user {theirs}, and this is user {ours}");
    Some(if ours == 0 {
        // The gateway's user could not write the files that root creates.
        Finding::warn(name, message, format!("run it as that user: sudo -u '#{theirs}' daoyou doctor"))
    } else {
        Finding::fail(name, message, format!("sudo chown -R {ours} {shown}, or choose another home with --home"))
    })
}

/// Checks the token of the API.
pub fn token(home: &Home, config: &Config) -> DoctorCheck {
    const NAME: &str = "token";
    if config.gateway.token.is_some() {
        return Finding::ok(NAME, "set by gateway.token").into();
    }
    let path = home.token_file();
    let shown = path.display();
    let found = match fs::metadata(&path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let finding = Finding::warn(NAME, "there is none yet; the next start makes it", "daoyou doctor --fix");
            return DoctorCheck::with(finding, Repair::CreateToken);
        }
        Err(error) => return Finding::fail(NAME, format!("{shown}: {error}"), format!("ls -l {shown}")).into(),
    };
    if let Some(finding) = owner_finding(NAME, &path, &found) {
        return finding.into();
    }
    // Reading the token creates one only if there is none.
    if let Err(error) = home.token() {
        let mend = format!("rm {shown}, and the next start makes a new one");
        let finding = Finding::fail(NAME, error.to_string(), mend);
        return if found.is_file() { DoctorCheck::with(finding, Repair::CreateToken) } else { finding.into() };
    }
    match found.mode() & 0o777 {
        mode if mode & 0o077 != 0 => {
            let message = format!("{shown}: other users of this machine may read it (mode {mode:03o})");
            let finding = Finding::fail(NAME, message, format!("chmod 600 {shown}"));
            DoctorCheck::with(finding, Repair::Mode { path: path.clone(), mode: 0o600 })
        }
        mode => Finding::ok(NAME, format!("{shown}, mode {mode:03o}")).into(),
    }
}

/// Checks which files of the home other users can access or own. The home, the token and the configuration have their own checks,
/// and so has the socket if no gateway is running.
pub fn foreign_access(home: &Home, runs: bool) -> Vec<DoctorCheck> {
    let check = |fault: ModeFault| {
        let name = fault.path.file_name()?.to_str()?.to_owned();
        let name = match name.as_str() {
            "daoyou.sock" if !runs => return None,
            "token" | "config.toml" => return None,
            name if name.starts_with("daoyou.db") => "database",
            "daoyou.sock" => "socket",
            "daoyou.lock" => "lock",
            "daoyou.flight" => "flight",
            "history" => "history",
            _ => "files",
        };
        let shown = fault.path.display();
        Some(match fault.kind {
            ModeFaultKind::Open { mode, right } => open_check(name, Severity::Fail, &fault.path, [mode, right]),
            ModeFaultKind::Foreign { .. } => {
                let found = fs::symlink_metadata(&fault.path).ok()?;
                owner_finding(name, &fault.path, &found)?.into()
            }
            ModeFaultKind::Link => {
                let message = format!("{shown}: it is a link, whose target is not protected");
                Finding::fail(name, message, format!("put the file itself there: ls -l {shown}")).into()
            }
            ModeFaultKind::Unknown(error) => {
                Finding::fail(name, format!("{shown}: {error}"), format!("ls -l {shown}")).into()
            }
        })
    };
    modes::faults(home).into_iter().filter(|fault| fault.path != home.dir()).filter_map(check).collect()
}

/// Checks whether the group may access the configuration; the check of the configuration itself covers other users.
pub fn config_mode(home: &Home) -> Option<DoctorCheck> {
    let fault = modes::faults(home).into_iter().find(|fault| fault.path == home.config())?;
    let ModeFaultKind::Open { mode, right } = fault.kind else { return None };
    Some(open_check("config", Severity::Warn, &fault.path, [mode, right]))
}

/// Reports a file that other users may access, with its mode and the right one.
fn open_check(name: &str, severity: Severity, path: &Path, [mode, right]: [u32; 2]) -> DoctorCheck {
    let shown = path.display();
    let message = format!("{shown}: other users of this machine may use it (mode {mode:03o})");
    let finding = Finding::fail(name, message, format!("chmod {right:o} {shown}")).with_severity(severity);
    DoctorCheck::with(finding, Repair::Mode { path: path.to_owned(), mode: right })
}

/// Checks the workspace.
pub fn workspace(home: &Home, path: &Path) -> DoctorCheck {
    const NAME: &str = "workspace";
    let shown = path.display();
    let fill = Repair::FillWorkspace(path.to_owned());
    if !path.exists() {
        let message = format!("{shown}: there is none; the next start makes it");
        return DoctorCheck::with(Finding::warn(NAME, message, "daoyou doctor --fix"), fill);
    }
    if !path.is_dir() {
        let mend = format!("move it away: mv {shown} {shown}.old, or set agent.workspace in config.toml");
        return Finding::fail(NAME, format!("{shown}: it is not a folder"), mend).into();
    }
    let inside = |path: &Path| fs::canonicalize(path).ok();
    if inside(home.dir()).zip(inside(path)).is_some_and(|(home, workspace)| home.starts_with(workspace)) {
        let message = format!("{shown}: it holds daoyou's own folder, which no command may read");
        return Finding::fail(NAME, message, "set agent.workspace in config.toml to a folder of its own").into();
    }
    if access(path, Access::WRITE_OK) == Err(Errno::ROFS) {
        return Finding::fail(NAME, format!("{shown}: it is on a read-only file system"), REMOUNT).into();
    }
    let found = fs::canonicalize(path).and_then(|real| Ok((real.symlink_metadata()?.mode() & 0o7777, real)));
    // The gateway of root may use every folder, but its commands run as the owner of this one.
    let is_closed = geteuid().is_root() && found.as_ref().is_ok_and(|(mode, _)| mode & 0o700 != 0o700);
    if is_closed || access(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).is_err() {
        let finding = Finding::fail(NAME, format!("{shown}: it cannot be written"), format!("chmod u+rwx {shown}"));
        return match found {
            Ok((mode, path)) if mode & 0o700 != 0o700 => {
                DoctorCheck::with(finding, Repair::Mode { path, mode: mode | 0o700 })
            }
            _ => finding.into(),
        };
    }
    if !is_prepared(path) {
        let message = format!("{shown}: the template's files were not written yet; the next start does");
        return DoctorCheck::with(Finding::warn(NAME, message, "daoyou doctor --fix"), fill);
    }
    Finding::ok(NAME, shown.to_string()).into()
}

/// Reports the files of the workspace and the skills that the gateway cannot read, and faulty private folders.
pub fn unreadable(workspace: &Path, home: &Home, config: &Config) -> Vec<Finding> {
    const NAME: &str = "workspace files";
    let closed = PRIVATE.default_visibility().hidden;
    let skills = PromptSkills { catalog: skill_catalog(config, workspace, home.dir()), tokens: 0 };
    let problems = skills.catalog.scan().problems.clone();
    let skill = |problem: SkillProblem| Finding::warn("skills", problem.to_string(), "daoyou skills check");
    let prompt = SystemPrompt::new(workspace, "", &closed, skills).map(|prompt| prompt.faults());
    let left_out = prompt.into_iter().flatten().map(|error| {
        let mend = format!("put a plain text file there: ls -l {}", workspace.display());
        Finding::warn(NAME, format!("it is not read: {error}"), mend)
    });
    let private = PRIVATE.faults(workspace).unwrap_or_default().into_iter();
    let private = private.map(|fault| {
        Finding::fail(
            "private folders",
            format!("nothing is kept there: {fault}"),
            format!("ls -ld {}", workspace.display()),
        )
    });
    left_out.chain(problems.into_iter().take(MAX_SKILL_PROBLEMS).map(skill)).chain(private).collect()
}

/// Reports the entries of HEARTBEAT.md that do not run.
pub fn heartbeat(workspace: &Path, config: &Config) -> Vec<Finding> {
    const NAME: &str = "heartbeat";
    if !config.heartbeat.enabled {
        return Vec::new();
    }
    let zone = heartbeat_settings(config).zone;
    // The check of the workspace reports a workspace that cannot be opened.
    let faults = heartbeat::file_faults(workspace, &PRIVATE.default_visibility().hidden, &zone).unwrap_or_default();
    let finding = |HeartbeatFault { line, reason }: HeartbeatFault| match line {
        Some(line) => {
            let mend = "write it as \"every 2h: …\", \"weekdays 9:30: …\" or \"at 2026-12-24 18:00: …\"";
            Finding::warn(NAME, format!("{}:{line}: {reason}", heartbeat::FILE), mend)
        }
        None => Finding::warn(NAME, format!("{}: {reason}", heartbeat::FILE), format!("ls -l {}", workspace.display())),
    };
    faults.into_iter().map(finding).collect()
}

/// Reports the agents and the rejected profiles.
pub fn agents(loaded: Option<&LoadedConfig>, home: &Home) -> Vec<Finding> {
    const NAME: &str = "agents";
    let Some(loaded) = loaded else { return Vec::new() };
    let (agents, faults) = load_agents(loaded, home);
    let faults = faults.iter().map(|fault| Finding::fail(NAME, fault.to_string(), "daoyou config check"));
    let problems = agents.problems.iter().take(MAX_SKILL_PROBLEMS).map(|SkillProblem { path, line, problem }| {
        let line = line.map(|line| format!(":{line}")).unwrap_or_default();
        Finding::warn(NAME, format!("{path}{line}: {problem}"), "daoyou agents list")
    });
    let found: Vec<Finding> = faults.chain(problems).collect();
    if found.is_empty() { vec![Finding::ok(NAME, agents.names().join(", "))] } else { found }
}

/// Reports temporary files of killed processes.
pub fn leftovers(home: &Home, holder: &HomeHolder) -> Option<DoctorCheck> {
    let mut left = stale_temp_folders(&home.dir().join("tmp"));
    if holder.excludes_restore() {
        left.extend(backup::interrupted_restores(home));
    }
    for entry in fs::read_dir(home.dir()).into_iter().flatten().flatten() {
        let is_draft = entry.file_name().to_str().and_then(|name| name.strip_prefix("token.")).is_some_and(is_hex);
        let age = entry.metadata().and_then(|found| found.modified()).ok().and_then(|at| at.elapsed().ok());
        if is_draft && age.is_some_and(|age| age > STALE_AGE) {
            left.push(entry.path());
        }
    }
    let first = left.first()?.display().to_string();
    let message = format!("{} temporary files are left over, such as {first}", left.len());
    let finding = Finding::warn("leftovers", message, "daoyou doctor --fix");
    Some(DoctorCheck::with(finding, Repair::Remove(left)))
}

fn is_hex(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
