//! Configuration: composes each area's own, reads file and environment, resolves secrets, reports all faults at once.

mod fault;
mod settings;
mod shape;

mod secrets;

mod read;

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

pub use changes::Change;
pub use fault::{Fault, Faults, Place};
pub use load::{Loaded, Source, environment, load};
pub use settings::{ChannelsConfig, Config, GatewayConfig, OwnerConfig};
pub use show::Setting;
