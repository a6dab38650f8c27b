//! The guard of outgoing requests whose address content may have chosen: which hosts and which network addresses they may reach.

mod address;
mod client;
mod rules;

pub use client::EgressClient;
pub use rules::{EgressError, EgressRules, HostPattern};
