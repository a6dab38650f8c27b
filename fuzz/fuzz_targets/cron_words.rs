//! Times, intervals and cron expressions as people write them: each is refused or becomes valid.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| daoyou::cron::fuzz::words(data));
