//! daoyou: a self-hosted AI-assistant gateway. Modules in reading order.

pub mod cli;
pub mod commands;

pub mod config;
pub mod home;
pub mod logging;

pub mod store;

pub mod bus;

pub mod llm;

pub mod tools;

pub mod agent;
