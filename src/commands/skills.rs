//! `daoyou skills` and `daoyou agents`.

use std::io::Write;

use anyhow::Context;
use serde_json::json;

use super::access::inspect;
use super::environment::CommandEnvironment;
use super::output::{print, print_note, tr};
use super::{CommandExit, render};
use crate::cli::{AgentsCommand, SkillsCommand};
use crate::gateway::check_skills;
use crate::query::GatewayQuery;

/// Runs `daoyou skills`.
///
/// # Errors
/// The configuration is invalid, the gateway does not answer, there is no such skill, or a folder cannot be read.
pub async fn run(command: &SkillsCommand, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    match command {
        SkillsCommand::List(output) => {
            let found = inspect(GatewayQuery::Skills, environment).await?;
            let printed = print(&found["skills"], *output, |out| {
                render::table(&found["skills"], render::SKILLS, tr("no skills", "没有技能"), out)
            })?;
            for problem in found["problems"].as_array().into_iter().flatten() {
                print_note(render::problem_line(problem));
            }
            Ok(printed)
        }
        SkillsCommand::Show { name, output } => {
            let found = inspect(GatewayQuery::Skill(name.clone()), environment).await?;
            print(&found, *output, |out| {
                if let Some(reason) = found["reason"].as_str() {
                    writeln!(out, "{}: {reason}\n", tr("unavailable", "不可用"))?;
                }
                writeln!(out, "{}", render::text(&found["text"]))
            })
        }
        SkillsCommand::Check { folder, output } => {
            let problems = match folder {
                Some(folder) => json!(check_skills(folder).with_context(|| folder.display().to_string())?),
                None => inspect(GatewayQuery::Skills, environment).await?["problems"].take(),
            };
            let printed = print(&problems, *output, |out| {
                for problem in problems.as_array().into_iter().flatten() {
                    writeln!(out, "{}", render::problem_line(problem))?;
                }
                if problems.as_array().is_none_or(Vec::is_empty) {
                    writeln!(out, "{}", tr("no problems", "没有问题"))?;
                }
                Ok(())
            })?;
            Ok(if problems.as_array().is_none_or(Vec::is_empty) { printed } else { CommandExit::Failed })
        }
    }
}

/// Runs `daoyou agents`.
///
/// # Errors
/// The configuration is invalid, the gateway does not answer, or there is no such agent.
pub async fn run_agents(command: &AgentsCommand, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    match command {
        AgentsCommand::List(output) => {
            let found = inspect(GatewayQuery::Agents, environment).await?;
            let printed = print(&found["agents"], *output, |out| {
                render::table(&found["agents"], render::AGENTS, tr("no agents", "没有智能体"), out)
            })?;
            for problem in found["problems"].as_array().into_iter().flatten() {
                print_note(render::problem_line(problem));
            }
            Ok(printed)
        }
        AgentsCommand::Show { name, output } => {
            let found = inspect(GatewayQuery::Agent(name.clone()), environment).await?;
            print(&found, *output, |out| {
                let mut fields = found.clone();
                let prompt = fields.as_object_mut().and_then(|fields| fields.remove("prompt")).unwrap_or_default();
                render::fields(&fields, &mut *out)?;
                writeln!(out, "\n{}", render::text(&prompt))
            })
        }
    }
}
