//! Schedules the retries of turns that wait because no model is available. Their rows are `waiting` in the store; this
//! holds when each is tried again, and which turns sleep until a sub-agent has ended or a person has answered. A turn that
//! is unknown here, such as one that waited when the process ended, may be tried at once.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use daoyou_channels::SessionKey;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::llm::{backoff, random_fraction};

/// The first wait; each further one is twice as long, up to the longest.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// An unreachable service costs little to ask, and a user waits.
pub const LONGEST_OUTAGE_WAIT: Duration = Duration::from_secs(15);
/// A service that is busy or broken is asked less often, and an account is rarely topped up.
pub const LONGEST_FAILURE_WAIT: Duration = Duration::from_secs(60);
pub const LONGEST_QUOTA_WAIT: Duration = Duration::from_secs(600);
/// How many tries another turn's answer may trigger at once; further ones pause this long at least, since the service
/// may answer others and still reject this turn.
const QUICK_TRIES: u32 = 2;
const PAUSE: Duration = Duration::from_secs(1);

/// Schedules retries.
#[derive(Debug)]
pub struct RetryScheduler {
    is_open: bool,
    has_parked: CancellationToken,
    table: Mutex<ParkingTable>,
    changed: Notify,
}

/// What a turn waits for.
#[derive(Clone, Debug)]
pub struct RetryTerms {
    /// The providers that can answer it.
    pub providers: Vec<String>,
    /// When one of them may be asked, if it is known.
    pub retry_after: Option<Duration>,
    /// The longest of the growing waits otherwise.
    pub longest: Duration,
    /// The turn is tried after this time at the latest.
    pub at_latest: Duration,
    /// [`RetryScheduler::mark`] from before the try.
    pub mark: u64,
}

#[derive(Debug, Default)]
struct ParkingTable {
    turns: HashMap<Uuid, ParkedTurn>,
    /// Turns that wait for sub-agents or people; no timer wakes them.
    awaiting_others: HashSet<Uuid>,
    /// The count of answers, and for each provider the number of its last one.
    answers: u64,
    answered: HashMap<String, u64>,
}

#[derive(Debug)]
struct ParkedTurn {
    session: SessionKey,
    providers: Vec<String>,
    tries: u32,
    failed: Instant,
    /// When the turn is tried; `None` while it runs.
    until: Option<Instant>,
}

impl Default for RetryScheduler {
    fn default() -> Self {
        let has_parked = CancellationToken::new();
        Self { is_open: true, has_parked, table: Mutex::default(), changed: Notify::new() }
    }
}

impl RetryScheduler {
    /// Creates a scheduler that accepts no new turns, for a process that ends with its one message. Turns that waited
    /// before go on waiting.
    pub fn closed() -> Self {
        Self { is_open: false, ..Self::default() }
    }

    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns a token that is cancelled as soon as a turn waits.
    pub fn has_parked(&self) -> &CancellationToken {
        &self.has_parked
    }

    /// Returns a mark to be taken before a try, so that an answer during the try is not missed.
    pub fn answer_count(&self) -> u64 {
        self.table.lock().answers
    }

    /// Records that a turn was tried in vain and waits.
    pub fn park(&self, turn: Uuid, session: &SessionKey, awaited: RetryTerms) {
        self.table.lock().park(turn, session, awaited, Instant::now(), random_fraction());
        self.has_parked.cancel();
        self.changed.notify_one();
    }

    /// Reports that a turn waits for a person. For a process that ends with its one message.
    pub fn report_parked(&self) {
        self.has_parked.cancel();
    }

    /// Lets the turn wait until [`RetryScheduler::resume`].
    pub fn await_others(&self, turn: Uuid) {
        self.table.lock().awaiting_others.insert(turn);
    }

    /// Ends that wait; the caller wakes its session.
    pub fn resume(&self, turn: Uuid) {
        self.table.lock().awaiting_others.remove(&turn);
    }

    /// Ends all such waits: a turn that has to wait on is parked again.
    pub fn resume_all(&self) {
        self.table.lock().awaiting_others.clear();
    }

