//! The configuration: composes the modules' configurations, reads file and environment, resolves secrets, and reports all faults at
//! once.

mod check;
mod check_modules;
mod fault;
mod load;
mod reader;
mod secrets;
mod setting_list;
mod settings;
mod shape;

#[cfg(test)]
mod tests;

pub use fault::{ConfigFault, ConfigFaults, SettingOrigin};
pub use load::{ConfigDraft, ConfigSource, LoadedConfig, environment, load, read};
pub use secrets::NO_CREDENTIALS;
pub use setting_list::{Setting, SettingChange};
pub use settings::{ChannelsConfig, Config, GatewayConfig, OwnerConfig};
