//! The conformance suite of all channels, and the scripted inbox that it uses.

mod inbox;
mod suite;

pub use inbox::{InboxVerdict, ScriptedAnswer, ScriptedInbox};
pub use suite::{ChannelSubject, PeerBehaviour, WriteOutcome, run, started};
