//! `daoyou agent -m`: sends one message and prints the reply.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use daoyou_channels::cli::Interrupt;
use daoyou_channels::trust::{Author, SenderListing, trust_of};
use daoyou_channels::{AcceptExtras, InboundMessage, Inbox, MessageState, MessageStatus, Refusal, SessionKey};
use serde_json::{Value, json};
use uuid::Uuid;

use super::access::{COMMAND_PATIENCE, GatewayAccess, answer_request};
use super::environment::{CommandEnvironment, watch_signals};
use super::files::read_text;
use super::output::{CleanJson, tr};
use super::translation::tr_fill;
use super::{CommandExit, output};
use crate::cli::AgentArgs;
use crate::control::ControlClient;
use crate::gateway::{self, Gateway, Options};
use crate::home::{Home, HomeLock};
use crate::query::StoreQuery;

/// The time for which one poll waits for the end of the message. Each poll also shows whether the message waits for a model.
const WAIT: Duration = Duration::from_secs(2);

/// The interval at which a pause checks that the gateway still runs.
const PACE: Duration = Duration::from_millis(200);

/// The time for which an accepted message waits for the next gateway before this process answers it: a supervisor such as systemd
/// restarts a gateway after 5 s.
const RESTART_PATIENCE: Duration = Duration::from_secs(10);

/// The time for which a command without a gateway waits for the end of its work after its time limit.
const LATE_END: Duration = Duration::from_secs(1);

/// The time limit of a read after the end of the turn: another process may use the home by then.
const LATE_READ: Duration = Duration::from_secs(5);

/// The longest message from standard input, in bytes: the default limit of a webhook.
const MESSAGE_LIMIT: u64 = 2_000_000;

/// The number of times that a message is sent if the gateway stops, or has no room for it.
const TRIES: u32 = 5;

/// Sends the message through the running gateway, or answers it in this process if none is running. If the gateway stops before the
/// reply, the message is on disk, and the next gateway answers it, or this process if none starts soon.
///
/// # Errors
/// The message was not accepted.
pub async fn run(args: &AgentArgs, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    let content = match args.message.as_str() {
        "-" => read_text(Path::new("-"), MESSAGE_LIMIT, "message")?,
        text => text.to_owned(),
    };
    if content.trim().is_empty() {
        bail!(tr("the message is empty", "消息是空的"));
    }
    let mut message = one_shot(content.trim_end(), args.session.as_deref());
    message.settings.requested_model.clone_from(&args.model);
    let mut pending = PendingMessage { id: None, is_wait_explained: false, until: None, usage: None };
    if !args.timeout.0.is_zero() {
        pending.until = Some(Instant::now() + args.timeout.0);
    }
    // No gateway follows another command that held the home.
    let (mut tries, mut is_holder_temporary) = (0, false);
    let state = loop {
        tries += 1;
        if pending.id.is_some() && !is_holder_temporary {
            pending.await_gateway(&environment.home).await?;
        }
        is_holder_temporary = environment.home.temporary_holder().is_some();
        let access = match GatewayAccess::find_within(&environment.home, pending.lock_timeout()).await {
            // The message was accepted before.
            Err(_) if pending.id.is_some() && pending.is_late() => break None,
            found => found?,
        };
        match access {
            GatewayAccess::Running(client) => match pending.send(&client, message.clone()).await {
                Ok(state) => break state,
                // The message was accepted before.
                Err(_) if pending.id.is_some() && pending.is_late() => break None,
                Err(error) if tries >= TRIES => return Err(error.into()),
                Err(Refusal::Busy { reason, retry_after }) if !pending.is_late() => {
                    if pending.id.is_none() {
                        let (en, zh) = ("{} (sent again after {} s)", "{}（{} 秒后重新发送）");
                        output::print_note(tr_fill(en, zh, &[&reason, &retry_after.as_secs()]));
                    }
                    pending.pause(&client, retry_after).await;
                }
                Err(Refusal::Draining { retry_after }) if !pending.is_late() => {
                    pending.pause(&client, retry_after).await;
                }
                // The answer was lost. The next gateway, or this process, gives it.
                Err(Refusal::Store { .. }) => {}
                Err(error) => return Err(error.into()),
            },
            GatewayAccess::Offline(lock) => {
                break answer_in_process(&mut pending, message, lock, args, environment).await?;
            }
        }
    };
    let state = match (state, pending.id) {
        (Some(state), _) if has_ended(&state) => state,
        (Some(MessageState { question: Some(question), session, .. }), Some(id)) => {
            return report_question(args, id, &session, &question);
        }
        (_, Some(id)) if pending.is_late() => return report_timeout(args, id),
        _ => bail!(tr(
            "stopped before the reply came; the message is kept and answered by the next gateway",
            "回复到达之前已停止；消息已保存，网关下次启动时会回答",
        )),
    };
    print_reply(args, state, pending.usage, environment).await
}

