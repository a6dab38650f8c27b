//! All stories (end-to-end tests) in one crate, so that they link once. Each story drives the real program from outside.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and says aloud what it leaves out"
)]

#[expect(clippy::allow_attributes, reason = "what is unused changes with each story")]
#[allow(dead_code, reason = "a tool box: no story uses all of it")]
mod support;

mod tidy;

mod agents;
mod anthropic;
mod approval;
mod attack;
mod background;
mod backup;
mod checkpoint;
mod cli;
mod code_tools;
mod command_line;
mod config;
mod consolidation;
mod cost;
mod crash;
mod cron;
mod cron_bounds;
mod cron_commands;
mod cron_time;
mod database_damage;
mod delivery;
mod docs;
mod doctor;
mod documents;
mod email;
mod embeddings;
mod events;
mod exec;
mod failover;
mod file_tools;
mod find_tools;
mod fixtures;
mod git;
mod heartbeat;
mod http_server;
mod init;
mod load;
mod lsp;
mod mcp;
mod mcp_server;
mod memory;
mod memory_commands;
mod memory_index;
mod message_tool;
mod metrics;
mod middleware;
mod model_errors;
mod model_faults;
mod offline;
mod old_store;
mod openai_api;
mod page;
mod page_access;
mod page_events;
mod parallel;
mod paths;
mod postprocess;
mod process;
mod prompt;
mod prompt_cache;
mod provider_addresses;
mod provider_quirks;
mod questions;
mod react;
mod reload;
mod run_test;
mod scheduling;
mod secret_leaks;
mod sessions;
mod skills;
mod slash_commands;
mod soak;
mod spawn;
mod store;
mod systemd_service;
mod telemetry;
mod terminal;
mod tool_commands;
mod trash;
mod turn;
mod untrusted;
mod waiting_messages;
mod web;
mod webhook;
mod webhook_services;
mod workflow;
