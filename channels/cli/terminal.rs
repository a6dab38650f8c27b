//! A conversation in a terminal: the gateway's own terminal, or that of `daoyou chat`.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, OptionFuture};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::config::Thinking;
use super::console::{Console, Interrupt};
use super::files::{ConversationFiles, unquote};
use super::host::{ConversationFeed, NameDirectory, TerminalConversation, TerminalHost, follow_after_restart};
use super::local_command::LocalCommand;
use super::painter::Painter;
use super::pending_turn::{PendingTurn, PendingTurnState};
use super::screens::{NAME, ScreenDelivery};
use super::spinner::FRAME;
use super::streams::{ConsoleInput, MAX_LINE, OutputClosed, OutputStream};
use crate::channel::StartError;
use crate::clean::{clean, clean_line};
use crate::event::SessionEvent;
use crate::inbox::{AcceptExtras, Acceptance, Inbox, Refusal, Reply};
use crate::message::{InboundMessage, SessionKey, new_id};
use crate::text::{Language, fill};
use crate::trust::{Author, SenderListing, trust_of};

/// The sender of messages typed at the terminal.
const SENDER: &str = "owner";
const STOP: &str = "/stop";
/// The number of times that a piped line is sent if the gateway has no room for it.
const TRIES: u32 = 5;
/// The time limit for fetching the names for completion.
const NAMES_TIMEOUT: Duration = Duration::from_secs(10);

/// The inputs of a [`Terminal`].
pub struct TerminalSetup {
    pub console: Console,
    /// The text above the first prompt; shown only with a prompt.
    pub banner: String,
    pub conversation: TerminalConversation,
    /// The files that go with the first message.
    pub files: ConversationFiles,
    pub language: Language,
    pub thinking: Thinking,
    /// Delivers SIGINT while a turn runs.
    pub interrupt: Interrupt,
    /// The source of names for completion; set when the gateway is known.
    pub directory: Option<Arc<dyn NameDirectory>>,
    /// Set if a piped line was not taken, or if its turn failed.
    pub has_failed: Arc<AtomicBool>,
}

/// The reason why a conversation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalExit {
    /// `/exit`, `/quit`, or Ctrl-C twice.
    Asked,
    /// Ctrl-D or the end of the lines; each line was answered.
    EndOfInput,
    /// The gateway stops.
    Shutdown,
}

/// A conversation in a terminal. With a prompt it streams each turn. Without one it prints each reply and then reads the next line.
pub struct Terminal {
    setup: TerminalSetup,
    inbox: Arc<dyn Inbox>,
    host: Arc<dyn TerminalHost>,
    following: ConversationFeed,
    painter: Painter,
    turn: Option<PendingTurn>,
    /// The messages that wait for a model service, and those queued after them. The prompt stays, and the terminal shows
    /// their replies on arrival.
    waiting: HashSet<Uuid>,
    /// The messages of this terminal.
    own: HashSet<Uuid>,
    /// The message whose turn has asked a question, which the next line may answer.
    asked: Option<Uuid>,
    /// A message whose reply was shown before it was delivered.
    shown_early: Option<(Uuid, String)>,
    /// The last input was Ctrl-C.
    interrupted: bool,
    /// The `/stop` sent by the last Ctrl-C. Its answer is not shown, because the screen already shows the stop.
    stop: Option<Uuid>,
    /// Reconnects to the gateway after it has stopped.
    reconnecting: Option<BoxFuture<'static, Result<ConversationFeed, StartError>>>,
    /// The message that the user typed while the gateway was away; the terminal sends it when the gateway returns.
    unsent: Option<InboundMessage>,
}

enum TerminalEvent {
    Shutdown,
    Event(SessionEvent),
    ScreenDelivery(Option<ScreenDelivery>),
    TurnProgress(PendingTurnState),
    Reconnected(Result<ConversationFeed, StartError>),
    ConsoleInput(ConsoleInput),
    Interrupt,
    Tick,
}

