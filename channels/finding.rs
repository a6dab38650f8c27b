//! Findings of checks, with the steps that fix them.

use serde::{Deserialize, Serialize};

/// The severity of a finding, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "snake_case")]
pub enum Severity {
    Ok,
    /// The checked thing works but needs attention.
    Warn,
    /// The checked thing does not work.
    Fail,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The name of the checked thing: one word, or a word and a name (`provider openai`).
    pub name: String,
    pub state: Severity,
    /// The result in one line; never contains a secret.
    pub message: String,
    /// The command or edit that fixes the problem; absent if there is none.
    pub mend: Option<String>,
    /// The fix that was applied.
    pub fixed: Option<String>,
}

impl Finding {
    pub fn ok(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self { name: name.into(), state: Severity::Ok, message: message.into(), mend: None, fixed: None }
    }

    pub fn warn(name: impl Into<String>, message: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { state: Severity::Warn, mend: Some(mend.into()), ..Self::ok(name, message) }
    }

    pub fn fail(name: impl Into<String>, message: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { state: Severity::Fail, mend: Some(mend.into()), ..Self::ok(name, message) }
    }

    /// Returns the finding with another severity.
    #[must_use]
    pub fn with_severity(self, state: Severity) -> Self {
        Self { state, ..self }
    }
}

/// Returns the worst severity; `Ok` if there are no findings.
pub fn worst(findings: &[Finding]) -> Severity {
    findings.iter().map(|finding| finding.state).max().unwrap_or(Severity::Ok)
}
