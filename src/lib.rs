//! daoyou: a self-hosted AI-assistant gateway. Modules in reading order.

pub mod config;

pub mod store;

pub mod bus;

pub mod llm;

pub mod guard;

pub mod tools;

pub mod agent;
