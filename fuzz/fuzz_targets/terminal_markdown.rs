//! A model's answer on a terminal: none of its content controls the terminal.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| daoyou_channels::cli::fuzz::markdown(data));
