//! Named tokens of the HTTP server: lists, adds and revokes them, for the API and the commands.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use daoyou_channels::text::truncate;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::rows::timestamp;
use crate::store::access::{self, AccessTokenRow, MAX_TOKENS, SecretHash, TokenNameState};
use crate::store::{Connection, Durability, Store, StoreError};

/// The prefix of named tokens. Text without it needs no lookup in the store, and secret scanners for repositories recognize it.
const TOKEN_PREFIX: &str = "dyt_";
/// The longest name of a token, in characters.
const MAX_NAME: usize = 32;

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum TokenScope {
    /// Everything, as the owner.
    Admin,
    /// Chats of its own, as a known sender.
    Chat,
    /// Reading, without configuration and files.
    Read,
}

impl TokenScope {
    pub const ALL: [Self; 3] = [Self::Admin, Self::Chat, Self::Read];

    /// Returns the word in the store and on the command line.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A change of the named tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenChange {
    /// Adds a token. With `reuse`, it may replace a revoked token of the same name, and it inherits that token's chats, uploads and
    /// memories.
    Add {
        name: String,
        scope: String,
        reuse: bool,
    },
    Revoke(String),
}

/// The reason why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("{0}")]
    Invalid(String),
    #[error("there is no token {0:?}; `daoyou tokens list` shows all")]
    NotFound(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Lists the tokens, without their secrets.
///
/// # Errors
/// The store cannot be read.
pub async fn list(store: &Store) -> Result<Value, TokenError> {
    Ok(store.read(access::tokens).await?.iter().map(view).collect())
}

/// Makes a change in one synced commit. The result of an addition contains the token, which is not shown again.
///
/// # Errors
/// The change is invalid, the token does not exist, or the store cannot be written.
pub async fn apply(store: &Store, change: TokenChange) -> Result<Value, TokenError> {
    match change {
        TokenChange::Add { name, scope, reuse } => add(store, &name, &scope, reuse).await,
        TokenChange::Revoke(name) => {
            let revoked = name.clone();
            let revoke = move |connection: &Connection| access::revoke_token(connection, &revoked);
            if store.write(Durability::Synced, revoke).await? {
                Ok(json!({ "name": name, "revoked": true }))
            } else {
                Err(TokenError::NotFound(name))
            }
        }
    }
}

async fn add(store: &Store, name: &str, scope: &str, reuse: bool) -> Result<Value, TokenError> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    if !(1..=MAX_NAME).contains(&name.len()) || !name.chars().all(is_allowed) || name == "owner" {
        let allowed = format!("1 to {MAX_NAME} lower-case letters, digits, - and _, and not \"owner\"");
        return Err(TokenError::Invalid(format!(
            "name: {:?} cannot be the name of a token; allowed: {allowed}",
            truncate(name, 100)
        )));
    }
    let Ok(scope) = scope.parse::<TokenScope>() else {
        let known = TokenScope::ALL.map(TokenScope::as_str).join(", ");
        return Err(TokenError::Invalid(format!("scope: {:?} is not known; allowed: {known}", truncate(scope, 100))));
    };
    let secret = new_secret().map_err(|error| StoreError::Row(format!("no random numbers: {error}")))?;
    let token = format!("{TOKEN_PREFIX}{}", encode_secret(&secret));
    let (hash, own) = (secret_hash(token.as_bytes()), name.to_owned());
    let write = move |connection: &Connection| {
        if access::count_tokens(connection)? >= MAX_TOKENS {
            return Ok(Err(format!("there are {MAX_TOKENS} tokens already; revoke one that is not used")));
        }
        match access::token_name(connection, &own)? {
            TokenNameState::InUse => {
                return Ok(Err(format!("name: there is a token {own:?} already; revoke it, or choose another name")));
            }
            TokenNameState::Revoked if !reuse => {
                return Ok(Err(format!(
                    "name: a token {own:?} was revoked, and the new one would have its chats, uploads and memories; \
                     choose another name, or reuse this one (--reuse, or \"reuse\": true)"
                )));
            }
            TokenNameState::Revoked | TokenNameState::Unused => {}
        }
        access::add_token(connection, &own, &hash, scope.as_str()).map(Ok)
    };
    store.write(Durability::Synced, write).await?.map_err(TokenError::Invalid)?;
    Ok(json!({ "name": name, "scope": scope.as_str(), "token": token }))
}

fn view(row: &AccessTokenRow) -> Value {
    json!({
        "name": row.name,
        "scope": row.scope,
        "created_at": timestamp(row.created_at),
        "used_at": row.used_at.map(timestamp),
    })
}

/// Returns true if a text has the form of a named token.
pub fn is_named_token(text: &[u8]) -> bool {
    text.starts_with(TOKEN_PREFIX.as_bytes())
}

/// Returns 256 random bits.
///
/// # Errors
/// The system provides no random numbers.
pub fn new_secret() -> Result<[u8; 32], getrandom::Error> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret)?;
    Ok(secret)
}

/// Returns a secret as text for a URL or a header.
pub fn encode_secret(secret: &[u8; 32]) -> String {
    URL_SAFE_NO_PAD.encode(secret)
}

/// Decodes the text of [`encode_secret`].
pub fn decode_secret(text: &str) -> Option<[u8; 32]> {
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}

pub fn secret_hash(secret: &[u8]) -> SecretHash {
    Sha256::digest(secret).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tokens_are_shown_once_and_only_with_valid_names() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let add_as = async |name: &str, scope: &str, reuse: bool| {
            let (name, scope) = (name.to_owned(), scope.to_owned());
            apply(&store, TokenChange::Add { name, scope, reuse }).await.map_err(|error| error.to_string())
        };
        let add = async |name: &str, scope: &str| add_as(name, scope, false).await;
        let made = add("phone", "chat").await.unwrap();
        let token = made["token"].as_str().unwrap();
        assert!(is_named_token(token.as_bytes()) && token.len() == 47, "{token}");
        for (name, scope, wrong) in [
            ("phone", "read", "there is a token"),
            ("Phone", "read", "cannot be the name"),
            ("a.b", "read", "cannot be the name"),
            ("", "read", "cannot be the name"),
            ("owner", "read", "cannot be the name"),
            (&"x".repeat(33), "read", "cannot be the name"),
            ("tablet", "all", "allowed: admin, chat, read"),
        ] {
            let error = add(name, scope).await.unwrap_err();
            assert!(error.contains(wrong), "{name} {scope}: {error}");
        }
        let listed = list(&store).await.unwrap();
        assert_eq!((listed[0]["name"].as_str(), listed.as_array().unwrap().len()), (Some("phone"), 1));
        assert!(!listed.to_string().contains(token));
        let revoke = async || apply(&store, TokenChange::Revoke("phone".to_owned())).await;
        assert_eq!(revoke().await.unwrap()["revoked"], true);
        assert!(matches!(revoke().await, Err(TokenError::NotFound(_))));
        assert!(add("phone", "chat").await.unwrap_err().contains("was revoked"));
        let again = add_as("phone", "read", true).await.unwrap();
        assert!(again["token"] != made["token"] && again["scope"] == "read", "{again}");
        assert!(add_as("phone", "read", true).await.unwrap_err().contains("there is a token"));
    }
}
