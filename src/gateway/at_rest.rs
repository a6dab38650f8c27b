//! A home where no gateway runs: its store is opened just to look or to mend. The lock says that nobody else has it.

use anyhow::{Context, anyhow};
use serde_json::{Value, json};

use crate::control::{Change, Query};
use crate::home::{Home, HomeLock};
use crate::http::views;
use crate::store::{Commit, Connection, Store, StoreError, outbox};

/// Answers a query.
///
/// # Errors
/// There is no such thing, or the store cannot be read.
pub async fn look(home: &Home, _lock: &HomeLock, query: Query) -> anyhow::Result<Value> {
    let what = query.what();
    // Looking makes nothing.
    if !home.database().exists() {
        return match query {
            Query::Sessions | Query::Turns | Query::Queue => Ok(json!([])),
            _ => Err(anyhow!("there is no {what}")),
        };
    }
    let found = read(home, move |connection| views::look(connection, &query)).await?;
    found.with_context(|| format!("there is no {what}"))
}

/// Makes a change.
///
/// # Errors
/// There is nothing to change, or the store cannot be written.
pub async fn change(home: &Home, _lock: &HomeLock, change: Change) -> anyhow::Result<Value> {
    let what = change.what();
    if !home.database().exists() {
        return Err(anyhow!("there is no {what}"));
    }
    let store = Store::open(&home.database())?;
    let changed = store.write(Commit::Synced, move |connection| views::change(connection, &change)).await;
    store.close().await;
    Ok(changed?.with_context(|| format!("there is no {what}"))?.answer)
}

/// What `daoyou status` says when no gateway runs.
///
/// # Errors
/// The store cannot be read.
pub async fn status_at_rest(home: &Home, _lock: &HomeLock) -> anyhow::Result<Value> {
    let (undelivered, stuck) = if home.database().exists() {
        read(home, |connection| Ok((outbox::open_by_channel(connection)?, outbox::stuck(connection)?))).await?
    } else {
        (Vec::new(), 0)
    };
    let undelivered: usize = undelivered.iter().map(|(_, messages)| messages).sum();
    Ok(json!({ "gateway": "down", "home": home.dir(), "undelivered": undelivered, "dead_letters": stuck }))
}

async fn read<T, F>(home: &Home, look: F) -> anyhow::Result<T>
where
    T: Send + 'static,
    F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
{
    let store = Store::open(&home.database())?;
    let found = store.read(look).await;
    store.close().await;
    Ok(found?)
}
