//! Writes a whole home to one file, and restores it: a consistent copy of the database, the configuration, the workspace, and the
//! owner's other files. The file is a plain tar archive.

mod contents;
mod create;
mod manifest;
mod restore;
mod temporary_path;

pub use create::{BackupSummary, create};
pub use restore::{RestoreSummary, interrupted_restores, restore};
