//! The commands that look into a home or mend it: the same words with a gateway running and without.

use anyhow::{Context, anyhow, bail};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::reach::Reach;
use crate::home::Home;
use crate::http::views;
use crate::store::{Commit, Connection, Store, StoreError, messages};

/// Something to look at.
pub enum Query {
    Sessions,
    Session(String),
    Turns,
    Turn(Uuid),
    Queue,
    QueueEntry(Uuid),
}

/// Something to change.
pub enum Change {
    ClearSession(String),
    Retry(Uuid),
    Drop(Uuid),
}

impl Query {
    /// Looks, through the gateway that runs or in the store itself.
    ///
    /// # Errors
    /// There is no such thing, or the store cannot be read.
    pub async fn run(self, home: &Home) -> anyhow::Result<Value> {
        match Reach::find(home).await? {
            Reach::Running(client) => client.get(&self.path()).await,
            Reach::Alone(_lock) => {
                // Looking makes nothing.
                if !home.database().exists() {
                    return self.nothing();
                }
                let what = self.path();
                let store = Store::open(&home.database())?;
                let found = store.read(move |connection| self.look(connection)).await;
                store.close().await;
                found?.with_context(|| format!("there is nothing at {what}"))
            }
        }
    }

    fn path(&self) -> String {
        match self {
            Self::Sessions => "/api/sessions".to_owned(),
            Self::Session(key) => format!("/api/sessions/{}", escape(key)),
            Self::Turns => "/api/turns".to_owned(),
            Self::Turn(id) => format!("/api/turns/{id}"),
            Self::Queue => "/api/queue".to_owned(),
            Self::QueueEntry(id) => format!("/api/queue/{id}"),
        }
    }

    fn look(self, connection: &Connection) -> Result<Option<Value>, StoreError> {
        match self {
            Self::Sessions => views::sessions(connection).map(Some),
            Self::Session(key) => views::session(connection, &key),
            Self::Turns => views::turns(connection).map(Some),
            Self::Turn(id) => views::turn(connection, id),
            Self::Queue => views::queue(connection).map(Some),
            Self::QueueEntry(id) => views::queue_entry(connection, id),
        }
    }

    fn nothing(&self) -> anyhow::Result<Value> {
        match self {
            Self::Sessions | Self::Turns | Self::Queue => Ok(json!([])),
            _ => Err(anyhow!("nothing has been said in this home yet")),
        }
    }
}

impl Change {
    /// Makes the change, through the gateway that runs or in the store itself.
    ///
    /// # Errors
    /// There is no such thing, or the store cannot be written.
    pub async fn run(self, home: &Home) -> anyhow::Result<Value> {
        match Reach::find(home).await? {
            Reach::Running(client) => match self {
                Self::ClearSession(key) => {
                    client.request(Method::DELETE, &format!("/api/sessions/{}", escape(&key))).await
                }
                Self::Retry(id) => client.request(Method::POST, &format!("/api/queue/{id}/retry")).await,
                Self::Drop(id) => client.request(Method::DELETE, &format!("/api/queue/{id}")).await,
            },
            Reach::Alone(_lock) => {
                if !home.database().exists() {
                    bail!("nothing has been said in this home yet");
                }
                let store = Store::open(&home.database())?;
                let changed = store.write(Commit::Synced, move |connection| self.make(connection)).await;
                store.close().await;
                changed?.context("there is no such message among those that could not be delivered")
            }
        }
    }

    fn make(self, connection: &Connection) -> Result<Option<Value>, StoreError> {
        Ok(match self {
            Self::ClearSession(key) => {
                messages::new_epoch(connection, &key)?;
                Some(json!({ "session": key, "cleared": true }))
            }
            Self::Retry(id) => views::revive(connection, id)?.map(|revived| match revived {
                views::Revived::Outbound { id, .. } => json!({ "id": id, "state": "pending" }),
                views::Revived::Inbound { .. } => json!({ "id": id, "state": "queued" }),
            }),
            Self::Drop(id) => views::drop_entry(connection, id)?.map(|_| json!({ "id": id, "dropped": true })),
        })
    }
}

/// Reads an id as it was typed.
///
/// # Errors
/// It is none.
pub fn parse_id(text: &str) -> anyhow::Result<Uuid> {
    text.parse().map_err(|_| anyhow!("{text:?} is no id; ids look like 019a2b3c-4d5e-7f60-8a9b-0c1d2e3f4a5b"))
}

/// A path segment of a URL (RFC 3986, section 2.1).
fn escape(segment: &str) -> String {
    let mut escaped = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:@".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}
