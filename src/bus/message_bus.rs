//! Publish and consume, inbound and outbound.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender, TrySendError};
use async_trait::async_trait;
use daoyou_channels::{InboundMessage, OutboundContext, SessionKey};
use uuid::Uuid;

use super::capacity::Ledger;
use super::disk::DiskReserve;
use super::extras::tell;
use super::health::{ServiceHealth, stored_service_faults};
use super::notice_throttle::NoticeThrottle;
use super::waiters::Waiters;
use super::{BusSettings, EventHub, Notices, OutboundBody, OutboundDraft};
use crate::live::LivePart;
use crate::metrics::Metrics;
use crate::store::inbox;
use crate::store::processes::ProcessRow;
use crate::store::{Commit, Connection, Store, StoreError, losses, outbox};

/// Where the consumer of inbound messages is to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inbound {
    /// This session has an unfinished message.
    Work(SessionKey),
    /// This turn is to stop.
    Cancel(Uuid),
    /// The owner wants the model services to be asked again: all that wait for one are tried now.
    AskAgain,
    /// The model of this session was changed: its turn is tried now, if it waits for one.
    AskSessionAgain(SessionKey),
    /// Some wake-ups were dropped: look at everything unfinished.
    Rescan,
}

/// An order that is carried out at accept, past the session's lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Stop,
    Status,
    /// Another command that changes nothing but the session's model: answered at once while the session waits.
    Command,
}

/// Knows which messages are such orders, and the words to answer them with.
#[async_trait]
pub trait ControlCommands: Send + Sync {
    fn order(&self, message: &InboundMessage) -> Option<Order>;

    /// What the sender is told of the text of an order that was not read; `None` where all of it was.
    fn unread(&self, _message: &InboundMessage) -> Option<String> {
        None
    }

    /// What the sender of `/stop`, which is this message, is told: whether a turn ran that the sender may stop, how many
    /// sub-agents end with it, and the commands in the background that run on.
    fn stopped(
        &self,
        message: &InboundMessage,
        something_ran: bool,
        sub_agents: usize,
        processes: &[ProcessRow],
    ) -> String;

    /// What the sender of `/status`, which is this message, is told.
    async fn status(&self, bus: &MessageBus, message: &InboundMessage) -> String;

    /// The answer to a command whose session waits for something.
    async fn command(&self, message: &InboundMessage) -> Result<CommandAnswer, StoreError>;
}

/// The answer to a command, and what changes with it.
#[derive(Clone, Debug)]
pub struct CommandAnswer {
    pub reply: String,
    /// A stable word when it could not be done.
    pub error: Option<&'static str>,
    /// The model that its session is answered by from now on; `Some(None)` is the configured one.
    pub model: Option<Option<String>>,
}

/// A message that was given up.
#[derive(Clone, Copy, Debug)]
pub struct DeadLetter<'a> {
    pub turn: Uuid,
    pub slot: &'a str,
    pub id: Uuid,
    pub channel: &'a str,
    pub chat_id: &'a str,
    /// Why.
    pub reason: &'a str,
}

impl Notices {
    /// Whether a notice of it may arrive: it goes another way, and is no notice of a notice.
    fn may_tell_of(&self, letter: &DeadLetter<'_>) -> bool {
        let goes_the_same_way = self.channel == letter.channel && self.chat_id == letter.chat_id;
        !goes_the_same_way && !letter.slot.starts_with("notice:")
    }

    pub(super) fn draft(&self, turn: Uuid, slot: String, content: String) -> OutboundDraft {
        let body = OutboundBody {
            content,
            session: SessionKey::of_chat(&self.channel, &self.chat_id),
            in_reply_to: None,
            attachments: Vec::new(),
            metadata: serde_json::Map::new(),
            context: OutboundContext { is_for_all_terminals: self.on_terminals, ..OutboundContext::default() },
            error: None,
        };
        OutboundDraft { turn, slot, channel: self.channel.clone(), chat_id: self.chat_id.clone(), body }
    }
}

