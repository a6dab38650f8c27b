//! Limits the memory that all incoming request bodies of a server take together.
//!
//! A limit for each request does not bound the sum: unauthenticated callers who send almost all of a body and then stall
//! hold as many bodies as there are connections. Therefore all bodies count their bytes against one budget. When the budget
//! is exhausted, it ends bodies of unauthenticated callers. The body with the largest product of size and age ends first,
//! so a small new body ends last.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::http::StatusCode;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::http_error::HttpError;
use crate::settings::ByteSize;

/// Each eviction frees at least this fraction of the budget (one part in `ROOM`), so that not every chunk ends a body.
const ROOM: u64 = 16;
/// The shortest time between two warnings about an exhausted budget.
const WARN_INTERVAL: Duration = Duration::from_secs(10);
/// The `Retry-After` of a refused caller.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The memory budget for request bodies of one server.
#[derive(Debug)]
pub struct BodyBudget {
    limit: u64,
    state: Mutex<BodyBudgetState>,
}

#[derive(Debug, Default)]
struct BodyBudgetState {
    /// The bytes that all bodies hold.
    used: u64,
    next_id: u64,
    bodies: HashMap<u64, Body>,
    warned: Option<Instant>,
}

#[derive(Debug)]
struct Body {
    since: Instant,
    held: u64,
    phase: Phase,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The sender is not authenticated yet.
    Unauthenticated,
    /// The sender is authenticated.
    Authenticated,
    /// The budget ended the body to make room for others.
    Ended,
}

impl BodyBudget {
    /// Creates a budget of `limit` bytes.
    pub fn new(limit: ByteSize) -> Arc<Self> {
        Arc::new(Self { limit: limit.0, state: Mutex::default() })
    }

    /// Returns a share for a new body; it holds nothing yet.
    pub fn share(self: &Arc<Self>) -> BodyShare {
        let mut state = self.state.lock();
        let id = state.next_id;
        state.next_id += 1;
        state.bodies.insert(id, Body { since: Instant::now(), held: 0, phase: Phase::Unauthenticated, waker: None });
        BodyShare(Arc::new(Entry { budget: Arc::clone(self), id }))
    }

    /// Returns the number of bytes that all bodies hold.
    pub fn used(&self) -> u64 {
        self.state.lock().used
    }

    fn exhausted(&self) -> HttpError {
        let message = format!("request bodies on their way take {} already; try again later", ByteSize(self.limit));
        let fault = HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "body_budget", message);
        HttpError { retry_after: Some(RETRY_AFTER), ..fault }
    }
}

impl BodyBudgetState {
    fn phase(&self, id: u64) -> Phase {
        self.bodies.get(&id).map_or(Phase::Ended, |body| body.phase)
    }

    /// Ends bodies until `bytes` more fit into `limit` with some room to spare. `of` is the body that needs the bytes; it
    /// may be ended too.
    fn make_room(&mut self, limit: u64, of: u64, bytes: u64) {
        let target = limit - limit / ROOM;
        let rank = |(id, body): (&u64, &Body)| {
            let held = if *id == of { body.held.saturating_add(bytes) } else { body.held };
            let age = u64::try_from(body.since.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1);
            (body.phase == Phase::Unauthenticated && held > 0).then(|| (held.saturating_mul(age), held, *id))
        };
        let mut ranks: Vec<_> = self.bodies.iter().filter_map(rank).collect();
        ranks.sort_unstable_by(|one, other| other.cmp(one));
        let mut ended = 0_u32;
        for (_, _, id) in ranks {
            if self.used.saturating_add(bytes) <= target {
                break;
            }
            // The requesting body is ended only if no other way makes room.
            if id == of && self.used.saturating_add(bytes) <= limit {
                continue;
            }
            self.end(id);
            ended += 1;
            if id == of {
                break;
            }
        }
        if self.warned.is_none_or(|warned| warned.elapsed() >= WARN_INTERVAL) {
            self.warned = Some(Instant::now());
            tracing::warn!(
                ended,
                "gateway.body_budget is exhausted; the largest and oldest bodies of unauthenticated callers are ended"
            );
        }
    }

    fn end(&mut self, id: u64) {
        let Some(body) = self.bodies.get_mut(&id) else { return };
        body.phase = Phase::Ended;
        self.used -= std::mem::take(&mut body.held);
        if let Some(waker) = body.waker.take() {
            waker.wake();
        }
    }
}

/// The share of a [`BodyBudget`] that one body holds. Clones are the same share; dropping the last one frees it. The server
/// puts a share into the extensions of each request with a body and counts the bytes as they arrive.
#[derive(Clone)]
pub struct BodyShare(Arc<Entry>);

struct Entry {
    budget: Arc<BodyBudget>,
    id: u64,
}

