//! A whole home in one file, and back: the database as it is at one moment, the configuration, the workspace, and what
//! else the owner has put there. The file is a tar archive that anybody can look into.

mod contents;
mod create;
mod manifest;
mod restore;

pub use create::{Created, create};
pub use restore::{Restored, restore};
