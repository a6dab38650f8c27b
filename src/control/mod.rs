//! The client of the control socket, and the requests that it sends.

mod client;
mod requests;

pub use client::ControlClient;
pub use requests::{ControlRequest, ToRequest};
