//! Follows the turn of a request: its output while it runs, and its end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_channel::Receiver;
use axum::http::StatusCode;
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::error::ApiFailure;
use super::gateway::{ApiGateway, TurnReport};
use super::progress::{AnswerProgress, ApiDelta};
use crate::event::{SessionEvent, TurnEvent};
use crate::http_error::HttpError;
use crate::inbox::{Inbox, MessageState, MessageStatus, Refusal, Reply};

/// The tool that sends a message before the reply.
const MESSAGE_TOOL: &str = "message";
/// How long one wait for the state of the message takes. After each wait, the turn may have a question.
const WAIT: Duration = Duration::from_secs(1);
/// The pause after a wait that returned early although the turn has not ended.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a request stays open while its message waits for a model service.
const MODEL_PATIENCE: Duration = Duration::from_secs(60);
const DRAINING_RETRY: Duration = Duration::from_secs(5);

/// The end of a turn, or the question that it asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TurnAnswer {
    /// All text that the turn sent: its messages and the reply.
    pub text: String,
    pub report: TurnReport,
}

/// The next step of a turn.
pub(super) enum FollowedTurnEvent {
    Delta(ApiDelta),
    Ended(TurnAnswer),
    Failed(ApiFailure),
}

/// The inputs of a [`FollowedTurn`].
pub(super) struct FollowedTurnSetup {
    pub id: Uuid,
    pub chat_id: String,
    pub wants_reasoning: bool,
    /// The request repeats a message, whose turn may run already. The answer's text then comes whole, since the events of its
    /// beginning are gone.
    pub is_known: bool,
    /// The events of the channel. The subscription begins before the message is accepted.
    pub events: Receiver<SessionEvent>,
    pub inbox: Arc<dyn Inbox>,
    pub gateway: Arc<dyn ApiGateway>,
    /// Cancelled when the gateway stops.
    pub shutdown: CancellationToken,
}

/// A turn that a request waits for. The turn continues if the request ends early.
pub(super) struct FollowedTurn {
    setup: FollowedTurnSetup,
    progress: AnswerProgress,
    /// The number of the turn's messages that are shown.
    shown: usize,
    /// The turn has sent a message that is not shown yet.
    is_message_due: bool,
    /// The pending wait for the state of the message, started at `began`.
    state_wait: BoxFuture<'static, Result<Option<MessageState>, Refusal>>,
    began: Instant,
    /// The first time that the message was seen to wait for a model service, since a model last answered. The retries in between do
    /// not reset it.
    waits_since: Option<Instant>,
    ready: VecDeque<ApiDelta>,
    end: Option<FollowedTurnEvent>,
}

impl FollowedTurn {
    pub fn new(setup: FollowedTurnSetup) -> Self {
        Self {
            progress: AnswerProgress::new(setup.wants_reasoning, setup.is_known),
            shown: 0,
            is_message_due: false,
            state_wait: wait_for_state(&setup.inbox, setup.id),
            began: Instant::now(),
            waits_since: None,
            ready: VecDeque::new(),
            end: None,
            setup,
        }
    }

    /// Waits for the next step. The last step is an end or a failure.
    pub async fn next(&mut self) -> FollowedTurnEvent {
        loop {
            if let Some(delta) = self.ready.pop_front() {
                return FollowedTurnEvent::Delta(delta);
            }
            if let Some(end) = self.end.take() {
                return end;
            }
            let taken = tokio::select! {
                biased;
                event = self.setup.events.recv() => match event {
                    Ok(event) => self.take_event(&event).await,
                    Err(_) => Err(draining()),
                },
                state = &mut self.state_wait => self.take_state(state).await,
            };
            if let Err(failure) = taken {
                return FollowedTurnEvent::Failed(failure);
            }
        }
    }

    async fn take_event(&mut self, event: &SessionEvent) -> Result<(), ApiFailure> {
        if event.turn != self.setup.id {
            return Ok(());
        }
        // The store has the message only after the event of the tool's result. The next event is the first moment to read it.
        if std::mem::take(&mut self.is_message_due) {
            self.show_messages().await?;
        }
        self.is_message_due = matches!(&event.event, TurnEvent::ToolResult { name, .. } if name == MESSAGE_TOOL);
        if matches!(event.event, TurnEvent::Usage { .. }) {
            // A model has answered.
            self.waits_since = None;
        }
        self.ready.extend(self.progress.apply(&event.event));
        Ok(())
    }

