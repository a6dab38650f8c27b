//! MEMORY.md and HISTORY.md: what people read and write of the memory.

mod diff;
mod history;
mod import;
mod page;
mod state;
mod writer;

pub use state::{FOLDER, MemoryFileState};
pub use writer::MemoryFileWriter;
