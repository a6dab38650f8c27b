//! Which command the command line asks for.

use std::io::{self, Write};

use anyhow::Context;
use daoyou_channels::Finding;
use serde_json::Value;

use super::data::{change, inspect, look, parse_beginning, parse_id};
use super::output::{Json, Stdout};
use super::prepared::{Prepared, chats_here};
use super::{
    Exit, agent, backup, chat, cron, doctor, findings, gateway, memory, output, papers, service, sessions, show, status,
};
use crate::cli::{
    ChannelsCommand, Cli, Command, ModelsArgs, Output, QueueCommand, StatusArgs, ToolsCommand, TurnItem, TurnsCommand,
};
use crate::config::Faults;
use crate::home::Home;
use crate::query::{GatewayQuery, ProbeScope, RetryClass, StoreChange, StoreQuery};

/// Threads that run the gateway's tasks: more would only take memory, the work waits for disks and models.
const WORKERS: usize = 2;

/// Runs the command of a parsed command line.
///
/// # Errors
/// What went wrong, in words for the owner.
pub fn run(cli: &Cli) -> anyhow::Result<Exit> {
    match &cli.command {
        Command::Config(command) => {
            let home = Home::locate(cli.globals.home.clone())?;
            let env = crate::config::environment();
            let (out, err) = (output::stdout(), output::stderr());
            Ok(Exit::of_output(super::config::run(command, &cli.globals, &home, &env, out, err))?)
        }
        Command::Service(command) => service::run(command, &cli.globals),
        Command::Backup(args) => backup::create(args, &cli.globals),
        Command::Restore(args) => backup::restore(args, &cli.globals),
        Command::Completions { shell } => Ok(Exit::of_output(papers::completions(*shell, output::stdout()))?),
        Command::Man { folder } => papers::man(folder.as_deref(), output::stdout()),
        // A home that is broken is what it is for, so nothing of it is prepared.
        Command::Doctor(args) => in_runtime(doctor::run(*args, &cli.globals)),
        _ => {
            let prepared = match Prepared::new(cli)? {
                Ok(prepared) => prepared,
                Err(exit) => return Ok(exit),
            };
            match in_runtime(run_prepared(cli, prepared)) {
                Err(error) => match error.downcast::<Faults>() {
                    Ok(Faults(faults)) => Ok(super::config::report(&faults, output::stderr())?),
                    Err(error) => Err(error),
                },
                exit => exit,
            }
        }
    }
}

fn in_runtime(command: impl Future<Output = anyhow::Result<Exit>>) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    let exit = runtime.block_on(command);
    // The thread that reads the terminal may be stuck in its read for good.
    runtime.shutdown_background();
    exit
}

async fn run_prepared(cli: &Cli, prepared: Prepared) -> anyhow::Result<Exit> {
    match &cli.command {
        Command::Gateway(_) => Box::pin(gateway::run(chats_here(cli), &cli.globals, prepared)).await,
        Command::Chat(args) => Box::pin(chat::run(args, prepared)).await,
        Command::Agent(args) => Box::pin(agent::run(args, &prepared)).await,
        Command::Status(StatusArgs { acknowledge: true, output }) => {
            changed(&change(StoreChange::Acknowledge, &prepared.home).await?, *output)
        }
        Command::Status(StatusArgs { output, .. }) => {
            let found = inspect(GatewayQuery::Status, &prepared).await?;
            print(&found, *output, |out| status::status(&found, out))
        }
        Command::Cron(command) => Box::pin(cron::run(command, &prepared)).await,
        Command::Sessions(command) => sessions::run(command, &prepared).await,
        Command::Memory(command) => Box::pin(memory::run(command, &prepared)).await,
        Command::Turns(command) => turns(command, &prepared.home).await,
        Command::Queue(command) => queue(command, &prepared.home).await,
        Command::Tools(ToolsCommand::List(output)) => {
            let tools = inspect(GatewayQuery::Tools, &prepared).await?;
            print(&tools, *output, |out| show::table(&tools, show::TOOLS, "no tools", out))
        }
        Command::Models(args) => models(args, &prepared).await,
        Command::Channels(command) => channels(command, &prepared).await,
        // Carried out before a home is prepared for them.
        Command::Backup(_)
        | Command::Completions { .. }
        | Command::Config(_)
        | Command::Doctor(_)
        | Command::Man { .. }
        | Command::Restore(_)
        | Command::Service(_) => Ok(Exit::Usage),
    }
}

