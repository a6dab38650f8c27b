//! The tools that work on files of the workspace.

mod apply_patch;
mod delete;
mod diff;
mod edit;
mod file_tool;
mod glob;
mod grep;
#[cfg(test)]
mod grep_tests;
mod info;
mod line_match;
mod list;
mod page;
mod patch_plan;
mod patch_text;
mod read;
mod scope;
mod search;
mod text_file;
mod text_stream;
mod tree_stamp;
mod write;

pub use apply_patch::apply_patch;
pub(super) use apply_patch::write_plan;
pub use delete::delete_file;
pub(super) use diff::{DIFFS_OF_MANY_FILES, FileDiff, render_diffs};
pub use edit::edit_file;
pub(super) use file_tool::{CACHED, ReadContext, ReadTool, ShownFiles, files_word, search_limit, skip_note};
pub use glob::glob;
pub use grep::Grep;
pub use info::file_info;
pub use list::list_dir;
pub(super) use patch_plan::{PatchPlan, PlannedFile};
pub use read::ReadFile;
pub use scope::{FOREIGN_FOLDERS, ReadScope, WorkspaceJail, WriteScope};
pub(super) use scope::{ForeignFiles, foreign_folder_of, real_workspace_path, run_on_jail};
pub(super) use text_file::TextFile;
pub use write::{create_dir, write_file};
