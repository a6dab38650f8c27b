//! A skill, and the list of all skills with the problems of others.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::discovery::SkillSource;
use super::frontmatter::{SkillManifest, SkillManifestError};

/// A skill that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Skill {
    pub manifest: Arc<SkillManifest>,
    /// The name of the source, such as `skills` or `~/.claude/skills`.
    pub source: Arc<str>,
    pub location: SkillLocation,
    /// The reason why the skill cannot be used now.
    pub unavailable: Option<String>,
    /// True if the configuration disables the skill.
    pub is_disabled: bool,
}

/// Where the text of a skill is stored.
#[derive(Clone, Debug, PartialEq)]
pub enum SkillLocation {
    File {
        /// The absolute path of the file `SKILL.md`.
        path: PathBuf,
        source: Arc<SkillSource>,
        /// The folder of the skill, relative to the root of the source.
        folder: String,
        /// The name of the file.
        file: &'static str,
    },
    /// The text is part of the program.
    BuiltIn { name: &'static str, text: &'static str },
}

impl SkillLocation {
    pub fn is_built_in(&self) -> bool {
        matches!(self, Self::BuiltIn { .. })
    }

    /// Returns the absolute path of the skill's file, or `built-in:NAME`.
    pub fn shown(&self) -> String {
        match self {
            Self::File { path, .. } => path.display().to_string(),
            Self::BuiltIn { name, .. } => format!("built-in:{name}"),
        }
    }
}

impl Skill {
    pub fn name(&self) -> &str {
        &self.manifest.name
    }

    pub fn is_available(&self) -> bool {
        self.unavailable.is_none()
    }

    /// Returns the absolute path of the skill's file, or `built-in:NAME`.
    pub fn path(&self) -> String {
        self.location.shown()
    }
}

/// A problem of a file or folder of skills. People see it as `PATH:LINE: PROBLEM`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SkillProblem {
    pub path: String,
    /// The line number, starting from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    pub problem: String,
}

impl SkillProblem {
    pub(super) fn new(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { path: path.into(), line: None, problem: problem.into() }
    }

    pub(super) fn of_fault(path: impl Into<String>, fault: &SkillManifestError) -> Self {
        Self { line: fault.line, ..Self::new(path, fault.reason.clone()) }
    }
}

impl Display for SkillProblem {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let line = self.line.map(|line| format!(":{line}")).unwrap_or_default();
        write!(f, "{}{line}: {}", self.path, self.problem)
    }
}

/// A skill that is not used because an earlier one has the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShadowedSkill {
    pub name: String,
    pub path: String,
    /// The path of the skill that is used instead.
    pub by: String,
}

/// All skills, in the order of the sources, and by path in each source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SkillList {
    pub skills: Vec<Skill>,
    /// The reasons why other files are not skills, and warnings.
    pub problems: Vec<SkillProblem>,
    pub shadowed: Vec<ShadowedSkill>,
}

impl SkillList {
    /// Returns the list without the skills that an agent may not see. With `None`, returns all skills.
    #[must_use]
    pub fn seen_by(self: Arc<Self>, names: Option<&BTreeSet<String>>) -> Arc<Self> {
        let Some(names) = names else { return self };
        let seen = self.skills.iter().filter(|skill| names.contains(skill.name()));
        Arc::new(Self { skills: seen.cloned().collect(), ..Self::default() })
    }

    /// Returns the skill with this name. Case matters only if two names differ in nothing else.
    pub fn find(&self, name: &str) -> Option<&Skill> {
        let exact = self.skills.iter().find(|skill| skill.name() == name);
        exact.or_else(|| self.skills.iter().find(|skill| skill.name().eq_ignore_ascii_case(name)))
    }

    /// Returns the skills that can be used: first those that are always in the prompt, then the others, both in list order.
    pub fn available(&self) -> impl Iterator<Item = &Skill> {
        let with = |is_always: bool| {
            let skills = self.skills.iter().filter(|skill| skill.is_available());
            skills.filter(move |skill| skill.manifest.always_text.is_some() == is_always)
        };
        with(true).chain(with(false))
    }
}
