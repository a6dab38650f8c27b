//! Webhooks: messages by HTTP POST, replies by signed callback.

mod body;
mod channel;
mod config;
mod front;
mod probe;
mod rate;
mod receive;
mod send;
mod services;
mod signing;
mod template;
mod verify;
mod wire;

#[cfg(test)]
mod tests;

pub use channel::Webhook;
pub use config::{Verify, WebhookConfig, WebhookFault};
pub use front::{Front, Outcome};
pub use rate::Rate;
