//! The open connections, and the choice of those that are closed when there are too many.
//!
//! A semaphore does not serve: a few idle or slow clients could hold all of its permits.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use daoyou_channels::HttpError;
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The share of the connections that is closed at once to make room: one in this many.
const EVICTED_SHARE: usize = 64;

/// The phase of a connection. Connections in an earlier phase are closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectionPhase {
    /// The client has not yet sent a complete request.
    Opening,
    /// A later request is arriving.
    Reading,
    /// Between two requests.
    Idle,
    /// A request is being answered. Such a connection is not closed.
    Busy,
}

/// A signal to a connection's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CloseSignal {
    /// Answer the current request, then close.
    Finish = 1,
    /// Close at once.
    Abort = 2,
}

/// The state of a connection that its task, its stream and the accept loop share.
#[derive(Debug)]
pub struct Connection {
    epoch: Instant,
    /// A request is arriving and is not complete.
    is_receiving: AtomicBool,
    /// A complete request has arrived.
    has_received: AtomicBool,
    /// The number of requests whose responses are not complete.
    unanswered: AtomicU32,
    /// The time when the last request began to arrive or the last response ended, in milliseconds since `epoch`.
    since: AtomicU64,
    signal: AtomicU8,
    waker: AtomicWaker,
    /// The number of heads that hyper received and [`Connection::next_head`] has not returned yet.
    heads: AtomicU32,
    /// The error of the last of these heads, which is a placeholder for an invalid head in that case.
    head_error: Mutex<Option<HttpError>>,
    body_error: Mutex<Option<HttpError>>,
    /// The current request is answered even if the client has closed its half of the connection.
    allows_half_close: AtomicBool,
}

impl Connection {
    pub fn new(epoch: Instant) -> Self {
        let connection = Self {
            epoch,
            is_receiving: AtomicBool::new(true),
            has_received: AtomicBool::new(false),
            unanswered: AtomicU32::new(0),
            since: AtomicU64::new(0),
            signal: AtomicU8::new(0),
            waker: AtomicWaker::new(),
            heads: AtomicU32::new(0),
            head_error: Mutex::default(),
            body_error: Mutex::default(),
            allows_half_close: AtomicBool::new(true),
        };
        connection.touch();
        connection
    }

    pub fn phase(&self) -> ConnectionPhase {
        let is_receiving = self.is_receiving();
        if !self.has_received.load(Ordering::Relaxed) {
            ConnectionPhase::Opening
        } else if is_receiving {
            ConnectionPhase::Reading
        } else if self.unanswered.load(Ordering::Relaxed) == 0 {
            ConnectionPhase::Idle
        } else {
            ConnectionPhase::Busy
        }
    }

    /// Returns the time since when the connection is idle, if it is idle.
    pub fn idle_since(&self) -> Option<Instant> {
        (self.phase() == ConnectionPhase::Idle)
            .then(|| self.epoch + Duration::from_millis(self.since.load(Ordering::Relaxed)))
    }

    /// Records the first byte of a request. A request that arrives while another is being answered does not count yet.
    pub fn first_byte(&self) {
        if self.phase() == ConnectionPhase::Idle {
            self.receiving();
        }
    }

    /// Records that a request is incomplete.
    pub fn receiving(&self) {
        if !self.is_receiving.swap(true, Ordering::Relaxed) {
            self.touch();
        }
    }

    /// Returns true while a request is incomplete. A response at that time is the last one: the rest of the request is discarded.
    pub fn is_receiving(&self) -> bool {
        self.is_receiving.load(Ordering::Relaxed)
    }

    /// Records that a request is complete.
    pub fn received(&self) {
        self.is_receiving.store(false, Ordering::Relaxed);
        self.has_received.store(true, Ordering::Relaxed);
    }

    /// Records that a response was sent to its last byte, or was abandoned.
    pub fn answered(&self) {
        self.touch();
        let less = |count: u32| count.checked_sub(1);
        // A head that hyper and the stream parse differently gets a response without having been counted; that response closes the
        // connection.
        self.unanswered.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok();
    }

    /// Records whether the current request is answered even if the client has closed its half of the connection.
    pub fn set_half_close(&self, is_allowed: bool) {
        self.allows_half_close.store(is_allowed, Ordering::Relaxed);
    }

    pub fn allows_half_close(&self) -> bool {
        self.allows_half_close.load(Ordering::Relaxed)
    }

