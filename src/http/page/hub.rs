//! The events of open pages: a bounded list of the latest events, which every page reads at its own pace. While no page is open,
//! nothing is recorded.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::{SessionEvent, SessionKey};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::live_turns::LiveTurns;
use crate::bus::EventHub;
use crate::query::sessions::session_of_page_chat;
use crate::store::Store;
use crate::store::changes::StoreFingerprint;

/// The maximum number of events that are kept for pages that reconnect, and their size in bytes.
const MAX_EVENTS: usize = 8_192;
const MAX_BYTES: usize = 16 << 20;
/// The maximum number of open pages, in total and with one named token. A browser needs one page for all its tabs.
const MAX_READERS: usize = 1_000;
const MAX_TOKEN_READERS: usize = 16;
/// The time for which events are still recorded after the last page has closed, so that a page that reconnects misses none.
const IDLE: Duration = Duration::from_secs(90);
/// The time for which changes of the store are collected before pages are notified.
const GATHERING: Duration = Duration::from_millis(150);
/// The maximum number of events that a page receives at once.
pub const BATCH: usize = 256;

/// An event for pages.
#[derive(Debug)]
pub struct PageEvent {
    number: u64,
    /// `turn` or `changed`.
    pub kind: &'static str,
    /// The session of the event; `None` means all sessions.
    pub session: Option<SessionKey>,
    /// JSON.
    pub data: String,
    /// The turn of a `turn` event, and whether the event ends it.
    turn: Option<(Uuid, bool)>,
}

/// The events of open pages.
pub struct PageHub {
    events: Arc<EventHub>,
    store: Store,
    /// Notified at each commit.
    commits: Arc<Notify>,
    shutdown: CancellationToken,
    state: Mutex<HubState>,
    /// Held while recording begins or ends. An event arrives with the lock of the [`EventHub`] held, so the sink is never set while
    /// the lock of the state is held.
    switch: Mutex<()>,
    /// The number of the last event.
    last: watch::Sender<u64>,
}

#[derive(Default)]
struct HubState {
    is_active: bool,
    /// The name of the list. Each start of recording begins a new list. The name is part of the ids of events.
    list: String,
    ring: VecDeque<Arc<PageEvent>>,
    bytes: usize,
    next: u64,
    /// The number of open pages with each token; `None` is the owner.
    readers: HashMap<Option<String>, usize>,
    used: Option<Instant>,
    turns: LiveTurns,
}

/// The position of a page in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventCursor {
    list: String,
    number: u64,
}

/// The events after a position.
pub enum PageEvents {
    Some(Vec<Arc<PageEvent>>),
    /// Events after the position are gone: the page must reload everything, and continues from this position.
    Gap(EventCursor),
}

/// The right to read events; the hub counts its readers.
pub struct PageReader {
    hub: Arc<PageHub>,
    /// The named token of the page.
    token: Option<String>,
    last: watch::Receiver<u64>,
}

impl PageHub {
    pub fn new(events: Arc<EventHub>, store: Store, commits: Arc<Notify>, shutdown: CancellationToken) -> Arc<Self> {
        let (state, switch, last) = (Mutex::default(), Mutex::default(), watch::Sender::new(0));
        Arc::new(Self { events, store, commits, shutdown, state, switch, last })
    }

    /// Admits a page with a named token, or of the owner; `None` if too many pages are open.
    pub fn read(self: &Arc<Self>, token: Option<&str>) -> Option<PageReader> {
        self.activate();
        let mut state = self.state.lock();
        let token = token.map(str::to_owned);
        let is_full = state.readers.values().sum::<usize>() >= MAX_READERS;
        let own = state.readers.get(&token).copied().unwrap_or_default();
        if is_full || (token.is_some() && own >= MAX_TOKEN_READERS) {
            return None;
        }
        state.readers.insert(token.clone(), own + 1);
        Some(PageReader { hub: self.clone(), token, last: self.last.subscribe() })
    }

