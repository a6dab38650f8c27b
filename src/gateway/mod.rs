//! The only constructor: builds everything from the configuration, then spawns it, then drains it.

mod at_rest;
mod build;
mod check;
mod equip;
mod reload;
mod run;
mod service;
mod upkeep;
mod watchdog;

pub use at_rest::{change, look, status_at_rest};
pub use build::{Gateway, Options, banner};
pub use check::check;
pub use reload::{Daemon, Load};
pub use run::supervise_command;
