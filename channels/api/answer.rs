//! The answer to a request: one body after its turn has ended, or a stream of events while the turn runs.

use std::convert::Infallible;
use std::time::Duration;

use async_channel::{Receiver, Sender};
use axum::Json;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::error::ApiFailure;
use super::followed_turn::{FollowedTurn, FollowedTurnEvent, TurnAnswer};
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
            FollowedTurnEvent::Delta(ApiDelta::Text(_)) => {}
            FollowedTurnEvent::Delta(ApiDelta::Reasoning(more)) => reasoning.push_str(&more),
            FollowedTurnEvent::Ended(end) => {
                repeats.answered().await;
                return Ok(Json(format.whole(&end, &reasoning)).into_response());
            }
            FollowedTurnEvent::Failed(failure) => {
                if failure.is_answer() {
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
    // Set at the end: whether the request was answered.
    let mut ended = None;
    loop {
        for event in events.drain(..) {
            if sender.send(event).await.is_err() {
                return;
            }
        }
        if let Some(is_answered) = ended {
            if is_answered {
                repeats.answered().await;
            }
            return;
        }
        let step = tokio::select! {
            step = turn.next() => step,
            () = sender.closed() => return,
        };
        match step {
            FollowedTurnEvent::Delta(delta) => events = format.delta(&delta),
            FollowedTurnEvent::Ended(end) => (events, ended) = (format.end(&end), Some(true)),
            FollowedTurnEvent::Failed(failure) => {
                (events, ended) = (format.failed(&failure), Some(failure.is_answer()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;
    use tokio_util::sync::CancellationToken;

    use super::super::completion::ChatCompletion;
    use super::super::followed_turn::FollowedTurnSetup;
    use super::super::gateway::{NAME, REQUEST_NOTE, ScriptedGateway};
    use super::*;
    use crate::conformance::{ScriptedAnswer, ScriptedInbox};
    use crate::event::EventSource;
    use crate::inbox::{AcceptExtras, Inbox, Note};
    use crate::message::{InboundMessage, Trust};

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_a_stopping_gateway_ends_can_be_repeated() {
        for is_stopping in [false, true] {
            let inbox = ScriptedInbox::new(move |_| match is_stopping {
                true => ScriptedAnswer::Hold,
                false => ScriptedAnswer::Reply("hello".to_owned()),
            });
            let (events, shutdown) = (inbox.subscribe(NAME), CancellationToken::new());
            let message = InboundMessage::text(NAME, "work", "owner", Trust::Owner, "hi");
            let id = inbox.accept(message, AcceptExtras::default()).await.unwrap().id();
            if is_stopping {
                inbox.park(id, "The service is away.");
                shutdown.cancel();
            }
            let turn = FollowedTurn::new(FollowedTurnSetup {
                id,
                chat_id: "work".to_owned(),
                wants_reasoning: false,
                is_known: false,
                events,
                inbox: inbox.clone(),
                gateway: Arc::new(ScriptedGateway(Vec::new())),
                shutdown,
            });
            let note =
                Note { channel: NAME.to_owned(), kind: REQUEST_NOTE, key: "k".to_owned(), value: id.to_string() };
            let repeats = RepeatGuard { inbox: inbox.clone(), note: Some(note) };
            let format =
                ChatCompletion { id, model: String::new(), created: Timestamp::UNIX_EPOCH, wants_usage: false };
            let (sender, sent) = async_channel::bounded(BACKLOG);
            send_events(turn, format, repeats, sender).await;
            let mut last = String::new();
            while let Ok(event) = sent.try_recv() {
                last += &event.data;
            }
            assert_eq!(last.contains("\"draining\""), is_stopping, "{last}");
            assert_eq!(inbox.skipped().is_empty(), is_stopping, "the note ends only with an answer");
        }
    }
}
