//! The part of a turn's agent that tools depend on.

use std::collections::BTreeSet;
use std::sync::Arc;

use daoyou_channels::TurnSettings;
use smart_default::SmartDefault;

use crate::guard::AccessRules;

/// The agent of a turn as tools see it. The default is the assistant, which has no limits of its own.
#[derive(Clone, Debug, SmartDefault)]
pub struct AgentScope {
    /// The agent's name. If empty, the agent may be the one that the chat has.
    pub name: String,
    /// The file and command rules of the agent, and of the agents on whose behalf it works.
    pub rules: Arc<[Arc<AccessRules>]>,
    /// The skills that the agent sees; `None` for all.
    pub skills: Option<BTreeSet<String>>,
    /// True if the agent has its own memories.
    pub has_own_memory: bool,
    /// True if the agent may see facts about the owner.
    #[default = true]
    pub knows_owner: bool,
    /// The agents on whose behalf this agent works. Their limits apply to it as well.
    pub within: Vec<String>,
    /// The agents that this agent leads. Each has limits of its own. Empty if the agent leads no team.
    pub team: Vec<String>,
    /// True if the agent itself has limits.
    pub is_restricted: bool,
}

impl AgentScope {
    /// Returns true if the permissions say that the owner is asked before this command of `exec`.
    pub fn asks_about(&self, command: &str) -> bool {
        self.rules.iter().any(|rules| rules.asks_about(command))
    }

    /// Sets the agent of a turn that this turn starts: `agent`, or this agent if that is `None`. The limits of this turn apply to
    /// the new turn as well.
    pub fn delegate(&self, agent: Option<&str>, settings: &mut TurnSettings) {
        let own = Some(self.name.clone()).filter(|name| !name.is_empty());
        settings.agent = agent.map(str::to_owned).or_else(|| own.clone());
        settings.within.clone_from(&self.within);
        // The owner has set the limits of each team member, so the leader's limits do not apply to a member.
        let is_member = agent.is_some_and(|agent| self.team.iter().any(|member| member == agent));
        let limits = own.filter(|own| self.is_restricted && !is_member && settings.agent.as_deref() != Some(own));
        settings.within.extend(limits.filter(|own| !self.within.contains(own)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_starts_stays_within_its_limits() {
        let scope = |name: &str, within: &[&str], is_restricted| AgentScope {
            name: name.to_owned(),
            within: within.iter().map(|name| (*name).to_owned()).collect(),
            is_restricted,
            ..AgentScope::default()
        };
        let lead = AgentScope { team: vec!["coder".to_owned()], ..scope("lead", &["docs"], true) };
        for (parent, agent, expected, within) in [
            (lead.clone(), Some("coder"), Some("coder"), vec!["docs"]),
            (lead, Some("tester"), Some("tester"), vec!["docs", "lead"]),
            (scope("", &[], false), None, None, vec![]),
            (scope("", &[], false), Some("coder"), Some("coder"), vec![]),
            (scope("docs", &[], true), None, Some("docs"), vec![]),
            (scope("docs", &[], true), Some("docs"), Some("docs"), vec![]),
            (scope("docs", &[], true), Some("coder"), Some("coder"), vec!["docs"]),
            (scope("coder", &["docs"], true), Some("tester"), Some("tester"), vec!["docs", "coder"]),
            (scope("free", &["docs"], false), Some("tester"), Some("tester"), vec!["docs"]),
            (scope("coder", &["docs"], true), None, Some("coder"), vec!["docs"]),
        ] {
            let mut settings = TurnSettings::default();
            parent.delegate(agent, &mut settings);
            assert_eq!(
                (settings.agent.as_deref(), settings.within),
                (expected, within.into_iter().map(str::to_owned).collect()),
                "{parent:?}"
            );
        }
    }
}
