//! The only constructor: builds everything from the configuration, spawns it, and drains it.

mod agents;
mod announcer;
mod api;
mod build;
mod channels;
mod check;
pub mod doctor;
mod inspect;
mod memory_workers;
mod offline_store;
mod periodic;
mod program_pages;
mod read_only;
mod reload;
mod run;
mod runtime;
mod service_manager;
mod settings;
mod setup;
mod skills;
mod telemetry_exports;
mod trash;
mod upkeep;
mod watchdog;

pub use crate::locale::LocaleSetting;
pub use crate::mcp::{BoundedLine, ImportedServer, LineReader, MAX_MESSAGE, import_servers, too_long_error};
pub use crate::skills::{ReviewedFileKind, SkillCandidate, SkillProblem, SkillReview, check_skills};
pub use build::{Gateway, Options, banner, names_no_model};
pub use check::check;
pub use inspect::{Inspector, format_age};
pub use offline_store::{
    change_jobs, change_memory, change_store, change_tokens, inspect as inspect_offline, list_tokens, message_state,
    read_jobs, read_memory, read_store, run_tool,
};
pub use read_only::{GatewayStart, serve};
pub use reload::{ConfigLoader, ReloadSource};
pub use run::supervise_command;
pub use settings::{language, zone_or_system};
pub use setup::{ServiceOffer, service_offers};
pub use skills::{FoundSkills, SkillInstaller};
pub use trash::{empty_trash, list_trash, restore_trash};
