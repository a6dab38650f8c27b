//! Records of who may use the HTTP server, besides the holder of the gateway's token: named tokens, logins of the page, and the
//! files that they uploaded. Only hashes of secrets are stored.

use rusqlite::{Connection, params};

use super::sql::{
    StoredRow, execute, find_row, find_rows, select, select_optional, select_optional_parsed, select_value, stored_row,
};
use super::{StoreError, now_ms};

/// The maximum number of named tokens.
pub const MAX_TOKENS: usize = 200;
/// The maximum number of logins with the token of the gateway, and with each named token. A new login beyond this
/// number ends the least recently used login of the same token, so that the holder of one token cannot end the logins
/// of others.
const MAX_LOGINS: u32 = 100;
const MAX_NAMED_LOGINS: u32 = 20;
/// The time without use after which a login ends, in milliseconds.
pub const LOGIN_IDLE_MS: i64 = 30 * 24 * 60 * 60 * 1_000;
/// The minimum size for which an upload counts, in bytes.
const MIN_FILE_BYTES: i64 = 64 << 10;
/// The precision of the stored time of a token's or a login's last use, in milliseconds.
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

stored_row! { AccessTokenRow: name, scope, created_at, used_at }

/// A login of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageLoginRow {
    /// The named token of the login; `None` is the token of the gateway.
    pub token: Option<AccessTokenRow>,
    pub token_binding: Vec<u8>,
}

/// The state of a token's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenNameState {
    Unused,
    InUse,
    /// A token of this name was revoked; the data that belonged to it still exists.
    Revoked,
}

pub fn token_name(connection: &Connection, name: &str) -> Result<TokenNameState, StoreError> {
    let sql = "SELECT revoked_at IS NOT NULL FROM access_tokens WHERE name = ?";
    Ok(match select_optional(connection, sql, [name], |row| row.get(0))? {
        None => TokenNameState::Unused,
        Some(false) => TokenNameState::InUse,
        Some(true) => TokenNameState::Revoked,
    })
}

/// Adds a token, which replaces a revoked token of the same name. A name that is in use is an error.
pub fn add_token(connection: &Connection, name: &str, hash: &SecretHash, scope: &str) -> Result<(), StoreError> {
    execute(connection, "DELETE FROM access_tokens WHERE name = ? AND revoked_at IS NOT NULL", [name])?;
    let sql = "INSERT INTO access_tokens (name, hash, scope, created_at) VALUES (?, ?, ?, ?)";
    execute(connection, sql, params![name, hash, scope, now_ms()]).map(drop)
}

/// Revokes a token and ends its logins; returns whether there was one. Its name stays known.
pub fn revoke_token(connection: &Connection, name: &str) -> Result<bool, StoreError> {
    execute(connection, "DELETE FROM page_logins WHERE token = ?", [name])?;
    let sql = "UPDATE access_tokens SET revoked_at = ? WHERE name = ? AND revoked_at IS NULL";
    Ok(execute(connection, sql, params![now_ms(), name])? == 1)
}

pub fn count_tokens(connection: &Connection) -> Result<usize, StoreError> {
    select_value(connection, "SELECT count(*) FROM access_tokens WHERE revoked_at IS NULL", [])
}

/// Returns all valid tokens, ordered by name.
pub fn tokens(connection: &Connection) -> Result<Vec<AccessTokenRow>, StoreError> {
    find_rows(connection, "access_tokens WHERE revoked_at IS NULL ORDER BY name", [])
}

pub fn find_token(connection: &Connection, hash: &SecretHash) -> Result<Option<AccessTokenRow>, StoreError> {
    find_row(connection, "access_tokens WHERE hash = ? AND revoked_at IS NULL", [hash])
}

/// Returns true if the last use is old enough to be stored again.
pub fn is_use_due(used_at: Option<i64>, now: i64) -> bool {
    used_at.is_none_or(|at| (now - at).abs() >= USE_MS)
}

