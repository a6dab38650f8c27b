//! `daoyou config check|show|path`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use daoyou_channels::clean::is_display_control;
use serde_json::{Value, json};

use super::exit::CommandExit;
use super::output::{CleanJson, tr};
use super::translation;
use crate::cli::{ConfigCommand, Globals, Output};
use crate::config::{self, ConfigDraft, ConfigFault, ConfigSource, LoadedConfig};
use crate::gateway;
use crate::home::Home;

/// Reads the configuration of `home` from its file, the environment and the command line.
pub fn read(globals: &Globals, home: &Home, env: &BTreeMap<String, String>) -> ConfigDraft {
    let (usual, named) = (home.config(), named(globals, env));
    let source = named.as_deref().map_or(ConfigSource::IfPresent(&usual), ConfigSource::Required);
    let mut draft = config::read(source, env);
    let loaded = &mut draft.loaded;
    if let Some(level) = &globals.log {
        loaded.config.log.level.clone_from(level);
        loaded.overridden("log.level", "--log");
    }
    if let Some(format) = globals.log_format {
        loaded.config.log.format = format;
        loaded.overridden("log.format", "--log-format");
    }
    draft
}

/// Sets the language of texts for people, for a command that needs no configuration: faulty settings count as their defaults.
pub fn set_locale(globals: &Globals, home: &Home) {
    super::output::set_locale(&read(globals, home, &config::environment()).loaded.config);
}

/// Reads the configuration of a gateway, with the checks of the modules.
///
/// # Errors
/// All faults.
pub fn load(globals: &Globals, home: &Home, env: &BTreeMap<String, String>) -> Result<LoadedConfig, Vec<ConfigFault>> {
    read(globals, home, env).checked(|loaded| gateway::check(loaded, home, env)).complete()
}

/// Checks a configuration outside of the service, which alone can read its credentials: [`LoadedConfig::missing`] has those.
///
/// # Errors
/// All faults.
pub fn check(
    draft: ConfigDraft,
    home: &Home,
    env: &BTreeMap<String, String>,
) -> Result<LoadedConfig, Vec<ConfigFault>> {
    draft.checked(|loaded| gateway::check(loaded, home, env)).outside_service()
}

/// Writes the faults, one per line, and returns the exit code.
pub fn report(faults: &[ConfigFault], mut to: impl Write) -> io::Result<CommandExit> {
    // The language may not be set yet.
    super::output::set_locale(&config::Config::default());
    let prefix = crate::logging::error_prefix();
    for fault in faults {
        writeln!(to, "{prefix}{}", translation::translate_fault(fault))?;
    }
    Ok(CommandExit::Config)
}

/// Runs the command. The error is a failure to write to `out` or `err`.
pub fn run(
    command: &ConfigCommand,
    globals: &Globals,
    home: &Home,
    env: &BTreeMap<String, String>,
    mut out: impl Write,
    mut err: impl Write,
) -> io::Result<CommandExit> {
    let (ConfigCommand::Check(Output { json })
    | ConfigCommand::Show(Output { json })
    | ConfigCommand::Path(Output { json })) = *command;
    if let ConfigCommand::Path(_) = command {
        path(&path_of(globals, home, env), json, out)?;
        return Ok(CommandExit::Ok);
    }
    let draft = read(globals, home, env);
    super::output::set_locale(&draft.loaded.config);
    let loaded = match command {
        ConfigCommand::Check(_) => check(draft, home, env),
        // Secrets are not shown, so they may be missing.
        _ => draft.without_secrets(),
    };
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(faults) => {
            if let (ConfigCommand::Check(_), true) = (command, json) {
                let faults: Vec<Value> = faults.iter().map(describe).collect();
                writeln!(out, "{:#}", CleanJson(&json!({ "ok": false, "faults": faults, "warnings": [] })))?;
                return Ok(CommandExit::Config);
            }
            return report(&faults, err);
        }
    };
    if !json {
        for warning in &loaded.warnings {
            writeln!(err, "{}{}", tr("warning: ", "警告："), translation::translate(warning))?;
        }
        for missing in &loaded.missing {
            writeln!(err, "{}{}", tr("warning: ", "警告："), translation::translate_fault(missing))?;
        }
    }
    match (command, json) {
        (ConfigCommand::Show(_), true) => writeln!(out, "{:#}", CleanJson(&show_json(&loaded)))?,
        (ConfigCommand::Show(_), false) => show(&loaded, out)?,
        (_, true) => {
            let unchecked = loaded.missing.iter().map(ToString::to_string);
            let warnings: Vec<String> = loaded.warnings.iter().cloned().chain(unchecked).collect();
            writeln!(out, "{:#}", CleanJson(&json!({ "ok": true, "faults": [], "warnings": warnings })))?;
        }
        (_, false) => writeln!(out, "{}", tr("ok", "配置正确"))?,
    }
    Ok(CommandExit::Ok)
}

/// Returns the path of the configuration file, which need not exist.
pub fn path_of(globals: &Globals, home: &Home, env: &BTreeMap<String, String>) -> PathBuf {
    named(globals, env).unwrap_or_else(|| home.config())
}

