//! `daoyou status`.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::Exit;
use super::reach::Reach;
use super::show;
use crate::home::Home;
use crate::http::views;
use crate::store::{Store, outbox};

/// Says whether a gateway runs, and what waits.
///
/// # Errors
/// The home or its store cannot be read, or nothing can be printed.
pub async fn run(home: &Home, as_json: bool) -> anyhow::Result<Exit> {
    let status = match Reach::find(home).await? {
        Reach::Running(client) => client.get("/api/status").await?,
        Reach::Alone(_lock) => down(home).await?,
    };
    let mut out = io::stdout().lock();
    if as_json {
        writeln!(out, "{status:#}")?;
    } else {
        show::fields(&status, &mut out)?;
    }
    Ok(Exit::Ok)
}

async fn down(home: &Home) -> anyhow::Result<Value> {
    if !home.database().exists() {
        return Ok(json!({ "gateway": "down", "home": home.dir(), "undelivered": 0, "dead_letters": 0 }));
    }
    let store = Store::open(&home.database())?;
    let (undelivered, stuck) =
        store.read(|connection| Ok((views::queue(connection)?, outbox::stuck(connection)?))).await?;
    store.close().await;
    let undelivered = undelivered.as_array().map_or(0, Vec::len);
    Ok(json!({ "gateway": "down", "home": home.dir(), "undelivered": undelivered, "dead_letters": stuck }))
}
