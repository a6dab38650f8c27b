//! `/api/events`, the event stream of a page, and `/api/sessions/{key}/live`, the current activity of a session.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::get;
use axum::{Json, Router};
use daoyou_channels::HttpError;
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use serde_json::{Value, json};

use super::channel::PAGE_CHANNEL;
use super::hub::{EventCursor, PageEvent, PageEvents, PageReader};
use crate::http::access::{Principal, StreamAccess};
use crate::http::error::{FOREIGN_CHAT, out_of_scope};
use crate::http::state::{AppState, SharedState};
use crate::memory::written;
use crate::query::open_turns::{OpenTurn, open_turns};

/// The delay after which a page reconnects, in milliseconds, unless the page itself decides.
const RECONNECT: Duration = Duration::from_secs(1);
/// The maximum number of attempts to read the state of a session, since a turn may end meanwhile.
const TRIES: usize = 8;

pub fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/api/events", get(events)).route("/api/sessions/{key}/live", get(live))
}

#[derive(Deserialize)]
struct EventsParams {
    session: Option<String>,
    last_event_id: Option<String>,
}

async fn events(
    State(state): SharedState,
    principal: Principal,
    Query(params): Query<EventsParams>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, HttpError> {
    if params.session.as_deref().is_some_and(|session| !principal.may_use(session)) {
        return Err(out_of_scope(FOREIGN_CHAT));
    }
    let Some(reader) = state.page.read(principal.token.as_deref()) else {
        let message = "too many pages are open; close one";
        let error = HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_pages", message);
        return Err(HttpError { retry_after: Some(Duration::from_secs(10)), ..error });
    };
    let header = headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    // A browser that reconnects automatically sends the header, and repeats the parameter of its first request.
    let cursor = header.or(params.last_event_id).map_or_else(|| reader.cursor(), |id| EventCursor::parse(&id));
    let mut stream = PageStream {
        reader,
        cursor,
        session: params.session,
        access: StreamAccess::new(state.auth.clone(), principal),
        state,
        ready: VecDeque::new(),
    };
    stream.greet();
    let events = stream::unfold(stream, |mut stream| async move {
        let event = stream.next().await?;
        Some((Ok(event), stream))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

/// The stream of one page.
struct PageStream {
    reader: PageReader,
    cursor: EventCursor,
    /// The only session whose turns the page follows.
    session: Option<String>,
    access: StreamAccess,
    state: Arc<AppState>,
    ready: VecDeque<Event>,
}

impl PageStream {
    fn greet(&mut self) {
        let hello = json!({ "version": env!("CARGO_PKG_VERSION"), "started": self.state.started });
        let mut event = Event::default().event("hello").retry(RECONNECT);
        // An id of another process is not repeated: `resync` follows with a new id.
        if self.reader.cursor().is_same_list(&self.cursor) {
            event = event.id(self.cursor.to_string());
        }
        self.ready.push_back(event.data(hello.to_string()));
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            // Checked for every event, not only after a wait: a backlog may be long.
            if !self.access.is_still_valid().await {
                return None;
            }
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            // A batch may contain nothing for this page.
            if self.fill() || !self.ready.is_empty() {
                continue;
            }
            tokio::select! {
                () = self.state.shutdown.cancelled() => return None,
                () = self.reader.more() => {}
                () = self.access.due() => {}
            }
        }
    }

    /// Fetches the next events. Returns true if there were any, whether or not they are for this page.
    fn fill(&mut self) -> bool {
        match self.reader.after(&self.cursor) {
            PageEvents::Gap(cursor) => {
                self.cursor = cursor;
                self.ready.push_back(Event::default().event("resync").id(self.cursor.to_string()).data("{}"));
                false
            }
            PageEvents::Some(events) => {
                for event in &events {
                    self.cursor = self.cursor.at(event);
                    if self.is_for_page(event) {
                        let built = Event::default().event(event.kind).id(self.cursor.to_string()).data(&event.data);
                        self.ready.push_back(built);
                    }
                }
                !events.is_empty()
            }
        }
    }

    fn is_for_page(&self, event: &PageEvent) -> bool {
        let session = event.session.as_ref().map(daoyou_channels::SessionKey::as_str);
        let principal = self.access.principal();
        if principal.is_confined() && !session.is_some_and(|session| principal.may_use(session)) {
            return false;
        }
        match (&self.session, session) {
            (Some(wanted), Some(session)) => event.kind != "turn" || wanted == session,
            _ => true,
        }
    }
}

/// Returns the unfinished turns of a session, in addition to its history, and where the event stream goes on.
async fn live(State(state): SharedState, Path(key): Path<String>) -> Result<Json<Value>, HttpError> {
    for _ in 0..TRIES {
        // Recording begins before the store is read, so that no event is missed in between.
        let since = state.page.activate();
        let session = key.clone();
        let turns = state.bus.store().read(move |connection| open_turns(connection, &session, PAGE_CHANNEL)).await?;
        let ids: Vec<_> = turns.iter().map(|turn| turn.id).collect();
        let found = state.page.live_turns(&since, &key, &ids, |live| {
            let view = |turn: &OpenTurn| {
                let mut events = turn.events.clone();
                events.extend(live.beyond(turn.id, &turn.journaled));
                let content: Vec<_> = turn.messages.iter().map(|row| written(&row.content)).collect();
                json!({
                    "turn": turn.id,
                    "state": turn.state().as_str(),
                    "content": content.join("\n\n"),
                    "at": crate::query::timestamp(turn.messages.first().map_or(0, |row| row.received_at)),
                    "attachments": turn.files,
                    "events": events,
                })
            };
            turns.iter().map(view).collect::<Vec<_>>()
        });
        if let Some((turns, cursor)) = found {
            return Ok(Json(json!({ "turns": turns, "event": cursor.to_string() })));
        }
    }
    let message = "the session changes too fast to be read; try again";
    Err(HttpError::new(axum::http::StatusCode::SERVICE_UNAVAILABLE, "busy", message))
}
