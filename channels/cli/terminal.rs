//! A conversation at a terminal: the gateway's own, and that of `daoyou chat`.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::console::{Closed, Console, Input, Stream};
use super::hub::{Delivery, NAME};
use super::interrupt::Interrupt;
use super::render::Painter;
use super::turn::{Progress, Turn};
use crate::channel::StartError;
use crate::event::SessionEvent;
use crate::inbox::{Inbox, Reply};
use crate::message::{InboundMessage, SessionKey, Trust};

/// Whoever sits at the terminal.
const SENDER: &str = "owner";
const STOP: &str = "/stop";

/// What a conversation is seen through, and which one it is.
pub struct Front {
    pub console: Console,
    /// What stands above the first prompt; shown at a prompt only.
    pub banner: String,
    /// The chat on the channel `cli`; `direct` for the gateway's owner.
    pub chat_id: String,
    /// The session of what is written here, when it is not the chat's own.
    pub session: Option<SessionKey>,
    /// SIGINT while a turn runs.
    pub interrupt: Interrupt,
}

/// Why a conversation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// `/exit`, `/quit`, or Ctrl-C twice.
    Asked,
    /// Ctrl-D, or no more lines; each one was answered.
    EndOfInput,
    /// It was told to stop.
    Shutdown,
}

/// The conversation. At a prompt it streams each turn as it runs; without one it prints each reply, and reads the next
/// line when the one before it is answered.
pub struct Terminal {
    front: Front,
    inbox: Arc<dyn Inbox>,
    deliveries: async_channel::Receiver<Delivery>,
    events: async_channel::Receiver<SessionEvent>,
    painter: Painter,
    turn: Option<Turn>,
    /// A message whose reply was shown before it was delivered.
    ahead: Option<(Uuid, String)>,
    /// Ctrl-C came, and nothing since.
    interrupted: bool,
}

enum Step {
    Shutdown,
    Event(Option<SessionEvent>),
    Delivery(Option<Delivery>),
    Turn(Progress),
    Input(Input),
    Interrupt,
}

impl From<Closed> for StartError {
    fn from(_: Closed) -> Self {
        Self("nobody reads the terminal's output any more".into())
    }
}

impl Terminal {
    /// `deliveries` are the messages of the conversation's chat, `events` those of its channel; those of other
    /// sessions are left out here.
    pub fn new(
        front: Front,
        inbox: Arc<dyn Inbox>,
        deliveries: async_channel::Receiver<Delivery>,
        events: async_channel::Receiver<SessionEvent>,
    ) -> Self {
        let painter = Painter::new(front.console.style);
        Self { front, inbox, deliveries, events, painter, turn: None, ahead: None, interrupted: false }
    }

    /// Runs the conversation until its end or `shutdown`; leaves the terminal as it was found.
    ///
    /// # Errors
    ///
    /// Nobody reads the output, or the messages stopped coming (the gateway is gone).
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<Left, StartError> {
        let left = tokio::select! {
            left = self.converse(&shutdown) => left,
            // A conversation stuck in its output is not waited for.
            () = stuck_after(&shutdown) => Ok(Left::Shutdown),
        };
        self.front.interrupt.disarm();
        self.front.console.restore();
        left
    }

    async fn converse(&mut self, shutdown: &CancellationToken) -> Result<Left, StartError> {
        if self.front.console.style.live && !self.front.banner.is_empty() {
            let banner = format!("{}\n", self.front.banner.trim_end());
            self.front.console.print(banner, Stream::Out).await?;
        }
        self.front.console.ask().await?;
        loop {
            let left = match self.step(shutdown).await {
                Step::Shutdown => Some(Left::Shutdown),
                Step::Event(event) => self.show_event(event).await?,
                Step::Delivery(Some(delivery)) => self.deliver(delivery).await?,
                Step::Delivery(None) => return Err(StartError("the gateway is gone".into())),
                Step::Turn(progress) => self.advance(progress).await?,
                Step::Input(input) => self.take(input).await?,
                Step::Interrupt => self.stop().await?,
            };
            if let Some(left) = left {
                self.front.console.print_through(String::new(), Stream::Out).await?;
                return Ok(left);
            }
        }
    }