/// The bus. Everything published is a row before anybody is woken.
pub struct MessageBus {
    pub(super) store: Store,
    pub(super) settings: LivePart<BusSettings>,
    told: NoticeThrottle,
    /// Whether a terminal is open.
    terminals: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
    pub(super) ledger: Ledger,
    pub(super) disk: DiskReserve,
    pub(super) waiters: Waiters,
    pub(super) events: Arc<EventHub>,
    pub(super) draining: AtomicBool,
    pub(super) inbound: Wake<Inbound>,
    pub(super) outbound: Wake<String>,
    pub(super) metrics: Arc<Metrics>,
    services: ServiceHealth,
}

/// The most wake-ups that wait, in either direction.
const WAKE_UPS: usize = 1_024;

/// A bounded queue of wake-ups that loses none for good: an overflow asks the consumer to look everywhere.
pub(super) struct Wake<T> {
    send: Sender<T>,
    receive: Receiver<T>,
    overflowed: AtomicBool,
}

impl<T> Wake<T> {
    /// All of its slots are there from the start.
    fn new(bound: usize) -> Self {
        let (send, receive) = async_channel::bounded(bound.max(1));
        Self { send, receive, overflowed: AtomicBool::new(false) }
    }

    pub(super) fn wake(&self, item: T) {
        if let Err(TrySendError::Full(item)) = self.send.try_send(item) {
            self.overflowed.store(true, Ordering::SeqCst);
            // The consumer may have emptied the queue before it could see the flag; then there is room now, and the
            // item makes it look. If it is full still, what is in it does.
            let _ = self.send.try_send(item);
        }
    }

    /// The next wake-up; `None` stands for an overflow.
    async fn next(&self) -> Option<T> {
        if self.receive.is_empty() && self.overflowed.swap(false, Ordering::SeqCst) {
            return None;
        }
        // The bus holds the sending side itself, so the channel is never closed while somebody can be here.
        match self.receive.recv().await {
            Ok(item) => Some(item),
            Err(_) => std::future::pending().await,
        }
    }
}

impl MessageBus {
    /// Builds the bus over `store`.
    pub fn new(store: Store, settings: LivePart<BusSettings>, metrics: Arc<Metrics>) -> Self {
        let folder = store.path().parent().unwrap_or(store.path()).to_owned();
        Self {
            store,
            settings,
            told: NoticeThrottle::default(),
            terminals: OnceLock::new(),
            ledger: Ledger::default(),
            disk: DiskReserve::new(folder),
            waiters: Waiters::default(),
            events: Arc::default(),
            draining: AtomicBool::new(false),
            inbound: Wake::new(WAKE_UPS),
            outbound: Wake::new(WAKE_UPS),
            metrics,
            services: ServiceHealth::default(),
        }
    }

    /// `is_open` tells whether a terminal is there to show what the owner is to be told. There is one channel of terminals,
    /// and it comes once.
    pub fn watch_terminals(&self, is_open: impl Fn() -> bool + Send + Sync + 'static) {
        let _ = self.terminals.set(Box::new(is_open));
    }

    /// Where the owner is told at this moment; nowhere but in the log where no terminal is open.
    pub(super) fn notices(&self) -> Option<Notices> {
        self.notices_of(&self.settings.get())
    }

    /// As [`Self::notices`], by the settings of one operation.
    pub(super) fn notices_of(&self, settings: &BusSettings) -> Option<Notices> {
        let notices = settings.notices.clone()?;
        let is_there = !notices.on_terminals || self.terminals.get().is_some_and(|is_open| is_open());
        is_there.then_some(notices)
    }

    /// How long running turns may go on when the gateway stops.
    pub fn drain_timeout(&self) -> Duration {
        self.settings.get().drain_timeout
    }

    /// Counts what stands in the store, so that capacities hold across restarts.
    pub async fn recount(&self) -> Result<(), StoreError> {
        let (inbound, outbound, faults) = self
            .store
            .read(|connection| {
                let faults = match inbox::waiting(connection)? {
                    0 => BTreeMap::new(),
                    _ => stored_service_faults(connection)?,
                };
                Ok((inbox::open_sessions(connection)?, outbox::open_by_channel(connection)?, faults))
            })
            .await?;
        self.services.restore(faults);
        for (session, messages, _) in inbound {
            self.ledger.add(&SessionKey::from(session), messages);
        }
        for (channel, messages) in outbound {
            self.ledger.add_outbound(&channel, messages);
        }
        Ok(())
    }

