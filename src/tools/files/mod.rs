//! The tools that work on files of the workspace.

mod create_dir;
mod delete;
mod edit;
mod glob;
mod grep;
#[cfg(test)]
mod grep_tests;
mod info;
mod list;
mod page;
mod read;
mod scope;
mod search;
mod write;

pub use create_dir::CreateDir;
pub use delete::DeleteFile;
pub use edit::EditFile;
pub use glob::Glob;
pub use grep::Grep;
pub use info::FileInfo;
pub use list::ListDir;
pub use read::ReadFile;
pub use scope::{ReadScope, WorkspaceJail};
pub use write::WriteFile;
