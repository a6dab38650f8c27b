//! Who may use the HTTP server beside the holder of the gateway's token: named tokens, logins of the page, and the files that
//! they uploaded. Only hashes of secrets are stored.

use rusqlite::{Connection, Row, params};

use super::sql::{execute, select, select_optional, select_value};
use super::{StoreError, now_ms};

/// The most named tokens.
pub const MAX_TOKENS: usize = 200;
/// The most logins; a further one ends the one that was not used for the longest.
pub const MAX_LOGINS: u32 = 100;
/// A login that was not used for this long ends, in milliseconds.
pub const LOGIN_IDLE_MS: i64 = 30 * 24 * 60 * 60 * 1_000;
/// How exactly the last use of a token or a login is stored, in milliseconds.
const USE_MS: i64 = 60 * 60 * 1_000;

/// The SHA-256 of a secret.
pub type SecretHash = [u8; 32];

/// A named token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessTokenRow {
    pub name: String,
    pub scope: String,
    /// UTC milliseconds.
    pub created_at: i64,
    pub used_at: Option<i64>,
}

/// A login of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageLoginRow {
    /// The named token of the login, and its scope; `None` is the token of the gateway.
    pub token: Option<AccessTokenRow>,
    pub seal: Vec<u8>,
}

/// Adds a token; returns false if the name is taken.
pub fn add_token(connection: &Connection, name: &str, hash: &SecretHash, scope: &str) -> Result<bool, StoreError> {
    let sql = "INSERT INTO access_tokens (name, hash, scope, created_at) VALUES (?, ?, ?, ?)
               ON CONFLICT (name) DO NOTHING";
    Ok(execute(connection, sql, params![name, hash, scope, now_ms()])? == 1)
}

/// Removes a token and ends its logins; returns whether there was one.
pub fn revoke_token(connection: &Connection, name: &str) -> Result<bool, StoreError> {
    execute(connection, "DELETE FROM page_logins WHERE token = ?", [name])?;
    Ok(execute(connection, "DELETE FROM access_tokens WHERE name = ?", [name])? == 1)
}

pub fn count_tokens(connection: &Connection) -> Result<usize, StoreError> {
    select_value(connection, "SELECT count(*) FROM access_tokens", [])
}

/// Returns all tokens, by name.
pub fn tokens(connection: &Connection) -> Result<Vec<AccessTokenRow>, StoreError> {
    let sql = "SELECT name, scope, created_at, used_at FROM access_tokens ORDER BY name";
    select(connection, sql, [], |row| read_token(row, 0))
}

pub fn find_token(connection: &Connection, hash: &SecretHash) -> Result<Option<AccessTokenRow>, StoreError> {
    let sql = "SELECT name, scope, created_at, used_at FROM access_tokens WHERE hash = ?";
    select_optional(connection, sql, [hash], |row| read_token(row, 0))
}

/// Returns true if the last use is old enough to be stored again.
pub fn is_use_due(used_at: Option<i64>, now: i64) -> bool {
    used_at.is_none_or(|at| (now - at).abs() >= USE_MS)
}

/// Stores that a token is used now.
pub fn touch_token(connection: &Connection, name: &str) -> Result<(), StoreError> {
    execute(connection, "UPDATE access_tokens SET used_at = ? WHERE name = ?", params![now_ms(), name])?;
    Ok(())
}

/// Adds a login, and removes those that have ended or are too many.
pub fn add_login(
    connection: &Connection,
    hash: &SecretHash,
    token: Option<&str>,
    seal: &SecretHash,
) -> Result<(), StoreError> {
    let now = now_ms();
    execute(connection, "DELETE FROM page_logins WHERE used_at < ?", [now - LOGIN_IDLE_MS])?;
    let sql =
        "DELETE FROM page_logins WHERE hash IN (SELECT hash FROM page_logins ORDER BY used_at DESC LIMIT -1 OFFSET ?)";
    execute(connection, sql, [MAX_LOGINS - 1])?;
    let sql = "INSERT INTO page_logins (hash, token, seal, created_at, used_at) VALUES (?1, ?2, ?3, ?4, ?4)";
    execute(connection, sql, params![hash, token, seal, now])?;
    Ok(())
}