    /// Waits for the next place to look at. For the one consumer of inbound messages.
    pub async fn consume_inbound(&self) -> Inbound {
        self.inbound.next().await.unwrap_or(Inbound::Rescan)
    }

    /// Puts a message into the outbox outside of any turn's commit, and wakes the consumer.
    pub async fn publish_outbound(&self, draft: OutboundDraft) -> Result<Uuid, StoreError> {
        let channel = draft.channel.clone();
        let id = self.store.write(Commit::Synced, move |connection| draft.insert(connection)).await?;
        self.outbound_written(&channel, 1);
        Ok(id)
    }

    /// Tells the owner that a message was given up, where he wants to be told; once an hour for one reason, as a receiver
    /// that is down makes many. A notice that is given up itself, or that would go the same way, is in the log alone.
    pub async fn notify_dead_letter(&self, letter: DeadLetter<'_>) {
        let DeadLetter { turn, id, channel, reason, .. } = letter;
        let Some(notices) = self.notices().filter(|notices| notices.may_tell_of(&letter)) else { return };
        if !self.told.is_news(channel, reason, Instant::now()) {
            return;
        }
        let mut content = notices.dead_letter.to_owned();
        for value in [channel, &id.to_string(), reason] {
            content = content.replacen("{}", value, 1);
        }
        let draft = notices.draft(turn, format!("notice:dead:{id}"), content);
        if let Err(error) = self.publish_outbound(draft).await {
            tracing::error!(%id, %error, "the owner could not be told of a dead letter");
        }
    }

    /// Tells the owner that a channel cannot send anything, where he can be told otherwise.
    pub async fn notify_held(&self, channel: &str, reason: &str) {
        let Some(notices) = self.notices().filter(|notices| notices.channel != channel) else { return };
        let content = notices.held.replacen("{}", channel, 1).replacen("{}", reason, 1);
        let draft = notices.draft(daoyou_channels::new_id(), format!("notice:held:{channel}"), content);
        if let Err(error) = self.publish_outbound(draft).await {
            tracing::error!(channel, %error, "the owner could not be told that a channel cannot send");
        }
    }

    /// Tells the owner what is lost, each loss once, where he wants to be told.
    ///
    /// # Errors
    /// The store cannot be written; he is told at the next start.
    pub async fn notify_losses(&self) -> Result<(), StoreError> {
        let Some(notices) = self.notices() else { return Ok(()) };
        let channel = notices.channel.clone();
        let tell = move |connection: &Connection| {
            let untold = losses::take_untold(connection)?;
            for loss in &untold {
                let content = notices.loss.replacen("{}", &loss.what, 1);
                notices.draft(daoyou_channels::new_id(), "notice:loss".to_owned(), content).insert(connection)?;
            }
            Ok(untold.len())
        };
        let told = self.store.write(Commit::Synced, tell).await?;
        if told > 0 {
            self.outbound_written(&channel, told);
        }
        Ok(())
    }

    /// Puts what the owner is to be told into the outbox, within the caller's commit; answers the channel that has it to
    /// deliver, which the caller wakes. Where the owner is told nowhere it is in the log.
    pub fn tell_owner(
        &self,
        connection: &Connection,
        turn: Uuid,
        slot: &str,
        content: String,
    ) -> Result<Option<String>, StoreError> {
        tell(connection, self.notices().as_ref(), turn, slot, content)
    }

    /// Waits for the next channel with something to deliver; `None` asks to look at all. For the one consumer.
    pub async fn consume_outbound(&self) -> Option<String> {
        self.outbound.next().await
    }

    /// Outbox rows were committed along with something else.
    pub fn outbound_written(&self, channel: &str, messages: usize) {
        self.ledger.add_outbound(channel, messages);
        self.outbound.wake(channel.to_owned());
    }

    /// Outbox rows that waited for their next try are due.
    pub fn outbound_hastened(&self, channel: &str) {
        self.outbound.wake(channel.to_owned());
    }

    /// An outbox row is sent, or given up.
    pub fn outbound_ended(&self, channel: &str) {
        self.ledger.remove_outbound(channel);
    }

