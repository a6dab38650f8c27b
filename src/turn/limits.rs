//! What a message says of its own turn: the model that answers it, and how long it may go on.

use std::time::Duration;

use crate::origin::TurnOrigin;
use crate::store::inbox::InboxRow;

/// Limits of a turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TurnLimits {
    /// Responses with tool calls; then one last response without tools.
    pub iterations: u32,
    /// Tokens of all responses together.
    pub tokens: u64,
    /// Money of all responses together, in the currency of the prices; `None` is no limit.
    pub cost: Option<f64>,
    /// Active time, over all runs.
    pub time: Duration,
}

impl TurnLimits {
    /// Returns the limits of an agent with iterations of its own.
    pub fn of_agent(self, iterations: Option<u32>) -> Self {
        Self { iterations: iterations.unwrap_or(self.iterations), ..self }
    }

    /// Returns the limits of the turn of `row`: these, and no more than was set for the message.
    pub fn of_message(self, row: &InboxRow) -> Self {
        match TurnOrigin::parse(&row.origin).settings.bounds {
            None => self,
            Some(own) => Self {
                iterations: self.iterations.min(own.iterations),
                tokens: self.tokens.min(own.tokens),
                cost: self.cost,
                time: self.time.min(Duration::from_millis(own.timeout_ms)),
            },
        }
    }
}

/// Returns the model for a message: the one that the message names, else the one that `/model` has `chosen` for the
/// session, else the channel's, else the `configured` one.
pub fn wanted_model(row: &InboxRow, chosen: Option<&str>, configured: &str) -> String {
    let settings = TurnOrigin::parse(&row.origin).settings;
    let requested = settings.requested_model.filter(|model| !model.is_empty());
    let chosen = requested.or_else(|| chosen.map(str::to_owned)).or(settings.model);
    chosen.unwrap_or_else(|| configured.to_owned())
}
