//! `[[routes]]`: the choice of the agent for a chat.

use std::sync::Arc;

use globset::{Glob, GlobMatcher};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::profile::AgentProfile;

/// The agent that answers where all three patterns fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RouteConfig {
    /// A channel, such as `email` or `webhook:*`.
    pub channel: String,
    /// A chat on it.
    pub chat: String,
    /// A sender.
    pub sender: String,
    /// The name of the agent.
    pub agent: String,
}

impl Default for RouteConfig {
    fn default() -> Self {
        let any = || "*".to_owned();
        Self { channel: any(), chat: any(), sender: any(), agent: String::new() }
    }
}

impl RouteConfig {
    /// Returns true if the route may match messages of one of these channels.
    pub fn fits_channel<'a>(&self, mut channels: impl Iterator<Item = &'a str>) -> bool {
        // An invalid pattern is a fault of its own.
        let Ok(pattern) = Glob::new(&self.channel).map(|glob| glob.compile_matcher()) else { return true };
        channels.any(|channel| pattern.is_match(channel))
    }
}

/// A route with its agent.
#[derive(Debug)]
pub(super) struct AgentRoute {
    patterns: [GlobMatcher; 3],
    pub agent: Arc<AgentProfile>,
}

impl AgentRoute {
    /// Compiles a route.
    ///
    /// # Errors
    /// A pattern is invalid; returns its key and what is wrong.
    pub fn new(config: &RouteConfig, agent: Arc<AgentProfile>) -> Result<Self, (&'static str, String)> {
        let compile = |key: &'static str, pattern: &str| match Glob::new(pattern) {
            Ok(glob) => Ok(glob.compile_matcher()),
            Err(error) => Err((key, format!("{pattern:?} is not a pattern: {}", error.kind()))),
        };
        let patterns =
            [compile("channel", &config.channel)?, compile("chat", &config.chat)?, compile("sender", &config.sender)?];
        Ok(Self { patterns, agent })
    }

    /// Returns true if the route matches messages of `sender` in this chat.
    pub fn fits(&self, channel: &str, chat: &str, sender: &str) -> bool {
        self.patterns.iter().zip([channel, chat, sender]).all(|(pattern, text)| pattern.is_match(text))
    }
}
