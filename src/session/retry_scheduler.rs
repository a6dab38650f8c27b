//! Schedules the retries of turns that wait because no model is available. Their rows are `waiting` in the store. The scheduler
//! holds the next retry time of each turn, and the turns that sleep until a sub-agent has ended or a person has answered. A turn
//! that the scheduler does not know may be retried at once. The retries of turns that waited when the process ended are spread.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use daoyou_channels::SessionKey;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::llm::{backoff, random_fraction};

/// The first wait; each further wait is twice as long, up to the longest.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait for an unreachable service. It is short: a request costs little, and a user waits.
pub const LONGEST_OUTAGE_WAIT: Duration = Duration::from_secs(15);
/// The longest waits for a service that is busy or broken, and for an account without credit. Such services are asked less often.
pub const LONGEST_FAILURE_WAIT: Duration = Duration::from_secs(60);
pub const LONGEST_QUOTA_WAIT: Duration = Duration::from_secs(600);
/// The number of retries that answers to other turns may trigger at once. Further such retries come after growing waits, since
/// the service may answer others and still reject this turn.
const QUICK_RETRIES: u32 = 2;
/// The longest of these waits.
const LONGEST_AFTER_ANSWER: Duration = Duration::from_secs(60);
/// The longest time after a restart in which failures of other turns postpone the first try of a turn that waited before. The turns
/// end these waits one after the other, in its second half.
const LONGEST_RESTORED_WAIT: Duration = Duration::from_secs(600);

/// Schedules the retries of waiting turns.
#[derive(Debug)]
pub struct RetryScheduler {
    is_open: bool,
    has_parked: CancellationToken,
    table: Mutex<ParkingTable>,
    changed: Notify,
}

/// The conditions under which a turn is retried.
#[derive(Clone, Debug)]
pub struct RetryTerms {
    /// The providers that can answer the turn.
    pub providers: Vec<String>,
    /// The time until one of the providers may be asked, if it is known.
    pub retry_after: Option<Duration>,
    /// The upper limit of the growing waits, if that time is unknown.
    pub longest: Duration,
    /// The longest time until the turn is retried.
    pub at_latest: Duration,
    /// [`RetryScheduler::answer_count`] from before the try.
    pub answer_count: u64,
}

#[derive(Debug, Default)]
struct ParkingTable {
    turns: HashMap<Uuid, ParkedTurn>,
    /// Turns that wait for sub-agents or people; no timer wakes them.
    awaiting_others: HashSet<Uuid>,
    /// The count of answers, and the number of each provider's last answer.
    answers: u64,
    answered: HashMap<String, u64>,
}

#[derive(Debug)]
struct ParkedTurn {
    session: SessionKey,
    /// The providers that can answer the turn; empty if they are unknown, because the turn waited when the last process ended.
    providers: Vec<String>,
    tries: u32,
    /// The retries that an answer to another turn triggered. All of them failed.
    retries_after_answers: u32,
    /// The upper limit of the growing waits.
    longest: Duration,
    failed: Instant,
    /// The time of the next try; `None` while the turn runs.
    until: Option<Instant>,
    /// The latest first try of a restored turn.
    latest: Instant,
}

impl Default for RetryScheduler {
    fn default() -> Self {
        let has_parked = CancellationToken::new();
        Self { is_open: true, has_parked, table: Mutex::default(), changed: Notify::new() }
    }
}

impl RetryScheduler {
    /// Creates a scheduler that accepts no new turns, for a process that ends after its single message. Turns that waited before
    /// continue to wait.
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

    /// Returns the current count of answers. A caller reads it before a try, so that an answer during the try is not missed.
    pub fn answer_count(&self) -> u64 {
        self.table.lock().answers
    }

    /// Records that a turn was tried without success and waits.
    pub fn park(&self, turn: Uuid, session: &SessionKey, awaited: RetryTerms) {
        self.table.lock().park(turn, session, awaited, Instant::now(), random_fraction());
        self.has_parked.cancel();
        self.changed.notify_one();
    }

    /// Reports that a turn waits for a person, in a process that ends after its single message.
    pub fn report_parked(&self) {
        self.has_parked.cancel();
    }

    /// Restores the waits of turns that waited for a model when the last process ended. Their services may be the same one, and may have
    /// asked for a longer wait: the first turn is tried at once, the others one after the other, later after each failure, and at
    /// once after an answer.
    pub fn restore(&self, turns: impl IntoIterator<Item = (Uuid, SessionKey)>) {
        let mut table = self.table.lock();
        for (number, (turn, session)) in turns.into_iter().enumerate() {
            let chance = if number == 0 { 0.0 } else { random_fraction() };
            table.restore(turn, session, Instant::now(), chance);
        }
        self.changed.notify_one();
    }

