//! The channels of daoyou, and what they share.
//!
//! This package does not depend on the agent. A channel turns received input into an [`InboundMessage`] and hands it to the
//! [`Inbox`], which returns only when the message is on disk. A channel also delivers each [`OutboundMessage`].
//! Modules in reading order: the messages, the traits, shared helpers, then one folder for each channel.

#![forbid(unsafe_code)]

pub mod message;

pub mod channel;
pub mod event;
pub mod finding;
pub mod inbox;

pub mod attachment_folder;
pub mod backoff;
pub mod body_budget;
pub mod clean;
pub mod client;
pub mod http_error;
pub mod jinja;
pub mod json;
pub mod outgoing;
pub mod rate_limit;
pub mod sanitize;
pub mod settings;
pub mod text;
pub mod trust;

pub mod api;
pub mod cli;
pub mod email;
pub mod webhook;

pub mod conformance;

pub use body_budget::{BodyBudget, BodyShare};
pub use channel::{Channel, ChannelContext, PickupChannel, Receipt, Resend, SendError, StartError};
pub use client::{ClientAddr, ClientSender};
pub use event::{EventSource, SessionEvent, TurnEvent};
pub use finding::{Finding, Severity};
pub use http_error::{HttpError, limit_body, name_body_limit};
pub use inbox::{
    AcceptExtras, Acceptance, Cursor, Inbox, MessageState, MessageStatus, Note, Refusal, Reply, SentMessage, StoredNote,
};
pub use message::{
    Attachment, ErrorInfo, InboundMessage, OutboundContext, OutboundMessage, SessionKey, Trust, TurnBounds,
    TurnSettings, new_id,
};
pub use rate_limit::{Quota, RateLimiter, Reservation};