/// Prints the reply of a message that has ended, with `usage` or else what is read now.
async fn print_reply(
    args: &AgentArgs,
    state: MessageState,
    usage: Option<Value>,
    environment: &CommandEnvironment,
) -> anyhow::Result<CommandExit> {
    let Some(reply) = state.reply else {
        bail!(tr("the message ended without a reply", "处理已结束，没有回复"))
    };
    let exit = if reply.error.is_some() { CommandExit::Failed } else { CommandExit::Ok };
    let mut out = output::stdout();
    let printed = if args.output.json {
        let error = reply.error.as_ref().map(|error| json!({ "code": error.code }));
        let used = match usage {
            Some(used) => used,
            None => usage_of_turn(state.id, environment).await,
        };
        let answer = json!({
            "id": state.id,
            "session": state.session,
            "reply": reply.content,
            "error": error,
            "tokens": { "input": used["input"], "output": used["output"], "cached": used["cached"] },
            // Null if no price is known.
            "cost": used["cost"], "costs": used["costs"],
        });
        writeln!(out, "{}", CleanJson(&answer))
    } else {
        writeln!(out, "{}", reply.content.trim_end())
    };
    Ok(CommandExit::of_output(printed.map(|()| exit))?)
}

/// Creates the message. Its reply is fetched by the message's id and not shown on a terminal.
fn one_shot(content: &str, session: Option<&str>) -> InboundMessage {
    let chat_id = session.and_then(|session| session.strip_prefix("cli:")).unwrap_or("direct");
    let mut message =
        InboundMessage::text("cli", chat_id, "owner", trust_of(Author::Owner, SenderListing::Owner), content);
    message.session = session.map(SessionKey::from);
    message.reply.is_picked_up = true;
    // With this id, a message that is sent twice counts once.
    message.external_id = Some(daoyou_channels::new_id().to_string());
    message
}

/// Returns the tokens and the cost of a turn; null if they cannot be read soon, because the reply does not wait for them. A slash
/// command has no turn and no usage.
async fn usage_of_turn(turn: Uuid, environment: &CommandEnvironment) -> Value {
    match in_time(answer_request(StoreQuery::Turn(turn.to_string()), environment)).await {
        Ok(turns) => turns["used"].clone(),
        Err(error) => {
            tracing::warn!(%error, "the tokens and the cost of the turn cannot be read");
            Value::Null
        }
    }
}

/// Returns the result of a read that follows the end of the turn.
async fn in_time<T>(read: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::time::timeout(LATE_READ, read).await.unwrap_or_else(|_| bail!("timed out after {LATE_READ:?}"))
}

/// Prints the agent's question; the next message is the answer.
fn report_question(args: &AgentArgs, id: Uuid, session: &SessionKey, question: &str) -> anyhow::Result<CommandExit> {
    let mut out = output::stdout();
    let printed = if args.output.json {
        let asked = json!({ "id": id, "session": session, "reply": null, "question": question, "error": null });
        writeln!(out, "{}", CleanJson(&asked))
    } else {
        writeln!(out, "{}", question.trim_end())
    };
    output::print_note(tr(
        "this is a question: the next `daoyou agent -m` in this conversation is the answer",
        "这是一个提问：在本会话中再次运行 `daoyou agent -m` 即是回答",
    ));
    Ok(CommandExit::of_output(printed.map(|()| CommandExit::ReplyPending))?)
}

