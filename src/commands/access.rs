//! The commands' access to a home: through the running gateway, or directly if none is running.

use std::time::Duration;

use anyhow::anyhow;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::environment::CommandEnvironment;
use super::output::print_note;
use super::translation::tr_fill;
use crate::control::ControlClient;
use crate::gateway::{self, OfflineRequest};
use crate::home::{Home, HomeLock, LockError};
use crate::query::{ControlRequest, GatewayQuery, ManualToolRun, ProbeScope};

/// The number and the interval of probes of a gateway that is starting or stopping.
const PROBES: u32 = 100;
const PROBE_INTERVAL: Duration = Duration::from_millis(50);
/// The longest wait for another command that uses the home and does not answer on the control socket.
pub const COMMAND_PATIENCE: Duration = Duration::from_secs(600);
/// The time after which the user learns what this command waits for.
const SILENT_WAIT: Duration = Duration::from_secs(1);
/// The time limit of one probe: a process that is stopped accepts the connection and never answers.
const PROBE_LIMIT: Duration = Duration::from_secs(30);

/// The access to a home.
pub enum GatewayAccess {
    /// A gateway is running and answers on its control socket.
    Running(ControlClient),
    /// No gateway is running; this process holds the home's lock.
    Offline(HomeLock),
}

impl GatewayAccess {
    /// Finds the access to a home. Waits some seconds for a gateway that is starting or stopping, and longer for the end of
    /// another command.
    ///
    /// # Errors
    /// [`LockError`]: another process holds the home and does not answer, or the home cannot be locked.
    pub async fn find(home: &Home) -> anyhow::Result<Self> {
        Self::find_within(home, COMMAND_PATIENCE).await
    }

    /// Finds the access to a home, as [`Self::find`] does, and waits at most `timeout` for the end of another command.
    ///
    /// # Errors
    /// Those of [`Self::find`].
    pub async fn find_within(home: &Home, timeout: Duration) -> anyhow::Result<Self> {
        Self::find_with(home, Home::lock_for_command, timeout).await
    }

    /// Finds the access to a home for a command that only reads: the home need not be writable. Waits as [`Self::find`]
    /// does.
    ///
    /// # Errors
    /// Those of [`Self::find`].
    pub async fn find_to_read(home: &Home) -> anyhow::Result<Self> {
        Self::find_with(home, Home::lock_to_read, COMMAND_PATIENCE).await
    }

    /// Finds the access to a home, with `lock` to take its lock. Waits at most `timeout` for the end of another
    /// command.
    ///
    /// # Errors
    /// Those of [`Self::find`].
    pub async fn find_with(
        home: &Home,
        lock: fn(&Home) -> Result<HomeLock, LockError>,
        timeout: Duration,
    ) -> anyhow::Result<Self> {
        let client = ControlClient::new(&home.socket())?;
        let (start, mut probes, mut is_wait_explained) = (Instant::now(), 0, false);
        loop {
            let (held, pid, is_temporary) = match lock(home) {
                Ok(lock) => return Ok(Self::Offline(lock)),
                Err(held @ LockError::Held { pid, is_temporary, .. }) => (held, pid, is_temporary),
                Err(error) => return Err(error.into()),
            };
            let failure = match tokio::time::timeout(PROBE_LIMIT, client.get("/healthz")).await {
                Ok(Ok(_)) => return Ok(Self::Running(client)),
                Ok(Err(_)) if is_temporary && start.elapsed() < timeout => {
                    if let Some(pid) = pid.filter(|_| start.elapsed() >= SILENT_WAIT && !is_wait_explained) {
                        print_wait(pid, home);
                        is_wait_explained = true;
                    }
                    probes = 0;
                    None
                }
                // No gateway is expected to answer.
                Ok(Err(_)) if is_temporary => return Err(held.into()),
                Ok(Err(_)) if probes < PROBES => None,
                Ok(Err(error)) => Some(format!("{error:#}")),
                Err(_) => Some(format!("the gateway has not answered on its control socket for {PROBE_LIMIT:?}")),
            };
            if let Some(failure) = failure {
                return Err(anyhow::Error::from(held).context(failure));
            }
            probes += 1;
            tokio::time::sleep(PROBE_INTERVAL).await;
        }
    }
}

/// Prints that this command waits for another one, the process `pid`, which uses the home.
pub fn print_wait(pid: u32, home: &Home) {
    let (en, zh) = (
        "daoyou: waiting for another daoyou command (pid {}), which uses {}",
        "daoyou: 正在等待另一个 daoyou 命令（进程 {}）结束，它正在使用 {}",
    );
    print_note(tr_fill(en, zh, &[&pid, &home.dir().display()]));
}

/// Returns the client of the running gateway; `None` if nothing answers on the control socket, and the home is free or used by a
/// command.
///
/// # Errors
/// Those of [`GatewayAccess::find`].
pub async fn find_gateway(home: &Home) -> anyhow::Result<Option<ControlClient>> {
    match GatewayAccess::find_within(home, Duration::ZERO).await {
        Ok(GatewayAccess::Running(client)) => Ok(Some(client)),
        Ok(GatewayAccess::Offline(_)) => Ok(None),
        Err(error) => match error.downcast_ref() {
            Some(LockError::Held { is_temporary: true, .. }) => Ok(None),
            _ => Err(error),
        },
    }
}

