//! Circuit breaker of one service: after repeated failures, it refuses calls for a while, and then lets one probe at a time
//! through. Pure: the caller passes the time.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Consecutive failures that open the breaker.
const FAILURES: u32 = 5;
/// The time for which the breaker stays open.
const PAUSE: Duration = Duration::from_secs(60);
/// The time for which the breaker stays open for a service that cannot be reached. It is short, because a new attempt costs
/// nothing and people wait.
const OUTAGE_PAUSE: Duration = Duration::from_secs(10);
/// Upper bound of a pause, since the `Retry-After` of a service may be wrong.
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);
/// Pause after a refused key: repeated calls with a bad key may lock the account.
pub(super) const KEY_PAUSE: Duration = Duration::from_secs(60 * 60);
/// Pauses while the account has no credit: the first, which doubles each time, and the longest.
const FIRST_QUOTA_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_QUOTA_PAUSE: Duration = Duration::from_secs(600);
/// Consecutive successful probes that close the breaker.
const SUCCESSES: u32 = 2;
/// The time for which probes are reserved for requests that have not failed, if one of them was refused.
const RESERVED: Duration = Duration::from_secs(10);
/// The maximum number of failed requests that a breaker remembers.
const FAILED_REQUESTS: usize = 64;

/// A number that identifies the content of a request, so that the breaker recognizes a request that is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFingerprint(pub u64);

/// The state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum CircuitState {
    /// All calls go through.
    Closed,
    /// No call goes through for this long.
    Open(Duration),
    /// One probe at a time goes through.
    HalfOpen,
}

impl CircuitState {
    /// `closed`, `open` or `half_open`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Permission for one call. The caller reports the outcome of the call with [`BreakerStateMachine::settle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerPermit {
    Call,
    /// The call that shows whether the service works again.
    Probe,
}

/// The reason why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelCallRefusal {
    /// The breaker is open for this long.
    Open(Duration),
    /// A probe is under way.
    Probing,
}

/// The outcome of a call, as the breaker distinguishes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelCallOutcome {
    /// The service answered, even if it refused the request.
    Answered,
    /// A temporary failure; `retry_after` is the wait that the service asked for.
    Failed { is_outage: bool, retry_after: Option<Duration> },
    /// The service refused the key.
    KeyRefused,
    /// The account at the service has no credit left.
    QuotaUsedUp,
    /// The caller left before the call ended.
    Left,
}

/// The breaker of one service. A request that fails again and again counts once until the service answers another one: the
/// request may be at fault, and must not stop the calls of others. An outage counts each time.
#[derive(Clone, Debug, Default)]
pub struct BreakerStateMachine {
    state: BreakerPhase,
    /// Consecutive pauses for an empty account.
    quota_pauses: u32,
    /// The requests whose failure has counted, the latest last.
    failed: VecDeque<RequestFingerprint>,
    /// The time until which a failed request gets no probe, because a request that has not failed waits for one.
    reserved_until: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
enum BreakerPhase {
    Closed { failures: u32 },
    Open { until: Instant },
    HalfOpen { successes: u32, probing: bool },
}

impl Default for BreakerPhase {
    fn default() -> Self {
        Self::Closed { failures: 0 }
    }
}

impl BreakerStateMachine {
    /// Returns permission for a call, or the reason why the call is refused.
    ///
    /// # Errors
    /// The breaker is open, or another call probes the service. [`ModelCallRefusal`] says when to ask again.
    pub fn ask(
        &mut self,
        request: Option<RequestFingerprint>,
        now: Instant,
    ) -> Result<BreakerPermit, ModelCallRefusal> {
        let has_failed = self.has_failed(request);
        let must_reserve = request.is_some() && !has_failed;
        match &mut self.state {
            BreakerPhase::Closed { .. } => Ok(BreakerPermit::Call),
            BreakerPhase::Open { until } if now < *until => {
                if must_reserve {
                    self.reserved_until = Some(*until + RESERVED);
                }
                Err(ModelCallRefusal::Open(*until - now))
            }
            BreakerPhase::HalfOpen { probing: true, .. } => {
                if must_reserve {
                    self.reserved_until = Some(now + RESERVED);
                }
                Err(ModelCallRefusal::Probing)
            }
            state => {
                if let Some(until) = self.reserved_until.filter(|until| has_failed && now < *until) {
                    return Err(ModelCallRefusal::Open(until - now));
                }
                match state {
                    BreakerPhase::HalfOpen { probing, .. } => *probing = true,
                    other => *other = BreakerPhase::HalfOpen { successes: 0, probing: true },
                }
                Ok(BreakerPermit::Probe)
            }
        }
    }