/// Prints that the reply did not arrive in time.
fn report_timeout(args: &AgentArgs, id: Uuid) -> anyhow::Result<CommandExit> {
    let (en, zh) = (
        "no reply within {}; the message is kept and will be answered: {}",
        "{} 内没有回复；消息已保存，之后会回答：{}",
    );
    output::print_note(tr_fill(en, zh, &[&args.timeout, &id]));
    if args.output.json {
        let answer = json!({ "id": id, "reply": null, "error": { "code": "timeout" } });
        let printed = writeln!(output::stdout(), "{}", CleanJson(&answer));
        return Ok(CommandExit::of_output(printed.map(|()| CommandExit::ReplyPending))?);
    }
    Ok(CommandExit::ReplyPending)
}

async fn answer_in_process(
    pending: &mut PendingMessage,
    message: InboundMessage,
    lock: HomeLock,
    args: &AgentArgs,
    environment: &CommandEnvironment,
) -> anyhow::Result<Option<MessageState>> {
    let shutdown = watch_signals(Interrupt::default())?;
    let options = Options { only_session: Some(message.session_key()), ..Options::default() };
    let gateway = Gateway::build(environment.home.clone(), lock, environment.with_secrets()?, options).await?;
    // Messages that waited in an earlier gateway continue to wait for the next one, and so do later messages of their sessions: this
    // process cannot resume them after its end, and no gateway can start while it runs.
    let parked = gateway.parked();
    let inbox: Arc<dyn Inbox> = gateway.inbox();
    let mut running = tokio::spawn(gateway.run(shutdown.clone(), |_| {}));
    // No message waits here: the user learns at once that the message cannot be answered.
    pending.is_wait_explained = true;
    let answer = async {
        pending.accept(inbox.as_ref(), message).await?;
        tokio::select! {
            state = pending.wait(inbox.as_ref()) => state,
            () = parked.cancelled() => pending.after_parking(inbox.as_ref()).await,
        }
    };
    let state = tokio::select! {
        state = answer => state?,
        () = shutdown.cancelled() => None,
        ended = &mut running => {
            ended??;
            return Ok(None);
        }
    };
    // At its end, the gateway releases the home, which another process may take.
    if let Some(ended) = state.as_ref().filter(|state| args.output.json && has_ended(state)) {
        pending.usage = Some(usage_of_turn(ended.id, environment).await);
    }
    shutdown.cancel();
    // The turn of a late message is resumed by the next gateway, so its end is not awaited.
    let limit = if pending.is_late() { LATE_END } else { Duration::MAX };
    let Ok(ended) = tokio::time::timeout(limit, &mut running).await else { return Ok(state) };
    ended??;
    match pending.id {
        // The turn may have ended while the gateway drained.
        Some(id) if !state.as_ref().is_some_and(|state| has_ended(state) || state.question.is_some()) => {
            let stored = in_time(stored_state(id, environment)).await.unwrap_or_else(|error| {
                tracing::debug!(%error, "whether the turn ended in the meantime is not known");
                None
            });
            Ok(stored.or(state))
        }
        _ => Ok(state),
    }
}

fn has_ended(state: &MessageState) -> bool {
    matches!(state.status, MessageStatus::Done | MessageStatus::Dead)
}

/// Returns the state of a message now; of an answer, the state of the message whose turn it continues.
async fn stored_state(id: Uuid, environment: &CommandEnvironment) -> anyhow::Result<Option<MessageState>> {
    let state = match GatewayAccess::find(&environment.home).await? {
        GatewayAccess::Running(client) => client.wait(id, Duration::ZERO).await?,
        GatewayAccess::Offline(lock) => gateway::message_state(&environment.home, &lock, id).await?,
    };
    match state {
        Some(MessageState { continues: Some(asked), .. }) if asked != id => {
            Box::pin(stored_state(asked, environment)).await
        }
        state => Ok(state),
    }
}

