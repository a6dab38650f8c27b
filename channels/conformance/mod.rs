//! What every channel must pass, and the inbox that its tests stand on.

mod inbox;
mod suite;

pub use inbox::{Answer, ScriptedInbox, Verdict};
pub use suite::{OtherSide, Subject, Told, outbound, run, started};
