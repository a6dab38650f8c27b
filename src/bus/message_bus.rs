//! The message bus: publishes and consumes inbound and outbound messages.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender};
use async_trait::async_trait;
use daoyou_channels::{InboundMessage, Refusal, SessionKey};
use parking_lot::Mutex;
use uuid::Uuid;

use super::capacity::{Capacities, CapacityTracker, check_reserve};
use super::drafts::{NoticeKind, OutboundDraft, OutboxSlot, mark_cancelled};
use super::events::EventHub;
use super::health::{ProviderHealth, stored_faults};
use super::notices::{
    DeadLetter, NoticeSettings, NoticeThrottle, REFUSED_KEY, forget_refusal, is_refusal_news, record_refusal,
    reported_refusals, write_notice,
};
use super::wake_ups::{Waiters, WakeQueue};
use crate::live::LivePart;
use crate::metrics::Metrics;
use crate::phrases::fill;
use crate::store::processes::ProcessRow;
use crate::store::{Connection, Durability, Store, StoreError, approvals, inbox, losses, now_ms, outbox, questions};

/// A signal to the consumer of inbound messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InboundSignal {
    /// This session has an unfinished message.
    Work(SessionKey),
    /// This turn has to stop.
    Cancel(Uuid),
    /// All turns that wait for a model service must be retried now, even if its circuit breaker is open: the owner asked for it.
    RetryServices,
    /// The model of this session changed: its turn must be retried now if it waits for a model.
    RetrySession(SessionKey),
    /// The approval or answer that this turn of the session waited for has arrived or expired.
    Resume(Uuid, SessionKey),
    /// Signals were dropped: the consumer must read all unfinished rows.
    Rescan,
}

/// A command that is answered at acceptance, without a turn in the session's lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlCommand {
    Stop,
    Status,
    /// Another command. It changes at most the session's model, and is answered at acceptance only while the session's turn waits.
    Command,
}

/// Recognizes and answers the commands that bypass the lanes.
#[async_trait]
pub trait ControlCommands: Send + Sync {
    fn control_command(&self, message: &InboundMessage) -> Option<ControlCommand>;

    /// Returns true if the message is a slash command, known or unknown. Such a message answers no question.
    fn is_command(&self, message: &InboundMessage) -> bool;

    /// Returns a remark about the ignored part of the message, or `None` if nothing was ignored.
    fn unread_remark(&self, _message: &InboundMessage) -> Option<String> {
        None
    }

    /// Returns the reply to `/stop`. It says whether a turn ran that the sender may stop, how many sub-agents end with it, and which
    /// background commands continue.
    fn stop_reply(
        &self,
        message: &InboundMessage,
        something_ran: bool,
        sub_agents: usize,
        processes: &[ProcessRow],
    ) -> String;

    /// Returns the reply to `/status`.
    async fn status_reply(&self, bus: &MessageBus, message: &InboundMessage) -> String;

    /// Answers a command while the turn of its session waits.
    async fn answer_command(&self, message: &InboundMessage) -> Result<CommandAnswer, StoreError>;
}

/// The answer to a command, and the change that it makes.
#[derive(Clone, Debug)]
pub struct CommandAnswer {
    pub reply: String,
    /// The stable code of the error if the command failed.
    pub error: Option<&'static str>,
    /// The new model of the session; `Some(None)` resets it to the configured one.
    pub model: Option<Option<String>>,
}

/// The settings of a bus.
#[derive(Clone)]
pub struct BusSettings {
    /// Recognizes and answers the commands that are answered at acceptance.
    pub commands: Arc<dyn ControlCommands>,
    pub capacities: Capacities,
    /// The free bytes on disk below which no message is accepted.
    pub reserve: u64,
    /// The retry delay that callers are given when the gateway stops.
    pub drain_timeout: Duration,
    /// True if each sender in a chat has a session of their own.
    pub by_sender: bool,
    pub notices: Option<NoticeSettings>,
}

