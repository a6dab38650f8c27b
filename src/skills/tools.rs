//! The tools `load_skill` and `find_skills`, which finds skills by the words of a query in their names, triggers and
//! descriptions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::catalog::SkillCatalog;
use super::loading::render_skill;
use super::skill::{Skill, SkillList};
use crate::text::nearest::BY_EDITS;
use crate::text::{index_terms, plain_line, query_terms, truncate};
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
/// The weight of a word in the name or a trigger, relative to a word in the description.
const NAME_WEIGHT: f64 = 3.0;
const TRIGGER_WEIGHT: f64 = 2.0;

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
    let name = skill.name();
    if let Some(reason) = &skill.unavailable {
        return Err(format!("Skill '{name}' is unavailable: {}", truncate(&plain_line(reason), MAX_LINE)));
    }
    let text = catalog.verify(skill).and_then(|pinned| render_skill(skill, pinned.as_ref()));
    let text = text.map_err(|reason| format!("Skill '{name}' cannot be read: {reason}"))?;
    let entries = skill.manifest.allowed_tools.clone();
    let allow_list = (!entries.is_empty()).then(|| ToolAllowList { skill: name.to_owned(), entries });
    Ok(ToolResult { allow_lists: allow_list.into_iter().collect(), ..ToolResult::ok(text) })
}

/// Returns the error for an unknown skill, which lists the existing ones, the most similar first.
fn not_found(list: &SkillList, name: &str) -> String {
    let asked = truncate(&plain_line(name), MAX_NAME);
    let mut names: Vec<&str> = list.available().map(Skill::name).collect();
    if names.is_empty() {
        return format!("Skill '{asked}' not found. {NO_SKILLS}");
    }
    let similarity = |known: &str| BY_EDITS(&known.to_lowercase(), &asked.to_lowercase());
    // Of equally similar names, the first counts.
    let best =
        (0..names.len()).rev().max_by(|one, other| similarity(names[*one]).total_cmp(&similarity(names[*other])));
    names[..=best.unwrap_or_default()].rotate_right(1);
    let left = names.len().saturating_sub(MAX_NAMES);
    names.truncate(MAX_NAMES);
    let more = if left > 0 { format!(" and {left} more: find_skills(query)") } else { String::new() };
    format!("Skill '{asked}' not found. Available skills: {}{more}", names.join(", "))
}

/// Lists the skills that match a query.
fn find(list: &SkillList, query: &str) -> String {
    let found = best_matches(list, query);
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

/// Returns the skills that match the query best, best first, at most [`MAX_FOUND`]. Includes skills that cannot be used, but not
/// those that the configuration disables.
fn best_matches<'a>(list: &'a SkillList, query: &str) -> Vec<&'a Skill> {
    let skills: Vec<&Skill> = list.skills.iter().filter(|skill| !skill.is_disabled).collect();
    let weights: Vec<_> = skills.iter().map(|skill| term_weights(skill)).collect();
    let rated = query_terms(&spaced(query)).into_iter().map(|term| {
        let known_by = weights.iter().filter(|weights| weights.contains_key(&term.text)).count().max(1);
        let rarity = (1.0 + skills.len() as f64 / known_by as f64).ln();
        (term.weight * rarity, term.text)
    });
    let wanted: Vec<(f64, String)> = rated.collect();
    let score = |weights: &HashMap<String, f64>| -> f64 {
        wanted.iter().filter_map(|(weight, text)| Some(weight * weights.get(text)?)).sum()
    };
    let scored = skills.iter().zip(&weights).map(|(skill, weights)| (score(weights), *skill));
    let mut found: Vec<(f64, &Skill)> = scored.filter(|(score, _)| *score > 0.0).collect();
    found.sort_by(|one, other| other.0.total_cmp(&one.0));
    found.into_iter().take(MAX_FOUND).map(|(_, skill)| skill).collect()
}

/// Returns the words of a skill, each with the sum of the weights of the fields that contain it.
fn term_weights(skill: &Skill) -> HashMap<String, f64> {
    let (manifest, triggers) = (&skill.manifest, skill.manifest.triggers.join(", "));
    let mut weights = HashMap::new();
    for (text, weight) in [(&manifest.name, NAME_WEIGHT), (&triggers, TRIGGER_WEIGHT), (&manifest.description, 1.0)] {
        for term in HashSet::<String>::from_iter(index_terms(&spaced(text))) {
            *weights.entry(term).or_default() += weight;
        }
    }
    weights
}

/// Separates the words of names such as `pdf-forms` and `pdf_forms`.
fn spaced(text: &str) -> String {
    text.replace(['-', '_'], " ")
}
