//! The conformance suite of all channels, and the scripted inbox that it uses.

mod inbox;
mod suite;

pub use inbox::{Answer, ScriptedInbox, Verdict};
pub use suite::{OtherSide, Subject, Told, outbound, run, started};
