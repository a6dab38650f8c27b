//! Background commands, and the tool that manages them.

mod end;
mod files;
mod processes;
mod supervised;
mod tool;
mod visibility;

pub use end::{KillRequester, ProcessEnd, ProcessEndAnnouncer, format_elapsed};
pub use files::OutputTail;
pub use processes::{Processes, is_process_alive};
pub use tool::ProcessTool;

pub(in crate::tools) use supervised::{GRACE, LaunchRequest};
