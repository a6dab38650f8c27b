//! The connections that are open, and who is given up when there are too many.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use daoyou_channels::HttpError;
use futures_util::task::AtomicWaker;
use tokio::time::Instant;

/// How many of the connections are given up at once when there is no room: one in so many.
const SHARE: usize = 64;

/// What a connection is doing, the first to be given up first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It has not yet sent one whole request.
    Opening,
    /// A later request is on its way.
    Reading,
    /// Between two requests.
    Idle,
    /// A request is being answered; such a connection is not given up.
    Busy,
}

/// What the accept loop tells a connection's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Signal {
    /// Finish the request that is being answered, and close.
    Finish = 1,
    /// Close at once.
    Leave = 2,
}

/// One connection, as its task, its stream and the accept loop see it.
#[derive(Debug)]
pub struct Connection {
    epoch: Instant,
    /// Whether a request is on its way, and not all of it has come.
    is_receiving: AtomicBool,
    /// Whether one whole request has come.
    has_received: AtomicBool,
    /// Requests that are not yet answered to the last byte.
    unanswered: AtomicU32,
    /// When it last began to receive, or ended to answer, in milliseconds since `epoch`.
    since: AtomicU64,
    signal: AtomicU8,
    waker: AtomicWaker,
    /// Heads that were let through to the HTTP machine and not yet seen by [`Connection::next_head`].
    heads: AtomicU32,
    /// What is wrong with the last of them, which then stands for what was really sent.
    head_fault: Mutex<Option<HttpError>>,
    body_fault: Mutex<Option<HttpError>>,
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
            head_fault: Mutex::default(),
            body_fault: Mutex::default(),
        };
        connection.touch();
        connection
    }

    pub fn phase(&self) -> Phase {
        let is_receiving = self.is_receiving.load(Ordering::Relaxed);
        if !self.has_received.load(Ordering::Relaxed) {
            Phase::Opening
        } else if is_receiving {
            Phase::Reading
        } else if self.unanswered.load(Ordering::Relaxed) == 0 {
            Phase::Idle
        } else {
            Phase::Busy
        }
    }

    /// When it became idle, if it is.
    pub fn idle_since(&self) -> Option<Instant> {
        (self.phase() == Phase::Idle).then(|| self.epoch + Duration::from_millis(self.since.load(Ordering::Relaxed)))
    }

    /// The first byte of a request has come. One that comes while another is being answered does not count yet.
    pub fn first_byte(&self) {
        if self.phase() == Phase::Idle {
            self.receiving();
        }
    }

    /// Not all of a request has come.
    pub fn receiving(&self) {
        if !self.is_receiving.swap(true, Ordering::Relaxed) {
            self.touch();
        }
    }

    /// All of a request has come.
    pub fn received(&self) {
        self.is_receiving.store(false, Ordering::Relaxed);
        self.has_received.store(true, Ordering::Relaxed);
    }

    /// The answer to a request has been handed on to the last byte.
    pub fn answered(&self) {
        self.touch();
        let less = |count: u32| count.checked_sub(1);
        // Only what the two sides read differently is answered without having been let through, and that closes.
        self.unanswered.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok();
    }

    /// Lets a head through.
    pub fn pass_head(&self) {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        self.heads.fetch_add(1, Ordering::Relaxed);
    }

    /// Lets a head through that stands for what cannot be read; nothing follows it.
    pub fn pass_fault(&self, fault: HttpError) {
        *lock(&self.head_fault) = Some(fault);
        self.pass_head();
    }

    /// What the stream said of the head that the HTTP machine has read just now.
    pub fn next_head(&self) -> Result<(), HttpError> {
        match self.heads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |heads| heads.checked_sub(1)) {
            Ok(1) => lock(&self.head_fault).take().map_or(Ok(()), Err),
            Ok(_) => Ok(()),
            // The stream and the HTTP machine read it differently, so nobody can say what it is.
            Err(_) => Err(HttpError::bad_request("the request cannot be told from the one before")),
        }
    }

    /// Notes why the body of the request that is being read is of no use.
    pub fn spoil_body(&self, fault: HttpError) {
        lock(&self.body_fault).get_or_insert(fault);
    }

    pub fn take_body_fault(&self) -> Option<HttpError> {
        lock(&self.body_fault).take()
    }

    /// Waits for a signal; for one task.
    pub fn poll_signal(&self, context: &Context<'_>) -> Poll<Signal> {
        self.waker.register(context.waker());
        match self.signal.load(Ordering::Acquire) {
            0 => Poll::Pending,
            1 => Poll::Ready(Signal::Finish),
            _ => Poll::Ready(Signal::Leave),
        }
    }

    fn signal(&self, signal: Signal) {
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
    most: usize,
    epoch: Instant,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    by_id: HashMap<u64, Arc<Connection>>,
}