    /// Makes the turn wait until [`RetryScheduler::resume`].
    pub fn await_others(&self, turn: Uuid) {
        self.table.lock().awaiting_others.insert(turn);
    }

    /// Ends the wait of [`RetryScheduler::await_others`]; the caller wakes the session.
    pub fn resume(&self, turn: Uuid) {
        self.table.lock().awaiting_others.remove(&turn);
    }

    /// Ends the waits of all such turns: a turn that must wait longer is parked again.
    pub fn resume_all(&self) {
        self.table.lock().awaiting_others.clear();
    }

    /// Returns true if the turn must continue to wait.
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

    /// Removes a turn that has ended.
    pub fn remove(&self, turn: Uuid) {
        let mut table = self.table.lock();
        table.awaiting_others.remove(&turn);
        table.turns.remove(&turn);
    }

    /// Records that a provider has answered, and retries the turns that wait for it.
    pub fn provider_answered(&self, provider: &str) {
        if self.table.lock().provider_answered(provider, Instant::now()) {
            self.changed.notify_one();
        }
    }

    /// Retries the session's waiting turn now, because another model was chosen.
    pub fn retry_session(&self, session: &SessionKey) {
        self.retry(|parked| parked.session == *session);
    }

    /// Retries all waiting turns now, because the providers have changed.
    pub fn retry_all(&self) {
        self.retry(|_| true);
    }

    fn retry(&self, applies: impl Fn(&ParkedTurn) -> bool) {
        let now = Instant::now();
        for parked in self.table.lock().turns.values_mut().filter(|parked| parked.until.is_some() && applies(parked)) {
            parked.until = Some(now);
        }
        self.changed.notify_one();
    }

