//! The store: one SQLite file that everything accepted lives in.

mod config;

pub use config::{Reserve, RetainConfig, StoreConfig};
