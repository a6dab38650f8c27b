//! Turns that wait because no model can be reached. The rows are in the store as `waiting`; here stands when each is
//! tried again, and which turns sleep until a sub-agent has ended. A turn that is not here, such as one that waited when the process ended, may be tried at once.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use daoyou_channels::SessionKey;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::llm::{backoff, random_fraction};

/// The first wait, doubled with each up to the longest.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// To find nobody there costs next to nothing, and somebody sits there waiting.
pub(super) const LONGEST_OUTAGE_WAIT: Duration = Duration::from_secs(15);
/// A service that is busy or broken is asked less often, and an account fills up rarely.
pub(super) const LONGEST_FAILURE_WAIT: Duration = Duration::from_secs(60);
pub(super) const LONGEST_QUOTA_WAIT: Duration = Duration::from_secs(600);
/// Tries that an answer to somebody else may bring about at once; then each takes this long at least, as what others are
/// given may be refused to this one.
const QUICK_TRIES: u32 = 2;
const PAUSE: Duration = Duration::from_secs(1);

/// When the turns that wait are tried again.
#[derive(Debug)]
pub struct WaitingRoom {
    is_open: bool,
    rested: CancellationToken,
    book: Mutex<Book>,
    changed: Notify,
}

/// What a turn waits for.
#[derive(Clone, Debug)]
pub struct Awaited {
    /// Those that can answer it.
    pub providers: Vec<String>,
    /// When one of them may be asked, if that is known.
    pub retry_after: Option<Duration>,
    /// The longest of the backoff waits, where that is not known.
    pub longest: Duration,
    /// The turn is tried then at the latest.
    pub at_latest: Duration,
    /// What [`WaitingRoom::mark`] said before it was tried.
    pub mark: u64,
}

#[derive(Debug, Default)]
struct Book {
    turns: HashMap<Uuid, Guest>,
    /// Those that wait for sub-agents; no time wakes them.
    asleep: HashSet<Uuid>,
    /// How many answers came, and of each provider the number of its last one.
    answers: u64,
    answered: HashMap<String, u64>,
}

#[derive(Debug)]
struct Guest {
    session: SessionKey,
    providers: Vec<String>,
    tries: u32,
    failed: Instant,
    /// When it is tried; none while it is.
    until: Option<Instant>,
}

impl Default for WaitingRoom {
    fn default() -> Self {
        let rested = CancellationToken::new();
        Self { is_open: true, rested, book: Mutex::default(), changed: Notify::new() }
    }
}

impl WaitingRoom {
    /// A room that takes nobody new: for a gateway that is gone as soon as its one message is answered. Who waited before it
    /// came waits on.
    pub fn closed() -> Self {
        Self { is_open: false, ..Self::default() }
    }

    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Cancelled as soon as somebody waits here.
    pub fn rested(&self) -> &CancellationToken {
        &self.rested
    }

    /// To be taken before a turn is tried, so that an answer which comes meanwhile is not missed.
    pub fn mark(&self) -> u64 {
        self.lock().answers
    }

    /// The turn was tried and waits.
    pub fn enter(&self, turn: Uuid, session: &SessionKey, awaited: Awaited) {
        self.lock().enter(turn, session, awaited, Instant::now(), random_fraction());
        self.rested.cancel();
        self.changed.notify_one();
    }

    /// The turn waits until [`WaitingRoom::rouse`].
    pub fn sleep(&self, turn: Uuid) {
        self.lock().asleep.insert(turn);
    }

    /// What the turn waited for has come; its session is for the caller to wake.
    pub fn rouse(&self, turn: Uuid) {
        self.lock().asleep.remove(&turn);
    }

    /// Whether the turn waits, and not yet long enough.
    pub fn holds(&self, turn: Uuid) -> bool {
        let book = self.lock();
        book.asleep.contains(&turn) || book.turns.get(&turn).is_some_and(|guest| guest.until.is_some())
    }