/// A turn that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnEndNotice {
    pub turn: Uuid,
    /// The stable error code if the turn failed.
    pub error: Option<&'static str>,
    /// The time of the end, in UTC milliseconds.
    pub at: i64,
}

/// A function that returns true if a terminal or page is open that shows notices.
type OpenCheck = OnceLock<Box<dyn Fn() -> bool + Send + Sync>>;

/// The message bus. Every published message is a row in the store before the bus wakes its consumer.
pub struct MessageBus {
    pub(super) store: Store,
    pub(super) settings: LivePart<BusSettings>,
    notice_throttle: NoticeThrottle,
    /// The providers that refused their key, and the model that was refused and has not answered since.
    refused_keys: Mutex<BTreeMap<String, String>>,
    /// Returns true if a terminal is open.
    terminals: OpenCheck,
    /// Returns true if a page is open.
    pages: OpenCheck,
    pub(super) capacity: CapacityTracker,
    pub(super) waiters: Waiters,
    pub(super) events: Arc<EventHub>,
    pub(super) draining: AtomicBool,
    pub(super) inbound: WakeQueue<InboundSignal>,
    pub(super) outbound: WakeQueue<String>,
    pub(super) metrics: Arc<Metrics>,
    services: ProviderHealth,
    turn_ends: OnceLock<Sender<TurnEndNotice>>,
}

/// The maximum number of turn ends that wait for the reader.
const TURN_ENDS: usize = 4_096;

/// The channel and the chat for notices on the page.
const PAGE_NOTICES: [&str; 2] = ["page", "notices"];

impl MessageBus {
    /// Creates the bus of `store`.
    pub fn new(store: Store, settings: LivePart<BusSettings>, metrics: Arc<Metrics>) -> Self {
        Self {
            store,
            settings,
            notice_throttle: NoticeThrottle::default(),
            refused_keys: Mutex::default(),
            terminals: OnceLock::new(),
            pages: OnceLock::new(),
            capacity: CapacityTracker::default(),
            waiters: Waiters::default(),
            events: Arc::default(),
            draining: AtomicBool::new(false),
            inbound: WakeQueue::new(),
            outbound: WakeQueue::new(),
            metrics,
            services: ProviderHealth::default(),
            turn_ends: OnceLock::new(),
        }
    }

    /// Returns a receiver of future turn ends; `None` if another reader has it already. A reader that falls behind misses some ends.
    pub fn watch_turn_ends(&self) -> Option<Receiver<TurnEndNotice>> {
        let (sender, receiver) = async_channel::bounded(TURN_ENDS);
        self.turn_ends.set(sender).ok().map(|()| receiver)
    }

    /// Notifies the reader of [`Self::watch_turn_ends`], if there is one, of the end of a turn.
    pub fn turn_ended(&self, turn: Uuid, error: Option<&'static str>) {
        let Some(reader) = self.turn_ends.get() else { return };
        if reader.try_send(TurnEndNotice { turn, error, at: now_ms() }).is_err() {
            tracing::warn!(%turn, "telemetry is behind; the trace of this turn is not sent");
        }
    }

    /// Sets the function that tells whether an open terminal shows notices. Called once, for the only channel of terminals.
    pub fn watch_terminals(&self, is_open: impl Fn() -> bool + Send + Sync + 'static) {
        let _ = self.terminals.set(Box::new(is_open));
    }

    /// Sets the function that tells whether an open page shows notices; a page is used if no terminal is open. Called once.
    pub fn watch_pages(&self, is_open: impl Fn() -> bool + Send + Sync + 'static) {
        let _ = self.pages.set(Box::new(is_open));
    }

    /// Returns where notices for the owner go now. If terminals are configured but none is open, notices go to an open page; without
    /// one, the result is `None` and notices go only to the log.
    pub(super) fn notice_settings(&self) -> Option<NoticeSettings> {
        self.notice_settings_in(&self.settings.get())
    }

