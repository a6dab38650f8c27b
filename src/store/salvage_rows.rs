//! Recovers rows from a database that is only partly readable.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OpenFlags, Row, params_from_iter};
use uuid::Uuid;

use super::{StoreError, database, meta, migrations, search_index, turn_steps};

/// The most important tables, in the order in which they are read; the other tables follow.
const FIRST_TABLES: [&str; 11] = [
    "meta", "inbox", "outbox", "sessions", "messages", "turn_steps", "cursors", "notes", "jobs", "job_runs",
    "processes",
];

/// The tables and columns that had another name before format 30: the table, the column (empty for the table itself), and the
/// earlier name. A damaged file has the names of its own format.
const EARLIER_NAMES: [(&str, &str, &str); 10] = [
    ("skipped_messages", "", "skipped"),
    ("checkpoint_names", "", "point_names"),
    ("memory_codes", "live_count", "held"),
    ("jobs", "pause_reason", "paused"),
    ("job_runs", "ended_at", "ended"),
    ("processes", "start_identity", "birth"),
    ("processes", "outcome", "ending"),
    ("page_logins", "token_binding", "seal"),
    ("session_memory", "due_reason", "due"),
    ("sessions", "identities_digest", "read_by"),
];

/// The maximum number of ranges of missing messages that are listed.
const MAX_RANGES: usize = 1_000;

/// The result of a recovery.
#[derive(Debug, Default)]
pub struct RecoveredRows {
    tables: Vec<(String, TableRecovery)>,
    /// Running turns whose steps are incomplete.
    incomplete_turns: usize,
}

#[derive(Debug, Default)]
struct TableRecovery {
    rows: u64,
    /// The number of rows with content that this program does not write.
    invalid: u64,
    /// Some part could not be read.
    has_holes: bool,
}

struct TableSchema {
    name: String,
    /// The name in the source.
    source_name: String,
    columns: Vec<ColumnSchema>,
    /// The primary key.
    key: Vec<String>,
}

struct ColumnSchema {
    name: String,
    /// The name in the source.
    source_name: String,
    kind: String,
    is_nullable: bool,
}

impl RecoveredRows {
    /// Returns true if every row of every table was recovered.
    pub fn is_whole(&self) -> bool {
        let is_whole = |(_, copied): &(String, TableRecovery)| !copied.has_holes && copied.invalid == 0;
        self.incomplete_turns == 0 && !self.tables.is_empty() && self.tables.iter().all(is_whole)
    }

    pub fn describe(&self) -> String {
        let rows = self.tables.iter().filter(|(_, copied)| copied.rows > 0);
        let rows = rows.map(|(name, copied)| format!("{name} {}", copied.rows)).collect::<Vec<_>>().join(", ");
        let holes = self.tables.iter().filter(|(_, copied)| copied.has_holes || copied.invalid > 0);
        let holes = holes.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
        let mut words = format!("Rows taken over: {}", if rows.is_empty() { "none" } else { &rows });
        if !holes.is_empty() {
            words.push_str(&format!("; not all could be read of {holes}"));
        }
        if self.incomplete_turns > 0 {
            words.push_str(&format!(
                "; {} turns end with an error, as their steps are not all there",
                self.incomplete_turns
            ));
        }
        words
    }
}

/// Creates an empty database in one file, for bulk writing. The caller syncs it at the end.
pub fn create_fresh(path: &Path) -> Result<Connection, StoreError> {
    let mut fresh = database::open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    fresh.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    fresh.pragma_update(None, "journal_mode", "MEMORY")?;
    fresh.pragma_update(None, "synchronous", "OFF")?;
    migrations::run(&mut fresh)?;
    Ok(fresh)
}

