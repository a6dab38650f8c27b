//! The tools `load_skill` and `find_skills`.

use std::cmp::Ordering;
use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::catalog::SkillCatalog;
use super::loading::render_skill;
use super::search::find_skills;
use super::skill::{Skill, SkillList};
use crate::text::nearest::BY_EDITS;
use crate::text::{plain_line, truncate};
use crate::tools::{
    OutputLimit, Tool, ToolAllowList, ToolContext, ToolDefinition, ToolOutcome, ToolResult, TruncationStrategy,
    read_arguments,
};

/// The tools' names.
pub const LOAD_SKILL: &str = "load_skill";
pub const FIND_SKILLS: &str = "find_skills";

const NO_SKILLS: &str = "No skills currently available.";
/// The maximum number of skills that a query finds.
const MAX_FOUND: usize = 10;
/// The maximum number of names in an error.
const MAX_NAMES: usize = 50;
/// The maximum length of a description or reason in a list, and of a name that a model wrote, in characters.
const MAX_LINE: usize = 300;
const MAX_NAME: usize = 100;

#[derive(Deserialize, JsonSchema)]
struct LoadSkillArgs {
    name: String,
}

#[derive(Deserialize, JsonSchema)]
struct FindSkillsArgs {
    /// What is to be done.
    query: String,
}

/// The task of a tool.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SkillTask {
    Load,
    Find,
}

/// The tools `load_skill`, which loads the instructions of a skill, and `find_skills`, which finds skills for a task.
pub struct SkillTool {
    definition: ToolDefinition,
    catalog: Arc<SkillCatalog>,
    task: SkillTask,
}

impl SkillTool {
    /// Returns the tool `load_skill`.
    pub fn load(catalog: Arc<SkillCatalog>) -> Self {
        let definition = ToolDefinition {
            // Partial instructions are of little use, so the limit is high.
            output_limit: OutputLimit { chars: 100_000, lines: 5_000 },
            output_strategy: TruncationStrategy::HeadOnly,
            ..ToolDefinition::reading::<LoadSkillArgs>(LOAD_SKILL, "Load a skill")
        };
        Self { definition, catalog, task: SkillTask::Load }
    }

    /// Returns the tool `find_skills`.
    pub fn find(catalog: Arc<SkillCatalog>) -> Self {
        let definition = ToolDefinition::reading::<FindSkillsArgs>(FIND_SKILLS, "Find skills for a task");
        Self { definition, catalog, task: SkillTask::Find }
    }
}

#[async_trait]
impl Tool for SkillTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        let (task, catalog, agent) = (self.task, self.catalog.clone(), context.agent.clone());
        // Reading the disk may block.
        let done = tokio::task::spawn_blocking(move || {
            let list = || catalog.scan().seen_by(agent.skills.as_ref());
            match task {
                SkillTask::Load => load(&catalog, &list(), read_arguments::<LoadSkillArgs>(&arguments)?.name.trim()),
                SkillTask::Find => {
                    Ok(ToolResult::ok(find(&list(), &read_arguments::<FindSkillsArgs>(&arguments)?.query)))
                }
            }
        });
        done.await.unwrap_or_else(|error| Err(error.to_string())).unwrap_or_else(ToolResult::failed).into()
    }
}

/// Returns the text of a skill and the tools that it allows, or an error that states why there is no text.
fn load(catalog: &SkillCatalog, list: &SkillList, name: &str) -> Result<ToolResult, String> {
    let Some(skill) = list.find(name) else { return Err(not_found(list, name)) };
    match &skill.unavailable {
        Some(reason) => {
            Err(format!("Skill '{}' is unavailable: {}", skill.name(), truncate(&plain_line(reason), MAX_LINE)))
        }
        None => {
            let text = catalog.verify(skill).and_then(|pinned| render_skill(skill, pinned.as_ref()));
            let text = text.map_err(|reason| format!("Skill '{}' cannot be read: {reason}", skill.name()))?;
            let entries = skill.manifest.allowed_tools.clone();
            let allow_list = ToolAllowList { skill: skill.name().to_owned(), entries };
            let allow_lists = if allow_list.entries.is_empty() { Vec::new() } else { vec![allow_list] };
            Ok(ToolResult { allow_lists, ..ToolResult::ok(text) })
        }
    }
}

/// Returns the error for an unknown skill, which lists the existing ones, the most similar first.
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

/// Lists the skills that match a query.
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
