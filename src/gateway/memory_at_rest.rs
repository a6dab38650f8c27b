//! The memory of a home where no gateway runs.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::at_rest::read;
use super::equip::{memory_terms, timezone};
use crate::config::Loaded;
use crate::control::{MemoryChange, MemoryQuery};
use crate::home::{Home, HomeLock};
use crate::http::{memories, settle_memory};
use crate::memory::{MemoryError, Terms};
use crate::store::{Commit, Connection, Store};

/// Answers a query about the memory.
///
/// # Errors
/// There is no such memory, or the store cannot be read.
pub async fn look_at_memory(
    home: &Home,
    _lock: &HomeLock,
    loaded: &Loaded,
    query: MemoryQuery,
) -> anyhow::Result<Value> {
    let terms = terms(home, loaded)?;
    // Looking makes nothing.
    if !home.database().exists() {
        return match query {
            MemoryQuery::Show(id) => Err(MemoryError::NotFound(id).into()),
            MemoryQuery::Stats => Ok(json!({ "entries": [], "known": 0, "replaced": 0 })),
            _ => Ok(json!([])),
        };
    }
    let look = move |connection: &Connection| {
        settle_memory(memories::look(connection, &query, &terms, Timestamp::now(), None))
    };
    Ok(read(home, look).await??)
}

/// Makes a change to the memory. The next gateway brings the files of the workspace up to it.
///
/// # Errors
/// It cannot be made, or the store cannot be written.
pub async fn change_memory(
    home: &Home,
    _lock: &HomeLock,
    loaded: &Loaded,
    change: MemoryChange,
) -> anyhow::Result<Value> {
    let terms = terms(home, loaded)?;
    let store = Store::open(&home.database())?;
    let write = move |connection: &Connection| settle_memory(memories::change(connection, &change, &terms));
    let changed = store.write(Commit::Synced, write).await;
    store.close().await;
    Ok(changed??)
}

fn terms(home: &Home, loaded: &Loaded) -> anyhow::Result<Terms> {
    let config = &loaded.config;
    Ok(memory_terms(config, timezone(config)?, home.workspace(&config.agent.workspace)))
}
