//! The tools `load_skill` and `find_skills`.

use std::cmp::Ordering;
use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::catalog::SkillCatalog;
use super::loading::render_skill;
use super::prompt::plain_line;
use super::search::find_skills;
use super::skill::{Skill, SkillList};
use crate::chat::ToolSpec;
use crate::text::nearest::BY_EDITS;
use crate::text::truncate;
use crate::tools::{
    OutputLimit, ReplayPolicy, Tool, ToolAccess, ToolContext, ToolOutcome, ToolResult, TruncationStrategy, tool_spec,
};

/// The tools' names.
pub const LOAD_SKILL: &str = "load_skill";
pub const FIND_SKILLS: &str = "find_skills";

const NO_SKILLS: &str = "No skills currently available.";
/// The most skills that a query finds.
const MAX_FOUND: usize = 10;
/// The most names in an error.
const MAX_NAMES: usize = 50;
/// The most characters of a description or reason in a list, and of a name that a model wrote.
const MAX_LINE: usize = 300;
const MAX_NAME: usize = 100;

#[derive(Deserialize, JsonSchema)]
struct LoadSkillArgs {
    /// The name of the skill.
    name: String,
}

#[derive(Deserialize, JsonSchema)]
struct FindSkillsArgs {
    /// What is to be done.
    query: String,
}

/// Loads the instructions of a skill.
pub struct LoadSkill {
    spec: ToolSpec,
    catalog: Arc<SkillCatalog>,
}

impl LoadSkill {
    pub fn new(catalog: Arc<SkillCatalog>) -> Self {
        Self { spec: tool_spec::<LoadSkillArgs>(LOAD_SKILL, "Get the instructions and files of a skill"), catalog }
    }
}

#[async_trait]
impl Tool for LoadSkill {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn replay(&self) -> ReplayPolicy {
        ReplayPolicy::Idempotent
    }

    fn access(&self) -> ToolAccess {
        ToolAccess::Reads
    }

    /// Instructions are of little use in parts.
    fn output_limit(&self) -> OutputLimit {
        OutputLimit { chars: 100_000, lines: 5_000 }
    }

    fn output_strategy(&self) -> TruncationStrategy {
        TruncationStrategy::HeadOnly
    }

    async fn call(&self, arguments: Value, _: &ToolContext) -> ToolOutcome {
        let args: LoadSkillArgs = match serde_json::from_value(arguments) {
            Ok(args) => args,
            Err(error) => return ToolResult::failed(error.to_string()).into(),
        };
        let catalog = self.catalog.clone();
        in_background(move || load(&catalog.look(), args.name.trim())).await
    }
}

/// Finds the skills for a task.
pub struct FindSkills {
    spec: ToolSpec,
    catalog: Arc<SkillCatalog>,
}

impl FindSkills {
    pub fn new(catalog: Arc<SkillCatalog>) -> Self {
        Self { spec: tool_spec::<FindSkillsArgs>(FIND_SKILLS, "Find skills for a task"), catalog }
    }
}

#[async_trait]
impl Tool for FindSkills {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn replay(&self) -> ReplayPolicy {
        ReplayPolicy::Idempotent
    }

    fn access(&self) -> ToolAccess {
        ToolAccess::Reads
    }

    async fn call(&self, arguments: Value, _: &ToolContext) -> ToolOutcome {
        let args: FindSkillsArgs = match serde_json::from_value(arguments) {
            Ok(args) => args,
            Err(error) => return ToolResult::failed(error.to_string()).into(),
        };
        let catalog = self.catalog.clone();
        in_background(move || Ok(find(&catalog.look(), &args.query))).await
    }
}

/// Runs what reads the disk outside of the threads of turns.
async fn in_background(work: impl FnOnce() -> Result<String, String> + Send + 'static) -> ToolOutcome {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(error.to_string())).into()
}

/// Returns the text of a skill, or why there is none.
fn load(list: &SkillList, name: &str) -> Result<String, String> {
    let Some(skill) = list.find(name) else { return Err(not_found(list, name)) };
    match &skill.unavailable {
        Some(reason) => {
            Err(format!("Skill '{}' is unavailable: {}", skill.name(), truncate(&plain_line(reason), MAX_LINE)))
        }
        None => render_skill(skill).map_err(|reason| format!("Skill '{}' cannot be read: {reason}", skill.name())),
    }
}

/// Names the skills that there are, the most similar one first.
fn not_found(list: &SkillList, name: &str) -> String {
    let asked = truncate(&plain_line(name), MAX_NAME);
    let mut names: Vec<&str> = list.available().map(Skill::name).collect();
    if names.is_empty() {
        return format!("Skill '{asked}' not found. {NO_SKILLS}");
    }
    let similarity = |known: &str| BY_EDITS(&known.to_lowercase(), &asked.to_lowercase());
    let mut best = 0;
    for at in 1..names.len() {
        if similarity(names[at]).total_cmp(&similarity(names[best])) == Ordering::Greater {
            best = at;
        }
    }
    names[..=best].rotate_right(1);
    let left = names.len().saturating_sub(MAX_NAMES);
    names.truncate(MAX_NAMES);
    let more = if left > 0 { format!(" and {left} more: find_skills(query)") } else { String::new() };
    format!("Skill '{asked}' not found. Available skills: {}{more}", names.join(", "))
}

/// Lists the skills that fit a query.
fn find(list: &SkillList, query: &str) -> String {
    let found = find_skills(list, query, MAX_FOUND);
    if found.is_empty() {
        let count = list.available().count();
        return if count == 0 { NO_SKILLS.to_owned() } else { format!("None of the {count} skills fits.") };
    }
    let lines = found.iter().map(|skill| {
        let unavailable = skill.unavailable.as_ref().map(|reason| format!(" (unavailable: {})", plain_line(reason)));
        let unavailable = truncate(&unavailable.unwrap_or_default(), MAX_LINE);
        format!("- **{}**: {}{unavailable}", skill.name(), truncate(&plain_line(&skill.manifest.description), MAX_LINE))
    });
    lines.collect::<Vec<_>>().join("\n")
}
