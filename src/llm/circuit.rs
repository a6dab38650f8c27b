//! The circuit breaker of one provider in use: each call asks for permission and reports its outcome.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::breaker::{BreakerPermit, BreakerStateMachine, CircuitState, ModelCallOutcome, ModelCallRefusal};
use super::error::{FailureScope, LlmError, LlmErrorKind};
use super::provider::ChatRequest;

/// The breaker in front of one provider.
#[derive(Debug, Default)]
pub struct CircuitBreaker(Mutex<CircuitBreakerState>);

#[derive(Debug, Default)]
struct CircuitBreakerState {
    breaker: BreakerStateMachine,
    /// The last failure that counted.
    last: Option<(LlmErrorKind, String)>,
    /// The number of times that the breaker has opened.
    opened: u64,
}

/// A permitted call. If it is dropped without an outcome, it says nothing about the provider.
#[derive(Debug)]
pub struct CallPermit<'a> {
    circuit: &'a CircuitBreaker,
    permit: BreakerPermit,
    request: Option<&'a ChatRequest>,
    settled: ModelCallOutcome,
}

impl CircuitBreaker {
    /// Returns permission for a call. A `request` that is known counts as failed once, however often it is repeated.
    ///
    /// # Errors
    /// The breaker refuses the call. The error is an outage, with the time after which a call may go through.
    pub fn enter<'a>(&'a self, provider: &str, request: Option<&'a ChatRequest>) -> Result<CallPermit<'a>, LlmError> {
        // A closed breaker lets every request through, so that the fingerprint of a long conversation is not needed.
        let is_closed = self.state().0 == CircuitState::Closed;
        let fingerprint = request.filter(|_| !is_closed).and_then(ChatRequest::fingerprint);
        let mut inner = self.0.lock();
        match inner.breaker.ask(fingerprint, Instant::now()) {
            Ok(permit) => Ok(CallPermit { circuit: self, permit, request, settled: ModelCallOutcome::Left }),
            Err(held) => Err(inner.refusal_error(provider, held)),
        }
    }

    /// Returns the state and how often the breaker has opened.
    pub fn state(&self) -> (CircuitState, u64) {
        let inner = self.0.lock();
        (inner.breaker.state(Instant::now()), inner.opened)
    }

    /// Returns the time for which the breaker stays open; `None` while calls go through.
    pub fn remaining(&self) -> Option<Duration> {
        match self.state().0 {
            CircuitState::Open(left) => Some(left),
            CircuitState::Closed | CircuitState::HalfOpen => None,
        }
    }

    /// Closes the breaker.
    pub fn reset(&self) {
        self.0.lock().breaker = BreakerStateMachine::default();
    }
}

impl CircuitBreakerState {
    fn refusal_error(&self, provider: &str, held: ModelCallRefusal) -> LlmError {
        let (kind, last) = match &self.last {
            Some((kind, message)) => (*kind, message.as_str()),
            None => (LlmErrorKind::Connection, "it did not answer"),
        };
        let (when, retry_after) = match held {
            // The time is rounded up, so that a call after it goes through.
            ModelCallRefusal::Open(left) => (format!("is not asked for the next {} s", left.as_secs() + 1), Some(left)),
            ModelCallRefusal::Probing => ("is just being tried with one call".to_owned(), None),
        };
        let what = match kind {
            LlmErrorKind::Auth => "it refused the API key",
            LlmErrorKind::Quota => "the account has no credit left",
            _ => "it failed again and again",
        };
        let message = format!("{what} and {when}; the last time: {last}");
        let public = Some(format!("{what} and {when}"));
        LlmError { public, retry_after, blame: FailureScope::Service, ..LlmError::new(kind, provider, message) }
    }
}

impl CallPermit<'_> {
    /// Records how the call ended. Returns false if the failure is not the cause for which the breaker refuses calls: a call that began
    /// before a key was refused, or before the account was empty, does not hide that reason, which the owner must mend.
    pub fn end(mut self, failure: Option<&LlmError>) -> bool {
        self.settled = match failure {
            Some(LlmError { kind: LlmErrorKind::Auth, .. }) => ModelCallOutcome::KeyRefused,
            Some(LlmError { kind: LlmErrorKind::Quota, .. }) => ModelCallOutcome::QuotaUsedUp,
            Some(error) if error.is_retryable() => {
                ModelCallOutcome::Failed { is_outage: error.is_outage(), retry_after: error.retry_after }
            }
            Some(LlmError { kind: LlmErrorKind::Cancelled, .. }) => ModelCallOutcome::Left,
            _ => ModelCallOutcome::Answered,
        };
        let counts = !matches!(self.settled, ModelCallOutcome::Answered | ModelCallOutcome::Left);
        let Some(error) = failure.filter(|_| counts) else { return true };
        let is_late = self.permit == BreakerPermit::Call && self.circuit.state().0 != CircuitState::Closed;
        let mut inner = self.circuit.0.lock();
        if is_late && inner.last.as_ref().is_some_and(|(kind, _)| kind.needs_owner()) {
            return false;
        }
        inner.last = Some((error.kind, error.message.clone()));
        true
    }
}

