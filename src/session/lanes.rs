//! Decides which session runs next. This is pure code: it holds names and counts, while the rows are in the store. It holds no
//! sessions without work.

use std::collections::{HashMap, HashSet, VecDeque};

use daoyou_channels::SessionKey;

/// The lanes of sessions: a session runs one turn at a time, in order, and a bounded number of sessions runs in parallel. Sub-agents
/// have their own slots, so that they and the turns that wait for them never block each other.
pub struct Lanes {
    bounds: ConcurrencyLimits,
    /// The sessions that this process runs; `None` means all.
    only: Option<HashSet<SessionKey>>,
    /// The running sessions, each with whether it must be checked again when its turn ends.
    running: HashMap<SessionKey, bool>,
    /// The number of running sub-agents.
    sub_agents: usize,
    ready: VecDeque<SessionKey>,
    ready_sub_agents: VecDeque<SessionKey>,
    in_ready: HashSet<SessionKey>,
    suspects: VecDeque<SessionKey>,
    alone: Option<SessionKey>,
}

/// The maximum number of sessions, and the maximum number of sub-agents, that run in parallel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConcurrencyLimits {
    pub turns: usize,
    pub sub_agents: usize,
}

/// Whether a session's turn runs in parallel with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    Shared,
    /// No other turn runs until this turn has made progress: this turn may have crashed the gateway.
    Alone,
}

impl Lanes {
    /// Creates lanes within `bounds`. With `only`, they run that session and the sessions that are admitted later.
    pub fn new(bounds: ConcurrencyLimits, only: Option<SessionKey>) -> Self {
        Self {
            bounds,
            only: only.map(|session| HashSet::from([session])),
            running: HashMap::new(),
            sub_agents: 0,
            ready: VecDeque::new(),
            ready_sub_agents: VecDeque::new(),
            in_ready: HashSet::new(),
            suspects: VecDeque::new(),
            alone: None,
        }
    }

    /// Changes the limits; running turns continue.
    pub fn set_limits(&mut self, bounds: ConcurrencyLimits) {
        self.bounds = bounds;
    }

    /// Adds this session to those that this process runs.
    pub fn admit(&mut self, session: &SessionKey) {
        if let Some(only) = &mut self.only {
            only.insert(session.clone());
        }
    }

    /// Queues a session that may have work.
    pub fn wake(&mut self, session: SessionKey) {
        if self.only.as_ref().is_some_and(|only| !only.contains(&session)) {
            return;
        }
        if let Some(again) = self.running.get_mut(&session) {
            *again = true;
        } else if self.in_ready.insert(session.clone()) {
            self.ready_like(&session).push_back(session);
        }
    }

    /// Queues the session so that its next turn runs alone, before all others.
    pub fn suspect(&mut self, session: SessionKey) {
        let ours = self.only.as_ref().is_none_or(|only| only.contains(&session));
        if ours && !self.suspects.contains(&session) {
            self.suspects.push_back(session);
        }
    }

    /// Returns the next session, if one may run now.
    pub fn take_next(&mut self) -> Option<(SessionKey, Isolation)> {
        if self.alone.is_some() {
            return None;
        }
        if !self.suspects.is_empty() {
            if !self.running.is_empty() {
                return None;
            }
            let session = self.suspects.pop_front()?;
            if self.in_ready.remove(&session) {
                self.ready_like(&session).retain(|ready| *ready != session);
            }
            self.begin(&session);
            self.alone = Some(session.clone());
            return Some((session, Isolation::Alone));
        }
        let may_turn = self.running.len() - self.sub_agents < self.bounds.turns.max(1);
        let may_sub_agent = self.sub_agents < self.bounds.sub_agents.max(1);
        let turn = if may_turn { self.ready.pop_front() } else { None };
        let session = turn.or_else(|| if may_sub_agent { self.ready_sub_agents.pop_front() } else { None })?;
        self.in_ready.remove(&session);
        self.begin(&session);
        Some((session, Isolation::Shared))
    }

    fn begin(&mut self, session: &SessionKey) {
        self.sub_agents += usize::from(is_sub_agents(session));
        self.running.insert(session.clone(), false);
    }

    fn ready_like(&mut self, session: &SessionKey) -> &mut VecDeque<SessionKey> {
        if is_sub_agents(session) { &mut self.ready_sub_agents } else { &mut self.ready }
    }

    /// Ends the isolation of `session`, because its turn has made progress; other sessions may run again. Does nothing
    /// for another session.
    pub fn end_isolation(&mut self, session: &SessionKey) {
        if self.alone.as_ref() == Some(session) {
            self.alone = None;
        }
    }

