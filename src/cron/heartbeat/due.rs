//! Which entries are due, and what is remembered of them.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::items::Item;
use crate::cron::Schedule;

/// A single time that was missed by more, before its entry was first seen, is not made up for.
const STALE: SignedDuration = SignedDuration::from_hours(24);

/// Turns that fail in a row before their entries are left until they are due again.
pub(super) const TRIES: u32 = 3;

/// What is remembered from one look to the next, as JSON in a note.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Memory {
    /// By entry: when it ran last, or was first seen where it has to wait for its time; UTC milliseconds.
    pub items: BTreeMap<String, i64>,
    /// What stood there of the entries of the last turn, so that one that fails is done again.
    pub before: BTreeMap<String, Option<i64>>,
    /// Turns that failed, in a row up to now.
    pub failures: u32,
}

/// The due ones of `items`, at most `limit`, and what is remembered when a turn is given them.
pub(super) fn choose<'i>(
    items: &'i [Item],
    memory: &Memory,
    now: Timestamp,
    zone: &TimeZone,
    limit: usize,
) -> (Vec<&'i Item>, Memory) {
    let mut due = Vec::new();
    let mut after = Memory { items: BTreeMap::new(), ..memory.clone() };
    let mut before = BTreeMap::new();
    for item in items {
        let last = memory.items.get(&item.hash).copied();
        let is_due = match last.and_then(|last| Timestamp::from_millisecond(last).ok()) {
            Some(last) => comes_again(item, last, now, zone),
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

fn is_due_when_new(item: &Item, now: Timestamp) -> bool {
    match &item.schedule {
        None | Some(Schedule::Every { .. }) => true,
        Some(Schedule::At { at }) => *at <= now && now.duration_since(*at) < STALE,
        Some(Schedule::Cron { .. }) => false,
    }
}

fn comes_again(item: &Item, last: Timestamp, now: Timestamp, zone: &TimeZone) -> bool {
    // The clock was set back behind its last run, which then tells nothing.
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

impl Memory {
    /// The last turn failed: its entries stand as before, unless it has failed too often.
    pub fn take_back(&mut self) {
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

    /// The last turn went well.
    pub fn keep(&mut self) {
        self.failures = 0;
        self.before.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::items::read;
    use super::*;

    /// The entries that are due at each of the times, with what is remembered in between.
    fn run(file: &str, times: &[&str]) -> Vec<String> {
        let zone = TimeZone::UTC;
        let mut memory = Memory::default();
        let look = |time: &&str| {
            let items = read(file, &zone);
            let (due, after) = choose(&items, &memory, time.parse().unwrap(), &zone, 20);
            memory = after;
            due.iter().map(|item| item.text.as_str()).collect::<Vec<_>>().join(" | ")
        };
        times.iter().map(look).collect()
    }

    #[test]
    fn what_is_due_when() {
        let times = ["2026-11-21T09:00:00Z", "2026-11-21T09:30:00Z", "2026-11-21T11:00:00Z", "2026-11-22T09:00:00Z"];
        for (file, expected) in [
            ("- a", ["a", "", "", "a"]),
            ("- every 2h: a", ["every 2h: a", "", "every 2h: a", "every 2h: a"]),
            ("- daily 10:00: a", ["", "", "daily 10:00: a", ""]),
            ("- daily 9:00: a", ["", "", "", "daily 9:00: a"]),
            ("- at 2026-11-21 09:10: a", ["", "at 2026-11-21 09:10: a", "", ""]),
            ("- at 2026-11-21 08:00: a", ["at 2026-11-21 08:00: a", "", "", ""]),
            ("- at 2026-11-19 08:00: a", ["", "", "", ""]),
        ] {
            assert_eq!(run(file, &times), expected, "{file}");
        }
        assert_eq!(run("- a", &[times[3], times[0]]), ["a", "a"], "the clock was set back");
    }

    #[test]
    fn entries_come_and_go_and_a_turn_that_fails_is_done_again() {
        let zone = TimeZone::UTC;
        let now: Timestamp = "2026-11-21T09:00:00Z".parse().unwrap();
        let (old, new) = (read("- a\n- b\n- c", &zone), read("- a\n- d", &zone));
        let (due, memory) = choose(&old, &Memory::default(), now, &zone, 2);
        assert_eq!(due.len(), 2);
        let (due, mut memory) = choose(&old, &memory, now, &zone, 2);
        assert_eq!((due.len(), due[0].text.as_str()), (1, "c"), "what was too much comes next");
        memory.keep();
        let (due, mut memory) = choose(&new, &memory, now, &zone, 20);
        assert_eq!((due.len(), due[0].text.as_str(), memory.items.len()), (1, "d", 2));
        for expected in [1, 1, 0] {
            memory.take_back();
            let (due, after) = choose(&new, &memory, now, &zone, 20);
            assert_eq!(due.len(), expected);
            memory = after;
        }
    }
}
