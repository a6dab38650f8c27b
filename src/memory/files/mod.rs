//! MEMORY.md and HISTORY.md, in which people read and edit memories.

mod diff;
mod history;
mod import;
mod memory_page;
mod state;
mod writer;

pub use state::{MEMORY_FILE, MEMORY_FILE_LIMIT, MemoryFileState};
pub use writer::MemoryFileWriter;