    /// The turn is being tried.
    pub fn call(&self, turn: Uuid) {
        let mut book = self.lock();
        book.asleep.remove(&turn);
        if let Some(guest) = book.turns.get_mut(&turn) {
            guest.until = None;
        }
    }

    /// The turn has ended.
    pub fn leave(&self, turn: Uuid) {
        let mut book = self.lock();
        book.asleep.remove(&turn);
        book.turns.remove(&turn);
    }

    /// A provider has answered somebody: those who wait for it are tried now.
    pub fn answered(&self, provider: &str) {
        if self.lock().answered(provider, Instant::now()) {
            self.changed.notify_one();
        }
    }

    /// Another model was chosen for a session: its turn is tried now, if it waits.
    pub fn call_session(&self, session: &SessionKey) {
        let now = Instant::now();
        for guest in self.lock().turns.values_mut().filter(|guest| guest.session == *session && guest.until.is_some()) {
            guest.until = Some(now);
        }
        self.changed.notify_one();
    }

    /// What may answer has changed: all who wait are tried now.
    pub fn call_everybody(&self) {
        let now = Instant::now();
        for guest in self.lock().turns.values_mut().filter(|guest| guest.until.is_some()) {
            guest.until = Some(now);
        }
        self.changed.notify_one();
    }