/// Returns the configuration file that the user named.
fn named(globals: &Globals, env: &BTreeMap<String, String>) -> Option<PathBuf> {
    let variable = || env.get("DAOYOU_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
    globals.config.clone().or_else(variable)
}

fn path(path: &Path, json: bool, mut out: impl Write) -> io::Result<()> {
    if json {
        return writeln!(out, "{:#}", CleanJson(&json!({ "path": path, "exists": path.exists() })));
    }
    writeln!(out, "{}", path.display())
}

/// Writes each setting as a line of TOML with its origin; an unset setting becomes a comment.
fn show(loaded: &LoadedConfig, mut out: impl Write) -> io::Result<()> {
    for setting in loaded.settings() {
        match setting.value.map(|value| toml_text(&value)) {
            Some(value) => writeln!(out, "{} = {value}  # from {}", setting.key, setting.origin)?,
            None => writeln!(out, "# {} is not set", setting.key)?,
        }
    }
    Ok(())
}

fn show_json(loaded: &LoadedConfig) -> Value {
    let from = loaded.settings().into_iter().map(|setting| (setting.key, json!(setting.origin)));
    json!({ "file": loaded.file, "config": loaded.masked(), "from": Value::Object(from.collect()) })
}

fn describe(fault: &ConfigFault) -> Value {
    use config::SettingOrigin;
    let (file, line, variable) = match &fault.origin {
        SettingOrigin::File { file, line } => (Some(file), *line, None),
        SettingOrigin::Env(name) => (None, None, Some(name)),
        SettingOrigin::Default | SettingOrigin::Option(_) => (None, None, None),
    };
    json!({ "file": file, "line": line, "variable": variable, "key": fault.key, "wrong": fault.wrong,
            "allowed": fault.allowed, "text": fault.to_string() })
}

/// Formats a value as TOML on one line.
fn toml_text(value: &Value) -> String {
    match value {
        Value::Array(list) => format!("[{}]", list.iter().map(toml_text).collect::<Vec<_>>().join(", ")),
        // A JSON string is a TOML string, except that TOML requires an escape for DEL; terminal controls are escaped too.
        Value::String(_) => value.to_string().chars().map(toml_char).collect(),
        other => other.to_string(),
    }
}

fn toml_char(c: char) -> String {
    if is_display_control(c) { format!("\\U{:08x}", u32::from(c)) } else { c.to_string() }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn run_in(home: &Home, command: &ConfigCommand) -> (CommandExit, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let exit = run(command, &Globals::default(), home, &BTreeMap::new(), &mut out, &mut err).unwrap();
        (exit, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn check_show_and_path_report_the_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(dir.path().join("home"))).unwrap();
        let (plain, as_json) = (Output { json: false }, Output { json: true });
        let (check, show) = (ConfigCommand::Check(plain), ConfigCommand::Show(plain));
        assert_eq!(run_in(&home, &check), (CommandExit::Ok, "ok\n".into(), String::new()));
        assert!(!home.dir().exists(), "reading creates nothing");
        let at = format!("{}\n", home.config().display());
        assert_eq!(run_in(&home, &ConfigCommand::Path(plain)).1, at);

        fs::create_dir(home.dir()).unwrap();
        fs::write(home.config(), "[agent]\nlocale = \"zh\"\n[gateway]\ntoken = \"canary\"\n").unwrap();
        let (exit, out, _) = run_in(&home, &show);
        assert_eq!(exit, CommandExit::Ok);
        for line in [
            "agent.model = \"auto\"  # from default".to_owned(),
            format!("agent.locale = \"zh\"  # from {}:2", home.config().display()),
            format!("gateway.token = \"(hidden)\"  # from {}:4", home.config().display()),
            "# agent.temperature is not set".to_owned(),
            "tools.disabled = []  # from default".to_owned(),
        ] {
            assert!(out.lines().any(|one| one == line), "{line}\n{out}");
        }
        // The output is itself valid TOML, except for the hidden secret.
        fs::write(home.config(), &out).unwrap();
        assert_eq!(run_in(&home, &check).0, CommandExit::Ok);
        let (_, out, _) = run_in(&home, &ConfigCommand::Show(as_json));
        let shown: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(shown["config"]["agent"]["locale"], "zh");
        assert_eq!(shown["from"]["log.level"], format!("{}:{}", home.config().display(), line_of(&home, "log.level")));

        fs::write(home.config(), "[agent]\nlocale = \"de\"\nmodle = 1\n").unwrap();
        let (exit, out, err) = run_in(&home, &check);
        assert_eq!((exit, out.as_str(), err.lines().count()), (CommandExit::Config, "", 2));
        let (exit, out, _) = run_in(&home, &ConfigCommand::Check(as_json));
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((exit, &report["faults"][0]["line"]), (CommandExit::Config, &json!(2)));
    }

    #[test]
    fn the_option_and_the_variable_name_the_file() {
        let home = Home::locate(Some("/h".into())).unwrap();
        let flag = Globals { config: Some("/flag".into()), ..Globals::default() };
        let variable = BTreeMap::from([("DAOYOU_CONFIG".to_owned(), "/variable".to_owned())]);
        for (globals, env, expected) in [
            (&flag, &variable, "/flag: there is no such file"),
            (&Globals::default(), &variable, "/variable: there is no such file"),
        ] {
            assert_eq!(load(globals, &home, env).unwrap_err()[0].to_string(), expected);
        }
    }

    fn line_of(home: &Home, key: &str) -> usize {
        let text = fs::read_to_string(home.config()).unwrap();
        text.lines().position(|line| line.starts_with(key)).unwrap() + 1
    }
}