impl Terminal {
    /// Creates the terminal. `following` is the feed of `setup`'s conversation from `host`.
    pub fn new(
        setup: TerminalSetup,
        inbox: Arc<dyn Inbox>,
        host: Arc<dyn TerminalHost>,
        following: ConversationFeed,
    ) -> Self {
        let painter = Painter::new(setup.console.style, setup.language, setup.thinking);
        Self {
            setup,
            inbox,
            host,
            following,
            painter,
            turn: None,
            waiting: HashSet::new(),
            own: HashSet::new(),
            asked: None,
            shown_early: None,
            interrupted: false,
            stop: None,
            reconnecting: None,
            unsent: None,
        }
    }

    /// Runs the conversation until its end or `shutdown`, and restores the terminal.
    ///
    /// # Errors
    /// The output is closed, or the gateway is gone.
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<TerminalExit, StartError> {
        let exit = tokio::select! {
            exit = self.converse(&shutdown) => exit,
            // The shutdown does not wait for a conversation that is blocked in its output, or waits to send a line again.
            () = stuck_after(&shutdown) => {
                if self.turn.is_some() || self.unsent.is_some() {
                    self.record_failure();
                }
                Ok(TerminalExit::Shutdown)
            }
        };
        self.setup.interrupt.disarm();
        self.setup.console.restore();
        exit
    }

    async fn converse(&mut self, shutdown: &CancellationToken) -> Result<TerminalExit, StartError> {
        if self.setup.console.style.live && !self.setup.banner.is_empty() {
            let lines: Vec<_> = self.setup.banner.trim_end().lines().map(str::to_owned).collect();
            let banner = self.painter.output(&lines);
            self.setup.console.print(banner, OutputStream::Out).await?;
        }
        self.ask().await?;
        let exit = loop {
            match self.step(shutdown).await {
                TerminalEvent::Shutdown => {
                    self.report_unanswered().await?;
                    break TerminalExit::Shutdown;
                }
                TerminalEvent::Event(event) => self.show_event(&event).await?,
                TerminalEvent::ScreenDelivery(Some(delivery)) => self.deliver(delivery).await?,
                TerminalEvent::ScreenDelivery(None) => self.reconnect().await?,
                TerminalEvent::Reconnected(Ok(following)) => self.resume(following).await?,
                TerminalEvent::Reconnected(Err(error)) => return self.give_up(error).await,
                TerminalEvent::TurnProgress(progress) => self.advance(progress).await?,
                TerminalEvent::ConsoleInput(input) => {
                    if let Some(exit) = self.handle_input(input).await? {
                        break exit;
                    }
                }
                TerminalEvent::Interrupt => self.stop().await?,
                TerminalEvent::Tick => {
                    let text = self.painter.tick();
                    self.setup.console.print(text, OutputStream::Out).await?;
                }
            }
        };
        let close = self.painter.leave();
        self.setup.console.print_through(close, OutputStream::Out).await?;
        Ok(exit)
    }

    /// Waits for the next event. Events of turns come first, so that streamed text is on the screen before its reply is handled.
    async fn step(&mut self, shutdown: &CancellationToken) -> TerminalEvent {
        let is_away = self.reconnecting.is_some();
        let (is_spinning, next_frame) = (self.painter.is_spinning(), Instant::now() + FRAME);
        tokio::select! {
            biased;
            () = shutdown.cancelled() => TerminalEvent::Shutdown,
            // After the end of the events, replies still arrive.
            Ok(event) = self.following.events.recv() => TerminalEvent::Event(event),
            delivery = self.following.deliveries.recv(), if !is_away => TerminalEvent::ScreenDelivery(delivery.ok()),
            Some(back) = OptionFuture::from(self.reconnecting.as_mut()) => TerminalEvent::Reconnected(back),
            Some(progress) = OptionFuture::from(self.turn.as_mut().map(PendingTurn::progress)), if !is_away => {
                TerminalEvent::TurnProgress(progress)
            }
            input = self.setup.console.input() => TerminalEvent::ConsoleInput(input),
            () = self.setup.interrupt.raised() => TerminalEvent::Interrupt,
            () = tokio::time::sleep_until(next_frame), if is_spinning => TerminalEvent::Tick,
        }
    }

