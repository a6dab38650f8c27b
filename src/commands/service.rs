//! `daoyou service install|uninstall|status`: the gateway as a systemd service. Each step is printed. If one fails, the remaining
//! steps are printed so that the owner can do them by hand.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow, bail};
use serde_json::{Value, json};

use super::exit::CommandExit;
use super::output::tr;
use super::render;
use super::translation::{tr_fill, translate, translate_fault};
use super::unit_file::{NAME, SYSTEM_HOME, UnitFile, runs_home, sets_variable};
use crate::cli::{Globals, ServiceCommand, ServiceInstallArgs, ServiceScope};
use crate::config::{self, ConfigFault};
use crate::home::Home;
use crate::text::shell_word;

/// The folder of the administrator's units (systemd.unit(5)).
const SYSTEM_UNITS: &str = "/etc/systemd/system";
/// The path to which a program is copied that the system service could not see.
const SHARED_EXE: &str = "/usr/local/bin/daoyou";
/// The folders that the system unit hides: ProtectHome and PrivateTmp.
const HIDDEN: [&str; 5] = ["/home", "/root", "/run/user", "/tmp", "/var/tmp"];
/// The user as which the system service runs.
const USER: &str = "daoyou";

/// Runs the command.
///
/// # Errors
/// A step fails; the error says what to do instead.
pub fn run(command: &ServiceCommand, globals: &Globals) -> anyhow::Result<CommandExit> {
    if let Ok(home) = Home::locate(globals.home.clone()) {
        super::config::set_locale(globals, &home);
    }
    match run_to(command, globals, &mut super::output::stdout()) {
        Err(error) => match error.downcast::<io::Error>() {
            Ok(error) => Ok(CommandExit::of_output(Err(error))?),
            Err(error) => Err(error),
        },
        exit => exit,
    }
}

fn run_to(command: &ServiceCommand, globals: &Globals, mut out: &mut impl Write) -> anyhow::Result<CommandExit> {
    match command {
        ServiceCommand::Install(change) => {
            let target = ServiceTarget::select(change.scope)?;
            target.require_root(change)?;
            let version = match target.systemd_version() {
                Ok(version) => version,
                // A dry run needs no systemd.
                Err(_) if change.dry_run => 0,
                Err(error) => bail!(
                    "systemd cannot be reached, and nothing was changed: {error:#}; start `daoyou gateway` in another \
                     way, or see what would be done with: daoyou service install --dry-run"
                ),
            };
            let faults = target.environment_faults(globals)?;
            if !faults.is_empty() {
                // The environment of an installed service may come from elsewhere.
                let is_refused = !change.dry_run && !target.unit.exists();
                target.print_environment_faults(&faults, is_refused)?;
                if is_refused {
                    return Ok(CommandExit::Failed);
                }
            }
            let plan = install(&target, globals, version)?;
            let done = run_steps(&plan, change.dry_run, out)?;
            if done && !change.dry_run {
                target.print_next_steps(out)?;
            }
            Ok(if done { CommandExit::Ok } else { CommandExit::Failed })
        }
        ServiceCommand::Uninstall(change) => {
            let target = ServiceTarget::select(change.scope)?;
            target.require_root(change)?;
            if !target.unit.exists() {
                writeln!(out, "nothing is installed: there is no {}", target.unit.display())?;
                return Ok(CommandExit::Ok);
            }
            let done = run_steps(&uninstall(&target), change.dry_run, out)?;
            if done && !change.dry_run && target.is_system {
                writeln!(out, "Kept: {SYSTEM_HOME} and the user {USER}. To remove them, too:")?;
                writeln!(out, "  rm -r {SYSTEM_HOME} && userdel {USER}")?;
            } else if done && !change.dry_run {
                writeln!(out, "The home of the gateway is kept.")?;
            }
            Ok(if done { CommandExit::Ok } else { CommandExit::Failed })
        }
        ServiceCommand::Status { scope, output } => {
            let mut status = ServiceTarget::find(*scope)?.status();
            let exit = if status["error"].is_null() { CommandExit::Ok } else { CommandExit::Failed };
            if let (Some(error), false) = (status["error"].as_str(), output.json) {
                status["error"] = translate(error).into();
            }
            let printed = if output.json { writeln!(out, "{status:#}") } else { render::fields(&status, &mut out) };
            Ok(CommandExit::of_output(printed.map(|()| exit))?)
        }
    }
}