/// Stores that a token is used now.
pub fn touch_token(connection: &Connection, name: &str) -> Result<(), StoreError> {
    execute(connection, "UPDATE access_tokens SET used_at = ? WHERE name = ?", params![now_ms(), name]).map(drop)
}

/// Adds a login, and removes logins that have ended or exceed the limit of their token. The `token_binding` of a login with a named
/// token is that token's hash, so that another token of the same name does not revive the login.
pub fn add_login(
    connection: &Connection,
    hash: &SecretHash,
    token: Option<&str>,
    token_binding: &SecretHash,
) -> Result<(), StoreError> {
    let now = now_ms();
    execute(connection, "DELETE FROM page_logins WHERE used_at < ?", [now - LOGIN_IDLE_MS])?;
    let limit = if token.is_some() { MAX_NAMED_LOGINS } else { MAX_LOGINS };
    let sql = "DELETE FROM page_logins WHERE hash IN
               (SELECT hash FROM page_logins WHERE token IS ? ORDER BY used_at DESC LIMIT -1 OFFSET ?)";
    execute(connection, sql, params![token, limit - 1])?;
    let sql = "INSERT INTO page_logins (hash, token, token_binding, created_at, used_at) VALUES (?1, ?2, ?3, ?4, ?4)";
    execute(connection, sql, params![hash, token, token_binding, now]).map(drop)
}

/// Returns a login that has not ended, and whether the time of this use must be stored.
pub fn find_login(connection: &Connection, hash: &SecretHash) -> Result<Option<(PageLoginRow, bool)>, StoreError> {
    let now = now_ms();
    let sql = "SELECT t.name, t.scope, t.created_at, t.used_at, l.token, l.token_binding, l.used_at FROM page_logins l
               LEFT JOIN access_tokens t ON t.name = l.token AND t.hash = l.token_binding AND t.revoked_at IS NULL
               WHERE l.hash = ? AND l.used_at >= ?";
    let found = select_optional_parsed(connection, sql, params![hash, now - LOGIN_IDLE_MS], |row| {
        let token = row.get::<_, Option<String>>(0)?.map(|_| AccessTokenRow::read(row)).transpose()?;
        // A login whose token was revoked is invalid.
        let is_valid = row.get::<_, Option<String>>(4)?.is_some() == token.is_some();
        let is_due = is_use_due(Some(row.get(6)?), now);
        Ok(is_valid.then_some((PageLoginRow { token, token_binding: row.get(5)? }, is_due)))
    })?;
    Ok(found.flatten())
}

/// Stores that a login is used now.
pub fn touch_login(connection: &Connection, hash: &SecretHash) -> Result<(), StoreError> {
    execute(connection, "UPDATE page_logins SET used_at = ? WHERE hash = ?", params![now_ms(), hash]).map(drop)
}

/// Ends a login.
pub fn remove_login(connection: &Connection, hash: &SecretHash) -> Result<(), StoreError> {
    execute(connection, "DELETE FROM page_logins WHERE hash = ?", [hash]).map(drop)
}

/// An uploaded file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageFileRow {
    pub id: String,
    /// A JSON object: name, path in the workspace, media type, size.
    pub attachment: String,
    /// A message names it.
    pub is_used: bool,
    /// UTC milliseconds.
    pub at: i64,
}

/// Records an uploaded file; `attachment` is JSON. Returns false, and records nothing, if the uploader's files would together exceed
/// `limit` bytes. Each file counts for at least [`MIN_FILE_BYTES`], which also limits their number.
pub fn add_file(
    connection: &Connection,
    id: &str,
    uploader: &str,
    attachment: &str,
    limit: Option<i64>,
) -> Result<bool, StoreError> {
    let sql = "WITH files (attachment) AS (
                   SELECT ?3 UNION ALL SELECT attachment FROM page_files WHERE uploader = ?2 AND ?5 IS NOT NULL)
               INSERT INTO page_files (id, uploader, attachment, at) SELECT ?1, ?2, ?3, ?4
               WHERE ?5 IS NULL OR (SELECT sum(max(json_extract(attachment, '$.size'), ?6)) FROM files) <= ?5";
    Ok(execute(connection, sql, params![id, uploader, attachment, now_ms(), limit, MIN_FILE_BYTES])? == 1)
}

