//! A home where no gateway runs: its store is opened just to look or to mend. The lock says that nobody else has it.

use std::path::Path;

use anyhow::{Context, anyhow};
use serde_json::{Value, json};

use crate::control::{Change, Query};
use crate::home::{Home, HomeLock};
use crate::http::views;
use crate::store::losses::{self, Loss};
use crate::store::space::{self, Space};
use crate::store::usage::{self, Tokens};
use crate::store::{Commit, Connection, Store, StoreError, inbox, now_ms, outbox};

const DAY_MS: i64 = 86_400_000;

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

/// What `daoyou status` says when no gateway runs: the keys are those of a running one.
///
/// # Errors
/// The store cannot be read.
pub async fn status_at_rest(home: &Home, _lock: &HomeLock) -> anyhow::Result<Value> {
    let database = home.database();
    let counts = match database.exists() {
        true => read(home, move |connection| Counts::read(connection, &database)).await?,
        false => Counts::default(),
    };
    let parts = json!({
        "intake": "no gateway runs",
        "channels": {},
        "inbound": counts.inbound,
        "outbound": counts.outbound,
    });
    Ok(json!({
        "gateway": "down",
        "home": home.dir(),
        "version": env!("CARGO_PKG_VERSION"),
        "pid": null,
        "uptime": null,
        "ready": false,
        "parts": parts,
        "channels": {},
        "dead_letters": counts.stuck,
        "model": null,
        "last_24h": counts.used,
        "database": counts.space,
        "losses": views::losses(&counts.losses),
    }))
}

#[derive(Default)]
struct Counts {
    inbound: usize,
    outbound: usize,
    stuck: usize,
    used: Tokens,
    space: Space,
    losses: Vec<Loss>,
}

impl Counts {
    fn read(connection: &Connection, database: &Path) -> Result<Self, StoreError> {
        Ok(Self {
            inbound: inbox::open_sessions(connection)?.iter().map(|(_, messages, _)| messages).sum(),
            outbound: outbox::open_by_channel(connection)?.iter().map(|(_, messages)| messages).sum(),
            stuck: outbox::stuck(connection)?,
            used: usage::since(connection, now_ms() - DAY_MS)?,
            space: space::of(connection, database)?,
            losses: losses::open(connection)?,
        })
    }
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
