//! One crate for all stories, so that they link once. Each story drives the real program from outside.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and says aloud what it leaves out"
)]

#[expect(clippy::allow_attributes, reason = "what is unused changes with each story")]
#[allow(dead_code, reason = "a tool box: no story uses all of it")]
mod support;

mod tidy;

mod addresses;
mod anthropic;
mod attack;
mod background;
mod backup;
mod canary;
mod checkpoint;
mod cli;
mod command_line;
mod commands;
mod config;
mod consolidation;
mod cost;
mod crash;
mod cron;
mod cron_bounds;
mod cron_line;
mod cron_time;
mod damage;
mod delivery;
mod doctor;
mod economy;
mod email;
mod embeddings;
mod events;
mod exec;
mod failover;
mod faults;
mod front;
mod heartbeat;
mod hooks;
mod lanes;
mod load;
mod memory;
mod memory_index;
mod memory_line;
mod message_tool;
mod metrics;
mod middleware;
mod offline;
mod old_store;
mod parallel;
mod paths;
mod process;
mod prompt;
mod provider;
mod react;
mod reload;
mod service;
mod services;
mod sessions;
mod soak;
mod spawn;
mod store;
mod terminal;
mod turn;
mod untrusted;
mod waiting;
mod webhook;
