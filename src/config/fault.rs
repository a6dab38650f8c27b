//! Faults of a configuration, with their origins.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Serialize, Serializer};

use crate::text::one_line;

/// The origin of a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SettingOrigin {
    /// The value is the default.
    #[default]
    Default,
    /// A file, and the line if a single line is meant.
    File { file: PathBuf, line: Option<usize> },
    /// The environment variable of this name.
    Env(String),
    /// This option of the command line.
    Option(&'static str),
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { file, line: Some(line) } => write!(f, "{}:{line}", file.display()),
            Self::File { file, line: None } => write!(f, "{}", file.display()),
            Self::Env(name) => f.write_str(name),
            Self::Option(name) => f.write_str(name),
        }
    }
}

impl Serialize for SettingOrigin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A fault. It is shown as one line: `FILE:LINE: KEY: what is wrong; allowed: …`. If the value came from the environment, the name
/// of the variable replaces file and line. A fault never contains a secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigFault {
    pub origin: SettingOrigin,
    /// The path of the key, such as `agent.model`; empty if the fault belongs to no key.
    pub key: String,
    pub wrong: String,
    /// The allowed values; empty if `wrong` contains them already.
    pub allowed: String,
}

impl ConfigFault {
    pub fn new(
        origin: SettingOrigin,
        key: impl Into<String>,
        wrong: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        Self { origin, key: key.into(), wrong: wrong.into(), allowed: allowed.into() }
    }
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", one_line(&self.origin.to_string()))?;
        if !self.key.is_empty() {
            write!(f, "{}: ", one_line(&self.key))?;
        }
        f.write_str(&one_line(&self.wrong))?;
        if !self.allowed.is_empty() {
            write!(f, "; allowed: {}", one_line(&self.allowed))?;
        }
        Ok(())
    }
}

/// All faults, one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFaults(pub Vec<ConfigFault>);

impl fmt::Display for ConfigFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, fault) in self.0.iter().enumerate() {
            write!(f, "{}{fault}", if number == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigFaults {}

/// Returns the origin of `key`, or of the nearest table that contains it.
pub(super) fn nearest_origin(origins: &BTreeMap<String, SettingOrigin>, key: &str) -> SettingOrigin {
    let mut key = key;
    loop {
        if let Some(origin) = origins.get(key) {
            return origin.clone();
        }
        match key.rsplit_once('.') {
            Some((table, _)) => key = table,
            None => return SettingOrigin::Default,
        }
    }
}

/// Returns true if `key` is `table` or a key in it.
pub(super) fn inside(key: &str, table: &str) -> bool {
    !table.is_empty() && key.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_one_line() {
        let file = |line| SettingOrigin::File { file: "c.toml".into(), line };
        let table = [
            (
                ConfigFault::new(file(Some(3)), "agent.model", "is bad", "\"auto\""),
                "c.toml:3: agent.model: is bad; allowed: \"auto\"",
            ),
            (ConfigFault::new(file(None), "", "cannot be read", ""), "c.toml: cannot be read"),
            (
                ConfigFault::new(SettingOrigin::Env("DAOYOU_A__B".into()), "a.b", "two\nlines", ""),
                "DAOYOU_A__B: a.b: two lines",
            ),
        ];
        for (fault, expected) in table {
            assert_eq!(fault.to_string(), expected);
        }
    }
}
