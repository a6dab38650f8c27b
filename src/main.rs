//! The program.

use std::process::ExitCode;

// With the system's allocator each thread's share fragments by itself and is never given back.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    daoyou::commands::main()
}
