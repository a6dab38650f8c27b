//! The commands.

mod exit;
mod line;
mod prepared;
mod reach;
mod show;

mod agent;
mod backup;
mod chat;
pub mod config;
mod data;
mod dispatch;
mod gateway;
mod service;
mod unit;

pub use exit::Exit;
pub use line::main;
