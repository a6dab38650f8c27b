//! The bodies of outbox rows, and their conversion to and from messages.

use daoyou_channels::{Attachment, ErrorInfo, OutboundContext, OutboundMessage, SessionKey};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::store::outbox::{self, NewOutbound, OutboxRow};
use crate::store::{Connection, StoreError};

/// The body of an outbox row, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutboundBody {
    pub content: String,
    pub session: SessionKey,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_reply_to: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    #[serde(default, skip_serializing_if = "OutboundContext::is_default")]
    pub context: OutboundContext,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
}

/// An outbound message before it has a row.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboundDraft {
    pub turn: Uuid,
    /// `reply`, `tool:<step>`, `question:<id>` or `notice:<kind>`.
    pub slot: String,
    pub channel: String,
    pub chat_id: String,
    pub body: OutboundBody,
}

impl OutboundDraft {
    /// Inserts the row into the outbox within the caller's commit, and returns its id.
    pub fn insert(&self, connection: &Connection) -> Result<Uuid, StoreError> {
        outbox::insert(
            connection,
            &NewOutbound {
                turn: self.turn,
                slot: self.slot.clone(),
                channel: self.channel.clone(),
                chat_id: self.chat_id.clone(),
                body: serde_json::to_string(&self.body)?,
            },
        )
    }
}

/// Returns the message of a row.
pub fn message_of(row: OutboxRow) -> Result<OutboundMessage, StoreError> {
    let body: OutboundBody = serde_json::from_str(&row.body)?;
    Ok(OutboundMessage {
        id: row.id,
        turn: row.turn,
        channel: row.channel,
        chat_id: row.chat_id,
        session: body.session,
        content: body.content,
        in_reply_to: body.in_reply_to,
        attachments: body.attachments,
        metadata: body.metadata,
        context: body.context,
        error: body.error,
        created_at: Timestamp::from_millisecond(row.created_at).unwrap_or_default(),
    })
}