    /// Returns where notices for the owner go under `settings`, as [`Self::notice_settings`] does for the current
    /// settings.
    pub(super) fn notice_settings_in(&self, settings: &BusSettings) -> Option<NoticeSettings> {
        let notices = settings.notices.clone()?;
        let is_open = |check: &OpenCheck| check.get().is_some_and(|is_open| is_open());
        if !notices.on_terminals || is_open(&self.terminals) {
            return Some(notices);
        }
        let (channel, chat_id) = PAGE_NOTICES.map(str::to_owned).into();
        is_open(&self.pages).then_some(NoticeSettings { on_terminals: false, channel, chat_id, ..notices })
    }

    /// Returns how long running turns may continue when the gateway stops.
    pub fn drain_timeout(&self) -> Duration {
        self.settings.get().drain_timeout
    }

    /// Counts the rows in the store, so that capacities hold across restarts.
    ///
    /// # Errors
    /// The store cannot be read; nothing is counted then.
    pub async fn recount(&self) -> Result<(), StoreError> {
        let (inbound, outbound, faults, refused) = self
            .store
            .read(|connection| {
                let faults = match inbox::has_waiting_turn(connection)? {
                    true => stored_faults(connection)?,
                    false => BTreeMap::new(),
                };
                let (inbound, outbound) = (inbox::open_sessions(connection)?, outbox::open_by_channel(connection)?);
                Ok((inbound, outbound, faults, reported_refusals(connection)?))
            })
            .await?;
        self.services.restore(faults);
        *self.refused_keys.lock() = refused;
        for (session, messages, _) in inbound {
            self.capacity.add(&SessionKey::from(session), messages);
        }
        for (channel, messages) in outbound {
            self.capacity.add_outbound(&channel, messages);
        }
        Ok(())
    }

    /// Waits for the next inbound signal. Only the single consumer calls it.
    pub async fn consume_inbound(&self) -> InboundSignal {
        self.inbound.next().await.unwrap_or(InboundSignal::Rescan)
    }

    /// Counts inbox rows that the caller committed, and wakes the consumer.
    pub fn inbound_written(&self, session: SessionKey, messages: usize) {
        self.capacity.add(&session, messages);
        self.signal(InboundSignal::Work(session));
    }

    /// Stops the turn of an accepted message as `/stop` does, with its sub-agents and its question. A message whose turn has not
    /// started ends without a turn. Returns false if the message has already ended.
    ///
    /// # Errors
    /// The store cannot be read or written.
    pub async fn cancel_message(&self, id: Uuid) -> Result<bool, StoreError> {
        let cancelled = self.store.write(Durability::Synced, move |connection| mark_cancelled(connection, id)).await?;
        let is_open = !cancelled.is_empty();
        self.stop_turns(cancelled);
        Ok(is_open)
    }

    /// Makes the consumer stop these turns. The caller has marked their rows.
    pub fn stop_turns(&self, cancelled: Vec<(Uuid, String)>) {
        for (turn, session) in cancelled {
            tracing::info!(%session, %turn, "asked to stop");
            self.signal(InboundSignal::Cancel(turn));
            self.signal(InboundSignal::Work(session.into()));
        }
    }

    /// Writes a message into the outbox in its own commit, and wakes the consumer.
    ///
    /// # Errors
    /// The message cannot be serialized, or the commit fails. Nothing is sent then.
    pub async fn publish_outbound(&self, draft: OutboundDraft) -> Result<Uuid, StoreError> {
        let channel = draft.channel.clone();
        let inserted = self.store.write(Durability::Synced, move |connection| draft.insert(connection)).await?;
        self.outbound_inserted(&channel, inserted);
        Ok(inserted.id)
    }

