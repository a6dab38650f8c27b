//! The body of a model service's answer, streamed or whole: an answer or an error, however its bytes are split.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| daoyou::llm::fuzz::stream(data));
