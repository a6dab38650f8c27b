//! A screen elsewhere: `daoyou chat` follows a chat of the channel `cli` over the control socket.

use std::convert::Infallible;
use std::sync::Arc;

use async_channel::Receiver;
use axum::extract::{Query, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use daoyou_channels::cli::Attachment;
use daoyou_channels::{EventSource, SessionEvent, SessionKey};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::routes::Hub;
use crate::control::Frame;

/// Which chat to follow.
#[derive(Deserialize)]
pub struct Follow {
    chat_id: String,
    session: Option<String>,
}

/// Streams [`Frame`]s until either side goes.
pub async fn attach(
    State(hub): State<Arc<Hub>>,
    Query(follow): Query<Follow>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let events = hub.bus.events().subscribe("cli");
    let attachment = hub.cli.attach(&follow.chat_id, follow.session.map(SessionKey::from));
    let model = match hub.models.get().resolve(&hub.model.get()).await {
        Ok(choice) => choice.to_string(),
        Err(error) => error.to_string(),
    };
    let screen = Screen { attachment, events, shutdown: hub.shutdown.clone(), first: Some(Frame::Attached { model }) };
    let frames = stream::unfold(screen, |mut screen| async move {
        let frame = screen.next().await?;
        let event = Event::default().json_data(&frame).unwrap_or_else(|_| Event::default().comment("unreadable"));
        Some((Ok(event), screen))
    });
    Sse::new(frames).keep_alive(KeepAlive::default())
}

struct Screen {
    attachment: Attachment,
    events: Receiver<SessionEvent>,
    shutdown: CancellationToken,
    first: Option<Frame>,
}

impl Screen {
    async fn next(&mut self) -> Option<Frame> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return None,
                // Events first: what was streamed of a reply goes out before the reply.
                event = self.events.recv() => match event {
                    Ok(event) if self.attachment.follows(&event) => return Some(Frame::Event(event)),
                    Ok(_) => {}
                    Err(_) => return None,
                },
                delivery = self.attachment.deliveries().recv() => match delivery {
                    Ok(delivery) => {
                        let message = delivery.message().clone();
                        // What is handed to the socket here is as good as shown: the terminal is never sent a
                        // message twice, so a client that dies now finds it in its session.
                        delivery.shown();
                        return Some(Frame::Delivery(message));
                    }
                    Err(_) => return None,
                },
            }
        }
    }
}
