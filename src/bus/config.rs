//! The capacities in `[gateway]`.

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
