//! Commands that run in the background, and the tool that looks after them.

mod announce;
mod end;
mod files;
mod processes;
mod tool;
mod watch;
mod whose;

pub use announce::Announce;
pub use end::{Killer, ProcessEnd, took};
pub use files::Tail;
pub use processes::Processes;
pub use tool::ProcessTool;

pub(in crate::tools) use watch::{GRACE, Launch};
