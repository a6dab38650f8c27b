//! The systemd unit of the service: a template from `systemd/`, with the paths of this machine.

use std::path::Path;

/// The name of the unit, for the system and for users.
pub const NAME: &str = "daoyou.service";

/// The home of the system unit.
pub const SYSTEM_HOME: &str = "/var/lib/daoyou";

const SYSTEM: &str = include_str!("../../systemd/daoyou.service");
const USER: &str = include_str!("../../systemd/daoyou-user.service");

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
    pub fn text(&self, is_system: bool) -> String {
        let template = if is_system { SYSTEM } else { USER };
        let lines = template.lines().map(|line| self.line(line));
        lines.collect::<Vec<_>>().join("\n") + "\n"
    }

    fn line(&self, line: &str) -> String {
        if line.starts_with("ExecStart=") {
            let config = self
                .config
                .map(|path| format!(" --config {}", word(&path.to_string_lossy(), "$$")))
                .unwrap_or_default();
            return format!("ExecStart={} gateway --no-cli{config}", word(&self.exe.to_string_lossy(), "$$"));
        }
        if let (true, Some(home)) = (line.starts_with("Environment=DAOYOU_HOME="), self.home) {
            return format!("Environment={}", word(&format!("DAOYOU_HOME={}", home.display()), "$"));
        }
        match line.strip_prefix('#') {
            Some(setting) if is_newer(setting) && self.version >= NEWER => setting.to_owned(),
            _ => line.to_owned(),
        }
    }
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
                let text = unit(exe).text(is_system);
                assert!(text.lines().any(|line| line == expected), "{expected}\n{text}");
                assert_eq!(text.matches("ExecStart=").count(), 1);
            }
        }
    }

    #[test]
    fn only_values_other_than_the_defaults_change_the_template() {
        assert_eq!(unit("/usr/local/bin/daoyou").text(true), SYSTEM);
        let (config, home) = (Path::new("/etc/daoyou.toml"), Path::new("/srv/my $home"));
        let text = UnitFile { config: Some(config), home: Some(home), version: 254, ..unit("/d") }.text(false);
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
