//! Agents that depend on other agents: they lead them, choose one of them by the message, or run them as steps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::definition::AgentOrchestrator;
use super::profile::{AgentProfile, BranchChoice, BranchValues};
use super::workflow::{SPAWN, Workflow};
use crate::text::BoundedTemplate;

/// The maximum number of agents of a team, and of branches.
const MAX_TEAM: usize = 20;
/// The maximum length of `about`, in characters.
const MAX_ABOUT: usize = 500;
/// The agent that `parallel_explore` leads if it names none.
const EXPLORER: &str = "explorer";
/// The variables that `when` may use.
const NAMES: [&str; 5] = ["user_input", "channel", "chat", "sender", "files"];

const LEAD: &str = "You lead the agents below. Split what is asked into tasks, and hand each to the agent that fits best, with \
spawn(task, agent): say all that the agent needs, for it knows nothing of this conversation. Hand out tasks that do not depend on \
each other in one response, so that they run side by side; each answer is the result of its call. Then check the answers against \
the question, hand out what is missing, and answer from them. What needs no agent, answer yourself.";
const EXPLORE: &str = "You answer a question by exploring its parts side by side. Split it into two to six questions that do not \
depend on each other, and hand all of them out in one response with spawn(task, agent) to the agents below: say in each where to \
look, and what to answer. Each answer is the result of its call. Then combine them: what they agree on, where they contradict each \
other, with the places that they name. Ask again only for what is missing.";

/// The agents by their names.
type AgentsByName = BTreeMap<String, Arc<AgentProfile>>;

/// An invalid key of an agent, and what is wrong with it.
type KeyFault = (&'static str, String);

/// Adds to an agent what it needs from the others, which are in `all`.
///
/// # Errors
/// Returns the invalid key, and what is wrong with it.
pub(super) fn complete(mut agent: AgentProfile, all: &AgentsByName) -> Result<AgentProfile, KeyFault> {
    let is_lead = matches!(agent.orchestrator, AgentOrchestrator::MultiAgent | AgentOrchestrator::ParallelExplore);
    let is_chooser = agent.orchestrator == AgentOrchestrator::Conditional;
    if !is_lead && !agent.team.is_empty() {
        return Err(("agents", "is for orchestrator = \"multi_agent\" or \"parallel_explore\"".to_owned()));
    }
    if !is_chooser && !agent.branches.is_empty() {
        return Err(("branches", "is for orchestrator = \"conditional\"".to_owned()));
    }
    match (agent.orchestrator == AgentOrchestrator::Workflow, agent.workflow.clone()) {
        (false, Some(_)) => return Err(("workflow", "is for orchestrator = \"workflow\"".to_owned())),
        (true, None) => return Err(("workflow", "is missing: name the file of its steps".to_owned())),
        (true, Some(workflow)) => set_up_workflow(&mut agent, &workflow, all)?,
        (false, None) => {}
    }
    if agent.orchestrator == AgentOrchestrator::ParallelExplore && agent.team.is_empty() {
        agent.team.push(EXPLORER.to_owned());
    }
    if is_lead {
        set_up_lead(&mut agent, all)?;
    }
    if is_chooser {
        set_up_chooser(&mut agent, all)?;
    }
    Ok(agent)
}

fn set_up_lead(agent: &mut AgentProfile, all: &AgentsByName) -> Result<(), KeyFault> {
    if agent.team.is_empty() || agent.team.len() > MAX_TEAM {
        return Err(("agents", format!("names {} agents; a lead has 1 to {MAX_TEAM}", agent.team.len())));
    }
    let explores = agent.orchestrator == AgentOrchestrator::ParallelExplore;
    let mut guidance = if explores { EXPLORE } else { LEAD }.to_owned();
    guidance.push('\n');
    for name in &agent.team {
        let member = other(name, agent, all).map_err(|wrong| ("agents", wrong))?;
        guidance.push_str(&format!("\n- {name}: {}", member.description));
    }
    agent.guidance = Some(guidance);
    add_spawn(agent);
    Ok(())
}

/// Gives an agent the tool that delegates tasks to others.
fn add_spawn(agent: &mut AgentProfile) {
    if let Some(tools) = agent.tools.as_mut().filter(|tools| !tools.iter().any(|tool| tool == SPAWN)) {
        tools.push(SPAWN.to_owned());
    }
}

/// Checks the agents and tools of a workflow, and adds the agents to the team.
fn set_up_workflow(agent: &mut AgentProfile, workflow: &Workflow, all: &AgentsByName) -> Result<(), KeyFault> {
    if agent.prompt.is_some() || agent.model.is_some() {
        let reason = "is a workflow, which asks no model itself: set prompt and model on the agents of its steps";
        return Err(("orchestrator", reason.to_owned()));
    }
    let at = |(line, step): (u64, &str), wrong: &str| ("workflow", format!("line {line}: step {step:?}: {wrong}"));
    for (line, step, tool) in workflow.tools() {
        if let Some(tools) = agent.tools.as_ref().filter(|tools| !tools.iter().any(|own| own == tool)) {
            let own = if tools.is_empty() { "none".to_owned() } else { tools.join(", ") };
            return Err(at((line, step), &format!("{tool} is none of the agent's tools, which are {own}")));
        }
    }
    for name in workflow.agents() {
        let place = || workflow.step_of(name).unwrap_or_default();
        other(name, agent, all).map_err(|wrong| at(place(), &wrong))?;
        if let Some(way) = way_back(name, &agent.name, all) {
            return Err(at(place(), &format!("the workflows call each other without an end: {way}")));
        }
        agent.team.push(name.to_owned());
    }
    if !agent.team.is_empty() {
        add_spawn(agent);
    }
    Ok(())
}

/// Returns the chain of workflows from the agent `from` to the agent `to`, if there is one.
fn way_back(from: &str, to: &str, all: &AgentsByName) -> Option<String> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![vec![from]]);
    while let Some(way) = open.pop() {
        let last = way.last().copied()?;
        if last == to {
            return Some(format!("{to}, {}", way.join(", ")));
        }
        let Some(agent) = all.get(last).filter(|_| seen.insert(last)) else { continue };
        open.extend(called_agents(agent).map(|next| [&way[..], &[next]].concat()));
    }
    None
}

