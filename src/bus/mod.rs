//! The message bus.

mod config;

pub use config::Capacities;
