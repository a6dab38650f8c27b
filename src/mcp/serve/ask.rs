//! The tool `ask`: sends a message to the agent, and waits for the reply of its turn.

use std::sync::Arc;
use std::time::Duration;

use async_channel::Receiver;
use daoyou_channels::trust::{Author, SenderListing, trust_of};
use daoyou_channels::{InboundMessage, MessageState, MessageStatus, Reply, SessionEvent, SessionKey};
use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::arguments::McpAskArgs;
use super::progress::{INTERVAL, ProgressReporter};
use super::{AgentAccess, MCP_CHANNEL};
use crate::text::{plain_line, truncate};

/// The maximum size of a message, in bytes. It equals the default limit of a webhook.
const MAX_MESSAGE: usize = 2_000_000;
/// The maximum length of a text in a result, in characters.
const MAX_RESULT: usize = 200_000;
/// The maximum number of messages before the reply that a result contains.
const MAX_MESSAGES: usize = 20;
/// The duration of one wait for the end of the turn. After each wait, the turn may have a question or a reason to wait.
const WAIT: Duration = Duration::from_secs(1);
/// The pause after a wait that ended early because the gateway drains.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a request that has ended waits for a notification that cancelled it.
const CANCEL_GRACE: Duration = Duration::from_secs(1);

/// The events that end an `ask` before its turn ends.
pub(super) struct AskEnd {
    /// Cancelled when the client cancels the request.
    pub cancelled: CancellationToken,
    /// Cancelled when the request is over: the client cancelled it, or its connection ended.
    pub over: CancellationToken,
    /// True if the end of the request counts as a cancellation, because the transport has no other way to cancel.
    pub is_over_cancelled: bool,
    /// Cancelled when the gateway stops.
    pub stopping: CancellationToken,
}

/// The conversation of an `ask`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AskSession {
    pub key: SessionKey,
    pub chat_id: String,
}

impl AskSession {
    /// Returns the session with this name or key.
    ///
    /// # Errors
    /// States why the name is invalid.
    pub(super) fn named(name: &str) -> Result<Self, String> {
        if name.split_once(':').is_some_and(|(channel, chat)| channel.is_empty() || chat.is_empty()) {
            return Err("session: a name, or a key such as cli:direct, with a channel and a chat".to_owned());
        }
        let session = match name.split_once(':') {
            None => Self { key: SessionKey::of_chat(MCP_CHANNEL, name), chat_id: name.to_owned() },
            Some((MCP_CHANNEL, chat)) => Self { key: SessionKey::from(name), chat_id: chat.to_owned() },
            // A conversation of another channel. The reply still goes to this client.
            Some(_) => Self { key: SessionKey::from(name), chat_id: name.to_owned() },
        };
        // A name is checked too, because a name of nothing or of dots has a valid key.
        let is_valid = [name, session.key.as_str()].into_iter().all(SessionKey::is_valid_choice);
        if is_valid { Ok(session) } else { Err(format!("session: {}", SessionKey::RULE)) }
    }
}

/// Sends the message, and waits for the reply, a question, or an end of the request.
pub(super) async fn ask(
    agent: &Arc<dyn AgentAccess>,
    args: &McpAskArgs,
    session: AskSession,
    end: AskEnd,
    progress: ProgressReporter,
) -> Result<CallToolResult, String> {
    let message = inbound(agent.as_ref(), args, &session)?;
    let events = agent.events();
    let id = agent.accept(message).await?;
    PendingAsk { agent: agent.clone(), id, session, end, progress, events }.run().await
}

fn inbound(agent: &dyn AgentAccess, args: &McpAskArgs, session: &AskSession) -> Result<InboundMessage, String> {
    let text = args.message.trim();
    if text.is_empty() {
        return Err("message is empty".to_owned());
    }
    if text.len() > MAX_MESSAGE {
        return Err(format!("message has {} bytes, at most {MAX_MESSAGE} are allowed", text.len()));
    }
    let command = text.split_whitespace().next().unwrap_or_default().to_lowercase();
    if ["/approve", "/deny"].contains(&command.as_str()) {
        // The client is a program, often with a model that has read foreign text, so it may not approve or deny anything.
        return Err(format!(
            "{command} is for the owner alone: daoyou approvals list, approve ID, deny ID, or the chat of owner.notify"
        ));
    }
    let trust = trust_of(Author::Owner, SenderListing::Owner);
    let mut message = InboundMessage::text(MCP_CHANNEL, &session.chat_id, "owner", trust, text);
    message.session = Some(session.key.clone());
    message.reply.is_picked_up = true;
    message.settings.agent = args.agent.as_deref().map(|name| agent.agent(name.trim())).transpose()?;
    Ok(message)
}

/// A message that was accepted and waits for its reply.
struct PendingAsk {
    agent: Arc<dyn AgentAccess>,
    /// The id of the message, or of the message whose turn it answered.
    id: Uuid,
    session: AskSession,
    end: AskEnd,
    progress: ProgressReporter,
    events: Receiver<SessionEvent>,
}

