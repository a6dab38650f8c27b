//! The tools that work on files of the workspace.

mod apply_patch;
mod edit;
mod line_match;
mod list;
mod page;
mod patch_plan;
mod patch_text;
mod read;
mod scope;
mod text_file;
mod text_stream;
mod write;

pub use apply_patch::ApplyPatch;
pub use edit::EditFile;
pub use list::ListDir;
pub use read::ReadFile;
pub use scope::{ReadScope, WorkspaceJail};
pub use write::WriteFile;