impl BodyShare {
    /// Counts `bytes` that have arrived.
    ///
    /// # Errors
    /// 503 if the budget has no room for them, or if it ended this body to make room.
    pub fn take(&self, bytes: usize) -> Result<(), HttpError> {
        let Entry { budget, id } = &*self.0;
        let bytes = bytes as u64;
        let mut state = budget.state.lock();
        if state.used.saturating_add(bytes) > budget.limit {
            state.make_room(budget.limit, *id, bytes);
        }
        if state.phase(*id) == Phase::Ended || state.used.saturating_add(bytes) > budget.limit {
            return Err(budget.exhausted());
        }
        state.used += bytes;
        if let Some(body) = state.bodies.get_mut(id) {
            body.held += bytes;
        }
        Ok(())
    }

    /// Becomes ready when this body is ended to make room for others.
    pub fn poll_ended(&self, context: &Context<'_>) -> Poll<HttpError> {
        let Entry { budget, id } = &*self.0;
        let mut state = budget.state.lock();
        if state.phase(*id) == Phase::Ended {
            return Poll::Ready(budget.exhausted());
        }
        if let Some(body) = state.bodies.get_mut(id) {
            body.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Returns true if the sender is authenticated.
    pub fn is_authenticated(&self) -> bool {
        self.0.budget.state.lock().phase(self.0.id) == Phase::Authenticated
    }

    /// Marks the sender as authenticated. The budget never ends such a body to make room.
    pub fn mark_authenticated(&self) {
        let mut state = self.0.budget.state.lock();
        if let Some(body) = state.bodies.get_mut(&self.0.id).filter(|body| body.phase != Phase::Ended) {
            body.phase = Phase::Authenticated;
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut state = self.budget.state.lock();
        if let Some(body) = state.bodies.remove(&self.id) {
            state.used -= body.held;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use proptest::prelude::*;

    use super::*;

    fn is_ended(share: &BodyShare) -> bool {
        share.poll_ended(&Context::from_waker(Waker::noop())).is_ready()
    }

    #[tokio::test(start_paused = true)]
    async fn the_largest_and_oldest_bodies_without_proof_make_room() {
        let budget = BodyBudget::new(ByteSize(1_600));
        let [old, authenticated] = [(); 2].map(|()| budget.share());
        authenticated.mark_authenticated();
        authenticated.take(800).unwrap();
        old.take(200).unwrap();
        tokio::time::advance(Duration::from_secs(10)).await;
        let [large, small] = [(); 2].map(|()| budget.share());
        large.take(500).unwrap();
        small.take(10).unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        let honest = budget.share();
        honest.take(100).unwrap();
        assert_eq!(
            [&large, &old, &small, &authenticated].map(is_ended),
            [false, true, false, false],
            "200 bytes for 11 seconds"
        );
        honest.take(290).unwrap();
        assert_eq!([&large, &old, &small, &authenticated].map(is_ended), [true, true, false, false]);
        assert_eq!(budget.used(), 800 + 10 + 390);
        assert_eq!(large.take(1).unwrap_err().status, 503);
        drop((large, old, small, authenticated, honest));
        assert_eq!((budget.used(), budget.state.lock().bodies.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn an_oversized_request_does_not_evict_smaller_ones() {
        let budget = BodyBudget::new(ByteSize(1_000));
        let [one, other, authenticated] = [(); 3].map(|()| budget.share());
        one.take(400).unwrap();
        let fault = other.take(900).unwrap_err();
        assert_eq!((fault.status.as_u16(), fault.retry_after.is_some(), is_ended(&one)), (503, true, false));
        authenticated.mark_authenticated();
        authenticated.take(600).unwrap();
        let another = budget.share();
        another.mark_authenticated();
        another.take(399).unwrap();
        assert!(is_ended(&one), "proof goes before no proof");
        assert_eq!(another.take(2).unwrap_err().status, 503, "an authenticated body never ends another one");
        assert!(!is_ended(&authenticated) && !is_ended(&another));
        another.take(1).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_bodies_release_their_budget() {
        let budget = BodyBudget::new(ByteSize(100));
        let share = budget.share();
        share.take(60).unwrap();
        drop(share);
        assert_eq!(budget.used(), 0);
    }

    proptest! {
        #[test]
        fn the_budget_is_never_exceeded(steps in prop::collection::vec((0_usize..8, 0_usize..40, 0_u8..8), 0..200)) {
            let budget = BodyBudget::new(ByteSize(100));
            let mut shares: Vec<_> = (0..8).map(|_| budget.share()).collect();
            for (at, bytes, action) in steps {
                match action {
                    0 => shares[at] = budget.share(),
                    1 => shares[at].mark_authenticated(),
                    _ => drop(shares[at].take(bytes)),
                }
                let held: u64 = budget.state.lock().bodies.values().map(|body| body.held).sum();
                prop_assert_eq!(held, budget.used());
                prop_assert!(held <= 100);
            }
            drop(shares);
            prop_assert_eq!(budget.used(), 0);
        }
    }
}
