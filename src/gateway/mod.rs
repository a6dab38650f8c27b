//! The only constructor: builds everything from the configuration, then spawns it, then drains it.

mod announcer;
mod build;
mod channels;
mod check;
pub mod doctor;
mod equip;
mod inspect;
mod offline_store;
mod periodic;
mod read_only;
mod reload;
mod remembering;
mod run;
mod service;
mod trust;
mod upkeep;
mod watchdog;

pub use build::{Gateway, Options, banner, language};
pub use check::check;
pub use equip::timezone;
pub use inspect::{format_age, format_bytes};
pub use offline_store::{
    change_jobs, change_memory, change_store, inspect as inspect_offline, read_jobs, read_memory, read_store,
};
pub use read_only::{GatewayStart, serve};
pub use reload::{Daemon, Load};
pub use run::supervise_command;
