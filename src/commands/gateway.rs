//! `daoyou gateway`.

use std::net::SocketAddr;
use std::sync::Arc;

use daoyou_channels::cli::{Interrupt, TerminalConversation};
use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};

use super::access::print_wait;
use super::environment::{CommandEnvironment, has_terminal, watch_signals};
use super::{CommandExit, output};
use crate::cli::Cli;
use crate::config;
use crate::gateway::{GatewayStart, Options, ReloadSource, serve};

/// Runs the daemon in the foreground until a signal stops it, or until the user leaves its terminal.
///
/// # Errors
/// The gateway cannot be built, or a part of it ended unexpectedly.
pub async fn run(cli: &Cli) -> anyhow::Result<CommandExit> {
    // Registered before anything else: without a handler, a signal ends the process.
    let interrupt = Interrupt::default();
    let shutdown = watch_signals(interrupt.clone())?;
    let hangup = Mutex::new(Some(signal(SignalKind::hangup())?));
    // These two mean nothing here. A handler that was registered once stays.
    drop((signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?));
    let CommandEnvironment { home, loaded, log, .. } = match CommandEnvironment::new(cli)? {
        Ok(environment) => environment,
        Err(exit) => return Ok(exit),
    };
    let (has_terminal, globals) = (has_terminal(cli), &cli.globals);
    let options = || {
        let (same_globals, same_home) = (globals.clone(), home.clone());
        let first = hangup.lock().take();
        let reload = ReloadSource {
            hangup: first.map_or_else(|| signal(SignalKind::hangup()), Ok)?,
            load: Arc::new(move || super::config::load(&same_globals, &same_home, &config::environment())),
            log: log.clone(),
        };
        let terminal = match has_terminal && loaded.config.channels.cli.enabled {
            true => Some(super::chat::terminal_setup(
                &home,
                &loaded.config,
                TerminalConversation::of(None),
                interrupt.clone(),
            )?),
            false => None,
        };
        Ok(Options { terminal, reload: Some(reload), ..Options::default() })
    };
    let on_read_only = |reason: &str| {
        // With a terminal, the log is in a file of the home, not on the screen.
        if has_terminal {
            output::print_note(format_args!("daoyou: read-only until the home can be written: {reason}"));
        }
    };
    let on_held = |pid| {
        if has_terminal {
            print_wait(pid, &home);
        }
    };
    let on_ready = |served: Option<SocketAddr>| {
        let listen = served.map_or_else(|| "nowhere".to_owned(), |served| served.to_string());
        tracing::info!(listen, "ready");
    };
    let start = GatewayStart {
        home: &home,
        loaded: &loaded,
        options: &options,
        on_read_only: &on_read_only,
        on_held: &on_held,
    };
    serve(start, shutdown, on_ready).await?;
    Ok(CommandExit::Ok)
}