/// The mark of a file that a message names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileUse {
    id: String,
    /// The mark, which is later than every earlier one of the file.
    used_at: i64,
    before: Option<i64>,
}

/// Marks a file as named by a message.
///
/// # Errors
/// There is no such file, or the store cannot be written.
pub fn use_file(connection: &Connection, id: &str) -> Result<FileUse, StoreError> {
    let before: Option<i64> = select_value(connection, "SELECT used_at FROM page_files WHERE id = ?", [id])?;
    let used_at = now_ms().max(before.map_or(0, |at| at + 1));
    execute(connection, "UPDATE page_files SET used_at = ? WHERE id = ?", params![used_at, id])?;
    Ok(FileUse { id: id.to_owned(), used_at, before })
}

/// Restores the mark before a use whose message was refused, unless another message has named the file since.
pub fn undo_use(connection: &Connection, FileUse { id, used_at, before }: &FileUse) -> Result<(), StoreError> {
    let sql = "UPDATE page_files SET used_at = ? WHERE id = ? AND used_at = ?";
    execute(connection, sql, params![before, id, used_at]).map(drop)
}

/// Returns all uploaded files.
pub fn files(connection: &Connection) -> Result<Vec<PageFileRow>, StoreError> {
    let sql = "SELECT id, attachment, used_at IS NOT NULL, at FROM page_files";
    select(connection, sql, [], |row| {
        Ok(PageFileRow { id: row.get(0)?, attachment: row.get(1)?, is_used: row.get(2)?, at: row.get(3)? })
    })
}

/// Removes the record of a file, unless a message has named the file since `row` was read; returns whether it did.
pub fn remove_file(connection: &Connection, row: &PageFileRow) -> Result<bool, StoreError> {
    let sql = "DELETE FROM page_files WHERE id = ? AND (used_at IS NOT NULL) = ?";
    Ok(execute(connection, sql, params![row.id, row.is_used])? == 1)
}

