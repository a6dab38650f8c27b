//! The turn that a call belongs to.

use daoyou_channels::SessionKey;
use tokio::time::Instant;
use uuid::Uuid;

use crate::metrics::TurnMeter;
use crate::phrases::Phrases;

/// Which turn a call belongs to, and what the call is held to and measured by.
#[derive(Clone, Copy)]
pub struct TurnScope<'a> {
    pub session: &'a SessionKey,
    pub turn: Uuid,
    /// When the turn's time is up.
    pub deadline: Instant,
    pub meter: &'a TurnMeter<'a>,
    pub phrases: &'static Phrases,
}