    /// Returns true if a page is open.
    pub fn is_open(&self) -> bool {
        !self.state.lock().readers.is_empty()
    }

    /// Begins to record, if recording has not begun, and returns the current position.
    pub fn activate(self: &Arc<Self>) -> EventCursor {
        let switch = self.switch.lock();
        let is_new = {
            let mut state = self.state.lock();
            state.used = Some(Instant::now());
            let is_new = !state.is_active;
            if is_new {
                *state = HubState { readers: mem::take(&mut state.readers), used: state.used, ..HubState::default() };
                state.is_active = true;
                state.list = Uuid::new_v4().simple().to_string()[..12].to_owned();
                state.next = 1;
            }
            is_new
        };
        if is_new {
            let hub = self.clone();
            self.events.set_sink(Some(Box::new(move |event: &SessionEvent| hub.receive(event))));
            tokio::spawn(self.clone().follow_store());
        }
        drop(switch);
        self.cursor()
    }

    /// Returns the position after the last event.
    pub fn cursor(&self) -> EventCursor {
        self.state.lock().cursor()
    }

    /// Returns the events after a position, at most [`BATCH`].
    pub fn after(&self, cursor: &EventCursor) -> PageEvents {
        let state = self.state.lock();
        let last = state.cursor();
        let first = state.ring.front().map_or(state.next, |event| event.number);
        if !cursor.is_same_list(&last) || cursor.number > last.number || cursor.number + 1 < first {
            return PageEvents::Gap(last);
        }
        let skipped = usize::try_from(cursor.number + 1 - first).unwrap_or(usize::MAX);
        PageEvents::Some(state.ring.iter().skip(skipped).take(BATCH).cloned().collect())
    }

    /// Returns the events that running turns of a session have sent, and the position that these events reach. `None` if one of the
    /// turns ended after `since`, or another turn of the session sent an event since then: the store then has newer data.
    pub fn live_turns<T>(
        &self,
        since: &EventCursor,
        session: &str,
        turns: &[Uuid],
        read: impl FnOnce(&LiveTurns) -> T,
    ) -> Option<(T, EventCursor)> {
        let state = self.state.lock();
        let newer = state.ring.iter().rev().take_while(|event| event.number > since.number);
        let mut own = newer.filter(|event| event.session.as_ref().is_some_and(|own| own.as_str() == session));
        let is_outdated = own.any(|event| event.turn.is_some_and(|(turn, ends)| ends || !turns.contains(&turn)));
        (!is_outdated && since.list == state.list).then(|| (read(&state.turns), state.cursor()))
    }

    /// Tells pages to reload these areas.
    pub fn changed(&self, what: &[&str], session: Option<&str>) {
        let mut data = json!({ "what": what });
        if let Some(session) = session {
            data["session"] = json!(session);
        }
        let mut state = self.state.lock();
        if state.is_active {
            self.push(&mut state, "changed", session.map(SessionKey::from), data.to_string(), None);
        }
    }

    /// Records an event of a turn.
    fn receive(&self, event: &SessionEvent) {
        let data = match serde_json::to_string(event) {
            Ok(data) => data,
            Err(error) => return tracing::error!(%error, "an event is not JSON"),
        };
        let mut state = self.state.lock();
        if state.is_active {
            let turn = (event.turn, state.turns.take(event));
            self.push(&mut state, "turn", Some(event.session.clone()), data, Some(turn));
        }
    }

    fn push(
        &self,
        state: &mut HubState,
        kind: &'static str,
        session: Option<SessionKey>,
        data: String,
        turn: Option<(Uuid, bool)>,
    ) {
        let number = state.next;
        state.next += 1;
        state.bytes += data.len();
        state.ring.push_back(Arc::new(PageEvent { number, kind, session, data, turn }));
        while state.ring.len() > MAX_EVENTS || state.bytes > MAX_BYTES {
            let Some(gone) = state.ring.pop_front() else { break };
            state.bytes -= gone.data.len();
        }
        self.last.send_replace(number);
    }

