//! daoyou: a self-hosted AI-assistant gateway that never loses a message. Modules in reading order: the program's surface, the
//! only constructor, then what it builds from the outside in, and last the parts that all others use.

pub mod cli;
pub mod commands;
pub mod control;
pub mod logging;

pub mod config;
pub mod home;

pub mod backup;
pub mod gateway;

pub mod channel_manager;
pub mod http;

pub mod query;

pub mod agent;
pub mod consolidation;
pub mod session;
pub mod turn;

pub mod cron;
pub mod memory;

pub mod llm;
pub mod mcp;
pub mod offline;
pub mod postprocess;
pub mod profiles;
pub mod skills;
pub mod tools;

pub mod guard;

pub mod bus;
pub mod store;

pub mod metrics;
pub mod telemetry;

pub mod chat;
pub mod locale;
pub mod origin;
pub mod phrases;
pub mod text;

pub mod cache;
pub mod crash;
pub mod live;
pub mod sse;

#[cfg(test)]
mod seeds;
