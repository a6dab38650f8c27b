//! Tokens and costs by turn and model. A cost is recorded at the price of its time, because prices change.

use std::collections::BTreeMap;

use rusqlite::types::Value;
use rusqlite::{Connection, Row, ToSql, params, params_from_iter};
use uuid::Uuid;

use super::sql::{execute, select, select_one, select_value};
use super::{StoreError, now_ms};

/// The highest amount in a row. Services report the tokens, so a count may be absurd; sums of such rows must fit SQLite's integers.
const MAX_AMOUNT: u64 = 1 << 50;

/// The tokens of one or more turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TokenCounts {
    pub turns: u64,
    pub input: u64,
    pub output: u64,
    /// The part of the input that came from the service's cache.
    pub cached: u64,
}

/// Amounts by currency, in millionths of its unit.
pub type Costs = BTreeMap<String, u64>;

/// The turns whose usage is added up.
#[derive(Clone, Copy, Debug)]
pub enum UsageScope<'a> {
    Turn(Uuid),
    /// The session's turns, and those of its sub-agents.
    Session(&'a str),
    /// All turns that ended from this time, UTC milliseconds, until now.
    Since(i64),
}

/// Tokens and costs. Tokens without a known price are part of no cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageTotal {
    pub tokens: TokenCounts,
    pub costs: Costs,
    /// The shares of the models, by name.
    pub models: Vec<ModelTotal>,
}

/// The share of one model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelTotal {
    pub provider: String,
    /// `PROVIDER/MODEL`.
    pub model: String,
    pub tokens: TokenCounts,
    pub costs: Costs,
}

/// Returns the tokens, in and out, of turns that ended from `since` (UTC milliseconds) until now and answered messages of `sender`,
/// including their sub-agents.
pub fn tokens_of_jobs(connection: &Connection, sender: &str, since: i64) -> Result<u64, StoreError> {
    let sql = "SELECT ifnull(sum(u.input_tokens + u.output_tokens), 0) FROM usage u
               WHERE u.at BETWEEN ?2 AND ?3 AND EXISTS (
                   WITH RECURSIVE above (turn) AS (
                       VALUES (u.turn) UNION SELECT s.turn FROM spawns s JOIN above ON s.id = above.turn)
                   SELECT 1 FROM above JOIN inbox i ON i.turn = above.turn AND i.sender = ?1)";
    select_value(connection, sql, params![sender, since, now_ms()])
}

/// Records the usage of a model (`PROVIDER/MODEL`) in a turn; `cost` is the currency and the amount in millionths, if a price is
/// known.
pub fn add(
    connection: &Connection,
    turn: Uuid,
    session: &str,
    model: &str,
    used: TokenCounts,
    cost: Option<(&str, u64)>,
) -> Result<(), StoreError> {
    let (currency, cost) = cost.unzip();
    let [input, output, cached] = [used.input, used.output, used.cached].map(|tokens| tokens.min(MAX_AMOUNT));
    let cost = cost.map(|cost| cost.min(MAX_AMOUNT));
    let sql = "INSERT OR REPLACE INTO usage
                (turn, session, model, input_tokens, output_tokens, cached_tokens, cost, currency, at)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";
    execute(connection, sql, params![turn.to_string(), session, model, input, output, cached, cost, currency, now_ms()])
        .map(drop)
}

/// Returns the tokens and costs of these turns, in total and by model.
pub fn total(connection: &Connection, scope: UsageScope<'_>) -> Result<UsageTotal, StoreError> {
    let mut total = UsageTotal { tokens: tokens(connection, scope)?, ..UsageTotal::default() };
    total.models = models(connection, scope)?;
    for (currency, cost) in total.models.iter().flat_map(|model| &model.costs) {
        *total.costs.entry(currency.clone()).or_default() += cost;
    }
    Ok(total)
}

/// Returns the tokens, in and out, of a session's turns that ended from `from_ms` (UTC milliseconds) until now, including its
/// sub-agents.
pub fn tokens_since(connection: &Connection, session: &str, from_ms: i64) -> Result<u64, StoreError> {
    let sql = "WITH RECURSIVE below(session) AS (
                   SELECT ?1 UNION SELECT 'spawn:' || s.id FROM below b JOIN spawns s ON s.session = b.session)
               SELECT total(u.input_tokens) + total(u.output_tokens)
               FROM below b CROSS JOIN usage u ON u.session = b.session AND u.at BETWEEN ?2 AND ?3";
    let total: f64 = select_value(connection, sql, params![session, from_ms, now_ms()])?;
    Ok(total as u64)
}