/// Returns the agents of the steps and branches of an agent.
pub(super) fn called_agents(agent: &AgentProfile) -> impl Iterator<Item = &str> {
    let steps = agent.workflow.iter().flat_map(|workflow| workflow.agents());
    steps.chain(agent.branches.iter().map(|branch| branch.agent.as_str()))
}

fn set_up_chooser(agent: &mut AgentProfile, all: &AgentsByName) -> Result<(), KeyFault> {
    let wrong = |wrong: String| Err(("branches", wrong));
    if agent.branches.is_empty() || agent.branches.len() > MAX_TEAM {
        return wrong(format!("has {} branches; there are 1 to {MAX_TEAM}", agent.branches.len()));
    }
    if agent.is_restricted() || agent.prompt.is_some() {
        let reason = "is conditional, which only chooses: set prompt, tools and limits on the agents that it chooses";
        return Err(("orchestrator", reason.to_owned()));
    }
    for branch in &agent.branches {
        let chosen = other(&branch.agent, agent, all).map_err(|wrong| ("branches", wrong))?;
        if chosen.orchestrator == AgentOrchestrator::Conditional {
            return wrong(format!("{} is conditional itself", chosen.name));
        }
        let (when, about) = (branch.when.trim(), branch.about.trim());
        if !when.is_empty() && !about.is_empty() {
            return wrong(format!("the branch of {} has one of when and about", branch.agent));
        }
        if about.chars().count() > MAX_ABOUT {
            return wrong(format!("about of {} is longer than {MAX_ABOUT} characters", branch.agent));
        }
        let compile = || {
            let template = BoundedTemplate::condition(when, &NAMES)?;
            template.render(BranchValues::default()).map(|_| template)
        };
        match (!when.is_empty()).then(compile).transpose() {
            Ok(when) => {
                agent.choices.push(BranchChoice { when, about: about.to_owned(), agent: chosen.name.clone() });
            }
            Err(error) => return wrong(format!("when = {when:?}: {error}")),
        }
    }
    if agent.branches.last().is_none_or(|last| !last.when.trim().is_empty()) {
        return wrong("has no last branch without `when`, for messages that fit no other".to_owned());
    }
    Ok(())
}

/// Returns another agent by its own name.
fn other<'a>(name: &str, agent: &AgentProfile, all: &'a AgentsByName) -> Result<&'a AgentProfile, String> {
    match all.get(name) {
        // `all` does not contain the agent while it is being completed.
        _ if name == agent.name => Err(format!("{name} is the agent itself")),
        Some(other) => Ok(other),
        None => {
            let names: Vec<&str> = all.keys().map(String::as_str).collect();
            Err(format!("Agent '{name}' not found; agents: {}", names.join(", ")))
        }
    }
}