    /// Records the outcome of a call; returns true if it opened the breaker.
    pub fn settle(
        &mut self,
        permit: BreakerPermit,
        request: Option<RequestFingerprint>,
        settled: ModelCallOutcome,
        now: Instant,
    ) -> bool {
        let is_outage = matches!(settled, ModelCallOutcome::Failed { is_outage: true, .. });
        let counts = is_outage || !self.has_failed(request);
        match (&mut self.state, permit, settled) {
            (BreakerPhase::Closed { .. }, ..) | (BreakerPhase::HalfOpen { .. }, BreakerPermit::Probe, _)
                if matches!(settled, ModelCallOutcome::KeyRefused | ModelCallOutcome::QuotaUsedUp) =>
            {
                return self.refuse(settled, now);
            }
            (BreakerPhase::Closed { failures }, _, ModelCallOutcome::Answered) => {
                *failures = 0;
                self.failed.clear();
            }
            (BreakerPhase::Closed { failures }, _, ModelCallOutcome::Failed { retry_after, .. }) if counts => {
                *failures += 1;
                let must_open = *failures >= FAILURES;
                self.remember(request);
                if must_open {
                    return self.open(is_outage, retry_after, now);
                }
            }
            // A slow call from before the breaker opened has succeeded, so the service works for some requests.
            (BreakerPhase::Open { .. }, _, ModelCallOutcome::Answered) => {
                self.state = BreakerPhase::HalfOpen { successes: 1, probing: false };
                self.reserved_until = None;
            }
            (BreakerPhase::HalfOpen { successes, probing }, BreakerPermit::Probe, ModelCallOutcome::Answered) => {
                (*successes, *probing) = (*successes + 1, false);
                self.reserved_until = None;
                if *successes >= SUCCESSES {
                    *self = Self::default();
                }
            }
            // The service has answered another request since it opened.
            (
                BreakerPhase::HalfOpen { successes: 1.., probing },
                BreakerPermit::Probe,
                ModelCallOutcome::Failed { .. },
            ) if !counts => {
                *probing = false;
            }
            (BreakerPhase::HalfOpen { .. }, BreakerPermit::Probe, ModelCallOutcome::Failed { retry_after, .. }) => {
                self.remember(request);
                return self.open(is_outage, retry_after, now);
            }
            (BreakerPhase::HalfOpen { probing, .. }, BreakerPermit::Probe, ModelCallOutcome::Left) => *probing = false,
            _ => {}
        }
        false
    }

    pub fn state(&self, now: Instant) -> CircuitState {
        match self.state {
            BreakerPhase::Closed { .. } => CircuitState::Closed,
            BreakerPhase::Open { until } if now < until => CircuitState::Open(until - now),
            BreakerPhase::Open { .. } | BreakerPhase::HalfOpen { .. } => CircuitState::HalfOpen,
        }
    }

    fn has_failed(&self, request: Option<RequestFingerprint>) -> bool {
        request.is_some_and(|request| self.failed.contains(&request))
    }

    fn remember(&mut self, request: Option<RequestFingerprint>) {
        let Some(request) = request.filter(|request| !self.failed.contains(request)) else { return };
        if self.failed.len() == FAILED_REQUESTS {
            self.failed.pop_front();
        }
        self.failed.push_back(request);
    }

    fn refuse(&mut self, settled: ModelCallOutcome, now: Instant) -> bool {
        let pause = if settled == ModelCallOutcome::KeyRefused {
            KEY_PAUSE
        } else {
            let pause = FIRST_QUOTA_PAUSE.saturating_mul(1 << self.quota_pauses.min(16));
            self.quota_pauses += 1;
            pause.min(LONGEST_QUOTA_PAUSE)
        };
        self.state = BreakerPhase::Open { until: now + pause };
        true
    }

