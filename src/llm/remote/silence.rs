//! When an attempt is given up: at the total deadline, or when no data came for too long.

use std::time::Duration;

use tokio::time::Instant;

use super::Fault;
use crate::llm::LlmErrorKind;

/// How long the count of tokens may lag behind the end of an answer.
const USAGE_GRACE: Duration = Duration::from_secs(2);

/// The deadlines of one attempt.
pub(super) struct Silence {
    idle: Duration,
    timeout: Duration,
    total: Instant,
    idle_until: Instant,
}

impl Silence {
    /// Begins now. Without streaming there is silence until the answer is written: only the total deadline can stand.
    pub(super) fn new(idle: Duration, timeout: Duration, stream: bool) -> Self {
        let now = Instant::now();
        let total = now + timeout;
        Self { idle, timeout, total, idle_until: if stream { now + idle } else { total } }
    }

    pub(super) fn until(&self) -> Instant {
        self.idle_until.min(self.total)
    }

    /// Data has come.
    pub(super) fn end(&mut self, answer_is_complete: bool) {
        let next = if answer_is_complete { self.idle.min(USAGE_GRACE) } else { self.idle };
        self.idle_until = Instant::now() + next;
    }

    pub(super) fn fault(&self) -> Fault {
        let message = if self.idle_until < self.total {
            format!("the service sent no data for {:?} (idle_timeout)", self.idle)
        } else {
            format!("the answer was not complete within {:?} (timeout)", self.timeout)
        };
        Fault::new(LlmErrorKind::Timeout, message)
    }
}