    /// Returns true if the turn must go on waiting.
    pub fn must_wait(&self, turn: Uuid) -> bool {
        let table = self.table.lock();
        table.awaiting_others.contains(&turn) || table.turns.get(&turn).is_some_and(|parked| parked.until.is_some())
    }

    /// Records that the turn is being tried.
    pub fn start_try(&self, turn: Uuid) {
        let mut table = self.table.lock();
        table.awaiting_others.remove(&turn);
        if let Some(parked) = table.turns.get_mut(&turn) {
            parked.until = None;
        }
    }

    /// Forgets a turn that has ended.
    pub fn remove(&self, turn: Uuid) {
        let mut table = self.table.lock();
        table.awaiting_others.remove(&turn);
        table.turns.remove(&turn);
    }

    /// Records that a provider has answered; turns that wait for it are tried now.
    pub fn provider_answered(&self, provider: &str) {
        if self.table.lock().provider_answered(provider, Instant::now()) {
            self.changed.notify_one();
        }
    }

    /// Tries the session's waiting turn now, since another model was chosen.
    pub fn retry_session(&self, session: &SessionKey) {
        let now = Instant::now();
        for parked in
            self.table.lock().turns.values_mut().filter(|parked| parked.session == *session && parked.until.is_some())
        {
            parked.until = Some(now);
        }
        self.changed.notify_one();
    }

    /// Tries all waiting turns now, since the providers have changed.
    pub fn retry_all(&self) {
        let now = Instant::now();
        for parked in self.table.lock().turns.values_mut().filter(|parked| parked.until.is_some()) {
            parked.until = Some(now);
        }
        self.changed.notify_one();
    }

    /// Waits for the next session whose turn is to be tried. For one caller; cancel-safe.
    pub async fn next_due(&self) -> SessionKey {
        loop {
            let changed = self.changed.notified();
            let next = match self.table.lock().next(Instant::now()) {
                NextRetry::Due(session) => return session,
                NextRetry::At(next) => next,
            };
            match next {
                Some(next) => drop(tokio::time::timeout_at(next, changed).await),
                None => changed.await,
            }
        }
    }
}

enum NextRetry {
    Due(SessionKey),
    At(Option<Instant>),
}

impl ParkingTable {
    fn park(&mut self, turn: Uuid, session: &SessionKey, awaited: RetryTerms, now: Instant, chance: f64) {
        let RetryTerms { providers, retry_after, longest, at_latest, mark } = awaited;
        let missed = providers.iter().any(|name| self.answered.get(name).is_some_and(|last| *last > mark));
        let tries = self.turns.get(&turn).map_or(0, |parked| parked.tries) + 1;
        let mut parked = ParkedTurn { session: session.clone(), providers, tries, failed: now, until: None };
        let wait = retry_after.unwrap_or_else(|| backoff(FIRST_WAIT, longest, tries - 1, chance));
        let wait = if missed { parked.pause() } else { wait };
        parked.until = Some(now + wait.min(at_latest));
        self.turns.insert(turn, parked);
    }

    /// Returns true if a turn is to be tried sooner.
    fn provider_answered(&mut self, provider: &str, now: Instant) -> bool {
        self.answers += 1;
        match self.answered.get_mut(provider) {
            Some(last) => *last = self.answers,
            None => drop(self.answered.insert(provider.to_owned(), self.answers)),
        }
        let mut is_sooner = false;
        for parked in self.turns.values_mut().filter(|parked| parked.providers.iter().any(|name| name == provider)) {
            let soonest = now.max(parked.failed + parked.pause());
            if let Some(until) = parked.until.as_mut().filter(|until| **until > soonest) {
                *until = soonest;
                is_sooner = true;
            }
        }
        is_sooner
    }

    fn next(&mut self, now: Instant) -> NextRetry {
        let waiting = self.turns.values_mut().filter_map(|parked| Some((parked.until?, parked)));
        match waiting.min_by_key(|(until, _)| *until) {
            Some((until, parked)) if until <= now => {
                parked.until = None;
                NextRetry::Due(parked.session.clone())
            }
            next => NextRetry::At(next.map(|(until, _)| until)),
        }
    }
}

