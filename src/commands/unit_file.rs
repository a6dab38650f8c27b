//! The systemd unit of the service: a template from `systemd/`, with the paths of this machine.

use std::path::Path;

use anyhow::bail;

use super::translation::tr_fill;

/// The name of the unit, for the system and for users.
pub const NAME: &str = "daoyou.service";

/// The home of the system unit.
pub const SYSTEM_HOME: &str = "/var/lib/daoyou";

const SYSTEM: &str = include_str!("../../systemd/daoyou.service");
const USER: &str = include_str!("../../systemd/daoyou-user.service");

/// The line of the user unit with the default home.
const DEFAULT_HOME: &str = "Environment=DAOYOU_HOME=%h/.daoyou";

/// The first version of systemd with growing restart delays and DelegateSubgroup.
const NEWER: u32 = 254;

/// Returns true for a setting that older versions do not know.
fn is_newer(setting: &str) -> bool {
    setting.starts_with("Restart") || setting.starts_with("DelegateSubgroup")
}

/// The parameters of a unit.
pub struct UnitFile<'a> {
    /// The program.
    pub exe: &'a Path,
    /// The configuration file, if it is not the default.
    pub config: Option<&'a Path>,
    /// The home of a user's gateway, if it is not the default.
    pub home: Option<&'a Path>,
    /// The version of systemd; 0 if unknown.
    pub version: u32,
}

impl UnitFile<'_> {
    /// Returns the text of the system unit, or of a user unit.
    ///
    /// # Errors
    /// A path cannot be written in a unit: it has a control character such as a line break, or is not UTF-8.
    pub fn text(&self, is_system: bool) -> anyhow::Result<String> {
        let paths = [Some(self.exe), self.config, self.home].into_iter().flatten();
        let is_plain = |path: &Path| path.to_str().is_some_and(|text| !text.contains(char::is_control));
        if let Some(path) = paths.into_iter().find(|path| !is_plain(path)) {
            let en = "{}: a unit cannot name this path, which has a control character or is not UTF-8: rename it";
            let zh = "{}：单元文件无法写入此路径，其中有控制字符或不是 UTF-8：请改名";
            bail!("{}", tr_fill(en, zh, &[&format!("{path:?}")]));
        }
        let template = if is_system { SYSTEM } else { USER };
        let lines = template.lines().map(|line| self.line(line));
        Ok(lines.collect::<Vec<_>>().join("\n") + "\n")
    }

    fn line(&self, line: &str) -> String {
        if line.starts_with("ExecStart=") {
            let config = self
                .config
                .map(|path| format!(" --config {}", word(&path.to_string_lossy(), "$$")))
                .unwrap_or_default();
            return format!("ExecStart={} gateway --no-cli{config}", word(&self.exe.to_string_lossy(), "$$"));
        }
        if let (DEFAULT_HOME, Some(home)) = (line, self.home) {
            return home_line(home);
        }
        match line.strip_prefix('#') {
            Some(setting) if is_newer(setting) && self.version >= NEWER => setting.to_owned(),
            _ => line.to_owned(),
        }
    }
}

/// Returns true if a user unit with this text runs the gateway of `home`. A unit that names no home uses the default one.
pub fn runs_home(unit: &str, home: &Path, is_default: bool) -> bool {
    let names_home =
        |line: &&str| ["Environment=DAOYOU_HOME=", "Environment=\"DAOYOU_HOME="].iter().any(|it| line.starts_with(it));
    match unit.lines().map(str::trim).rfind(names_home) {
        Some(DEFAULT_HOME) | None => is_default,
        Some(line) => line == home_line(home),
    }
}

/// Returns true if the drop-ins of a unit set the variable `name`, or read variables from a file, which may set it.
pub fn sets_variable(drop_ins: &str, name: &str) -> bool {
    let is_name = |word: &str| word.trim_matches(['"', '\'']).split('=').next() == Some(name);
    let joined = drop_ins.replace("\\\n", " ");
    joined.lines().filter_map(|line| line.split_once('=')).any(|(setting, value)| match setting.trim() {
        "EnvironmentFile" => !value.is_empty(),
        "Environment" | "PassEnvironment" => value.split_whitespace().any(is_name),
        _ => false,
    })
}