    fn open(&mut self, is_outage: bool, retry_after: Option<Duration>, now: Instant) -> bool {
        let shortest = if is_outage { OUTAGE_PAUSE } else { PAUSE };
        let pause = retry_after.unwrap_or_default().clamp(shortest, LONGEST_PAUSE);
        self.state = BreakerPhase::Open { until: now + pause };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: ModelCallOutcome = ModelCallOutcome::Answered;
    const BAD: ModelCallOutcome = ModelCallOutcome::Failed { is_outage: false, retry_after: None };
    const GONE: ModelCallOutcome = ModelCallOutcome::Failed { is_outage: true, retry_after: None };

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// Consecutive events: the second, the outcome of a call or `None` if the call must be refused, and the state after it.
    #[test]
    fn a_service_that_fails_is_left_alone_then_tried_with_one_call_at_a_time() {
        type Row = (u64, Option<ModelCallOutcome>, &'static str);
        let failed: Vec<Row> = vec![
            (0, Some(BAD), "closed"),
            (1, Some(BAD), "closed"),
            (2, Some(BAD), "closed"),
            (3, Some(BAD), "closed"),
            (10, Some(BAD), "open"),
            (11, None, "open"),
            (69, None, "open"),
        ];
        let asked = |wait| ModelCallOutcome::Failed { is_outage: true, retry_after: Some(wait) };
        let gone = [(70, Some(GONE), "open"), (79, None, "open"), (80, Some(OK), "half_open")];
        let closes = [(70, Some(OK), "half_open"), (71, Some(OK), "closed"), (72, Some(BAD), "closed")];
        let opens_again =
            [(70, Some(OK), "half_open"), (71, Some(BAD), "open"), (130, None, "open"), (131, Some(OK), "half_open")];
        let left = [(70, Some(ModelCallOutcome::Left), "half_open"), (70, Some(OK), "half_open")];
        let asked_for = [(70, Some(asked(secs(600))), "open"), (669, None, "open")];
        let asked_too_much =
            [(70, Some(asked(Duration::MAX)), "open"), (3_669, None, "open"), (3_670, Some(OK), "half_open")];
        for after in [&closes[..], &opens_again, &left, &asked_for, &asked_too_much, &gone] {
            let (start, mut breaker) = (Instant::now(), BreakerStateMachine::default());
            for (at, settled, state) in failed.iter().chain(after) {
                let now = start + secs(*at);
                match (breaker.ask(None, now), settled) {
                    (Ok(permit), Some(settled)) => {
                        let opened = breaker.settle(permit, None, *settled, now);
                        assert_eq!(opened, *state == "open", "{at}");
                    }
                    (Err(_), None) => {}
                    (asked, settled) => panic!("{at}: {asked:?}, {settled:?}"),
                }
                assert_eq!(breaker.state(now).as_str(), *state, "{at}");
            }
        }
    }

    #[test]
    fn an_answer_in_between_counts_anew_and_two_probes_never_run_at_once() {
        let (now, mut breaker) = (Instant::now(), BreakerStateMachine::default());
        for settled in [BAD, BAD, BAD, BAD, OK, BAD, BAD, BAD, BAD] {
            breaker.settle(BreakerPermit::Call, None, settled, now);
        }
        assert_eq!(breaker.state(now), CircuitState::Closed);
        breaker.settle(BreakerPermit::Call, None, BAD, now);
        assert_eq!(breaker.ask(None, now), Err(ModelCallRefusal::Open(PAUSE)));
        let later = now + PAUSE;
        let asked = [breaker.ask(None, later), breaker.ask(None, later)];
        assert_eq!(asked, [Ok(BreakerPermit::Probe), Err(ModelCallRefusal::Probing)]);
        // The outcome of a slow call from before the breaker opened says nothing about the probe.
        breaker.settle(BreakerPermit::Call, None, BAD, later);
        assert_eq!(breaker.ask(None, later), Err(ModelCallRefusal::Probing));

        let mut breaker = BreakerStateMachine::default();
        assert!((0..5).any(|_| breaker.settle(BreakerPermit::Call, None, BAD, now)));
        breaker.settle(BreakerPermit::Call, None, OK, now);
        assert_eq!(breaker.ask(None, now), Ok(BreakerPermit::Probe), "a late answer shows that it works");
    }

    #[test]
    fn a_request_that_fails_again_and_again_neither_opens_the_breaker_nor_takes_the_probe_of_another() {
        let (now, mut breaker) = (Instant::now(), BreakerStateMachine::default());
        let [failing, other] = [1, 2].map(|number| Some(RequestFingerprint(number)));
        for _ in 0..20 {
            assert!(!breaker.settle(BreakerPermit::Call, failing, BAD, now));
        }
        assert!((0..4).any(|_| breaker.settle(BreakerPermit::Call, failing, GONE, now)), "an outage counts each time");

        // It gets the probe only if no other request waits, and the answer to another one shows that the service works.
        let mut later = now + OUTAGE_PAUSE;
        assert_eq!(breaker.ask(failing, later), Ok(BreakerPermit::Probe));
        assert!(breaker.settle(BreakerPermit::Probe, failing, BAD, later));
        assert_eq!(breaker.ask(other, later), Err(ModelCallRefusal::Open(PAUSE)));
        later += PAUSE;
        assert_eq!(breaker.ask(failing, later), Err(ModelCallRefusal::Open(RESERVED)));
        assert_eq!(breaker.ask(other, later), Ok(BreakerPermit::Probe));
        assert!(!breaker.settle(BreakerPermit::Probe, other, OK, later));
        assert_eq!(breaker.ask(failing, later), Ok(BreakerPermit::Probe));
        assert!(!breaker.settle(BreakerPermit::Probe, failing, BAD, later));
        assert_eq!(breaker.ask(other, later), Ok(BreakerPermit::Probe));
        breaker.settle(BreakerPermit::Probe, other, OK, later);
        assert_eq!(breaker.state(later), CircuitState::Closed);

        // If the other request does not come back, the failing one is tried.
        assert!((0..5).any(|_| breaker.settle(BreakerPermit::Call, failing, GONE, later)));
        assert!(breaker.ask(other, later).is_err());
        assert_eq!(breaker.ask(failing, later + OUTAGE_PAUSE + RESERVED), Ok(BreakerPermit::Probe));
    }
}