impl Drop for CallPermit<'_> {
    fn drop(&mut self) {
        // Only a failure depends on whether the same request has failed before.
        let is_failure = !matches!(self.settled, ModelCallOutcome::Answered | ModelCallOutcome::Left);
        let request = self.request.filter(|_| is_failure).and_then(ChatRequest::fingerprint);
        let mut inner = self.circuit.0.lock();
        if inner.breaker.settle(self.permit, request, self.settled, Instant::now()) {
            inner.opened += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_open_breaker_says_why_and_until_when() {
        let circuit = CircuitBreaker::default();
        let fail = |kind| {
            circuit.enter("p", None).map(|permit| {
                permit.end(Some(&LlmError::new(kind, "p", "HTTP 500")));
            })
        };
        // A service that refuses a request is working, so the breaker stays closed.
        for kind in [LlmErrorKind::BadRequest, LlmErrorKind::Refused, LlmErrorKind::ContextTooLong] {
            (0..10).for_each(|_| fail(kind).unwrap());
        }
        assert_eq!(circuit.state(), (CircuitState::Closed, 0));
        (0..5).for_each(|_| fail(LlmErrorKind::Server).unwrap());
        let held = circuit.enter("p", None).unwrap_err();
        assert_eq!(
            held.to_string(),
            "p: it failed again and again and is not asked for the next 61 s; the last time: HTTP 500"
        );
        assert!(held.is_outage() && held.kind == LlmErrorKind::Server && held.retry_after.is_some());
        tokio::time::advance(held.retry_after.unwrap()).await;
        let probe = circuit.enter("p", None).unwrap();
        assert!(circuit.enter("p", None).unwrap_err().message.contains("just being tried"));
        drop(probe);
        assert_eq!(circuit.state(), (CircuitState::HalfOpen, 1));
        for _ in 0..2 {
            circuit.enter("p", None).unwrap().end(None);
        }
        assert_eq!(circuit.state(), (CircuitState::Closed, 1));
    }

    /// After a refused key, no call goes through for an hour; after an empty account, none for increasing pauses. A reset lets
    /// calls through at once.
    #[tokio::test(start_paused = true)]
    async fn a_refused_key_and_an_empty_account_stop_all_calls_at_once() {
        let circuit = CircuitBreaker::default();
        let fail = |kind| circuit.enter("p", None).unwrap().end(Some(&LlmError::new(kind, "p", "HTTP 4xx")));
        let begun_before = circuit.enter("p", None).unwrap();
        fail(LlmErrorKind::Auth);
        let held = circuit.enter("p", None).unwrap_err();
        assert_eq!(held.to_public(), "p: it refused the API key and is not asked for the next 3601 s");
        assert!(held.kind == LlmErrorKind::Auth && held.is_service_condition() && held.message.ends_with("HTTP 4xx"));
        assert!(!begun_before.end(Some(&LlmError::new(LlmErrorKind::Server, "p", "HTTP 500"))));
        assert_eq!(circuit.enter("p", None).unwrap_err().to_string(), held.to_string());
        tokio::time::advance(Duration::from_secs(3_600)).await;
        fail(LlmErrorKind::Auth);
        assert_eq!(circuit.remaining(), Some(Duration::from_secs(3_600)));
        circuit.reset();
        for secs in [5, 10, 20, 40, 80, 160, 320, 600, 600] {
            fail(LlmErrorKind::Quota);
            assert_eq!(circuit.remaining(), Some(Duration::from_secs(secs)));
            tokio::time::advance(Duration::from_secs(secs)).await;
        }
        for _ in 0..2 {
            circuit.enter("p", None).unwrap().end(None);
        }
        fail(LlmErrorKind::Quota);
        assert_eq!(circuit.remaining(), Some(Duration::from_secs(5)));
    }
}
