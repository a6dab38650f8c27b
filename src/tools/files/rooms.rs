//! How far the tools see that only look.

use std::sync::Arc;

use daoyou_channels::Trust;

use crate::guard::Jail;

/// The files that may be looked at, by who asks.
#[derive(Clone)]
pub struct Rooms {
    /// What the configuration opens.
    open: Arc<Jail>,
    /// The workspace alone, for somebody whose words are data.
    workspace: Arc<Jail>,
}

impl Rooms {
    pub fn new(open: Arc<Jail>, workspace: Arc<Jail>) -> Self {
        Self { open, workspace }
    }

    /// What one who is trusted so far may look at.
    pub fn of(&self, trust: Trust) -> &Arc<Jail> {
        if trust == Trust::Untrusted { &self.workspace } else { &self.open }
    }
}