const TOKEN_SUMS: &str = "count(DISTINCT turn), total(input_tokens), total(output_tokens), total(cached_tokens)";

fn tokens(connection: &Connection, scope: UsageScope<'_>) -> Result<TokenCounts, StoreError> {
    let (condition, values) = scope.condition();
    let sql = format!("SELECT {TOKEN_SUMS} FROM usage WHERE {condition}");
    select_one(connection, &sql, params_from_iter(values), |row| read_tokens(row, 0))
}

fn models(connection: &Connection, scope: UsageScope<'_>) -> Result<Vec<ModelTotal>, StoreError> {
    let (condition, values) = scope.condition();
    let mut models: Vec<ModelTotal> = Vec::new();
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {TOKEN_SUMS}, provider, model, currency, total(cost) FROM usage WHERE {condition}
         GROUP BY model, currency ORDER BY model"
    ))?;
    let mut rows = statement.query(params_from_iter(values))?;
    while let Some(row) = rows.next()? {
        let (tokens, model) = (read_tokens(row, 0)?, row.get::<_, String>(5)?);
        // The rows of a model are adjacent.
        let known = match models.last_mut() {
            Some(last) if last.model == model => last,
            _ => models.push_mut(ModelTotal { provider: row.get(4)?, model, ..ModelTotal::default() }),
        };
        known.tokens.turns += tokens.turns;
        known.tokens.input += tokens.input;
        known.tokens.output += tokens.output;
        known.tokens.cached += tokens.cached;
        if let Some(currency) = row.get::<_, Option<String>>(6)? {
            *known.costs.entry(currency).or_default() += row.get::<_, f64>(7)? as u64;
        }
    }
    Ok(models)
}

impl UsageScope<'_> {
    /// Returns the condition for these rows, and its parameters.
    fn condition(self) -> (&'static str, Vec<Value>) {
        match self {
            Self::Turn(turn) => ("turn = ?1", vec![turn.to_string().into()]),
            Self::Session(session) => {
                let condition = "session IN (
                    WITH RECURSIVE below(session) AS (
                        SELECT ?1 UNION SELECT 'spawn:' || s.id FROM below b JOIN spawns s ON s.session = b.session)
                    SELECT session FROM below)";
                (condition, vec![session.to_owned().into()])
            }
            // A clock that was ahead for a while leaves usage of days to come.
            Self::Since(from_ms) => ("at BETWEEN ?1 AND ?2", vec![from_ms.into(), now_ms().into()]),
        }
    }
}

fn read_tokens(row: &Row<'_>, at: usize) -> rusqlite::Result<TokenCounts> {
    let whole = |at: usize| row.get::<_, f64>(at).map(|total| total as u64);
    Ok(TokenCounts { turns: row.get(at)?, input: whole(at + 1)?, output: whole(at + 2)?, cached: whole(at + 3)? })
}

/// The usage of one model in one turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    pub turn: String,
    pub session: String,
    /// `PROVIDER/MODEL`.
    pub model: String,
    /// The tokens of this turn.
    pub tokens: TokenCounts,
    /// The amount in millionths and its currency, if a price was known.
    pub cost: Option<(u64, String)>,
    /// When the turn ended, UTC milliseconds.
    pub at: i64,
}

/// Calls `visit` with the usage of all turns that ended in `from..to`, in UTC milliseconds.
pub fn visit_between(
    connection: &Connection,
    (from, to): (i64, i64),
    mut visit: impl FnMut(UsageRow),
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT turn, session, model, input_tokens, output_tokens, cached_tokens, cost, currency, at
         FROM usage WHERE at >= ? AND at < ? ORDER BY at",
    )?;
    let mut rows = statement.query(params![from, to])?;
    while let Some(row) = rows.next()? {
        let amount: Option<u64> = row.get(6)?;
        let currency: Option<String> = row.get(7)?;
        visit(UsageRow {
            turn: row.get(0)?,
            session: row.get(1)?,
            model: row.get(2)?,
            tokens: TokenCounts { turns: 1, input: row.get(3)?, output: row.get(4)?, cached: row.get(5)? },
            cost: amount.zip(currency),
            at: row.get(8)?,
        });
    }
    Ok(())
}