    /// Watches the store until no page has been open for a while.
    async fn follow_store(self: Arc<Self>) {
        let mut before = self.fingerprint().await;
        let mut tick = tokio::time::interval(IDLE / 6);
        loop {
            let commit = self.commits.notified();
            tokio::select! {
                () = self.shutdown.cancelled() => break,
                () = commit => {
                    tokio::time::sleep(GATHERING).await;
                    before = self.notify_changes(before).await;
                }
                _ = tick.tick() => if self.deactivate_if_idle() { return; },
            }
        }
        self.events.set_sink(None);
    }

    async fn fingerprint(&self) -> Option<StoreFingerprint> {
        let fingerprint = self.store.read(StoreFingerprint::read).await;
        fingerprint.inspect_err(|error| tracing::debug!(%error, "the state of the store could not be read")).ok()
    }

    async fn notify_changes(&self, before: Option<StoreFingerprint>) -> Option<StoreFingerprint> {
        let Some(before) = before else { return self.fingerprint().await };
        let compared = before.clone();
        let read = self.store.read(move |connection| {
            let now = StoreFingerprint::read(connection)?;
            let sessions = now.changed_sessions(connection, &compared)?;
            Ok((now, sessions))
        });
        let (now, (sessions, chats)) = match read.await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(%error, "changes of the store could not be read; pages are notified later");
                return Some(before);
            }
        };
        let areas = now.changed_areas(&before);
        if !areas.is_empty() {
            self.changed(&areas, None);
        }
        let chats = chats.into_iter().map(|chat| session_of_page_chat(&chat));
        let mut named: Vec<String> = sessions.into_iter().chain(chats).collect();
        named.sort_unstable();
        named.dedup();
        for session in named {
            self.changed(&["sessions"], Some(&session));
        }
        Some(now)
    }

    fn deactivate_if_idle(&self) -> bool {
        let _switch = self.switch.lock();
        let mut state = self.state.lock();
        if !state.readers.is_empty() || state.used.is_some_and(|used| used.elapsed() < IDLE) {
            return false;
        }
        *state = HubState::default();
        drop(state);
        self.events.set_sink(None);
        true
    }
}

impl HubState {
    /// Returns the position after the last event.
    fn cursor(&self) -> EventCursor {
        EventCursor { list: self.list.clone(), number: self.next.saturating_sub(1) }
    }
}

impl EventCursor {
    /// Parses the id of an event. Any other text yields a position in no list.
    pub fn parse(id: &str) -> Self {
        let (list, number) = id.split_once('-').unwrap_or_default();
        Self { list: list.to_owned(), number: number.parse().unwrap_or(u64::MAX) }
    }

    pub fn is_same_list(&self, other: &Self) -> bool {
        self.list == other.list
    }

    /// Returns the position of an event of the same list.
    #[must_use]
    pub fn at(&self, event: &PageEvent) -> Self {
        Self { list: self.list.clone(), number: event.number }
    }
}

impl std::fmt::Display for EventCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.list, self.number)
    }
}

impl PageReader {
    /// Waits until there may be more events.
    pub async fn more(&mut self) {
        // Cannot fail: the hub holds the sender.
        drop(self.last.changed().await);
    }

    /// Returns the events after a position. A later event wakes [`PageReader::more`].
    pub fn after(&mut self, cursor: &EventCursor) -> PageEvents {
        self.last.mark_unchanged();
        self.hub.after(cursor)
    }

    pub fn cursor(&self) -> EventCursor {
        self.hub.cursor()
    }
}

impl Drop for PageReader {
    fn drop(&mut self) {
        let mut state = self.hub.state.lock();
        if let Entry::Occupied(mut own) = state.readers.entry(self.token.take()) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
        state.used = Some(Instant::now());
    }
}
