//! What the bus is told: the capacities of `[gateway]`, the reserve of `[store]`, whose gateway this is.

use std::sync::Arc;
use std::time::Duration;

use super::ControlCommands;

/// The settings of a bus.
#[derive(Clone)]
pub struct BusSettings {
    /// Recognizes and answers the orders that are carried out at accept.
    pub commands: Arc<dyn ControlCommands>,
    pub capacities: Capacities,
    /// Free bytes on disk below which nothing is accepted.
    pub reserve: u64,
    /// What callers are told to wait when the gateway stops.
    pub drain_timeout: Duration,
    /// Each sender of a chat has a session of his own.
    pub by_sender: bool,
    pub notices: Option<Notices>,
}

/// Where the owner is told what nobody else would see.
#[derive(Clone, Debug)]
pub struct Notices {
    /// On every terminal that is open at that moment, whatever it shows; where none is, the log alone has it.
    pub on_terminals: bool,
    pub channel: String,
    pub chat_id: String,
    /// Says that a message could not be delivered; `{}` stands for its channel, its id and the reason.
    pub dead_letter: &'static str,
    /// Says that a channel cannot send; `{}` stands for its name and the reason.
    pub held: &'static str,
    /// Says that something accepted is lost; `{}` stands for what.
    pub loss: &'static str,
}

/// How much may wait, and what a full queue answers. Only messages from outside are counted.
#[derive(Clone, Copy, Debug)]
pub struct Capacities {
    /// Unfinished messages of one session (429).
    pub session: usize,
    /// Unfinished messages of all sessions (503).
    pub inbound: usize,
    /// Undelivered messages of one channel (503 to new messages of that channel).
    pub outbound: usize,
}