/// The turns that count for a budget. A sub-agent counts for the session and the turn that started it, at all depths, and has their
/// budgets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BudgetScope {
    /// The turn, since it was last retried.
    Turn(Uuid),
    /// The session's turns since its last `/new`.
    Session(String),
    /// The turns of all sessions from this time, UTC milliseconds, until now. An ended turn counts by its end; running turns always
    /// count.
    Since(i64),
}

/// The usage of one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetUse {
    /// `PROVIDER/MODEL`; empty if a turn's journal does not name it.
    pub model: String,
    pub tokens: TokenCounts,
    /// The amount in millionths and its currency, at the price of that time; absent if no price was known.
    pub cost: Option<(u64, String)>,
}

/// The turns that were started and have not ended. The query names the index, which contains only the unfinished rows.
const RUNNING: &str =
    "SELECT turn FROM inbox INDEXED BY inbox_open WHERE state NOT IN ('done', 'dead') AND state <> 'queued'";

/// The ended turns of session `?1` since its last `/new`.
const OF_EPOCH: &str = "SELECT turn FROM messages WHERE session = ?1
    AND seq >= (SELECT first_seq FROM sessions WHERE session = ?1)";

/// The turn that started turn `?1`, at most 100 levels above, and all turns below it.
const TREE: &str = "WITH RECURSIVE above(turn, level) AS (
        SELECT ?1, 0 UNION ALL
        SELECT s.turn, a.level + 1 FROM above a JOIN spawns s ON s.id = a.turn WHERE a.level < 100),
    tree(turn) AS (
        SELECT turn FROM (SELECT turn FROM above ORDER BY level DESC LIMIT 1)
        UNION SELECT s.id FROM tree t JOIN spawns s ON s.turn = t.turn)
    SELECT turn FROM tree";

/// The time of the last retry of one of the `open` turns.
const LAST_RETRY: &str = r#"ifnull((SELECT max(n.at) FROM open JOIN turn_steps n ON n.turn = open.turn AND n.kind = 'note'
    AND instr(n.body, '{"step":"retried"') = 1), 0)"#;

/// Returns the usage of ended and running turns; a model may occur twice. The usage of running turns is read from the journal, which
/// also contains what a retried turn used before its first end.
pub fn budget_use(connection: &Connection, scope: &BudgetScope) -> Result<Vec<BudgetUse>, StoreError> {
    const SUMS: &str =
        "SELECT model, count(*), total(input_tokens), total(output_tokens), total(cached_tokens), total(cost), currency
         FROM usage";
    const LISTED: &str = "session IN (SELECT value FROM json_each(?1))";
    let then = format!("AND turn NOT IN ({RUNNING}) GROUP BY model, currency");
    match scope {
        BudgetScope::Turn(turn) => journal_use(connection, TREE, LAST_RETRY, params![turn.to_string()]),
        BudgetScope::Session(session) => {
            let (root, all) = sessions_of_budget(connection, session)?;
            let of_root = format!("{SUMS} WHERE session = ?1 AND turn IN ({OF_EPOCH}) {then}");
            let mut rows = read_budget(connection, &of_root, params![root])?;
            let of_others = format!("{SUMS} WHERE {LISTED} AND session <> ?2 {then}");
            rows.extend(read_budget(connection, &of_others, params![all, root])?);
            rows.extend(journal_use(connection, &format!("{RUNNING} AND {LISTED}"), "0", params![all])?);
            Ok(rows)
        }
        BudgetScope::Since(from) => {
            let ended = format!("{SUMS} WHERE at BETWEEN ?1 AND ?2 {then}");
            let mut rows = read_budget(connection, &ended, params![from, now_ms()])?;
            rows.extend(journal_use(connection, RUNNING, "0", params![])?);
            Ok(rows)
        }
    }
}