/// Returns the systemd instance that can run a gateway in `home`; `None` if there is none.
pub fn scope_for(home: &Home) -> Option<ServiceScope> {
    // sd_booted(3)
    if !Path::new("/run/systemd/system").is_dir() {
        return None;
    }
    let is_root = rustix::process::geteuid().is_root();
    if is_root && home.dir() != Path::new(SYSTEM_HOME) {
        return None;
    }
    Some(ServiceScope { user: !is_root, system: is_root })
}

/// Returns true if an installed system unit runs the gateway of `home`, false if a user unit does, `None` if neither does.
pub fn installed_for(home: &Home) -> Option<bool> {
    if home.dir() == Path::new(SYSTEM_HOME) {
        return ServiceTarget::system().unit.exists().then_some(true);
    }
    let unit = fs::read_to_string(ServiceTarget::user().ok()?.unit).ok()?;
    runs_home(&unit, home.dir(), is_default(home)).then_some(false)
}

/// Returns true for the default home of a user's gateway.
fn is_default(home: &Home) -> bool {
    Some(home.dir()) == std::env::home_dir().map(|user| user.join(".daoyou")).as_deref()
}

/// The systemd instance, of the system or of the user, and its unit.
struct ServiceTarget {
    is_system: bool,
    unit: PathBuf,
}

/// A step of an installation.
enum ServiceStep {
    Write { path: PathBuf, text: String },
    Remove(PathBuf),
    Run(Vec<String>),
}

impl ServiceTarget {
    fn system() -> Self {
        Self { is_system: true, unit: Path::new(SYSTEM_UNITS).join(NAME) }
    }

