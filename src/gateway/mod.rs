//! The only constructor: builds everything from the configuration, then spawns it, then drains it.

mod at_rest;
mod build;
mod run;
mod upkeep;

pub use at_rest::{change, look, status_at_rest};
pub use build::{Gateway, Options, banner, check, language};
pub use run::supervise_command;
