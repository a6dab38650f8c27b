//! Tests of the channel `cli` on streams in memory.

use std::io::{self, BufReader, PipeWriter, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::channel::{Channel, ChannelContext, SendError, StartError};
use crate::conformance::{self, ChannelSubject, PeerBehaviour, ScriptedAnswer, ScriptedInbox, WriteOutcome};
use crate::event::TurnEvent;
use crate::inbox::{AcceptExtras, Inbox, Refusal, Reply};
use crate::message::{ErrorInfo, InboundMessage, OutboundMessage};
use crate::trust::{Author, SenderListing, trust_of};

const LIVE: TerminalStyle = TerminalStyle { live: true, colour: false, cursor: false, columns: Some(60) };
const SOON: Duration = Duration::from_secs(30);

/// An output in memory that tests can wait on.
#[derive(Clone, Default)]
struct OutputBuffer(watch::Sender<Vec<u8>>);

impl OutputBuffer {
    fn text(&self) -> String {
        String::from_utf8(self.0.borrow().clone()).unwrap()
    }

    async fn shows(&self, words: &str) -> String {
        self.shows_times(words, 1).await
    }

    async fn shows_times(&self, words: &str, times: usize) -> String {
        let mut watched = self.0.subscribe();
        let seen = watched.wait_for(|bytes| String::from_utf8_lossy(bytes).matches(words).count() >= times);
        let waited = tokio::time::timeout(SOON, seen).await.map(|seen| seen.map(|_| ()));
        assert!(waited.is_ok(), "{words:?} in {:?}", self.text());
        self.text()
    }
}

impl Write for OutputBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send_modify(|all| all.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A gateway that follows one conversation.
struct SingleConversationHost;

#[async_trait]
impl TerminalHost for SingleConversationHost {
    async fn follow(&self, _: &TerminalConversation) -> Result<ConversationFeed, StartError> {
        Err(StartError("it follows one conversation".into()))
    }
}

/// A terminal in memory: a keyboard, the standard output and the standard error.
struct TestTerminal {
    keys: Mutex<Option<PipeWriter>>,
    out: OutputBuffer,
    err: OutputBuffer,
    interrupt: Interrupt,
    has_failed: Arc<AtomicBool>,
}

impl TestTerminal {
    fn new(style: TerminalStyle) -> (Self, TerminalSetup) {
        let (reader, keys) = io::pipe().unwrap();
        let (out, err) = (OutputBuffer::default(), OutputBuffer::default());
        let console = Console::of_streams(BufReader::new(reader), out.clone(), err.clone(), style).unwrap();
        let (interrupt, has_failed) = (Interrupt::default(), Arc::<AtomicBool>::default());
        let setup = TerminalSetup {
            console,
            banner: "daoyou\n".into(),
            conversation: TerminalConversation::of(None),
            files: ConversationFiles::default(),
            language: Language::En,
            thinking: Thinking::Fold,
            interrupt: interrupt.clone(),
            directory: None,
            has_failed: Arc::clone(&has_failed),
        };
        (Self { keys: Mutex::new(Some(keys)), out, err, interrupt, has_failed }, setup)
    }

    fn types(&self, text: &[u8]) {
        if let Some(keys) = &mut *self.keys.lock().unwrap() {
            keys.write_all(text).unwrap();
        }
    }

    fn ends(&self) {
        self.keys.lock().unwrap().take();
    }
}

struct CliSubject {
    channel: Arc<CliChannel>,
    user: TestTerminal,
    inbox: Mutex<Option<ChannelContext>>,
}

#[async_trait]
impl ChannelSubject for CliSubject {
    fn channel(&self) -> Arc<dyn Channel> {
        Arc::clone(&self.channel) as _
    }

    async fn open(&self, context: &ChannelContext, _inbox: &Arc<ScriptedInbox>) {
        *self.inbox.lock().unwrap() = Some(context.clone());
    }

    async fn write(&self, text: &str, _id: Option<&str>) -> WriteOutcome {
        let stopped = self.inbox.lock().unwrap().as_ref().is_some_and(|context| context.shutdown.is_cancelled());
        let (answer, refused) = (format!("re: {text}\n"), self.user.err.text().matches("Not taken").count());
        self.user.types(format!("{text}\n").as_bytes());
        if stopped {
            return WriteOutcome::Nothing;
        }
        tokio::select! {
            _ = self.user.out.shows(&answer) => WriteOutcome::Taken,
            _ = self.user.err.shows_times("Not taken", refused + 1) => WriteOutcome::Refused,
        }
    }

    async fn write_as_unlisted_sender(&self, _text: &str) -> Option<WriteOutcome> {
        None
    }

    fn has_ids(&self) -> bool {
        false
    }

    async fn set_peer_behaviour(&self, side: PeerBehaviour) -> Option<String> {
        match side {
            PeerBehaviour::Takes => Some("direct".into()),
            PeerBehaviour::Away => Some("elsewhere".into()),
            _ => None,
        }
    }

    async fn received(&self) -> Vec<String> {
        vec![self.user.out.text()]
    }
}

#[tokio::test]
async fn the_terminal_passes_the_suite() {
    let (user, setup) = TestTerminal::new(TerminalStyle::PLAIN);
    let channel = Arc::new(CliChannel::new(Some(setup)));
    conformance::run(&CliSubject { channel, user, inbox: Mutex::default() }).await;
}

/// Starts a channel with its own terminal, whose replies are delivered.
fn converse(inbox: &Arc<ScriptedInbox>, style: TerminalStyle) -> (TestTerminal, Arc<CliChannel>, CancellationToken) {
    let (user, setup) = TestTerminal::new(style);
    let channel = Arc::new(CliChannel::new(Some(setup)));
    let (context, _) = conformance::started(inbox);
    let shutdown = context.shutdown.clone();
    let running = Arc::clone(&channel);
    tokio::spawn(async move { running.start(context).await });
    let (delivering, replies) = (Arc::clone(&channel), inbox.outbound());
    tokio::spawn(async move {
        while let Ok(reply) = replies.recv().await {
            delivering.send(&reply).await.unwrap();
        }
    });
    (user, channel, shutdown)
}

async fn exit_of(channel: &CliChannel) -> TerminalExit {
    tokio::time::timeout(SOON, channel.exited()).await.unwrap()
}

#[tokio::test]
async fn piped_lines_are_answered_one_by_one_up_to_the_last() {
    let inbox = ScriptedInbox::new(|message| match message.content.as_str() {
        "bad" => ScriptedAnswer::Fail(ErrorInfo { code: "llm_timeout".into() }, "The model did not answer.".into()),
        "full" => ScriptedAnswer::Refuse(Refusal::Draining { retry_after: SOON }),
        text => ScriptedAnswer::Reply(format!("re: {text}\n\nbye")),
    });
    let (user, channel, _shutdown) = converse(&inbox, TerminalStyle::PLAIN);
    user.types("one\r\n\n  \n/clear\nbad\n".as_bytes());
    user.types(b"\xff\nfull\nlast");
    user.ends();
    assert_eq!(exit_of(&channel).await, TerminalExit::EndOfInput);
    assert_eq!(user.out.text(), "re: one\n\nbye\nThe model did not answer.\nre: last\n\nbye\n");
    let errors = user.err.text();
    assert!(errors.contains("not UTF-8") && errors.contains("Not taken: the gateway is stopping"), "{errors}");
    let sent: Vec<_> = inbox.accepted().into_iter().map(|message| message.content).collect();
    assert_eq!(sent, ["one", "bad", "last"]);
}

#[tokio::test]
async fn a_piped_line_without_room_is_sent_again_and_a_line_that_is_not_taken_is_a_failure() {
    let full = || ScriptedAnswer::Refuse(Refusal::Busy { reason: "it is full".into(), retry_after: Duration::ZERO });
    let refusals = AtomicUsize::new(0);
    let inbox = ScriptedInbox::new(move |message| match message.content.as_str() {
        "later" if refusals.fetch_add(1, Ordering::Relaxed) < 2 => full(),
        "never" => full(),
        text => ScriptedAnswer::Reply(format!("re: {text}")),
    });
    let (user, channel, _shutdown) = converse(&inbox, TerminalStyle::PLAIN);
    user.types(b"later\n");
    user.out.shows("re: later\n").await;
    assert_eq!(user.err.text().matches("it is full (sent again after 0 s)").count(), 2, "{}", user.err.text());
    assert!(!user.has_failed.load(Ordering::Relaxed));
    user.types(b"never\nlast\n");
    user.ends();
    assert_eq!(exit_of(&channel).await, TerminalExit::EndOfInput);
    assert_eq!(user.out.text(), "re: later\nre: last\n");
    assert!(user.err.text().contains("Not taken: it is full") && user.has_failed.load(Ordering::Relaxed));
}

#[tokio::test]
async fn a_failed_turn_of_a_piped_line_is_a_failure() {
    let inbox =
        ScriptedInbox::new(|_| ScriptedAnswer::Fail(ErrorInfo { code: "llm_timeout".into() }, "No answer.".into()));
    for (style, expected) in [(TerminalStyle::PLAIN, true), (LIVE, false)] {
        let (user, channel, _shutdown) = converse(&inbox, style);
        user.types(b"hello\n");
        user.out.shows("No answer.").await;
        user.ends();
        assert_eq!(
            (exit_of(&channel).await, user.has_failed.load(Ordering::Relaxed)),
            (TerminalExit::EndOfInput, expected)
        );
    }
}

#[tokio::test]
async fn a_piped_line_that_a_shutdown_leaves_without_a_reply_is_a_failure() {
    for (style, expected) in [(TerminalStyle::PLAIN, true), (LIVE, false)] {
        let inbox = ScriptedInbox::new(|_| ScriptedAnswer::Hold);
        let (user, channel, shutdown) = converse(&inbox, style);
        user.types(b"slow\nnext\n");
        inbox.reached(1).await;
        shutdown.cancel();
        assert_eq!(exit_of(&channel).await, TerminalExit::Shutdown);
        let said = user.err.text().matches("Stopped before the reply came").count();
        assert_eq!((said == 1, user.has_failed.load(Ordering::Relaxed)), (expected, expected), "{}", user.err.text());
    }
}

#[tokio::test]
async fn a_shutdown_without_a_piped_line_is_no_failure() {
    let inbox = ScriptedInbox::new(|_| ScriptedAnswer::Hold);
    let (user, channel, shutdown) = converse(&inbox, TerminalStyle::PLAIN);
    shutdown.cancel();
    assert_eq!(exit_of(&channel).await, TerminalExit::Shutdown);
    assert_eq!((user.err.text().as_str(), user.has_failed.load(Ordering::Relaxed)), ("", false));
}

#[tokio::test]
async fn a_turn_is_streamed_and_its_reply_not_printed_twice() {
    let inbox = ScriptedInbox::new(|_| ScriptedAnswer::Hold);
    let (user, channel, _shutdown) = converse(&inbox, LIVE);
    user.types(b"hi\n");
    inbox.reached(1).await;
    let id = inbox.id(0).unwrap();
    let call = |arguments: Option<serde_json::Value>| TurnEvent::ToolCall {
        id: "1".into(),
        name: "list_dir".into(),
        args_complete: arguments.is_some(),
        arguments,
    };
    for event in [
        TurnEvent::Started,
        call(None),
        call(Some(json!({"path": "."}))),
        TurnEvent::ToolResult {
            id: "1".into(),
            name: "list_dir".into(),
            content: "a.txt".into(),
            success: true,
            duration_ms: 0,
        },
        TurnEvent::Text { delta: "One ".into() },
        TurnEvent::Text { delta: "file.".into() },
    ] {
        inbox.emit(id, event);
    }
    user.out.shows("One file.").await;
    inbox.finish(id, Reply { content: "One file.".into(), error: None });
    user.types(b"/exit\n");
    assert_eq!(exit_of(&channel).await, TerminalExit::Asked);
    assert_eq!(user.out.text(), "daoyou\n● list_dir(path=\".\")\n  └ a.txt\n\nBot> One file.\n\n");
}

#[tokio::test]
async fn the_turn_of_another_client_is_not_streamed_and_its_reply_is_shown_once() {
    let (foreign_reply, own_reply) = ("AAA BBB", "reply to one");
    for (style, out, err) in [
        (LIVE, "daoyou\n\nBot> AAA BBB\n\nBot> reply to one\n\n", ""),
        (TerminalStyle::PLAIN, "reply to one\n", "AAA BBB\n"),
    ] {
        let inbox = ScriptedInbox::new(|_| ScriptedAnswer::Hold);
        let (user, channel, _shutdown) = converse(&inbox, style);
        let message =
            InboundMessage::text("cli", "direct", "owner", trust_of(Author::Owner, SenderListing::Owner), "x");
        let foreign = inbox.accept(message, AcceptExtras::default()).await.unwrap().id();
        user.types(b"one\n");
        inbox.reached(2).await;
        let own = inbox.id(1).unwrap();
        for delta in ["AAA ", "BBB"] {
            inbox.emit(foreign, TurnEvent::Text { delta: delta.into() });
        }
        inbox.finish(foreign, Reply { content: foreign_reply.into(), error: None });
        if style == LIVE { &user.out } else { &user.err }.shows(foreign_reply).await;
        inbox.emit(own, TurnEvent::Text { delta: "reply ".into() });
        inbox.finish(own, Reply { content: own_reply.into(), error: None });
        user.out.shows(own_reply).await;
        user.ends();
        assert_eq!(exit_of(&channel).await, TerminalExit::EndOfInput);
        assert_eq!((user.out.text().as_str(), user.err.text().as_str()), (out, err));
    }
}

#[tokio::test]
async fn files_go_with_the_next_message_and_the_conversation_can_be_switched() {
    let inbox = ScriptedInbox::new(|message| ScriptedAnswer::Reply(format!("re: {}", message.content.len())));
    let (user, channel, _shutdown) = converse(&inbox, TerminalStyle::PLAIN);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("my notes.txt");
    std::fs::write(&file, "remember the milk\n").unwrap();
    let name = file.to_str().unwrap();
    user.types(format!("/files\n/add {name}\n/add /no/such\n/help\nread it\nand again\n").as_bytes());
    user.types(format!("/files\n/drop {name}\n/drop {name}\n/session cli:work\nthere\n/add\n/drop\n").as_bytes());
    user.ends();
    assert_eq!(exit_of(&channel).await, TerminalExit::EndOfInput);
    let accepted = inbox.accepted();
    let sent: Vec<_> = accepted.iter().map(|message| (message.chat_id.as_str(), message.content.as_str())).collect();
    let with_file = format!("read it\n\n[File: {name}, 18 bytes]\n```\nremember the milk\n```");
    assert_eq!(
        sent,
        [("direct", "/help"), ("direct", with_file.as_str()), ("direct", "and again"), ("work", "there")],
        "a command takes no file along"
    );
    assert_eq!(accepted[3].session_key().as_str(), "cli:work");
    let out = user.out.text();
    for line in ["No files.", "Added ", "sent\n", "Removed ", "Switched to cli:work."] {
        assert_eq!(out.matches(line).count(), 1, "{line:?} in {out}");
    }
    let errors = user.err.text();
    for line in ["there is no file /no/such\n", "is not among the files", "example: /add notes", "example: /drop notes"]
    {
        assert_eq!(errors.matches(line).count(), 1, "{line:?} in {errors}");
    }
}

#[tokio::test]
async fn the_first_interrupt_stops_the_turn_and_the_second_the_process() {
    let inbox = ScriptedInbox::new(|message| match message.content.as_str() {
        "/stop" => ScriptedAnswer::Reply("Stopped.".into()),
        _ => ScriptedAnswer::Hold,
    });
    let (user, channel, shutdown) = converse(&inbox, LIVE);
    assert!(!user.interrupt.raise(), "no turn runs");
    user.types(b"long work\n");
    inbox.reached(1).await;
    // The terminal arms the interrupt just after the inbox has the message.
    while !user.interrupt.raise() {
        tokio::task::yield_now().await;
    }
    assert!(!user.interrupt.raise(), "the second one is not the terminal's");
    inbox.reached(2).await;
    assert_eq!(inbox.accepted()[1].content, "/stop");
    inbox.finish(inbox.id(0).unwrap(), Reply { content: "I had begun.\n\n(stopped)".into(), error: None });
    let out = user.out.shows("(stopped)").await;
    assert!(out.find("(stopping").unwrap() < out.find("I had begun.").unwrap(), "{out}");
    shutdown.cancel();
    assert_eq!(exit_of(&channel).await, TerminalExit::Shutdown);
    assert!(!user.out.text().contains("Stopped."), "the answer to /stop says nothing new");
}

// Takes the two seconds that a reply may be late: the clock cannot be paused while real threads run.
#[tokio::test]
async fn a_reply_that_is_not_delivered_is_fetched_and_shown_once() {
    let inbox = ScriptedInbox::new(|message| ScriptedAnswer::Reply(format!("re: {}", message.content)));
    let (user, setup) = TestTerminal::new(TerminalStyle::PLAIN);
    let (deliver, deliveries) = async_channel::bounded(4);
    let following = ConversationFeed { deliveries, events: async_channel::bounded(1).1, attachment: None };
    let terminal = Terminal::new(setup, Arc::clone(&inbox) as _, Arc::new(SingleConversationHost), following);
    let running = tokio::spawn(terminal.run(CancellationToken::new()));
    user.types(b"one\n");
    user.out.shows("re: one").await;
    // The late reply arrives after all, followed by a message that is not shown yet.
    let late: OutboundMessage = inbox.outbound().recv().await.unwrap();
    deliver.send(late.into()).await.unwrap();
    deliver.send(OutboundMessage::text("cli", "direct", "news").into()).await.unwrap();
    assert_eq!(user.out.shows("news").await, "re: one\nnews\n");
    user.ends();
    assert_eq!(running.await.unwrap().ok(), Some(TerminalExit::EndOfInput));
}

#[tokio::test(start_paused = true)]
async fn screens_come_and_go() {
    let channel = CliChannel::new(None);
    let message = OutboundMessage::text("cli", "direct", "hello");
    let mut picked_up = message.clone();
    picked_up.context.is_picked_up = true;

    assert_eq!(channel.send(&message).await, Err(SendError::RecipientAbsent));
    assert!(channel.send(&picked_up).await.is_ok());

    // Nobody is present, so `wait_for_recipient` does not complete. Then a screen attaches before the next call.
    assert!(tokio::time::timeout(SOON, channel.wait_for_recipient()).await.is_err());
    let first = channel.attach("direct", None);
    tokio::time::timeout(SOON, channel.wait_for_recipient()).await.unwrap();
    assert!(tokio::time::timeout(SOON, channel.wait_for_recipient()).await.is_err(), "one arrival counts once");

    // A screen on another session of the chat gets the message only if no screen follows the message's own session.
    let other = channel.attach("direct", Some("cli:work".into()));
    let (sent, delivery) = tokio::join!(channel.send(&message), async {
        let delivery = first.deliveries().recv().await.unwrap();
        assert!(other.deliveries().is_empty());
        assert_eq!(delivery.message().content, "hello");
        delivery.shown();
    });
    assert_eq!((sent.is_ok(), delivery), (true, ()));
    drop(first);
    let (sent, ()) = tokio::join!(channel.send(&message), async { other.deliveries().recv().await.unwrap().shown() });
    assert!(sent.is_ok());

    // One screen closes with a message unshown, and one never confirms.
    let (sent, ()) = tokio::join!(channel.send(&message), async {
        tokio::task::yield_now().await;
        drop(other);
    });
    assert_eq!(sent, Err(SendError::RecipientAbsent));
    let silent = channel.attach("direct", None);
    assert!(matches!(channel.send(&message).await, Err(SendError::Unknown { .. })));
    drop(silent);
}

/// A gateway that returns to the conversation `cli:direct` only when the test allows it, and to others at once.
struct ReturningHost {
    asked: Notify,
    may_return: Semaphore,
    work: async_channel::Receiver<ScreenDelivery>,
}

#[async_trait]
impl TerminalHost for ReturningHost {
    async fn follow(&self, conversation: &TerminalConversation) -> Result<ConversationFeed, StartError> {
        let mut deliveries = self.work.clone();
        if conversation.chat_id == "direct" {
            self.asked.notify_one();
            self.may_return.acquire().await.unwrap().forget();
            deliveries = async_channel::bounded(1).1;
        }
        Ok(ConversationFeed { deliveries, events: async_channel::bounded(1).1, attachment: None })
    }

    fn reconnect_timeout(&self) -> Duration {
        SOON
    }
}

#[tokio::test]
async fn a_reconnection_does_not_lead_back_to_a_conversation_that_was_left() {
    let (user, setup) = TestTerminal::new(TerminalStyle::PLAIN);
    let (deliver, work) = async_channel::bounded(4);
    let host = Arc::new(ReturningHost { asked: Notify::new(), may_return: Semaphore::new(0), work });
    // The gateway is gone: the feed of the first conversation is closed.
    let following = ConversationFeed {
        deliveries: async_channel::bounded(1).1,
        events: async_channel::bounded(1).1,
        attachment: None,
    };
    let inbox = ScriptedInbox::new(|_| ScriptedAnswer::Hold);
    tokio::spawn(Terminal::new(setup, inbox as _, Arc::clone(&host) as _, following).run(CancellationToken::new()));
    host.asked.notified().await;
    user.types(b"/session cli:work\n");
    user.out.shows("Switched to cli:work.").await;
    host.may_return.add_permits(1);
    for _ in 0..9 {
        tokio::task::yield_now().await;
    }
    deliver.send(OutboundMessage::text("cli", "work", "news").into()).await.unwrap();
    user.out.shows("news").await;
}
