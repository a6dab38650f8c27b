//! The head and the body of an HTTP request: any bytes are refused or read as one unambiguous request.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| daoyou::http::fuzz::head(data));