    fn user() -> anyhow::Result<Self> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let config = set("XDG_CONFIG_HOME").or_else(|| std::env::home_dir().map(|home| home.join(".config")));
        let config = config.context("the folder for user units is unknown: neither XDG_CONFIG_HOME nor HOME is set")?;
        Ok(Self { is_system: false, unit: config.join("systemd/user").join(NAME) })
    }

    /// Returns the target of the options. The default is the system for root, and the user's own instance for other users.
    fn select(scope: ServiceScope) -> anyhow::Result<Self> {
        if scope.system || (!scope.user && rustix::process::geteuid().is_root()) {
            Ok(Self::system())
        } else {
            Self::user()
        }
    }

    /// Returns the target of the options. The default is an existing unit of the system, or else that of
    /// [`Self::select`].
    fn find(scope: ServiceScope) -> anyhow::Result<Self> {
        let selected = Self::select(scope)?;
        let is_open = !scope.system && !scope.user;
        Ok(if is_open && !selected.unit.exists() && Self::system().unit.exists() { Self::system() } else { selected })
    }

    fn require_root(&self, change: &ServiceInstallArgs) -> anyhow::Result<()> {
        if self.is_system && !change.dry_run && !rustix::process::geteuid().is_root() {
            bail!("only root can change a system service: use sudo, or --user for your own service");
        }
        Ok(())
    }

    fn systemctl(&self, words: &[&str]) -> Vec<String> {
        let user: &[&str] = if self.is_system { &[] } else { &["--user"] };
        ["systemctl"].iter().chain(user).chain(words).map(|word| (*word).to_owned()).collect()
    }

    fn print_next_steps(&self, out: &mut impl Write) -> io::Result<()> {
        let user = if self.is_system { "" } else { "--user " };
        writeln!(out, "\nThe gateway runs. Manage it with:")?;
        writeln!(out, "  systemctl {user}status daoyou      journalctl {user}-u daoyou -f")?;
        if self.is_system {
            writeln!(out, "Its settings are in {SYSTEM_HOME}/config.toml; after a change: systemctl reload daoyou")?;
            writeln!(out, "Run other commands as its user: sudo -u {USER} daoyou --home {SYSTEM_HOME} status")
        } else {
            writeln!(out, "It stops when you log out, unless you run: loginctl enable-linger")
        }
    }

    /// Returns the version of systemd.
    ///
    /// # Errors
    /// systemd does not respond.
    fn systemd_version(&self) -> anyhow::Result<u32> {
        let printed = output(&self.systemctl(&["show", "--property=Version", "--value"]))?;
        let digits: String =
            printed.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
        Ok(digits.parse().unwrap_or(0))
    }

    /// Returns the faults of the service's configuration that come from its environment: the service has no variables of this shell.
    fn environment_faults(&self, globals: &Globals) -> anyhow::Result<Vec<ConfigFault>> {
        let own = if self.is_system { Some(SYSTEM_HOME.into()) } else { globals.home.clone() };
        let home = Home::locate(own)?;
        let faults_with = |env: &BTreeMap<String, String>| {
            let draft = super::config::read(globals, &home, env);
            let variables = draft.loaded.variables.clone();
            (super::config::check(draft, &home, env).err().unwrap_or_default(), variables)
        };
        let here = config::environment();
        let mut env = here.clone();
        env.retain(|name, _| name == "HOME");
        if faults_with(&env).0.is_empty() {
            return Ok(Vec::new());
        }
        let manager = output(&self.systemctl(&["show-environment"])).unwrap_or_default();
        let of_manager = manager.lines().filter_map(|line| line.split_once('='));
        env.extend(of_manager.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let drop_ins = self.drop_ins();
        env.extend(here.clone().into_iter().filter(|(name, _)| sets_variable(&drop_ins, name)));
        let (mut faults, variables) = faults_with(&env);
        let (known, _) = faults_with(&here);
        faults.retain(|fault| match variables.get(&fault.key) {
            Some(name) => !sets_variable(&drop_ins, name),
            None => !known.contains(fault),
        });
        Ok(faults)
    }

    /// Returns the text of all drop-ins of the unit.
    fn drop_ins(&self) -> String {
        let files = fs::read_dir(self.drop_in_folder()).into_iter().flatten().flatten().map(|file| file.path());
        let files = files.filter(|path| path.extension().is_some_and(|ending| ending == "conf"));
        files.filter_map(|path| fs::read_to_string(path).ok()).collect::<Vec<_>>().join("\n")
    }

    fn drop_in_folder(&self) -> PathBuf {
        self.unit.with_file_name(format!("{NAME}.d"))
    }

    fn print_environment_faults(&self, faults: &[ConfigFault], is_refused: bool) -> io::Result<()> {
        let mut err = super::output::stderr();
        let unchanged = if is_refused { tr("nothing was changed: ", "未做任何改动：") } else { "" };
        let why = tr(
            "the service has none of this shell's variables, and cannot start without them:",
            "服务没有当前终端的环境变量，缺少它们就无法启动：",
        );
        writeln!(err, "daoyou: {unchanged}{why}")?;
        for fault in faults {
            writeln!(err, "  {}", translate_fault(fault))?;
        }
        let file = self.drop_in_folder().join("environment.conf");
        let remedy = tr_fill(
            "Write each secret to a file and name it in config.toml (\"file:PATH\"), or set the variables in {}:",
            "把每个密钥写入文件，并在 config.toml 中写成 \"file:PATH\"；或者在 {} 中设置这些变量：",
            &[&file.display()],
        );
        writeln!(err, "{remedy}\n  [Service]\n  EnvironmentFile=/path/to/a/private/file")
    }

    /// Returns the state of the unit.
    fn status(&self) -> Value {
        const PROPERTIES: &str =
            "ActiveState,SubState,UnitFileState,MainPID,NRestarts,StatusText,ActiveEnterTimestamp,Result";
        let words = self.systemctl(&["show", NAME, "--property", PROPERTIES]);
        let scope = if self.is_system { "system" } else { "user" };
        let mut status = json!({ "manager": scope, "unit": self.unit, "installed": self.unit.exists() });
        match output(&words) {
            Ok(text) => {
                let of = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
                let text = |name: &str| of(name).filter(|text| !text.is_empty()).map_or(Value::Null, Value::from);
                let number = |name: &str| of(name).and_then(|text| text.parse::<u32>().ok());
                status["enabled"] = text("UnitFileState");
                status["active"] = text("ActiveState");
                status["state"] = text("SubState");
                status["pid"] = json!(number("MainPID").filter(|pid| *pid > 0));
                status["restarts"] = json!(number("NRestarts"));
                status["since"] = text("ActiveEnterTimestamp");
                status["result"] = text("Result");
                status["says"] = text("StatusText");
            }
            Err(error) => {
                status["error"] = json!(format!("systemd cannot be asked: {error:#}"));
            }
        }
        status
    }
}

