//! The guard of outgoing requests whose address untrusted content may have chosen. It decides which hosts and network addresses
//! such requests may reach.

mod address;
mod client;
mod content_encoding;
mod rules;

pub use client::EgressClient;
pub use rules::{EgressError, EgressRules, HostPattern};