/// Returns a login that has not ended, and whether its last use is to be stored.
pub fn find_login(connection: &Connection, hash: &SecretHash) -> Result<Option<(PageLoginRow, bool)>, StoreError> {
    let now = now_ms();
    let sql = "SELECT l.token, l.seal, l.used_at, t.name, t.scope, t.created_at, t.used_at
               FROM page_logins l LEFT JOIN access_tokens t ON t.name = l.token WHERE l.hash = ? AND l.used_at >= ?";
    let found = select_optional(connection, sql, params![hash, now - LOGIN_IDLE_MS], |row| {
        let named: Option<String> = row.get(0)?;
        let token = if row.get::<_, Option<String>>(3)?.is_some() { Some(read_token(row, 3)?) } else { None };
        let is_due = is_use_due(Some(row.get(2)?), now);
        // Without its token, which was revoked, a login is none.
        let is_valid = named.is_some() == token.is_some();
        Ok(is_valid.then_some((PageLoginRow { token, seal: row.get(1)? }, is_due)))
    })?;
    Ok(found.flatten())
}

/// Stores that a login is used now.
pub fn touch_login(connection: &Connection, hash: &SecretHash) -> Result<(), StoreError> {
    execute(connection, "UPDATE page_logins SET used_at = ? WHERE hash = ?", params![now_ms(), hash])?;
    Ok(())
}

/// Ends a login.
pub fn remove_login(connection: &Connection, hash: &SecretHash) -> Result<(), StoreError> {
    execute(connection, "DELETE FROM page_logins WHERE hash = ?", [hash])?;
    Ok(())
}

/// Records a file that was uploaded; `attachment` is JSON.
pub fn add_file(connection: &Connection, id: &str, uploader: &str, attachment: &str) -> Result<(), StoreError> {
    let sql = "INSERT INTO page_files (id, uploader, attachment, at) VALUES (?, ?, ?, ?)";
    execute(connection, sql, params![id, uploader, attachment, now_ms()])?;
    Ok(())
}

/// Returns the uploader and the attachment of a file.
pub fn find_file(connection: &Connection, id: &str) -> Result<Option<(String, String)>, StoreError> {
    let sql = "SELECT uploader, attachment FROM page_files WHERE id = ?";
    select_optional(connection, sql, [id], |row| Ok((row.get(0)?, row.get(1)?)))
}

fn read_token(row: &Row<'_>, at: usize) -> rusqlite::Result<AccessTokenRow> {
    Ok(AccessTokenRow {
        name: row.get(at)?,
        scope: row.get(at + 1)?,
        created_at: row.get(at + 2)?,
        used_at: row.get(at + 3)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Durability, Store};

    #[tokio::test]
    async fn logins_end_with_their_token_with_time_and_by_number() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let work = |connection: &Connection| {
            assert!(add_token(connection, "phone", &[1; 32], "chat")?);
            assert!(!add_token(connection, "phone", &[2; 32], "admin")?, "the name is taken");
            add_login(connection, &[10; 32], Some("phone"), &[0; 32])?;
            add_login(connection, &[11; 32], None, &[0; 32])?;
            let name = |row: Option<(PageLoginRow, bool)>| row.map(|(row, _)| row.token.map(|token| token.name));
            assert_eq!(name(find_login(connection, &[10; 32])?), Some(Some("phone".to_owned())));
            assert_eq!(name(find_login(connection, &[11; 32])?), Some(None));
            assert!(revoke_token(connection, "phone")?);
            assert!(!revoke_token(connection, "phone")?);
            assert_eq!(name(find_login(connection, &[10; 32])?), None);
            connection.execute("UPDATE page_logins SET used_at = used_at - ?", [LOGIN_IDLE_MS + 1])?;
            assert_eq!(name(find_login(connection, &[11; 32])?), None, "not used for too long");
            for number in 0..=u8::try_from(MAX_LOGINS).unwrap() {
                connection.execute("UPDATE page_logins SET used_at = used_at - 1", [])?;
                add_login(connection, &[number; 32], None, &[0; 32])?;
            }
            let left: u32 = select_value(connection, "SELECT count(*) FROM page_logins", [])?;
            assert_eq!((left, name(find_login(connection, &[0; 32])?)), (MAX_LOGINS, None), "the oldest went");
            Ok(())
        };
        store.write(Durability::Logged, work).await.unwrap();
    }
}
