//! The tools that work on files of the workspace.

mod edit;
mod list;
mod page;
mod read;
mod scope;
mod write;

pub use edit::EditFile;
pub use list::ListDir;
pub use read::ReadFile;
pub use scope::{ReadScope, WorkspaceJail};
pub use write::WriteFile;