/// Returns the session above the sub-agent's session `session`, or itself, and a JSON list of the sessions that count for its
/// budget: itself, those of the sub-agents that its turns since the last `/new` started, and `session`.
fn sessions_of_budget(connection: &Connection, session: &str) -> Result<(String, String), StoreError> {
    let sql = "WITH RECURSIVE above(session, level) AS (
            SELECT ?1, 0 UNION ALL
            SELECT s.session, a.level + 1 FROM above a JOIN spawns s ON s.id = substr(a.session, 1 + length('spawn:'))
            WHERE a.level < 100)
        SELECT session FROM above ORDER BY level DESC LIMIT 1";
    let root: String = select_value(connection, sql, [session])?;
    let sql = format!(
        "WITH RECURSIVE below(session) AS (
            SELECT ?1 UNION SELECT ?2 UNION SELECT 'spawn:' || s.id FROM below b JOIN spawns s ON s.session = b.session
            WHERE b.session <> ?1 OR s.turn IN ({OF_EPOCH}) OR s.turn IN ({RUNNING}))
        SELECT json_group_array(session) FROM below"
    );
    let all = select_value(connection, &sql, params![root, session])?;
    Ok((root, all))
}

/// Returns the usage in the journals of `turns`, a query, from the time `since`, an expression.
fn journal_use(
    connection: &Connection,
    turns: &str,
    since: &str,
    parameters: &[&dyn ToSql],
) -> Result<Vec<BudgetUse>, StoreError> {
    // A compacted turn has several contexts, with the same model.
    let sql = format!(
        "WITH open AS (SELECT DISTINCT turn FROM ({turns})),
        since AS (SELECT {since} AS at),
        context AS (
            SELECT open.turn AS turn, c.body AS body, c.at AS at FROM open JOIN turn_steps c ON c.turn = open.turn AND c.seq = (
                SELECT min(seq) FROM turn_steps WHERE turn = open.turn AND kind = 'context')),
        used AS (
            SELECT r.turn AS turn, coalesce(json_extract(r.body, '$.response.answered_by'),
                    (SELECT json_extract(body, '$.model') FROM context WHERE context.turn = r.turn), '') AS model,
                json_extract(r.body, '$.response.usage') AS tokens, json_extract(r.body, '$.response.cost') AS cost, r.at AS at
            FROM open JOIN turn_steps r ON r.turn = open.turn AND r.kind = 'response'
            UNION ALL
            SELECT r.turn, json_extract(u.value, '$.model'), json_extract(u.value, '$.usage'), json_extract(u.value, '$.cost'), r.at
            FROM open JOIN turn_steps r ON r.turn = open.turn AND r.kind = 'tool_result'
                JOIN json_each(r.body, '$.result.model_use') u
            UNION ALL
            SELECT turn, json_extract(body, '$.choice.model'), json_extract(body, '$.choice.usage'),
                json_extract(body, '$.choice.cost'), at
            FROM context WHERE json_extract(body, '$.choice') IS NOT NULL)
        SELECT model, count(DISTINCT turn), total(json_extract(tokens, '$.input_tokens')),
            total(json_extract(tokens, '$.output_tokens')), total(json_extract(tokens, '$.cached_tokens')),
            total(json_extract(cost, '$.micros')), json_extract(cost, '$.currency') AS currency
        FROM used WHERE at >= (SELECT at FROM since) GROUP BY model, currency"
    );
    read_budget(connection, &sql, parameters)
}

