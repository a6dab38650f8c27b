//! daoyou as an MCP server: other programs send messages to the agent, and use its memory, its jobs and its channels. This folder
//! knows the types of rmcp, and accesses the gateway only through [`AgentAccess`].

mod arguments;
mod ask;
mod endpoint;
mod envelope;
mod handler;
mod progress;
mod requests;
mod sessions;
mod stream;

pub use endpoint::McpEndpoint;
pub use envelope::MAX_MESSAGE;
pub use stream::{BoundedLine, LineReader, too_long_error};

use std::time::Duration;

use async_channel::Receiver;
use async_trait::async_trait;
use daoyou_channels::{InboundMessage, MessageState, PickupChannel, SessionEvent};
use serde_json::Value;
use uuid::Uuid;

/// The channel of messages from MCP clients.
pub const MCP_CHANNEL: &str = "mcp";

/// The interface of the MCP server to the gateway. Errors are texts for the client.
#[async_trait]
pub trait AgentAccess: Send + Sync {
    /// Accepts a message and returns its id. The message is on disk then.
    async fn accept(&self, message: InboundMessage) -> Result<Uuid, String>;

    /// Waits, at most for `limit`, until a message has ended, and returns its state.
    async fn wait(&self, id: Uuid, limit: Duration) -> Result<Option<MessageState>, String>;

    /// Subscribes to the events of turns of [`MCP_CHANNEL`].
    fn events(&self) -> Receiver<SessionEvent>;

    /// Stops the turn of a message, as `/stop` does.
    async fn stop(&self, id: Uuid) -> Result<(), String>;

    /// Returns the messages that the turn of this message has sent to this chat of [`MCP_CHANNEL`] before its reply.
    async fn messages_of_turn(&self, id: Uuid, chat_id: &str) -> Result<Vec<String>, String>;

    /// Returns an agent's own name for `name`.
    fn agent(&self, name: &str) -> Result<String, String>;

    async fn remember(&self, content: &str) -> Result<Value, String>;

    /// Searches memories and conversations.
    async fn recall(&self, query: &str, limit: Option<u32>) -> Result<Value, String>;

    /// Creates a job from the fields of a job request.
    async fn schedule(&self, job: Value) -> Result<Value, String>;

    /// Puts a message into the outbox and returns its id.
    async fn send(&self, channel: &str, chat_id: &str, content: String) -> Result<Uuid, String>;

    /// Lists the sessions, the most recently used first.
    async fn sessions(&self) -> Result<Vec<Value>, String>;
}

/// Returns the channel `mcp`. Its messages come in through [`McpEndpoint`], which picks up the replies by the ids of the messages. A
/// message that no client waits for becomes a dead letter, and the owner is notified.
pub fn mcp_channel() -> PickupChannel {
    PickupChannel::new(MCP_CHANNEL, "an MCP client gets what belongs to its own calls of ask alone, and this is none")
}

#[cfg(test)]
mod tests {
    use daoyou_channels::{Channel, OutboundContext, OutboundMessage};

    use super::*;

    #[tokio::test]
    async fn what_nobody_waits_for_is_not_counted_as_delivered() {
        let channel = mcp_channel();
        for (is_picked_up, is_delivered) in [(true, true), (false, false)] {
            let context = OutboundContext { is_picked_up, ..OutboundContext::default() };
            let message = OutboundMessage { context, ..OutboundMessage::text(MCP_CHANNEL, "work", "done") };
            assert_eq!(channel.send(&message).await.is_ok(), is_delivered);
        }
    }
}
