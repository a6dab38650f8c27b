//! Progress notifications of an `ask`.

use std::time::Duration;

use daoyou_channels::TurnEvent;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::{Peer, RoleServer};
use tokio::time::Instant;

use crate::text::{one_line, truncate};

/// The minimum time between two notifications.
pub(super) const INTERVAL: Duration = Duration::from_millis(400);
/// The maximum time without a notification. A client that waits only while there is progress then keeps waiting.
const SILENCE: Duration = Duration::from_secs(10);
/// How long a client that reads nothing may delay the turn's reply.
const SEND_LIMIT: Duration = Duration::from_secs(1);
/// The longest text of a notification, in characters.
const MAX_TEXT: usize = 200;

/// A reporter of a turn's activity to the client, if the client asked for progress.
pub(super) struct ProgressReporter {
    client: Option<(Peer<RoleServer>, ProgressToken)>,
    activity: TurnActivity,
    began: Instant,
    last_sent: Option<Instant>,
    /// The number of the last notification. The protocol requires increasing values.
    sent: u32,
}

impl ProgressReporter {
    /// Creates a reporter. Without a token it sends nothing.
    pub(super) fn new(peer: &Peer<RoleServer>, token: Option<ProgressToken>) -> Self {
        Self {
            client: token.map(|token| (peer.clone(), token)),
            activity: TurnActivity::default(),
            began: Instant::now(),
            last_sent: None,
            sent: 0,
        }
    }

    /// Records an event of the turn.
    pub(super) fn note(&mut self, event: TurnEvent) {
        self.activity.apply(event);
    }

    /// Records why the turn waits.
    pub(super) fn note_wait(&mut self, reason: &str) {
        self.activity.text = Some(truncate(&one_line(reason), MAX_TEXT));
    }

    /// Sends a notification if something changed, at most once per [`INTERVAL`].
    pub(super) async fn send(&mut self) {
        let Some((peer, token)) = &self.client else { return };
        let since = self.last_sent.map(|at| at.elapsed());
        if since.is_some_and(|since| since < INTERVAL) {
            return;
        }
        let text = match self.activity.text.take() {
            Some(text) => text,
            None if since.unwrap_or_else(|| self.began.elapsed()) >= SILENCE => {
                format!("still working after {} s", self.began.elapsed().as_secs())
            }
            None => return,
        };
        self.sent += 1;
        self.last_sent = Some(Instant::now());
        let progress = ProgressNotificationParam::new(token.clone(), f64::from(self.sent)).with_message(text);
        match tokio::time::timeout(SEND_LIMIT, peer.notify_progress(progress)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "progress could not be sent to an MCP client"),
            Err(_) => tracing::debug!("an MCP client does not read the progress that it asked for"),
        }
    }
}

/// The current activity of a turn.
#[derive(Debug, Default)]
struct TurnActivity {
    /// The number of characters of the answer so far.
    written: usize,
    text: Option<String>,
}

impl TurnActivity {
    fn apply(&mut self, event: TurnEvent) {
        if matches!(event, TurnEvent::ToolCall { .. } | TurnEvent::Restart) {
            self.written = 0;
        }
        self.text = Some(match event {
            TurnEvent::Started => "started".to_owned(),
            TurnEvent::Thinking { .. } => "thinking".to_owned(),
            TurnEvent::Text { delta } => {
                self.written += delta.chars().count();
                format!("{} characters written", self.written)
            }
            TurnEvent::ToolCall { name, .. } => format!("{} runs", truncate(&one_line(&name), MAX_TEXT)),
            TurnEvent::ToolResult { name, success, .. } => {
                let end = if success { "is done" } else { "failed" };
                format!("{} {end}", truncate(&one_line(&name), MAX_TEXT))
            }
            TurnEvent::Restart | TurnEvent::Usage { .. } | TurnEvent::Done { .. } | TurnEvent::Error { .. } => return,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_become_short_texts() {
        let mut activity = TurnActivity::default();
        let text = |delta: &str| TurnEvent::Text { delta: delta.to_owned() };
        let call = |name: &str| TurnEvent::ToolCall {
            id: "1".to_owned(),
            name: name.to_owned(),
            arguments: None,
            args_complete: false,
        };
        for (events, expected) in [
            (vec![TurnEvent::Started], Some("started")),
            (vec![], None),
            (vec![text("ab"), text("道友")], Some("4 characters written")),
            (vec![TurnEvent::Restart, text("abc")], Some("3 characters written")),
            (vec![text("d"), call("exec")], Some("exec runs")),
        ] {
            events.into_iter().for_each(|event| activity.apply(event));
            assert_eq!(activity.text.take().as_deref(), expected);
        }
    }
}
