//! The commands' queries and changes when no gateway is running. Each opens the store, under the lock of the home.

use std::sync::Arc;

use anyhow::{Context, anyhow};
use daoyou_channels::{MessageState, SessionKey};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::agents::load_agents;
use super::build::{Gateway, Options};
use super::inspect::Inspector;
use super::run::MCP_END_LIMIT;
use super::settings::{job_context, memory_settings, secrets};
use crate::bus::find_message_state;
use crate::config::LoadedConfig;
use crate::cron::JobError;
use crate::home::{Home, HomeLock};
use crate::memory::{MemoryError, MemoryService};
use crate::query::{
    self, GatewayQuery, Inspect, InspectError, JobChange, JobQuery, ManualToolRun, MemoryChange, MemoryQuery,
    StoreChange, StoreQuery, TokenChange, jobs, memories, sessions,
};
use crate::store::Store;
use crate::tools::Processes;

/// Opens the store for `work` only.
async fn with_store<T, E>(home: &Home, work: impl AsyncFnOnce(&Store) -> Result<T, E>) -> anyhow::Result<T>
where
    anyhow::Error: From<E>,
{
    close_after(Store::open(&home.database())?, work).await
}

/// Opens the store for `work` only, which writes nothing.
async fn with_store_to_read<T, E>(home: &Home, work: impl AsyncFnOnce(&Store) -> Result<T, E>) -> anyhow::Result<T>
where
    anyhow::Error: From<E>,
{
    close_after(Store::open_to_read(&home.database())?, work).await
}

async fn close_after<T, E>(store: Store, work: impl AsyncFnOnce(&Store) -> Result<T, E>) -> anyhow::Result<T>
where
    anyhow::Error: From<E>,
{
    let done = work(&store).await;
    store.close().await;
    Ok(done?)
}

/// Answers a query about sessions, turns or the queue.
///
/// # Errors
/// The subject does not exist, or the store cannot be read.
pub async fn read_store(home: &Home, _lock: &HomeLock, query: StoreQuery) -> anyhow::Result<Value> {
    let subject = query.subject();
    // A query does not create a store.
    if !home.database().exists() {
        return match query {
            StoreQuery::Sessions
            | StoreQuery::Turns { session: None, .. }
            | StoreQuery::Queue
            | StoreQuery::Approvals => Ok(json!([])),
            _ => Err(anyhow!("there is no {subject}")),
        };
    }
    let answer = with_store_to_read(home, async |store| query::read(store, query).await).await?;
    answer.with_context(|| format!("there is no {subject}"))
}

/// Returns the state of a message.
///
/// # Errors
/// The store cannot be read.
pub async fn message_state(home: &Home, _lock: &HomeLock, id: Uuid) -> anyhow::Result<Option<MessageState>> {
    with_store(home, async |store| store.read(move |connection| find_message_state(connection, id)).await).await
}

/// Makes a change to sessions, turns or the queue.
///
/// # Errors
/// The subject does not exist, or the store cannot be written.
pub async fn change_store(home: &Home, _lock: &HomeLock, change: StoreChange) -> anyhow::Result<Value> {
    let subject = change.subject();
    if !home.database().exists() {
        return match change {
            StoreChange::ClearSession(key) => Ok(sessions::cleared(&key, false)),
            _ => Err(anyhow!("there is no {subject}")),
        };
    }
    let applied = with_store(home, async |store| query::apply(store, change).await).await?;
    Ok(applied.with_context(|| format!("there is no {subject}"))?.answer)
}

/// Lists the named tokens.
///
/// # Errors
/// The store cannot be read.
pub async fn list_tokens(home: &Home, _lock: &HomeLock) -> anyhow::Result<Value> {
    // A query does not create a store.
    if !home.database().exists() {
        return Ok(json!([]));
    }
    with_store_to_read(home, query::access::list).await
}

/// Adds or revokes a named token.
///
/// # Errors
/// The change is invalid, or the store cannot be written.
pub async fn change_tokens(home: &Home, _lock: &HomeLock, change: TokenChange) -> anyhow::Result<Value> {
    with_store(home, async |store| query::access::apply(store, change).await).await
}

/// Answers a query about jobs.
///
/// # Errors
/// The job does not exist, or the store cannot be read.
pub async fn read_jobs(home: &Home, _lock: &HomeLock, loaded: &LoadedConfig, query: JobQuery) -> anyhow::Result<Value> {
    let context = Arc::new(job_context(&loaded.config, &load_agents(loaded, home).0)?);
    if !home.database().exists() {
        return match query {
            JobQuery::List => Ok(json!([])),
            JobQuery::Show(job) | JobQuery::History { job, .. } => Err(JobError::NotFound(job).into()),
            JobQuery::Export => Ok(json!({ "version": 1, "jobs": [] })),
        };
    }
    with_store_to_read(home, async |store| jobs::read(store, query, context).await).await
}