    /// Shows the messages that the turn has sent since the last call; returns what the turn has used and sent.
    async fn show_messages(&mut self) -> Result<TurnReport, ApiFailure> {
        let report = self.setup.gateway.report(self.setup.id, &self.setup.chat_id).await?;
        for message in report.messages.iter().skip(self.shown) {
            self.ready.push_back(self.progress.paragraph(message));
        }
        self.shown = self.shown.max(report.messages.len());
        Ok(report)
    }

    async fn take_state(&mut self, state: Result<Option<MessageState>, Refusal>) -> Result<(), ApiFailure> {
        let Some(state) = state? else {
            return Err(HttpError::new(StatusCode::GONE, "gone", "the message was removed from the queue").into());
        };
        let is_early = self.began.elapsed() < WAIT;
        if let Some(asked) = state.continues.filter(|asked| *asked != self.setup.id) {
            // This message answered a question: the reply belongs to the turn that continues. Its earlier messages are shown already.
            self.setup.id = asked;
            self.shown = self.setup.gateway.report(asked, &self.setup.chat_id).await?.messages.len();
        } else if let Some(reply) = state.final_reply() {
            return self.finish(reply).await;
        } else if let Some(question) = state.question {
            return self.finish(Reply { content: question, error: None }).await;
        } else if let (true, Some(notice)) = (state.awaits_approval, &state.notice) {
            return self.finish(Reply { content: notice.clone(), error: None }).await;
        } else {
            if state.status == MessageStatus::Waiting {
                self.check_wait(state.notice)?;
            }
            if self.setup.shutdown.is_cancelled() && (is_early || state.status == MessageStatus::Waiting) {
                return Err(draining());
            }
            if is_early {
                tokio::time::sleep(PAUSE).await;
            }
        }
        self.state_wait = wait_for_state(&self.setup.inbox, self.setup.id);
        self.began = Instant::now();
        Ok(())
    }

    /// Fails the request if its message has waited too long for a model service. A message without a notice waits for sub-agents.
    fn check_wait(&mut self, notice: Option<String>) -> Result<(), ApiFailure> {
        let Some(notice) = notice else { return Ok(()) };
        if self.waits_since.get_or_insert_with(Instant::now).elapsed() < MODEL_PATIENCE {
            return Ok(());
        }
        let message = format!("{} The message is kept, and answered later in its session.", notice.trim_end());
        Err(HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "waiting", message).into())
    }

    async fn finish(&mut self, reply: Reply) -> Result<(), ApiFailure> {
        // Events emitted before the end come first.
        while let Ok(event) = self.setup.events.try_recv() {
            self.take_event(&event).await?;
        }
        let report = self.show_messages().await?;
        if reply.error.is_some() {
            self.end = Some(FollowedTurnEvent::Failed(ApiFailure::Turn(reply)));
            return Ok(());
        }
        let content = reply.content.trim();
        self.ready.extend(self.progress.complete(content));
        let texts = report.messages.iter().map(String::as_str).chain([content]).filter(|text| !text.is_empty());
        let text = texts.collect::<Vec<_>>().join("\n\n");
        self.end = Some(FollowedTurnEvent::Ended(TurnAnswer { text, report }));
        Ok(())
    }
}

fn wait_for_state(inbox: &Arc<dyn Inbox>, id: Uuid) -> BoxFuture<'static, Result<Option<MessageState>, Refusal>> {
    let inbox = inbox.clone();
    Box::pin(async move { inbox.wait(id, WAIT).await })
}

fn draining() -> ApiFailure {
    Refusal::Draining { retry_after: DRAINING_RETRY }.into()
}

#[cfg(test)]
mod tests {
    use super::super::gateway::{NAME, ScriptedGateway};
    use super::*;
    use crate::conformance::{ScriptedAnswer, ScriptedInbox};
    use crate::event::EventSource;
    use crate::inbox::AcceptExtras;
    use crate::message::{InboundMessage, Trust};

    /// Follows the turn of a held message.
    async fn follow(sent: &[&str], is_known: bool) -> (Arc<ScriptedInbox>, Uuid, FollowedTurn, CancellationToken) {
        let inbox = ScriptedInbox::new(|_| ScriptedAnswer::Hold);
        let (events, shutdown) = (inbox.subscribe(NAME), CancellationToken::new());
        let message = InboundMessage::text(NAME, "work", "owner", Trust::Owner, "hi");
        let id = inbox.accept(message, AcceptExtras::default()).await.unwrap().id();
        let turn = FollowedTurn::new(FollowedTurnSetup {
            id,
            chat_id: "work".to_owned(),
            wants_reasoning: false,
            is_known,
            events,
            inbox: inbox.clone(),
            gateway: Arc::new(ScriptedGateway(sent.iter().map(|text| (*text).to_owned()).collect())),
            shutdown: shutdown.clone(),
        });
        (inbox, id, turn, shutdown)
    }

