//! The only constructor: builds everything from the configuration, then spawns it, then drains it.

mod at_rest;
mod build;
pub mod doctor;
mod inspect;
mod run;
mod upkeep;

pub use at_rest::{change, inspect as inspect_at_rest, look};
pub use build::{Gateway, Options, banner, check};
pub use inspect::{age, bytes};
pub use run::supervise_command;
