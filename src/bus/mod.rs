//! The message bus. Inbound and outbound messages are first rows in the store; then the bus wakes their consumer.
//!
//! Many parts publish inbound messages, and the agent loop consumes them. The agent publishes outbound messages, and the channel
//! manager consumes them. A consumer receives only a signal to read the store, so a restart needs no special case.

mod accept;
mod capacity;
mod delivery_channels;
mod drafts;
mod events;
mod health;
mod message_bus;
mod notices;
mod reply_target;
#[cfg(test)]
pub mod testing;
mod wake_ups;

pub use accept::{BusInbox, find_message_state};
pub use capacity::Capacities;
pub use delivery_channels::DeliveryChannels;
pub use drafts::{
    EndedTurn, FollowUps, InboundDraft, NoticeKind, OutboundBody, OutboundDraft, OutboxSlot, mark_cancelled,
    message_of, metadata_of,
};
pub use events::EventHub;
pub use health::{ChannelHealth, ChannelState, ProviderFault, ProviderHealth, stored_service_faults};
pub use message_bus::{
    BusSettings, CommandAnswer, ControlCommand, ControlCommands, InboundSignal, MessageBus, TurnEndNotice, WeakBus,
};
pub use notices::{DeadLetter, NoticeSettings};
pub use reply_target::{ReplyTarget, conversations};
