//! The configuration: composes the modules' configurations, reads file and environment, resolves secrets, and reports all faults at
//! once.

mod fault;
mod settings;
mod shape;

mod secrets;

mod reader;

mod check;
mod check_modules;
mod load;
mod setting_list;

#[cfg(test)]
mod tests;

pub use fault::{ConfigFault, ConfigFaults, SettingOrigin, join};
pub use load::{ConfigDraft, ConfigSource, LoadedConfig, environment, load, read};
pub use setting_list::{Setting, SettingChange};
pub use settings::{ChannelsConfig, Config, GatewayConfig, OwnerConfig};
