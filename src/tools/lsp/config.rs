//! `[tools.lsp]`.

use std::collections::BTreeMap;

use daoyou_channels::settings::{HumanDuration, SettingFault};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::languages::SERVERS;

/// The settings of the tools that ask language servers.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LspConfig {
    /// After this time without a call, a server is stopped.
    #[default(HumanDuration::from_secs(600))]
    pub idle_timeout: HumanDuration,
    /// How long a server may take to start, and to read its project.
    #[default(HumanDuration::from_secs(60))]
    pub startup_timeout: HumanDuration,
    /// How long a server may take to answer.
    #[default(HumanDuration::from_secs(30))]
    pub timeout: HumanDuration,
    /// By language (rust, python, typescript, go, c): the program of its server, and its arguments.
    pub servers: BTreeMap<String, Vec<String>>,
}

impl LspConfig {
    /// Returns the fault of these settings, if they have one.
    pub fn fault(&self) -> Option<SettingFault> {
        const ALLOWED: &str =
            "rust, python, typescript, go or c, and a program with its arguments, such as python = [\"pylsp\"]";
        let fault = |wrong: String| Some(SettingFault::new(&["tools.lsp.servers"], wrong, ALLOWED));
        for (name, command) in &self.servers {
            if !SERVERS.iter().any(|kind| kind.name == name) {
                return fault(format!("{name:?} is not a language that is known"));
            }
            let is_empty = command.first().is_none_or(|program| program.trim().is_empty());
            if is_empty || command.iter().any(|word| word.contains('\0')) {
                return fault(format!("the command of {name:?} names no program"));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_checked() {
        for (name, command, expected) in [
            ("python", &["pylsp", "-v"][..], None),
            ("python", &[], Some("names no program")),
            ("python", &[" "], Some("names no program")),
            ("cobol", &["x"], Some("\"cobol\" is not a language")),
        ] {
            let command = command.iter().map(|word| (*word).to_owned()).collect();
            let servers = BTreeMap::from([(name.to_owned(), command)]);
            let fault = LspConfig { servers, ..LspConfig::default() }.fault().map(|fault| fault.wrong);
            assert_eq!(fault.is_some(), expected.is_some(), "{fault:?}");
            assert!(fault.unwrap_or_default().contains(expected.unwrap_or_default()), "{name}");
        }
    }
}