    /// Completes when a session's turn is to be tried. For one caller; dropped, it has done nothing.
    pub async fn due(&self) -> SessionKey {
        loop {
            let changed = self.changed.notified();
            let next = match self.lock().next(Instant::now()) {
                Next::Due(session) => return session,
                Next::At(next) => next,
            };
            match next {
                Some(next) => drop(tokio::time::timeout_at(next, changed).await),
                None => changed.await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Next {
    Due(SessionKey),
    At(Option<Instant>),
}

impl Book {
    fn enter(&mut self, turn: Uuid, session: &SessionKey, awaited: Awaited, now: Instant, chance: f64) {
        let Awaited { providers, retry_after, longest, at_latest, mark } = awaited;
        let missed = providers.iter().any(|name| self.answered.get(name).is_some_and(|last| *last > mark));
        let tries = self.turns.get(&turn).map_or(0, |guest| guest.tries) + 1;
        let mut guest = Guest { session: session.clone(), providers, tries, failed: now, until: None };
        let wait = retry_after.unwrap_or_else(|| backoff(FIRST_WAIT, longest, tries - 1, chance));
        let wait = if missed { guest.pause() } else { wait };
        guest.until = Some(now + wait.min(at_latest));
        self.turns.insert(turn, guest);
    }

    /// Answers whether somebody is to be tried sooner.
    fn answered(&mut self, provider: &str, now: Instant) -> bool {
        self.answers += 1;
        match self.answered.get_mut(provider) {
            Some(last) => *last = self.answers,
            None => drop(self.answered.insert(provider.to_owned(), self.answers)),
        }
        let mut is_sooner = false;
        for guest in self.turns.values_mut().filter(|guest| guest.providers.iter().any(|name| name == provider)) {
            let soonest = now.max(guest.failed + guest.pause());
            if let Some(until) = guest.until.as_mut().filter(|until| **until > soonest) {
                *until = soonest;
                is_sooner = true;
            }
        }
        is_sooner
    }

    fn next(&mut self, now: Instant) -> Next {
        let waiting = self.turns.values_mut().filter_map(|guest| Some((guest.until?, guest)));
        match waiting.min_by_key(|(until, _)| *until) {
            Some((until, guest)) if until <= now => {
                guest.until = None;
                Next::Due(guest.session.clone())
            }
            next => Next::At(next.map(|(until, _)| until)),
        }
    }
}

impl Guest {
    fn pause(&self) -> Duration {
        if self.tries <= QUICK_TRIES { Duration::ZERO } else { PAUSE }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{sleep, timeout};

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn awaited(provider: &str) -> Awaited {
        let longest = LONGEST_OUTAGE_WAIT;
        Awaited { providers: vec![provider.to_owned()], retry_after: None, longest, at_latest: LONG, mark: 0 }
    }

    fn wait_of(book: &Book, turn: Uuid, now: Instant) -> Duration {
        book.turns[&turn].until.map(|until| until - now).unwrap_or_default()
    }

    #[test]
    fn waits_grow_up_to_the_longest_and_end_at_the_latest() {
        let (mut book, now, turn, session) = (Book::default(), Instant::now(), Uuid::from_u128(1), "s".into());
        for expected in [1, 2, 4, 8, 15, 15] {
            book.enter(turn, &session, awaited("p"), now, 1.0);
            assert_eq!(wait_of(&book, turn, now).as_secs(), expected);
        }
        for (retry_after, at_latest, expected) in [(Some(45), 600, 45), (Some(3_000), 600, 600), (None, 7, 7)] {
            let retry_after = retry_after.map(Duration::from_secs);
            let awaited = Awaited { retry_after, at_latest: Duration::from_secs(at_latest), ..awaited("p") };
            book.enter(turn, &session, awaited, now, 1.0);
            assert_eq!(wait_of(&book, turn, now).as_secs(), expected);
        }
    }

    #[test]
    fn an_answer_calls_those_who_wait_for_that_provider_also_when_it_came_just_before() {
        let (mut book, now) = (Book::default(), Instant::now());
        let [one, other, late] = [1, 2, 3].map(Uuid::from_u128);
        book.enter(one, &"one".into(), awaited("p"), now, 1.0);
        book.enter(other, &"other".into(), awaited("q"), now, 1.0);
        assert!(matches!(book.next(now), Next::At(Some(_))));
        assert!(book.answered("p", now) && !book.answered("nobody's", now));
        assert!(matches!(book.next(now), Next::Due(session) if session.as_str() == "one"));
        assert!(matches!(book.next(now), Next::At(Some(at)) if at > now), "called once");
        book.enter(late, &"late".into(), awaited("p"), now, 1.0);
        assert_eq!(wait_of(&book, late, now), Duration::ZERO, "the answer came after it had asked");
        book.enter(late, &"late".into(), Awaited { mark: book.answers, ..awaited("p") }, now, 1.0);
        assert_eq!(wait_of(&book, late, now).as_secs(), 2);
        // What is given to others and not to this one does not make it ask without end.
        for _ in 0..3 {
            book.enter(late, &"late".into(), awaited("p"), now, 1.0);
        }
        book.answered("p", now);
        assert_eq!(wait_of(&book, late, now), PAUSE);
    }

    #[tokio::test(start_paused = true)]
    async fn the_room_calls_each_when_its_time_has_come() {
        let room = WaitingRoom::default();
        let turn = Uuid::from_u128(1);
        let began = Instant::now();
        let ((), session) = tokio::join!(
            async {
                sleep(Duration::from_secs(5)).await;
                room.enter(turn, &"s".into(), Awaited { retry_after: Some(Duration::from_secs(3)), ..awaited("p") });
                assert!(room.holds(turn));
            },
            room.due()
        );
        assert_eq!((session.as_str(), began.elapsed().as_secs()), ("s", 8));
        assert!(!room.holds(turn) && room.is_open() && !WaitingRoom::closed().is_open());
        room.enter(turn, &"s".into(), Awaited { retry_after: Some(Duration::from_secs(300)), ..awaited("p") });
        room.call_session(&"other".into());
        assert!(
            timeout(Duration::from_secs(200), room.due()).await.is_err(),
            "another session's model is of no use here"
        );
        room.call_session(&"s".into());
        assert_eq!(timeout(Duration::ZERO, room.due()).await.unwrap().as_str(), "s");
        room.leave(turn);
        assert!(room.lock().turns.is_empty());
    }
}
