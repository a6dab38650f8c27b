//! `daoyou doctor`: checks a home, its gateway and the machine, and makes safe repairs. A check assumes nothing about what it
//! checks.

mod check;
mod database;
mod examine;
mod files;
mod machine;
mod memory;
mod running;

pub use examine::{DoctorInput, DoctorReport, examine};
