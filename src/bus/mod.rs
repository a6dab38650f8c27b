//! The message bus: what came in and what is to go out, rows in the store first, then a wake-up.
//!
//! Many publish inbound messages, one consumes them (the agent loop); the agent publishes outbound messages, one
//! consumes them (the channel manager). What is consumed is never a message but "look there": so a restart is nothing
//! special, it looks.

mod config;

mod accept;
mod body;
mod capacity;
mod disk;
mod events;
mod extras;
mod follow_ups;
mod health;
mod inbound;
mod late;
mod message_bus;
mod notice_throttle;
mod reply_target;
mod scope;
mod states;
#[cfg(test)]
pub mod testing;
mod waiters;

pub use body::{OutboundBody, OutboundDraft, message_of};
pub use config::{BusSettings, Capacities, Notices};
pub use events::EventHub;
pub use follow_ups::{EndedTurn, FollowUps};
pub use health::{ChannelHealth, ChannelState, ServiceFault, ServiceHealth, stored_service_faults};
pub use inbound::InboundDraft;
pub use late::WeakBus;
pub use message_bus::{CommandAnswer, ControlCommands, DeadLetter, Inbound, MessageBus, Order};
pub use reply_target::{ReplyTarget, conversations};
pub use states::BusInbox;