    async fn failure(turn: &mut FollowedTurn) -> HttpError {
        match turn.next().await {
            FollowedTurnEvent::Failed(ApiFailure::Refused(error)) => error,
            FollowedTurnEvent::Failed(ApiFailure::Turn(reply)) => panic!("{reply:?}"),
            FollowedTurnEvent::Delta(delta) => panic!("{delta:?}"),
            FollowedTurnEvent::Ended(answer) => panic!("{answer:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_waits_for_its_model_for_long_ends_the_request() {
        let (inbox, id, mut turn, _shutdown) = follow(&[], false).await;
        let began = Instant::now();
        inbox.park(id, "The service is away.");
        let error = failure(&mut turn).await;
        assert_eq!((error.status.as_u16(), error.code), (503, "waiting"));
        assert!(error.message.starts_with("The service is away. The message is kept"), "{error:?}");
        assert!(began.elapsed() >= MODEL_PATIENCE && began.elapsed() < MODEL_PATIENCE * 2, "{:?}", began.elapsed());
    }

    /// The retries of a parked turn make its message run for a moment. They do not have the rhythm of the waits, so both states are seen.
    #[tokio::test(start_paused = true)]
    async fn only_an_answer_of_a_model_starts_the_wait_anew() {
        for (is_answered, expected) in [(false, 60..70), (true, 90..100)] {
            let (inbox, id, mut turn, _shutdown) = follow(&[], false).await;
            let began = Instant::now();
            let retries = async {
                for retry in 0..u64::MAX {
                    inbox.park(id, "The service is away.");
                    tokio::time::sleep(Duration::from_millis(870)).await;
                    inbox.run_again(id);
                    if retry == 30 && is_answered {
                        inbox.emit(id, TurnEvent::Usage { input_tokens: 1, output_tokens: 1, cached_tokens: 0 });
                    }
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            };
            let error = tokio::select! {
                biased;
                () = retries => panic!("it never ends"),
                error = failure(&mut turn) => error,
            };
            assert_eq!((error.status.as_u16(), error.code), (503, "waiting"));
            assert!(expected.contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stopping_gateway_ends_requests_that_will_not_be_answered() {
        let (inbox, id, mut turn, shutdown) = follow(&[], false).await;
        inbox.park(id, "The service is away.");
        shutdown.cancel();
        assert_eq!(failure(&mut turn).await.code, "draining");
    }

    /// Emits the events of a turn that ends with `Finished.`, and returns the streamed texts and the text of the answer.
    async fn texts(is_known: bool, events: Vec<TurnEvent>) -> (Vec<String>, String) {
        let (inbox, id, mut turn, _shutdown) = follow(&["soon"], is_known).await;
        for event in events {
            inbox.emit(id, event);
        }
        inbox.finish(id, Reply { content: "Finished.".to_owned(), error: None });
        let mut shown = Vec::new();
        loop {
            match turn.next().await {
                FollowedTurnEvent::Delta(ApiDelta::Text(text)) => shown.push(text),
                FollowedTurnEvent::Ended(answer) => return (shown, answer.text),
                FollowedTurnEvent::Delta(other) => panic!("{other:?}"),
                FollowedTurnEvent::Failed(failure) => panic!("{failure:?}"),
            }
        }
    }

    fn message_sent() -> TurnEvent {
        TurnEvent::ToolResult {
            id: "a".to_owned(),
            name: MESSAGE_TOOL.to_owned(),
            content: String::new(),
            success: true,
            duration_ms: 1,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn messages_come_before_what_follows_them_and_the_reply_is_whole() {
        let (shown, answer) = texts(false, vec![message_sent(), TurnEvent::Text { delta: "Fin".to_owned() }]).await;
        assert_eq!(shown, ["soon", "\n\nFin", "ished."]);
        assert_eq!(answer, "soon\n\nFinished.");
    }

    #[tokio::test(start_paused = true)]
    async fn a_repeated_request_streams_the_reply_whole_although_it_missed_the_beginning() {
        let tail = || TurnEvent::Text { delta: "ished.".to_owned() };
        let call = TurnEvent::Text { delta: "ok for it.".to_owned() };
        for events in [vec![], vec![tail()], vec![call, message_sent(), tail()]] {
            let (shown, answer) = texts(true, events).await;
            assert_eq!(shown.concat(), "soon\n\nFinished.");
            assert_eq!(answer, "soon\n\nFinished.");
        }
    }
}
