//! Where the answers of the commands that look into a home or mend it come from.

use anyhow::anyhow;
use serde_json::Value;
use uuid::Uuid;

use super::prepared::Prepared;
use super::reach::Reach;
use crate::gateway;
use crate::home::Home;
use crate::query::{GatewayQuery, ProbeScope, StoreChange, StoreQuery};

/// Looks, through the gateway that runs or in the store itself.
///
/// # Errors
/// There is no such thing, or the store cannot be read.
pub async fn look(query: StoreQuery, home: &Home) -> anyhow::Result<Value> {
    match Reach::find(home).await? {
        Reach::Running(client) => client.get(&query.path()).await,
        Reach::Alone(lock) => gateway::read_store(home, &lock, query).await,
    }
}

/// Makes the change, through the gateway that runs or in the store itself.
///
/// # Errors
/// There is no such thing, or the store cannot be written.
pub async fn change(change: StoreChange, home: &Home) -> anyhow::Result<Value> {
    match Reach::find(home).await? {
        Reach::Running(client) => {
            let (method, path) = change.request();
            client.request(method, &path).await
        }
        Reach::Alone(lock) => gateway::change_store(home, &lock, change).await,
    }
}

/// Asks about the gateway: the one that runs, or the one that this home would have.
///
/// # Errors
/// The configuration is wrong, or what is asked about is not there.
pub async fn inspect(question: GatewayQuery, prepared: &Prepared) -> anyhow::Result<Value> {
    match Reach::find(&prepared.home).await? {
        Reach::Running(client) => client.get(&question.path()).await,
        Reach::Alone(lock) => {
            let loaded = match question {
                GatewayQuery::Status
                | GatewayQuery::Channels
                | GatewayQuery::Tools
                | GatewayQuery::Models(ProbeScope::None) => prepared.without_secrets()?,
                GatewayQuery::TestChannel(_) | GatewayQuery::Models(_) | GatewayQuery::Checks => prepared.sound()?,
            };
            gateway::inspect_offline(&prepared.home, lock, loaded, question).await
        }
    }
}

/// Reads an id, or the beginning of one, as it was typed.
///
/// # Errors
/// It is none.
pub fn parse_beginning(text: &str) -> anyhow::Result<String> {
    let is_id = (4..=36).contains(&text.len()) && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    is_id.then(|| text.to_ascii_lowercase()).ok_or_else(|| {
        let like = "ids look like 019a2b3c-4d5e-7f60-8a9b-0c1d2e3f4a5b, and 4 or more characters of it will do";
        anyhow!("{text:?} is no id; {like}")
    })
}

/// Reads an id as it was typed.
///
/// # Errors
/// It is none.
pub fn parse_id(text: &str) -> anyhow::Result<Uuid> {
    text.parse().map_err(|_| anyhow!("{text:?} is no id; ids look like 019a2b3c-4d5e-7f60-8a9b-0c1d2e3f4a5b"))
}
