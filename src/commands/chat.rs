//! `daoyou chat`: a conversation at this terminal.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use daoyou_channels::cli::{
    Console, ConversationFiles, Interrupt, NameDirectory, OutputFault, Terminal, TerminalConversation, TerminalExit,
    TerminalHost, TerminalSetup,
};

use super::CommandExit;
use super::access::{COMMAND_PATIENCE, GatewayAccess};
use super::environment::{CommandEnvironment, watch_signals};
use crate::cli::ChatArgs;
use crate::config::Config;
use crate::gateway::{Gateway, Options, banner, language, names_no_model};
use crate::home::Home;

/// Runs a conversation through the running gateway, or in this process if none is running.
///
/// # Errors
/// A file cannot be added, the model is unknown, the terminal cannot be opened or written, or the gateway stops.
pub async fn run(args: &ChatArgs, environment: CommandEnvironment) -> anyhow::Result<CommandExit> {
    let conversation =
        TerminalConversation { model: args.model.clone(), ..TerminalConversation::of(args.session.as_deref()) };
    let mut files = ConversationFiles::default();
    for file in &args.files {
        files.add(file).context("not added")?;
    }
    let interrupt = Interrupt::default();
    let shutdown = watch_signals(interrupt.clone())?;
    // The chat holds the home until its user leaves, so it is not a command for whose end others wait.
    let access = GatewayAccess::find_with(&environment.home, Home::lock, COMMAND_PATIENCE).await?;
    if matches!(access, GatewayAccess::Offline(_)) {
        environment.with_secrets()?;
    }
    let CommandEnvironment { home, loaded, .. } = environment;
    match access {
        GatewayAccess::Running(client) => {
            let model = client.model(&conversation).await;
            if let (Err(error), Some(wanted)) = (&model, &conversation.model) {
                bail!("the model {wanted} cannot be used: {error}");
            }
            let following = client.follow(&conversation).await?;
            let workspace = home.workspace(&loaded.config.agent.workspace);
            let mut setup = terminal_setup(&home, &loaded.config, conversation, interrupt)?;
            let (has_failed, output_fault) = (Arc::clone(&setup.has_failed), setup.console.output_fault());
            setup.files = files;
            setup.banner = banner(&model, &workspace, &setup, names_no_model(&loaded.config));
            setup.directory = Some(Arc::new(client.clone()));
            let terminal = Terminal::new(setup, Arc::new(client.clone()), Arc::new(client), following);
            match terminal.run(shutdown).await {
                Ok(TerminalExit::Shutdown) => Ok(CommandExit::Failed),
                Err(error) if output_fault.get().is_none() => Err(error.into()),
                _ => exit_of(&has_failed, &output_fault),
            }
        }
        GatewayAccess::Offline(lock) => {
            let only_session = Some(conversation.key());
            let terminal = TerminalSetup { files, ..terminal_setup(&home, &loaded.config, conversation, interrupt)? };
            let (has_failed, output_fault) = (Arc::clone(&terminal.has_failed), terminal.console.output_fault());
            let options = Options { only_session, terminal: Some(terminal), ..Options::default() };
            let gateway = Gateway::build(home, lock, &loaded, options).await?;
            gateway.run(shutdown, |_| {}).await?;
            exit_of(&has_failed, &output_fault)
        }
    }
}

/// Returns the exit of a conversation; with piped lines, it fails if one of them was not taken or its turn failed.
///
/// # Errors
/// The output could not be written. A reader that closed the pipe is not an error.
fn exit_of(has_failed: &AtomicBool, output_fault: &OutputFault) -> anyhow::Result<CommandExit> {
    match output_fault.get() {
        Some(error) => Ok(CommandExit::of_output(Err(io::Error::new(error.kind(), error.to_string())))?),
        None if has_failed.load(Ordering::Relaxed) => Ok(CommandExit::Failed),
        None => Ok(CommandExit::Ok),
    }
}

/// Returns the setup of this process's terminal, without a banner.
///
/// # Errors
/// The terminal cannot be opened.
pub fn terminal_setup(
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
        directory: None,
        has_failed: Arc::default(),
    })
}
