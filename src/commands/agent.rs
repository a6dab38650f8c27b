//! `daoyou agent -m`: one message, its reply on standard output.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use daoyou_channels::cli::Interrupt;
use daoyou_channels::trust::{Author, Standing, trust_of};
use daoyou_channels::{AcceptExtras, InboundMessage, Inbox, MessageState, MessageStatus, Refusal, SessionKey};
use serde_json::json;
use uuid::Uuid;

use super::files::read_text;
use super::output::Json;
use super::prepared::{Prepared, watch_signals};
use super::reach::Reach;
use super::{Exit, output};
use crate::cli::AgentArgs;
use crate::gateway::{Gateway, Options};
use crate::home::HomeLock;

/// How long one look waits for the message to end; then it looks again, also whether it waits for a model.
const WAIT: Duration = Duration::from_secs(2);

/// The longest message that is read from standard input, in bytes: what a webhook takes by default.
const MESSAGE_LIMIT: u64 = 2_000_000;

/// How often a message is handed over anew when the gateway that had it goes away.
const TRIES: u32 = 5;

/// Sends the message through the gateway that runs, or answers it here where none does. When that gateway stops before
/// the reply is there, the message is on disk, and the next one is asked, or it is answered here after all.
///
/// # Errors
/// The message was not taken.
pub async fn run(args: &AgentArgs, prepared: &Prepared) -> anyhow::Result<Exit> {
    let content = match args.message.as_str() {
        "-" => read_text(Path::new("-"), MESSAGE_LIMIT, "message")?,
        text => text.to_owned(),
    };
    if content.trim().is_empty() {
        bail!("the message is empty");
    }
    let message = one_shot(content.trim_end(), args.session.as_deref());
    let mut asking = Asking { id: None, is_told: false, until: None };
    if !args.timeout.0.is_zero() {
        asking.until = Some(Instant::now() + args.timeout.0);
    }
    let mut tries = 0;
    let state = loop {
        tries += 1;
        match Reach::find(&prepared.home).await? {
            Reach::Running(client) => match asking.ask(&client, message.clone()).await {
                Ok(state) => break state,
                Err(error) if tries >= TRIES => return Err(error.into()),
                Err(Refusal::Store { .. } | Refusal::Draining { .. }) => {}
                Err(error) => return Err(error.into()),
            },
            Reach::Alone(lock) => break answer_here(&mut asking, message, lock, prepared).await?,
        }
    };
    let ended = |state: &MessageState| matches!(state.status, MessageStatus::Done | MessageStatus::Dead);
    let state = match (state, asking.id) {
        (Some(state), _) if ended(&state) => state,
        (_, Some(id)) if asking.is_late() => return late(args, id),
        _ => bail!("stopped before the reply came; the message is kept and answered by the next gateway"),
    };
    let Some(reply) = state.reply else { bail!("the message ended without a reply") };
    let mut out = output::stdout();
    if args.output.json {
        let error = reply.error.as_ref().map(|error| json!({ "code": error.code }));
        let answer = json!({ "id": state.id, "session": state.session, "reply": reply.content, "error": error });
        writeln!(out, "{}", Json(&answer))?;
    } else {
        writeln!(out, "{}", reply.content.trim_end())?;
    }
    Ok(if reply.error.is_some() { Exit::Failed } else { Exit::Ok })
}

/// The message; its reply is picked up by its id and needs no screen.
fn one_shot(content: &str, session: Option<&str>) -> InboundMessage {
    let chat_id = session.and_then(|session| session.strip_prefix("cli:")).unwrap_or("direct");
    let mut message = InboundMessage::text("cli", chat_id, "owner", trust_of(Author::Owner, Standing::Owner), content);
    message.session = session.map(SessionKey::from);
    message.reply.is_picked_up = true;
    // Handed over twice, it is still one message.
    message.external_id = Some(daoyou_channels::new_id().to_string());
    message
}

/// The reply did not come in time.
fn late(args: &AgentArgs, id: Uuid) -> anyhow::Result<Exit> {
    output::note(format!("no reply within {}; the message is kept and will be answered: {id}", args.timeout));
    if args.output.json {
        writeln!(output::stdout(), "{}", Json(&json!({ "id": id, "reply": null, "error": { "code": "timeout" } })))?;
    }
    Ok(Exit::Waits)
}

async fn answer_here(
    asking: &mut Asking,
    message: InboundMessage,
    lock: HomeLock,
    prepared: &Prepared,
) -> anyhow::Result<Option<MessageState>> {
    let shutdown = watch_signals(Interrupt::default())?;
    let options = Options { only_session: Some(message.session_key()), ..Options::default() };
    let gateway = Gateway::build(prepared.home.clone(), lock, prepared.sound()?, options).await?;
    // Messages that already waited in an earlier gateway keep waiting for the next one, and so do later ones of their sessions:
    // this process cannot resume them after its end, and no gateway can start while it runs.
    let parked = gateway.parked();
    let inbox: Arc<dyn Inbox> = gateway.inbox();
    let mut running = tokio::spawn(gateway.run(shutdown.clone(), |_| {}));
    // Nothing waits here: the user is told at once that the message cannot be answered.
    asking.is_told = true;
    let state = tokio::select! {
        state = asking.ask(inbox.as_ref(), message) => state?,
        () = shutdown.cancelled() => None,
        () = parked.cancelled() => None,
        ended = &mut running => {
            ended??;
            return Ok(None);
        }
    };
    shutdown.cancel();
    running.await??;
    Ok(state)
}

/// A message that is handed over and waited for.
struct Asking {
    /// The message's, once it is accepted.
    id: Option<Uuid>,
    /// Why it has to wait was said.
    is_told: bool,
    /// When to give up waiting for its reply; never without.
    until: Option<Instant>,
}

impl Asking {
    /// Hands the message over and waits for its end or for the time that is given; says once why it has to wait.
    async fn ask(&mut self, inbox: &dyn Inbox, message: InboundMessage) -> Result<Option<MessageState>, Refusal> {
        let id: Uuid = inbox.accept(message, AcceptExtras::default()).await?.id();
        self.id = Some(id);
        loop {
            let left = self.until.map_or(WAIT, |until| until.saturating_duration_since(Instant::now()).min(WAIT));
            match inbox.wait(id, left).await? {
                Some(state) if !matches!(state.status, MessageStatus::Done | MessageStatus::Dead) => {
                    if let Some(notice) = state.notice.as_ref().filter(|_| !self.is_told) {
                        output::note(notice);
                        self.is_told = true;
                    }
                    if self.is_late() {
                        return Ok(Some(state));
                    }
                }
                ended => return Ok(ended),
            }
        }
    }

    fn is_late(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}
