//! The tools of daoyou's MCP server: their arguments and specifications.

use std::sync::Arc;

use rmcp::model::{Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use strum::VariantArray;

use crate::tools::tool_spec;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct McpAskArgs {
    /// What to ask or to order, or the answer to the agent's question.
    pub message: String,
    /// The conversation: a name of your own, or a key of list_sessions. Default: one for this connection.
    pub session: Option<String>,
    /// The agent that answers. Default: the one of the session.
    pub agent: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct McpRememberArgs {
    /// One fact, as a sentence that is understood alone.
    pub content: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct McpRecallArgs {
    /// What to search in memories and conversations.
    pub query: String,
    /// 1 to 100, default 10.
    pub limit: Option<u32>,
}

/// A job. Exactly one of `prompt` and `message`, and one of `at`, `every` and `cron`.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ScheduleArgs {
    /// The agent does this each time. Give this or message.
    prompt: Option<String>,
    /// This text is sent as it stands each time. Give this or prompt.
    message: Option<String>,
    /// Once: "in 20m", "tomorrow 9:00", 2026-03-08T09:00:00Z. Give one of at, every and cron.
    at: Option<String>,
    /// An interval, such as "2h".
    every: Option<String>,
    /// A cron expression, such as "0 9 * * *".
    cron: Option<String>,
    /// The time zone of at and cron. Default: the owner's.
    tz: Option<String>,
    /// A name for the job.
    name: Option<String>,
    /// The channel of the output. Default: the owner's terminal.
    channel: Option<String>,
    /// The chat on that channel.
    chat_id: Option<String>,
    /// The session of a prompt. Default: one of the job's own.
    session: Option<String>,
    /// The agent of a prompt.
    agent: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SendArgs {
    /// The channel: cli, email, webhook:NAME.
    pub channel: String,
    /// The chat on it; for email an address.
    pub chat_id: String,
    /// The text, Markdown.
    pub content: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListSessionsArgs {
    /// 1 to 100, default 20.
    pub limit: Option<usize>,
}

/// A tool of daoyou's MCP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(super) enum ServerTool {
    Ask,
    Remember,
    Recall,
    Schedule,
    Send,
    ListSessions,
}

impl ServerTool {
    fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the names of all tools.
    pub(super) fn names() -> String {
        Self::VARIANTS.iter().map(|tool| tool.name()).collect::<Vec<_>>().join(", ")
    }

    /// Returns the descriptions of all tools.
    pub(super) fn list() -> Vec<Tool> {
        Self::VARIANTS.iter().map(|tool| tool.describe()).collect()
    }

    /// Returns the description of the tool as clients see it.
    pub(super) fn describe(self) -> Tool {
        // The parameters are: read-only, destructive, idempotent, open world.
        let hint = |read_only, destructive, idempotent, open| {
            ToolAnnotations::from_raw(None, Some(read_only), Some(destructive), Some(idempotent), Some(open))
        };
        match self {
            Self::Ask => self.with_arguments::<McpAskArgs>(
                "Ask the owner's agent daoyou, which has its own tools, memory and channels, and wait for its reply. It remembers \
                 the session's earlier messages. A question in the result is answered by the next ask in the session.",
                hint(false, true, false, true),
            ),
            Self::Remember => self.with_arguments::<McpRememberArgs>(
                "Store a fact in daoyou's long-term memory.",
                hint(false, false, true, false),
            ),
            Self::Recall => self.with_arguments::<McpRecallArgs>(
                "Search daoyou's memories and conversations.",
                hint(true, false, true, false),
            ),
            Self::Schedule => self.with_arguments::<ScheduleArgs>(
                "Schedule a prompt for the agent, or a message, once or repeatedly. Returns the job's id and next time.",
                hint(false, false, false, true),
            ),
            Self::Send => self.with_arguments::<SendArgs>(
                "Send a message to a chat on one of daoyou's channels, as the owner. It is delivered even if the channel is \
                 down now.",
                hint(false, false, false, true),
            ),
            Self::ListSessions => self.with_arguments::<ListSessionsArgs>(
                "List daoyou's conversations, the last used first.",
                hint(true, false, true, false),
            ),
        }
    }

    fn with_arguments<Args: JsonSchema>(self, description: &'static str, hints: ToolAnnotations) -> Tool {
        let schema = match tool_spec::<Args>(self.name(), description).parameters {
            Value::Object(schema) => schema,
            _ => Map::new(),
        };
        Tool::new(self.name(), description, Arc::new(schema)).with_annotations(hints)
    }
}

/// Parses the arguments of a call.
///
/// # Errors
/// States which arguments do not fit.
pub(super) fn parse<Args: DeserializeOwned>(arguments: Map<String, Value>) -> Result<Args, String> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| format!("the arguments do not fit: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_is_found_by_its_name_and_has_a_strict_schema() {
        for tool in ServerTool::VARIANTS {
            let described = tool.describe();
            assert_eq!(described.name.parse(), Ok(*tool));
            let schema = Value::Object((*described.input_schema).clone());
            assert_eq!(crate::tools::schema_faults(&schema), Vec::<String>::new(), "{tool:?}");
            assert_eq!(schema["additionalProperties"], false, "{tool:?}");
        }
        assert!("Ask".parse::<ServerTool>().is_err());
    }

    #[test]
    fn unknown_and_missing_arguments_are_named() {
        let parse_ask = |value: Value| parse::<McpAskArgs>(value.as_object().cloned().unwrap_or_default()).err();
        for (arguments, expected) in [
            (serde_json::json!({"message": "hi"}), None),
            (serde_json::json!({}), Some("missing field `message`")),
            (serde_json::json!({"message": 1}), Some("expected a string")),
            (serde_json::json!({"message": "hi", "sesion": "x"}), Some("unknown field `sesion`")),
        ] {
            let error = parse_ask(arguments);
            assert_eq!(error.is_some(), expected.is_some(), "{error:?}");
            assert!(error.unwrap_or_default().contains(expected.unwrap_or_default()));
        }
    }
}
