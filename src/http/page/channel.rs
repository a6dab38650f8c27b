//! The channel `page`.

use std::time::Duration;

use async_trait::async_trait;
use daoyou_channels::backoff::RetryTable;
use daoyou_channels::{Channel, ChannelContext, OutboundMessage, Receipt, Resend, SendError, StartError};

/// The channel of messages from the page.
pub const PAGE_CHANNEL: &str = "page";

/// The channel `page`. Its messages arrive through `POST /api/chat`. A message to a chat of the page counts as delivered once it is
/// in the store, because the page reads the chat from there.
#[derive(Debug)]
pub struct PageChannel {
    retry: RetryTable,
}

impl Default for PageChannel {
    fn default() -> Self {
        Self { retry: RetryTable::new(vec![Duration::from_secs(1)]) }
    }
}

#[async_trait]
impl Channel for PageChannel {
    fn name(&self) -> &'static str {
        PAGE_CHANNEL
    }

    fn resend(&self) -> Resend {
        // The page shows a message once even if it is marked as sent twice.
        Resend::SameId
    }

    fn retry(&self) -> &RetryTable {
        &self.retry
    }

    async fn start(&self, context: ChannelContext) -> Result<(), StartError> {
        (context.started)();
        context.shutdown.cancelled().await;
        Ok(())
    }

    async fn send(&self, _message: &OutboundMessage) -> Result<Receipt, SendError> {
        Ok(Receipt::default())
    }
}
