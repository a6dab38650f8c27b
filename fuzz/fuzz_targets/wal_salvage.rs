//! A damaged database and its WAL: readable rows are salvaged, and a damaged WAL adds nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| daoyou::store::fuzz::wal(data));
