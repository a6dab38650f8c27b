//! The conformance suite. A failed check panics, since only tests call this module.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::inbox::{ScriptedAnswer, ScriptedInbox};
use crate::channel::{Channel, ChannelContext, SendError, StartError};
use crate::inbox::Refusal;
use crate::message::OutboundMessage;

/// The time limit of each operation.
const SOON: Duration = Duration::from_secs(30);
/// The time within which a channel must stop receiving.
const STOPS_WITHIN: Duration = Duration::from_secs(5);
/// The text that the scripted inbox refuses.
const REFUSED: &str = "no room for this";
const MEGABYTE: usize = 1_000_000;

/// The outcome of a write, as the sender sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    Taken,
    Refused,
    /// The channel did not answer.
    Nothing,
}

/// The reaction of the other side to a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerBehaviour {
    Takes,
    RefusesForNow,
    RefusesForGood,
    /// Accepts the delivery and breaks off without an answer.
    BreaksOff,
    /// Is away, and returns without help.
    Away,
}

/// A channel under test, together with its other side.
#[async_trait]
pub trait ChannelSubject: Send + Sync {
    fn channel(&self) -> Arc<dyn Channel>;

    /// Opens the endpoint through which the channel is reached. The suite calls it once before the channel starts. `inbox`
    /// is that of the context.
    async fn open(&self, context: &ChannelContext, inbox: &Arc<ScriptedInbox>);

    /// Writes to the channel as an allowed sender, with `id` if senders assign ids.
    async fn write(&self, text: &str, id: Option<&str>) -> WriteOutcome;

    /// Writes as a sender who is not allowed; returns `None` if the channel has only one possible sender.
    async fn write_as_unlisted_sender(&self, text: &str) -> Option<WriteOutcome>;

    /// Returns true if senders assign ids.
    fn has_ids(&self) -> bool;

    /// Returns the external id that the channel stores for a sender's id.
    fn kept_id(&self, id: &str) -> String {
        id.to_owned()
    }

    /// Sets the reaction of the other side to the next deliveries and returns the chat to send to; `None` if it cannot react that way.
    async fn set_peer_behaviour(&self, side: PeerBehaviour) -> Option<String>;

    /// Returns the texts that the other side has received.
    async fn received(&self) -> Vec<String>;
}

/// Runs every check.
///
/// # Panics
///
/// The channel fails a check.
pub async fn run(subject: &dyn ChannelSubject) {
    let inbox = ScriptedInbox::new(|message| match message.content.as_str() {
        REFUSED => ScriptedAnswer::Refuse(Refusal::Draining { retry_after: Duration::from_secs(5) }),
        text => ScriptedAnswer::Reply(format!("re: {text}")),
    });
    let channel = subject.channel();
    check_name(channel.name());
    let (context, has_started) = started(&inbox);
    subject.open(&context, &inbox).await;
    let receiving = spawn_start(&channel, &context);
    soon("the channel starts", has_started.notified()).await;
    let delivering = deliver_replies(&channel, &inbox);

    check_receiving(subject, &inbox).await;
    check_sending(subject, &channel).await;
    assert_eq!(channel.name(), subject.channel().name(), "the name stays");

    context.shutdown.cancel();
    let stopped = tokio::time::timeout(STOPS_WITHIN, receiving).await;
    assert!(matches!(stopped, Ok(Ok(Ok(())))), "start returns soon after shutdown: {stopped:?}");
    let before = inbox.accepted().len();
    let outcome = subject.write("too late", None).await;
    assert_ne!(outcome, WriteOutcome::Taken, "nothing is taken after shutdown");
    assert_eq!(inbox.accepted().len(), before, "nothing is accepted after shutdown");
    delivering.abort();
}

/// Returns a context on `inbox`, and a notification that fires when the channel has started.
pub fn started(inbox: &Arc<ScriptedInbox>) -> (ChannelContext, Arc<Notify>) {
    let notify = Arc::new(Notify::new());
    let started = Arc::clone(&notify);
    let context = ChannelContext {
        inbox: Arc::clone(inbox) as _,
        events: Arc::clone(inbox) as _,
        shutdown: CancellationToken::new(),
        started: Arc::new(move || started.notify_one()),
        impaired: Arc::new(|_| {}),
    };
    (context, notify)
}

fn check_name(name: &str) {
    let word = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    let (kind, rest) = name.split_once(':').unwrap_or((name, "x"));
    assert!(word(kind) && word(rest), "{name:?} is `kind` or `kind:name`");
}

