//! `daoyou agents`.

use std::io::Write;

use super::access::inspect;
use super::environment::CommandEnvironment;
use super::output::{print, print_note, tr};
use super::{CommandExit, render};
use crate::cli::AgentsCommand;
use crate::query::GatewayQuery;

/// Runs `daoyou agents`.
///
/// # Errors
/// The configuration is invalid, the gateway does not answer, or there is no such agent.
pub async fn run(command: &AgentsCommand, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
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
