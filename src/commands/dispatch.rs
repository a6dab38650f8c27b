//! Runs the command that the command line names.

use std::fs;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use daoyou_channels::Finding;
use serde_json::Value;
use uuid::Uuid;

use super::access::{RequestAnswer, answer_request, answer_request_with_source, inspect};
use super::environment::CommandEnvironment;
use super::output::{print, tr};
use super::render::print_fields;
use super::translation::tr_fill;
use super::{
    CommandExit, agent, backup, chat, cron, doctor, gateway, init, logs, mcp, memory, output, page, render, service,
    sessions, skills, status, tools,
};
use crate::cli::{
    ApprovalsCommand, ChannelsCommand, Cli, Command, Globals, ModelsArgs, QueueCommand, StatusArgs, TrashCommand,
    TurnItem, TurnsCommand,
};
use crate::config::ConfigFaults;
use crate::control::ControlClient;
use crate::gateway::{empty_trash, list_trash, restore_trash};
use crate::home::{Home, SocketPath};
use crate::query::{ApprovalAnswer, GatewayQuery, ProbeScope, RetryClass, StoreChange, StoreQuery};

/// The threads of the async runtime. Most tasks wait for disks and models, so more threads would only use memory.
const WORKERS: usize = 2;

/// The name of the program in completions and manual pages.
const PROGRAM: &str = "daoyou";

/// Runs the command of a parsed command line.
///
/// # Errors
/// The command failed; the error text is for the owner.
pub fn run(cli: &Cli) -> anyhow::Result<CommandExit> {
    match &cli.command {
        Command::Config(command) => {
            let home = Home::locate(cli.globals.home.clone())?;
            let env = crate::config::environment();
            let (out, err) = (output::stdout(), output::stderr());
            Ok(CommandExit::of_output(super::config::run(command, &cli.globals, &home, &env, out, err))?)
        }
        Command::Status(StatusArgs { ready: true, .. }) => in_runtime(ready(&cli.globals)),
        // The log of a gateway must be readable whatever its configuration is.
        Command::Logs(args) => logs::run(args, &cli.globals),
        Command::Service(command) => service::run(command, &cli.globals),
        Command::Backup(args) => backup::create(args, &cli.globals),
        Command::Restore(args) => backup::restore(args, &cli.globals),
        Command::Completions { shell } => Ok(CommandExit::of_output(completions(*shell, output::stdout()))?),
        Command::Man { folder } => man(folder.as_deref(), output::stdout()),
        // `doctor` examines broken homes, so nothing is prepared.
        Command::Doctor(args) => in_runtime(doctor::run(*args, &cli.globals)),
        Command::Init(args) => match in_runtime(init::run(args, &cli.globals)) {
            Err(error) => report_faults(error),
            exit => exit,
        },
        // Its signals are handled before it prepares a home.
        Command::Gateway(_) => match in_runtime(Box::pin(gateway::run(cli))) {
            Err(error) => report_faults(error),
            exit => exit,
        },
        _ => {
            let environment = match CommandEnvironment::new(cli)? {
                Ok(environment) => environment,
                Err(exit) => return Ok(exit),
            };
            match in_runtime(run_in_environment(cli, environment)) {
                Err(error) => report_faults(error),
                exit => exit,
            }
        }
    }
}

/// Prints the faults of a configuration; any other error is returned.
fn report_faults(error: anyhow::Error) -> anyhow::Result<CommandExit> {
    let ConfigFaults(faults) = error.downcast()?;
    Ok(super::config::report(&faults, output::stderr())?)
}

fn in_runtime(command: impl Future<Output = anyhow::Result<CommandExit>>) -> anyhow::Result<CommandExit> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    let exit = runtime.block_on(command);
    // The thread that reads the terminal may block for ever.
    runtime.shutdown_background();
    exit
}

async fn run_in_environment(cli: &Cli, environment: CommandEnvironment) -> anyhow::Result<CommandExit> {
    match &cli.command {
        Command::Chat(args) => Box::pin(chat::run(args, environment)).await,
        Command::Agent(args) => Box::pin(agent::run(args, &environment)).await,
        Command::Open(args) => page::open(*args, &environment).await,
        Command::Tokens(command) => page::tokens(command, &environment).await,
        Command::Status(StatusArgs { acknowledge: true, output, .. }) => {
            print_fields(&answer_request(StoreChange::Acknowledge, &environment).await?, *output)
        }
        Command::Status(StatusArgs { output, .. }) => {
            let mut found = inspect(GatewayQuery::Status, &environment).await?;
            let is_up = found["gateway"] == "up";
            found["login"] = if is_up { page::login_link(&environment).await } else { Value::Null };
            print(&found, *output, |out| status::status(&found, out))
        }
        Command::Cron(command) => Box::pin(cron::run(command, &environment)).await,
        Command::Sessions(command) => sessions::run(command, &environment).await,
        Command::Memory(command) => Box::pin(memory::run(command, &environment)).await,
        Command::Turns(command) => turns(command, &environment).await,
        Command::Queue(command) => queue(command, &environment).await,
        Command::Approvals(command) => approvals(command, &environment).await,
        Command::Skills(command) => skills::run(command, &environment).await,
        Command::Agents(command) => skills::run_agents(command, &environment).await,
        Command::Mcp(command) => Box::pin(mcp::run(command, &environment)).await,
        Command::Tools(command) => Box::pin(tools::run(command, cli.globals.raw, &environment)).await,
        Command::Trash(command) => trash(command, &environment).await,
        Command::Prompt(args) => Box::pin(tools::prompt(args, &environment)).await,
        Command::Models(args) => models(args, &environment).await,
        Command::Channels(command) => channels(command, &environment).await,
        // These commands ran before a home was prepared.
        Command::Backup(_)
        | Command::Completions { .. }
        | Command::Config(_)
        | Command::Doctor(_)
        | Command::Gateway(_)
        | Command::Init(_)
        | Command::Logs(_)
        | Command::Man { .. }
        | Command::Restore(_)
        | Command::Service(_) => Ok(CommandExit::Usage),
    }
}

