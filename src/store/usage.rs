//! Tokens and money, by turn and model. What a response cost is kept as it was at the time: prices change.

use std::collections::BTreeMap;

use rusqlite::{Connection, ToSql, params};
use uuid::Uuid;

use super::{StoreError, now_ms};

/// What one turn used, or several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Tokens {
    pub turns: u64,
    pub input: u64,
    pub output: u64,
    /// Of the input, read from the service's cache.
    pub cached: u64,
}

/// Amounts of money by currency, in millionths of its unit.
pub type Costs = BTreeMap<String, u64>;

/// Which turns are summed up.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    Turn(Uuid),
    Session(&'a str),
    /// All that ended since then, UTC milliseconds.
    Since(i64),
}

/// What was used and what it cost; tokens without a known price are in no cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    pub tokens: Tokens,
    pub costs: Costs,
    /// By model, in order of their names.
    pub models: Vec<ModelSpent>,
}

/// The share of one model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelSpent {
    pub provider: String,
    /// `PROVIDER/MODEL`.
    pub model: String,
    pub tokens: Tokens,
    pub costs: Costs,
}

/// The tokens, in and out, of turns that ended since `since` (UTC milliseconds) and answered messages of `sender`, with those of their
/// sub-agents.
pub fn tokens_of_jobs(connection: &Connection, sender: &str, since: i64) -> Result<u64, StoreError> {
    let sql = "SELECT ifnull(sum(u.input_tokens + u.output_tokens), 0) FROM usage u
               WHERE u.at >= ?2 AND EXISTS (
                   WITH RECURSIVE above (turn) AS (
                       VALUES (u.turn) UNION SELECT s.turn FROM spawns s JOIN above ON s.id = above.turn)
                   SELECT 1 FROM above JOIN inbox i ON i.turn = above.turn AND i.sender = ?1)";
    Ok(connection.prepare_cached(sql)?.query_row(params![sender, since], |row| row.get(0))?)
}

/// Adds what a model (`PROVIDER/MODEL`) used in a turn; `cost` in millionths and its currency, where a price is known.
pub fn add(
    connection: &Connection,
    turn: Uuid,
    session: &str,
    model: &str,
    used: Tokens,
    cost: Option<(&str, u64)>,
) -> Result<(), StoreError> {
    let (currency, cost) = cost.unzip();
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO usage
                (turn, session, model, input_tokens, output_tokens, cached_tokens, cost, currency, at)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            turn.to_string(),
            session,
            model,
            used.input,
            used.output,
            used.cached,
            cost,
            currency,
            now_ms()
        ])?;
    Ok(())
}

/// Tokens and money of these turns, together and by model.
pub fn spent(connection: &Connection, scope: Scope<'_>) -> Result<Spent, StoreError> {
    let mut spent = Spent { tokens: tokens(connection, scope)?, ..Spent::default() };
    spent.models = models(connection, scope)?;
    for (currency, cost) in spent.models.iter().flat_map(|model| &model.costs) {
        *spent.costs.entry(currency.clone()).or_default() += cost;
    }
    Ok(spent)
}

/// Tokens, in and out, of the turns of a session and of the sub-agents below it that ended since then, UTC milliseconds.
pub fn tokens_since(connection: &Connection, session: &str, from_ms: i64) -> Result<u64, StoreError> {
    let sql = "WITH RECURSIVE below(session) AS (
                   SELECT ?1 UNION SELECT 'spawn:' || s.id FROM below b JOIN spawns s ON s.session = b.session)
               SELECT total(u.input_tokens) + total(u.output_tokens)
               FROM below b CROSS JOIN usage u ON u.session = b.session AND u.at >= ?2";
    let total: f64 = connection.prepare_cached(sql)?.query_row(params![session, from_ms], |row| row.get(0))?;
    Ok(total as u64)
}

fn tokens(connection: &Connection, scope: Scope<'_>) -> Result<Tokens, StoreError> {
    const SUMS: &str = "count(DISTINCT turn), total(input_tokens), total(output_tokens), total(cached_tokens)";
    scope.query(SUMS, "", |sql, value| {
        Ok(connection.prepare_cached(sql)?.query_row([value], |row| read_tokens(row, 0))?)
    })
}