    /// Notifies the owner of a dead letter, at most once an hour for each reason, since an unreachable receiver causes many. There
    /// is no notice for an undeliverable notice, and none through the channel that failed.
    pub async fn notify_dead_letter(&self, letter: DeadLetter<'_>) {
        let DeadLetter { turn, id, channel, reason, .. } = letter;
        let Some(notices) = self.notice_settings().filter(|notices| notices.can_report(&letter)) else { return };
        if !self.notice_throttle.mark_if_new(channel, reason, Instant::now()) {
            return;
        }
        let content = fill(notices.dead_letter, &[channel, &id.to_string(), reason]);
        let draft = notices.draft(turn, OutboxSlot::notice_about(NoticeKind::DeadLetter, id.to_string()), content);
        if let Err(error) = self.publish_outbound(draft).await {
            self.notice_throttle.forget(channel, reason);
            tracing::error!(%id, %error, "the notice of a dead letter could not be written");
        }
    }

    /// Notifies the owner that a channel cannot send, if notices go through another channel.
    pub async fn notify_held(&self, channel: &str, reason: &str) {
        let Some(notices) = self.notice_settings().filter(|notices| notices.channel != channel) else { return };
        let slot = OutboxSlot::notice_about(NoticeKind::HeldChannel, channel);
        let draft = notices.draft(daoyou_channels::new_id(), slot, fill(notices.held, &[channel, reason]));
        if let Err(error) = self.publish_outbound(draft).await {
            tracing::error!(channel, %error, "the notice that a channel cannot send could not be written");
        }
    }

    /// Notifies the owner of losses, once for each loss.
    ///
    /// # Errors
    /// The store cannot be written; the next start tries again.
    pub async fn notify_losses(&self) -> Result<(), StoreError> {
        let Some(notices) = self.notice_settings() else { return Ok(()) };
        let channel = notices.channel.clone();
        let tell = move |connection: &Connection| {
            let unreported = losses::take_unreported(connection)?;
            for loss in &unreported {
                let (slot, content) = (OutboxSlot::notice(NoticeKind::Loss), fill(notices.loss, &[&loss.description]));
                notices.draft(daoyou_channels::new_id(), slot, content).insert(connection)?;
            }
            Ok(unreported.len())
        };
        let written = self.store.write(Durability::Synced, tell).await?;
        if written > 0 {
            self.outbound_written(&channel, written);
        }
        Ok(())
    }

    /// Writes a notice for the owner into the outbox, within the caller's commit. Returns the channel that has to deliver the
    /// notice; the caller wakes that channel. Returns `None` if the notice goes to the log.
    ///
    /// # Errors
    /// The notice cannot be written; the caller's commit must not succeed without it.
    pub fn write_owner_notice(
        &self,
        connection: &Connection,
        turn: Uuid,
        slot: OutboxSlot,
        content: String,
    ) -> Result<Option<String>, StoreError> {
        write_notice(connection, self.notice_settings().as_ref(), turn, slot, content)
    }

    /// Waits for the next channel with messages to deliver; `None` means all channels. Only the single consumer calls it.
    pub async fn consume_outbound(&self) -> Option<String> {
        self.outbound.next().await
    }

    /// Counts outbox rows that the caller committed, and wakes the consumer.
    pub fn outbound_written(&self, channel: &str, messages: usize) {
        self.capacity.add_outbound(channel, messages);
        self.outbound.wake(channel.to_owned());
    }

    /// Counts an outbox row that the caller committed, unless it took the place of a counted one. Wakes the consumer.
    pub fn outbound_inserted(&self, channel: &str, inserted: outbox::InsertedOutbound) {
        self.outbound_written(channel, usize::from(!inserted.replaces_pending));
    }

    /// Wakes the consumer for outbox rows that were made due before their retry time.
    pub fn outbound_made_due(&self, channel: &str) {
        self.outbound.wake(channel.to_owned());
    }

    /// Counts an outbox row as sent or given up.
    pub fn outbound_ended(&self, channel: &str) {
        self.capacity.remove_outbound(channel);
    }

    /// Releases the capacity of a session's ended messages, and wakes their waiters.
    pub fn inbound_ended(&self, session: &SessionKey, messages: &[Uuid]) {
        self.capacity.release(session, messages.len());
        self.waiters.wake(messages);
    }