    async fn show_event(&mut self, event: &SessionEvent) -> Result<(), OutputClosed> {
        if self.setup.console.style.live
            && event.chat_id == self.setup.conversation.chat_id
            && self.turn.as_ref().is_some_and(|turn| turn.concerns(event))
        {
            let text = self.painter.event(&event.event);
            self.setup.console.print(text, OutputStream::Out).await?;
        }
        Ok(())
    }

    async fn deliver(&mut self, delivery: ScreenDelivery) -> Result<(), OutputClosed> {
        let message = delivery.message();
        // Any client's next message answers the question, whoever started the turn.
        let asks = self.turn.as_ref().is_some_and(|turn| turn.is_asked_by(message));
        let was_shown_early = self
            .shown_early
            .take_if(|(id, content)| message.in_reply_to == Some(*id) && message.content == *content)
            .is_some();
        let is_stop = self.stop.is_some() && message.in_reply_to == self.stop && message.error.is_none();
        if !was_shown_early && !is_stop {
            let is_notice = message.context.notice.is_some();
            let is_reply = self.turn.as_ref().is_some_and(|turn| turn.is_answered_by(message));
            let is_own = is_reply || message.in_reply_to.is_some_and(|id| self.own.contains(&id));
            if is_own && !is_notice && message.error.is_some() {
                self.record_failure();
            }
            let text = if is_notice {
                self.painter.hint(&clean(&message.content))
            } else if is_reply || asks {
                self.painter.reply(&message.content, message.error.is_some())
            } else {
                self.painter.message(message, &self.setup.conversation.key())
            };
            // Output into a pipe contains only replies to its lines.
            let is_foreign = message.in_reply_to.is_some() && message.context.job.is_none() && !is_own && !asks;
            let is_aside = is_notice || is_foreign || message.context.is_for_all_terminals;
            let is_err = is_aside && !self.setup.console.style.live;
            let stream = if is_err { OutputStream::Err } else { OutputStream::Out };
            self.setup.console.print_through(text, stream).await?;
            if let Some(turn) = &mut self.turn {
                turn.note(message);
            }
        }
        if let Some(answered) = message.in_reply_to {
            self.waiting.remove(&answered);
            if message.context.notice.is_none() {
                self.own.remove(&answered);
            }
        }
        let waits = message.context.notice.as_deref() == Some("waiting")
            && self.setup.console.style.live
            && self.turn.as_ref().is_some_and(|turn| turn.id == message.turn);
        let turn = message.turn;
        delivery.shown();
        // The next line answers the question.
        if asks {
            (self.turn, self.asked) = (None, Some(turn));
            self.end_turn().await?;
        }
        if waits && let Some(turn) = self.turn.take() {
            self.waiting.insert(turn.id);
            self.end_turn().await?;
        }
        self.finish().await
    }

    async fn advance(&mut self, progress: PendingTurnState) -> Result<(), OutputClosed> {
        match progress {
            PendingTurnState::Continues | PendingTurnState::Ended => {}
            PendingTurnState::Overdue(Reply { content, error }) => {
                if error.is_some() {
                    self.record_failure();
                }
                let text = self.painter.reply(&content, error.is_some());
                self.setup.console.print(text, OutputStream::Out).await?;
                self.shown_early = self.turn.take().map(|turn| (turn.id, content));
                self.end_turn().await?;
            }
            PendingTurnState::Away(_) if !self.host.reconnect_timeout().is_zero() => return self.reconnect().await,
            PendingTurnState::Away(reason) | PendingTurnState::Lost(reason) => {
                self.show_fault(&fill(self.painter.texts.reply_lost, &[&reason])).await?;
                self.turn = None;
                self.end_turn().await?;
            }
        }
        self.finish().await
    }

    /// Reconnects to the gateway in the background. The conversation continues meanwhile, as far as possible.
    async fn reconnect(&mut self) -> Result<(), OutputClosed> {
        let (host, conversation) = (Arc::clone(&self.host), self.setup.conversation.clone());
        if !host.reconnect_timeout().is_zero() && self.unsent.is_none() {
            self.show_hint(self.painter.texts.gateway_gone, OutputStream::Err).await?;
        }
        self.reconnecting = Some(Box::pin(follow_after_restart(host, conversation)));
        Ok(())
    }

