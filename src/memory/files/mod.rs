//! MEMORY.md and HISTORY.md, in which people read and edit memories.

mod diff;
mod history;
mod import;
mod page;
mod state;
mod writer;

pub use state::MemoryFileState;
pub use writer::MemoryFileWriter;