/// Returns the uploader and the attachment of a file.
pub fn find_file(connection: &Connection, id: &str) -> Result<Option<(String, String)>, StoreError> {
    let sql = "SELECT uploader, attachment FROM page_files WHERE id = ?";
    select_optional(connection, sql, [id], |row| Ok((row.get(0)?, row.get(1)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Durability, Store};

    #[tokio::test]
    async fn uploads_of_one_token_have_a_limit() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| {
            let (large, small) = (r#"{"size":400000}"#, r#"{"size":1}"#);
            let limit = Some(400_000 + 2 * MIN_FILE_BYTES);
            for (id, uploader, attachment, limit, expected) in [
                ("1", "phone", large, limit, true),
                ("2", "phone", large, limit, false),
                ("3", "phone", small, limit, true),
                ("4", "phone", small, limit, true),
                ("5", "phone", small, limit, false),
                ("6", "tablet", large, limit, true),
                ("7", "", large, None, true),
                ("8", "", large, None, true),
            ] {
                assert_eq!(add_file(connection, id, uploader, attachment, limit)?, expected, "{id}");
            }
            use_file(connection, "1")?;
            let rows = files(connection)?;
            assert_eq!(
                rows.iter().map(|row| row.is_used).collect::<Vec<_>>(),
                [true, false, false, false, false, false]
            );
            assert!(!remove_file(connection, &PageFileRow { is_used: false, ..rows[0].clone() })?, "used meanwhile");
            assert!(remove_file(connection, &rows[0])?);
            assert!(add_file(connection, "9", "phone", large, limit)?, "there is room again");
            Ok(())
        };
        store.write(Durability::Logged, work).await.unwrap();
    }

    #[tokio::test]
    async fn a_refused_message_leaves_a_file_as_it_was() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| {
            add_file(connection, "1", "phone", "{}", None)?;
            let is_used = || Ok::<_, StoreError>(files(connection)?[0].is_used);
            let refused = use_file(connection, "1")?;
            assert!(is_used()?);
            undo_use(connection, &refused)?;
            assert!(!is_used()?, "nothing needs it");
            // The same file twice in one refused message.
            let uses = [use_file(connection, "1")?, use_file(connection, "1")?];
            for one in uses.iter().rev() {
                undo_use(connection, one)?;
            }
            assert!(!is_used()?);
            // Two messages at once, of which one is refused, in either order.
            let (refused, _accepted) = (use_file(connection, "1")?, use_file(connection, "1")?);
            undo_use(connection, &refused)?;
            assert!(is_used()?, "named by a later message");
            let refused = use_file(connection, "1")?;
            undo_use(connection, &refused)?;
            assert!(is_used()?, "named by an earlier message");
            assert!(use_file(connection, "2").is_err(), "there is no such file");
            Ok(())
        };
        store.write(Durability::Logged, work).await.unwrap();
    }

    #[tokio::test]
    async fn logins_end_with_their_token_with_time_and_by_number() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| {
            assert_eq!(token_name(connection, "phone")?, TokenNameState::Unused);
            add_token(connection, "phone", &[1; 32], "chat")?;
            assert_eq!(token_name(connection, "phone")?, TokenNameState::InUse);
            assert!(add_token(connection, "phone", &[2; 32], "admin").is_err(), "the name is taken");
            add_login(connection, &[10; 32], Some("phone"), &[1; 32])?;
            add_login(connection, &[11; 32], None, &[0; 32])?;
            let name = |row: Option<(PageLoginRow, bool)>| row.map(|(row, _)| row.token.map(|token| token.name));
            assert_eq!(name(find_login(connection, &[10; 32])?), Some(Some("phone".to_owned())));
            assert_eq!(name(find_login(connection, &[11; 32])?), Some(None));
            assert!(revoke_token(connection, "phone")?);
            assert!(!revoke_token(connection, "phone")?);
            assert_eq!(name(find_login(connection, &[10; 32])?), None);
            assert_eq!(
                (token_name(connection, "phone")?, find_token(connection, &[1; 32])?),
                (TokenNameState::Revoked, None)
            );
            assert_eq!((tokens(connection)?, count_tokens(connection)?), (Vec::new(), 0));
            // A login that was created while its token was revoked and the name reused.
            add_login(connection, &[12; 32], Some("phone"), &[1; 32])?;
            add_token(connection, "phone", &[3; 32], "read")?;
            assert_eq!(name(find_login(connection, &[12; 32])?), None);
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

    #[tokio::test]
    async fn logins_of_one_token_end_no_login_of_another() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| {
            for (token, hash) in [("phone", [1; 32]), ("tablet", [2; 32])] {
                add_token(connection, token, &hash, "chat")?;
            }
            add_login(connection, &[200; 32], None, &[0; 32])?;
            add_login(connection, &[201; 32], Some("tablet"), &[2; 32])?;
            // Both are older than all logins of the other token.
            connection.execute("UPDATE page_logins SET used_at = used_at - 60000", [])?;
            for number in 0..150 {
                add_login(connection, &[number; 32], Some("phone"), &[1; 32])?;
            }
            let count = "SELECT count(*) FROM page_logins WHERE token IS ?";
            for (token, expected) in [(None, 1), (Some("tablet"), 1), (Some("phone"), MAX_NAMED_LOGINS)] {
                assert_eq!(select_value::<u32>(connection, count, [token])?, expected, "{token:?}");
            }
            assert!(find_login(connection, &[200; 32])?.is_some(), "the owner stays logged in");
            Ok(())
        };
        store.write(Durability::Logged, work).await.unwrap();
    }
}