    /// A session's messages have ended: their places are free, and who waits for them is told.
    pub fn inbound_ended(&self, session: &SessionKey, messages: &[Uuid]) {
        self.ledger.give_back(session, messages.len());
        self.waiters.wake(messages);
    }

    /// The model services that messages wait for.
    pub fn services(&self) -> &ServiceHealth {
        &self.services
    }

    /// A model service has answered: it has no fault any more.
    pub fn service_answered(self: &Arc<Self>, provider: &str) {
        if self.services.clear(provider) {
            self.store_services();
        }
    }

    /// A turn has ended: where no message waits any more, also none from before a restart, nothing is wrong with any service.
    pub fn forget_faults_if_nobody_waits(self: &Arc<Self>) {
        if self.services.all().is_empty() {
            return;
        }
        match self.store.read_here(inbox::waiting) {
            Ok(0) => self.forget_service_faults(),
            Ok(_) | Err(StoreError::Closed) => {}
            Err(error) => tracing::warn!(%error, "whether messages still wait for a model could not be read"),
        }
    }

    /// Forgets the known faults of services, after a reload or when nobody waits any more.
    pub fn forget_service_faults(self: &Arc<Self>) {
        if self.services.clear_all() {
            self.store_services();
        }
    }

    /// What is known of the services is put into the store, behind what the caller goes on with.
    fn store_services(self: &Arc<Self>) {
        let bus = self.clone();
        tokio::spawn(async move {
            let write = bus.clone();
            let written = bus.store.write(Commit::Logged, move |connection| write.services.write(connection)).await;
            if let Err(error) = written {
                tracing::warn!(%error, "that a model service answers again could not be noted");
            }
        });
    }

    /// All that wait for a model service are tried now, also for one that is left alone.
    pub fn ask_services_again(&self) {
        self.inbound.wake(Inbound::AskAgain);
    }

    /// The session's turn, if it waits for a model, is tried now.
    pub fn ask_session_again(&self, session: SessionKey) {
        self.inbound.wake(Inbound::AskSessionAgain(session));
    }

    /// Dead messages were revived by hand.
    pub fn inbound_revived(&self, session: SessionKey, messages: usize) {
        self.inbound_written(session, messages);
    }

    /// From now on new messages are refused: the gateway stops.
    pub fn close_intake(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    /// The consumer could not look at everything when it was asked to; it is asked again.
    pub fn look_again(&self) {
        self.inbound.overflowed.store(true, Ordering::SeqCst);
    }

    /// No turn runs any more: whoever waits for a message is told how it stands.
    pub fn release_waiters(&self) {
        self.waiters.wake_all();
    }

    /// Unfinished inbound and undelivered outbound messages.
    pub fn depths(&self) -> (usize, usize) {
        (self.ledger.inbound(), self.ledger.outbound())
    }

    /// Why nothing is accepted at the moment, if so.
    pub fn intake_fault(&self) -> Option<String> {
        if self.draining.load(Ordering::SeqCst) {
            return Some("the gateway is stopping".to_owned());
        }
        self.store.fault().or_else(|| self.disk.check(self.settings.get().reserve).err())
    }

    pub fn events(&self) -> &Arc<EventHub> {
        &self.events
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// What this gateway counts; all who work with the bus count there.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_told_where_the_notice_goes_another_way() {
        let notices = Notices {
            on_terminals: false,
            channel: "email".to_owned(),
            chat_id: "me@example.org".to_owned(),
            dead_letter: "",
            held: "",
            loss: "",
        };
        for (slot, channel, chat_id, expected) in [
            ("reply", "webhook:in", "c", true),
            ("reply", "email", "<thread@example.org>", true),
            ("tool:3", "email", "me@example.org", false),
            ("notice:dead:1", "email", "me@example.org", false),
            ("notice:loss", "webhook:in", "c", false),
        ] {
            let letter = DeadLetter { turn: Uuid::nil(), slot, id: Uuid::nil(), channel, chat_id, reason: "550" };
            assert_eq!(notices.may_tell_of(&letter), expected, "{slot} {channel} {chat_id}");
        }
    }
}