/// Copies every readable row into the fresh database at `target`. `is_doubtful` means that readable rows may be older than the
/// last written state.
///
/// # Errors
/// The new database cannot be written.
pub fn recover_rows(source: &Connection, target: &Path, is_doubtful: bool) -> Result<RecoveredRows, StoreError> {
    let mut fresh = create_fresh(target)?;
    let fresh = fresh.transaction()?;
    let mut taken = RecoveredRows::default();
    let mut cut = BTreeSet::new();
    let (known, current) = migrations::formats(source).unwrap_or_default();
    let is_earlier = known > 0 && known < current;
    for table in tables(&fresh)? {
        let name = table.name.clone();
        let copied = match restrict_to_source(source, table) {
            Some(table) => {
                let mut copy = RowCopier { source, target: &fresh, table: &table, copied: TableRecovery::default() };
                copy.copied.has_holes = !copy.copy_from_both_ends("TRUE", &[])?;
                if copy.copied.has_holes {
                    cut.extend(copy.copy_between_holes()?);
                }
                (table.name.clone(), copy.copied)
            }
            // A file of an earlier version has fewer tables.
            None if is_earlier => continue,
            None => (name, TableRecovery { has_holes: true, ..TableRecovery::default() }),
        };
        taken.tables.push(copied);
    }
    for (earlier, key) in meta::RENAMED {
        fresh.execute("UPDATE OR IGNORE meta SET key = ?2 WHERE key = ?1", [earlier, key])?;
    }
    repair_sessions(&fresh)?;
    // Causes a rebuild of the search index from the recovered rows.
    meta::set(&fresh, meta::INDEX_VERSION, "")?;
    // A lost step may be the last one of any turn, whose other steps then look complete.
    let steps = taken.tables.iter().find(|(name, _)| name == "turn_steps");
    let lacks_steps = steps.is_none_or(|(_, steps)| steps.invalid > 0 || steps.has_holes && steps.rows == 0);
    taken.incomplete_turns = end_incomplete_turns(&fresh, &cut, is_doubtful || lacks_steps)?;
    fresh.commit()?;
    Ok(taken)
}

/// Returns the seqs up to `last` that no message has, except the `known` missing ones.
pub fn missing_seqs(connection: &Connection, last: i64, known: &[(i64, i64)]) -> Result<Vec<(i64, i64)>, StoreError> {
    let mut statement = connection.prepare("SELECT seq FROM inbox ORDER BY seq")?;
    let mut present = statement.query([])?;
    let mut expected = 1;
    let mut missing = Vec::new();
    let mut gap = |from: i64, to: i64| {
        let mut known: Vec<_> = known.iter().filter(|(first, end)| *first <= to && *end >= from).copied().collect();
        known.sort_unstable();
        let mut from = from;
        for (first, end) in known {
            if from < first {
                missing.push((from, first - 1));
            }
            from = from.max(end.saturating_add(1));
        }
        if from <= to {
            missing.push((from, to));
        }
        // A longer list is of no use; the last range then includes some messages that are not missing.
        if missing.len() > MAX_RANGES
            && let Some((_, to)) = missing.pop()
            && let Some(before) = missing.last_mut()
        {
            before.1 = to;
        }
    };
    while let Some(row) = present.next()? {
        let seq: i64 = row.get(0)?;
        if seq > expected {
            gap(expected, seq - 1);
        }
        expected = seq.saturating_add(1);
    }
    if last >= expected {
        gap(expected, last);
    }
    Ok(missing)
}

/// Returns the tables of the current format, the most important first.
fn tables(fresh: &Connection) -> Result<Vec<TableSchema>, StoreError> {
    let sql =
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite_%'";
    let mut statement = fresh.prepare(sql)?;
    let mut names = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    names.retain(|name| !search_index::DERIVED_TABLES.contains(&name.as_str()));
    names.sort_by_key(|name| FIRST_TABLES.iter().position(|first| first == name).unwrap_or(FIRST_TABLES.len()));
    names.into_iter().map(|name| columns(fresh, name)).collect()
}

fn columns(connection: &Connection, name: String) -> Result<TableSchema, StoreError> {
    let mut statement =
        connection.prepare("SELECT name, type, \"notnull\", pk FROM pragma_table_info(?) ORDER BY cid")?;
    let mut rows = statement.query([&name])?;
    let (mut columns, mut key) = (Vec::new(), Vec::new());
    while let Some(row) = rows.next()? {
        let (name, place): (String, i64) = (row.get(0)?, row.get(3)?);
        if place > 0 {
            key.push((place, name.clone()));
        }
        let (source_name, is_nullable) = (name.clone(), !row.get::<_, bool>(2)?);
        columns.push(ColumnSchema { name, source_name, kind: row.get(1)?, is_nullable });
    }
    drop(rows);
    drop(statement);
    key.sort_unstable();
    Ok(TableSchema { source_name: name.clone(), name, columns, key: key.into_iter().map(|(_, name)| name).collect() })
}

