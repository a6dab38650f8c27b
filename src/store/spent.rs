//! What models have cost, by model, with what turns that still run have used so far: those are in the journal alone.

use rusqlite::{Connection, Row, params};

use super::StoreError;
use super::usage::Tokens;

/// Whose usage is added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// This session's, since its last `/new`.
    Session(String),
    /// That of all sessions since this time, UTC milliseconds. A turn counts when it ends; those that run count now.
    Since(i64),
}

/// What one model used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByModel {
    /// `PROVIDER/MODEL`; empty where a turn's journal does not say.
    pub model: String,
    pub tokens: Tokens,
    /// In millionths, and their currency, at the price of that time; absent where none was known.
    pub cost: Option<(u64, String)>,
}

/// What turns that ended and turns that run have used; a model may stand twice.
pub fn by_model(connection: &Connection, scope: &Scope) -> Result<Vec<ByModel>, StoreError> {
    const SUMS: &str =
        "SELECT model, count(*), total(input_tokens), total(output_tokens), total(cached_tokens), total(cost), currency
         FROM usage";
    let (mut rows, session) = match scope {
        Scope::Session(session) => {
            let sql = format!(
                "{SUMS} WHERE session = ?1 AND turn IN (
                     SELECT turn FROM messages WHERE session = ?1
                     AND seq >= (SELECT first_seq FROM sessions WHERE session = ?1))
                 GROUP BY model, currency"
            );
            (read(connection, &sql, params![session])?, Some(session))
        }
        Scope::Since(from) => {
            (read(connection, &format!("{SUMS} WHERE at >= ?1 GROUP BY model, currency"), params![from])?, None)
        }
    };
    rows.extend(running(connection, session)?);
    Ok(rows)
}

/// The responses of turns that have not ended.
fn running(connection: &Connection, session: Option<&String>) -> Result<Vec<ByModel>, StoreError> {
    // Told which index to take: it holds the unfinished rows alone. Those that are queued have no steps.
    const SQL: &str = "
        WITH open AS (
            SELECT DISTINCT turn FROM inbox INDEXED BY inbox_open
            WHERE state NOT IN ('done', 'dead') AND state <> 'queued' AND (?1 IS NULL OR session = ?1))
        SELECT coalesce(json_extract(r.body, '$.response.answered_by'), json_extract(c.body, '$.model'), '') AS model,
            count(DISTINCT open.turn),
            total(json_extract(r.body, '$.response.usage.input_tokens')),
            total(json_extract(r.body, '$.response.usage.output_tokens')),
            total(json_extract(r.body, '$.response.usage.cached_tokens')),
            total(json_extract(r.body, '$.response.cost.micros')),
            json_extract(r.body, '$.response.cost.currency') AS currency
        FROM open
        JOIN turn_steps r ON r.turn = open.turn AND r.kind = 'response'
        LEFT JOIN turn_steps c ON c.turn = open.turn AND c.kind = 'context'
        GROUP BY model, currency";
    read(connection, SQL, params![session])
}

fn read(connection: &Connection, sql: &str, parameters: &[&dyn rusqlite::ToSql]) -> Result<Vec<ByModel>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let whole = |row: &Row<'_>, at: usize| row.get::<_, f64>(at).map(|total| total as u64);
    let rows = statement.query_map(parameters, |row| {
        let tokens =
            Tokens { turns: row.get(1)?, input: whole(row, 2)?, output: whole(row, 3)?, cached: whole(row, 4)? };
        let currency: Option<String> = row.get(6)?;
        let cost = currency.map(|currency| Ok::<_, rusqlite::Error>((whole(row, 5)?, currency))).transpose()?;
        Ok(ByModel { model: row.get(0)?, tokens, cost })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