fn spawn_start(channel: &Arc<dyn Channel>, context: &ChannelContext) -> JoinHandle<Result<(), StartError>> {
    let (channel, context) = (Arc::clone(channel), context.clone());
    tokio::spawn(async move { channel.start(context).await })
}

/// Delivers the replies, as the channel manager does.
fn deliver_replies(channel: &Arc<dyn Channel>, inbox: &Arc<ScriptedInbox>) -> JoinHandle<()> {
    let (channel, replies) = (Arc::clone(channel), inbox.outbound());
    tokio::spawn(async move {
        while let Ok(reply) = replies.recv().await {
            let sent = channel.send(&reply).await;
            tracing::debug!(?sent, "a reply");
        }
    })
}

async fn check_receiving(subject: &dyn ChannelSubject, inbox: &ScriptedInbox) {
    let id = subject.has_ids().then_some("first-1");
    assert_eq!(soon("a message is taken", subject.write("hello", id)).await, WriteOutcome::Taken);
    soon("it reaches the inbox", inbox.reached(1)).await;
    let accepted = inbox.accepted();
    let first = &accepted[0];
    let name = subject.channel().name().to_owned();
    assert_eq!(first.channel, name);
    assert_eq!(first.content, "hello");
    assert_eq!(first.external_id, id.map(|id| subject.kept_id(id)), "the sender's own id is kept");
    assert!(!first.chat_id.is_empty() && !first.sender.is_empty(), "chat and sender have names");
    assert!(first.session_key().as_str().starts_with(&name), "the session is below the channel");

    if subject.has_ids() {
        assert_eq!(soon("a second copy is taken", subject.write("hello", id)).await, WriteOutcome::Taken);
        assert_eq!(inbox.accepted().len(), 1, "a second copy is not a second message");
    }
    assert_eq!(soon("a refusal is answered", subject.write(REFUSED, None)).await, WriteOutcome::Refused);
    if let Some(outcome) = soon("an unlisted sender is answered", subject.write_as_unlisted_sender("let me in")).await {
        assert_eq!(outcome, WriteOutcome::Refused, "a stranger is refused");
    }
    assert_eq!(inbox.accepted().len(), 1, "what is refused does not reach the inbox");
    assert_eq!(soon("the next one is taken", subject.write("again", None)).await, WriteOutcome::Taken);
    soon("it reaches the inbox", inbox.reached(2)).await;
}

async fn check_sending(subject: &dyn ChannelSubject, channel: &Arc<dyn Channel>) {
    use PeerBehaviour::{Away, BreaksOff, RefusesForGood, RefusesForNow, Takes};
    for side in [Takes, RefusesForNow, RefusesForGood, BreaksOff, Away, Takes] {
        let Some(chat) = subject.set_peer_behaviour(side).await else { continue };
        let text = format!("for one who: {side:?}");
        let outcome = soon("a send ends", channel.send(&OutboundMessage::text(channel.name(), &chat, &text))).await;
        let as_it_should = match side {
            Takes => outcome.is_ok() && subject.received().await.iter().any(|seen| seen.contains(&text)),
            RefusesForNow => matches!(outcome, Err(SendError::Retry { .. })),
            RefusesForGood => matches!(outcome, Err(SendError::Permanent { .. })),
            BreaksOff => matches!(outcome, Err(SendError::Unknown { .. })),
            Away => outcome == Err(SendError::RecipientAbsent),
        };
        assert!(as_it_should, "{side:?}: {outcome:?}");
    }
    let Some(chat) = subject.set_peer_behaviour(Takes).await else { return };
    let large = "0123456789".repeat(MEGABYTE / 10);
    match soon("a large send ends", channel.send(&OutboundMessage::text(channel.name(), &chat, &large))).await {
        Ok(_) => {
            let whole = subject.received().await.iter().any(|seen| seen.contains(&large));
            assert!(whole, "a large message that is sent is sent whole");
        }
        Err(SendError::Permanent { .. }) => {}
        Err(other) => panic!("a large message is sent or refused for good: {other:?}"),
    }
}

async fn soon<T>(what: &str, doing: impl Future<Output = T>) -> T {
    match tokio::time::timeout(SOON, doing).await {
        Ok(done) => done,
        Err(_) => panic!("not within {SOON:?}: {what}"),
    }
}
