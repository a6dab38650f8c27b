//! Webhooks: messages by HTTP POST, replies by signed callback.

mod channel;
mod config;
mod probe;
mod receive;
mod send;
mod verify;
mod wire;

#[cfg(test)]
mod tests;

pub use channel::Webhook;
pub use config::{Verify, WebhookConfig};
