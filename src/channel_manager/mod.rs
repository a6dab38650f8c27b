//! Supervises the channels and fans replies out to them by name: one outbound queue a channel, so that one slow sink
//! stalls nobody.

mod courier;
mod delivery;
mod manager;
mod queue;

pub use manager::ChannelManager;
