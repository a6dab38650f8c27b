//! What an approval and a question of `ask_user` have in common: a message to the chat of the running turn, and an expiry.

use daoyou_channels::settings::HumanDuration;

use crate::bus::{OutboundBody, OutboundDraft, OutboxSlot};
use crate::store::{StoreError, millis, now_ms};
use crate::tools::ToolContext;

/// Returns a message of the running turn to the sender of its message, in the context of the reply. It does for a tool call what
/// [`OutboundDraft::to_sender`] does for a row.
///
/// # Errors
/// The metadata of the message cannot be read. Without it, a mail might go to another participant of its thread.
pub(super) fn draft_to_sender(
    context: &ToolContext,
    slot: OutboxSlot,
    content: String,
) -> Result<OutboundDraft, StoreError> {
    let ToolContext { turn, channel, chat_id, .. } = context;
    let body = OutboundBody {
        metadata: serde_json::from_str(&context.metadata)?,
        context: context.origin.reply.clone(),
        ..OutboundBody::new(content, context.session.clone())
    };
    Ok(OutboundDraft { turn: *turn, slot, channel: channel.clone(), chat_id: chat_id.clone(), body })
}

/// Returns the time, in UTC milliseconds, at which a request that begins now expires.
pub(super) fn expiry_after(expires: HumanDuration) -> i64 {
    now_ms().saturating_add(millis(expires.0))
}