    /// Continues after the gateway has returned: sends the unsent message, or waits for the running turn again, which the
    /// gateway streams again.
    async fn resume(&mut self, following: ConversationFeed) -> Result<(), OutputClosed> {
        self.reconnecting = None;
        self.following = following;
        self.show_hint(self.painter.texts.gateway_back, OutputStream::Err).await?;
        if let Some(message) = self.unsent.take() {
            if !self.send_message(message).await? {
                self.ask().await?;
            }
        } else if let Some(turn) = &mut self.turn {
            turn.wait_on(Arc::clone(&self.inbox));
            self.painter.forget_streamed();
        }
        Ok(())
    }

    /// Ends the conversation if the gateway does not return. Reports the message that the gateway did not accept.
    async fn give_up(&mut self, error: StartError) -> Result<TerminalExit, StartError> {
        if let Some(message) = self.unsent.take() {
            self.show_fault(&fill(self.painter.texts.not_taken, &[&clean_line(&message.content)])).await?;
        }
        Err(error)
    }

    /// Reports the piped line that a shutdown leaves without a reply.
    async fn report_unanswered(&mut self) -> Result<(), OutputClosed> {
        let fault = match &self.unsent {
            _ if self.setup.console.style.live => return Ok(()),
            Some(message) => fill(self.painter.texts.not_taken, &[&clean_line(&message.content)]),
            None if self.turn.is_some() => self.painter.texts.stopped_early.to_owned(),
            None => return Ok(()),
        };
        self.show_fault(&fault).await
    }

    /// Ends the turn if it is over.
    async fn finish(&mut self) -> Result<(), OutputClosed> {
        if self.turn.as_ref().is_some_and(PendingTurn::is_over) {
            self.turn = None;
            self.end_turn().await?;
        }
        Ok(())
    }

    /// Ends the output of a turn and asks for the next line.
    async fn end_turn(&mut self) -> Result<(), OutputClosed> {
        self.setup.interrupt.disarm();
        let end = self.painter.end();
        self.setup.console.print(end, OutputStream::Out).await?;
        self.ask().await
    }

    /// Asks for the next line, and refreshes the names for completion in the background.
    async fn ask(&mut self) -> Result<(), OutputClosed> {
        let known = self.setup.console.known.clone();
        known.set_files(self.setup.files.names());
        if let Some(directory) = self.setup.directory.clone().filter(|_| self.setup.console.style.cursor) {
            tokio::spawn(async move {
                if let Ok(names) = tokio::time::timeout(NAMES_TIMEOUT, directory.names()).await {
                    known.set_names(names);
                }
            });
        }
        self.setup.console.ask().await
    }

    async fn handle_input(&mut self, input: ConsoleInput) -> Result<Option<TerminalExit>, OutputClosed> {
        let is_interrupt = matches!(input, ConsoleInput::Interrupted { is_blank: true });
        let again = std::mem::replace(&mut self.interrupted, is_interrupt);
        let texts = self.painter.texts;
        match input {
            ConsoleInput::End => return Ok(Some(TerminalExit::EndOfInput)),
            ConsoleInput::Interrupted { is_blank: true } if again => return Ok(Some(TerminalExit::Asked)),
            ConsoleInput::Interrupted { is_blank: true } => {
                let hint = if self.waiting.is_empty() { texts.leave_hint } else { texts.stays_hint };
                self.show_hint(hint, OutputStream::Out).await?;
            }
            // The typed text is discarded.
            ConsoleInput::Interrupted { is_blank: false } => {}
            ConsoleInput::TooLong => self.show_fault(&fill(texts.line_too_long, &[&MAX_LINE.to_string()])).await?,
            ConsoleInput::NotUtf8 => self.show_fault(texts.line_not_utf8).await?,
            ConsoleInput::Line(line) => match LocalCommand::parse(line.trim()) {
                Some(LocalCommand::Leave) => return Ok(Some(TerminalExit::Asked)),
                Some(local) => self.run_local(local).await?,
                None if line.trim().is_empty() => {}
                None => {
                    if self.submit(line.trim()).await? {
                        return Ok(None);
                    }
                }
            },
        }
        self.ask().await?;
        Ok(None)
    }

