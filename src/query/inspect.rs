//! Requests about the gateway itself rather than its store: its state, its abilities, and tests of its parts.

use async_trait::async_trait;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// Something to find out about a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewayQuery {
    /// Channels, queues, the last turns, tokens of today.
    Status,
    Channels,
    /// Tests one channel.
    TestChannel(String),
    /// The model services.
    Models(ProbeScope),
    Tools,
    Skills,
    /// The text of one skill, and its files.
    Skill(String),
    Agents,
    /// One agent, and its prompt.
    Agent(String),
    /// The MCP servers.
    McpServers,
    /// The tools of one MCP server, which is started if it was never listed.
    McpTools(String),
    /// Starts one MCP server, and lists what it offers.
    TestMcp(String),
    /// The next request to the model, in a session and with a message; by default the terminal's, and "hello".
    Prompt {
        session: Option<String>,
        message: Option<String>,
    },
    /// Tokens and costs of a range of days, as `YYYY-MM-DD`.
    Cost {
        from: Option<String>,
        to: Option<String>,
    },
    /// Every setting, without secrets, and where its value comes from.
    Config,
    /// Every check that only the gateway's process can make: of its keys, its sandbox and its channels.
    Checks,
}

/// A call of a tool by hand, by the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManualToolRun {
    /// Or an alias.
    pub name: String,
    /// A JSON object, as a model writes it.
    pub arguments: String,
    /// The result is not shortened.
    pub is_whole: bool,
    /// The question that the result is for; empty: it is not filtered.
    pub question: String,
}

/// Which model services are probed when they are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeScope {
    None,
    All,
    One(String),
}

/// Why a [`GatewayQuery`] has no answer.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The subject does not exist; the text names those that do.
    #[error("{0}")]
    Unknown(String),
    /// The query is wrong; the text says what would be right.
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    Failed(String),
}

/// Answers for a gateway: the running one, or the one that a home would have.
#[async_trait]
pub trait Inspect: Send + Sync {
    async fn answer(&self, query: GatewayQuery) -> Result<Value, InspectError>;

    /// Runs a tool, and commits what it does inside daoyou; returns `success`, `content`, `error` and `metadata`.
    ///
    /// # Errors
    /// No gateway was built, or its store cannot be written. A failure of the tool is an answer.
    async fn run_tool(&self, run: ManualToolRun, cancel: CancellationToken) -> Result<Value, InspectError>;
}