/// A message that was sent and waits for its reply.
struct PendingMessage {
    /// The id of the accepted message.
    id: Option<Uuid>,
    /// The reason for the wait was already printed.
    is_wait_explained: bool,
    /// The end of the wait for the reply; `None` means no limit.
    until: Option<Instant>,
    /// The tokens and the cost of the turn, if they were read while the gateway of this process ran.
    usage: Option<Value>,
}

impl PendingMessage {
    /// Sends the message and waits for its end, a question, or the time limit; prints the reason for a wait once.
    async fn send(&mut self, inbox: &dyn Inbox, message: InboundMessage) -> Result<Option<MessageState>, Refusal> {
        self.accept(inbox, message).await?;
        self.wait(inbox).await
    }

    /// Waits before the message is sent again: for `limit`, but not after the gateway has stopped or the time limit is reached.
    async fn pause(&self, client: &ControlClient, limit: Duration) {
        let limit = self.until.map_or(limit, |until| limit.min(until.saturating_duration_since(Instant::now())));
        let stopped = async {
            while client.get("/healthz").await.is_ok() {
                tokio::time::sleep(PACE).await;
            }
        };
        tokio::select! {
            () = stopped => {}
            () = tokio::time::sleep(limit) => {}
        }
    }

    /// Waits until a gateway answers, but not longer than the restart of a gateway takes. All messages wait for that gateway, and this
    /// process would answer only its own.
    async fn await_gateway(&self, home: &Home) -> anyhow::Result<()> {
        let client = ControlClient::new(&home.socket())?;
        let end = Instant::now() + RESTART_PATIENCE;
        while !self.is_late() && Instant::now() < end {
            // A process that is stopped accepts the connection and never answers.
            if matches!(tokio::time::timeout(PACE, client.get("/healthz")).await, Ok(Ok(_))) {
                break;
            }
            tokio::time::sleep(PACE).await;
        }
        Ok(())
    }

    async fn accept(&mut self, inbox: &dyn Inbox, message: InboundMessage) -> Result<(), Refusal> {
        self.id = Some(inbox.accept(message, AcceptExtras::default()).await?.id());
        Ok(())
    }

    async fn wait(&mut self, inbox: &dyn Inbox) -> Result<Option<MessageState>, Refusal> {
        let Some(mut id) = self.id else { return Ok(None) };
        loop {
            let left = self.until.map_or(WAIT, |until| until.saturating_duration_since(Instant::now()).min(WAIT));
            match inbox.wait(id, left).await? {
                // The message is an answer: its reply is that of the turn that continues.
                Some(MessageState { continues: Some(asked), .. }) if asked != id => id = asked,
                Some(state) if !has_ended(&state) => {
                    if let Some(notice) = state.notice.as_ref().filter(|_| !self.is_wait_explained) {
                        output::print_note(notice);
                        self.is_wait_explained = true;
                    }
                    if state.question.is_some() || self.is_late() {
                        return Ok(Some(state));
                    }
                }
                ended => return Ok(ended),
            }
        }
    }

    /// Returns the state after a turn of this process was parked. The turn may belong to an earlier message, so only a question, or
    /// an end that follows from an answer, counts.
    async fn after_parking(&mut self, inbox: &dyn Inbox) -> Result<Option<MessageState>, Refusal> {
        let Some(id) = self.id else { return Ok(None) };
        match inbox.wait(id, Duration::ZERO).await? {
            Some(MessageState { continues: Some(_), .. }) => self.wait(inbox).await,
            state => Ok(state),
        }
    }

    /// Returns the longest wait for another command that uses the home.
    fn lock_timeout(&self) -> Duration {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        left.map_or(COMMAND_PATIENCE, |left| left.min(COMMAND_PATIENCE))
    }

    fn is_late(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}
