//! The program.

use std::process::ExitCode;

// The system's allocator keeps memory per thread: each share fragments by itself, and its memory never returns to the system.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    daoyou::commands::main()
}
