//! The heartbeat: a regular check of HEARTBEAT.md in the workspace. Only new, changed and due entries reach a model, and an
//! answer without news is not delivered.

mod config;

mod due;
mod items;

mod run_end;
mod service;

pub use config::{ActiveHours, HeartbeatConfig, HeartbeatSettings};
pub use run_end::follow_ups_of;
pub use service::{FILE, Heartbeat, HeartbeatFault, SESSION, file_faults, is_fast};
