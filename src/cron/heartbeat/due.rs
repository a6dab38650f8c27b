//! Chooses the due entries, and remembers their runs.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::items::HeartbeatItem;
use crate::cron::Schedule;
use crate::store::{Connection, StoreError, notes};

/// The age from which a single time does not run if its entry is new.
const STALE: SignedDuration = SignedDuration::from_hours(24);

/// The number of consecutive failed turns after which their entries wait until they are due again.
pub(super) const TRIES: u32 = 3;

/// The group of the heartbeat's notes in the store.
pub(super) const NOTES: &str = "heartbeat";

/// The state between two checks, as JSON in a note.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct HeartbeatState {
    /// For each entry, the time of its last run, or the time when it was first seen if it has not been due yet; UTC
    /// milliseconds.
    pub items: BTreeMap<String, i64>,
    /// The previous times of the last turn's entries, which a failed turn restores.
    pub before: BTreeMap<String, Option<i64>>,
    /// The number of consecutive failed turns.
    pub failures: u32,
}

/// Returns the due entries of `items`, at most `limit`, and the state that records their turn.
pub(super) fn choose_due<'i>(
    items: &'i [HeartbeatItem],
    state: &HeartbeatState,
    now: Timestamp,
    zone: &TimeZone,
    limit: usize,
) -> (Vec<&'i HeartbeatItem>, HeartbeatState) {
    let mut due = Vec::new();
    let mut after = HeartbeatState { items: BTreeMap::new(), ..state.clone() };
    let mut before = BTreeMap::new();
    for item in items {
        let last = state.items.get(&item.hash).copied();
        let is_due = match last.and_then(|last| Timestamp::from_millisecond(last).ok()) {
            Some(last) => is_due_again(item, last, now, zone),
            None => is_due_when_new(item, now),
        };
        if is_due && due.len() < limit {
            due.push(item);
            before.insert(item.hash.clone(), last);
            after.items.insert(item.hash.clone(), now.as_millisecond());
        } else if let Some(kept) = last.or_else(|| (!is_due).then(|| now.as_millisecond())) {
            after.items.insert(item.hash.clone(), kept);
        }
    }
    if !due.is_empty() {
        after.before = before;
    }
    (due, after)
}

fn is_due_when_new(item: &HeartbeatItem, now: Timestamp) -> bool {
    match &item.schedule {
        None | Some(Schedule::Every { .. }) => true,
        Some(Schedule::At { at }) => *at <= now && now.duration_since(*at) < STALE,
        Some(Schedule::Days { .. } | Schedule::Cron { .. }) => false,
    }
}

fn is_due_again(item: &HeartbeatItem, last: Timestamp, now: Timestamp, zone: &TimeZone) -> bool {
    // A last run in the future means that the clock was set back; it says nothing about the next run.
    let is_ahead = last > now;
    match &item.schedule {
        None => {
            let day = |at: Timestamp| at.to_zoned(zone.clone()).date();
            is_ahead || day(last) != day(now)
        }
        Some(Schedule::Every { every, .. }) => {
            is_ahead || now.duration_since(last) >= SignedDuration::try_from(every.0).unwrap_or(SignedDuration::MAX)
        }
        Some(schedule) => schedule.next_after(last).is_some_and(|next| next <= now),
    }
}

impl HeartbeatState {
    /// Restores the entries of a failed turn, unless too many turns failed.
    pub fn record_failure(&mut self) {
        self.failures = self.failures.saturating_add(1);
        let before = std::mem::take(&mut self.before);
        if self.failures >= TRIES {
            self.failures = 0;
            return;
        }
        for (hash, last) in before {
            match last {
                Some(last) => drop(self.items.insert(hash, last)),
                None => drop(self.items.remove(&hash)),
            }
        }
    }

    /// Keeps the entries of a successful turn.
    pub fn record_success(&mut self) {
        self.failures = 0;
        self.before.clear();
    }
}

/// Loads the state; an unreadable one is discarded.
pub(super) fn load(connection: &Connection) -> Result<HeartbeatState, StoreError> {
    let note = notes::get(connection, NOTES, "memory", "items")?;
    Ok(note.and_then(|(state, _)| serde_json::from_str(&state).ok()).unwrap_or_default())
}

pub(super) fn save(connection: &Connection, state: &HeartbeatState) -> Result<(), StoreError> {
    notes::set(connection, NOTES, "memory", "items", &serde_json::to_string(state)?)
}

#[cfg(test)]
mod tests {
    use super::super::items::parse_items;
    use super::*;

    /// Returns the due entries at each of the times.
    fn run(file: &str, times: &[&str]) -> Vec<String> {
        let zone = TimeZone::UTC;
        let mut state = HeartbeatState::default();
        let look = |time: &&str| {
            let items = parse_items(file, &zone);
            let (due, after) = choose_due(&items, &state, time.parse().unwrap(), &zone, 20);
            state = after;
            due.iter().map(|item| item.text.as_str()).collect::<Vec<_>>().join(" | ")
        };
        times.iter().map(look).collect()
    }

    #[test]
    fn entries_are_due_by_their_schedules() {
        let times = ["2026-11-21T09:00:00Z", "2026-11-21T09:30:00Z", "2026-11-21T11:00:00Z", "2026-11-22T09:00:00Z"];
        for (file, expected) in [
            ("- a", ["a", "", "", "a"]),
            ("- every 2h: a", ["every 2h: a", "", "every 2h: a", "every 2h: a"]),
            ("- daily 10:00: a", ["", "", "daily 10:00: a", ""]),
            ("- daily 9:00: a", ["", "", "", "daily 9:00: a"]),
            ("- every other day at 9:00: a", ["", "", "", "every other day at 9:00: a"]),
            ("- at 2026-11-21 09:10: a", ["", "at 2026-11-21 09:10: a", "", ""]),
            ("- at 2026-11-21 08:00: a", ["at 2026-11-21 08:00: a", "", "", ""]),
            ("- at 2026-11-19 08:00: a", ["", "", "", ""]),
        ] {
            assert_eq!(run(file, &times), expected, "{file}");
        }
        assert_eq!(run("- a", &[times[3], times[0]]), ["a", "a"], "the clock was set back");
    }

    #[test]
    fn a_failed_turn_is_repeated_and_surplus_entries_follow_later() {
        let zone = TimeZone::UTC;
        let now: Timestamp = "2026-11-21T09:00:00Z".parse().unwrap();
        let (old, new) = (parse_items("- a\n- b\n- c", &zone), parse_items("- a\n- d", &zone));
        let (due, state) = choose_due(&old, &HeartbeatState::default(), now, &zone, 2);
        assert_eq!(due.len(), 2);
        let (due, mut state) = choose_due(&old, &state, now, &zone, 2);
        assert_eq!((due.len(), due[0].text.as_str()), (1, "c"), "what was too much comes next");
        state.record_success();
        let (due, mut state) = choose_due(&new, &state, now, &zone, 20);
        assert_eq!((due.len(), due[0].text.as_str(), state.items.len()), (1, "d", 2));
        for expected in [1, 1, 0] {
            state.record_failure();
            let (due, after) = choose_due(&new, &state, now, &zone, 20);
            assert_eq!(due.len(), expected);
            state = after;
        }
    }
}
