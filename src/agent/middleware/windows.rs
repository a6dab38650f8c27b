//! When the next call may be made, so that no minute has more than so many.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The length of the window that calls are counted in.
pub const MINUTE: Duration = Duration::from_secs(60);

/// Sessions whose calls are remembered before those that have made none for a minute are forgotten.
const SESSIONS: usize = 1_000;

/// The calls of the last minute, and those that have their time already, in order of their times.
#[derive(Debug, Default)]
pub struct Window(VecDeque<Instant>);

impl Window {
    /// Takes the next time from `now` on, such that no minute has more than `limit`; `None` when that would be after
    /// `deadline`, and then nothing is taken.
    pub fn take(&mut self, limit: u32, now: Instant, deadline: Instant) -> Option<Instant> {
        let limit = usize::try_from(limit.max(1)).unwrap_or(usize::MAX);
        while self.0.front().is_some_and(|at| *at + MINUTE <= now) {
            self.0.pop_front();
        }
        let earliest = match self.0.len().checked_sub(limit) {
            Some(at) => self.0[at] + MINUTE,
            None => now,
        };
        // Who comes later goes later, also when the limit was just raised.
        let time = earliest.max(now).max(self.0.back().copied().unwrap_or(now));
        if time > deadline {
            return None;
        }
        self.0.push_back(time);
        Some(time)
    }

    /// A call was made at `now` with the time that was taken for it, which is no later.
    pub fn used(&mut self, time: Instant, now: Instant) {
        self.give_back(time);
        let at = self.0.partition_point(|other| *other <= now);
        self.0.insert(at, now);
    }

    /// Gives a time back that was not used.
    pub fn give_back(&mut self, time: Instant) {
        if let Some(at) = self.0.iter().rposition(|taken| *taken == time) {
            self.0.remove(at);
        }
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.0.back().is_none_or(|at| *at + MINUTE <= now)
    }
}

/// The windows of all sessions, and the one of them together. They outlive a reload, so that it gives nothing back.
#[derive(Debug, Default)]
pub struct Windows(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    all: Window,
    sessions: HashMap<String, Window>,
}

/// A time that was taken; dropped before it was used, it is given back.
#[derive(Debug)]
pub struct Taken<'a> {
    windows: &'a Windows,
    /// Absent: of all sessions together.
    session: Option<&'a str>,
    pub time: Instant,
    used: bool,
}

impl Windows {
    /// Takes the next time of `session`, or of all; see [`Window::take`].
    pub fn take<'a>(&'a self, session: Option<&'a str>, limit: u32, deadline: Instant) -> Option<Taken<'a>> {
        let now = Instant::now();
        let mut state = self.lock();
        if state.sessions.len() >= SESSIONS {
            state.sessions.retain(|_, window| !window.is_idle(now));
        }
        let time = state.window(session).take(limit, now, deadline)?;
        Some(Taken { windows: self, session, time, used: false })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn window(&mut self, session: Option<&str>) -> &mut Window {
        match session {
            None => &mut self.all,
            Some(session) => self.sessions.entry(session.to_owned()).or_default(),
        }
    }
}

impl Taken<'_> {
    /// The call is made now.
    pub fn used(mut self) {
        self.used = true;
        self.windows.lock().window(self.session).used(self.time, Instant::now());
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.used {
            self.windows.lock().window(self.session).give_back(self.time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_minute_has_more_than_the_limit_and_nobody_overtakes() {
        let start = Instant::now();
        let at = |secs: u64| start + Duration::from_secs(secs);
        let far = at(100_000);
        let mut window = Window::default();
        // Asked at, given.
        for (now, given) in [(0, 0), (10, 10), (20, 60), (20, 70), (65, 120), (300, 300), (300, 300), (300, 360)] {
            assert_eq!(window.take(2, at(now), far), Some(at(given)), "at {now}");
        }
        // Too late is not taken, and what is given back is there again.
        assert_eq!(window.take(2, at(301), at(330)), None);
        window.give_back(at(360));
        assert_eq!(window.take(2, at(301), at(360)), Some(at(360)));
    }

    #[test]
    fn who_does_not_come_gives_his_place_back() {
        let windows = Windows::default();
        let far = Instant::now() + 10 * MINUTE;
        windows.take(Some("a"), 1, far).unwrap().used();
        let second = windows.take(Some("a"), 1, far).unwrap();
        assert!(second.time > Instant::now());
        drop(second);
        assert!(windows.take(Some("a"), 1, Instant::now() + MINUTE).is_some());
        assert!(windows.take(Some("b"), 1, Instant::now() + MINUTE / 2).is_some(), "each session has its own");
    }
}
