//! Webhooks: messages arrive by HTTP POST, and replies leave by signed callback.

mod body;
mod channel;
mod config;
mod names;
mod rate;
mod request_parser;
mod routes;
mod send;
mod services;
mod signing;
mod slack;
mod template;
mod verify;
mod wire;

#[cfg(test)]
mod tests;

pub use channel::Webhook;
pub use config::{Verify, WebhookConfig};
pub use rate::Rate;
pub use request_parser::{ParsedRequest, RequestParser};
