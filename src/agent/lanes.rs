//! Which session runs next. Pure: it holds names and counts, the rows are in the store. A session that has nothing to
//! do is not in here at all.

use std::collections::{HashMap, HashSet, VecDeque};

use daoyou_channels::SessionKey;

/// The lanes: one turn a session at a time, at most so many sessions at once as the bounds say, each in its turn. Sub-agents
/// have places of their own, so that they and those who wait for them never wait for each other's.
pub struct Lanes {
    bounds: Bounds,
    /// The sessions that are run; absent is all.
    only: Option<HashSet<SessionKey>>,
    /// Running, and whether there is reason to look again afterwards.
    running: HashMap<SessionKey, bool>,
    /// Of the running ones, those of sub-agents.
    sub_agents: usize,
    ready: VecDeque<SessionKey>,
    ready_sub_agents: VecDeque<SessionKey>,
    in_ready: HashSet<SessionKey>,
    suspects: VecDeque<SessionKey>,
    alone: Option<SessionKey>,
}

/// How many sessions run side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub turns: usize,
    pub sub_agents: usize,
}

/// How a session's turn is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Company {
    Beside,
    /// Nothing else runs until this one has got somewhere: it may be what stopped the gateway.
    Alone,
}

impl Lanes {
    /// Lanes for so many turns side by side; with `only`, for that session and those that are admitted later.
    pub fn new(bounds: Bounds, only: Option<SessionKey>) -> Self {
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

    /// From now on so many run side by side; what runs already goes on.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// The session is run, too.
    pub fn admit(&mut self, session: &SessionKey) {
        if let Some(only) = &mut self.only {
            only.insert(session.clone());
        }
    }

    /// The session may have something to do.
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

    /// The session's next turn is to run alone, before all others.
    pub fn suspect(&mut self, session: SessionKey) {
        let ours = self.only.as_ref().is_none_or(|only| only.contains(&session));
        if ours && !self.suspects.contains(&session) {
            self.suspects.push_back(session);
        }
    }

    /// The next session to run, if one may run now.
    pub fn next(&mut self) -> Option<(SessionKey, Company)> {
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
            return Some((session, Company::Alone));
        }
        let may_turn = self.running.len() - self.sub_agents < self.bounds.turns.max(1);
        let may_sub_agent = self.sub_agents < self.bounds.sub_agents.max(1);
        let turn = if may_turn { self.ready.pop_front() } else { None };
        let session = turn.or_else(|| if may_sub_agent { self.ready_sub_agents.pop_front() } else { None })?;
        self.in_ready.remove(&session);
        self.begin(&session);
        Some((session, Company::Beside))
    }

    fn begin(&mut self, session: &SessionKey) {
        self.sub_agents += usize::from(is_sub_agents(session));
        self.running.insert(session.clone(), false);
    }

    fn ready_like(&mut self, session: &SessionKey) -> &mut VecDeque<SessionKey> {
        if is_sub_agents(session) { &mut self.ready_sub_agents } else { &mut self.ready }
    }

    /// The session that ran alone has got somewhere: others may run beside it.
    pub fn proven(&mut self, session: &SessionKey) {
        if self.alone.as_ref() == Some(session) {
            self.alone = None;
        }
    }

    /// A turn of the session has ended; `more` when it has another message. It goes to the end of the queue, so that
    /// a session with a thousand messages lets the others by.
    pub fn ended(&mut self, session: &SessionKey, more: bool) {
        self.proven(session);
        let again = self.running.remove(session);
        if again.is_some() {
            self.sub_agents -= usize::from(is_sub_agents(session));
        }
        let again = again.unwrap_or(false);
        if more || again {
            self.wake(session.clone());
        }
    }

    /// Turns that run now.
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
        Lanes::new(Bounds { turns, sub_agents: 2 }, only)
    }

    fn next(lanes: &mut Lanes) -> Option<String> {
        lanes.next().map(|(session, _)| session.to_string())
    }

    #[test]
    fn a_busy_session_lets_others_by_and_never_runs_twice_at_once() {
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
    fn sub_agents_have_places_of_their_own() {
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
    fn suspects_run_alone_until_proven() {
        let mut lanes = lanes_of(8, None);
        lanes.wake(key("good"));
        lanes.wake(key("bad"));
        lanes.suspect(key("bad"));
        assert_eq!(lanes.next(), Some((key("bad"), Company::Alone)));
        assert_eq!(lanes.next(), None);
        lanes.proven(&key("bad"));
        assert_eq!(lanes.next(), Some((key("good"), Company::Beside)));
        lanes.ended(&key("bad"), false);
        assert_eq!(lanes.next(), None);
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
