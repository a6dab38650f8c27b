//! Which session runs next. Pure: it holds names and counts, the rows are in the store. A session that has nothing to
//! do is not in here at all.

use std::collections::{HashMap, HashSet, VecDeque};

use daoyou_channels::SessionKey;

/// The lanes: one turn a session at a time, at most `bound` sessions at once, each in its turn.
pub struct Lanes {
    bound: usize,
    /// The sessions that are run; absent is all.
    only: Option<HashSet<SessionKey>>,
    /// Running, and whether there is reason to look again afterwards.
    running: HashMap<SessionKey, bool>,
    ready: VecDeque<SessionKey>,
    in_ready: HashSet<SessionKey>,
    suspects: VecDeque<SessionKey>,
    alone: Option<SessionKey>,
}

/// How a session's turn is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Company {
    Beside,
    /// Nothing else runs until this one has got somewhere: it may be what stopped the gateway.
    Alone,
}

impl Lanes {
    /// Lanes for `bound` turns side by side; with `only`, for that session and those that are admitted later.
    pub fn new(bound: usize, only: Option<SessionKey>) -> Self {
        Self {
            bound: bound.max(1),
            only: only.map(|session| HashSet::from([session])),
            running: HashMap::new(),
            ready: VecDeque::new(),
            in_ready: HashSet::new(),
            suspects: VecDeque::new(),
            alone: None,
        }
    }

    /// From now on so many run side by side; what runs already goes on.
    pub fn set_bound(&mut self, bound: usize) {
        self.bound = bound.max(1);
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
            self.ready.push_back(session);
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
                self.ready.retain(|ready| *ready != session);
            }
            self.running.insert(session.clone(), false);
            self.alone = Some(session.clone());
            return Some((session, Company::Alone));
        }
        if self.running.len() >= self.bound {
            return None;
        }
        let session = self.ready.pop_front()?;
        self.in_ready.remove(&session);
        self.running.insert(session.clone(), false);
        Some((session, Company::Beside))
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
        let again = self.running.remove(session).unwrap_or(false);
        if more || again {
            self.wake(session.clone());
        }
    }

    /// Turns that run now.
    pub fn running(&self) -> usize {
        self.running.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> SessionKey {
        SessionKey::from(name)
    }

    fn next(lanes: &mut Lanes) -> Option<String> {
        lanes.next().map(|(session, _)| session.to_string())
    }

    #[test]
    fn a_busy_session_lets_others_by_and_never_runs_twice_at_once() {
        let mut lanes = Lanes::new(1, None);
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

        let mut lanes = Lanes::new(8, None);
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
    fn suspects_run_alone_until_proven() {
        let mut lanes = Lanes::new(8, None);
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
        let mut lanes = Lanes::new(8, Some(key("mine")));
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
