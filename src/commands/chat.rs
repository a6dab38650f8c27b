//! `daoyou chat`: a conversation at this terminal.

use std::sync::Arc;

use daoyou_channels::SessionKey;
use daoyou_channels::cli::{Console, Front, Interrupt, Left, Terminal};

use super::Exit;
use super::prepared::{Prepared, watch_signals};
use super::reach::Reach;
use crate::cli::ChatArgs;
use crate::gateway::{Gateway, Options};

/// Chats through the gateway that runs, or answers here where none does.
///
/// # Errors
/// The terminal cannot be had, or the gateway goes away.
pub async fn run(args: &ChatArgs, prepared: Prepared) -> anyhow::Result<Exit> {
    let session = args.session.as_deref();
    let chat_id = session.and_then(|session| session.strip_prefix("cli:")).unwrap_or("direct").to_owned();
    let interrupt = Interrupt::default();
    let shutdown = watch_signals(interrupt.clone())?;
    let Prepared { home, loaded, .. } = prepared;
    let reach = Reach::find(&home).await?;
    let front = Front {
        console: Console::of_process(Some(home.history()))?,
        banner: String::new(),
        chat_id: chat_id.clone(),
        session: session.map(SessionKey::from),
        interrupt,
    };
    match reach {
        Reach::Running(client) => {
            let followed = client.follow(&chat_id, session).await?;
            let workspace = home.workspace(&loaded.config.agent.workspace);
            let front = Front { banner: crate::gateway::banner(&followed.model, &workspace), ..front };
            let terminal = Terminal::new(front, Arc::new(client), followed.deliveries, followed.events);
            let left = terminal.run(shutdown).await?;
            Ok(if left == Left::Shutdown { Exit::Failed } else { Exit::Ok })
        }
        Reach::Alone(lock) => {
            let alone = Some(session.map_or_else(|| SessionKey::of_chat("cli", "direct"), SessionKey::from));
            let gateway =
                Gateway::build(home, lock, &loaded, Options { alone, front: Some(front), daemon: None }).await?;
            gateway.run(shutdown, || {}).await?;
            Ok(Exit::Ok)
        }
    }
}
