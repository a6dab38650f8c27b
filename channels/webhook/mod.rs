//! Webhooks: messages by HTTP POST, replies by signed callback.

mod config;

pub use config::{Verify, WebhookConfig};