    /// Runs a command of the terminal itself.
    async fn run_local(&mut self, local: LocalCommand) -> Result<(), OutputClosed> {
        let texts = self.painter.texts;
        let files = &mut self.setup.files;
        let result = match local {
            LocalCommand::Leave => return Ok(()),
            LocalCommand::Clear => {
                return self.setup.console.print(self.painter.clear().into(), OutputStream::Out).await;
            }
            LocalCommand::Move(key) => return self.move_to(&key).await,
            LocalCommand::Files => Ok(files.lines(texts)),
            LocalCommand::Thinking(mode) if mode.is_empty() => Ok(self.painter.last_thoughts()),
            LocalCommand::Thinking(mode) => match mode.parse::<Thinking>() {
                Ok(thinking) => {
                    self.painter.thinking = thinking;
                    let text = match thinking {
                        Thinking::Fold => texts.thinking_folded,
                        Thinking::Show => texts.thinking_shown,
                        Thinking::Hide => texts.thinking_hidden,
                    };
                    Ok(vec![text.to_owned()])
                }
                Err(_) => Err(texts.which_thinking.to_owned()),
            },
            LocalCommand::Add(name) if name.is_empty() => Err(fill(texts.which_file, &["/add"])),
            LocalCommand::Drop(name) if name.is_empty() => Err(fill(texts.which_file, &["/drop"])),
            LocalCommand::Add(name) => match files.add(&unquote(&name)) {
                Ok(()) => Ok(vec![fill(texts.added, &[&clean_line(&unquote(&name)), &files.last_size()])]),
                Err(fault) => Err(fault.text(texts)),
            },
            LocalCommand::Drop(name) => {
                let (name, shown) = (unquote(&name), clean_line(&unquote(&name)));
                if files.remove(&name) {
                    Ok(vec![fill(texts.dropped, &[&shown])])
                } else {
                    Err(fill(texts.not_added, &[&shown]))
                }
            }
        };
        match result {
            Ok(lines) => {
                let text = self.painter.output(&lines);
                self.setup.console.print(text, OutputStream::Out).await
            }
            Err(fault) => self.show_fault(&fault).await,
        }
    }

    /// Switches to another conversation, after showing the messages that have arrived for this one.
    async fn move_to(&mut self, key: &str) -> Result<(), OutputClosed> {
        let texts = self.painter.texts;
        if !SessionKey::is_valid_choice(key) {
            return self.show_fault(&fill(texts.wrong_key, &[&clean_line(key)])).await;
        }
        let model = self.setup.conversation.model.clone();
        let conversation = TerminalConversation { model, ..TerminalConversation::of(Some(key)) };
        let following = match self.host.follow(&conversation).await {
            Ok(following) => following,
            Err(error) => return self.show_fault(&fill(texts.not_moved, &[key, &error.to_string()])).await,
        };
        while let Ok(delivery) = self.following.deliveries.try_recv() {
            self.deliver(delivery).await?;
        }
        self.following = following;
        self.setup.conversation = conversation;
        // A reconnection would follow the old conversation.
        self.reconnecting = None;
        self.asked = None;
        // Waiting messages get their replies in their own conversation.
        self.waiting.clear();
        self.setup.files.forget_sent();
        self.show_hint(&fill(texts.moved, &[key]), OutputStream::Out).await
    }

    /// Sends a message. Returns true if there is a turn to wait for.
    async fn submit(&mut self, text: &str) -> Result<bool, OutputClosed> {
        let is_command = text.starts_with('/');
        if text.starts_with("/model ") {
            // The session's choice replaces the model of this conversation.
            self.setup.conversation.model = None;
        }
        let content = if is_command { text.to_owned() } else { self.setup.files.join_to(text) };
        let mut message = self.message(&content);
        if !self.host.reconnect_timeout().is_zero() {
            // The id lets a retry find a message that the gateway accepted just before it stopped.
            message.external_id = Some(new_id().to_string());
        }
        self.send_message(message).await
    }

