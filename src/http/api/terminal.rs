//! Terminals that are attached to a gateway: `daoyou chat` follows a chat of the channel `cli` over the control socket.

use std::convert::Infallible;
use std::sync::Arc;

use async_channel::Receiver;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::get;
use axum::{Json, Router};
use daoyou_channels::cli::{CompletionNames, NameDirectory, ScreenHandle, TerminalConversation};
use daoyou_channels::{EventSource, HttpError, SessionEvent, SessionKey};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::http::access::{Principal, StreamAccess};
use crate::http::state::{AppState, SharedState};
use crate::query::{TerminalFrame, TerminalInfo};

pub(super) fn routes() -> Router<Arc<AppState>> {
    Router::new().route("/api/attach", get(attach)).route("/api/terminal", get(info))
}

#[derive(Deserialize)]
struct InfoParams {
    session: Option<SessionKey>,
    model: Option<String>,
}

/// Returns the conversation's model and the names for completion, or 422 with the reason why it has no model.
async fn info(State(state): SharedState, Query(params): Query<InfoParams>) -> Result<Json<TerminalInfo>, HttpError> {
    let conversation =
        TerminalConversation { session: params.session, model: params.model, ..TerminalConversation::of(None) };
    let model = state.directory.model(&conversation).await;
    let model = model.map_err(|reason| HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, "no_model", reason))?;
    let CompletionNames { sessions, models } = state.directory.names().await;
    Ok(Json(TerminalInfo { model, sessions, models }))
}

#[derive(Deserialize)]
struct AttachParams {
    chat_id: String,
    session: Option<String>,
}

/// Streams [`TerminalFrame`]s until either side ends.
async fn attach(
    State(state): SharedState,
    principal: Principal,
    Query(params): Query<AttachParams>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let events = state.bus.events().subscribe("cli");
    let access = StreamAccess::new(state.auth.clone(), principal);
    let attachment = state.cli.attach(&params.chat_id, params.session.map(SessionKey::from));
    let first = Some(TerminalFrame::Attached);
    let terminal = AttachedTerminal { attachment, events, access, shutdown: state.shutdown.clone(), first };
    let frames = stream::unfold(terminal, |mut terminal| async move {
        let frame = terminal.next().await?;
        let event = Event::default().json_data(&frame).unwrap_or_else(|_| Event::default().comment("unreadable"));
        Some((Ok(event), terminal))
    });
    Sse::new(frames).keep_alive(KeepAlive::default())
}

struct AttachedTerminal {
    attachment: ScreenHandle,
    events: Receiver<SessionEvent>,
    access: StreamAccess,
    shutdown: CancellationToken,
    first: Option<TerminalFrame>,
}

impl AttachedTerminal {
    async fn next(&mut self) -> Option<TerminalFrame> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            if !self.access.is_still_valid().await {
                return None;
            }
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return None,
                () = self.access.due() => {}
                // Events come first, so that the streamed part of a reply precedes the reply.
                event = self.events.recv() => match event {
                    Ok(event) if self.attachment.follows(&event) => {
                        return self.access.is_still_valid().await.then_some(TerminalFrame::Event(event));
                    }
                    Ok(_) => {}
                    Err(_) => return None,
                },
                delivery = self.attachment.deliveries().recv() => match delivery {
                    Ok(delivery) => {
                        if !self.access.is_still_valid().await {
                            return None;
                        }
                        let message = delivery.message().clone();
                        // A message that was written to the socket counts as shown: a terminal never receives a message twice, and a
                        // client that dies now finds the message in its session.
                        delivery.shown();
                        return Some(TerminalFrame::Delivery(message));
                    }
                    Err(_) => return None,
                },
            }
        }
    }
}
