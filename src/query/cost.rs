//! Tokens and costs by day, model and session.

use std::collections::{BTreeMap, BTreeSet};

use daoyou_channels::text::truncate;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};

use crate::llm::costs_in_words;
use crate::store::usage::{self, Costs, TokenCounts, UsageRow};
use crate::store::{Connection, StoreError};

/// The longest range and the default range, in days.
const MAX_DAYS: i64 = 800;
const USUAL_DAYS: i64 = 30;
/// The maximum number of sessions that are listed, those with the most tokens.
const MAX_SESSIONS: usize = 200;

/// A range of days in a time zone, including the first and the last day.
#[derive(Clone, Debug)]
pub struct CostRange {
    from: Date,
    to: Date,
    zone: TimeZone,
    /// The start and the end of the range, in UTC milliseconds.
    bounds: (i64, i64),
}

#[derive(Default)]
struct UsageSum {
    tokens: TokenCounts,
    micros: Option<u64>,
}

#[derive(Default)]
struct SessionSum {
    turns: BTreeSet<String>,
    tokens: u64,
    costs: Costs,
}

impl CostRange {
    /// Parses days as `YYYY-MM-DD`. By default the range ends today and has 30 days.
    ///
    /// # Errors
    /// A text is not a day, the range is empty or too long, or its days are beyond the calendar of timestamps.
    pub fn parse(from: Option<&str>, to: Option<&str>, zone: &TimeZone, now: Timestamp) -> Result<Self, String> {
        let read = |name: &str, text: &str| {
            text.parse::<Date>()
                .map_err(|_| format!("{name}: {:?} is not a day; write it as YYYY-MM-DD", truncate(text, 40)))
        };
        let today = now.to_zoned(zone.clone()).date();
        let to = to.map_or(Ok(today), |text| read("to", text))?;
        let usual = to.checked_sub((USUAL_DAYS - 1).days()).unwrap_or(to);
        let from = from.map_or(Ok(usual), |text| read("from", text))?;
        let days = i64::from(from.until(to).map(|span| span.get_days()).unwrap_or(i32::MAX)) + 1;
        if !(1..=MAX_DAYS).contains(&days) {
            return Err(format!("from {from} to {to}: 1 to {MAX_DAYS} days are allowed"));
        }
        let begin = |day: Date| day.to_zoned(zone.clone()).map(|at| at.timestamp().as_millisecond());
        let bounds = begin(from).and_then(|start| Ok((start, to.tomorrow().and_then(begin)?)));
        let bounds = bounds.map_err(|_| format!("from {from} to {to}: days of the years -9998 to 9998 are allowed"))?;
        Ok(Self { from, to, zone: zone.clone(), bounds })
    }
}

/// Returns the usage of each model on each day with usage, and of the sessions with the most tokens.
///
/// # Errors
/// The store cannot be read.
pub fn read(connection: &Connection, range: &CostRange) -> Result<Value, StoreError> {
    let mut days: BTreeMap<Date, BTreeMap<(String, Option<String>), UsageSum>> = BTreeMap::new();
    let mut sessions: BTreeMap<String, SessionSum> = BTreeMap::new();
    usage::visit_between(connection, range.bounds, |row| {
        let at = Timestamp::from_millisecond(row.at).unwrap_or_default();
        let day = at.to_zoned(range.zone.clone()).date();
        let currency = row.cost.as_ref().map(|(_, currency)| currency.clone());
        days.entry(day).or_default().entry((row.model.clone(), currency)).or_default().add(&row);
        sessions.entry(row.session.clone()).or_default().add(row);
    })?;
    let model = |((model, currency), sum): (&(String, Option<String>), &UsageSum)| {
        json!({
            "model": model,
            "turns": sum.tokens.turns,
            "input": sum.tokens.input,
            "output": sum.tokens.output,
            "cached": sum.tokens.cached,
            "cost": sum.micros.map(decimal),
            "currency": currency,
        })
    };
    let days =
        days.iter().map(|(day, models)| json!({ "day": day, "models": models.iter().map(model).collect::<Vec<_>>() }));
    let mut listed: Vec<_> = sessions.into_iter().collect();
    listed.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.tokens));
    listed.truncate(MAX_SESSIONS);
    let sessions = listed.iter().map(|(session, sum)| {
        json!({
            "session": session,
            "turns": sum.turns.len(),
            "tokens": sum.tokens,
            "cost": costs_in_words(&sum.costs),
        })
    });
    Ok(json!({
        "from": range.from,
        "to": range.to,
        "days": days.collect::<Vec<_>>(),
        "sessions": sessions.collect::<Vec<_>>(),
    }))
}