    /// Returns the faults of the model services that messages wait for.
    pub fn services(&self) -> &ProviderHealth {
        &self.services
    }

    /// Records that a model service has answered, so that its fault is over. It accepts its key again if it refused it for this
    /// `model`: some services refuse one model, and accept the key for others.
    pub fn service_answered(self: &Arc<Self>, provider: &str, model: &str) {
        if self.services.record_answer(provider) {
            self.write_in_background(|bus, connection| bus.services.write(connection, &[]));
        }
        let mut refused_keys = self.refused_keys.lock();
        if refused_keys.get(provider).is_none_or(|refused| refused != model) {
            return;
        }
        refused_keys.remove(provider);
        self.notice_throttle.forget(REFUSED_KEY, provider);
        let provider = provider.to_owned();
        self.write_in_background(move |_, connection| forget_refusal(connection, &provider));
    }

    /// Notifies the owner, in the background and once a day for each provider, that it refuses its key while another model answers. A
    /// provider whose fault has a notice needs none. If the refused `model` has answered since the last notice, a refusal is new.
    pub fn notify_refused_key(self: &Arc<Self>, provider: &str, model: &str, content: String) {
        self.refused_keys.lock().entry(provider.to_owned()).or_insert_with(|| model.to_owned());
        if !self.notice_throttle.mark_if_new(REFUSED_KEY, provider, Instant::now()) {
            return;
        }
        let (bus, provider, model) = (self.clone(), provider.to_owned(), model.to_owned());
        tokio::spawn(async move {
            let (writer, refused) = (bus.clone(), provider.clone());
            let write = move |connection: &Connection| {
                if writer.services.has_notice(connection, &refused)? || !is_refusal_news(connection, &refused)? {
                    return Ok(None);
                }
                let slot = OutboxSlot::notice(NoticeKind::Service);
                let channel =
                    writer.write_owner_notice(connection, daoyou_channels::new_id(), slot, content.clone())?;
                if channel.is_some() {
                    record_refusal(connection, &refused, model.clone())?;
                }
                Ok(channel)
            };
            match bus.store.write(Durability::Synced, write).await {
                Ok(channel) => channel.iter().for_each(|channel| bus.outbound_written(channel, 1)),
                Err(error) => {
                    bus.notice_throttle.forget(REFUSED_KEY, &provider);
                    tracing::error!(provider, %error, "the notice of a refused key could not be written");
                }
            }
        });
    }

    /// Clears the faults of all services if no message waits any more; this includes messages from before a restart. Called at the
    /// end of a turn.
    pub fn clear_faults_if_nobody_waits(self: &Arc<Self>) {
        if self.services.is_empty() {
            return;
        }
        match self.store.read_here(inbox::has_waiting_turn) {
            Ok(false) => self.clear_service_faults(),
            Ok(true) | Err(StoreError::Closed) => {}
            Err(error) => tracing::warn!(%error, "the messages that wait for a model could not be read"),
        }
    }

    /// Clears the faults of all services, because the configuration was reloaded or no message waits.
    pub fn clear_service_faults(self: &Arc<Self>) {
        if self.services.clear_all() {
            self.write_in_background(|bus, connection| bus.services.write(connection, &[]));
        }
    }

    /// Records the recovery of a model service with `write`, in the background.
    fn write_in_background(
        self: &Arc<Self>,
        mut write: impl FnMut(&Self, &Connection) -> Result<(), StoreError> + Send + 'static,
    ) {
        let bus = self.clone();
        tokio::spawn(async move {
            let writer = bus.clone();
            let written = bus.store.write(Durability::Logged, move |connection| write(&writer, connection)).await;
            if let Err(error) = written {
                tracing::warn!(%error, "the recovery of a model service could not be recorded");
            }
        });
    }

    /// Wakes the consumer of inbound messages.
    pub fn signal(&self, signal: InboundSignal) {
        self.inbound.wake(signal);
    }