/// A connection's place among [`Connections`]; dropping it is leaving.
#[derive(Debug)]
pub struct Place {
    all: Arc<Connections>,
    id: u64,
    pub connection: Arc<Connection>,
}

impl Connections {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most: most.max(1), epoch: Instant::now(), open: Mutex::default() })
    }

    /// A place for a new connection. Where there is none left, those that have waited longest without a whole request
    /// make room, then those between two requests, so that sockets which only hang on keep nobody out. `None`: all are
    /// being answered.
    pub fn enter(self: &Arc<Self>) -> Option<Place> {
        let mut open = lock(&self.open);
        if open.by_id.len() >= self.most {
            open.give_up((self.most / SHARE).max(1));
        }
        if open.by_id.len() >= self.most {
            return None;
        }
        let id = open.next;
        open.next += 1;
        let connection = Arc::new(Connection::new(self.epoch));
        open.by_id.insert(id, connection.clone());
        Some(Place { all: self.clone(), id, connection })
    }

    /// Tells all of them.
    pub fn signal(&self, signal: Signal) {
        lock(&self.open).by_id.values().for_each(|connection| connection.signal(signal));
    }

    pub fn count(&self) -> usize {
        lock(&self.open).by_id.len()
    }
}

impl Open {
    fn give_up(&mut self, count: usize) {
        let rank = |(id, connection): (&u64, &Arc<Connection>)| {
            let phase = connection.phase();
            (phase != Phase::Busy).then(|| (phase, connection.since.load(Ordering::Relaxed), *id))
        };
        let mut ranks: Vec<_> = self.by_id.iter().filter_map(rank).collect();
        let count = count.min(ranks.len());
        if count == 0 {
            return;
        }
        ranks.select_nth_unstable(count - 1);
        for (_, _, id) in &ranks[..count] {
            if let Some(connection) = self.by_id.remove(id) {
                connection.signal(Signal::Leave);
            }
        }
        tracing::debug!(count, "connections given up to make room");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.all.open).by_id.remove(&self.id);
    }
}

/// What these locks guard is whole between any two statements, so a panic elsewhere has spoilt nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(place: &Place) -> bool {
        place.connection.signal.load(Ordering::Relaxed) == Signal::Leave as u8
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_done_nothing_yet_makes_room_first() {
        let all = Connections::new(4);
        let mut places = Vec::new();
        for _ in 0..4 {
            tokio::time::advance(Duration::from_millis(10)).await;
            places.push(all.enter().unwrap());
        }
        // Of four: one in work, one idle, two slow; the older of the slow ones goes, then the other, then the idle one.
        for place in [&places[0], &places[1]] {
            place.connection.pass_head();
            place.connection.received();
        }
        places[1].connection.answered();
        for (gone, count) in [(2, 1), (3, 2), (1, 3)] {
            let new = all.enter().unwrap();
            new.connection.pass_head();
            new.connection.received();
            assert!(left(&places[gone]), "{gone}");
            assert_eq!(places.iter().filter(|place| left(place)).count(), count);
            places.push(new);
            assert_eq!(all.count(), 4);
        }
        assert!(all.enter().is_none(), "all are being answered");
        assert!(!left(&places[0]));
        drop(places);
        assert_eq!(all.count(), 0);
    }

    #[test]
    fn a_fault_stands_for_the_last_head() {
        let connection = Connection::new(Instant::now());
        connection.pass_head();
        connection.pass_fault(HttpError::bad_request("no"));
        assert_eq!(connection.next_head(), Ok(()));
        assert_eq!(connection.next_head(), Err(HttpError::bad_request("no")));
        assert!(connection.next_head().is_err(), "nobody let that one through");
    }
}