impl UsageSum {
    fn add(&mut self, row: &UsageRow) {
        self.tokens.turns += row.tokens.turns;
        self.tokens.input += row.tokens.input;
        self.tokens.output += row.tokens.output;
        self.tokens.cached += row.tokens.cached;
        if let Some((micros, _)) = &row.cost {
            *self.micros.get_or_insert(0) += micros;
        }
    }
}

impl SessionSum {
    fn add(&mut self, row: UsageRow) {
        self.turns.insert(row.turn);
        self.tokens += row.tokens.input + row.tokens.output;
        if let Some((micros, currency)) = row.cost {
            *self.costs.entry(currency).or_default() += micros;
        }
    }
}

/// Formats an amount in millionths as a decimal number.
pub fn decimal(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    // At least four digits, as elsewhere.
    let digits = text.trim_end_matches('0').len().max(text.len() - 2);
    text[..digits].to_owned()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::store::{Durability, Store};

    #[test]
    fn amounts_are_exact() {
        for (micros, expected) in
            [(0, "0.0000"), (12_300, "0.0123"), (24, "0.000024"), (1_500_000, "1.5000"), (120, "0.00012")]
        {
            assert_eq!(decimal(micros), expected);
        }
    }

    #[test]
    fn a_range_is_checked() {
        let now: Timestamp = "2026-11-26T20:00:00Z".parse().unwrap();
        let zone = TimeZone::get("Asia/Shanghai").unwrap();
        let range = |from: Option<&str>, to: Option<&str>| {
            CostRange::parse(from, to, &zone, now).map(|range| format!("{} {}", range.from, range.to))
        };
        assert_eq!(range(None, None).unwrap(), "2026-10-29 2026-11-27", "it is tomorrow there");
        assert_eq!(range(Some("2026-11-01"), Some("2026-11-01")).unwrap(), "2026-11-01 2026-11-01");
        for (from, to) in [
            (Some("2026-11-28"), None),
            (Some("yesterday"), None),
            (Some("2020-01-01"), None),
            (None, Some("2026-13-01")),
            // Days that exist in the calendar, and not as a timestamp.
            (Some("9999-12-31"), Some("9999-12-31")),
            (Some("-009999-01-01"), Some("-009999-01-01")),
        ] {
            assert!(range(from, to).is_err(), "{from:?} {to:?}");
        }
    }

    #[tokio::test]
    async fn use_is_summed_by_local_day_and_model() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let work = |connection: &Connection| {
            let [one, two, three] = [1, 2, 3].map(Uuid::from_u128);
            let used = |input| TokenCounts { turns: 1, input, output: 1, cached: 0 };
            usage::add(connection, one, "s", "a/x", used(10), Some(("USD", 700)))?;
            usage::add(connection, two, "s", "a/x", used(20), Some(("USD", 300)))?;
            usage::add(connection, two, "s", "b/y", used(5), None)?;
            usage::add(connection, three, "t", "a/x", used(40), None)?;
            for (turn, at) in
                [(one, "2026-11-25T17:00:00Z"), (two, "2026-11-25T15:59:00Z"), (three, "2026-11-24T00:00:00Z")]
            {
                let at: Timestamp = at.parse().unwrap();
                connection
                    .execute("UPDATE usage SET at = ? WHERE turn = ?", (at.as_millisecond(), turn.to_string()))?;
            }
            let zone = TimeZone::get("Asia/Shanghai").unwrap();
            let range = CostRange::parse(Some("2026-11-25"), Some("2026-11-26"), &zone, Timestamp::now()).unwrap();
            read(connection, &range)
        };
        let found = store.write(Durability::Logged, work).await.unwrap();
        let model = |model: &str, input: u64, cost: Option<&str>, currency: Option<&str>| json!({"model": model, "turns": 1, "input": input, "output": 1, "cached": 0, "cost": cost, "currency": currency});
        assert_eq!(
            found["days"],
            json!([
                {"day": "2026-11-25", "models": [model("a/x", 20, Some("0.0003"), Some("USD")), model("b/y", 5, None, None)]},
                {"day": "2026-11-26", "models": [model("a/x", 10, Some("0.0007"), Some("USD"))]},
            ])
        );
        assert_eq!(found["sessions"], json!([{"session": "s", "turns": 2, "tokens": 38, "cost": "0.0010 USD"}]));
    }
}