/// Returns the table with only those columns that the source has as well, or `None` if the source has no such table.
fn restrict_to_source(source: &Connection, mut table: TableSchema) -> Option<TableSchema> {
    let mut theirs = columns(source, table.name.clone()).ok()?;
    if theirs.columns.is_empty() {
        theirs = columns(source, earlier_name(&table.name, "")?.to_owned()).ok()?;
        table.source_name.clone_from(&theirs.name);
    }
    let has = |name: &str| theirs.columns.iter().any(|other| other.name == name);
    for column in table.columns.iter_mut().filter(|column| !has(&column.name)) {
        if let Some(earlier) = earlier_name(&table.name, &column.name) {
            earlier.clone_into(&mut column.source_name);
        }
    }
    table.columns.retain(|column| has(&column.source_name));
    let has_key = table.key.iter().all(|key| table.columns.iter().any(|column| column.name == *key));
    (has_key && !table.key.is_empty()).then_some(table)
}

fn earlier_name(table: &str, column: &str) -> Option<&'static str> {
    let earlier = EARLIER_NAMES.iter().find(|(of_table, of_column, _)| (*of_table, *of_column) == (table, column))?;
    Some(earlier.2)
}

struct RowCopier<'a> {
    source: &'a Connection,
    target: &'a Connection,
    table: &'a TableSchema,
    copied: TableRecovery,
}

#[derive(Clone, Copy)]
enum ScanOrder {
    Ascending,
    Descending,
}

impl RowCopier<'_> {
    /// Copies the rows that match `filter` from the first one as far as they are readable, then from the last one; returns whether
    /// all of them could be read.
    fn copy_from_both_ends(&mut self, filter: &str, values: &[Value]) -> Result<bool, StoreError> {
        let is_whole = self.scan(filter, values, ScanOrder::Ascending)?;
        if !is_whole {
            self.scan(filter, values, ScanOrder::Descending)?;
        }
        Ok(is_whole)
    }

    /// Copies rows between two unreadable parts, found by number or by the keys in other tables. Returns the turns whose steps
    /// are not all readable.
    fn copy_between_holes(&mut self) -> Result<BTreeSet<String>, StoreError> {
        let mut cut = BTreeSet::new();
        match (self.table.name.as_str(), self.table.key.as_slice()) {
            ("inbox" | "outbox", _) => self.copy_by_bisection()?,
            ("messages" | "turn_steps" | "sessions" | "usage", [key, ..]) => {
                let known = match key.as_str() {
                    "session" => "SELECT session FROM inbox UNION SELECT session FROM sessions",
                    _ => "SELECT turn FROM inbox",
                };
                let mut statement = self.target.prepare(known)?;
                let known = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
                let filter = format!("{key} = ?1");
                for value in known {
                    if !self.copy_from_both_ends(&filter, &[Value::Text(value.clone())])? {
                        cut.insert(value);
                    }
                }
            }
            _ => {}
        }
        Ok(if self.table.name == "turn_steps" { cut } else { BTreeSet::new() })
    }

    /// Copies missing numbers by bisection: a range that can be read completely is copied.
    fn copy_by_bisection(&mut self) -> Result<(), StoreError> {
        /// The maximum number of attempts. A lost page of rows costs a few dozen.
        const TRIES: u32 = 200_000;
        let (name, key) = (&self.table.name, &self.table.key[0]);
        let sql = format!(
            "SELECT before + 1, {key} - 1 FROM (SELECT {key}, lag({key}, 1, 0) OVER (ORDER BY {key}) AS before FROM {name})
             WHERE {key} - before > 1"
        );
        let mut statement = self.target.prepare(&sql)?;
        let inner = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let first: i64 =
            self.target.query_row(&format!("SELECT ifnull(max({key}), 0) + 1 FROM {name}"), [], |row| row.get(0))?;
        let given = "SELECT seq FROM sqlite_sequence WHERE name = ?";
        let last = self.source.query_row(given, [name], |row| row.get(0)).unwrap_or(i64::from(u32::MAX));
        // The list is processed from its end: if the last rows cannot be read, no later ones can be read either, so that range
        // comes last.
        let mut gaps = vec![(first, last)];
        gaps.extend(inner.collect::<Result<Vec<_>, _>>()?);
        gaps.retain(|(from, to)| from <= to);
        let filter = format!("{key} BETWEEN ?1 AND ?2");
        for _ in 0..TRIES {
            let Some((from, to)) = gaps.pop() else { break };
            let range = [Value::Integer(from), Value::Integer(to)];
            if !self.scan(&filter, &range, ScanOrder::Ascending)? && from < to {
                let middle = from + (to - from) / 2;
                gaps.extend([(middle + 1, to), (from, middle)]);
            }
        }
        Ok(())
    }

    /// Copies the rows that match `filter`, in the order of the key; returns whether all of them could be read.
    fn scan(&mut self, filter: &str, values: &[Value], order: ScanOrder) -> Result<bool, StoreError> {
        let columns = &self.table.columns;
        let names = columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ");
        let source_names = columns.iter().map(|column| column.source_name.as_str()).collect::<Vec<_>>().join(", ");
        let order = match order {
            ScanOrder::Ascending => "ASC",
            ScanOrder::Descending => "DESC",
        };
        let order = self.table.key.iter().map(|key| format!("{key} {order}")).collect::<Vec<_>>().join(", ");
        let (name, source_name) = (&self.table.name, &self.table.source_name);
        let marks = vec!["?"; columns.len()].join(", ");
        let mut insert =
            self.target.prepare_cached(&format!("INSERT OR IGNORE INTO {name} ({names}) VALUES ({marks})"))?;
        let select = format!("SELECT {source_names} FROM {source_name} NOT INDEXED WHERE {filter} ORDER BY {order}");
        let Ok(mut statement) = self.source.prepare_cached(&select) else { return Ok(false) };
        let Ok(mut rows) = statement.query(params_from_iter(values)) else { return Ok(false) };
        loop {
            match rows.next() {
                Ok(Some(row)) => match read_values(self.table, row) {
                    Some(values) => self.copied.rows += insert.execute(params_from_iter(&values))? as u64,
                    None => self.copied.invalid += 1,
                },
                Ok(None) => return Ok(true),
                Err(error) => {
                    tracing::debug!(table = name, %error, "a part of a table cannot be read");
                    return Ok(false);
                }
            }
        }
    }
}

