//! The commands.

mod access;
mod entry;
mod environment;
mod exit;
mod files;
mod output;
mod render;
mod status;
mod translation;

mod agent;
mod backup;
mod chat;
pub mod config;
mod cron;
mod dispatch;
mod doctor;
mod gateway;
mod memory;
mod service;
mod sessions;
mod tools;
mod unit_file;

pub use entry::main;
pub use exit::CommandExit;
