//! Stories through the real binary, one module each.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and says aloud what it leaves out"
)]

mod exec;
