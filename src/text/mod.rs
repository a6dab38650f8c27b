//! What people write, read by rules: no model, no clock, no store. It stands at the bottom and imports nothing of ours.

pub mod time;