    /// Ends the approvals and questions that expired without an answer, and continues the turns that waited for them.
    pub async fn expire_requests(&self) {
        let expire = |connection: &Connection| {
            let now = now_ms();
            let mut expired = approvals::expire(connection, now)?;
            expired.extend(questions::expire(connection, now)?);
            Ok(expired)
        };
        match self.store.write(Durability::Synced, expire).await {
            Ok(expired) => {
                expired
                    .into_iter()
                    .for_each(|(turn, session)| self.signal(InboundSignal::Resume(turn, session.into())));
            }
            Err(error) => {
                tracing::error!(%error, "expired approvals and questions could not be ended; trying again in a minute");
            }
        }
    }

    /// Expires approvals and questions at the time `at`, in UTC milliseconds, with [`Self::expire_requests`]. After a
    /// restart, the periodic work does it instead.
    pub fn expire_requests_at(self: &Arc<Self>, at: i64) {
        let after = Duration::from_millis(u64::try_from(at - now_ms()).unwrap_or(0));
        let bus = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            bus.expire_requests().await;
        });
    }

    /// Wakes the callers that wait for these messages, because their turn asks a question.
    pub fn wake_waiters(&self, messages: &[Uuid]) {
        self.waiters.wake(messages);
    }

    /// Returns true if notices for the owner go to this chat.
    pub fn is_owner_chat(&self, channel: &str, chat_id: &str) -> bool {
        let is_it = |notices: NoticeSettings| {
            notices.channel == channel && (notices.on_terminals || notices.chat_id == chat_id)
        };
        self.notice_settings().is_some_and(is_it)
    }

    /// Refuses new messages from now on, because the gateway stops.
    pub fn close_intake(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    /// Makes the consumer read all rows again after a read failed.
    pub fn request_rescan(&self) {
        self.inbound.overflow();
    }

    /// Wakes all waiters to read the current state, because no more turns run.
    pub fn release_waiters(&self) {
        self.waiters.wake_all();
    }

    /// Returns the numbers of unfinished inbound and undelivered outbound messages.
    pub fn depths(&self) -> (usize, usize) {
        (self.capacity.inbound(), self.capacity.outbound())
    }

    /// Returns the reason why no message is accepted at the moment, if there is one.
    pub fn intake_fault(&self) -> Option<String> {
        if self.draining.load(Ordering::SeqCst) {
            return Some("the gateway is stopping".to_owned());
        }
        self.storage_fault()
    }

    /// Checks that the store can take a message: it has no fault, and the reserved space is free on disk.
    ///
    /// # Errors
    /// [`Refusal::Store`].
    pub fn check_disk(&self) -> Result<(), Refusal> {
        let retry_after = self.settings.get().drain_timeout;
        self.storage_fault().map_or(Ok(()), |reason| Err(Refusal::Store { reason, retry_after }))
    }

    fn storage_fault(&self) -> Option<String> {
        self.store.fault().or_else(|| check_reserve(self.store.path(), self.settings.get().reserve).err())
    }

    pub fn events(&self) -> &Arc<EventHub> {
        &self.events
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the metrics of this gateway, shared by all users of the bus.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }
}

/// A weak reference to the bus, for parts that are built before the bus. It is set once.
#[derive(Clone, Debug, Default)]
pub struct WeakBus(Arc<OnceLock<Weak<MessageBus>>>);

impl WeakBus {
    /// Creates a reference that is already set.
    pub fn of(bus: &Arc<MessageBus>) -> Self {
        let late = Self::default();
        late.set(bus);
        late
    }

    /// Sets the reference. A second call has no effect.
    pub fn set(&self, bus: &Arc<MessageBus>) {
        // Ignores the error of a second call, which would set the same bus.
        drop(self.0.set(Arc::downgrade(bus)));
    }

    /// Returns the bus if a gateway is running.
    pub fn get(&self) -> Option<Arc<MessageBus>> {
        self.0.get()?.upgrade()
    }
}
