//! What the owner wants looked after from time to time: HEARTBEAT.md in the workspace. Only what is new, changed or due is
//! put before a model, and what it finds not worth a word is not delivered.

mod config;

mod due;
mod items;

mod ended;
mod service;

pub use config::{ActiveHours, HeartbeatConfig, HeartbeatSettings};
pub use ended::ended;
pub use service::{Heartbeat, SESSION, is_fast};