    /// Waits for the next session whose turn is due for a retry. It has one caller and is cancel-safe.
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
        let RetryTerms { providers, retry_after, longest, at_latest, answer_count } = awaited;
        let missed = providers.iter().any(|name| self.answered.get(name).is_some_and(|last| *last > answer_count));
        let before = self.turns.get(&turn);
        let tries = before.map_or(0, |parked| parked.tries) + 1;
        let retries_after_answers = before.map_or(0, |parked| parked.retries_after_answers);
        let session = session.clone();
        let mut parked = ParkedTurn {
            session,
            providers,
            tries,
            retries_after_answers,
            longest,
            failed: now,
            until: None,
            latest: now,
        };
        let wait = retry_after.unwrap_or_else(|| backoff(FIRST_WAIT, longest, tries - 1, chance));
        parked.until = Some(now + wait.min(at_latest));
        if missed {
            parked.retry_after_answer(now);
        }
        self.turns.insert(turn, parked);
        // Which services the restored turns wait for is not stored; perhaps for this one, which asks for a wait.
        let Some(wait) = retry_after.map(|wait| wait.min(LONGEST_FAILURE_WAIT)) else { return };
        for restored in self.turns.values_mut().filter(|parked| parked.is_restored()) {
            restored.postpone(now + wait.mul_f64(1.0 + random_fraction()));
        }
    }

    fn restore(&mut self, turn: Uuid, session: SessionKey, now: Instant, chance: f64) {
        let restored = ParkedTurn {
            session,
            providers: Vec::new(),
            tries: 0,
            retries_after_answers: 0,
            longest: LONGEST_OUTAGE_WAIT,
            failed: now,
            until: Some(now + LONGEST_OUTAGE_WAIT.mul_f64(chance)),
            latest: now + LONGEST_RESTORED_WAIT.mul_f64(0.5 + chance / 2.0),
        };
        self.turns.insert(turn, restored);
    }

    /// Returns true if a turn is due sooner than before.
    fn provider_answered(&mut self, provider: &str, now: Instant) -> bool {
        self.answers += 1;
        self.answered.insert(provider.to_owned(), self.answers);
        let mut is_sooner = false;
        let may_answer =
            |parked: &&mut ParkedTurn| parked.is_restored() || parked.providers.iter().any(|name| name == provider);
        for parked in self.turns.values_mut().filter(may_answer) {
            is_sooner |= parked.retry_after_answer(now);
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
    /// Returns true if the turn waited when the last process ended, and was not tried since.
    fn is_restored(&self) -> bool {
        self.providers.is_empty()
    }

    /// Delays the first try of a restored turn, because another turn has failed.
    fn postpone(&mut self, until: Instant) {
        let until = until.min(self.latest);
        self.until = self.until.map(|before| before.max(until));
    }

    /// Retries the turn because its provider has answered another one. Returns true if the turn is due sooner than before.
    fn retry_after_answer(&mut self, now: Instant) -> bool {
        let pause = match self.retries_after_answers.checked_sub(QUICK_RETRIES) {
            Some(further) => backoff(FIRST_WAIT, self.longest.min(LONGEST_AFTER_ANSWER), further, 1.0),
            None => Duration::ZERO,
        };
        let soonest = now.max(self.failed + pause);
        let is_sooner = self.until.is_some_and(|until| until > soonest);
        if is_sooner {
            self.until = Some(soonest);
            self.retries_after_answers += 1;
        }
        is_sooner
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{sleep, timeout};

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn awaited(provider: &str) -> RetryTerms {
        let longest = LONGEST_OUTAGE_WAIT;
        RetryTerms {
            providers: vec![provider.to_owned()],
            retry_after: None,
            longest,
            at_latest: LONG,
            answer_count: 0,
        }
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
        table.park(late, &"late".into(), RetryTerms { answer_count: table.answers, ..awaited("p") }, now, 1.0);
        assert_eq!(wait_of(&table, late, now).as_secs(), 2);
    }

    /// After a restart, the turns that wait do not ask their service at once, whose request to wait is not known any more.
    #[test]
    fn turns_that_waited_before_a_restart_are_tried_one_after_the_other() {
        let (mut table, now) = (ParkingTable::default(), Instant::now());
        let [first, second, third] = [1, 2, 3].map(Uuid::from_u128);
        for (turn, session, chance) in [(first, "1", 0.0), (second, "2", 0.2), (third, "3", 0.8)] {
            table.restore(turn, session.into(), now, chance);
        }
        assert_eq!([first, second, third].map(|turn| wait_of(&table, turn, now).as_secs()), [0, 3, 12]);
        assert!(matches!(table.next(now), NextRetry::Due(session) if session.as_str() == "1"));
        assert!(matches!(table.next(now), NextRetry::At(Some(at)) if at > now));
        let asked_to_wait = RetryTerms { retry_after: Some(LONG), ..awaited("p") };
        table.park(first, &"1".into(), asked_to_wait.clone(), now, 1.0);
        for turn in [second, third] {
            assert!(wait_of(&table, turn, now) >= LONGEST_FAILURE_WAIT, "the service asks for a wait");
        }
        let late = now + LONGEST_RESTORED_WAIT;
        table.park(first, &"1".into(), asked_to_wait, late, 1.0);
        let ends = [second, third].map(|turn| wait_of(&table, turn, now).as_secs());
        assert_eq!(ends, [360, 540], "its own service may answer, and does not get all turns at once");
        table.provider_answered("q", now);
        assert!([second, third].iter().all(|turn| wait_of(&table, *turn, now).is_zero()));
        assert_eq!(table.turns[&first].until, Some(late + LONG), "it waits for another provider");
    }

    /// Answers that others get and this turn does not get must not make it retry endlessly.
    #[test]
    fn a_turn_that_fails_while_others_are_answered_waits_longer_each_time() {
        let (mut table, mut now, turn) = (ParkingTable::default(), Instant::now(), Uuid::from_u128(1));
        let mut waits = Vec::new();
        for _ in 0..9 {
            let answer_count = table.answers;
            table.park(turn, &"s".into(), RetryTerms { answer_count, ..awaited("p") }, now, 1.0);
            // The others are answered each second.
            for second in 0..60 {
                table.provider_answered("p", now + Duration::from_secs(second));
            }
            waits.push(wait_of(&table, turn, now).as_secs());
            now += wait_of(&table, turn, now);
        }
        assert_eq!(waits, [0, 0, 1, 2, 4, 8, 15, 15, 15]);
    }

    #[tokio::test(start_paused = true)]
    async fn each_turn_is_retried_when_it_is_due() {
        let scheduler = RetryScheduler::default();
        let turn = Uuid::from_u128(1);
        let began = Instant::now();
        let ((), session) = tokio::join!(
            async {
                sleep(Duration::from_secs(5)).await;
                scheduler.park(
                    turn,
                    &"s".into(),
                    RetryTerms { retry_after: Some(Duration::from_secs(3)), ..awaited("p") },
                );
                assert!(scheduler.must_wait(turn));
            },
            scheduler.next_due()
        );
        assert_eq!((session.as_str(), began.elapsed().as_secs()), ("s", 8));
        assert!(!scheduler.must_wait(turn) && scheduler.is_open() && !RetryScheduler::closed().is_open());
        scheduler.park(turn, &"s".into(), RetryTerms { retry_after: Some(Duration::from_secs(300)), ..awaited("p") });
        scheduler.retry_session(&"other".into());
        assert!(
            timeout(Duration::from_secs(200), scheduler.next_due()).await.is_err(),
            "another session's model is of no use here"
        );
        scheduler.retry_session(&"s".into());
        assert_eq!(timeout(Duration::ZERO, scheduler.next_due()).await.unwrap().as_str(), "s");
        scheduler.remove(turn);
        assert!(scheduler.table.lock().turns.is_empty());
    }
}