impl ParkedTurn {
    fn pause(&self) -> Duration {
        if self.tries <= QUICK_TRIES { Duration::ZERO } else { PAUSE }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{sleep, timeout};

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn awaited(provider: &str) -> RetryTerms {
        let longest = LONGEST_OUTAGE_WAIT;
        RetryTerms { providers: vec![provider.to_owned()], retry_after: None, longest, at_latest: LONG, mark: 0 }
    }

    fn wait_of(table: &ParkingTable, turn: Uuid, now: Instant) -> Duration {
        table.turns[&turn].until.map(|until| until - now).unwrap_or_default()
    }

    #[test]
    fn waits_grow_up_to_the_longest_and_end_at_the_latest() {
        let (mut table, now, turn, session) = (ParkingTable::default(), Instant::now(), Uuid::from_u128(1), "s".into());
        for expected in [1, 2, 4, 8, 15, 15] {
            table.park(turn, &session, awaited("p"), now, 1.0);
            assert_eq!(wait_of(&table, turn, now).as_secs(), expected);
        }
        for (retry_after, at_latest, expected) in [(Some(45), 600, 45), (Some(3_000), 600, 600), (None, 7, 7)] {
            let retry_after = retry_after.map(Duration::from_secs);
            let awaited = RetryTerms { retry_after, at_latest: Duration::from_secs(at_latest), ..awaited("p") };
            table.park(turn, &session, awaited, now, 1.0);
            assert_eq!(wait_of(&table, turn, now).as_secs(), expected);
        }
    }

    #[test]
    fn an_answer_retries_the_turns_that_wait_for_its_provider_even_if_it_came_during_the_try() {
        let (mut table, now) = (ParkingTable::default(), Instant::now());
        let [one, other, late] = [1, 2, 3].map(Uuid::from_u128);
        table.park(one, &"one".into(), awaited("p"), now, 1.0);
        table.park(other, &"other".into(), awaited("q"), now, 1.0);
        assert!(matches!(table.next(now), NextRetry::At(Some(_))));
        assert!(table.provider_answered("p", now) && !table.provider_answered("nobody's", now));
        assert!(matches!(table.next(now), NextRetry::Due(session) if session.as_str() == "one"));
        assert!(matches!(table.next(now), NextRetry::At(Some(at)) if at > now), "called once");
        table.park(late, &"late".into(), awaited("p"), now, 1.0);
        assert_eq!(wait_of(&table, late, now), Duration::ZERO, "the answer came after it had asked");
        table.park(late, &"late".into(), RetryTerms { mark: table.answers, ..awaited("p") }, now, 1.0);
        assert_eq!(wait_of(&table, late, now).as_secs(), 2);
        // What is given to others and not to this one does not make it ask without end.
        for _ in 0..3 {
            table.park(late, &"late".into(), awaited("p"), now, 1.0);
        }
        table.provider_answered("p", now);
        assert_eq!(wait_of(&table, late, now), PAUSE);
    }

    #[tokio::test(start_paused = true)]
    async fn each_turn_is_retried_when_it_is_due() {
        let room = RetryScheduler::default();
        let turn = Uuid::from_u128(1);
        let began = Instant::now();
        let ((), session) = tokio::join!(
            async {
                sleep(Duration::from_secs(5)).await;
                room.park(turn, &"s".into(), RetryTerms { retry_after: Some(Duration::from_secs(3)), ..awaited("p") });
                assert!(room.must_wait(turn));
            },
            room.next_due()
        );
        assert_eq!((session.as_str(), began.elapsed().as_secs()), ("s", 8));
        assert!(!room.must_wait(turn) && room.is_open() && !RetryScheduler::closed().is_open());
        room.park(turn, &"s".into(), RetryTerms { retry_after: Some(Duration::from_secs(300)), ..awaited("p") });
        room.retry_session(&"other".into());
        assert!(
            timeout(Duration::from_secs(200), room.next_due()).await.is_err(),
            "another session's model is of no use here"
        );
        room.retry_session(&"s".into());
        assert_eq!(timeout(Duration::ZERO, room.next_due()).await.unwrap().as_str(), "s");
        room.remove(turn);
        assert!(room.table.lock().turns.is_empty());
    }
}
