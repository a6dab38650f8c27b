//! The channel `page`.

use async_trait::async_trait;
use daoyou_channels::{Channel, OutboundMessage, Receipt, Resend, SendError};

/// The channel of messages from the page.
pub const PAGE_CHANNEL: &str = "page";

/// The channel `page`. Its messages arrive through `POST /api/chat`. A message to a chat of the page counts as delivered once it is
/// in the store, because the page reads the chat from there.
#[derive(Debug)]
pub struct PageChannel;

#[async_trait]
impl Channel for PageChannel {
    fn name(&self) -> &'static str {
        PAGE_CHANNEL
    }

    fn resend(&self) -> Resend {
        // The page shows a message once even if it is marked as sent twice.
        Resend::SameId
    }

    async fn send(&self, _message: &OutboundMessage) -> Result<Receipt, SendError> {
        Ok(Receipt::default())
    }
}