/// Asks the running gateway whether it accepts messages.
async fn ready(globals: &Globals) -> anyhow::Result<CommandExit> {
    let home = Home::locate(globals.home.clone())?;
    let is_served = SocketPath::new(&home.socket()).is_ok_and(|socket| UnixStream::connect(socket.as_path()).is_ok());
    if !is_served {
        bail!("no gateway runs: start it with `daoyou gateway`");
    }
    ControlClient::new(&home.socket())?.get("/readyz").await?;
    Ok(CommandExit::Ok)
}

async fn models(args: &ModelsArgs, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    let scope = match (&args.provider, args.all) {
        (Some(name), _) => ProbeScope::One(name.clone()),
        (None, true) => ProbeScope::All,
        (None, false) => ProbeScope::None,
    };
    let found = inspect(GatewayQuery::Models(scope), environment).await?;
    let printed = print(&found, args.output, |out| status::models(&found, out))?;
    // A service may answer although it lists no models.
    let fails = |row: &Value| row["answers"].is_null() && !(row["error"].is_null() && row["call_error"].is_null());
    let failed = args.provider.is_some() && render::items(&found["providers"]).iter().any(fails);
    Ok(if failed { CommandExit::Failed } else { printed })
}

async fn channels(command: &ChannelsCommand, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    match command {
        ChannelsCommand::List(output) => {
            let list = inspect(GatewayQuery::Channels, environment).await?;
            print(&list, *output, |out| render::channels(&list, out))
        }
        ChannelsCommand::Test { name, output } => {
            let test = inspect(GatewayQuery::TestChannel(name.clone()), environment).await?;
            let checks: Vec<Finding> = serde_json::from_value(test["checks"].clone())?;
            let printed = print(&test, *output, |out| doctor::print_findings(&checks, out))?;
            Ok(if test["ok"] == true { printed } else { CommandExit::Failed })
        }
    }
}

async fn turns(command: &TurnsCommand, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    match command {
        TurnsCommand::List { session, limit, output } => {
            let query = StoreQuery::Turns { session: session.clone(), limit: Some(*limit) };
            let RequestAnswer { value, is_running } = answer_request_with_source(query, environment).await?;
            print(&value, *output, |out| render::turns(&value, is_running, out))
        }
        TurnsCommand::Show(TurnItem { id, output }) => {
            let query = StoreQuery::Turn(parse_beginning(id)?);
            let RequestAnswer { value, is_running } = answer_request_with_source(query, environment).await?;
            print(&value, *output, |out| render::turn(&value, is_running, out))
        }
        TurnsCommand::Restore(TurnItem { id, output }) => {
            print_fields(&answer_request(StoreChange::Restore(parse_beginning(id)?), environment).await?, *output)
        }
        TurnsCommand::Fork { turn: TurnItem { id, output }, session } => {
            let forked =
                answer_request(StoreChange::Fork { turn: parse_beginning(id)?, session: session.clone() }, environment)
                    .await?;
            print(&forked, *output, |out| writeln!(out, "{}", render::text(&forked["session"])))
        }
    }
}

async fn queue(command: &QueueCommand, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    match command {
        QueueCommand::List(output) => {
            let list = answer_request(StoreQuery::Queue, environment).await?;
            print(&list, *output, |out| render::table(&list, render::QUEUE, render::EMPTY_QUEUE, out))
        }
        QueueCommand::Show(item) => {
            let entry = answer_request(StoreQuery::QueueEntry(parse_id(&item.id)?), environment).await?;
            print(&entry, item.output, |out| render::fields(&entry, out))
        }
        QueueCommand::Retry(args) => {
            let retry = match (&args.id, args.outcome) {
                (Some(id), _) => StoreChange::Retry(parse_id(id)?),
                (None, Some(outcome)) => StoreChange::RetryAll(vec![outcome]),
                // By default, neither a message that may have arrived nor one that was answered with an error is sent again.
                (None, None) => StoreChange::RetryAll(vec![RetryClass::Dead, RetryClass::Waiting]),
            };
            print_fields(&answer_request(retry, environment).await?, args.output)
        }
        QueueCommand::Drop(item) => {
            print_fields(&answer_request(StoreChange::Drop(parse_id(&item.id)?), environment).await?, item.output)
        }
    }
}