    /// Records the end of a session's turn. With `more` messages, the session goes to the end of the queue, so that it does not
    /// delay others.
    pub fn ended(&mut self, session: &SessionKey, more: bool) {
        self.end_isolation(session);
        let again = self.running.remove(session);
        if again.is_some() {
            self.sub_agents -= usize::from(is_sub_agents(session));
        }
        let again = again.unwrap_or(false);
        if more || again {
            self.wake(session.clone());
        }
    }

    /// Returns the number of running turns.
    pub fn running(&self) -> usize {
        self.running.len()
    }
}

fn is_sub_agents(session: &SessionKey) -> bool {
    session.as_str().starts_with("spawn:")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> SessionKey {
        SessionKey::from(name)
    }

    fn lanes_of(turns: usize, only: Option<SessionKey>) -> Lanes {
        Lanes::new(ConcurrencyLimits { turns, sub_agents: 2 }, only)
    }

    fn next(lanes: &mut Lanes) -> Option<String> {
        lanes.take_next().map(|(session, _)| session.to_string())
    }

    #[test]
    fn a_busy_session_does_not_delay_others_and_never_runs_twice_at_once() {
        let mut lanes = lanes_of(1, None);
        for name in ["a", "a", "b", "a"] {
            lanes.wake(key(name));
        }
        let mut order = Vec::new();
        for _ in 0..4 {
            let session = next(&mut lanes).unwrap();
            assert_eq!(next(&mut lanes), None, "one slot");
            lanes.ended(&key(&session), session == "a");
            order.push(session);
        }
        assert_eq!(order, ["a", "b", "a", "a"]);

        let mut lanes = lanes_of(8, None);
        lanes.wake(key("a"));
        assert_eq!(next(&mut lanes).as_deref(), Some("a"));
        lanes.wake(key("a"));
        assert_eq!(next(&mut lanes), None, "it runs already");
        lanes.ended(&key("a"), false);
        assert_eq!(next(&mut lanes).as_deref(), Some("a"), "it was woken while it ran");
        lanes.ended(&key("a"), false);
        assert_eq!((next(&mut lanes), lanes.running.len(), lanes.in_ready.len()), (None, 0, 0));
    }

    #[test]
    fn sub_agents_have_slots_of_their_own() {
        let mut lanes = lanes_of(1, None);
        for name in ["spawn:1", "a", "b", "spawn:2", "spawn:3"] {
            lanes.wake(key(name));
        }
        let all: Vec<_> = std::iter::from_fn(|| next(&mut lanes)).collect();
        assert_eq!(all, ["a", "spawn:1", "spawn:2"]);
        lanes.ended(&key("spawn:1"), false);
        assert_eq!((next(&mut lanes).as_deref(), next(&mut lanes)), (Some("spawn:3"), None));
        lanes.ended(&key("a"), false);
        assert_eq!((next(&mut lanes).as_deref(), next(&mut lanes)), (Some("b"), None));
        for name in ["spawn:2", "spawn:3", "b"] {
            lanes.ended(&key(name), false);
        }
        assert_eq!((lanes.running(), lanes.sub_agents), (0, 0));
    }

    #[test]
    fn suspects_run_alone_until_they_progress() {
        let mut lanes = lanes_of(8, None);
        lanes.wake(key("good"));
        lanes.wake(key("bad"));
        lanes.suspect(key("bad"));
        assert_eq!(lanes.take_next(), Some((key("bad"), Isolation::Alone)));
        assert_eq!(lanes.take_next(), None);
        lanes.end_isolation(&key("bad"));
        assert_eq!(lanes.take_next(), Some((key("good"), Isolation::Shared)));
        lanes.ended(&key("bad"), false);
        assert_eq!(lanes.take_next(), None);
    }

    #[test]
    fn a_gateway_for_one_session_leaves_the_others_alone_until_they_are_admitted() {
        let mut lanes = lanes_of(8, Some(key("mine")));
        lanes.wake(key("other"));
        lanes.suspect(key("other"));
        lanes.wake(key("mine"));
        assert_eq!((next(&mut lanes).as_deref(), next(&mut lanes)), (Some("mine"), None));
        lanes.admit(&key("other"));
        lanes.wake(key("other"));
        lanes.wake(key("third"));
        assert_eq!((next(&mut lanes).as_deref(), next(&mut lanes)), (Some("other"), None));
    }
}