fn home_line(home: &Path) -> String {
    format!("Environment={}", word(&format!("DAOYOU_HOME={}", home.display()), "$"))
}

/// Formats `text` as one word of a unit: quoted if necessary, and escaped (systemd.service(5), "Command lines"). `dollar` is the
/// escape of `$`, which systemd expands in command lines only.
fn word(text: &str, dollar: &str) -> String {
    let text = text.replace('%', "%%").replace('$', dollar);
    if !text.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\' | ';')) {
        return text;
    }
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(exe: &str) -> UnitFile<'_> {
        UnitFile { exe: Path::new(exe), config: None, home: None, version: 252 }
    }

    #[test]
    fn the_units_run_this_program() {
        for (exe, expected) in [
            ("/usr/bin/daoyou", "ExecStart=/usr/bin/daoyou gateway --no-cli"),
            ("/opt/my tools/dao%you", "ExecStart=\"/opt/my tools/dao%%you\" gateway --no-cli"),
            ("/opt/$a\"b", "ExecStart=\"/opt/$$a\\\"b\" gateway --no-cli"),
        ] {
            for is_system in [true, false] {
                let text = unit(exe).text(is_system).unwrap();
                assert!(text.lines().any(|line| line == expected), "{expected}\n{text}");
                assert_eq!(text.matches("ExecStart=").count(), 1);
            }
        }
    }

    #[test]
    fn a_variable_is_set_by_a_drop_in() {
        for (drop_ins, expected) in [
            ("[Service]\nEnvironment=\"KEY=a b\" OTHER=x\n", true),
            ("[Service]\nEnvironment=OTHER=x KEY=y\n", true),
            ("[Service]\n PassEnvironment=OTHER KEY\n", true),
            ("[Service]\nEnvironmentFile=-/etc/daoyou.env\n", true),
            ("[Service]\nEnvironmentFile=\n", false),
            ("[Service]\nEnvironment=KEYS=x\n#Environment=KEY=x\nLoadCredential=KEY:/k\n", false),
            ("", false),
        ] {
            assert_eq!(sets_variable(drop_ins, "KEY"), expected, "{drop_ins}");
        }
    }

    #[test]
    fn a_user_unit_runs_the_gateway_of_one_home_only() {
        let (default, other) = (unit("/d").text(false).unwrap(), Path::new("/srv/my home"));
        let named = UnitFile { home: Some(other), ..unit("/d") }.text(false).unwrap();
        let bare = "[Service]\nExecStart=/d gateway\n";
        for (text, home, is_default, expected) in [
            (&*default, "/home/a/.daoyou", true, true),
            (&default, "/home/a/.daoyou2", false, false),
            (bare, "/home/a/.daoyou", true, true),
            (bare, "/srv/x", false, false),
            (&named, "/srv/my home", false, true),
            (&named, "/srv/my", false, false),
            (&named, "/home/a/.daoyou", true, false),
        ] {
            assert_eq!(runs_home(text, Path::new(home), is_default), expected, "{home}\n{text}");
        }
    }

    #[test]
    fn a_path_that_would_break_the_unit_is_refused() {
        let broken = Path::new("/srv/a\nExecStartPre=/bin/false");
        let error = UnitFile { home: Some(broken), ..unit("/d") }.text(false).unwrap_err().to_string();
        assert!(error.contains("control character") && !error.contains('\n'), "{error}");
        assert!(UnitFile { config: Some(broken), ..unit("/d") }.text(true).is_err());
        assert!(unit("/d\t").text(true).is_err());
    }

    #[test]
    fn only_values_other_than_the_defaults_change_the_template() {
        assert_eq!(unit("/usr/local/bin/daoyou").text(true).unwrap(), SYSTEM);
        let (config, home) = (Path::new("/etc/daoyou.toml"), Path::new("/srv/my $home"));
        let text = UnitFile { config: Some(config), home: Some(home), version: 254, ..unit("/d") }.text(false).unwrap();
        for line in [
            "ExecStart=/d gateway --no-cli --config /etc/daoyou.toml",
            "Environment=\"DAOYOU_HOME=/srv/my $home\"",
            "RestartSteps=6",
            "RestartMaxDelaySec=1min",
            "DelegateSubgroup=gateway",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
    }
}