impl PendingAsk {
    async fn run(mut self) -> Result<CallToolResult, String> {
        let mut tick = tokio::time::interval(INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let agent = self.agent.clone();
            let wait = agent.wait(self.id, WAIT);
            tokio::pin!(wait);
            let began = Instant::now();
            let state = loop {
                tokio::select! {
                    state = &mut wait => break state?,
                    Ok(event) = self.events.recv() => if event.turn == self.id {
                        self.progress.note(event.event);
                    },
                    _ = tick.tick() => self.progress.send().await,
                    () = self.end.cancelled.cancelled() => return self.stop().await,
                    () = self.end.stopping.cancelled() => return Err(self.explain_stop()),
                    () = self.end.over.cancelled() => return self.leave().await,
                }
            };
            if let Some(result) = self.result(state).await? {
                return Ok(result);
            }
            if began.elapsed() < PAUSE {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Returns the result if the turn has ended, or if it asks a question.
    async fn result(&mut self, state: Option<MessageState>) -> Result<Option<CallToolResult>, String> {
        let Some(state) = state else { return Err("the message is gone: it was dropped from the queue".to_owned()) };
        if let Some(asked) = state.continues.filter(|asked| *asked != self.id) {
            self.id = asked;
            return Ok(None);
        }
        if matches!(state.status, MessageStatus::Done | MessageStatus::Dead) {
            let Some(reply) = state.reply else { return Err("the message ended without a reply".to_owned()) };
            return self.reply(&reply).await.map(Some);
        }
        if let Some(question) = &state.question {
            let text = format!(
                "{question}\n\n(daoyou asks this and waits. Answer with ask in the session {:?}.)",
                self.session.key.as_str()
            );
            return Ok(Some(self.with_meta(CallToolResult::success(vec![ContentBlock::text(bounded(&text))]))));
        }
        if let Some(notice) = &state.notice {
            self.progress.note_wait(notice);
        }
        Ok(None)
    }

    async fn reply(&self, reply: &Reply) -> Result<CallToolResult, String> {
        let before = self.agent.messages_of_turn(self.id, &self.session.chat_id).await?;
        let mut content: Vec<_> =
            before.iter().take(MAX_MESSAGES).map(|text| ContentBlock::text(bounded(text))).collect();
        if let Some(left) = before.len().checked_sub(MAX_MESSAGES).filter(|left| *left > 0) {
            content.push(ContentBlock::text(format!("[{left} further messages of the turn are in its session]")));
        }
        content.push(ContentBlock::text(bounded(reply.content.trim_end())));
        let result =
            if reply.error.is_some() { CallToolResult::error(content) } else { CallToolResult::success(content) };
        Ok(self.with_meta(result))
    }

    fn with_meta(&self, mut result: CallToolResult) -> CallToolResult {
        let mut meta = MetaObject::default();
        meta.insert("daoyou/session".to_owned(), json!(self.session.key.as_str()));
        meta.insert("daoyou/message".to_owned(), json!(self.id));
        result.meta = Some(meta);
        result
    }

    async fn stop(&self) -> Result<CallToolResult, String> {
        self.agent.stop(self.id).await?;
        Err("cancelled; the turn stops".to_owned())
    }

    /// Ends the wait for a request that is over. The turn continues unless the client cancelled it.
    async fn leave(&self) -> Result<CallToolResult, String> {
        if self.end.stopping.is_cancelled() {
            return Err(self.explain_stop());
        }
        let is_cancelled = self.end.is_over_cancelled
            || tokio::time::timeout(CANCEL_GRACE, self.end.cancelled.cancelled()).await.is_ok();
        if is_cancelled {
            return self.stop().await;
        }
        tracing::debug!(message = %self.id, "an MCP client left; its turn goes on");
        Err("the connection ended; the turn goes on".to_owned())
    }

    fn explain_stop(&self) -> String {
        format!(
            "the gateway stops before the reply; the message is kept and answered after the restart, in session {}",
            self.session.key
        )
    }
}

/// Cuts a text to the limit of a result.
fn bounded(text: &str) -> String {
    if text.chars().nth(MAX_RESULT).is_none() {
        return text.to_owned();
    }
    format!("{}\n\n[cut after {MAX_RESULT} characters; the session has the whole text]", truncate(text, MAX_RESULT))
}

/// Returns the session name of a client, for requests that belong to no connection.
pub(super) fn session_name_of(client: Option<&str>) -> String {
    let name = plain_line(client.unwrap_or_default()).to_lowercase();
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
    match name.trim_matches('-') {
        "" => "client".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_keys_become_sessions() {
        for (name, expected) in [
            ("work", Some(("mcp:work", "work"))),
            (" work ", None),
            ("mcp:work", Some(("mcp:work", "work"))),
            ("cli:direct", Some(("cli:direct", "cli:direct"))),
            ("mcp:", None),
            ("cli:", None),
            (":", None),
            (":direct", None),
            ("", None),
            ("a\nb", None),
            // Its key is too long.
            (&"x".repeat(1_197), None),
        ] {
            let session = AskSession::named(name).ok();
            let found = session.as_ref().map(|session| (session.key.as_str(), session.chat_id.as_str()));
            assert_eq!(found, expected, "{name:?}");
        }
    }

    #[test]
    fn clients_have_a_session_by_their_name() {
        for (client, expected) in
            [(Some("Claude Code"), "claude-code"), (Some("--"), "client"), (Some("道友"), "client"), (None, "client")]
        {
            assert_eq!(session_name_of(client), expected, "{client:?}");
        }
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(bounded("short"), "short");
        let cut = bounded(&"道".repeat(MAX_RESULT + 1));
        assert!(cut.contains("[cut after") && cut.chars().count() < MAX_RESULT + 100);
    }
}