/// Makes a change to jobs, which takes effect in the next gateway.
///
/// # Errors
/// The change is invalid, or the store cannot be written.
pub async fn change_jobs(
    home: &Home,
    _lock: &HomeLock,
    loaded: &LoadedConfig,
    change: JobChange,
) -> anyhow::Result<Value> {
    let context = Arc::new(job_context(&loaded.config, &load_agents(loaded, home).0)?);
    Ok(with_store(home, async |store| jobs::apply(store, change, context).await).await?.answer)
}

/// Answers a query about memories.
///
/// # Errors
/// The memory does not exist, or the store cannot be read.
pub async fn read_memory(
    home: &Home,
    _lock: &HomeLock,
    loaded: &LoadedConfig,
    query: MemoryQuery,
) -> anyhow::Result<Value> {
    if !home.database().exists() {
        return match query {
            MemoryQuery::Show(id) => Err(MemoryError::NotFound(id).into()),
            MemoryQuery::SearchMessages { session: Some(session), .. } => Err(sessions::unknown(&session).into()),
            MemoryQuery::Stats => Ok(json!({ "entries": [], "known": 0, "replaced": 0 })),
            _ => Ok(json!([])),
        };
    }
    let memory = Arc::new(open_memory(home, loaded, Store::open_to_read(&home.database())?)?);
    let answer = memories::read(&memory, query).await;
    memory.store.close().await;
    Ok(answer?)
}

/// Makes a change to memories, and updates the files of the workspace.
///
/// # Errors
/// The change is invalid, or the store cannot be written.
pub async fn change_memory(
    home: &Home,
    _lock: &HomeLock,
    loaded: &LoadedConfig,
    change: MemoryChange,
) -> anyhow::Result<Value> {
    let memory =
        Arc::new(open_memory(home, loaded, Store::open(&home.database())?)?.with_secrets(secrets(loaded, home)?));
    let answer = memories::apply(&memory, change).await;
    // A home whose gateway was never started has no files yet.
    if answer.is_ok() && memory.settings.workspace.is_dir() {
        memory.keep_files().await;
    }
    memory.store.close().await;
    Ok(answer?)
}

fn open_memory(home: &Home, loaded: &LoadedConfig, store: Store) -> anyhow::Result<MemoryService> {
    let config = &loaded.config;
    let settings = memory_settings(config, home.workspace(&config.agent.workspace))?;
    Ok(MemoryService::new(store, settings))
}

/// Runs a tool, or composes the next request, with the parts of a gateway that is built but never runs.
async fn with_gateway<T>(
    home: &Home,
    lock: HomeLock,
    loaded: &LoadedConfig,
    work: impl AsyncFnOnce(&dyn Inspect) -> Result<T, InspectError>,
) -> anyhow::Result<T> {
    let options = Options { only_session: Some(SessionKey::from("cli:direct")), ..Options::default() };
    let gateway = Gateway::build(home.clone(), lock, loaded, options).await?;
    let answer = work(gateway.state.inspector.as_ref()).await;
    gateway.fixed.processes.stop(Processes::STOP_LIMIT).await;
    let runtime = gateway.runtime.get();
    Box::pin(runtime.mcp.close(MCP_END_LIMIT)).await;
    runtime.memory.keep_files().await;
    gateway.bus.store().close().await;
    Ok(answer?)
}

/// Runs a tool by hand.
///
/// # Errors
/// The gateway cannot be built, or the store cannot be written. A failure of the tool is a normal result.
pub async fn run_tool(
    home: &Home,
    lock: HomeLock,
    loaded: &LoadedConfig,
    run: ManualToolRun,
    cancel: CancellationToken,
) -> anyhow::Result<Value> {
    with_gateway(home, lock, loaded, async |inspector| inspector.run_tool(run, cancel).await).await
}

/// Answers a query about the gateway that this home would have. Only queries that read the store hold `lock`, so that a gateway can
/// start while other machines are probed.
///
/// # Errors
/// The configuration is invalid, or the subject does not exist.
pub async fn inspect(home: &Home, lock: HomeLock, loaded: &LoadedConfig, query: GatewayQuery) -> anyhow::Result<Value> {
    if let GatewayQuery::Prompt { .. } = query {
        return with_gateway(home, lock, loaded, async |inspector| inspector.answer(query).await).await;
    }
    let lock = Some(lock).filter(|_| matches!(query, GatewayQuery::Status | GatewayQuery::Channels));
    let answer = Inspector::offline(home.clone(), loaded)?.answer(query).await;
    drop(lock);
    Ok(answer?)
}