async fn models(args: &ModelsArgs, prepared: &Prepared) -> anyhow::Result<Exit> {
    let ask = match (&args.provider, args.all) {
        (Some(name), _) => ProbeScope::One(name.clone()),
        (None, true) => ProbeScope::All,
        (None, false) => ProbeScope::None,
    };
    let found = inspect(GatewayQuery::Models(ask), prepared).await?;
    print(&found, args.output, |out| status::models(&found, out))
}

async fn channels(command: &ChannelsCommand, prepared: &Prepared) -> anyhow::Result<Exit> {
    match command {
        ChannelsCommand::List(output) => {
            let list = inspect(GatewayQuery::Channels, prepared).await?;
            print(&list, *output, |out| show::channels(&list, out))
        }
        ChannelsCommand::Test { name, output } => {
            let test = inspect(GatewayQuery::TestChannel(name.clone()), prepared).await?;
            let checks: Vec<Finding> = serde_json::from_value(test["checks"].clone())?;
            let printed = print(&test, *output, |out| findings::list(&checks, out))?;
            Ok(if test["ok"] == true { printed } else { Exit::Failed })
        }
    }
}

async fn turns(command: &TurnsCommand, home: &Home) -> anyhow::Result<Exit> {
    match command {
        TurnsCommand::List { session, limit, output } => {
            let list = look(StoreQuery::Turns { session: session.clone(), limit: Some(*limit) }, home).await?;
            print(&list, *output, |out| show::turns(&list, out))
        }
        TurnsCommand::Show(TurnItem { id, output }) => {
            let turn = look(StoreQuery::Turn(parse_beginning(id)?), home).await?;
            print(&turn, *output, |out| show::turn(&turn, out))
        }
        TurnsCommand::Restore(TurnItem { id, output }) => {
            changed(&change(StoreChange::Restore(parse_beginning(id)?), home).await?, *output)
        }
        TurnsCommand::Fork { turn: TurnItem { id, output }, session } => {
            let forked =
                change(StoreChange::Fork { turn: parse_beginning(id)?, session: session.clone() }, home).await?;
            print(&forked, *output, |out| writeln!(out, "{}", show::text(&forked["session"])))
        }
    }
}

async fn queue(command: &QueueCommand, home: &Home) -> anyhow::Result<Exit> {
    match command {
        QueueCommand::List(output) => {
            let list = look(StoreQuery::Queue, home).await?;
            print(&list, *output, |out| {
                show::table(&list, show::QUEUE, "nothing waits, and everything is delivered", out)
            })
        }
        QueueCommand::Show(item) => {
            let entry = look(StoreQuery::QueueEntry(parse_id(&item.id)?), home).await?;
            print(&entry, item.output, |out| show::fields(&entry, out))
        }
        QueueCommand::Retry(args) => {
            let retry = match (&args.id, args.outcome) {
                (Some(id), _) => StoreChange::Retry(parse_id(id)?),
                (None, Some(outcome)) => StoreChange::RetryAll(vec![outcome]),
                // What may have arrived is not sent twice, and what was answered with an error is not asked anew, unless
                // it is asked for.
                (None, None) => StoreChange::RetryAll(vec![RetryClass::Dead, RetryClass::Waiting]),
            };
            changed(&change(retry, home).await?, args.output)
        }
        QueueCommand::Drop(item) => changed(&change(StoreChange::Drop(parse_id(&item.id)?), home).await?, item.output),
    }
}

pub(super) fn changed(answer: &Value, output: Output) -> anyhow::Result<Exit> {
    print(answer, output, |out| show::fields(answer, out))
}

pub(super) fn print(
    value: &Value,
    format: Output,
    for_people: impl FnOnce(&mut Stdout) -> io::Result<()>,
) -> anyhow::Result<Exit> {
    let mut out = output::stdout();
    let printed = if format.json { writeln!(out, "{:#}", Json(value)) } else { for_people(&mut out) };
    Ok(Exit::of_output(printed.map(|()| Exit::Ok))?)
}
