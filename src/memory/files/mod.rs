//! MEMORY.md and HISTORY.md: what people read and write of the memory.

mod apart;
mod history;
mod import;
mod keeper;
mod page;
mod seen;

pub use keeper::Keeper;
pub use seen::{FOLDER, Files};
