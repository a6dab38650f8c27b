//! Configuration: composes each area's own, reads file and environment, resolves secrets, reports all faults at once.

mod settings;

pub use settings::{ChannelsConfig, Config, GatewayConfig, LogConfig, LogFormat, OwnerConfig};
