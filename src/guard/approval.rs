//! `[approval]`: which calls run only after the owner's approval.
//!
//! A turn is *tainted* once it has read content from anyone but the owner. A call is *restricted* if it does more than read, or
//! answer the chat that started the turn.

use std::collections::{BTreeMap, BTreeSet};

use daoyou_channels::settings::HumanDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// The names of the foreign content that a turn has read (content from anyone but the owner), such as `web:https://example.org/`.
/// Empty if it has read none.
pub type Taint = BTreeSet<String>;

/// What happens with a restricted call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalPolicy {
    /// It runs, and nobody is asked. It gives untrusted senders no more than they have.
    Never,
    /// The owner is asked if the turn is tainted.
    #[default]
    Tainted,
    /// The owner is asked each time.
    Always,
    /// It is refused.
    Deny,
}

/// `[approval]`.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ApprovalConfig {
    /// For calls that nothing below names.
    pub default: ApprovalPolicy,
    /// By the name of the tool, or by its beginning and `*`. Of two entries for one call the stricter one holds.
    pub tools: BTreeMap<String, ApprovalPolicy>,
    /// By the name of the channel that the turn answers, such as `email`, `webhook` or `webhook:NAME`. Here `deny` refuses
    /// calls of tainted turns alone.
    pub channels: BTreeMap<String, ApprovalPolicy>,
    /// How long a call waits for an answer; then it is refused.
    #[default(HumanDuration::from_secs(86_400))]
    pub expires: HumanDuration,
}

impl ApprovalConfig {
    /// Returns the policy for calls of `tools` (more than one in a plan) in a turn that answers `channel`.
    pub fn policy<'a>(
        &self,
        tools: impl IntoIterator<Item = &'a str>,
        channel: &str,
        is_tainted: bool,
    ) -> ApprovalPolicy {
        let kind = channel.split(':').next().unwrap_or_default();
        let of_channel = [channel, kind].into_iter().find_map(|name| self.channels.get(name)).copied();
        let of_channel = match of_channel {
            Some(ApprovalPolicy::Deny) if !is_tainted => Some(ApprovalPolicy::Tainted),
            other => other,
        };
        // A tool that runs the project's code can do what any command can do, so the policy of `exec` applies to it.
        let named = |tool: &str| match runs_project_code(tool) {
            true => self.of_tool(tool).max(self.of_tool("exec")),
            false => self.of_tool(tool),
        };
        let of_tool = |tool| named(tool).max(of_channel).unwrap_or(self.default);
        tools.into_iter().map(of_tool).max().or(of_channel).unwrap_or(self.default)
    }

    /// Returns the settings with the tools' canonical names, which `canonical_name` returns for a name or alias. Of two entries for one
    /// tool the stricter one holds.
    pub fn with_canonical_names(&self, canonical_name: impl Fn(&str) -> Option<&'static str>) -> Self {
        let mut tools = BTreeMap::new();
        for (name, policy) in &self.tools {
            let strictest = tools.entry(canonical_name(name).unwrap_or(name).to_owned()).or_insert(*policy);
            *strictest = (*strictest).max(*policy);
        }
        Self { tools, ..self.clone() }
    }

    /// Returns the policy of the entry that names the tool, otherwise of the entry with the longest matching prefix.
    fn of_tool(&self, tool: &str) -> Option<ApprovalPolicy> {
        let beginnings = self.tools.iter().filter(|(word, _)| word.ends_with('*') && means_tool(word, tool));
        let longest = beginnings.max_by_key(|(word, _)| word.len()).map(|(_, policy)| policy);
        self.tools.get(tool).or(longest).copied()
    }
}

/// Returns true if `word`, an entry of the configuration, matches this tool. `word` is the tool's name, or a prefix and `*`, such
/// as `github__*`.
pub fn means_tool(word: &str, tool: &str) -> bool {
    let (word, tool) = (word.to_lowercase(), tool.to_lowercase());
    word.strip_suffix('*').map_or(word == tool, |start| tool.starts_with(start))
}

/// Returns true for a tool that runs the project's own code: `run_test` runs its tests, and a language server runs its build
/// scripts.
pub fn runs_project_code(tool: &str) -> bool {
    tool == "run_test" || tool.starts_with("lsp_")
}

#[cfg(test)]
mod tests {
    use super::ApprovalPolicy::{Always, Deny, Never, Tainted};
    use super::*;

    #[test]
    fn an_alias_stands_for_its_tool() {
        let tools = [("bash", Always), ("exec", Never), ("github__x", Deny)];
        let tools = tools.map(|(name, policy)| (name.to_owned(), policy)).into();
        let config = ApprovalConfig { tools, ..ApprovalConfig::default() };
        let config = config.with_canonical_names(|name| matches!(name, "bash" | "exec").then_some("exec"));
        assert_eq!(config.policy(["exec"], "cli", false), Always);
        assert_eq!(config.policy(["github__x"], "cli", false), Deny);
    }

    #[test]
    fn the_stricter_of_two_entries_holds() {
        let tools = [("exec", Always), ("message", Never), ("github__*", Never), ("github__delete*", Always)]
            .map(|(name, policy)| (name.to_owned(), policy));
        let channels = [("email", Deny), ("webhook", Always), ("webhook:own", Never)];
        let config = ApprovalConfig {
            tools: tools.into(),
            channels: channels.map(|(name, policy)| (name.to_owned(), policy)).into(),
            ..ApprovalConfig::default()
        };
        for (tools, channel, expected) in [
            (&["write_file"][..], "cli", Tainted),
            (&["exec"], "cli", Always),
            (&["message"], "cli", Never),
            (&["github__list"], "cli", Never),
            (&["github__delete_file"], "cli", Always),
            (&["githubs"], "cli", Tainted),
            (&["run_test"], "cli", Always),
            (&["lsp_symbols"], "cli", Always),
            (&["message", "exec"], "cli", Always),
            (&["message", "write_file"], "cli", Tainted),
            (&["message"], "email", Deny),
            (&["exec"], "webhook:other", Always),
            (&["write_file"], "webhook:own", Never),
            (&["exec"], "webhook:own", Always),
            (&[], "email", Deny),
        ] {
            assert_eq!(config.policy(tools.iter().copied(), channel, true), expected, "{tools:?} {channel}");
        }
        assert_eq!(config.policy(["write_file"], "email", false), Tainted);
    }
}
