//! Configuration: composes each area's own, reads file and environment, resolves secrets, reports all faults at once.

mod fault;
mod settings;
mod shape;

mod secrets;

mod reader;

mod changes;
mod check;
mod check_email;
mod check_gateway;
mod check_heartbeat;
mod check_told;
mod load;
mod show;

#[cfg(test)]
mod tests;

pub use changes::SettingChange;
pub use fault::{Fault, Faults, Place, join};
pub use load::{Draft, Loaded, Source, environment, load, read};
pub use settings::{ChannelsConfig, Config, GatewayConfig, OwnerConfig};
pub use show::Setting;
