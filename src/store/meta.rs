//! Facts about the store itself, by name.

use rusqlite::{Connection, OptionalExtension, params};

use super::StoreError;

/// `yes` while no gateway runs on this file, or the last one stopped in order.
pub const CLEAN: &str = "clean";

/// The turn that runs alone because it may be what stopped the gateway; empty when none does.
pub const ALONE: &str = "alone";

/// The random id of this database.
pub const ID: &str = "id";

/// What this home is known to have lost, as JSON.
pub const LOSSES: &str = "losses";

/// What keeps model services from answering that messages wait for, as JSON.
pub const SERVICE_FAULTS: &str = "service_faults";

/// When the file was last made smaller, UTC milliseconds.
pub const VACUUMED: &str = "vacuumed_at";

/// When all of the file was last read and held together, UTC milliseconds.
pub const CHECKED: &str = "checked_at";

/// When the last orderly stop began and ended, UTC milliseconds: what was due meanwhile is put off.
pub const STOP_BEGAN: &str = "stop_began_at";
pub const STOP_ENDED: &str = "stop_ended_at";

/// What the index of words was made by; empty has it made anew.
pub const WORDS: &str = "words";

/// The first memory whose words are still to be put into an index that is made anew.
pub const WORDS_MEMORIES: &str = "words_memories";

/// `yes` while words that were removed may still stand in the file.
pub const WORDS_REMOVED: &str = "words_removed";

/// How often something was forgotten.
pub const FORGETS: &str = "forgets";

/// Whose vectors there are: the model's name, and how many numbers were asked for.
pub const VECTORS: &str = "vectors";

/// How near that model finds texts that have nothing in common, a cosine.
pub const VECTORS_BASE: &str = "vectors_base";

/// The id of `said` up to which messages have vectors.
pub const VECTORS_SAID: &str = "vectors_said";

pub fn get(connection: &Connection, key: &str) -> Result<Option<String>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT value FROM meta WHERE key = ?")?;
    Ok(statement.query_row([key], |row| row.get(0)).optional()?)
}

pub fn set(connection: &Connection, key: &str, value: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        )?
        .execute(params![key, value])?;
    Ok(())
}
