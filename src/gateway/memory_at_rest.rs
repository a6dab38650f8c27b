//! The memory of a home where no gateway runs.

use std::sync::Arc;

use serde_json::{Value, json};

use super::equip::{memory_terms, secrets, timezone};
use crate::config::Loaded;
use crate::control::{MemoryChange, MemoryQuery};
use crate::home::{Home, HomeLock};
use crate::http::memories;
use crate::memory::{Desk, MemoryError};
use crate::store::Store;

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
    // Looking makes nothing.
    if !home.database().exists() {
        return match query {
            MemoryQuery::Show(id) => Err(MemoryError::NotFound(id).into()),
            MemoryQuery::Stats => Ok(json!({ "entries": [], "known": 0, "replaced": 0 })),
            _ => Ok(json!([])),
        };
    }
    let desk = desk(home, loaded)?;
    let found = memories::look(&desk, query).await;
    desk.store.close().await;
    Ok(found?)
}

/// Makes a change to the memory, and brings the files of the workspace up to it.
///
/// # Errors
/// It cannot be made, or the store cannot be written.
pub async fn change_memory(
    home: &Home,
    _lock: &HomeLock,
    loaded: &Loaded,
    change: MemoryChange,
) -> anyhow::Result<Value> {
    let desk = desk(home, loaded)?;
    desk.secrets.set(secrets(loaded, home)?);
    let changed = memories::change(&desk, change).await;
    // A home that was never started has no files yet.
    if changed.is_ok() && desk.terms.get().workspace.is_dir() {
        desk.keep_files().await;
    }
    desk.store.close().await;
    Ok(changed?)
}

fn desk(home: &Home, loaded: &Loaded) -> anyhow::Result<Arc<Desk>> {
    let config = &loaded.config;
    let terms = memory_terms(config, timezone(config)?, home.workspace(&config.agent.workspace));
    Ok(Arc::new(Desk::new(Store::open(&home.database())?, terms)))
}