fn install(target: &ServiceTarget, globals: &Globals, version: u32) -> anyhow::Result<Vec<ServiceStep>> {
    let mut exe = std::env::current_exe().context("this program's own path is not known")?;
    let config = globals.config.as_deref().map(std::path::absolute).transpose()?;
    let mut steps = Vec::new();
    let mut home = None;
    if target.is_system {
        if globals.home.as_deref().is_some_and(|home| home != Path::new(SYSTEM_HOME)) {
            bail!("the system's service keeps its home in {SYSTEM_HOME}; leave --home out, or use --user");
        }
        if HIDDEN.iter().any(|hidden| exe.starts_with(hidden)) {
            steps.push(run_step(&["install", "-m", "0755", &exe.display().to_string(), SHARED_EXE]));
            exe = PathBuf::from(SHARED_EXE);
        }
        if output(&["id".to_owned(), "-u".to_owned(), USER.to_owned()]).is_err() {
            let nologin = ["--no-create-home", "--shell", "/usr/sbin/nologin", USER];
            steps.push(run_step(
                &[&["useradd", "--system", "--user-group", "--home-dir", SYSTEM_HOME], &nologin[..]].concat(),
            ));
        }
        steps.push(run_step(&["install", "-d", "-m", "0700", "-o", USER, "-g", USER, SYSTEM_HOME]));
    } else {
        let chosen = Home::locate(globals.home.clone())?;
        home = (!is_default(&chosen)).then(|| chosen.dir().to_owned());
    }
    let unit = UnitFile { exe: &exe, config: config.as_deref(), home: home.as_deref(), version };
    steps.push(ServiceStep::Write { path: target.unit.clone(), text: unit.text(target.is_system)? });
    for words in [&["daemon-reload"][..], &["enable", NAME], &["restart", NAME]] {
        steps.push(ServiceStep::Run(target.systemctl(words)));
    }
    Ok(steps)
}

fn uninstall(target: &ServiceTarget) -> Vec<ServiceStep> {
    vec![
        ServiceStep::Run(target.systemctl(&["disable", "--now", NAME])),
        ServiceStep::Remove(target.unit.clone()),
        ServiceStep::Run(target.systemctl(&["daemon-reload"])),
    ]
}

/// Runs the steps, or prints them for a dry run. Returns false after a failure, when the remaining steps were printed so that the
/// owner can do them by hand.
fn run_steps(plan: &[ServiceStep], dry_run: bool, out: &mut impl Write) -> anyhow::Result<bool> {
    for (number, step) in plan.iter().enumerate() {
        writeln!(out, "{step}")?;
        if dry_run {
            if let ServiceStep::Write { text, .. } = step {
                text.lines().try_for_each(|line| writeln!(out, "    {line}"))?;
            }
            continue;
        }
        let Err(error) = step.run() else { continue };
        writeln!(super::output::stderr(), "daoyou: {error:#}")?;
        writeln!(super::output::stderr(), "Remaining steps to do by hand:")?;
        for left in &plan[number..] {
            writeln!(super::output::stderr(), "  {left}")?;
        }
        if plan[number..].iter().any(|left| matches!(left, ServiceStep::Write { .. })) {
            writeln!(super::output::stderr(), "To see what is to be written: daoyou service install --dry-run")?;
        }
        return Ok(false);
    }
    Ok(true)
}

impl ServiceStep {
    fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Write { path, text } => {
                let folder = path.parent().unwrap_or(Path::new("/"));
                fs::create_dir_all(folder)
                    .and_then(|()| fs::write(path, text))
                    .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o644)))
                    .with_context(|| format!("{} cannot be written", path.display()))
            }
            Self::Remove(path) => match fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    Err(error).with_context(|| format!("{} cannot be removed", path.display()))
                }
                _ => Ok(()),
            },
            Self::Run(words) => output(words).map(drop),
        }
    }
}

/// Formats the step as a shell command.
impl fmt::Display for ServiceStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write { path, .. } => write!(f, "write {}", path.display()),
            Self::Remove(path) => write!(f, "rm {}", path.display()),
            Self::Run(words) => f.write_str(&words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")),
        }
    }
}

fn run_step(words: &[&str]) -> ServiceStep {
    ServiceStep::Run(words.iter().map(|word| (*word).to_owned()).collect())
}

/// Runs a program and returns its output.
///
/// # Errors
/// The program cannot be started, or it fails.
fn output(words: &[String]) -> anyhow::Result<String> {
    let (program, arguments) = words.split_first().context("no program was named")?;
    let ran = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let ran = ran.map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow!("there is no program {program} here"),
        _ => anyhow!("{program} cannot be run: {error}"),
    })?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&ran.stderr);
    let errors = errors.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    bail!("{} failed ({}): {errors}", words.join(" "), ran.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_shown_as_a_command_that_can_be_pasted() {
        for (words, expected) in [
            (&["systemctl", "--user", "enable", NAME][..], "systemctl --user enable daoyou.service"),
            (
                &["install", "-m", "0755", "/home/my tools/it's", SHARED_EXE],
                "install -m 0755 '/home/my tools/it'\\''s' /usr/local/bin/daoyou",
            ),
        ] {
            assert_eq!(run_step(words).to_string(), expected);
        }
    }
}
