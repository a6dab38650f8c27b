//! The e-mail channel against real servers, and against scripted ones where a server must misbehave.

mod conformance;
mod conversation;
mod crashes;
mod jobs;
mod loops;
mod outages;
mod reading;
mod recipients;
mod sending;
mod server_checks;
pub mod servers;
mod unknown_senders;