fn read_budget(connection: &Connection, sql: &str, parameters: &[&dyn ToSql]) -> Result<Vec<BudgetUse>, StoreError> {
    select(connection, sql, parameters, |row| {
        let amount = row.get::<_, f64>(5)? as u64;
        let cost = row.get::<_, Option<String>>(6)?.map(|currency| (amount, currency));
        Ok(BudgetUse { model: row.get(0)?, tokens: read_tokens(row, 1)?, cost })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::inbox::{self, NewInboxRow};
    use crate::store::{Durability, Store, messages, spawns, turn_steps};

    fn used(turns: u64, input: u64) -> TokenCounts {
        TokenCounts { turns, input, output: 1, cached: 0 }
    }

    #[tokio::test]
    async fn the_use_of_sub_agents_counts_for_their_session() {
        let (_folder, store) = Store::temporary();
        let count = |connection: &Connection| {
            let [child, grandchild, other] = [1, 2, 3].map(Uuid::from_u128);
            let of_child = spawns::session_of(child);
            for (id, session) in [(child, "heartbeat"), (grandchild, of_child.as_str()), (other, "cli:direct")] {
                let (session, label) = (session.to_owned(), String::new());
                let turn = if session.starts_with("spawn:") { child } else { Uuid::nil() };
                let spawn = spawns::NewSpawn { id, session, turn, label, depth: 1, waits: true };
                spawns::insert(connection, &spawn)?;
                add(connection, id, &spawns::session_of(id), "a/x", used(1, 100), None)?;
            }
            add(connection, Uuid::nil(), "heartbeat", "a/x", used(1, 10), None)?;
            let shown = total(connection, UsageScope::Session("heartbeat"))?.tokens.input;
            let since = |from| tokens_since(connection, "heartbeat", from);
            assert_eq!((since(0)?, since(now_ms() + 1_000)?, shown), (213, 0, 210));
            let budget = |session: &str| -> Result<u64, StoreError> {
                let rows = budget_use(connection, &BudgetScope::Session(session.to_owned()))?;
                Ok(rows.iter().map(|row| row.tokens.input).sum())
            };
            messages::append(connection, "heartbeat", Uuid::nil(), [("user", "{}".to_owned())].into_iter())?;
            let of_grandchild = spawns::session_of(grandchild);
            assert_eq!(["heartbeat", &of_child, &of_grandchild].map(|of| budget(of).unwrap()), [210; 3]);
            messages::new_epoch(connection, "heartbeat")?;
            assert_eq!(
                [budget("heartbeat")?, budget(&of_grandchild)?],
                [0, 100],
                "what ran before `/new` counts no more"
            );
            Ok(())
        };
        store.write(Durability::Logged, count).await.unwrap();
    }

    /// The budget of a turn covers the turns below it, and is fresh after a retry of the turn.
    #[tokio::test]
    async fn the_budget_of_a_turn_covers_its_sub_agents() {
        let (_folder, store) = Store::temporary();
        let count = |connection: &Connection| {
            let [turn, child, grandchild, other] = [1, 2, 3, 4].map(Uuid::from_u128);
            for (id, above) in [(child, turn), (grandchild, child), (other, Uuid::nil())] {
                let (session, label) = (String::new(), String::new());
                let spawn = spawns::NewSpawn { id, session, turn: above, label, depth: 1, waits: true };
                spawns::insert(connection, &spawn)?;
            }
            let body = r#"{"step":"response","response":{"usage":{"input_tokens":10}}}"#;
            for id in [turn, child, grandchild, other] {
                turn_steps::append(connection, id, "response", body)?;
            }
            connection.execute("UPDATE turn_steps SET at = at - 1000", [])?;
            let used = |turn| -> Result<u64, StoreError> {
                let rows = budget_use(connection, &BudgetScope::Turn(turn))?;
                Ok(rows.iter().map(|row| row.tokens.input).sum())
            };
            assert_eq!([turn, child, grandchild, other].map(|turn| used(turn).unwrap()), [30, 30, 30, 10]);
            turn_steps::append(connection, turn, "note", r#"{"step":"retried"}"#)?;
            turn_steps::append(connection, child, "response", body)?;
            assert_eq!((used(turn)?, used(grandchild)?), (10, 10));
            Ok(())
        };
        store.write(Durability::Logged, count).await.unwrap();
    }

    /// A clock that was ahead for a while leaves usage of days to come; it counts on its day, and not until then.
    #[tokio::test]
    async fn the_use_of_days_to_come_does_not_count_yet() {
        let (_folder, store) = Store::temporary();
        let count = |connection: &Connection| {
            let turn = Uuid::now_v7();
            inbox::insert(connection, &NewInboxRow::sample(turn, "s"))?;
            inbox::finish(connection, turn, inbox::MessageStatus::Done)?;
            let all = || -> Result<_, StoreError> {
                Ok([
                    budget_use(connection, &BudgetScope::Since(0))?.iter().map(|row| row.tokens.input).sum::<u64>(),
                    total(connection, UsageScope::Since(0))?.tokens.input,
                    tokens_since(connection, "s", 0)?,
                    tokens_of_jobs(connection, "ann", 0)?,
                ])
            };
            add(connection, turn, "s", "a/x", used(1, 100), None)?;
            let today = all()?;
            connection.execute("UPDATE usage SET at = at + 86400000", [])?;
            Ok((today, all()?))
        };
        assert_eq!(store.write(Durability::Logged, count).await.unwrap(), ([100, 100, 101, 101], [0; 4]));
    }

    #[tokio::test]
    async fn usage_is_separate_for_each_model_and_currency() {
        let (_folder, store) = Store::temporary();
        let (one, two) = (Uuid::now_v7(), Uuid::now_v7());
        let (session, first, all) = store
            .write(Durability::Logged, move |connection| {
                add(connection, one, "s", "a/x", used(1, 10), Some(("USD", 700)))?;
                add(connection, one, "s", "b/y", used(1, 20), Some(("CNY", 5)))?;
                add(connection, two, "s", "a/x", used(1, 30), Some(("USD", 300)))?;
                add(connection, Uuid::now_v7(), "t", "a/x", used(1, 40), None)?;
                // The same once more, as a retry of a commit whose success was not reported.
                add(connection, two, "s", "a/x", used(1, 30), Some(("USD", 300)))?;
                let ask = |scope| total(connection, scope);
                Ok((ask(UsageScope::Session("s"))?, ask(UsageScope::Turn(one))?, ask(UsageScope::Since(0))?))
            })
            .await
            .unwrap();
        let costs =
            |spent: &UsageTotal| spent.costs.iter().map(|(c, n)| format!("{n} {c}")).collect::<Vec<_>>().join(", ");
        assert_eq!((session.tokens.turns, session.tokens.input, costs(&session).as_str()), (2, 60, "5 CNY, 1000 USD"));
        assert_eq!((first.tokens.turns, first.tokens.output, costs(&first).as_str()), (1, 2, "5 CNY, 700 USD"));
        let names: Vec<_> =
            all.models.iter().map(|m| (m.provider.as_str(), m.model.as_str(), m.tokens.input)).collect();
        assert_eq!(names, [("a", "a/x", 80), ("b", "b/y", 20)], "with a price or without, one line a model");
        assert_eq!(all.models[0].tokens.turns, 3);
    }

    #[tokio::test]
    async fn each_response_of_a_running_turn_counts_once_for_a_budget() {
        let (_folder, store) = Store::temporary();
        let count = |connection: &Connection| {
            let turn = Uuid::now_v7();
            inbox::insert(connection, &NewInboxRow::sample(turn, "s"))?;
            // The usage of the turn's first end, which a retry repeats.
            add(connection, turn, "s", "a/x", used(1, 10), None)?;
            for (kind, body) in [
                ("context", r#"{"step":"context","model":"a/x","choice":{"model":"c/z","usage":{"input_tokens":5}}}"#),
                ("response", r#"{"step":"response","response":{"usage":{"input_tokens":10}}}"#),
                // The conversation was compacted.
                ("context", r#"{"step":"context","model":"a/x","choice":{"model":"c/z","usage":{"input_tokens":5}}}"#),
                (
                    "tool_result",
                    r#"{"step":"tool_result","result":{"model_use":[{"model":"b/y","usage":{"input_tokens":7}}]}}"#,
                ),
                ("response", r#"{"step":"response","response":{"usage":{"input_tokens":20}}}"#),
            ] {
                turn_steps::append(connection, turn, kind, body)?;
            }
            let budget = |connection: &Connection| {
                let rows = budget_use(connection, &BudgetScope::Since(0))?;
                Ok::<_, StoreError>(
                    rows.into_iter().map(|row| format!("{} {}", row.model, row.tokens.input)).collect::<Vec<_>>(),
                )
            };
            let queued = budget(connection)?;
            inbox::mark_running(connection, inbox::last_seq(connection)?)?;
            Ok((queued, budget(connection)?))
        };
        let (queued, running) = store.write(Durability::Logged, count).await.unwrap();
        assert_eq!((queued.join(", "), running.join(", ")), ("a/x 10".to_owned(), "a/x 30, b/y 7, c/z 5".to_owned()));
    }

    #[tokio::test]
    async fn an_absurd_count_of_a_service_is_stored_as_the_highest_one() {
        let (_folder, store) = Store::temporary();
        let count = |connection: &Connection| {
            for _ in 0..3 {
                add(connection, Uuid::now_v7(), "s", "a/x", used(1, u64::MAX), Some(("USD", u64::MAX)))?;
            }
            total(connection, UsageScope::Since(0))
        };
        let spent = store.write(Durability::Logged, count).await.unwrap();
        assert_eq!((spent.tokens.input, spent.costs["USD"]), (3 * MAX_AMOUNT, 3 * MAX_AMOUNT));
    }
}
