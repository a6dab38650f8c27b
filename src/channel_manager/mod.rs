//! Supervises the channels and fans replies out to them by name: one outbound queue a channel, so that one slow sink
//! stalls nobody.

mod courier;
mod health;
mod manager;
mod queue;

pub use health::{ChannelHealth, ChannelState};
pub use manager::ChannelManager;
