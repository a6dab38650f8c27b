//! `daoyou agent -m`: one message, its reply on standard output.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use daoyou_channels::cli::Interrupt;
use daoyou_channels::{InboundMessage, Inbox, MessageState, MessageStatus, SessionKey, Trust};
use serde_json::json;
use uuid::Uuid;

use super::Exit;
use super::prepared::{Prepared, watch_signals};
use super::reach::Reach;
use crate::cli::AgentArgs;
use crate::gateway::{Gateway, Options};

/// How long one look waits for the message to end; then it looks again.
const WAIT: Duration = Duration::from_secs(30);

/// Sends the message through the gateway that runs, or answers it here where none does.
///
/// # Errors
/// The message was not taken.
pub async fn run(args: &AgentArgs, prepared: Prepared) -> anyhow::Result<Exit> {
    if args.message.trim().is_empty() {
        bail!("the message is empty");
    }
    let message = one_shot(&args.message, args.session.as_deref());
    let state = match Reach::find(&prepared.home).await? {
        Reach::Running(client) => ask(&client, message).await?,
        Reach::Alone(lock) => {
            let shutdown = watch_signals(Interrupt::default())?;
            let alone = Some(message.session_key());
            let Prepared { home, loaded } = prepared;
            let gateway = Gateway::build(home, lock, &loaded, Options { alone, front: None }).await?;
            let inbox: Arc<dyn Inbox> = gateway.hub().bus.clone();
            let running = tokio::spawn(gateway.run(shutdown.clone(), || {}));
            let state = tokio::select! {
                state = ask(inbox.as_ref(), message) => state,
                () = shutdown.cancelled() => Ok(None),
            };
            shutdown.cancel();
            running.await??;
            state?
        }
    };
    let Some(state) = state else {
        bail!("stopped before the reply came; the message is kept and answered by the next gateway")
    };
    let Some(reply) = state.reply else { bail!("the message ended without a reply") };
    let mut out = std::io::stdout().lock();
    if args.output.json {
        let error = reply.error.as_ref().map(|error| json!({ "code": error.code }));
        writeln!(
            out,
            "{}",
            json!({ "id": state.id, "session": state.session, "reply": reply.content, "error": error })
        )?;
    } else {
        writeln!(out, "{}", reply.content.trim_end())?;
    }
    Ok(if reply.error.is_some() { Exit::Failed } else { Exit::Ok })
}

/// The message; its reply is picked up by its id and needs no screen.
fn one_shot(content: &str, session: Option<&str>) -> InboundMessage {
    let chat_id = session.and_then(|session| session.strip_prefix("cli:")).unwrap_or("direct");
    let mut message = InboundMessage::text("cli", chat_id, "owner", Trust::Owner, content);
    message.session = session.map(SessionKey::from);
    message.metadata.insert("pickup".to_owned(), json!(true));
    message
}

async fn ask(inbox: &dyn Inbox, message: InboundMessage) -> anyhow::Result<Option<MessageState>> {
    let id: Uuid = inbox.accept(message, None).await?.id();
    loop {
        match inbox.wait(id, WAIT).await? {
            Some(state) if !matches!(state.status, MessageStatus::Done | MessageStatus::Dead) => {}
            ended => return Ok(ended),
        }
    }
}