    /// Events first: what was streamed of a reply stands on the screen before the reply itself is looked at.
    async fn step(&mut self, shutdown: &CancellationToken) -> Step {
        let turn = &mut self.turn;
        let progress = async {
            match turn {
                Some(turn) => turn.progress().await,
                None => std::future::pending().await,
            }
        };
        let events = &self.events;
        let event = async {
            match events.recv().await {
                Ok(event) => Some(event),
                // Nothing will be streamed any more; the replies still come.
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => Step::Shutdown,
            event = event => Step::Event(event),
            delivery = self.deliveries.recv() => Step::Delivery(delivery.ok()),
            progress = progress => Step::Turn(progress),
            input = self.front.console.inputs.recv() => Step::Input(input.unwrap_or(Input::End)),
            () = self.front.interrupt.raised() => Step::Interrupt,
        }
    }

    async fn show_event(&mut self, event: Option<SessionEvent>) -> Result<Option<Left>, Closed> {
        if let Some(event) = event
            && self.front.console.style.live
            && event.chat_id == self.front.chat_id
            && self.turn.as_ref().is_some_and(|turn| turn.concerns(&event))
        {
            let text = self.painter.event(&event.event);
            self.front.console.print(text, Stream::Out).await?;
        }
        Ok(None)
    }

    async fn deliver(&mut self, delivery: Delivery) -> Result<Option<Left>, Closed> {
        let message = delivery.message();
        let shown_ahead = self
            .ahead
            .take_if(|(id, content)| message.in_reply_to == Some(*id) && message.content == *content)
            .is_some();
        if !shown_ahead {
            let text = self.painter.message(message);
            self.front.console.print_through(text, Stream::Out).await?;
            if let Some(turn) = &mut self.turn {
                turn.note(message);
            }
        }
        delivery.shown();
        self.finish().await
    }

    async fn advance(&mut self, progress: Progress) -> Result<Option<Left>, Closed> {
        match progress {
            Progress::Ended => {}
            Progress::Overdue(Reply { content, error }) => {
                let text = self.painter.reply(&content, error.is_some());
                self.front.console.print(text, Stream::Out).await?;
                self.ahead = self.turn.take().map(|turn| (turn.id, content));
                self.rest().await?;
            }
            Progress::Lost(words) => {
                self.complain(&format!("The reply is lost to this terminal: {words}")).await?;
                self.turn = None;
                self.rest().await?;
            }
        }
        self.finish().await
    }

    /// Asks for the next line when the turn is over.
    async fn finish(&mut self) -> Result<Option<Left>, Closed> {
        if self.turn.as_ref().is_some_and(Turn::is_over) {
            self.turn = None;
            self.rest().await?;
        }
        Ok(None)
    }

    async fn rest(&mut self) -> Result<(), Closed> {
        self.front.interrupt.disarm();
        let end = self.painter.end();
        self.front.console.print(end, Stream::Out).await?;
        self.front.console.ask().await
    }

    async fn take(&mut self, input: Input) -> Result<Option<Left>, Closed> {
        let again = std::mem::replace(&mut self.interrupted, matches!(input, Input::Interrupted));
        match input {
            Input::End => return Ok(Some(Left::EndOfInput)),
            Input::Interrupted if again => return Ok(Some(Left::Asked)),
            Input::Interrupted => {
                let hint = self.painter.hint("(Ctrl-C again, or Ctrl-D, leaves)");
                self.front.console.print(hint, Stream::Out).await?;
            }
            Input::Rejected(words) => self.complain(&words).await?,
            Input::Line(line) => match line.trim() {
                "" => {}
                "/exit" | "/quit" => return Ok(Some(Left::Asked)),
                "/clear" => self.front.console.print(self.painter.clear().into(), Stream::Out).await?,
                text => {
                    if self.submit(text).await? {
                        return Ok(None);
                    }
                }
            },
        }
        self.front.console.ask().await?;
        Ok(None)
    }

    /// Hands a message in. True when there is a turn to wait for.
    async fn submit(&mut self, text: &str) -> Result<bool, Closed> {
        match self.inbox.accept(self.message(text), None).await {
            Ok(acceptance) => {
                self.turn = Some(Turn::new(Arc::clone(&self.inbox), acceptance));
                if self.front.console.style.live {
                    self.front.interrupt.arm();
                }
                Ok(true)
            }
            Err(refusal) => {
                self.complain(&format!("Not taken: {refusal}")).await?;
                Ok(false)
            }
        }
    }

    /// Ctrl-C while a turn runs.
    async fn stop(&mut self) -> Result<Option<Left>, Closed> {
        if self.turn.is_some() {
            let hint = self.painter.hint("(stopping; Ctrl-C again leaves)");
            self.front.console.print(hint, Stream::Out).await?;
            if let Err(refusal) = self.inbox.accept(self.message(STOP), None).await {
                self.complain(&format!("Not stopped: {refusal}")).await?;
            }
        }
        Ok(None)
    }

    fn message(&self, text: &str) -> InboundMessage {
        let message = InboundMessage::text(NAME, &self.front.chat_id, SENDER, Trust::Owner, text);
        InboundMessage { session: self.front.session.clone(), ..message }
    }

    async fn complain(&mut self, words: &str) -> Result<(), Closed> {
        let text = self.painter.fault(words);
        self.front.console.print(text, Stream::Err).await
    }
}

/// Completes a while after `shutdown`.
async fn stuck_after(shutdown: &CancellationToken) {
    shutdown.cancelled().await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
}
