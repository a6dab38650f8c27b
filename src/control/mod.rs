//! The control socket seen from the commands: what they can ask of a gateway, and the client that asks it.

mod client;
mod request;

pub use client::{ControlClient, Frame};
pub use request::{Change, Query};
