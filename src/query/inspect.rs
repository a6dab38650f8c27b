//! Requests about the gateway itself rather than its store: its state, its abilities, and tests of its parts.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// A query about a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GatewayQuery {
    /// Channels, queues, the last turns, and today's tokens.
    Status,
    Channels,
    /// Tests one channel.
    TestChannel(String),
    /// The model services.
    Models(ProbeScope),
    Tools,
    Skills,
    /// The text and the files of one skill.
    Skill(String),
    Agents,
    /// One agent with its prompt.
    Agent(String),
    /// The MCP servers.
    McpServers,
    /// The tools of one MCP server. The server is started if it was never listed.
    McpTools(String),
    /// Starts one MCP server, and lists its tools, prompts and resources.
    TestMcp(String),
    /// The next request to the model, for a session and a message; by default the terminal's session, and "hello".
    Prompt {
        session: Option<String>,
        message: Option<String>,
    },
    /// Tokens and costs of a range of days, as `YYYY-MM-DD`.
    Cost {
        from: Option<String>,
        to: Option<String>,
    },
    /// Every setting, without secrets, with the origin of its value.
    Config,
    /// All checks that only the gateway's process can make: of its keys, its sandbox and its channels.
    Checks,
}

/// A tool call that the owner makes by hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManualToolRun {
    /// The name of the tool, or an alias.
    pub name: String,
    /// A JSON object, as a model writes it.
    pub arguments: String,
    /// True to return the result unshortened.
    pub is_whole: bool,
    /// The question for which the result is filtered; empty for no filtering.
    pub question: String,
}

/// The model services that are probed when the services are listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeScope {
    None,
    All,
    One(String),
}

/// The reason why a [`GatewayQuery`] has no answer.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The subject does not exist; the text names the existing ones.
    #[error("{0}")]
    Unknown(String),
    /// The query is invalid; the text describes a valid one.
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    Failed(String),
}

/// Answers queries for a gateway: the running one, or the one that a home would have.
#[async_trait]
pub trait Inspect: Send + Sync {
    async fn answer(&self, query: GatewayQuery) -> Result<Value, InspectError>;

    /// Runs a tool, and commits its effects inside daoyou; returns `success`, `content`, `error` and `metadata`.
    ///
    /// # Errors
    /// No gateway was built, or its store cannot be written. A failure of the tool is a normal result.
    async fn run_tool(&self, run: ManualToolRun, cancel: CancellationToken) -> Result<Value, InspectError>;
}