fn models(connection: &Connection, scope: Scope<'_>) -> Result<Vec<ModelSpent>, StoreError> {
    const SUMS: &str = "count(DISTINCT turn), total(input_tokens), total(output_tokens), total(cached_tokens),
        provider, model, currency, total(cost)";
    let mut models: Vec<ModelSpent> = Vec::new();
    scope.query(SUMS, "GROUP BY model, currency ORDER BY model", |sql, value| {
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([value])?;
        while let Some(row) = rows.next()? {
            let (tokens, model) = (read_tokens(row, 0)?, row.get::<_, String>(5)?);
            let known = models.iter_mut().find(|known| known.model == model);
            let known = match known {
                Some(known) => known,
                None => {
                    models.push(ModelSpent { provider: row.get(4)?, model, ..ModelSpent::default() });
                    let last = models.len() - 1;
                    &mut models[last]
                }
            };
            known.tokens.turns += tokens.turns;
            known.tokens.input += tokens.input;
            known.tokens.output += tokens.output;
            known.tokens.cached += tokens.cached;
            if let Some(currency) = row.get::<_, Option<String>>(6)? {
                *known.costs.entry(currency).or_default() += row.get::<_, f64>(7)? as u64;
            }
        }
        Ok(())
    })?;
    Ok(models)
}

impl Scope<'_> {
    /// Asks for `what` of these rows.
    fn query<T>(
        self,
        what: &str,
        then: &str,
        ask: impl FnOnce(&str, &dyn ToSql) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let (filter, value): (_, Box<dyn ToSql + '_>) = match self {
            Self::Turn(turn) => ("turn = ?", Box::new(turn.to_string())),
            Self::Session(session) => ("session = ?", Box::new(session)),
            Self::Since(from_ms) => ("at >= ?", Box::new(from_ms)),
        };
        ask(&format!("SELECT {what} FROM usage WHERE {filter} {then}"), &*value)
    }
}

fn read_tokens(row: &rusqlite::Row<'_>, at: usize) -> rusqlite::Result<Tokens> {
    let whole = |at: usize| row.get::<_, f64>(at).map(|total| total as u64);
    Ok(Tokens { turns: row.get(at)?, input: whole(at + 1)?, output: whole(at + 2)?, cached: whole(at + 3)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Commit, Store, spawns};

    fn used(turns: u64, input: u64) -> Tokens {
        Tokens { turns, input, output: 1, cached: 0 }
    }

    #[tokio::test]
    async fn what_sub_agents_use_is_used_by_their_session() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let count = |connection: &Connection| {
            let [child, grandchild, other] = [1, 2, 3].map(Uuid::from_u128);
            let of_child = spawns::session_of(child);
            for (id, session) in [(child, "heartbeat"), (grandchild, of_child.as_str()), (other, "cli:direct")] {
                let (session, label) = (session.to_owned(), String::new());
                let spawn = spawns::NewSpawn { id, session, turn: Uuid::nil(), label, depth: 1, waits: true };
                spawns::insert(connection, &spawn)?;
                add(connection, id, &spawns::session_of(id), "a/x", used(1, 100), None)?;
            }
            add(connection, Uuid::now_v7(), "heartbeat", "a/x", used(1, 10), None)?;
            Ok((tokens_since(connection, "heartbeat", 0)?, tokens_since(connection, "heartbeat", now_ms() + 1_000)?))
        };
        assert_eq!(store.write(Commit::Logged, count).await.unwrap(), (213, 0));
    }

    #[tokio::test]
    async fn each_model_of_a_turn_counts_and_each_currency_for_itself() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let (one, two) = (Uuid::now_v7(), Uuid::now_v7());
        let (session, first, all) = store
            .write(Commit::Logged, move |connection| {
                add(connection, one, "s", "a/x", used(1, 10), Some(("USD", 700)))?;
                add(connection, one, "s", "b/y", used(1, 20), Some(("CNY", 5)))?;
                add(connection, two, "s", "a/x", used(1, 30), Some(("USD", 300)))?;
                add(connection, Uuid::now_v7(), "t", "a/x", used(1, 40), None)?;
                // The same again, as a commit whose success was not told.
                add(connection, two, "s", "a/x", used(1, 30), Some(("USD", 300)))?;
                let ask = |scope| spent(connection, scope);
                Ok((ask(Scope::Session("s"))?, ask(Scope::Turn(one))?, ask(Scope::Since(0))?))
            })
            .await
            .unwrap();
        let costs = |spent: &Spent| spent.costs.iter().map(|(c, n)| format!("{n} {c}")).collect::<Vec<_>>().join(", ");
        assert_eq!((session.tokens.turns, session.tokens.input, costs(&session).as_str()), (2, 60, "5 CNY, 1000 USD"));
        assert_eq!((first.tokens.turns, first.tokens.output, costs(&first).as_str()), (1, 2, "5 CNY, 700 USD"));
        let names: Vec<_> =
            all.models.iter().map(|m| (m.provider.as_str(), m.model.as_str(), m.tokens.input)).collect();
        assert_eq!(names, [("a", "a/x", 80), ("b", "b/y", 20)], "with a price or without, one line a model");
        assert_eq!(all.models[0].tokens.turns, 3);
    }
}
