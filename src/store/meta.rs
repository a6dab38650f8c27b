//! Key-value pairs about the store itself.

use rusqlite::{Connection, params};
use uuid::Uuid;

use super::StoreError;
use super::sql::{execute, select_optional};

/// `yes` while no gateway is running on this file, or after an orderly stop.
pub const CLEAN: &str = "clean";

/// The turn that runs alone because it may have crashed the gateway; empty if there is none.
pub const ISOLATED_TURN: &str = "isolated_turn";

/// The random id of this database.
pub const ID: &str = "id";

/// The losses of this home, as JSON.
pub const LOSSES: &str = "losses";

/// The faults of the model services that messages wait for, as JSON.
pub const SERVICE_FAULTS: &str = "service_faults";

/// The times of the last notices of a refused key, UTC milliseconds, as JSON by the provider's name.
pub const REFUSED_KEYS: &str = "refused_keys";

/// The time of the last complete vacuum, UTC milliseconds.
pub const VACUUMED: &str = "vacuumed_at";

/// The time of the last complete check without a fault, UTC milliseconds.
pub const CHECKED: &str = "checked_at";

/// The begin and end of the last orderly stop, UTC milliseconds. Jobs that were due in between are deferred.
pub const STOP_BEGAN: &str = "stop_began_at";
pub const STOP_ENDED: &str = "stop_ended_at";

/// The version of the code that built the search index; an empty value causes a rebuild.
pub const INDEX_VERSION: &str = "index_version";

/// The first memory that a running rebuild of the search index has not indexed yet.
pub const INDEX_NEXT_MEMORY: &str = "index_next_memory";

/// `yes` while removed text may still be in the file.
pub const INDEX_PURGE: &str = "index_purge";

/// The count of forgotten memories.
pub const FORGET_COUNT: &str = "forget_count";

/// The model of the vectors: its name and the requested dimensions.
pub const VECTORS: &str = "vectors";

/// The similarity that the model finds between unrelated texts, a cosine.
pub const VECTORS_BASE: &str = "vectors_base";

/// The id of `indexed_messages` up to which messages have vectors.
pub const VECTORS_MESSAGES: &str = "vectors_messages";

/// The keys that had another name before format 30, each after its earlier name.
pub const RENAMED: [(&str, &str); 6] = [
    ("alone", ISOLATED_TURN),
    ("words", INDEX_VERSION),
    ("words_memories", INDEX_NEXT_MEMORY),
    ("words_removed", INDEX_PURGE),
    ("forgets", FORGET_COUNT),
    ("vectors_said", VECTORS_MESSAGES),
];

pub fn get(connection: &Connection, key: &str) -> Result<Option<String>, StoreError> {
    select_optional(connection, "SELECT value FROM meta WHERE key = ?", [key], |row| row.get(0))
}

pub fn set(connection: &Connection, key: &str, value: &str) -> Result<(), StoreError> {
    let sql = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    execute(connection, sql, params![key, value]).map(drop)
}

/// Records that the turn no longer runs alone. Another turn may run alone since this one has made progress.
pub fn end_isolation(connection: &Connection, turn: Uuid) -> Result<(), StoreError> {
    let sql = "UPDATE meta SET value = '' WHERE key = ? AND value = ?";
    execute(connection, sql, params![ISOLATED_TURN, turn.to_string()]).map(drop)
}
