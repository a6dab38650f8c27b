//! The channel of the API. The requests that wait for replies pick them up.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;

use super::gateway::{ApiGateway, NAME, REQUEST_NOTE};
use super::routes;
use crate::attachment_folder::AttachmentFolder;
use crate::channel::{Channel, ChannelContext, PickupChannel, Receipt, Resend, SendError, StartError};
use crate::message::OutboundMessage;

/// The workspace folder for the files of requests.
const FILES: &str = "uploads";

/// The OpenAI-compatible API.
pub struct ApiChannel {
    gateway: Arc<dyn ApiGateway>,
    files: Arc<AttachmentFolder>,
    pickup: PickupChannel,
}

impl ApiChannel {
    /// Creates the channel of `gateway`, which saves files in `workspace`.
    ///
    /// # Errors
    /// The workspace cannot be opened.
    pub fn new(gateway: Arc<dyn ApiGateway>, workspace: &Path) -> std::io::Result<Self> {
        let files = Arc::new(AttachmentFolder::open(workspace, FILES)?);
        let refusal = "a client of /v1 gets answers to its own requests alone, and this is none";
        Ok(Self { gateway, files, pickup: PickupChannel::new(NAME, refusal) })
    }
}

#[async_trait]
impl Channel for ApiChannel {
    fn name(&self) -> &'static str {
        NAME
    }

    fn resend(&self) -> Resend {
        self.pickup.resend()
    }

    async fn start(&self, context: ChannelContext) -> Result<(), StartError> {
        self.pickup.start(context).await
    }

    async fn send(&self, message: &OutboundMessage) -> Result<Receipt, SendError> {
        self.pickup.send(message).await
    }

    fn owner_routes(&self, context: &ChannelContext) -> Option<Router> {
        Some(routes::routes(&self.gateway, &self.files, context))
    }

    fn note_ages(&self) -> &[(&'static str, Duration)] {
        const AGE: Duration = Duration::from_secs(24 * 60 * 60);
        // A `BODY_NOTE` lives as long as the message that its key identifies: for ever.
        &[(REQUEST_NOTE, AGE)]
    }
}

#[cfg(test)]
mod tests {
    use super::super::gateway::ScriptedGateway;
    use super::*;
    use crate::message::OutboundContext;

    /// The hash of a body must live as long as its message, or another body gets the message's answer.
    #[test]
    fn only_the_notes_that_no_message_outlives_expire() {
        let folder = tempfile::tempdir().unwrap();
        let channel = ApiChannel::new(Arc::new(ScriptedGateway(Vec::new())), folder.path()).unwrap();
        let kinds: Vec<_> = channel.note_ages().iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [REQUEST_NOTE]);
    }

    #[tokio::test]
    async fn messages_without_a_waiting_request_do_not_count_as_delivered() {
        let folder = tempfile::tempdir().unwrap();
        let channel = ApiChannel::new(Arc::new(ScriptedGateway(Vec::new())), folder.path()).unwrap();
        for (is_picked_up, is_delivered) in [(true, true), (false, false)] {
            let context = OutboundContext { is_picked_up, ..OutboundContext::default() };
            let message = OutboundMessage { context, ..OutboundMessage::text(NAME, "work", "done") };
            assert_eq!(channel.send(&message).await.is_ok(), is_delivered);
        }
    }
}