async fn approvals(command: &ApprovalsCommand, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    let (id, answer, output) = match command {
        ApprovalsCommand::List(output) => {
            let list = answer_request(StoreQuery::Approvals, environment).await?;
            return print(&list, *output, |out| render::approvals(&list, out));
        }
        ApprovalsCommand::Approve { id, session, output } => {
            (id, ApprovalAnswer::Approve { for_session: *session }, output)
        }
        ApprovalsCommand::Deny { id, reason, output } => (id, ApprovalAnswer::Deny { reason: reason.clone() }, output),
    };
    let change = StoreChange::AnswerApproval { id: id.clone(), answer };
    print_fields(&answer_request(change, environment).await?, *output)
}

/// Runs the trash command on the files of the workspace, whether or not a gateway is running.
async fn trash(command: &TrashCommand, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    let (home, config) = (environment.home.clone(), environment.without_secrets()?.config.clone());
    match command.clone() {
        TrashCommand::List(output) => {
            let list = tokio::task::spawn_blocking(move || list_trash(&home, &config)).await??;
            print(&list, output, |out| render::table(&list, render::TRASH, "the trash is empty", out))
        }
        TrashCommand::Restore { id, to, output } => {
            let restore = move || restore_trash(&home, &config, &id, to.as_deref());
            let restored = tokio::task::spawn_blocking(restore).await??;
            let path = render::text(&restored["restored"]);
            print(&restored, output, |out| writeln!(out, "{}{path}", tr("restored: ", "已恢复：")))
        }
        TrashCommand::Empty(output) => {
            let emptied = tokio::task::spawn_blocking(move || empty_trash(&home, &config)).await??;
            print(&emptied, output, |out| {
                writeln!(out, "{}", tr_fill("{} entries removed", "已删除 {} 项", &[&emptied["removed"]]))
            })
        }
    }
}

/// Writes the completion script for `shell`.
fn completions(shell: Shell, mut out: impl Write) -> io::Result<CommandExit> {
    // Generated in memory first: the generator panics if the reader closes the pipe.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), PROGRAM, &mut script);
    out.write_all(&script)?;
    Ok(CommandExit::Ok)
}

/// Writes the manual page of `daoyou` to `out`, or one page for each command into `folder`, which is created.
///
/// # Errors
/// The folder or a file cannot be written.
fn man(folder: Option<&Path>, mut out: impl Write) -> anyhow::Result<CommandExit> {
    let mut command = Cli::command();
    command.build();
    let Some(folder) = folder else {
        return Ok(CommandExit::of_output(
            man_page(&command, PROGRAM).and_then(|page| out.write_all(&page)).map(|()| CommandExit::Ok),
        )?);
    };
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    write_pages(&command, PROGRAM, folder)?;
    Ok(CommandExit::Ok)
}

/// `daoyou.1`, `daoyou-config.1`, `daoyou-config-check.1`, …
fn write_pages(command: &clap::Command, name: &str, folder: &Path) -> anyhow::Result<()> {
    let path = folder.join(format!("{name}.1"));
    let written = man_page(command, name).and_then(|page| fs::write(&path, page));
    written.with_context(|| path.display().to_string())?;
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help") {
        write_pages(inner, &format!("{name}-{}", inner.get_name()), folder)?;
    }
    Ok(())
}

fn man_page(command: &clap::Command, name: &str) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command.clone().display_name(name.to_owned())).title(name.to_uppercase()).render(&mut page)?;
    Ok(page)
}

/// Parses an id, or the beginning of one.
fn parse_beginning(text: &str) -> anyhow::Result<String> {
    let is_id = (4..=36).contains(&text.len()) && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    is_id.then(|| text.to_ascii_lowercase()).ok_or_else(|| {
        let en = "{} is not an id; ids look like 019a2b3c-4d5e-7f60-8a9b-0c1d2e3f4a5b, and 4 or more characters of it \
                  will do";
        let zh = "{} 不是编号；编号形如 019a2b3c-4d5e-7f60-8a9b-0c1d2e3f4a5b，写出前 4 个或更多字符即可";
        anyhow!("{}", tr_fill(en, zh, &[&format!("{text:?}")]))
    })
}

/// Parses an id.
fn parse_id(text: &str) -> anyhow::Result<Uuid> {
    text.parse().map_err(|_| {
        let en = "{} is not an id; ids look like 019a2b3c-4d5e-7f60-8a9b-0c1d2e3f4a5b";
        let zh = "{} 不是编号；编号形如 019a2b3c-4d5e-7f60-8a9b-0c1d2e3f4a5b";
        anyhow!("{}", tr_fill(en, zh, &[&format!("{text:?}")]))
    })
}