    /// Returns true while a request has no complete response.
    pub fn has_unanswered(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) > 0
    }

    /// Returns true while a request that hyper has parsed has no complete response.
    pub fn is_answering(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) > self.heads.load(Ordering::Relaxed)
    }

    /// Records that hyper receives a valid head.
    pub fn pass_head(&self) {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        self.heads.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that hyper receives a placeholder for an invalid head; nothing follows it.
    pub fn pass_invalid_head(&self, error: HttpError) {
        *self.head_error.lock() = Some(error);
        self.pass_head();
    }

    /// Returns the error of the head that hyper has just parsed, if the head was invalid.
    ///
    /// # Errors
    /// The recorded error of the head, or 400 if hyper and this server disagree about where requests begin.
    pub fn next_head(&self) -> Result<(), HttpError> {
        match self.heads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |heads| heads.checked_sub(1)) {
            Ok(1) => self.head_error.lock().take().map_or(Ok(()), Err),
            Ok(_) => Ok(()),
            // hyper found a head where the stream found none.
            Err(_) => Err(HttpError::bad_request("the request cannot be separated from the one before it")),
        }
    }

    /// Records why the body of the current request is rejected. The first error counts.
    pub fn set_body_error(&self, error: HttpError) {
        self.body_error.lock().get_or_insert(error);
    }

    pub fn take_body_error(&self) -> Option<HttpError> {
        self.body_error.lock().take()
    }

    /// Polls for a signal. Only one task may wait.
    pub fn poll_signal(&self, context: &Context<'_>) -> Poll<CloseSignal> {
        self.waker.register(context.waker());
        match self.signal.load(Ordering::Acquire) {
            0 => Poll::Pending,
            1 => Poll::Ready(CloseSignal::Finish),
            _ => Poll::Ready(CloseSignal::Abort),
        }
    }

    fn signal(&self, signal: CloseSignal) {
        self.signal.fetch_max(signal as u8, Ordering::AcqRel);
        self.waker.wake();
    }

    fn touch(&self) {
        let since = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.since.store(since, Ordering::Relaxed);
    }
}

/// All open connections of a server.
#[derive(Debug)]
pub struct Connections {
    limit: usize,
    epoch: Instant,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    by_id: HashMap<u64, Arc<Connection>>,
}

/// A connection's entry in [`Connections`]; dropping it removes the connection.
#[derive(Debug)]
pub struct ConnectionPermit {
    all: Arc<Connections>,
    id: u64,
    pub connection: Arc<Connection>,
}

impl Connections {
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit: limit.max(1), epoch: Instant::now(), open: Mutex::default() })
    }

    /// Admits a new connection. At the limit, the oldest connections without a complete request are closed, then idle ones, so that
    /// sockets which send nothing do not keep other clients out. `None` if all connections are busy.
    pub fn admit(self: &Arc<Self>) -> Option<ConnectionPermit> {
        let mut open = self.open.lock();
        if open.by_id.len() >= self.limit {
            open.evict((self.limit / EVICTED_SHARE).max(1));
        }
        if open.by_id.len() >= self.limit {
            return None;
        }
        let id = open.next;
        open.next += 1;
        let connection = Arc::new(Connection::new(self.epoch));
        open.by_id.insert(id, connection.clone());
        Some(ConnectionPermit { all: self.clone(), id, connection })
    }

    /// Signals all connections.
    pub fn signal(&self, signal: CloseSignal) {
        self.open.lock().by_id.values().for_each(|connection| connection.signal(signal));
    }

    pub fn count(&self) -> usize {
        self.open.lock().by_id.len()
    }
}

impl Open {
    fn evict(&mut self, count: usize) {
        let rank = |(id, connection): (&u64, &Arc<Connection>)| {
            let phase = connection.phase();
            (phase != ConnectionPhase::Busy).then(|| (phase, connection.since.load(Ordering::Relaxed), *id))
        };
        let mut ranks: Vec<_> = self.by_id.iter().filter_map(rank).collect();
        let count = count.min(ranks.len());
        if count == 0 {
            return;
        }
        ranks.select_nth_unstable(count - 1);
        for (_, _, id) in &ranks[..count] {
            if let Some(connection) = self.by_id.remove(id) {
                connection.signal(CloseSignal::Abort);
            }
        }
        tracing::debug!(count, "connections closed to make room");
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.all.open.lock().by_id.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_aborted(permit: &ConnectionPermit) -> bool {
        permit.connection.signal.load(Ordering::Relaxed) == CloseSignal::Abort as u8
    }

    #[tokio::test(start_paused = true)]
    async fn connections_without_a_request_are_closed_first() {
        let all = Connections::new(4);
        let mut permits = Vec::new();
        for _ in 0..4 {
            tokio::time::advance(Duration::from_millis(10)).await;
            permits.push(all.admit().unwrap());
        }
        // One is busy, one idle, two slow. The older slow one is closed first, then the other slow one, then the idle one.
        for permit in [&permits[0], &permits[1]] {
            permit.connection.pass_head();
            permit.connection.received();
        }
        permits[1].connection.answered();
        for (gone, count) in [(2, 1), (3, 2), (1, 3)] {
            let new = all.admit().unwrap();
            new.connection.pass_head();
            new.connection.received();
            assert!(is_aborted(&permits[gone]), "{gone}");
            assert_eq!(permits.iter().filter(|permit| is_aborted(permit)).count(), count);
            permits.push(new);
            assert_eq!(all.count(), 4);
        }
        assert!(all.admit().is_none(), "all are being answered");
        assert!(!is_aborted(&permits[0]));
        drop(permits);
        assert_eq!(all.count(), 0);
    }

    #[test]
    fn the_error_belongs_to_the_last_head() {
        let connection = Connection::new(Instant::now());
        connection.pass_head();
        connection.pass_invalid_head(HttpError::bad_request("no"));
        assert_eq!(connection.next_head(), Ok(()));
        assert_eq!(connection.next_head(), Err(HttpError::bad_request("no")));
        assert!(connection.next_head().is_err(), "hyper was given no third head");
    }
}