    /// Sends a message. Returns true if there is a turn to wait for, or if the message will be sent when the gateway returns.
    async fn send_message(&mut self, message: InboundMessage) -> Result<bool, OutputClosed> {
        let (is_command, kept) = (message.content.starts_with('/'), message.clone());
        match self.accept(message).await? {
            Ok(acceptance) => {
                if !is_command {
                    self.setup.files.mark_sent();
                }
                self.own.insert(acceptance.id());
                if !self.waiting.is_empty() {
                    self.waiting.insert(acceptance.id());
                    return Ok(false);
                }
                let asked = if is_command { None } else { self.asked.take() };
                self.turn = Some(PendingTurn::new(Arc::clone(&self.inbox), acceptance, asked));
                if self.setup.console.style.live {
                    self.setup.console.hide_input().await?;
                    self.painter.begin();
                    self.setup.interrupt.arm();
                }
                Ok(true)
            }
            Err(refusal) if !self.host.reconnect_timeout().is_zero() && self.is_gateway_leaving(&refusal) => {
                if self.reconnecting.is_none() {
                    self.show_hint(self.painter.texts.gateway_gone, OutputStream::Err).await?;
                }
                self.unsent = Some(kept);
                Ok(true)
            }
            Err(refusal) => {
                self.show_fault(&fill(self.painter.texts.not_taken, &[&refusal.to_string()])).await?;
                Ok(false)
            }
        }
    }

    /// Hands a message to the gateway. A piped line that the gateway has no room for is sent again after the time that it names.
    async fn accept(&mut self, message: InboundMessage) -> Result<Result<Acceptance, Refusal>, OutputClosed> {
        for _ in 1..TRIES {
            let result = self.inbox.accept(message.clone(), AcceptExtras::default()).await;
            let refused = result.as_ref().err().filter(|_| !self.setup.console.style.live);
            let Some((refusal, wait)) = refused.and_then(|refusal| Some((refusal, refusal.wait_for_room()?))) else {
                return Ok(result);
            };
            let (reason, seconds) = (refusal.to_string(), wait.as_secs().to_string());
            let hint = fill(self.painter.texts.sent_again, &[&reason, &seconds]);
            self.show_hint(&hint, OutputStream::Err).await?;
            tokio::time::sleep(wait).await;
        }
        Ok(self.inbox.accept(message, AcceptExtras::default()).await)
    }

    fn record_failure(&self) {
        if !self.setup.console.style.live {
            self.setup.has_failed.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true if the gateway refused the message because it stops or is gone.
    fn is_gateway_leaving(&self, refusal: &Refusal) -> bool {
        let is_gone = self.reconnecting.is_some() || self.following.deliveries.is_closed();
        is_gone || matches!(refusal, Refusal::Draining { .. })
    }

    /// Stops the running turn, after Ctrl-C.
    async fn stop(&mut self) -> Result<(), OutputClosed> {
        if self.turn.is_some() {
            self.show_hint(self.painter.texts.stopping, OutputStream::Out).await?;
            match self.inbox.accept(self.message(STOP), AcceptExtras::default()).await {
                Ok(accepted) => self.stop = Some(accepted.id()),
                Err(refusal) => {
                    self.show_fault(&fill(self.painter.texts.not_stopped, &[&refusal.to_string()])).await?;
                }
            }
        }
        Ok(())
    }

    fn message(&self, text: &str) -> InboundMessage {
        let TerminalConversation { chat_id, session, model } = &self.setup.conversation;
        let mut message =
            InboundMessage::text(NAME, chat_id, SENDER, trust_of(Author::Owner, SenderListing::Owner), text);
        message.session.clone_from(session);
        message.settings.requested_model.clone_from(model);
        message
    }

    async fn show_hint(&mut self, message: &str, stream: OutputStream) -> Result<(), OutputClosed> {
        let text = self.painter.hint(message);
        self.setup.console.print(text, stream).await
    }

    /// Shows an error: on the screen if there is a prompt, otherwise on standard error, apart from the replies.
    async fn show_fault(&mut self, message: &str) -> Result<(), OutputClosed> {
        self.record_failure();
        let text = self.painter.fault(message);
        let stream = if self.setup.console.style.live { OutputStream::Out } else { OutputStream::Err };
        self.setup.console.print(text, stream).await
    }
}

/// Completes one second after `shutdown`.
async fn stuck_after(shutdown: &CancellationToken) {
    shutdown.cancelled().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
}
