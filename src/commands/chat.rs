//! `daoyou chat`: a conversation at this terminal.

use std::sync::Arc;

use anyhow::{Context, bail};
use daoyou_channels::cli::{
    CompletionNames, Console, ConversationFiles, Interrupt, NameDirectory, Terminal, TerminalConversation,
    TerminalExit, TerminalHost, TerminalSetup,
};

use super::Exit;
use super::prepared::{Prepared, watch_signals};
use super::reach::Reach;
use crate::cli::ChatArgs;
use crate::config::Config;
use crate::gateway::{Gateway, Options, banner, language};
use crate::home::Home;

/// Chats through the gateway that runs, or answers here where none does.
///
/// # Errors
/// A file cannot be added, the model is not there, the terminal cannot be had, or the gateway goes away.
pub async fn run(args: &ChatArgs, prepared: Prepared) -> anyhow::Result<Exit> {
    let conversation =
        TerminalConversation { model: args.model.clone(), ..TerminalConversation::of(args.session.as_deref()) };
    let mut files = ConversationFiles::default();
    for file in &args.files {
        files.add(file).context("not added")?;
    }
    let interrupt = Interrupt::default();
    let shutdown = watch_signals(interrupt.clone())?;
    let reach = Reach::find(&prepared.home).await?;
    if matches!(reach, Reach::Alone(_)) {
        prepared.sound()?;
    }
    let Prepared { home, loaded, .. } = prepared;
    match reach {
        Reach::Running(client) => {
            let model = client.model(&conversation).await;
            if let (Err(error), Some(wanted)) = (&model, &conversation.model) {
                bail!("the model {wanted} cannot be used: {error}");
            }
            let following = client.follow(&conversation).await?;
            let workspace = home.workspace(&loaded.config.agent.workspace);
            let mut front = front(&home, &loaded.config, conversation, interrupt)?;
            front.files = files;
            front.banner = banner(&model, &workspace, &front);
            let terminal = Terminal::new(front, Arc::new(client.clone()), Arc::new(client), following);
            let left = terminal.run(shutdown).await?;
            Ok(if left == TerminalExit::Shutdown { Exit::Failed } else { Exit::Ok })
        }
        Reach::Alone(lock) => {
            let alone = Some(conversation.key());
            let front = Some(TerminalSetup { files, ..front(&home, &loaded.config, conversation, interrupt)? });
            let gateway = Gateway::build(home, lock, &loaded, Options { alone, front, ..Options::default() }).await?;
            gateway.run(shutdown, |_| {}).await?;
            Ok(Exit::Ok)
        }
    }
}

/// The terminal of this process, with nothing said on it yet.
///
/// # Errors
/// It cannot be had.
pub fn front(
    home: &Home,
    config: &Config,
    conversation: TerminalConversation,
    interrupt: Interrupt,
) -> anyhow::Result<TerminalSetup> {
    Ok(TerminalSetup {
        console: Console::of_process(Some(home.history()))?,
        banner: String::new(),
        conversation,
        files: ConversationFiles::default(),
        language: language(config),
        thinking: config.channels.cli.thinking,
        interrupt,
        directory: Arc::new(Nobody),
    })
}

/// Stands for the gateway of this process until it is built.
struct Nobody;

#[async_trait::async_trait]
impl NameDirectory for Nobody {
    async fn names(&self) -> CompletionNames {
        CompletionNames::default()
    }

    async fn model(&self, _: &TerminalConversation) -> Result<String, String> {
        Err("the gateway is not built yet".to_owned())
    }
}
