//! `daoyou doctor`: checks a home, its gateway and the machine, and makes safe repairs. No check relies on anything being
//! right.

mod check;
mod database;
mod examine;
mod files;
mod machine;
mod memory;
mod running;

pub use examine::{DoctorInput, DoctorReport, examine};
