//! Supervises the channels and delivers messages to them: each channel has its own outbound queue, so that a slow
//! channel does not delay the others.

mod delivery;
mod manager;
mod queue;

pub use manager::ChannelManager;
