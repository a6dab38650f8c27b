//! The message bus. Inbound and outbound messages are first rows in the store; then the bus wakes their consumer.
//!
//! Many parts publish inbound messages, and the agent loop consumes them. The agent publishes outbound messages, and the channel
//! manager consumes them. A consumer receives only a signal to read the store, so a restart needs no special case.

mod accept;
mod bus_inbox;
mod capacity;
mod events;
mod health;
mod inbound;
mod message_bus;
mod notices;
mod outbound;
mod reply_target;
#[cfg(test)]
pub mod testing;
mod waiters;

pub use bus_inbox::{BusInbox, find_message_state};
pub use capacity::Capacities;
pub use events::{EventHub, EventSink};
pub use health::{ChannelHealth, ChannelState, ServiceFault, ServiceHealth, stored_service_faults};
pub use inbound::{EndedTurn, FollowUps, InboundDraft};
pub use message_bus::{
    BusSettings, CommandAnswer, ControlCommand, ControlCommands, InboundSignal, MessageBus, TurnEndNotice, WeakBus,
};
pub use notices::{DeadLetter, NoticeSettings};
pub use outbound::{NoticeKind, OutboundBody, OutboundDraft, OutboxSlot, message_of, metadata_of};
pub use reply_target::{ReplyTarget, conversations};
