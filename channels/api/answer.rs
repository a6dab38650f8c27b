//! The answer to a request: one body after its turn has ended, or a stream of events while the turn runs.

use std::convert::Infallible;
use std::time::Duration;

use async_channel::{Receiver, Sender};
use axum::Json;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::error::ApiFailure;
use super::followed_turn::{FollowedTurn, TurnAnswer, TurnStep};
use super::progress::ApiDelta;
use super::repeats::RepeatGuard;

/// The maximum number of events that wait for a slow client.
const BACKLOG: usize = 256;
/// The interval of keep-alive comments in a stream. Proxies and clients close a stream that stays silent for longer.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// An event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiEvent {
    pub name: Option<&'static str>,
    pub data: String,
}

/// The format of an answer: chat completion or response.
pub(super) trait AnswerFormat: Send + 'static {
    /// Returns the body of an answer that is not streamed.
    fn whole(&self, end: &TurnAnswer, reasoning: &str) -> Value;

    /// Returns the events that begin a stream.
    fn begin(&mut self) -> Vec<ApiEvent>;

    /// Returns the events for the next part of the answer.
    fn delta(&mut self, delta: &ApiDelta) -> Vec<ApiEvent>;

    /// Returns the events that end a stream.
    fn end(&mut self, end: &TurnAnswer) -> Vec<ApiEvent>;

    /// Returns the events that end a stream without an answer.
    fn failed(&mut self, failure: &ApiFailure) -> Vec<ApiEvent>;
}

/// Answers after the turn has ended. If the client disconnects, the wait ends; the turn continues, and its session keeps the answer.
pub(super) async fn answer_whole(
    mut turn: FollowedTurn,
    format: &impl AnswerFormat,
    repeats: RepeatGuard,
) -> Result<Response, ApiFailure> {
    let mut reasoning = String::new();
    loop {
        match turn.next().await {
            TurnStep::Delta(ApiDelta::Text(_)) => {}
            TurnStep::Delta(ApiDelta::Reasoning(more)) => reasoning.push_str(&more),
            TurnStep::Ended(end) => {
                repeats.answered().await;
                return Ok(Json(format.whole(&end, &reasoning)).into_response());
            }
            TurnStep::Failed(failure) => {
                if matches!(failure, ApiFailure::Turn(_)) {
                    repeats.answered().await;
                }
                return Err(failure);
            }
        }
    }
}

/// Streams a turn. If the client disconnects, the stream ends; the turn continues, and its session keeps the answer.
pub(super) fn answer_stream(turn: FollowedTurn, format: impl AnswerFormat, repeats: RepeatGuard) -> Response {
    let (sender, events) = async_channel::bounded(BACKLOG);
    tokio::spawn(send_events(turn, format, repeats, sender));
    let events = futures_util::stream::unfold(events, |events: Receiver<ApiEvent>| async move {
        let ApiEvent { name, data } = events.recv().await.ok()?;
        let event = Event::default().data(data);
        let event = if let Some(name) = name { event.event(name) } else { event };
        Some((Ok::<_, Infallible>(event), events))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

async fn send_events(
    mut turn: FollowedTurn,
    mut format: impl AnswerFormat,
    repeats: RepeatGuard,
    sender: Sender<ApiEvent>,
) {
    let mut events = format.begin();
    let mut is_ended = false;
    loop {
        for event in events.drain(..) {
            if sender.send(event).await.is_err() {
                return;
            }
        }
        if is_ended {
            repeats.answered().await;
            return;
        }
        let step = tokio::select! {
            step = turn.next() => step,
            () = sender.closed() => return,
        };
        match step {
            TurnStep::Delta(delta) => events = format.delta(&delta),
            TurnStep::Ended(end) => (events, is_ended) = (format.end(&end), true),
            TurnStep::Failed(failure) => (events, is_ended) = (format.failed(&failure), true),
        }
    }
}