/// Returns the answer to a query or change: that of the running gateway, or that of the store if none is running.
///
/// # Errors
/// The subject does not exist, the change is invalid, the configuration is needed without a gateway and invalid, or the store cannot
/// be read or written.
pub async fn answer_request<Request: ControlRequest + OfflineRequest>(
    request: Request,
    environment: &CommandEnvironment,
) -> anyhow::Result<Value> {
    Ok(answer_request_with_source(request, environment).await?.value)
}

/// The answer to a query or change.
pub struct RequestAnswer {
    pub value: Value,
    /// A gateway is running, and gave the answer.
    pub is_running: bool,
}

/// Returns the answer to a query or change, as [`answer_request`] does, and whether a running gateway gave it.
///
/// # Errors
/// Those of [`answer_request`].
pub async fn answer_request_with_source<Request: ControlRequest + OfflineRequest>(
    request: Request,
    environment: &CommandEnvironment,
) -> anyhow::Result<RequestAnswer> {
    let home = &environment.home;
    let access = match Request::ONLY_READS {
        true => GatewayAccess::find_to_read(home).await?,
        false => GatewayAccess::find(home).await?,
    };
    let (value, is_running) = match access {
        GatewayAccess::Running(client) => (client.send(&request).await?, true),
        GatewayAccess::Offline(lock) => (request.answer(home, &lock, environment.without_secrets()).await?, false),
    };
    Ok(RequestAnswer { value, is_running })
}

/// Lists the named tokens.
///
/// # Errors
/// The store cannot be read.
pub async fn list_tokens(home: &Home) -> anyhow::Result<Value> {
    match GatewayAccess::find_to_read(home).await? {
        GatewayAccess::Running(client) => client.get("/api/tokens").await,
        GatewayAccess::Offline(lock) => gateway::list_tokens(home, &lock).await,
    }
}

/// Answers a query about the running gateway, or about the gateway that this home would have.
///
/// # Errors
/// The configuration is invalid, or the subject does not exist.
pub async fn inspect(query: GatewayQuery, environment: &CommandEnvironment) -> anyhow::Result<Value> {
    let access = match query {
        // The parts of a gateway are built for it.
        GatewayQuery::Prompt { .. } => GatewayAccess::find(&environment.home).await?,
        _ => GatewayAccess::find_to_read(&environment.home).await?,
    };
    match access {
        GatewayAccess::Running(client) => client.inspect(&query).await,
        GatewayAccess::Offline(lock) => {
            let loaded = match query {
                GatewayQuery::Status
                | GatewayQuery::Channels
                | GatewayQuery::Tools
                | GatewayQuery::Skills
                | GatewayQuery::Skill(_)
                | GatewayQuery::Agents
                | GatewayQuery::Agent(_)
                | GatewayQuery::McpServers
                | GatewayQuery::Cost { .. }
                | GatewayQuery::Config
                | GatewayQuery::Models(ProbeScope::None) => environment.without_secrets()?,
                GatewayQuery::TestChannel(_)
                | GatewayQuery::McpTools(_)
                | GatewayQuery::TestMcp(_)
                | GatewayQuery::Models(_)
                | GatewayQuery::Prompt { .. }
                | GatewayQuery::Checks => environment.with_secrets()?,
            };
            gateway::inspect_offline(&environment.home, lock, loaded, query).await
        }
    }
}

/// Runs a tool by hand; `cancel` ends it.
///
/// # Errors
/// The configuration is invalid, or the store cannot be written. A failure of the tool is a normal result.
pub async fn run_tool(
    run: ManualToolRun,
    environment: &CommandEnvironment,
    cancel: CancellationToken,
) -> anyhow::Result<Value> {
    match GatewayAccess::find(&environment.home).await? {
        GatewayAccess::Running(client) => {
            // Closing the connection cancels the call.
            let answer = cancel.run_until_cancelled(client.send(&run)).await;
            answer.unwrap_or_else(|| Err(anyhow!("stopped before the tool had ended")))
        }
        GatewayAccess::Offline(lock) => {
            gateway::run_tool(&environment.home, lock, environment.with_secrets()?, run, cancel).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::CommandExit;

    /// Another command keeps the home for a minute, and then for ever.
    #[tokio::test(start_paused = true)]
    async fn a_command_waits_for_the_end_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(Some(folder.path().join("home"))).unwrap();
        let first = home.lock_for_command().unwrap();
        let release = async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            drop(first);
        };
        let (found, ()) = tokio::join!(GatewayAccess::find(&home), release);
        assert!(matches!(found, Ok(GatewayAccess::Offline(_))));
        let error = GatewayAccess::find(&home).await.err().unwrap();
        assert_eq!(CommandExit::of_error(&error), CommandExit::HomeHeld);
        let error = format!("{error:#}");
        assert!(error.starts_with("another daoyou command (pid ") && !error.contains("gateway"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_another_command_ends_with_the_patience() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(Some(folder.path().join("home"))).unwrap();
        let _lock = home.lock_for_command().unwrap();
        let begun = Instant::now();
        let error = GatewayAccess::find_within(&home, Duration::from_secs(5)).await.err().unwrap();
        assert_eq!((CommandExit::of_error(&error), begun.elapsed().as_secs()), (CommandExit::HomeHeld, 5));
        let begun = Instant::now();
        assert!(find_gateway(&home).await.unwrap().is_none(), "a command is not a gateway");
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_never_answers_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(Some(folder.path().join("home"))).unwrap();
        let _lock = home.lock().unwrap();
        let _silent = std::os::unix::net::UnixListener::bind(home.socket()).unwrap();
        let found = GatewayAccess::find(&home).await;
        let error = format!("{:#}", found.err().unwrap());
        assert!(error.contains("has not answered") && error.contains("(pid "), "{error}");
    }
}
