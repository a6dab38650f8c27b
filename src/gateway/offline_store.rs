//! The commands' queries and changes when no gateway is running. Each opens the store, under the lock of the home.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use daoyou_channels::{MessageState, SessionKey};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::agents::load_agents;
use super::build::{Gateway, Options};
use super::inspect::Inspector;
use super::run::MCP_END_LIMIT;
use super::settings::{job_context, memory_settings, secrets};
use crate::bus::find_message_state;
use crate::config::LoadedConfig;
use crate::cron::{JobContext, JobError};
use crate::home::{Home, HomeLock};
use crate::live::LivePart;
use crate::memory::{MemoryError, MemoryService, MessageIndexer};
use crate::query::{
    self, GatewayQuery, Inspect, InspectError, JobChange, JobQuery, ManualToolRun, MemoryChange, MemoryQuery,
    StoreChange, StoreQuery, TokenChange, jobs, memories, sessions,
};
use crate::store::Store;
use crate::tools::Processes;

/// The time limit for indexing messages before a search.
const INDEX_LIMIT: Duration = Duration::from_secs(30);

/// Closes the store after `work`.
async fn with_store<T, E>(store: Store, work: impl AsyncFnOnce(&Store) -> Result<T, E>) -> anyhow::Result<T>
where
    anyhow::Error: From<E>,
{
    let done = work(&store).await;
    store.close().await;
    Ok(done?)
}

/// A query or change that needs no running gateway: the store, and for jobs and memories also the configuration and the workspace.
pub trait OfflineRequest {
    /// The request changes nothing in the store but the search index.
    const ONLY_READS: bool = false;

    /// Returns the answer. `loaded` is a `Result` because requests about sessions, turns, the queue and tokens need no
    /// configuration, so they are answered even if it is invalid; the other requests fail with its error.
    ///
    /// # Errors
    /// The subject does not exist, the change is invalid, the configuration is needed and invalid, or the store cannot be read or
    /// written.
    fn answer(
        self,
        home: &Home,
        lock: &HomeLock,
        loaded: anyhow::Result<&LoadedConfig>,
    ) -> impl Future<Output = anyhow::Result<Value>>;
}

impl OfflineRequest for StoreQuery {
    const ONLY_READS: bool = true;

    async fn answer(self, home: &Home, _: &HomeLock, _: anyhow::Result<&LoadedConfig>) -> anyhow::Result<Value> {
        let subject = self.subject();
        // A query does not create a store.
        if !home.database().exists() {
            return match self {
                Self::Sessions | Self::Turns { session: None, .. } | Self::Queue | Self::Approvals => Ok(json!([])),
                _ => Err(anyhow!("there is no {subject}")),
            };
        }
        let store = Store::open_to_read(&home.database())?;
        let answer = with_store(store, async |store| query::read(store, self).await).await?;
        answer.with_context(|| format!("there is no {subject}"))
    }
}

impl OfflineRequest for StoreChange {
    async fn answer(self, home: &Home, _: &HomeLock, _: anyhow::Result<&LoadedConfig>) -> anyhow::Result<Value> {
        let subject = self.subject();
        if !home.database().exists() {
            return Err(anyhow!("there is no {subject}"));
        }
        let applied = with_store(Store::open(&home.database())?, async |store| query::apply(store, self).await).await?;
        Ok(applied.with_context(|| format!("there is no {subject}"))?.answer)
    }
}

impl OfflineRequest for TokenChange {
    async fn answer(self, home: &Home, _: &HomeLock, _: anyhow::Result<&LoadedConfig>) -> anyhow::Result<Value> {
        with_store(Store::open(&home.database())?, async |store| query::access::apply(store, self).await).await
    }
}

impl OfflineRequest for JobQuery {
    const ONLY_READS: bool = true;

    async fn answer(self, home: &Home, _: &HomeLock, loaded: anyhow::Result<&LoadedConfig>) -> anyhow::Result<Value> {
        let context = open_job_context(home, loaded?)?;
        if !home.database().exists() {
            return match self {
                Self::List => Ok(json!([])),
                Self::Show(job) | Self::History { job, .. } => Err(JobError::NotFound(job).into()),
                Self::Export => Ok(json!({ "version": 1, "jobs": [] })),
            };
        }
        with_store(Store::open_to_read(&home.database())?, async |store| jobs::read(store, self, context).await).await
    }
}

impl OfflineRequest for JobChange {
    /// Makes the change, which takes effect in the next gateway.
    async fn answer(self, home: &Home, _: &HomeLock, loaded: anyhow::Result<&LoadedConfig>) -> anyhow::Result<Value> {
        let context = open_job_context(home, loaded?)?;
        let store = Store::open(&home.database())?;
        Ok(with_store(store, async |store| jobs::apply(store, self, context).await).await?.answer)
    }
}

impl OfflineRequest for MemoryQuery {
    const ONLY_READS: bool = true;

    async fn answer(self, home: &Home, _: &HomeLock, loaded: anyhow::Result<&LoadedConfig>) -> anyhow::Result<Value> {
        let loaded = loaded?;
        if !home.database().exists() {
            return match self {
                Self::Show(id) => Err(MemoryError::NotFound(id).into()),
                Self::SearchMessages { session: Some(session), .. } => Err(sessions::unknown(&session).into()),
                Self::Stats => Ok(json!({ "entries": [], "known": 0, "replaced": 0 })),
                _ => Ok(json!([])),
            };
        }
        let memory = Arc::new(open_memory(home, loaded, Store::open_to_read(&home.database())?)?);
        if matches!(self, Self::Search { .. } | Self::SearchMessages { .. }) {
            index_backlog(&memory).await;
        }
        let answer = memories::read(&memory, self).await;
        memory.store.close().await;
        Ok(answer?)
    }
}

/// Indexes the messages that a process without a gateway, or a killed one, left to the next one. A store that cannot be written is
/// searched as it is.
async fn index_backlog(memory: &Arc<MemoryService>) {
    let mut indexer = MessageIndexer::new(LivePart::fixed(memory.clone()));
    match timeout(INDEX_LIMIT, indexer.catch_up()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "the newest messages could not be indexed"),
        Err(_) => tracing::warn!("not all messages are indexed yet: the newest ones may not be found"),
    }
}

impl OfflineRequest for MemoryChange {
    /// Makes the change, and updates the files of the workspace.
    async fn answer(self, home: &Home, _: &HomeLock, loaded: anyhow::Result<&LoadedConfig>) -> anyhow::Result<Value> {
        let loaded = loaded?;
        let memory = open_memory(home, loaded, Store::open(&home.database())?)?;
        let memory = Arc::new(memory.with_secrets(secrets(loaded, home)?));
        let answer = memories::apply(&memory, self).await;
        // A home whose gateway was never started has no files yet.
        if answer.is_ok() && memory.settings.workspace.is_dir() {
            memory.keep_files().await;
        }
        memory.store.close().await;
        Ok(answer?)
    }
}

/// Returns the state of a message.
///
/// # Errors
/// The store cannot be read.
pub async fn message_state(home: &Home, _lock: &HomeLock, id: Uuid) -> anyhow::Result<Option<MessageState>> {
    let store = Store::open(&home.database())?;
    with_store(store, async |store| store.read(move |connection| find_message_state(connection, id)).await).await
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
    with_store(Store::open_to_read(&home.database())?, query::access::list).await
}

fn open_job_context(home: &Home, loaded: &LoadedConfig) -> anyhow::Result<Arc<JobContext>> {
    Ok(Arc::new(job_context(&loaded.config, &load_agents(loaded, home).0)?))
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