/// Returns the values of a row, or `None` if this program does not write such values.
fn read_values(table: &TableSchema, row: &Row<'_>) -> Option<Vec<Value>> {
    let mut values = Vec::with_capacity(table.columns.len());
    for (at, column) in table.columns.iter().enumerate() {
        let value = match (row.get_ref(at).ok()?, column.kind.as_str()) {
            (ValueRef::Null, _) if column.is_nullable => Value::Null,
            (ValueRef::Integer(number), "INTEGER") => Value::Integer(number),
            (ValueRef::Text(text), "TEXT") => Value::Text(std::str::from_utf8(text).ok()?.to_owned()),
            (value, kind) if !matches!(kind, "INTEGER" | "TEXT") => value.try_into().ok()?,
            _ => return None,
        };
        let is_id = matches!(column.name.as_str(), "id" | "turn") && matches!(table.name.as_str(), "inbox" | "outbox");
        if is_id && !matches!(&value, Value::Text(text) if text.parse::<Uuid>().is_ok()) {
            return None;
        }
        values.push(value);
    }
    Some(values)
}

/// Creates or corrects the heads of sessions from their messages.
fn repair_sessions(fresh: &Connection) -> Result<(), StoreError> {
    fresh.execute_batch(
        "UPDATE sessions SET next_seq = n.next_seq
             FROM (SELECT session, max(seq) + 1 AS next_seq FROM messages GROUP BY session) n
             WHERE n.session = sessions.session AND sessions.next_seq < n.next_seq;
         INSERT INTO sessions (session, epoch, first_seq, next_seq, created_at, updated_at)
             SELECT m.session, max(m.epoch),
                 (SELECT min(f.seq) FROM messages f WHERE f.session = m.session
                     AND f.epoch = (SELECT max(epoch) FROM messages e WHERE e.session = m.session)),
                 max(m.seq) + 1, min(m.at), max(m.at)
             FROM messages m WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.session = m.session)
             GROUP BY m.session;",
    )?;
    Ok(())
}

/// Ends running turns whose steps are incomplete: they must not continue, because they would repeat their effects. A step that
/// breaks the chain makes them end with an error to their sender.
fn end_incomplete_turns(fresh: &Connection, cut: &BTreeSet<String>, is_doubtful: bool) -> Result<usize, StoreError> {
    let mut statement = fresh.prepare("SELECT DISTINCT turn FROM inbox WHERE state IN ('running', 'waiting')")?;
    let running = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    let mut count = 0;
    for turn in running {
        let steps = turn_steps::of_turn(fresh, turn.parse()?)?;
        if !is_doubtful && !cut.contains(&turn) && turn_steps::chain_holds(&steps) {
            continue;
        }
        turn_steps::append_break(fresh, &turn, "the steps of this turn were in a damaged part of the database")?;
        count += 1;
    }
    Ok(count)
}
