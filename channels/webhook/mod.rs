//! Webhooks: messages arrive by HTTP POST, and replies leave by signed callback.

mod channel;
mod config;
mod request_parser;
mod routes;
mod services;
mod slack;
mod template;
mod verify;
mod wire;

#[cfg(test)]
mod tests;

pub use channel::Webhook;
pub use config::{Rate, Verify, WebhookConfig};
pub use request_parser::{ParsedRequest, RequestParser};
